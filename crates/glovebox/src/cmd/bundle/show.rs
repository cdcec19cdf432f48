//! `glovebox bundle show`: the declarations of a bundle, and the exact code that a tool would run.

use super::{ReadBundle, content, model, read, tool_names};
use crate::args::BundleShowArgs;
use crate::cmd::Cx;
use crate::exit::{CommandError, CommandResult, Kind};
use crate::render::{self, escape_text};
use glovebox_bundle::{Agent, Bundle, ExtractedBy, Json, Tool, ToolKind, ToolSignature};
use glovebox_proto::visible::lines;
use glovebox_proto::{Code, Fault};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Prints the selected part of the bundle.
pub(super) fn run(cx: &Cx, args: &BundleShowArgs) -> CommandResult {
    let read = read(cx, &args.bundle)?;
    if read.error_count() > 0 {
        return read.refuse(args.json);
    }
    if let Some(counts) = read.counts()
        && !args.json
    {
        cx.talk.note(format_args!(
            "{counts}; `glovebox bundle check {}` shows what about",
            read.name
        ));
    }
    let bundle = &read.bundle;
    let agent = match &args.agent {
        Some(key) => Some(find_agent(bundle, key)?),
        None => None,
    };
    let tool = match &args.tool {
        Some(name) => Some(find_tool(bundle, agent, name)?),
        None => None,
    };
    if args.json {
        let shown = match (agent, tool) {
            (_, Some(tool)) => json!({ "tool": tool }),
            (Some(agent), None) => json!({ "agent": agent }),
            (None, None) => json!({ "bundle": bundle }),
        };
        render::print(render::envelope(true, "read", &with_problems(shown, &read)))?;
        return Ok(0);
    }
    let mut text = String::new();
    if bundle.extracted_by == ExtractedBy::Execution {
        text.push_str("read by running it: nothing below was read from its syntax\n");
    }
    match (agent, tool) {
        (_, Some(tool)) => show_tool(&mut text, tool),
        (Some(agent), None) => show_agent(&mut text, agent),
        (None, None) => show_bundle(&mut text, bundle, &read.name),
    }
    render::print(text)?;
    Ok(0)
}

fn with_problems(mut shown: Value, read: &ReadBundle) -> Value {
    let problems = read.problems_json();
    shown["file"] = problems["file"].clone();
    shown["warnings"] = problems["warnings"].clone();
    shown["extracted_by"] = json!(read.bundle.extracted_by);
    shown
}

pub(super) fn find_agent<'a>(bundle: &'a Bundle, key: &str) -> Result<&'a Agent, CommandError> {
    let mut agents = bundle.agents.iter();
    agents.find(|agent| agent.key == key).ok_or_else(|| {
        let keys = bundle.agents.iter().map(|agent| agent.key.as_str());
        not_there("agent", key, keys)
    })
}

/// Finds the tool of the agent, or of the only agent that has one of that name.
pub(super) fn find_tool<'a>(
    bundle: &'a Bundle,
    agent: Option<&'a Agent>,
    name: &str,
) -> Result<&'a Tool, CommandError> {
    let places: Vec<(Option<&Agent>, &[Tool])> = if agent.is_some() {
        agent
            .iter()
            .map(|agent| (Some(*agent), agent.tools.as_slice()))
            .collect()
    } else {
        let agents = bundle.agents.iter();
        let agents = agents.map(|agent| (Some(agent), agent.tools.as_slice()));
        agents.chain([(None, bundle.tools.as_slice())]).collect()
    };
    let found: Vec<(Option<&Agent>, &Tool)> = places
        .iter()
        .flat_map(|(agent, tools)| tools.iter().map(move |tool| (*agent, tool)))
        .filter(|(_, tool)| tool.name == name)
        .collect();
    match found.as_slice() {
        [(_, tool)] => Ok(tool),
        [] => {
            let tools = places.iter().flat_map(|(_, tools)| *tools);
            Err(not_there("tool", name, tools.map(|tool| &*tool.name)))
        }
        several => {
            let keys: Vec<String> = several
                .iter()
                .filter_map(|(agent, _)| agent.map(|agent| escape_text(&agent.key)))
                .collect();
            Err(CommandError::usage(
                format!("several agents have a tool `{}`", escape_text(name)),
                format!("say whose with --agent: {}", keys.join(", ")),
            ))
        }
    }
}

fn not_there<'a>(what: &str, name: &str, there: impl Iterator<Item = &'a str>) -> CommandError {
    let mut names: Vec<String> = there.map(escape_text).collect();
    names.dedup();
    let remedy = if names.is_empty() {
        format!("the bundle has no {what}s")
    } else {
        format!("there are: {}", names.join(", "))
    };
    let message = format!("the bundle has no {what} `{}`", escape_text(name));
    CommandError::new(
        Kind::NotFound,
        Fault::failed(Code::NotFound, message).remedy(remedy),
    )
}

fn show_bundle(text: &mut String, bundle: &Bundle, name: &str) {
    let _ = writeln!(text, "{name}: {}", content(bundle));
    if let Some(metadata) = &bundle.metadata {
        field(text, "metadata", &one_line(metadata));
    }
    for agent in &bundle.agents {
        text.push('\n');
        show_agent(text, agent);
    }
    if bundle.agents.is_empty() {
        field(text, "tools", &tool_names(&bundle.tools));
    }
    text.push_str("\n`--tool NAME` shows a tool's schema and the code that it runs.\n");
}

fn show_agent(text: &mut String, agent: &Agent) {
    let _ = writeln!(text, "agent {}", escape_text(&agent.key));
    if agent.name != agent.key {
        field(text, "name", &escape_text(&agent.name));
    }
    field(text, "model", &model(&agent.model));
    field(text, "system", &lines(agent.system.as_bytes()));
    options(text, &agent.options, " (no effect here)");
    ignored(text, &agent.ignored);
    field(text, "tools", &tool_names(&agent.tools));
}

fn show_tool(text: &mut String, tool: &Tool) {
    let _ = writeln!(text, "tool {}", escape_text(&tool.name));
    if let Some(description) = &tool.description {
        field(text, "about", &lines(description.as_bytes()));
    }
    let runs = match tool.kind {
        ToolKind::Function => "here, in a sandbox",
        ToolKind::Client => "at the caller: the bundle has no code for it",
        ToolKind::Provider => "at the provider of the model",
    };
    field(text, "runs", runs);
    if tool.executable {
        let called = match tool.signature {
            ToolSignature::Lightfast => "(input, context)",
            ToolSignature::AiSdk => "(input, { toolCallId, messages, abortSignal })",
            ToolSignature::Function => "(input)",
        };
        field(text, "called", called);
    }
    options(text, &tool.options, "");
    ignored(text, &tool.ignored);
    if let Some(slice) = &tool.slice {
        names(text, "modules", &slice.modules);
        names(text, "globals", &slice.globals);
        if !slice.state.is_empty() {
            names(text, "changes", &slice.state);
            field(text, "", "(nothing of that is kept between calls)");
        }
    }
    section(text, "input", &pretty(&tool.input_schema));
    if let Some(schema) = &tool.output_schema {
        section(text, "output", &pretty(schema));
    }
    if let Some(slice) = &tool.slice {
        section(text, "code", &lines(slice.code.as_bytes()));
    }
}

/// Appends a line with a label; further lines are indented below the value.
fn field(text: &mut String, name: &str, value: &str) {
    let value = value.trim_end().replace('\n', "\n           ");
    let _ = writeln!(text, "  {name:8} {value}");
}

fn names(text: &mut String, name: &str, values: &[String]) {
    if !values.is_empty() {
        let values: Vec<String> = values.iter().map(|value| escape_text(value)).collect();
        field(text, name, &values.join(", "));
    }
}

fn options(text: &mut String, options: &[(String, Json)], note: &str) {
    for (index, (name, value)) in options.iter().enumerate() {
        let label = if index == 0 { "options" } else { "" };
        let line = format!("{} {}{note}", escape_text(name), one_line(value));
        field(text, label, &line);
    }
}

fn ignored(text: &mut String, ignored: &[String]) {
    if !ignored.is_empty() {
        let names: Vec<String> = ignored.iter().map(|name| escape_text(name)).collect();
        let line = format!("{} (code, which is not run)", names.join(", "));
        field(text, "ignored", &line);
    }
}

fn section(text: &mut String, title: &str, body: &str) {
    let _ = writeln!(text, "\n{title}:");
    for line in body.lines() {
        if line.is_empty() {
            text.push('\n');
        } else {
            let _ = writeln!(text, "  {line}");
        }
    }
}

fn one_line(json: &Json) -> String {
    escape_text(&serde_json::to_string(json).unwrap_or_default())
}

fn pretty(json: &Json) -> String {
    let text = serde_json::to_string_pretty(json).unwrap_or_default();
    lines(text.as_bytes())
}
