//! Health of the server: probed with a real command when the server starts, periodically, and on
//! request.
//!
//! A failing sandbox makes the server unready and refuses new tasks. Both end with the first probe
//! that succeeds.

use super::App;
use super::tools::Unheard;
use glovebox_agent::Placement;
use glovebox_proto::{Code, Exec, Exit, Fault};
use glovebox_sandbox::Sandbox;
use glovebox_session::Error;
use glovebox_session::work::{NewName, NewSandbox, WorkContext, WorkSession, WorkTarget};
use serde::Serialize;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tracing::{info, warn};
use utoipa::ToSchema;

/// Time limit of the probe's command, in milliseconds.
const PROBE_MS: u64 = 3000;
/// Time for which a successful probe is valid, so that frequent requests start few sandboxes.
const FRESH: Duration = Duration::from_secs(10);
/// Time for which a failed probe is valid; shorter, so that a repair is noticed soon.
const FRESH_FAILURE: Duration = Duration::from_secs(2);
/// Interval between health checks when no client follows the status, when one does, and while a
/// component does not work.
const CHECK_UNFOLLOWED: Duration = Duration::from_mins(1);
const CHECK_FOLLOWED: Duration = Duration::from_secs(15);
const CHECK_BROKEN: Duration = Duration::from_secs(3);
/// Free space in the state directory below which sessions are expected to fail: they write events,
/// layers and databases.
const MIN_FREE_BYTES: u64 = 32 << 20;
const SANDBOX: &str = "sandbox";
const TOOLS: &str = "tools";
pub(super) const DISK: &str = "disk";

/// One part that must work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ComponentHealth {
    /// `sandbox`, or `tools` where tools work on this machine itself; `sessions`; `disk`; `pool` where
    /// sandboxes are started ahead; `server` while it ends.
    pub name: &'static str,
    /// Whether it works.
    pub is_ready: bool,
    /// What is wrong, or how long it took.
    pub detail: String,
}

/// Result of a probe that found nothing wrong.
#[derive(Debug, Clone)]
enum Probed {
    /// A command worked. Holds how long the probe took.
    Tried(Duration),
    /// No further sandbox could be started. Holds the reason.
    NoRoom(String),
}

/// Result of a probe, or the message of its failure.
type ProbeResult = Result<Probed, String>;

/// Last result of probing sandboxes.
#[derive(Debug, Default)]
pub(crate) struct LastProbe {
    found: Mutex<Option<(Instant, ProbeResult)>>,
    /// Signals a failure, so that `watch_health` follows up a failure found by a request at once.
    failed: Notify,
    /// Held while a probe occupies the place of a sandbox.
    place: Mutex<()>,
}

impl LastProbe {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, ProbeResult)>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the result of the probe at the start of the server.
    pub(super) fn succeeded(&self, took: Duration) {
        *self.lock() = Some((Instant::now(), Ok(Probed::Tried(took))));
    }

    fn take_place(&self) -> MutexGuard<'_, ()> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a running probe has released its place. Returns false if no probe was running.
    pub(super) fn await_place(&self) -> bool {
        if self.place.try_lock().is_ok() {
            return false;
        }
        drop(self.take_place());
        true
    }
}

impl App {
    /// Starts a sandbox, runs a command in it that writes and reads a file, and removes the
    /// sandbox. Returns how long the command took to finish.
    pub(crate) fn probe_sandbox(&self) -> Result<Duration, Error> {
        Ok(self.try_sandbox(|_| ())?.0)
    }

    /// Probes a sandbox like `probe_sandbox` and, if the command ran, calls `also` with the sandbox
    /// before it ends.
    pub(super) fn try_sandbox<T>(
        &self,
        also: impl FnOnce(&Sandbox) -> T,
    ) -> Result<(Duration, T), Error> {
        // Held until the sandbox has ended: a session that finds no room waits for that instead of
        // stopping an idle sandbox.
        let _place = self.last_probe.take_place();
        let begun = Instant::now();
        let settings = self.session_settings(None, super::TaskLimits::default())?;
        let caller = WorkContext {
            host: &self.config.host,
            registry: &self.config.registry,
            supervisor: &self.config.supervisor,
            frontend: &Unheard,
        };
        let project = self.probe_dir();
        std::fs::create_dir_all(&project).map_err(|error| {
            Error::io(format!("make the directory {}", project.display()), &error)
        })?;
        let target = match self.config.placement {
            Placement::Local => WorkTarget::Local,
            Placement::Sandbox => WorkTarget::New(NewSandbox {
                name: NewName::Random("probe"),
                lease_ms: Some(PROBE_MS),
            }),
        };
        let work = WorkSession::open(&caller, &settings, &project, target)?;
        let probed = work.sandbox().exec(Exec {
            timeout_ms: Some(PROBE_MS),
            ..Exec::new([
                "sh",
                "-c",
                "t=$(mktemp) && echo on > \"$t\" && cat \"$t\" && rm \"$t\"",
            ])
        });
        let took = begun.elapsed();
        let done = probed.map(|output| (output, also(work.sandbox())));
        // Before errors are returned, or a failed probe would leave its sandbox behind.
        work.end(&Unheard);
        let (output, also) = done?;
        if output.report.exit != Exit::Code(0) || output.stdout != b"on\n" {
            let said = String::from_utf8_lossy(&output.stderr)
                .chars()
                .take(200)
                .collect::<String>();
            let place = match self.config.placement {
                Placement::Local => "on this machine",
                Placement::Sandbox => "in a sandbox",
            };
            let message = format!("a command {place} did not do what it should: {said}");
            let fault = Fault::failed(Code::SelfTestFailed, message);
            return Err(fault
                .remedy("`glovebox doctor` shows what this machine lacks")
                .into());
        }
        Ok((took, also))
    }

    /// Returns the health of every component; recent results are reused.
    pub(crate) fn check_health(&self) -> Vec<ComponentHealth> {
        let mut components = vec![
            self.check_sandbox(),
            self.check_sessions(),
            check_disk(&self.config.state_dir),
        ];
        components.extend(self.check_pool());
        if self.is_draining() {
            components.push(ComponentHealth {
                name: "server",
                is_ready: false,
                detail: "the server is ending".to_owned(),
            });
        }
        for component in &components {
            self.metrics
                .component_checked(component.name, component.is_ready);
            let was_ready = self.status.problem_of(component.name).is_none();
            let (name, detail) = (component.name, component.detail.as_str());
            match (was_ready, component.is_ready) {
                (true, false) => warn!(component = name, detail, "a component does not work"),
                (false, true) => info!(component = name, detail, "a component works again"),
                _ => {}
            }
        }
        self.status.set_components(&components);
        components
    }

    fn check_sandbox(&self) -> ComponentHealth {
        if let Some(component) = self.check_addresses(self.tools_component()) {
            return component;
        }
        let mut last = self.last_probe.lock();
        let known = last.as_ref().filter(|(at, probed)| {
            let fresh = if probed.is_ok() { FRESH } else { FRESH_FAILURE };
            at.elapsed() < fresh
        });
        let probed = if let Some((_, probed)) = known {
            probed.clone()
        } else {
            let before = last.take().map(|(_, probed)| probed);
            let probed = match self.probe_sandbox().map_err(Error::into_fault) {
                Ok(took) => Ok(Probed::Tried(took)),
                // No room says nothing about whether sandboxes work: a task may stop an idle
                // sandbox to make room, a probe may not. A failure stays one until a probe
                // succeeds.
                Err(fault) if is_about_room(fault.code) => match before {
                    Some(Err(message)) => Err(message),
                    Some(Ok(_)) | None => Ok(Probed::NoRoom(fault.message)),
                },
                Err(fault) => {
                    self.metrics.failed(fault.code.as_str(), "");
                    self.last_probe.failed.notify_one();
                    Err(fault.message)
                }
            };
            *last = Some((Instant::now(), probed.clone()));
            probed
        };
        drop(last);
        ComponentHealth {
            name: self.tools_component(),
            is_ready: probed.is_ok(),
            detail: match probed {
                Ok(Probed::NoRoom(reason)) => format!("not tried: {reason}"),
                Ok(Probed::Tried(took)) if self.config.placement == Placement::Local => {
                    format!(
                        "a command was tried on this machine in {} ms",
                        took.as_millis()
                    )
                }
                Ok(Probed::Tried(took)) => {
                    format!("started, tried and ended in {} ms", took.as_millis())
                }
                Err(message) => message,
            },
        }
    }

    fn check_sessions(&self) -> ComponentHealth {
        let found = self.log().find("last");
        let problem = found.err().filter(|fault| fault.code != Code::NotFound);
        let (running, queued) = self.counts();
        ComponentHealth {
            name: "sessions",
            is_ready: problem.is_none(),
            detail: problem.map_or_else(
                || format!("{running} at work, {queued} waiting"),
                |fault| fault.message,
            ),
        }
    }

    /// Returns the name of the component that says whether tools can work.
    const fn tools_component(&self) -> &'static str {
        match self.config.placement {
            Placement::Sandbox => SANDBOX,
            Placement::Local => TOOLS,
        }
    }

    /// Refuses new work while tools do not work: the task would only fail.
    pub(super) fn refuse_unready(&self) -> Result<(), Fault> {
        let Some(detail) = self.status.problem_of(self.tools_component()) else {
            return Ok(());
        };
        let (message, remedy) = match self.config.placement {
            Placement::Sandbox => (
                format!("no sandbox works at the moment: {detail}"),
                "try again in a while; `GET /health/ready` says when sandboxes work again",
            ),
            Placement::Local => (
                format!("tools do not work on this machine at the moment: {detail}"),
                "try again in a while; `GET /health/ready` says when tools work again",
            ),
        };
        let fault = Fault::failed(Code::Unavailable, message);
        Err(fault.remedy(remedy).retryable())
    }

    /// Checks health periodically, until the server ends. Captures the environment anew after a
    /// failure has ended.
    pub(crate) async fn watch_health(self: Arc<Self>) {
        let mut was_ready = true;
        loop {
            let app = Arc::clone(&self);
            let checked = tokio::task::spawn_blocking(move || {
                let components = app.check_health();
                let is_ready = components.iter().all(|component| component.is_ready);
                if is_ready && !was_ready {
                    app.refresh_environment();
                }
                is_ready
            });
            // A panic in the check must not end this loop; it counts as a failure.
            was_ready = checked.await.unwrap_or(false);
            let pause = match (was_ready, self.status.is_followed()) {
                (false, _) => CHECK_BROKEN,
                (true, true) => CHECK_FOLLOWED,
                (true, false) => CHECK_UNFOLLOWED,
            };
            let pause = self
                .next_address_look()
                .map_or(pause, |look| look.min(pause));
            tokio::select! {
                () = self.end.cancelled() => return,
                () = self.last_probe.failed.notified(), if was_ready => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

const fn is_about_room(code: Code) -> bool {
    matches!(code, Code::TooManySandboxes | Code::Busy | Code::NoSpace)
}

fn check_disk(state_dir: &Path) -> ComponentHealth {
    let (is_ready, detail) = match rustix::fs::statvfs(state_dir) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let mib = free >> 20;
            if free >= MIN_FREE_BYTES {
                (true, format!("{mib} MiB free in the state directory"))
            } else {
                let least = MIN_FREE_BYTES >> 20;
                (
                    false,
                    format!(
                        "{mib} MiB free in the state directory; at least {least} MiB are needed: delete sessions, or make room"
                    ),
                )
            }
        }
        Err(error) => (
            false,
            format!("the state directory cannot be looked at: {error}"),
        ),
    };
    ComponentHealth {
        name: DISK,
        is_ready,
        detail,
    }
}
