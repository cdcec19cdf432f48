//! Sandboxes of sessions whose work has ended: they go on for those who look at them, and not for ever.
//!
//! One that nobody has used for a while stops and keeps its files; so does the one that was used least lately when a
//! session needs a sandbox and there can be no more. Whatever a command still does in it keeps it from stopping for
//! being idle.

use super::App;
use super::lifetime::shown;
use glovebox_agent::{Event, SessionInfo};
use glovebox_proto::{Code, Fault, JobState};
use glovebox_sandbox::{Name, SandboxState};
use glovebox_session::Error;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often it is looked which have been idle for long, at most and at least.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// When each was last used.
#[derive(Debug, Default)]
pub(crate) struct IdleSandboxes {
    used: Mutex<HashMap<Name, Instant>>,
}

impl IdleSandboxes {
    fn used(&self) -> MutexGuard<'_, HashMap<Name, Instant>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was used just now, and nobody works in it.
    pub(crate) fn touch(&self, name: &Name) {
        self.used().insert(name.clone(), Instant::now());
    }

    /// It was used, if it is idle.
    pub(super) fn touch_idle(&self, name: &Name) {
        if let Some(used) = self.used().get_mut(name) {
            *used = Instant::now();
        }
    }

    /// Somebody works in it, or it is gone.
    pub(super) fn remove(&self, name: &Name) {
        self.used().remove(name);
    }

    /// All of them, those that were used least lately first.
    fn by_age(&self) -> Vec<Name> {
        let used = self.used();
        let mut all: Vec<_> = used.iter().map(|(name, at)| (*at, name.clone())).collect();
        all.sort();
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// Those that nobody has used for so long.
    fn older_than(&self, idle: Duration) -> Vec<Name> {
        let used = self.used();
        let old = used.iter().filter(|(_, at)| at.elapsed() >= idle);
        old.map(|(name, _)| name.clone()).collect()
    }
}

impl App {
    /// Does `start`, when its turn has come, and where there can be no more sandboxes, again after an idle one has stopped.
    pub(super) fn with_room<T>(
        &self,
        mut start: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let inside = self.start_gate.enter();
            let started = start();
            drop(inside);
            match started {
                // Busy: one that runs has the user ids that the files of this one belong to.
                Err(Error::Fault(fault))
                    if matches!(fault.code, Code::TooManySandboxes | Code::Busy) =>
                {
                    // A probe gives its place back in a moment: nothing is stopped for that.
                    if self.last_probe.await_place() {
                        continue;
                    }
                    if !self.give_up_warm() && !self.stop_one_idle(|_| true) {
                        return Err(fault.into());
                    }
                }
                done => return done,
            }
        }
    }

    /// Stops, of those that `may_stop`, the one that was used least lately and that nothing runs in. False when there
    /// is none.
    pub(super) fn stop_one_idle(&self, may_stop: impl Fn(&Name) -> bool) -> bool {
        let idle = self.idle.by_age();
        let mut candidates = idle.iter().filter(|name| may_stop(name));
        let Some(oldest) = candidates.find(|name| !self.is_busy(name)) else {
            return false;
        };
        self.idle.remove(oldest);
        self.stop_sandbox(oldest, "it made room for another sandbox");
        true
    }

    /// Stops a sandbox whose files stay, and tells its sessions why. One that cannot be stopped is left as it is.
    pub(super) fn stop_sandbox(&self, name: &Name, reason: &str) {
        self.sandboxes.close(name);
        let registry = &self.config.registry;
        let has_layers = registry
            .spec(name)
            .is_ok_and(|spec| spec.has_layers_on_disk());
        if has_layers && let Ok(sandbox) = registry.connect(name) {
            self.count_network(name, true);
            if sandbox.stop(reason).is_ok() {
                info!(sandbox = name.as_str(), reason, "sandbox stopped");
                // A log that cannot be written now says less, and changes nothing about the sandbox.
                let _ = self.log_stop(name, reason);
            }
        }
    }

    /// The last event of sessions whose sandbox was stopped says why.
    fn log_stop(&self, name: &Name, reason: &str) -> Result<(), Fault> {
        let log = self.log();
        let over_it = |info: &SessionInfo| info.sandbox.as_deref() == Some(name.as_str());
        for session in log.list()?.into_iter().filter(over_it) {
            let event = Event::SandboxStopped {
                sandbox: name.to_string(),
                reason: reason.to_owned(),
            };
            log.append(&session.id, &event)?;
        }
        Ok(())
    }

    /// Until the server ends, stops what is idle for longer than it may be.
    pub(crate) async fn stop_idle(self: Arc<Self>) {
        let pause = self.config.idle.clamp(LOOK.0, LOOK.1);
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.end.cancelled() => return,
            }
            let app = Arc::clone(&self);
            let stopped = tokio::task::spawn_blocking(move || {
                let reason = format!("nobody has used it for {}", shown(app.config.idle));
                for name in app.idle.older_than(app.config.idle) {
                    if app.is_busy(&name) {
                        app.idle.touch(&name);
                        continue;
                    }
                    app.idle.remove(&name);
                    app.stop_sandbox(&name, &reason);
                }
            });
            // A panic in there is not this loop's end.
            if stopped.await.is_err() {
                warn!("idle sandboxes could not be looked at");
            }
        }
    }

    /// Whether a command runs in it.
    fn is_busy(&self, name: &Name) -> bool {
        let sandbox = self.config.registry.connect(name);
        let jobs = sandbox.and_then(|sandbox| sandbox.jobs());
        jobs.is_ok_and(|jobs| {
            jobs.iter()
                .any(|job| !matches!(job.state, JobState::Ended(_)))
        })
    }

    /// Sandboxes of earlier sessions that still run are idle from now on.
    pub(super) fn find_idle(&self) -> Result<(), Error> {
        let sessions = self.log().list()?;
        for (name, owned) in self.owners.sandboxes()? {
            let Ok(name) = Name::parse(&name) else {
                continue;
            };
            let entry = self.config.registry.entry(&name)?;
            if entry.is_some_and(|entry| entry.state == SandboxState::Ready) {
                self.idle.touch(&name);
                let over_it = |info: &&SessionInfo| info.sandbox.as_deref() == Some(name.as_str());
                let session = sessions.iter().find(over_it).map(|info| info.id.as_str());
                self.accounting.network.watch(&name, &owned.user, session);
            }
        }
        self.watch_children()?;
        Ok(())
    }
}
