//! Job: the commands that are or were running.

use super::bash::{Log, status, wait};
use crate::Outcome;
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::cut::{OUTPUT_BYTES, middle, readable};
use crate::schedule::Lane;
use glovebox_proto::{Code, ExitReport, Fault, JobId, JobState, Reply, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;

/// Most of a log in one answer, in bytes; the rest is for the next one.
const READ_BYTES: u64 = 28_000;
/// Time between asking a job to end and ending it, in milliseconds.
const GRACE_MS: u64 = 2000;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// What to do: `list` all jobs, `read` the output of one, `wait` for its end, `write` to its
    /// standard input, send a `signal` to its processes, or `kill` it with all it started.
    action: Action,
    /// Which job; all actions but `list` need it.
    #[serde(default, alias = "job", alias = "job_id")]
    id: Option<u32>,
    /// First byte of output wanted, for `read`.
    #[serde(default)]
    offset: u64,
    /// Milliseconds to wait, for `wait` (120000 unless given, at most 600000).
    #[serde(default)]
    wait_ms: Option<u64>,
    /// Text to write, for `write`.
    #[serde(default)]
    input: Option<String>,
    /// Signal number, for `signal` (2 interrupts, 15 asks to end).
    #[serde(default)]
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
    const DESCRIPTION: &'static str = "Works with commands that Bash started: lists them, reads their \
        output from an offset, waits for their end, writes to their standard input, signals or ends them.";
    const EFFECT: Effect = Effect::Runs;

    fn lane(&self) -> Lane {
        Lane::Beside
    }

    fn run(self, call: &Call<'_>) -> Result<Outcome, Fault> {
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
            Action::Read => read(call, job, self.offset),
            Action::Wait => {
                let wait_ms = self.wait_ms.unwrap_or(120_000).min(600_000);
                let report = wait(call, job, wait_ms)?;
                Ok(stands(job, report.as_ref()))
            }
            Action::Write => {
                let input = self.input.ok_or_else(|| missing("input"))?;
                let stream = call
                    .sandbox()
                    .open(Request::JobAttach { job, offset: None })?;
                stream.send(input.as_bytes())?;
                Ok(Outcome::ok(
                    format!("[{} bytes written to job {job}]", input.len()),
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
                Ok(Outcome::ok(
                    format!("[signal {signal} sent to job {job}]"),
                    json!({ "job": job.0 }),
                ))
            }
            Action::Kill => match call.ask(Request::JobKill {
                job,
                grace_ms: GRACE_MS,
            })? {
                Reply::Exited(report) => Ok(stands(job, Some(&report))),
                other => Err(unexpected(&other)),
            },
            Action::List => list(call),
        }
    }
}

fn stands(job: JobId, report: Option<&ExitReport>) -> Outcome {
    let facts = json!({
        "job": job.0,
        "running": report.is_none(),
        "exit_code": report.map(|report| report.exit.shell_code()),
    });
    Outcome::ok(status(job, report), facts)
}

fn read(call: &Call<'_>, job: JobId, offset: u64) -> Result<Outcome, Fault> {
    let (bytes, next, total) = Log::part(call, job, offset, READ_BYTES)?;
    let cut = middle(&readable(&bytes), OUTPUT_BYTES, false);
    let mut text = cut.text;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let all = if next < total { "" } else { "that is all of " };
    let _ = write!(text, "[{all}{total} bytes so far; next offset {next}]");
    Ok(Outcome::ok(
        text,
        json!({ "job": job.0, "next": next, "total": total }),
    ))
}

fn list(call: &Call<'_>) -> Result<Outcome, Fault> {
    let jobs = call.sandbox().jobs()?;
    let mut text = String::new();
    let mut facts = Vec::new();
    for info in &jobs {
        let (word, report) = match &info.state {
            JobState::Running => ("running", None),
            JobState::Background(report) => ("in the background", Some(report)),
            JobState::Ended(report) => ("ended", Some(report)),
        };
        let code = report.map(|report| report.exit.shell_code());
        let command: Vec<_> = info.argv.iter().map(|word| readable(word)).collect();
        let command: String = command
            .join(" ")
            .replace('\n', " ")
            .chars()
            .take(200)
            .collect();
        let exit = code
            .map(|code| format!(", exit code {code}"))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "{}  {word}{exit}, {} bytes of output: {command}",
            info.job, info.output_bytes
        );
        facts.push(json!({ "job": info.job.0, "state": word, "exit_code": code, "output_bytes": info.output_bytes }));
    }
    if jobs.is_empty() {
        text.push_str("[no jobs]");
    }
    Ok(Outcome::ok(text, json!({ "jobs": facts })))
}
