//! `glovebox bundle`: agents and tools that a JavaScript file declares. One file per action; `file`
//! has the bundle's file, its extraction in a confined process and the messages for its problems,
//! `manifest` several bundles at once.

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

/// Exit code for a bundle with errors.
const REFUSED: u8 = 2;
/// Tenant for which tools are called.
const LOCAL_TENANT: &str = "local";

/// Runs the action of the command line.
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

/// Creates an extractor that reads each bundle with this program, in a confined process.
pub(crate) fn extractor() -> Result<ConfinedExtractor, CommandError> {
    let command = [supervisor()?.exe.into_os_string(), EXTRACT_COMMAND.into()];
    Ok(ConfinedExtractor::new(command, ExtractLimits::default()))
}

/// Creates a reader that runs bundles to obtain their declarations. Its sandboxes have no network,
/// even if tools are granted hosts.
fn executed_reader(cx: &Cx) -> Result<ExecutedReader, CommandError> {
    let settings = cx.load_settings(None)?;
    let registry = Arc::new(cx.registry(&settings)?);
    Ok(ExecutedReader::new(extractor()?, registry)?)
}

/// Returns the hosts that tools of this bundle may reach. Warns of rules for tools that the bundle
/// does not have.
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

/// Creates the error for too many rules about hosts.
pub(crate) fn too_many_hosts(error: &GrantError) -> CommandError {
    CommandError::usage(error.to_string(), "name fewer tools, hosts and ports")
}

/// Returns the context that tools receive about their caller.
fn local_context(session: Option<&str>) -> Value {
    json!({ "resourceId": LOCAL_TENANT, "sessionId": session })
}

/// Joins the reasons why tools are not offered into one line.
fn joined(notes: &[ToolNote]) -> String {
    let told: Vec<String> = notes.iter().map(ToString::to_string).collect();
    told.join("; ")
}

/// Describes the content of a bundle: `1 agent, 3 tools`.
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

/// Lists the names of tools; those without code here are marked.
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

/// Formats a model with its provider, if it has one: `gpt-4 (gateway)`.
fn model(model: &glovebox_bundle::Model) -> String {
    let name = render::escape_text(&model.name);
    match &model.provider {
        Some(provider) => format!("{} ({})", name, render::escape_text(provider)),
        None => name,
    }
}
