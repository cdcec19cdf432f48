//! Job: lists and controls the commands that are or were running.

mod signal;

use super::PROBE;
use super::bash::{RUN_SESSION, feed, reads_on, show, status, wait};
use super::log::{LogEnds, part};
use super::{code, denied, run_js};
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::cut::{OUTPUT_BYTES, floor, readable};
use crate::hint::{Hint, with_hint};
use crate::schedule::ScheduleLane;
use crate::{OutcomeView, ToolOutcome};
use glovebox_proto::{Code, Exit, ExitReport, Fault, JobId, JobState, Reply, Request, visible};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;

/// Time between SIGTERM and SIGKILL, in milliseconds.
const GRACE_MS: u64 = 2000;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// What to do: `list` all jobs, `read` the output of one, `wait` for its end, `write` to the
    /// standard input of one that was started with `pty`, or with `stdin` and `background`, send a
    /// `signal` to its processes, or `kill` it with all it started.
    action: Action,
    /// Which job; all actions but `list` need it.
    #[serde(default, alias = "job", alias = "job_id")]
    id: Option<u32>,
    /// First byte of output wanted, for `read`.
    #[serde(default)]
    offset: u64,
    /// Milliseconds to wait: for the end with `wait` (120000 unless given, at most 600000; less where the
    /// caller itself does not wait as long), for something to read with `read` (0 unless given).
    #[serde(default)]
    wait_ms: Option<u64>,
    /// Text to write, for `write`.
    #[serde(default)]
    input: Option<String>,
    /// End its standard input after the text, for `write`.
    #[serde(default, alias = "close")]
    eof: bool,
    /// Signal number, for `signal` (2 interrupts, 15 asks to end).
    #[serde(default, deserialize_with = "signal::number_or_name")]
    signal: Option<i32>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    List,
    Read,
    Wait,
    Write,
    Signal,
    Kill,
}

impl Tool for Job {
    const NAME: &'static str = "Job";
    const ALIASES: &'static [&'static str] = &["job", "bash_output", "kill_shell"];
    const DESCRIPTION: &'static str = "Works with commands that run as jobs: lists them, waits for their \
        end and returns what they have written since, reads their output from an offset, writes to their \
        standard input, signals or ends them.";
    const EFFECT: Effect = Effect::Runs;

    fn lane(&self) -> ScheduleLane {
        ScheduleLane::Beside
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        if matches!(self.action, Action::List) {
            return list(call);
        }
        let missing = |what: &str| {
            Fault::failed(
                Code::InvalidArgument,
                format!("Job needs `{what}` for this action"),
            )
        };
        let job = JobId(self.id.ok_or_else(|| missing("id"))?);
        match self.action {
            Action::Read => {
                let wait_ms = call
                    .session
                    .waits()
                    .wait_ms(Some(self.wait_ms.unwrap_or(0)));
                read(call, job, self.offset, wait_ms)
            }
            Action::Wait => {
                let wait_ms = call.session.waits().wait_ms(self.wait_ms);
                let report = wait(call, job, wait_ms)?;
                news(call, job, report.as_ref())
            }
            Action::Write => {
                let input = match self.input {
                    Some(input) => input,
                    None if self.eof => String::new(),
                    None => return Err(missing("input")),
                };
                if wait(call, job, 0)?.is_some() {
                    let message = format!("job {job} has ended");
                    return Err(Fault::failed(Code::JobEnded, message));
                }
                let jobs = call.sandbox().jobs()?;
                if jobs.iter().any(|info| info.job == job && !info.has_input) {
                    return Err(no_input(call, job));
                }
                let bytes = input.len();
                feed(call, job, input.into_bytes(), self.eof)?;
                Ok(ToolOutcome::ok(
                    format!("[{bytes} bytes written to job {job}]"),
                    json!({ "job": job.0 }),
                ))
            }
            Action::Signal => {
                let signal = self.signal.ok_or_else(|| missing("signal"))?;
                call.ask(Request::JobSignal {
                    job,
                    signal,
                    whole_tree: true,
                })?;
                Ok(ToolOutcome::ok(
                    format!("[signal {signal} sent to job {job}]"),
                    json!({ "job": job.0 }),
                ))
            }
            Action::Kill => match call.ask(Request::JobKill {
                job,
                grace_ms: GRACE_MS,
            })? {
                Reply::Exited(report) => news(call, job, Some(&report)),
                other => Err(unexpected(&other)),
            },
            Action::List => list(call),
        }
    }
}

fn no_input(call: &Call<'_>, job: JobId) -> Fault {
    let message = format!("job {job} has no open standard input: nothing was written");
    let fault = Fault::failed(Code::InvalidArgument, message);
    let hint = Hint::new(
        &["Bash"],
        "start it again with Bash's `stdin` and `background`, or with `pty`",
    );
    with_hint(fault, call.hint([hint]))
}

/// Renders the state of a job, and its output since this conversation last saw it.
fn news(call: &Call<'_>, job: JobId, report: Option<&ExitReport>) -> Result<ToolOutcome, Fault> {
    let from = call.session.commands.shown(job);
    let ends = LogEnds::read(call, job, from)?;
    let total = from + ends.total();
    call.session.commands.note_shown(job, total);
    let is_failure = report.is_some_and(|report| report.exit != Exit::Code(0));
    let rest = |offset| reads_on(call, job, from + offset);
    let mut shown = show(&ends, is_failure, rest);
    shown.text.push_str(&status(call, job, report));
    let facts = json!({
        "job": job.0,
        "running": report.is_none(),
        "exit_code": report.map(|report| report.exit.shell_code()),
        "start": from,
        "output_bytes": total,
        "truncated": shown.left_out > 0,
        "left_out_bytes": shown.left_out,
    });
    let mut outcome = ToolOutcome::ok(shown.text, facts);
    if let Some(report) = report {
        denied::tell(call, report, &mut outcome);
    }
    Ok(outcome)
}

/// Reports commands that went on after their call was cancelled, each one time.
pub(crate) fn tell_left(call: &Call<'_>, outcome: &mut ToolOutcome) {
    let left = call.session.commands.take_left();
    if left.is_empty() {
        return;
    }
    let Ok(jobs) = call.sandbox().jobs() else {
        return;
    };
    for info in jobs.iter().filter(|info| left.contains(&info.job)) {
        let job = info.job;
        let state = match info.state {
            JobState::Running | JobState::Background(_) => "still runs",
            JobState::Ended(_) => "has ended",
        };
        let gives = call.hint([Hint::new(
            &["Job"],
            format!("; Job {{\"action\":\"wait\",\"id\":{job}}} gives its output"),
        )]);
        let _ = write!(
            outcome.text,
            "\n[job {job}, whose call was given up, {state}{}: {}]",
            gives.unwrap_or_default(),
            command(&info.argv)
        );
    }
}

fn read(call: &Call<'_>, job: JobId, offset: u64, wait_ms: u64) -> Result<ToolOutcome, Fault> {
    let mut part = part(call, job, offset, OUTPUT_BYTES, wait_ms)?;
    let is_last = part.next() >= part.total;
    fit(&mut part.bytes, OUTPUT_BYTES, is_last);
    let (next, total) = (part.next(), part.total);
    call.session.commands.note_shown(job, next);
    let mut text = String::new();
    if part.start > offset {
        let _ = writeln!(
            text,
            "[bytes {offset} to {} are not kept any more]",
            part.start
        );
    }
    text.push_str(&readable(&part.bytes));
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let all = if next < total { "" } else { "that is all of " };
    let _ = write!(text, "[{all}{total} bytes so far; next offset {next}]");
    Ok(ToolOutcome::ok(
        text,
        json!({
            "job": job.0,
            "start": part.start,
            "next": next,
            "total": total,
            "ended": part.is_end && next == total,
        }),
    ))
}

/// Truncates `bytes` to those that fit into `room` when they are shown. Cuts after a line feed if
/// there is one, else between characters. An incomplete last line is removed too, unless this is
/// the last part. At least some bytes remain.
fn fit(bytes: &mut Vec<u8>, room: usize, is_last: bool) {
    let fits = readable(bytes).len() <= room;
    if fits && is_last {
        return;
    }
    // In steps of 256 bytes: one byte takes at most ten when it is shown.
    let (mut end, mut used) = if fits { (bytes.len(), 0) } else { (0, 0) };
    while end < bytes.len() {
        let step = (bytes.len() - end).min(256);
        let more = readable(&bytes[end..end + step]).len();
        if used + more > room && end > 0 {
            break;
        }
        used += more;
        end += step;
    }
    let line = bytes[..end].iter().rposition(|byte| *byte == b'\n');
    let end = line.map_or_else(|| floor(bytes, end), |at| at + 1);
    bytes.truncate(end);
    // An incomplete UTF-8 character at the end is left for the next part.
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        bytes.truncate(error.valid_up_to());
    }
}

fn list(call: &Call<'_>) -> Result<ToolOutcome, Fault> {
    let mut jobs = call.sandbox().jobs()?;
    jobs.retain(|info| !is_probe(&info.argv));
    let mut text = String::new();
    let mut facts = Vec::new();
    let mut rows = Vec::new();
    for info in &jobs {
        let (word, report) = match &info.state {
            JobState::Running => ("running", None),
            JobState::Background(report) => ("in the background", Some(report)),
            JobState::Ended(report) => ("ended", Some(report)),
        };
        let code = report.map(|report| report.exit.shell_code());
        let command = command(&info.argv);
        let exit = code
            .map(|code| format!(", exit code {code}"))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "{}  {word}{exit}, {} bytes of output: {command}",
            info.job, info.output_bytes
        );
        rows.push(vec![
            info.job.to_string(),
            format!("{word}{exit}"),
            info.output_bytes.to_string(),
            command,
        ]);
        facts.push(json!({ "job": info.job.0, "state": word, "exit_code": code, "output_bytes": info.output_bytes }));
    }
    if jobs.is_empty() {
        text.push_str("[no jobs]");
    }
    let columns = vec!["job", "state", "output", "command"];
    Ok(ToolOutcome::ok(text, json!({ "jobs": facts }))
        .with_view(OutcomeView::Table { columns, rows }))
}

/// Returns true for a probe of the sandbox by this program, which is not a job of the model.
fn is_probe(argv: &[ByteBuf]) -> bool {
    argv.get(3)
        .is_some_and(|word| &word[..] == PROBE.as_bytes())
}

/// Returns a job's command line for people: the requested command, without the words that run it.
pub(crate) fn command(argv: &[ByteBuf]) -> String {
    let words: Vec<&[u8]> = argv.iter().map(|word| &word[..]).collect();
    let line = match words[..] {
        [_, b"-c" | b"-e", command] => command.to_vec(),
        [_, _, run, _, command, ..] if run == RUN_SESSION.as_bytes() => command.to_vec(),
        [_, _, _, mark, session] if mark == code::MARK.as_bytes() => {
            [&b"session "[..], session].concat()
        }
        [_, mark, _, session] if mark == run_js::MARK.as_bytes() => {
            [&b"JavaScript session "[..], session].concat()
        }
        _ => words.join(&b' '),
    };
    let line: String = visible::line(&line).chars().take(200).collect();
    line.replace("\\n", " ")
}
