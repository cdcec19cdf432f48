//! SandboxKill: terminates a child sandbox.

use super::children;
use crate::ToolOutcome;
use crate::call::Call;
use crate::catalog::{Effect, Tool};
use crate::schedule::ScheduleLane;
use glovebox_proto::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SandboxKill {
    /// Which one.
    #[serde(alias = "sandbox")]
    name: String,
}

impl Tool for SandboxKill {
    const NAME: &'static str = "SandboxKill";
    const ALIASES: &'static [&'static str] = &["sandbox_kill"];
    const DESCRIPTION: &'static str =
        "Ends a sandbox that this session has made, with all that runs in it and all its files.";
    const EFFECT: Effect = Effect::Writes;
    const IS_FOR_SCRIPTS: bool = false;

    fn lane(&self) -> ScheduleLane {
        // A child must be killable while a call waits for a command in it.
        ScheduleLane::Beside
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let name = children(call)?.kill(call.sandbox(), &self.name)?;
        Ok(ToolOutcome::ok(
            format!("[sandbox {name} is gone]"),
            json!({ "sandbox": name.as_str() }),
        ))
    }
}
