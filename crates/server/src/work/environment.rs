//! Allow-listed facts about this machine and its sandboxes, captured when the server starts, every
//! 15 minutes, and on request.
//!
//! Capturing starts a sandbox like the health check does; at the start of the server it uses the
//! sandbox of the first probe. If sandboxes run at a service, the service is probed instead. A
//! failure to capture is part of the snapshot and stops nothing. Only the environment variables
//! that `HostFacts` lists are read.

use super::App;
use glovebox_agent::{Date, Placement, Program, SystemFacts};
use glovebox_session::Error;
use glovebox_session::host::{HostFacts, now_unix_ms};
use glovebox_session::work::SandboxFacts;
use serde::Serialize;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use utoipa::ToSchema;

/// Interval between captures.
const REFRESH: Duration = Duration::from_mins(15);
/// Age up to which a snapshot answers a request without a new capture.
const FRESH: Duration = Duration::from_secs(10);

/// Facts of the machine that serves and of its sandboxes.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct EnvironmentSnapshot {
    /// Whether the facts are there.
    pub state: EnvironmentState,
    /// Where tools work: `sandbox`, or `local` without walls.
    pub placement: &'static str,
    /// The machine that serves.
    pub host: HostView,
    /// A new sandbox; `null` until one was looked at. After a failure, what was found before it.
    pub sandbox: Option<SandboxFactsView>,
    /// Why the sandbox could not be looked at.
    pub problem: Option<String>,
    /// When this was captured, in UTC, such as `2026-11-24T12:00:00Z`.
    pub captured_at: String,
    /// Facts that are not as in the snapshot before, such as `sandbox.kernel`.
    pub changes: Vec<String>,
}

/// Whether the facts are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EnvironmentState {
    /// The first sandbox is being looked at.
    Starting,
    /// They are.
    Ready,
    /// Those of the sandbox could not be captured.
    Degraded,
}

/// A program.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ProgramView {
    /// Its name.
    pub name: String,
    /// Its version; may be empty.
    pub version: String,
}

/// The machine that serves. Each text is one line of plain characters, and empty where nothing is known.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct HostView {
    /// System, such as `Debian GNU/Linux 12 (bookworm)`.
    pub os: String,
    /// Kernel, such as `Linux 6.1.0-28-amd64`.
    pub kernel: String,
    /// Architecture, such as `x86_64`.
    pub arch: String,
    /// Time zone.
    pub time_zone: String,
    /// `HOSTNAME`, or the kernel's name of the machine.
    pub hostname: String,
    /// `USER`.
    pub user: String,
    /// Working directory of the server.
    pub directory: String,
    /// Glovebox, and the programs that it uses on this machine.
    pub programs: Vec<ProgramView>,
}

/// A new sandbox. Each text is one line of plain characters, and empty where nothing is known.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct SandboxFactsView {
    /// System, such as `Debian GNU/Linux 12 (bookworm)`.
    pub os: String,
    /// Kernel, such as `Linux 6.1.0-28-amd64`.
    pub kernel: String,
    /// Architecture, such as `x86_64`.
    pub arch: String,
    /// Time zone.
    pub time_zone: String,
    /// Where commands start.
    pub directory: String,
    /// Programs that were found, those with a version first.
    pub programs: Vec<ProgramView>,
}

impl EnvironmentSnapshot {
    /// Returns the snapshot for the time before the first capture.
    pub(super) fn starting(placement: Placement) -> Self {
        Self {
            state: EnvironmentState::Starting,
            placement: placement.as_str(),
            host: HostView::new(HostFacts::default()),
            sandbox: None,
            problem: None,
            captured_at: utc_text(now_unix_ms()),
            changes: Vec::new(),
        }
    }
}

impl HostView {
    fn new(facts: HostFacts) -> Self {
        let own = Program {
            name: "glovebox".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let SystemFacts {
            os,
            kernel,
            arch,
            time_zone,
        } = facts.system;
        Self {
            os,
            kernel,
            arch,
            time_zone,
            hostname: facts.hostname,
            user: facts.user,
            directory: facts.directory,
            programs: views(std::iter::once(own).chain(facts.programs)),
        }
    }
}

impl SandboxFactsView {
    fn new(facts: SandboxFacts) -> Self {
        let SystemFacts {
            os,
            kernel,
            arch,
            time_zone,
        } = facts.system;
        Self {
            os,
            kernel,
            arch,
            time_zone,
            directory: facts.directory,
            programs: views(facts.programs),
        }
    }
}

fn views(programs: impl IntoIterator<Item = Program>) -> Vec<ProgramView> {
    let programs = programs.into_iter();
    programs
        .map(|Program { name, version }| ProgramView { name, version })
        .collect()
}

/// Formats a time as in RFC 3339, with a precision of one second.
fn utc_text(unix_ms: u64) -> String {
    let second = unix_ms / 1000 % 86_400;
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    let date = Date::from_unix_ms(unix_ms);
    format!("{date}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

/// Returns the names of the facts that differ, such as `sandbox.kernel`.
fn changes(before: &EnvironmentSnapshot, now: &EnvironmentSnapshot) -> Vec<String> {
    let parts = |snapshot: &EnvironmentSnapshot| {
        let value = |part: Result<Value, serde_json::Error>| part.unwrap_or_default();
        [
            ("host", value(serde_json::to_value(&snapshot.host))),
            ("sandbox", value(serde_json::to_value(&snapshot.sandbox))),
        ]
    };
    let mut names = Vec::new();
    for ((part, before), (_, now)) in parts(before).into_iter().zip(parts(now)) {
        let Some(facts) = now.as_object() else {
            continue;
        };
        let changed = facts
            .iter()
            .filter(|(name, fact)| before.get(name) != Some(*fact));
        names.extend(changed.map(|(name, _)| format!("{part}.{name}")));
    }
    names
}

/// Time of the last capture, and the lock that serializes captures.
#[derive(Debug, Default)]
pub(crate) struct EnvironmentClock {
    /// Time of the last capture; held during a capture.
    last: Mutex<Option<Instant>>,
    /// Signals a capture, so that the 15 minutes begin anew.
    captured: Notify,
}

impl EnvironmentClock {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// Captures a new snapshot, or returns the last one if it is younger than `FRESH`. Blocks while
    /// another capture runs.
    pub(crate) fn refresh_environment(&self) -> Arc<EnvironmentSnapshot> {
        let clock = &self.environment_clock;
        let mut last = clock.lock();
        if last.is_none_or(|at| at.elapsed() >= FRESH) {
            self.capture_environment();
            *last = Some(Instant::now());
            clock.captured.notify_one();
        }
        drop(last);
        self.status.environment()
    }

    /// Tries a sandbox and captures the first snapshot from it. Returns how long the sandbox took.
    ///
    /// # Errors
    /// Fails if the sandbox does not work. A failure to capture facts is part of the snapshot
    /// instead.
    pub(crate) fn begin_environment(&self) -> Result<Duration, Error> {
        let mut last = self.environment_clock.lock();
        let begun = Instant::now();
        let (took, facts) = match self.begin_addresses() {
            Some(facts) => (begun.elapsed(), Ok(facts?)),
            None => self.try_sandbox(SandboxFacts::capture)?,
        };
        self.tell_environment(facts.map_err(|fault| fault.message));
        *last = Some(Instant::now());
        self.last_probe.succeeded(took);
        Ok(took)
    }

    fn capture_environment(&self) {
        if let Some(facts) = self.capture_addresses() {
            self.tell_environment(facts);
            return;
        }
        self.tell_environment(match self.try_sandbox(SandboxFacts::capture) {
            Ok((_, Ok(facts))) => Ok(facts),
            Ok((_, Err(fault))) => Err(fault.message),
            Err(error) => Err(error.message().to_owned()),
        });
    }

    fn tell_environment(&self, looked: Result<SandboxFacts, String>) {
        let before = self.status.environment();
        let host = HostFacts::capture(&self.config.host);
        let (sandbox, problem) = match looked {
            Ok(facts) => (Some(SandboxFactsView::new(facts)), None),
            Err(problem) => (before.sandbox.clone(), Some(problem)),
        };
        let mut now = EnvironmentSnapshot {
            state: if problem.is_none() {
                EnvironmentState::Ready
            } else {
                EnvironmentState::Degraded
            },
            placement: self.config.placement.as_str(),
            host: HostView::new(host),
            sandbox,
            problem,
            captured_at: utc_text(now_unix_ms()),
            changes: Vec::new(),
        };
        if before.state != EnvironmentState::Starting {
            now.changes = changes(&before, &now);
        }
        self.status.set_environment(now);
    }

    /// Captures facts every 15 minutes, until the server ends.
    pub(crate) async fn watch_environment(self: Arc<Self>) {
        self.status.finish_startup();
        loop {
            // A capture on request restarts the interval, since its snapshot is as good.
            while tokio::select! {
                () = self.end.cancelled() => return,
                () = self.environment_clock.captured.notified() => true,
                () = tokio::time::sleep(REFRESH) => false,
            } {}
            let app = Arc::clone(&self);
            // A panic in the capture must not end this loop.
            let _ = tokio::task::spawn_blocking(move || app.refresh_environment()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339() {
        assert_eq!(utc_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc_text(1_795_000_000_999), "2026-11-18T11:06:40Z");
    }

    #[test]
    fn what_changed_is_named() {
        let before = EnvironmentSnapshot::starting(Placement::Sandbox);
        assert_eq!(changes(&before, &before), Vec::<String>::new());
        let mut now = before.clone();
        now.host.user = "ann".to_owned();
        now.captured_at = "later".to_owned();
        assert_eq!(changes(&before, &now), ["host.user"]);
        now.sandbox = Some(SandboxFactsView::new(SandboxFacts::default()));
        assert!(changes(&before, &now).contains(&"sandbox.kernel".to_owned()));
    }
}
