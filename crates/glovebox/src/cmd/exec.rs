//! `glovebox exec`: a command in a named sandbox.

use super::descriptors::{find_missing, open_descriptors, tell_missing};
use super::limit_end::{self, WallNote};
use super::{Cx, command_words, exit_code, run::stand_in};
use crate::args::ExecArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, plural};
use crate::streams::{
    self, Capture, InputFrom, JsonLines, OnSignal, OutputSink, Signals, StreamsEnd, TerminalPlan,
    carry,
};
use crate::sync::copied;
use glovebox_proto::{Background, Code, Exec, Exit, ExitReport, Fault, JobId, Request, Stdin};
use glovebox_sandbox::Sandbox;
use glovebox_session::spec;
use serde_bytes::ByteBuf;
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Maximum number of bytes that `--json` keeps of each stream. The totals are exact; `--stream`
/// prints everything.
pub(super) const MAX_CAPTURED_BYTES: usize = 4 << 20;

/// Runs the command.
pub(crate) fn run(cx: &Cx, args: &ExecArgs) -> CommandResult {
    if !args.json {
        let descriptors = open_descriptors(&args.fd, &args.command)?;
        let given = descriptors.numbers();
        let (sandbox, exec) = prepare(cx, args)?;
        let signals = Signals::take_over_all()?;
        let timeout_ms = exec.timeout_ms;
        let terminal = TerminalPlan::resolve(args.tty, args.no_tty);
        let ended = stand_in(
            &sandbox,
            exec,
            terminal,
            InputFrom::KeysWithDetach,
            args.stdin,
            descriptors,
            &signals,
        )?;
        return match ended {
            StreamsEnd::Exited(report) => {
                let walls = met_walls(cx, &sandbox, &report, timeout_ms);
                limit_end::explain(cx.talk, &report, &walls);
                tell_missing(cx, &find_missing(&sandbox, &report, &given));
                tell_ended_processes(cx, &report);
                Ok(exit_code(&report))
            }
            StreamsEnd::Detached(job) => {
                tell_left(cx, &sandbox, job);
                Ok(0)
            }
        };
    }
    match json(cx, args) {
        Ok(code) => Ok(code),
        Err(error) => {
            // The object is the answer; the same message on standard error would be noise.
            let data = json!({ "name": args.name, "command": words(&args.command) });
            render::print(render::failure(&error, &data))?;
            Ok(error.stand_in_code())
        }
    }
}

/// Prints the command that attaches to a job again.
pub(super) fn tell_left(cx: &Cx, sandbox: &Sandbox, job: JobId) {
    let name = &sandbox.info().name;
    cx.talk.note(format_args!(
        "left; `glovebox attach {name} --job {job}` comes back"
    ));
}

/// Reports processes that were killed because the command had left them running.
fn tell_ended_processes(cx: &Cx, report: &ExitReport) {
    // After a kill or a timeout the end of all processes is intended, so it is not reported.
    if report.killed > 0 && !report.timed_out && matches!(report.exit, Exit::Code(_)) {
        let processes = plural(report.killed as usize, "process", "processes");
        cx.talk.note(format_args!(
            "exec ended {processes} that the command left running in the background; `--keep-background` keeps such"
        ));
    }
}

fn met_walls(
    cx: &Cx,
    sandbox: &Sandbox,
    report: &ExitReport,
    timeout_ms: Option<u64>,
) -> Vec<WallNote> {
    limit_end::met_walls(sandbox, report, timeout_ms, || {
        cx.user_registry().ok()?.spec(&sandbox.info().name).ok()
    })
}

fn prepare(cx: &Cx, args: &ExecArgs) -> Result<(Arc<Sandbox>, Exec), CommandError> {
    let name = super::name(&args.name)?;
    let command = command_words(&args.command, &format!("glovebox exec {name} -- ls"))?;
    let mut exec = Exec {
        cwd: args
            .cwd
            .as_ref()
            .map(|cwd| ByteBuf::from(cwd.as_os_str().as_bytes())),
        env: spec::command_env(&args.env, &cx.host)?,
        timeout_ms: args.timeout.and_then(|span| span.0),
        umask: cx.host.umask(),
        background: if args.keep_background {
            Background::Keep
        } else {
            Background::Kill
        },
        ..Exec::new(command.iter().map(|word| word.as_bytes().to_vec()))
    };
    Request::Exec(exec.clone()).validate()?;
    let sandbox = Arc::new(cx.user_registry()?.connect(&name)?);
    let cwd = exec.cwd.take().or_else(|| copied::start_dir(&sandbox));
    Ok((sandbox, Exec { cwd, ..exec }))
}

fn json(cx: &Cx, args: &ExecArgs) -> CommandResult {
    let descriptors = open_descriptors(&args.fd, &args.command)?;
    let (sandbox, mut exec) = prepare(cx, args)?;
    let timeout_ms = exec.timeout_ms;
    let signals = Signals::take_over_all()?;
    let input = if args.stdin && !streams::is_null_device() {
        exec.stdin = Stdin::Stream;
        InputFrom::Stdin
    } else {
        InputFrom::Nothing
    };
    let mut data = Map::new();
    data.insert("name".to_owned(), args.name.clone().into());
    data.insert("command".to_owned(), words(&args.command).into());
    let carry_into = |sink: &mut dyn OutputSink| {
        let request = Request::Exec(exec);
        let on_signal = OnSignal::PassOn;
        carry(
            &sandbox,
            request,
            input,
            descriptors,
            on_signal,
            &signals,
            sink,
        )
    };
    let ended = if args.stream {
        let mut sink = JsonLines::default();
        let ended = carry_into(&mut sink)?;
        sink.finish()
            .map_err(|error| CommandError::io("write to standard output", &error))?;
        ended
    } else {
        let mut sink = Capture::new(MAX_CAPTURED_BYTES);
        let ended = carry_into(&mut sink)?;
        render::output_fields(&mut data, "stdout", &sink.stdout);
        render::output_fields(&mut data, "stderr", &sink.stderr);
        data.insert("truncated".to_owned(), sink.is_truncated.into());
        ended
    };
    let StreamsEnd::Exited(report) = ended else {
        return Err(Fault::lost(Code::Protocol, "the command ended without a result").into());
    };
    let walls = met_walls(cx, &sandbox, &report, timeout_ms);
    add_report(&mut data, &report);
    data.insert("denials".to_owned(), limit_end::as_json(&walls));
    let is_success = report.exit == Exit::Code(0) && !report.timed_out;
    render::print(render::envelope(
        is_success,
        &sentence(&report),
        &Value::Object(data),
    ))?;
    Ok(exit_code(&report))
}

/// Returns the command as JSON strings. Arguments that are not UTF-8 get replacement characters.
pub(super) fn words(command: &[std::ffi::OsString]) -> Vec<String> {
    command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Describes for people how a command ended.
pub(super) fn sentence(report: &ExitReport) -> String {
    match report.exit {
        _ if report.timed_out => "the command passed its deadline and was ended".to_owned(),
        Exit::Signal(signal) if report.oom => {
            format!("signal {signal} ended the command for want of memory")
        }
        Exit::Signal(signal) => format!("signal {signal} ended the command"),
        Exit::Code(code) => format!("the command exited with code {code}"),
    }
}

/// Adds the fields of an exit report.
pub(super) fn add_report(data: &mut Map<String, Value>, report: &ExitReport) {
    let (code, signal) = match report.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let ms = |us: u64| us as f64 / 1e3;
    let Value::Object(fields) = json!({
        "job": report.job,
        "exit_code": code,
        "signal": signal,
        "timed_out": report.timed_out,
        "oom": report.oom,
        "fork_refused": report.fork_refused,
        "wall_ms": ms(report.wall_us),
        "user_ms": ms(report.user_us),
        "system_ms": ms(report.system_us),
        "max_rss_kib": report.max_rss_kib,
        "stdout_bytes": report.stdout_bytes,
        "stderr_bytes": report.stderr_bytes,
        "killed": report.killed,
        "left_running": report.left_running,
    }) else {
        return;
    };
    data.extend(fields);
}
