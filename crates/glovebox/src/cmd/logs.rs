//! `glovebox logs`: the jobs of a sandbox, and the output of one of them.

use super::{Cx, shown_command};
use crate::args::LogsArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render;
use crate::streams::{Capture, JsonLines, OutputSink, Screen};
use glovebox_proto::{
    Code, Exit, ExitReport, Fault, JobId, JobInfo, JobState, Reply, Request, limits,
};
use glovebox_sandbox::Sandbox;
use glovebox_settings::units::{human_bytes, human_us};
use serde_json::{Map, Value, json};

/// Time that one request for more output waits in the guest, in milliseconds.
const FOLLOW_MS: u64 = 10_000;
/// Maximum number of bytes that `--json` keeps of each stream.
const MAX_CAPTURED_BYTES: usize = 16 << 20;

/// Lists the jobs, or prints the log of one.
pub(crate) fn run(cx: &Cx, args: &LogsArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let sandbox = cx.user_registry()?.connect(&name)?;
    let Some(number) = args.job else {
        return list(cx, args, &sandbox);
    };
    let job = JobId(number);
    if args.json && !args.follow {
        let mut kept = Capture::new(MAX_CAPTURED_BYTES);
        let log = copy(&sandbox, job, false, args, &mut kept)?;
        let mut data = Map::new();
        render::output_fields(&mut data, "stdout", &kept.stdout);
        render::output_fields(&mut data, "stderr", &kept.stderr);
        let Value::Object(facts) = json!({
            "name": name, "job": job, "truncated": kept.is_truncated || log.dropped > 0,
            "dropped_bytes": log.dropped, "total_bytes": log.total, "ended": log.is_end,
        }) else {
            return Ok(0);
        };
        data.extend(facts);
        render::print(render::envelope(
            true,
            &format!("log of job {job}"),
            &Value::Object(data),
        ))?;
        return Ok(0);
    }
    let log = if args.json {
        let mut lines = JsonLines::default();
        let log = copy(&sandbox, job, true, args, &mut lines)?;
        lines
            .finish()
            .map_err(|error| CommandError::io("write to standard output", &error))?;
        log
    } else {
        let mut screen = Screen::new(args.raw, cx.talk.has_screen_color());
        let log = copy(&sandbox, job, args.follow, args, &mut screen)?;
        screen
            .finish()
            .map_err(|error| CommandError::io("write the log", &error))?;
        log
    };
    if log.dropped > 0 {
        cx.talk.note(format_args!(
            "{} in between are no longer kept",
            human_bytes(log.dropped)
        ));
    }
    Ok(0)
}

#[derive(Debug, Default)]
struct Log {
    dropped: u64,
    total: u64,
    is_end: bool,
}

fn copy(
    sandbox: &Sandbox,
    job: JobId,
    is_following: bool,
    args: &LogsArgs,
    sink: &mut dyn OutputSink,
) -> Result<Log, CommandError> {
    let mut log = Log::default();
    let mut offset = 0;
    loop {
        let request = Request::JobRead {
            job,
            offset,
            max_bytes: limits::MAX_LOG_READ_BYTES,
            wait_ms: if is_following { FOLLOW_MS } else { 0 },
        };
        let Reply::Log {
            start,
            chunks,
            next,
            total,
            is_end,
        } = sandbox.call_for(request, None)?
        else {
            return Err(Fault::lost(
                Code::Protocol,
                "the guest answered something else than was asked",
            )
            .into());
        };
        log.dropped += start.saturating_sub(offset);
        for chunk in &chunks {
            if (args.stdout && chunk.is_stderr) || (args.stderr && !chunk.is_stderr) {
                continue;
            }
            sink.data(chunk.is_stderr, &chunk.bytes)
                .map_err(|error| CommandError::io("write the log", &error))?;
        }
        (log.total, log.is_end) = (total, is_end);
        // TRUST: the guest sends the offset; one that does not advance must not loop for ever.
        if is_end || (!is_following && next <= offset) {
            return Ok(log);
        }
        offset = next.max(offset);
    }
}

fn list(cx: &Cx, args: &LogsArgs, sandbox: &Sandbox) -> CommandResult {
    let jobs = sandbox.jobs()?;
    if args.json {
        let jobs: Vec<Value> = jobs.iter().map(job_json).collect();
        let message = render::plural(jobs.len(), "job", "jobs");
        render::print(render::envelope(
            true,
            &message,
            &json!({ "name": args.name, "jobs": jobs }),
        ))?;
    } else if jobs.is_empty() {
        cx.talk.note("no command has run in it yet");
    } else {
        let rows: Vec<Vec<String>> = jobs.iter().map(job_row).collect();
        render::print(render::table(
            &["JOB", "STATE", "AGE", "OUTPUT", "COMMAND"],
            &rows,
        ))?;
    }
    Ok(0)
}

/// Formats one row about a job.
pub(super) fn job_row(info: &JobInfo) -> Vec<String> {
    vec![
        info.job.to_string(),
        state(&info.state),
        human_us(info.age_ms.saturating_mul(1000)),
        human_bytes(info.output_bytes),
        // TRUST: the guest sends the command line.
        shown_command(&info.argv),
    ]
}

fn state(state: &JobState) -> String {
    let ended = |report: &ExitReport| match report.exit {
        _ if report.timed_out => "timed out".to_owned(),
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    };
    match state {
        JobState::Running => "running".to_owned(),
        JobState::Background(report) => format!("{}, background", ended(report)),
        JobState::Ended(report) => ended(report),
    }
}

/// Describes a job for programs.
pub(super) fn job_json(info: &JobInfo) -> Value {
    let command: Vec<_> = info
        .argv
        .iter()
        .map(|word| String::from_utf8_lossy(word))
        .collect();
    let (state, report) = match &info.state {
        JobState::Running => ("running", None),
        JobState::Background(report) => ("background", Some(report)),
        JobState::Ended(report) => ("ended", Some(report)),
    };
    let mut object = Map::new();
    if let Some(report) = report {
        super::exec::add_report(&mut object, report);
    }
    let Value::Object(facts) = json!({
        "job": info.job, "command": command, "state": state, "age_ms": info.age_ms,
        "tty": info.has_pty, "output_bytes": info.output_bytes,
    }) else {
        return Value::Null;
    };
    object.extend(facts);
    Value::Object(object)
}
