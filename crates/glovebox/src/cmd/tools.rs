//! `glovebox tools` and `glovebox call`: the agent's hands, by hand.

use super::Cx;
use crate::args::{CallArgs, ToolsArgs};
use crate::exit::{CommandError, CommandResult};
use crate::render;
use glovebox_tools::{CATALOG, Definition, Hands, Outcome};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Most bytes of arguments that are read.
const MAX_ARGUMENT_BYTES: u64 = 8 << 20;

/// Lists the tools.
pub(crate) fn list(args: &ToolsArgs) -> CommandResult {
    let only = args.tool.as_deref().map(glovebox_tools::find).transpose()?;
    let is_wanted = |tool: &Definition| only.is_none_or(|only| only.name == tool.name);
    if args.json {
        let mut tools = glovebox_tools::definitions();
        if let Value::Array(tools) = &mut tools {
            tools.retain(|tool| only.is_none_or(|only| tool["name"] == only.name));
        }
        render::print(render::envelope(true, "tools", &json!({ "tools": tools })))?;
        return Ok(0);
    }
    let mut text = String::new();
    for tool in CATALOG.iter().filter(|tool| is_wanted(tool)) {
        describe(&mut text, tool, only.is_some());
    }
    render::print(text)?;
    Ok(0)
}

fn describe(text: &mut String, tool: &Definition, is_whole: bool) {
    if !is_whole {
        let first = tool.description.split(". ").next().unwrap_or_default();
        let _ = writeln!(text, "{:6} {}", tool.name, first.trim_end_matches('.'));
        return;
    }
    let _ = writeln!(
        text,
        "{} (also {})\n\n{}\n\nArguments:",
        tool.name,
        tool.aliases.join(", "),
        tool.description
    );
    let schema = tool.schema();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let mark = if required.iter().any(|word| word == name) {
            " (required)"
        } else {
            ""
        };
        let words = property["description"].as_str().unwrap_or_default();
        let _ = writeln!(text, "  {name}{mark}\n      {}", words.replace('\n', " "));
    }
}

/// Uses a tool.
pub(crate) fn call(cx: &Cx, args: &CallArgs) -> CommandResult {
    let outcome = outcome(cx, args);
    if !args.json {
        let outcome = outcome?;
        let mut text = outcome.text;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        render::print(text)?;
        return Ok(u8::from(outcome.is_error));
    }
    let data = json!({ "tool": args.tool, "sandbox": args.sandbox });
    match outcome {
        Ok(outcome) => {
            let data = json!({
                "tool": args.tool,
                "sandbox": args.sandbox,
                "text": outcome.text,
                "facts": outcome.facts,
            });
            render::print(render::envelope(!outcome.is_error, "called", &data))?;
            Ok(u8::from(outcome.is_error))
        }
        Err(error) => {
            render::print(render::failure(&error, &data))?;
            Ok(error.exit_code())
        }
    }
}

fn outcome(cx: &Cx, args: &CallArgs) -> Result<Outcome, CommandError> {
    let name = super::name(&args.sandbox)?;
    let tool = glovebox_tools::find(&args.tool)?;
    let arguments = arguments(&args.arguments)?;
    let sandbox = Arc::new(cx.user_registry()?.connect(&name)?);
    // Ctrl-C ends this process, and what the tool started goes on as a job of the sandbox.
    Ok(Hands::new(sandbox).call(tool.name, arguments, &AtomicBool::new(false))?)
}

fn arguments(given: &str) -> Result<Value, CommandError> {
    let mut text = given.to_owned();
    if given == "-" {
        text.clear();
        std::io::stdin()
            .take(MAX_ARGUMENT_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| CommandError::io("read the arguments from standard input", &error))?;
    }
    let remedy = "give a JSON object such as '{\"path\":\"README.md\"}'; `glovebox tools TOOL` shows what it takes";
    if text.len() as u64 > MAX_ARGUMENT_BYTES {
        let message = format!("the arguments have more than {MAX_ARGUMENT_BYTES} bytes");
        return Err(CommandError::usage(message, remedy));
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        CommandError::usage(format!("the arguments are not JSON: {error}"), remedy)
    })?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(CommandError::usage(
            "the arguments are not a JSON object",
            remedy,
        ))
    }
}
