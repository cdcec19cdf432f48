//! `--dry-run`: prints what would be synced, started and allowed.

use super::ending::when;
use super::load_context;
use crate::args::AgentArgs;
use crate::cmd::{Cx, TerminalFrontend};
use crate::exit::{CommandError, CommandResult};
use crate::render;
use glovebox_agent::{Ending, Placement};
use glovebox_session::agent::{ModelConfig, load_instructions};
use glovebox_settings::Settings;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// Prints what the command would do.
pub(super) fn dry_run(
    cx: &Cx,
    args: &AgentArgs,
    project: &Path,
    settings: &Settings,
    placement: Placement,
    model: &ModelConfig,
) -> CommandResult {
    let facts = facts(cx, args, project, settings, placement, model)?;
    if args.json {
        let data = Value::Object(facts);
        render::print(render::envelope(true, "nothing was done", &data))?;
    } else {
        let lines = lines(&facts);
        render::print(format_args!("nothing was done; this would be:\n{lines}"))?;
    }
    Ok(0)
}

/// Formats the facts, one per line.
pub(super) fn lines(facts: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in facts {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), render::escape_text);
        let _ = writeln!(text, "  {:20} {value}", name.replace('_', " "));
    }
    text
}

/// Collects the facts that the run would have.
pub(super) fn facts(
    cx: &Cx,
    args: &AgentArgs,
    project: &Path,
    settings: &Settings,
    placement: Placement,
    model: &ModelConfig,
) -> Result<Map<String, Value>, CommandError> {
    let wanted = glovebox_session::spec::resolve_spec(settings, &cx.host, project, None)?;
    let limits = settings.agent_limits();
    let mode = settings.workspace_mode().as_str();
    let given = load_context(cx, args)?;
    let mut facts = json!({
        "placement": placement.as_str(),
        "backend": settings.backend.value.as_str(),
        "project": project.display().to_string(),
        "workspace": mode,
        "hidden": wanted.hidden.paths.len(),
        "network": glovebox_settings::net_word(settings.net.value),
        "model": model.model.label(),
        "toolset": settings.tools.toolset.value,
        "mcp_servers": settings
            .servers
            .iter()
            .map(|server| {
                let place = server.value.place(placement == Placement::Local);
                format!("{} ({})", server.value.name, place.as_str())
            })
            .collect::<Vec<_>>(),
        "asks_before_changes": placement == Placement::Local && !args.yes,
        "apply": format!("{:?}", when(args.apply, settings, Ending::Completed)).to_lowercase(),
        "window": model.budget.window_tokens,
        "price": model.price.map_or_else(|| "unknown".to_owned(), |price| price.usual.to_string()),
        "max_turns": limits.max_turns,
        "max_time_s": limits.max_time.map(|time| time.as_secs()),
        "max_tokens": limits.max_tokens,
        "max_cost_usd": limits.max_cost_usd,
    });
    let instructions = load_instructions(&cx.host, &TerminalFrontend::new(cx), settings, project)?;
    if !instructions.is_empty() {
        let files: Vec<String> = instructions.iter().map(ToString::to_string).collect();
        facts["instructions"] = files.into();
    }
    if let Some(given) = given {
        facts["context"] = given.to_string().into();
    }
    match facts {
        Value::Object(facts) => Ok(facts),
        _ => Ok(Map::new()),
    }
}
