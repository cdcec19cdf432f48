//! `glovebox bundle`: agents and tools that a JavaScript file declares. One file per action; `file` has the
//! bundle's file, its extraction in a confined process, and the words for its problems; `manifest` several at once.

mod call;
mod check;
mod dev;
mod file;
mod manifest;
mod run;
mod show;

use super::{Cx, run::supervisor};
use crate::args::{BundleAction, BundleArgs, BundleHosts};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, plural};
use file::{ReadBundle, read};
use glovebox_bundle::{Bundle, ConfinedExtractor, EXTRACT_COMMAND, ExtractLimits, Tool};
use glovebox_runner::{GrantError, GrantFlags, HostGrant};
use glovebox_session::bundle::{ExecutedReader, ToolNote};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// The bundle has errors.
const REFUSED: u8 = 2;
/// On whose behalf tools are called.
const LOCAL_TENANT: &str = "local";

/// Does what is asked.
pub(crate) fn run(cx: &Cx, args: &BundleArgs) -> CommandResult {
    let (ended, is_json, file) = match &args.action {
        BundleAction::Check(args) => (check::run(cx, args), args.json, &args.bundle.file),
        BundleAction::Dev(args) => (dev::run(cx, args), args.json, &args.bundle.file),
        BundleAction::Show(args) => (show::run(cx, args), args.json, &args.bundle.file),
        BundleAction::Call(args) => (call::run(cx, args), args.json, &args.bundle.file),
        BundleAction::Run(args) => return run::run(cx, args),
    };
    render::answer_failure(ended, is_json, || json!({ "file": file.to_string_lossy() }))
}

/// Reads bundles with this program, each in a process that can do nothing else.
pub(crate) fn extractor() -> Result<ConfinedExtractor, CommandError> {
    let command = [supervisor()?.exe.into_os_string(), EXTRACT_COMMAND.into()];
    Ok(ConfinedExtractor::new(command, ExtractLimits::default()))
}

/// Runs bundles to ask them what they declare. Its sandboxes have no network, whatever tools are granted.
fn executed_reader(cx: &Cx) -> Result<ExecutedReader, CommandError> {
    let settings = cx.load_settings(None)?;
    let registry = Arc::new(cx.registry(&settings)?);
    Ok(ExecutedReader::new(extractor()?, registry)?)
}

/// The hosts that tools of this bundle may reach. Tools that have rules and are not in it are named in a warning.
fn host_grant(cx: &Cx, hosts: &BundleHosts, bundle: &Bundle) -> Result<HostGrant, CommandError> {
    let grant = HostGrant::new(&hosts.allow, &hosts.deny, GrantFlags::Bundle);
    let grant = grant.map_err(|error| too_many_hosts(&error))?;
    let of_agents = bundle.agents.iter().flat_map(|agent| &agent.tools);
    let names: HashSet<&str> = of_agents
        .chain(&bundle.tools)
        .map(|tool| tool.name.as_str())
        .collect();
    let unknown = grant.tools().filter(|tool| !names.contains(tool));
    let unknown: Vec<String> = unknown.map(|tool| format!("`{tool}`")).collect();
    if !unknown.is_empty() {
        cx.talk.warning(format_args!(
            "no tool of the bundle has the name that --allow or --deny has before `=`: {}",
            unknown.join(", ")
        ));
    }
    Ok(grant)
}

/// More rules about hosts than there can be.
pub(crate) fn too_many_hosts(error: &GrantError) -> CommandError {
    CommandError::usage(error.to_string(), "name fewer tools, hosts and ports")
}

/// What tools are told of whom they are called for.
fn local_context(session: Option<&str>) -> Value {
    json!({ "resourceId": LOCAL_TENANT, "sessionId": session })
}

/// Why tools are not offered, in one line.
fn joined(notes: &[ToolNote]) -> String {
    let told: Vec<String> = notes.iter().map(ToString::to_string).collect();
    told.join("; ")
}

/// `1 agent, 3 tools`: what a bundle has.
fn content(bundle: &Bundle) -> String {
    let tools = bundle.agents.iter().map(|agent| agent.tools.len());
    let tools = tools.sum::<usize>() + bundle.tools.len();
    let tools = plural(tools, "tool", "tools");
    if bundle.agents.is_empty() {
        tools
    } else {
        let agents = plural(bundle.agents.len(), "agent", "agents");
        format!("{agents}, {tools}")
    }
}

/// The names of tools, those without code here marked.
fn tool_names(tools: &[Tool]) -> String {
    if tools.is_empty() {
        return "no tools".to_owned();
    }
    let names: Vec<String> = tools
        .iter()
        .map(|tool| match tool.kind {
            glovebox_bundle::ToolKind::Function => render::escape_text(&tool.name),
            glovebox_bundle::ToolKind::Client => {
                format!("{} (run by the caller)", render::escape_text(&tool.name))
            }
            glovebox_bundle::ToolKind::Provider => {
                format!("{} (run by the provider)", render::escape_text(&tool.name))
            }
        })
        .collect();
    names.join(", ")
}

/// `gateway: gpt-4`, or only the name.
fn model(model: &glovebox_bundle::Model) -> String {
    let name = render::escape_text(&model.name);
    match &model.provider {
        Some(provider) => format!("{} ({})", name, render::escape_text(provider)),
        None => name,
    }
}
