//! Bash: a command line. Every command is a job; waiting in the foreground is waiting for a job.

use crate::Outcome;
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::cut::{OUTPUT_BYTES, middle, readable};
use glovebox_proto::limits::MAX_LOG_READ_BYTES;
use glovebox_proto::{
    Background, Code, EnvVar, Exec, Exit, ExitReport, Fault, JobId, Reply, Request, Stdin,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;

/// How long a call waits unless told otherwise.
const USUAL_WAIT_MS: u64 = 120_000;
/// How long a call may wait.
const MAX_WAIT_MS: u64 = 600_000;
/// Time between asking the job of a cancelled call to end and ending it, in milliseconds.
const CANCEL_GRACE_MS: u64 = 500;
/// Bytes fetched from each end of a long log.
const END_BYTES: u64 = 64 << 10;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bash {
    /// The command line, for bash.
    #[serde(alias = "cmd", alias = "script")]
    command: String,
    /// What it is for, in a few words; shown to people.
    #[serde(default)]
    description: Option<String>,
    /// Working directory; the workspace unless given.
    #[serde(default, alias = "workdir")]
    cwd: Option<String>,
    /// Milliseconds to wait for the end (120000 unless given, at most 600000). A command that takes
    /// longer goes on as a job.
    #[serde(default, alias = "timeout", alias = "timeout_ms")]
    wait_ms: Option<u64>,
    /// Start it and do not wait.
    #[serde(default, alias = "run_in_background")]
    background: bool,
    /// Text for its standard input; without it there is none.
    #[serde(default)]
    stdin: Option<String>,
}

impl Tool for Bash {
    const NAME: &'static str = "Bash";
    const ALIASES: &'static [&'static str] = &["bash", "shell", "execute"];
    const DESCRIPTION: &'static str = "Runs a command line with bash in the sandbox. Returns its output \
        (standard output and error in the order they were written; the middle is left out when it is \
        long), its exit code and its job id. A command that is still running when the wait is over goes \
        on as a job: use Job to read more, wait, write to it or end it.";
    const EFFECT: Effect = Effect::Runs;

    fn run(self, call: &Call<'_>) -> Result<Outcome, Fault> {
        let wait_ms = self.wait_ms.unwrap_or(USUAL_WAIT_MS).min(MAX_WAIT_MS);
        let job = start(call, &self)?;
        if let Some(text) = &self.stdin {
            feed(call, job, text.as_bytes())?;
        }
        let wait_ms = if self.background { 0 } else { wait_ms };
        let report = wait_or_end(call, job, wait_ms)?;
        let log = Log::read(call, job)?;
        Ok(outcome(job, report.as_ref(), &log))
    }
}

fn start(call: &Call<'_>, wanted: &Bash) -> Result<JobId, Fault> {
    let exec = |shell: &str| Exec {
        cwd: wanted.cwd.as_ref().map(|cwd| ByteBuf::from(cwd.as_bytes())),
        env: [
            ("PAGER", "cat"),
            ("GIT_PAGER", "cat"),
            ("NO_COLOR", "1"),
            ("TERM", "dumb"),
        ]
        .map(|(name, value)| EnvVar {
            name: ByteBuf::from(name),
            value: ByteBuf::from(value),
        })
        .to_vec(),
        stdin: if wanted.stdin.is_some() {
            Stdin::Stream
        } else {
            Stdin::Null
        },
        stream_output: false,
        // What it leaves in the background on purpose belongs to its job, and ends with it.
        background: Background::Keep,
        ..Exec::new([shell, "-c", &wanted.command])
    };
    match call.sandbox().start_job(exec("bash")) {
        Err(fault) if fault.code == Code::CommandNotFound => call.sandbox().start_job(exec("sh")),
        started => started,
    }
}

/// Writes all of its standard input and closes it.
fn feed(call: &Call<'_>, job: JobId, text: &[u8]) -> Result<(), Fault> {
    let request = Request::JobAttach { job, offset: None };
    let stream = call.sandbox().open(request)?;
    match stream.send(text).and_then(|()| stream.finish_input()) {
        // It has ended without reading all of it.
        Err(fault) if fault.code == Code::JobEnded => Ok(()),
        fed => fed,
    }
}

/// Waits for the end of a job. `None` when it goes on.
///
/// # Errors
/// `cancelled` when the call is given up; the job goes on.
pub(super) fn wait(call: &Call<'_>, job: JobId, wait_ms: u64) -> Result<Option<ExitReport>, Fault> {
    let request = Request::JobWait {
        job,
        wait_ms: Some(wait_ms),
    };
    match call.ask_for(request, Duration::from_millis(wait_ms)) {
        Ok(Reply::Exited(report)) => Ok(Some(report)),
        Ok(other) => Err(unexpected(&other)),
        Err(fault) if fault.code == Code::TimedOut => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// [`wait`] of whoever started the job: it ends with the call that is given up.
fn wait_or_end(call: &Call<'_>, job: JobId, wait_ms: u64) -> Result<Option<ExitReport>, Fault> {
    match wait(call, job, wait_ms) {
        Err(fault) if fault.code == Code::Cancelled => {
            call.sandbox().call(Request::JobKill {
                job,
                grace_ms: CANCEL_GRACE_MS,
            })?;
            Err(Fault::failed(
                Code::Cancelled,
                format!("the call was cancelled and job {job} ended"),
            ))
        }
        waited => waited,
    }
}

/// What a job has written: all of it, or both ends.
pub(super) struct Log {
    text: String,
    total: u64,
    /// Bytes between the two ends that were not fetched or are not kept any more.
    missing: u64,
}

impl Log {
    fn read(call: &Call<'_>, job: JobId) -> Result<Self, Fault> {
        let (head, next, total) = Self::part(
            call,
            job,
            0,
            u64::from(MAX_LOG_READ_BYTES).min(2 * END_BYTES),
        )?;
        if next >= total {
            return Ok(Self {
                text: readable(&head),
                total,
                missing: 0,
            });
        }
        let from = next.max(total.saturating_sub(END_BYTES));
        let (tail, _, total) = Self::part(call, job, from, END_BYTES)?;
        let missing = total - (head.len() + tail.len()).min(total as usize) as u64;
        let mut text = readable(&head);
        if missing > 0 {
            let _ = write!(text, "\n[... {missing} bytes left out ...]\n");
        }
        text.push_str(&readable(&tail));
        Ok(Self {
            text,
            total,
            missing,
        })
    }

    /// Bytes from `offset` on, the offset after them, and how many there are in all.
    pub(super) fn part(
        call: &Call<'_>,
        job: JobId,
        mut offset: u64,
        max_bytes: u64,
    ) -> Result<(Vec<u8>, u64, u64), Fault> {
        let mut bytes = Vec::new();
        loop {
            let room = max_bytes - bytes.len() as u64;
            let reply = call.ask(Request::JobRead {
                job,
                offset,
                max_bytes: u32::try_from(room)
                    .unwrap_or(MAX_LOG_READ_BYTES)
                    .min(MAX_LOG_READ_BYTES),
                wait_ms: 0,
            })?;
            let Reply::Log {
                chunks,
                next,
                total,
                is_end,
                ..
            } = reply
            else {
                return Err(unexpected(&reply));
            };
            let before = bytes.len();
            for chunk in chunks {
                bytes.extend_from_slice(&chunk.bytes);
            }
            offset = next;
            if is_end || bytes.len() == before || bytes.len() as u64 >= max_bytes || next >= total {
                return Ok((bytes, next, total));
            }
        }
    }
}

fn outcome(job: JobId, report: Option<&ExitReport>, log: &Log) -> Outcome {
    let is_failure = report.is_some_and(|report| report.exit != Exit::Code(0));
    let cut = middle(&log.text, OUTPUT_BYTES, is_failure);
    let missing = log.missing + cut.missing_bytes as u64;
    let mut text = cut.text;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if missing > 0 {
        let _ = writeln!(
            text,
            "[{missing} of {} bytes left out; Job {{\"action\":\"read\",\"id\":{job},\"offset\":N}} reads them]",
            log.total
        );
    }
    text.push_str(&status(job, report));
    let mut facts = json!({
        "job": job.0,
        "running": report.is_none(),
        "output_bytes": log.total,
        "truncated": missing > 0,
    });
    if let (Some(report), Some(facts)) = (report, facts.as_object_mut()) {
        match report.exit {
            Exit::Code(code) => facts.insert("exit_code".to_owned(), code.into()),
            Exit::Signal(signal) => facts.insert("signal".to_owned(), signal.into()),
        };
        for (name, value) in [
            ("wall_ms", report.wall_us / 1000),
            ("cpu_ms", (report.user_us + report.system_us) / 1000),
            ("stdout_bytes", report.stdout_bytes),
            ("stderr_bytes", report.stderr_bytes),
        ] {
            facts.insert(name.to_owned(), value.into());
        }
        facts.insert("timed_out".to_owned(), report.timed_out.into());
        facts.insert("oom".to_owned(), report.oom.into());
    }
    Outcome {
        is_error: is_failure,
        ..Outcome::ok(text, facts)
    }
}

/// One line on where a job stands.
pub(super) fn status(job: JobId, report: Option<&ExitReport>) -> String {
    let Some(report) = report else {
        return format!("[job {job} is still running]");
    };
    let how = match report.exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("ended by signal {signal}"),
    };
    let seconds = report.wall_us as f64 / 1e6;
    let mut line = format!("[{how}, {seconds:.1} s, job {job}");
    if report.timed_out {
        line.push_str(", deadline passed");
    }
    if report.oom {
        line.push_str(", out of memory");
    }
    if report.left_running > 0 {
        let _ = write!(line, ", {} processes still running", report.left_running);
    }
    line.push(']');
    line
}
