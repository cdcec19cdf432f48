//! Spawn: makes a child sandbox beside the session's own.

use super::children;
use super::narrow::narrow;
use crate::ToolOutcome;
use crate::call::Call;
use crate::catalog::{Advice, Effect, Tool};
use glovebox_proto::Fault;
use glovebox_sandbox::Sandbox;
use glovebox_spec::Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;

/// Default beginning of a child's name.
const USUAL_LABEL: &str = "spawn";

/// Arguments.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spawn {
    /// What its name begins with (a-z, 0-9, `-`, `_`).
    #[serde(default)]
    pub(super) name: Option<String>,
    /// What it sees of the project: `same` as this session saw at its beginning (unless given),
    /// `read-only`, or `empty` for nothing of it.
    #[serde(default)]
    pub(super) workspace: Workspace,
    /// Whether its commands have network; only if this session's have. As for this session unless
    /// given.
    #[serde(default)]
    pub(super) network: Option<bool>,
    /// Memory in MiB; as for this session unless given, and never more. So are all limits.
    #[serde(default)]
    pub(super) memory_mib: Option<u64>,
    /// CPU time per second, in thousandths of one CPU.
    #[serde(default)]
    pub(super) cpu_millis: Option<u64>,
    /// Processes and threads.
    #[serde(default)]
    pub(super) processes: Option<u64>,
    /// What it may write, in MiB.
    #[serde(default)]
    pub(super) disk_mib: Option<u64>,
    /// How long it lives, in seconds.
    #[serde(default)]
    pub(super) seconds: Option<u64>,
    /// Whether it stays, for the user, when this session ends; otherwise it ends too, with its files.
    #[serde(default)]
    pub(super) keep: bool,
}

/// What a child sees of the project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Workspace {
    #[default]
    Same,
    ReadOnly,
    Empty,
}

impl Tool for Spawn {
    const NAME: &'static str = "Spawn";
    const ALIASES: &'static [&'static str] = &["sandbox_spawn"];
    const DESCRIPTION: &'static str = "Makes another sandbox beside this session's own, with its own files and \
        processes, to try something out in. It begins with the project as it was, without this session's \
        changes, and can do nothing this session cannot.";
    const ADVICE: &'static [Advice] = &[Advice {
        tool: "SandboxExec",
        sentence: "Use SandboxExec to run commands in it.",
    }];
    const EFFECT: Effect = Effect::Runs;
    const IS_FOR_SCRIPTS: bool = false;

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let children = children(call)?;
        let mut spec = children.spec(call.sandbox())?;
        let secrets: Vec<String> = spec
            .secrets
            .iter()
            .map(|secret| secret.name.as_str().to_owned())
            .collect();
        narrow(&mut spec, &self)?;
        let (has_network, limits) = (spec.jail.net != Net::None, spec.jail.limits.clone());
        let hosts = match spec.jail.net {
            Net::Egress => opened_since(call.sandbox())?,
            Net::None | Net::Host => Vec::new(),
        };
        let label = self.name.as_deref().unwrap_or(USUAL_LABEL);
        let name = children.start(call.sandbox(), spec, label, self.keep)?;
        let end = if self.keep {
            "it stays when this session ends"
        } else {
            "it ends with this session"
        };
        let mut text = format!("[sandbox {name} is ready; {end}]");
        if !secrets.is_empty() {
            let _ = write!(
                text,
                "\n[this session's secrets are not in it: {}]",
                secrets.join(", ")
            );
        }
        if !hosts.is_empty() {
            let _ = write!(
                text,
                "\n[hosts that were opened for this session since its start are closed there: {}]",
                hosts.join(", ")
            );
        }
        Ok(ToolOutcome::ok(
            text,
            json!({
                "sandbox": name.as_str(),
                "workspace": self.workspace,
                "network": has_network,
                "limits": limits,
                "kept": self.keep,
                "secrets_left_out": secrets,
                "hosts_left_out": hosts,
            }),
        ))
    }
}

/// Returns the network rules that the user added while the session was running. They apply to this
/// sandbox alone and end with it, so a child does not get them.
fn opened_since(sandbox: &Sandbox) -> Result<Vec<String>, Fault> {
    let rules = sandbox.network_rules()?;
    let added = rules.iter().filter(|rule| rule.is_added && !rule.is_denial);
    Ok(added.map(|rule| rule.rule.to_string()).collect())
}
