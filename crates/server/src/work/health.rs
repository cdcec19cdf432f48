//! Whether the server can work: tried, not believed.

use super::App;
use super::tools::Unheard;
use glovebox_agent::Placement;
use glovebox_proto::{Code, Exec, Exit, Fault};
use glovebox_sandbox::Sandbox;
use glovebox_session::Error;
use glovebox_session::work::{NewName, NewSandbox, WorkContext, WorkSession, WorkTarget};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// How long the command that is tried may take.
const PROBE_MS: u64 = 3000;
/// How long what was found holds: asking for it must not start a sandbox each time.
const FRESH: Duration = Duration::from_secs(10);

/// One part that must work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ComponentHealth {
    /// `sandbox` or `sessions`.
    pub name: &'static str,
    /// Whether it works.
    pub is_ready: bool,
    /// What is wrong, or how long it took.
    pub detail: String,
}

/// What was last found about sandboxes.
#[derive(Debug, Default)]
pub(crate) struct LastProbe(Mutex<Option<(Instant, Result<Duration, String>)>>);

impl App {
    /// Starts a sandbox, runs a command in it, writes, reads, and ends it: how long that took.
    pub(crate) fn probe_sandbox(&self) -> Result<Duration, Error> {
        Ok(self.try_sandbox(|_| ())?.0)
    }

    /// The same, and `also` something in that sandbox when it works: what came of it.
    pub(super) fn try_sandbox<T>(
        &self,
        also: impl FnOnce(&Sandbox) -> T,
    ) -> Result<(Duration, T), Error> {
        let begun = Instant::now();
        let settings = self.session_settings(None, super::TaskLimits::default())?;
        let caller = WorkContext {
            host: &self.config.host,
            registry: &self.config.registry,
            supervisor: &self.config.supervisor,
            frontend: &Unheard,
        };
        let project = self.workspaces_dir().join("probe");
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
        work.end(&Unheard);
        let (output, also) = done?;
        if output.report.exit != Exit::Code(0) || output.stdout != b"on\n" {
            let said = String::from_utf8_lossy(&output.stderr)
                .chars()
                .take(200)
                .collect::<String>();
            return Err(Fault::failed(
                Code::SelfTestFailed,
                format!("a command in a sandbox did not do what it should: {said}"),
            )
            .remedy("`glovebox doctor` shows what this machine lacks")
            .into());
        }
        Ok((took, also))
    }

    /// Every part, as it is now or was a moment ago.
    pub(crate) fn check_health(&self) -> Vec<ComponentHealth> {
        let log = self.log().find("last");
        let is_log_ready = !matches!(&log, Err(fault) if fault.code == Code::Io);
        let mut last = self
            .last_probe
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        let probed = if let Some((_, probed)) = known {
            probed.clone()
        } else {
            let probed = self.probe_sandbox().map_err(|error| error.to_string());
            *last = Some((Instant::now(), probed.clone()));
            probed
        };
        drop(last);
        let (running, queued) = self.counts();
        let components = vec![
            ComponentHealth {
                name: "sandbox",
                is_ready: probed.is_ok(),
                detail: match probed {
                    Ok(took) => format!("started, tried and ended in {} ms", took.as_millis()),
                    Err(error) => error,
                },
            },
            ComponentHealth {
                name: "sessions",
                is_ready: is_log_ready,
                detail: log.err().filter(|_| !is_log_ready).map_or_else(
                    || format!("{running} work, {queued} wait"),
                    |fault| fault.message,
                ),
            },
        ];
        self.status.set_components(&components);
        components
    }
}
