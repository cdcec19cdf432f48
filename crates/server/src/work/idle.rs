//! Idle sandboxes: those of sessions whose work has ended. They keep running for users who still
//! look at them, for a limited time.
//!
//! A sandbox that was not used for the idle time is stopped and keeps its files. The least recently
//! used one is stopped when a session needs a sandbox and there is no room. A sandbox in which a
//! command runs is not stopped for being idle.

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

/// Minimum and maximum interval between checks for idle sandboxes.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// Idle sandboxes with the time of their last use.
#[derive(Debug, Default)]
pub(crate) struct IdleSandboxes {
    used: Mutex<HashMap<Name, Instant>>,
}

impl IdleSandboxes {
    fn used(&self) -> MutexGuard<'_, HashMap<Name, Instant>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a sandbox as idle and used just now.
    pub(crate) fn touch(&self, name: &Name) {
        self.used().insert(name.clone(), Instant::now());
    }

    /// Marks a sandbox as used just now if it is idle.
    pub(super) fn touch_idle(&self, name: &Name) {
        if let Some(used) = self.used().get_mut(name) {
            *used = Instant::now();
        }
    }

    /// Removes a sandbox that is no longer idle, because a session works in it or it was removed.
    pub(super) fn remove(&self, name: &Name) {
        self.used().remove(name);
    }

    /// Returns all idle sandboxes, the least recently used first.
    fn by_age(&self) -> Vec<Name> {
        let used = self.used();
        let mut all: Vec<_> = used.iter().map(|(name, at)| (*at, name.clone())).collect();
        all.sort();
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the sandboxes that have not been used for at least `idle`.
    fn older_than(&self, idle: Duration) -> Vec<Name> {
        let used = self.used();
        let old = used.iter().filter(|(_, at)| at.elapsed() >= idle);
        old.map(|(name, _)| name.clone()).collect()
    }
}

impl App {
    /// Calls `start` inside the start gate. When there is no room for a sandbox, frees a warm or an
    /// idle one and calls `start` again.
    ///
    /// # Errors
    /// Returns the error of `start` if it has another cause or no sandbox can be freed.
    pub(super) fn with_room<T>(
        &self,
        mut start: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let inside = self.start_gate.enter();
            let started = start();
            // The gate is left before a sandbox is stopped: other starts must not wait for that.
            drop(inside);
            match started {
                // Busy: a running sandbox uses the user ids that own the files of this one.
                Err(Error::Fault(fault))
                    if matches!(fault.code, Code::TooManySandboxes | Code::Busy) =>
                {
                    // A probe releases its place in a moment, so no sandbox is stopped for it.
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

    /// Stops the least recently used idle sandbox that `may_stop` accepts and in which no command
    /// runs. Returns false if there is none.
    pub(super) fn stop_one_idle(&self, may_stop: impl Fn(&Name) -> bool) -> bool {
        let idle = self.idle.by_age();
        let mut candidates = idle.iter().filter(|name| may_stop(name));
        let Some(oldest) = candidates.find(|name| !self.is_busy(name)) else {
            return false;
        };
        // Removed before the stop, which takes a while: a concurrent start must choose another
        // sandbox.
        self.idle.remove(oldest);
        self.stop_sandbox(oldest, "it made room for another sandbox");
        true
    }

    /// Stops a sandbox and logs the reason in its sessions. A sandbox whose files would be lost, or
    /// that cannot be stopped, keeps running.
    pub(super) fn stop_sandbox(&self, name: &Name, reason: &str) {
        self.sandboxes.close(name);
        let registry = &self.config.registry;
        let keeps_files = registry.spec(name).is_ok_and(|spec| spec.keeps_files());
        if keeps_files && let Ok(sandbox) = registry.connect(name) {
            // Before the stop: what the supervisor holds back is lost when it ends.
            self.count_network(name, true);
            if sandbox.stop(reason).is_ok() {
                info!(sandbox = name.as_str(), reason, "sandbox stopped");
                // The sandbox is stopped already: a failure to write the log must not be reported
                // as a failure to stop.
                let _ = self.log_stop(name, reason);
            }
        }
    }

    /// Appends the reason to the log of each session of a stopped sandbox.
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

    /// Stops sandboxes that are idle for longer than allowed, until the server ends.
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
            // A panic in the check must not end this loop.
            if stopped.await.is_err() {
                warn!("idle sandboxes could not be looked at");
            }
        }
    }

    /// Returns true if a command runs in a sandbox. False also if the sandbox cannot be asked.
    fn is_busy(&self, name: &Name) -> bool {
        let sandbox = self.config.registry.connect(name);
        let jobs = sandbox.and_then(|sandbox| sandbox.jobs());
        jobs.is_ok_and(|jobs| {
            jobs.iter()
                .any(|job| !matches!(job.state, JobState::Ended(_)))
        })
    }

    /// Marks running sandboxes of earlier sessions as idle, when the server starts.
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
