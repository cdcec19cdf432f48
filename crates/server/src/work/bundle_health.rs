//! Health of the engines that run tools of bundles, determined by a test call.

use super::App;
use glovebox_js::tool_call::CallLimits;
use glovebox_proto::visible::line_of_text;
use glovebox_runner::{CallFailure, Engine, FailureKind, ToolRequest};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Code of the tool that a probe calls; it returns the sum of its inputs.
const TOOL: &str = "export default ({ a, b }) => a + b;";
/// Tenant of probes that are made while tools of the requesting user run. No user name contains a
/// space, so it cannot be a user's.
const TENANT: &str = "server health";
/// Time limit of a probe, in milliseconds.
const WALL_MS: u64 = 5_000;
/// Returns the time for which a successful probe of an engine is valid. Node takes longer to start,
/// so its probes are kept longer.
const fn fresh(engine: Engine) -> Duration {
    match engine {
        Engine::Quickjs => Duration::from_secs(2),
        Engine::Node => Duration::from_mins(1),
    }
}
/// Time for which a failed probe is valid.
const FRESH_FAILURE: Duration = Duration::from_secs(1);

/// Time and result of the probe of an engine.
type Probe = (Instant, Result<(), CallFailure>);

/// Last probe of each engine.
#[derive(Debug, Default)]
pub(super) struct EngineProbes(Mutex<HashMap<Engine, Probe>>);

impl App {
    /// Returns the result of a test call for each engine that requests may name; a recent result is
    /// reused.
    ///
    /// The call runs in the sandbox of this user's tools, so that it needs no further sandbox.
    /// While tools of the user are running, it runs in a sandbox of its own: the places, memory and
    /// processes that those tools leave free say nothing about the engine, and all users see the
    /// result.
    pub(crate) fn probe_engines(&self, user: &str) -> Vec<(Engine, Result<(), CallFailure>)> {
        let engines = Engine::ALL.into_iter();
        let allowed = engines.filter(|engine| self.check_engine(*engine).is_ok());
        allowed
            .map(|engine| (engine, self.probe_engine(user, engine)))
            .collect()
    }

    fn probe_engine(&self, user: &str, engine: Engine) -> Result<(), CallFailure> {
        // Held while a probe runs, so that concurrent requests share one probe.
        let mut probes = self
            .bundles
            .probes
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((at, outcome)) = probes.get(&engine) {
            let fresh = outcome.as_ref().map_or(FRESH_FAILURE, |()| fresh(engine));
            if at.elapsed() < fresh {
                return outcome.clone();
            }
        }
        let has_load = self.bundles.has_calls_of(user) || self.queue.counts_of(user).0 > 0;
        let outcome = self.call_probe(if has_load { TENANT } else { user }, engine);
        probes.insert(engine, (Instant::now(), outcome.clone()));
        outcome
    }

    fn call_probe(&self, tenant: &str, engine: Engine) -> Result<(), CallFailure> {
        let request = ToolRequest {
            tenant,
            tool: "health",
            session: None,
            engine,
            code: TOOL,
            input: &json!({ "a": 2, "b": 3 }),
            context: &json!({}),
            call_id: "health",
            limits: CallLimits {
                wall_ms: WALL_MS,
                ..CallLimits::default()
            },
            fixed: None,
        };
        let called = self.bundles.runner.call(&request, &AtomicBool::new(false));
        let report = called.map_err(|failure| CallFailure {
            message: line_of_text(&failure.message),
            ..failure
        })?;
        if report.value == json!(5) {
            return Ok(());
        }
        Err(CallFailure::new(
            FailureKind::Unavailable,
            "a tool that adds came to something else than the sum",
        ))
    }
}
