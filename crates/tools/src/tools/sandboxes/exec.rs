//! SandboxExec: runs a command line in a child sandbox.

use super::children;
use crate::call::Call;
use crate::catalog::{Effect, Tool};
use crate::schedule::ScheduleLane;
use crate::tools::bash::Bash;
use crate::{ToolOutcome, ToolSession};
use glovebox_proto::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SandboxExec {
    /// Which one.
    #[serde(alias = "sandbox")]
    name: String,
    /// The command line, for bash.
    #[serde(alias = "cmd", alias = "script")]
    command: String,
    /// Working directory; its workspace unless given.
    #[serde(default, alias = "workdir")]
    cwd: Option<String>,
    /// Text for its standard input; without it there is none.
    #[serde(default)]
    stdin: Option<String>,
    /// Milliseconds to wait for the end (120000 unless given, at most 600000). A command that takes
    /// longer is ended.
    #[serde(default, alias = "timeout", alias = "timeout_ms")]
    wait_ms: Option<u64>,
}

impl Tool for SandboxExec {
    const NAME: &'static str = "SandboxExec";
    const ALIASES: &'static [&'static str] = &["sandbox_exec"];
    const DESCRIPTION: &'static str = "Runs a command line with bash in a sandbox that this session has made, \
        and returns its output (the middle is left out when it is long) and its exit code.";
    const EFFECT: Effect = Effect::Runs;
    const IS_FOR_SCRIPTS: bool = false;

    fn lane(&self) -> ScheduleLane {
        // The call changes nothing in the session's own sandbox.
        ScheduleLane::Beside
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let sandbox = children(call)?.connect(call.sandbox(), &self.name)?;
        let wait_ms = call.session.waits().limit_ms(self.wait_ms);
        let session = ToolSession::new(Arc::new(sandbox));
        let bash = Bash::within(self.command, self.cwd, self.stdin);
        let mut outcome = bash.run_to_end(&call.on(&session), wait_ms)?;
        outcome.facts.insert("sandbox".to_owned(), self.name.into());
        Ok(outcome)
    }
}
