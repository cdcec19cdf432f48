//! `glovebox bundle call`: one call of one tool, as an agent of the bundle would make it, in a
//! sandbox of its own.

use super::show::{find_agent, find_tool};
use super::{LOCAL_TENANT, ReadBundle, host_grant, joined, local_context, read};
use crate::args::BundleCallArgs;
use crate::cmd::{Cx, tools};
use crate::exit::{CommandError, CommandResult, Kind, TIMED_OUT};
use crate::render::{self, escape_text};
use glovebox_js::tool_call::LogRecord;
use glovebox_runner::{
    CallReport, Engine, FailureKind, MAX_WALL, RefusedHost, RunnerConfig, ToolRunner,
};
use glovebox_session::bundle::{BundleTools, CallContext, ToolFailure, node_view};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Calls the tool.
pub(super) fn run(cx: &Cx, args: &BundleCallArgs) -> CommandResult {
    let arguments = tools::arguments(&args.arguments)?;
    // `none` exceeds the maximum for a call, so it is refused below.
    let timeout = args
        .timeout
        .map(|given| Duration::from_millis(given.0.unwrap_or(u64::MAX)));
    if timeout.is_some_and(|given| given.is_zero() || given > MAX_WALL) {
        return Err(CommandError::usage(
            format!("a call takes at most {} s", MAX_WALL.as_secs()),
            format!("give --timeout a time up to {}s", MAX_WALL.as_secs()),
        ));
    }
    let read = read(cx, &args.bundle)?;
    if read.error_count() > 0 {
        return read.refuse(args.json);
    }
    let tools = offered(&read, args)?;
    let settings = cx.load_settings(None)?;
    let engine = args.engine.engine();
    let config = RunnerConfig {
        node: node_view(&[engine], &settings, &cx.host),
        hosts: host_grant(cx, &args.hosts, &read.bundle)?,
        ..RunnerConfig::default()
    };
    let runner = ToolRunner::new(Arc::new(cx.registry(&settings)?), config)?;
    let context = CallContext {
        tenant: LOCAL_TENANT,
        id: "call-1",
        context: &local_context(None),
        engine,
        timeout,
    };
    let never = AtomicBool::new(false);
    match tools.call(&runner, &args.tool, &context, &arguments, &never) {
        Ok(done) => succeed(&done, engine, args.json),
        Err(failure) => fail(&failure, args.json),
    }
}

/// Returns the named tool, ready to be called.
fn offered(read: &ReadBundle, args: &BundleCallArgs) -> Result<BundleTools, CommandError> {
    let bundle = &read.bundle;
    let agent = match &args.agent {
        Some(key) => Some(find_agent(bundle, key)?),
        None => None,
    };
    let tool = find_tool(bundle, agent, &args.tool)?;
    BundleTools::new(std::slice::from_ref(tool))
        .map_err(|notes| CommandError::usage(joined(&notes), "correct the bundle"))
}

fn succeed(done: &CallReport, engine: Engine, is_json: bool) -> CommandResult {
    if is_json {
        render::print(render::envelope(true, "called", &done_json(done, engine)))?;
        return Ok(0);
    }
    say_log(&done.log);
    say_refused(&done.refused_hosts);
    for warning in &done.warnings {
        render::say(format_args!("warning: {}", escape_text(warning)));
    }
    let text = serde_json::to_string_pretty(&done.value).unwrap_or_default();
    render::print(format_args!("{}\n", visible(&text)))?;
    Ok(0)
}

/// Describes the result of a call for programs.
pub(super) fn done_json(done: &CallReport, engine: Engine) -> Value {
    json!({
        "result": done.value,
        "warnings": done.warnings,
        "log": done.log,
        "engine": engine.as_str(),
        "wall_ms": milliseconds(done.wall),
        "cpu_ms": milliseconds(done.cpu),
        "peak_memory_bytes": done.peak_memory_bytes,
        "refused_hosts": hosts_json(&done.refused_hosts),
    })
}

/// Describes a failed call for programs.
pub(super) fn failure_json(failure: &ToolFailure) -> Value {
    let (stack, refused) = details(failure);
    json!({
        "kind": failure.as_str(),
        "log": failure.log(),
        "stack": stack,
        "refused_hosts": hosts_json(refused),
    })
}

/// Returns the stack of a thrown error, and the hosts that were refused.
fn details(failure: &ToolFailure) -> (&str, &[RefusedHost]) {
    match failure {
        ToolFailure::Call(call) => (&call.stack, &call.refused_hosts),
        _ => ("", &[]),
    }
}

fn fail(failure: &ToolFailure, is_json: bool) -> CommandResult {
    let code = match failure {
        ToolFailure::NotFound(_) | ToolFailure::NotExecutable(_) => Kind::NotFound.exit_code(),
        ToolFailure::InvalidArguments(_) => Kind::Usage.exit_code(),
        ToolFailure::InvalidResult(..) => Kind::Failed.exit_code(),
        ToolFailure::Call(call) => match call.kind {
            FailureKind::Timeout => TIMED_OUT,
            FailureKind::Cpu | FailureKind::Memory | FailureKind::OutputLimit => {
                Kind::Limit.exit_code()
            }
            FailureKind::Unavailable | FailureKind::Busy => Kind::Lost.exit_code(),
            _ => Kind::Failed.exit_code(),
        },
    };
    let (stack, refused) = details(failure);
    if is_json {
        let data = failure_json(failure);
        render::print(render::envelope(false, &failure.to_string(), &data))?;
        return Ok(code);
    }
    say_log(failure.log());
    render::say(format_args!("{}: {failure}", failure.as_str()));
    for line in stack.lines() {
        render::say(format_args!("  {}", escape_text(line.trim())));
    }
    say_refused(refused);
    Ok(code)
}

/// Formats a refused host, escaped: `api.example.com:8080`.
fn shown(host: &RefusedHost) -> String {
    let name = escape_text(&host.host);
    host.port
        .map_or(name.clone(), |port| format!("{name}:{port}"))
}

/// Prints the hosts that the tool was refused, and how to allow each.
fn say_refused(hosts: &[RefusedHost]) {
    for host in hosts {
        render::say(format_args!(
            "refused: {} ({}); {}",
            shown(host),
            host.reason.word(),
            escape_text(&host.remedy)
        ));
    }
}

fn hosts_json(hosts: &[RefusedHost]) -> Vec<Value> {
    let told = hosts.iter().map(|host| {
        json!({
            "host": host.host,
            "port": host.port,
            "reason": host.reason.word(),
            "remedy": host.remedy,
        })
    });
    told.collect()
}

/// Prints the tool's log, escaped for a terminal.
fn say_log(log: &[LogRecord]) {
    for record in log {
        for line in record.text.lines() {
            render::say(format_args!("log: {}", escape_text(line)));
        }
    }
}

/// Escapes characters that act on a terminal. JSON escapes the control characters below U+0020
/// only.
fn visible(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(escape_text).collect();
    lines.join("\n")
}

fn milliseconds(duration: Duration) -> Value {
    json!(duration.as_secs_f64() * 1000.0)
}
