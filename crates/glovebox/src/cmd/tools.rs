//! `glovebox tools` and `glovebox call`: an agent's tools, called by hand.

use super::{Cx, TerminalFrontend, run::supervisor};
use crate::args::{CallArgs, SandboxArgs, ToolsArgs};
use crate::exit::{self, CommandError, CommandResult};
use crate::render;
use glovebox_session::LeaveOutcome;
use glovebox_session::work::{
    NewName, NewSandbox, WorkContext, WorkSession, WorkTarget, unknown_toolset,
};
use glovebox_settings::Tools;
use glovebox_tools::{CATALOG, Definition, ToolOutcome};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Maximum length of the arguments in bytes.
const MAX_ARGUMENT_BYTES: u64 = 8 << 20;

/// Lists the tools.
pub(crate) fn list(cx: &Cx, args: &ToolsArgs) -> CommandResult {
    let only = args.tool.as_deref().map(glovebox_tools::find).transpose()?;
    let flags = SandboxArgs::default();
    let (_, settings) = cx.tool_settings(&flags, args.toolset.as_deref())?;
    let toolset = settings.tools.toolset().map_err(unknown_toolset)?;
    let is_wanted = |tool: &Definition| match only {
        Some(only) => only.name == tool.name,
        None => args.toolset.is_none() || toolset.has(tool.name),
    };
    if args.json {
        let mut tools = glovebox_tools::definitions();
        if let Value::Array(tools) = &mut tools {
            tools.retain(|tool| {
                CATALOG
                    .iter()
                    .any(|known| tool["name"] == known.name && is_wanted(known))
            });
        }
        let toolsets: Vec<Value> = settings
            .tools
            .toolsets
            .iter()
            .map(|toolset| {
                json!({
                    "name": toolset.name,
                    "read_only": toolset.is_read_only,
                    "tools": toolset.names().collect::<Vec<_>>(),
                    "source": toolset.source,
                })
            })
            .collect();
        let data = json!({ "tools": tools, "toolset": toolset.name, "toolsets": toolsets });
        render::print(render::envelope(true, "tools", &data))?;
        return Ok(0);
    }
    let mut text = String::new();
    for tool in CATALOG.iter().filter(|tool| is_wanted(tool)) {
        describe(&mut text, tool, only.is_some());
    }
    if only.is_none() && args.toolset.is_none() {
        toolsets(&mut text, &settings.tools);
    }
    render::print(text)?;
    Ok(0)
}

fn toolsets(text: &mut String, tools: &Tools) {
    text.push_str("\nToolsets:\n");
    for toolset in &tools.toolsets {
        let names: Vec<String> = toolset.names().collect();
        let mark = if toolset.name == tools.toolset.value {
            " *"
        } else {
            ""
        };
        let access = if toolset.is_read_only {
            " (read-only)"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "  {:11} {}{access}",
            format!("{}{mark}", toolset.name),
            names.join(", ")
        );
    }
}

fn describe(text: &mut String, tool: &Definition, is_whole: bool) {
    if !is_whole {
        let first = tool.description.split(". ").next().unwrap_or_default();
        let _ = writeln!(text, "{:11} {}", tool.name, first.trim_end_matches('.'));
        return;
    }
    let _ = writeln!(
        text,
        "{} (also {})\n\n{}\n\nArguments:",
        tool.name,
        tool.aliases.join(", "),
        tool.described(|_| true)
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

/// Calls a tool.
pub(crate) fn call(cx: &Cx, args: &CallArgs) -> CommandResult {
    let called = use_tool(cx, args);
    if !args.json {
        let (outcome, _) = called?;
        let exit_code = exit_code(&outcome);
        let mut text = outcome.text;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        render::print(text)?;
        return Ok(exit_code);
    }
    match called {
        Ok((outcome, left)) => {
            let mut data = json!({
                "tool": args.tool,
                "sandbox": args.sandbox,
                "text": outcome.text,
                "facts": outcome.facts,
            });
            if let Some((name, state)) = left {
                data["sandbox"] = name.into();
                data["state"] = state.into();
            }
            render::print(render::envelope(!outcome.is_error, "called", &data))?;
            Ok(exit_code(&outcome))
        }
        Err(error) => {
            let data = json!({ "tool": args.tool, "sandbox": args.sandbox });
            render::print(render::failure(&error, &data))?;
            Ok(error.exit_code())
        }
    }
}

/// Returns the exit code of an outcome; a cancelled call has a code of its own.
fn exit_code(outcome: &ToolOutcome) -> u8 {
    if outcome.facts.contains_key("cancelled") {
        return exit::INTERRUPTED;
    }
    u8::from(outcome.is_error)
}

/// Name and state of a sandbox that stays.
type StayingSandbox = (String, &'static str);

/// Calls the tool, and returns the name and state of a sandbox that stays because of it.
fn use_tool(
    cx: &Cx,
    args: &CallArgs,
) -> Result<(ToolOutcome, Option<StayingSandbox>), CommandError> {
    let tool = glovebox_tools::find(&args.tool)?;
    let arguments = arguments(&args.arguments)?;
    let flags = SandboxArgs::default();
    let (project, mut settings) = cx.tool_settings(&flags, args.toolset.as_deref())?;
    if args.local && args.sandbox.is_none() {
        cx.require_consent(&mut settings, true)?;
    }
    let registry = Arc::new(cx.registry(&settings)?);
    let named = args.sandbox.as_deref().map(super::name).transpose()?;
    let target = match &named {
        Some(name) => WorkTarget::Running(name),
        None if args.local => {
            cx.talk.warning(
                "--local has no walls: the tool works as you, on your own files, with your network",
            );
            WorkTarget::Local
        }
        None => WorkTarget::New(NewSandbox {
            name: NewName::Random("call"),
            lease_ms: None,
        }),
    };
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&cancel))
            .map_err(|error| CommandError::io("handle signals", &error))?;
    }
    let caller = WorkContext {
        host: &cx.host,
        registry: &registry,
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::new(cx),
    };
    let work = WorkSession::open(&caller, &settings, &project, target)?;
    let called = work
        .permitted_tools(&settings)?
        .call(tool.name, arguments, &cancel);
    let name = work.sandbox().info().name.to_string();
    // Ask git before leaving: it runs inside the sandbox.
    work.tell_git_work(caller.frontend);
    let left = match work.leave(true)? {
        LeaveOutcome::Untouched | LeaveOutcome::Removed => None,
        LeaveOutcome::Stopped(_) => {
            cx.talk.note(format_args!(
                "your files are as before; `glovebox pull {name}` takes over what was changed, \
                 `glovebox kill {name}` forgets it"
            ));
            Some((name, "stopped"))
        }
        LeaveOutcome::Running(why) => {
            cx.talk.note(format_args!(
                "the sandbox goes on because {why}: use it with `--sandbox {name}`, end it with \
                 `glovebox kill {name}`"
            ));
            Some((name, "ready"))
        }
    };
    Ok((called?, left))
}

pub(crate) fn arguments(given: &str) -> Result<Value, CommandError> {
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
