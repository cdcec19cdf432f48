//! Whether the engines that run tools of bundles work: found out by a call.

use super::App;
use glovebox_js::tool_call::CallLimits;
use glovebox_proto::visible::line_of_text;
use glovebox_runner::{CallFailure, Engine, FailureKind, ToolRequest};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A tool that is right when it adds.
const TOOL: &str = "export default ({ a, b }) => a + b;";
/// On whose behalf an engine is probed while tools of the user that asks are at work. No user has a name with a space.
const TENANT: &str = "server health";
/// What a probe may take.
const WALL_MS: u64 = 5_000;
/// How long the outcome of a probe holds, by its engine: the start of Node takes a while.
const fn fresh(engine: Engine) -> Duration {
    match engine {
        Engine::Quickjs => Duration::from_secs(2),
        Engine::Node => Duration::from_mins(1),
    }
}
/// How long a failure holds.
const FRESH_FAILURE: Duration = Duration::from_secs(1);

/// When an engine was probed, and what came of it.
type Probe = (Instant, Result<(), CallFailure>);

/// The last probe of each engine.
#[derive(Debug, Default)]
pub(super) struct EngineProbes(Mutex<HashMap<Engine, Probe>>);

impl App {
    /// What a call of a tool comes to with each engine that requests may name, now or a moment ago. The call is made
    /// in the sandbox of this user's tools, where it takes no further one of the sandboxes there may be; while tools of
    /// the user are at work it is made in one of its own: what they leave of places, memory and processes says nothing
    /// of the engine, and the outcome is told to all users.
    pub(crate) fn probe_engines(&self, user: &str) -> Vec<(Engine, Result<(), CallFailure>)> {
        let engines = Engine::ALL.into_iter();
        let allowed = engines.filter(|engine| self.check_engine(*engine).is_ok());
        allowed
            .map(|engine| (engine, self.probe_engine(user, engine)))
            .collect()
    }

    fn probe_engine(&self, user: &str, engine: Engine) -> Result<(), CallFailure> {
        // Held while a probe runs, so that many who ask make one.
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
