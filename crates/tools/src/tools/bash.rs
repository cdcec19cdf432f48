//! Bash: runs a command line. Every command is a job; a foreground command is a job that the call
//! waits for.

use super::denied;
use super::log::LogEnds;
use crate::ToolOutcome;
use crate::call::{Call, unexpected};
use crate::catalog::{Advice, Effect, Tool};
use crate::cut::{CutBias, CutSource, OUTPUT_BYTES, cut};
use crate::hint::Hint;
use crate::schedule::ScheduleLane;
use glovebox_proto::{
    Background, Code, EnvVar, Exec, Exit, ExitReport, Fault, JobId, Reply, Request, Stdin,
    WindowSize,
};
use glovebox_sandbox::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;

/// Time between SIGTERM and SIGKILL for the job of a cancelled call, in milliseconds.
const CANCEL_GRACE_MS: u64 = 500;
/// Maximum size of input that is sent in the calling thread, in bytes. Longer input gets a thread.
const QUICK_INPUT_BYTES: usize = 256 << 10;
/// Terminal size of a command that requests a terminal.
const WINDOW: WindowSize = WindowSize {
    rows: 40,
    cols: 120,
};
/// Bash script that keeps a session's state between commands.
const SESSION: &str = include_str!("bash/session.sh");
/// Command that runs the script. Short, because job lists show command lines.
pub(super) const RUN_SESSION: &str = "eval \"$GLOVEBOX_DRIVER\"";
/// Environment variable that holds the script.
pub(super) const DRIVER_VARIABLE: &str = "GLOVEBOX_DRIVER";

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
    /// Working directory; the workspace unless given, or where the session is.
    #[serde(default, alias = "workdir")]
    cwd: Option<String>,
    /// Milliseconds to wait for the end (120000 unless given, at most 600000; less where the caller
    /// itself does not wait as long). A command that takes longer goes on as a job.
    #[serde(default, alias = "timeout", alias = "timeout_ms")]
    wait_ms: Option<u64>,
    /// Start it and do not wait.
    #[serde(default, alias = "run_in_background")]
    background: bool,
    /// Text for its standard input; without it there is none. It ends after the text, but with
    /// `background` or `pty` it stays open for more.
    #[serde(default)]
    stdin: Option<String>,
    /// Name of a session: working directory, variables and functions are those that its last command
    /// left. Without it every command starts afresh.
    #[serde(default)]
    session: Option<String>,
    /// Run it on a terminal, for programs that want one.
    #[serde(default, alias = "tty")]
    pty: bool,
}

impl Tool for Bash {
    const NAME: &'static str = "Bash";
    const ALIASES: &'static [&'static str] = &["bash", "shell", "execute"];
    const DESCRIPTION: &'static str = "Runs a command line with bash in the sandbox. Returns its output \
        (standard output and error in the order they were written; the middle is left out when it is \
        long), its exit code and its job id. A command that is still running when the wait is over goes \
        on as a job.";
    const ADVICE: &'static [Advice] = &[Advice {
        tool: "Job",
        sentence: "Job reads more of what it writes, waits for it, writes to it or ends it.",
    }];
    const EFFECT: Effect = Effect::Runs;

    fn lane(&self) -> ScheduleLane {
        ScheduleLane::Command(self.session.clone())
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let wait_ms = call.session.waits().wait_ms(self.wait_ms);
        let job = self.start(call)?;
        if let Some(text) = self.stdin {
            let is_last = !self.background && !self.pty;
            feed(call, job, text.into_bytes(), is_last)?;
        }
        let wait_ms = if self.background { 0 } else { wait_ms };
        let waited = wait_or_end(call, job, wait_ms)?;
        let mut outcome = waited.outcome(call, job)?;
        if let Some(session) = self.session {
            outcome.facts.insert("session".to_owned(), session.into());
        }
        Ok(outcome)
    }
}

impl Bash {
    /// Creates a call with defaults for all other arguments.
    pub(super) fn new(command: String, session: Option<String>, wait_ms: Option<u64>) -> Self {
        Self {
            command,
            description: None,
            cwd: None,
            wait_ms,
            background: false,
            stdin: None,
            session,
            pty: false,
        }
    }

    /// Creates a call with an optional working directory and input.
    pub(super) fn within(command: String, cwd: Option<String>, stdin: Option<String>) -> Self {
        Self {
            cwd,
            stdin,
            ..Self::new(command, None, None)
        }
    }

    /// Runs the command in a sandbox whose jobs cannot be reached later. The job is ended when the
    /// wait is over.
    pub(super) fn run_to_end(self, call: &Call<'_>, wait_ms: u64) -> Result<ToolOutcome, Fault> {
        let job = self.start(call)?;
        if let Some(text) = self.stdin {
            feed(call, job, text.into_bytes(), true)?;
        }
        let waited = wait_or_end(call, job, wait_ms)?;
        let is_late = matches!(waited, WaitOutcome::Running);
        let report = match waited {
            WaitOutcome::Ended(report) | WaitOutcome::GivenUp(report) => report,
            WaitOutcome::Running => end(call, job)?,
        };
        let rest = |_| Some("let it write to a file, and show parts of that".to_owned());
        let ends = LogEnds::read(&call.to_the_end(), job, 0)?;
        let mut outcome = outcome(call, job, Some(&report), &ends, rest);
        denied::tell(call, &report, &mut outcome);
        if is_late {
            let _ = write!(
                outcome.text,
                "\n[ended because it took more than {wait_ms} ms]"
            );
            outcome.facts.insert("timed_out".to_owned(), true.into());
        }
        Ok(outcome)
    }

    fn start(&self, call: &Call<'_>) -> Result<JobId, Fault> {
        let Some(session) = &self.session else {
            let plain = |shell: &str| self.exec([shell, "-c", &self.command], self.cwd.as_deref());
            return match call.sandbox().start_job(plain("bash")) {
                Err(fault) if fault.code == Code::CommandNotFound => {
                    call.sandbox().start_job(plain("sh"))
                }
                started => started,
            };
        };
        check_session(session)?;
        let info = call.sandbox().info();
        let key = format!("{}-{}-{session}", info.name, info.created_unix_ms);
        let go = self.cwd.as_deref().unwrap_or_default();
        let argv = ["bash", "-c", RUN_SESSION, "bash", &self.command, &key, go];
        let mut exec = self.exec(argv, None);
        exec.env.push(variable(DRIVER_VARIABLE, SESSION));
        match call.sandbox().start_job(exec) {
            Err(fault) if fault.code == Code::CommandNotFound => {
                Err(fault.remedy("sessions need bash in the sandbox; leave `session` out"))
            }
            started => started,
        }
    }

    fn exec<const N: usize>(&self, argv: [&str; N], cwd: Option<&str>) -> Exec {
        // Without a terminal nothing can page through output, and a pager would block the command.
        let quiet = [
            ("PAGER", "cat"),
            ("GIT_PAGER", "cat"),
            ("NO_COLOR", "1"),
            ("TERM", "dumb"),
        ];
        let quiet = if self.pty { &quiet[..0] } else { &quiet };
        let env = quiet.iter().map(|(name, value)| variable(name, value));
        let has_input = self.stdin.is_some() || self.pty;
        Exec {
            cwd: cwd.map(ByteBuf::from),
            env: env.collect(),
            stdin: if has_input {
                Stdin::Stream
            } else {
                Stdin::Null
            },
            pty: self.pty.then_some(WINDOW),
            stream_output: false,
            // Merged, so that errors are beside the step that caused them.
            merge: true,
            // Processes that the command leaves in the background belong to its job and end with
            // it.
            background: Background::Keep,
            ..Exec::new(argv)
        }
    }
}

pub(super) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: ByteBuf::from(name),
        value: ByteBuf::from(value),
    }
}

/// Checks a session's name, which becomes part of a file name in the sandbox.
pub(super) fn check_session(name: &str) -> Result<(), Fault> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(Fault::failed(
        Code::InvalidArgument,
        "`session` is not a name of 1 to 64 letters, digits, `-` and `_`",
    ))
}

/// Writes to a job's standard input. Closes it afterwards if `is_last`.
pub(super) fn feed(call: &Call<'_>, job: JobId, text: Vec<u8>, is_last: bool) -> Result<(), Fault> {
    fn send(stream: &Stream, text: &[u8], is_last: bool) -> Result<(), Fault> {
        let sent = stream.send(text);
        let sent = sent.and_then(|()| {
            if is_last {
                stream.finish_input()
            } else {
                Ok(())
            }
        });
        match sent {
            // The job ended without reading all of its input.
            Err(fault) if fault.code == Code::JobEnded => Ok(()),
            sent => sent,
        }
    }
    let request = Request::JobAttach {
        job,
        offset: None,
        sends_events: false,
    };
    let stream = call.sandbox().open(request)?;
    if text.len() <= QUICK_INPUT_BYTES {
        return send(&stream, &text, is_last);
    }
    // The command may read slowly or never, so a separate thread blocks for it. The thread ends
    // with the job or the connection.
    let fed = std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || send(&stream, &text, is_last));
    fed.map(drop).map_err(|error| {
        Fault::failed(Code::Busy, format!("no thread for the input: {error}")).retryable()
    })
}

/// Waits for the end of a job. `None` if it still runs after `wait_ms` milliseconds.
///
/// # Errors
/// `cancelled` if the call is cancelled; the job goes on.
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

/// Outcome of the wait for the call's own command.
#[derive(Debug)]
pub(super) enum WaitOutcome {
    Ended(ExitReport),
    /// The command goes on.
    Running,
    /// The call was cancelled, and the command was ended with it.
    GivenUp(ExitReport),
}

impl WaitOutcome {
    /// Renders the outcome for the model: the state of the command and its output so far.
    pub(super) fn outcome(&self, call: &Call<'_>, job: JobId) -> Result<ToolOutcome, Fault> {
        let report = match self {
            Self::Ended(report) | Self::GivenUp(report) => Some(report),
            Self::Running => None,
        };
        let ends = LogEnds::read(&call.to_the_end(), job, 0)?;
        call.session.commands.note_shown(job, ends.total());
        let mut outcome = outcome(call, job, report, &ends, |offset| {
            reads_on(call, job, offset)
        });
        if let Some(report) = report {
            denied::tell(call, report, &mut outcome);
        }
        if matches!(self, Self::GivenUp(_)) {
            outcome
                .text
                .push_str("\n[the call was cancelled, and the command was ended with it]");
            outcome.facts.insert("cancelled".to_owned(), true.into());
            outcome.is_error = true;
        }
        Ok(outcome)
    }
}

/// Waits for a job that this call started. If the call is cancelled, the job ends too, or goes on
/// if the wait policy keeps commands.
///
/// # Errors
/// `cancelled` if the job goes on after the cancellation.
pub(super) fn wait_or_end(call: &Call<'_>, job: JobId, wait_ms: u64) -> Result<WaitOutcome, Fault> {
    match call.session.live.during(job, || wait(call, job, wait_ms)) {
        Ok(Some(report)) => Ok(WaitOutcome::Ended(report)),
        Ok(None) => Ok(WaitOutcome::Running),
        Err(fault) if fault.code == Code::Cancelled => {
            if call.keeps_command() {
                return Err(leave(call, job));
            }
            end(call, job).map(WaitOutcome::GivenUp)
        }
        Err(fault) => Err(fault),
    }
}

/// Lets the job of a cancelled call go on. The next call of the conversation reports its state.
/// Returns the fault for this call.
pub(super) fn leave(call: &Call<'_>, job: JobId) -> Fault {
    call.session.commands.leave(job);
    Fault::failed(
        Code::Cancelled,
        format!("the call was given up; its command goes on as job {job}"),
    )
}

/// Ends the job of a cancelled or late call, and waits for its end.
pub(super) fn end(call: &Call<'_>, job: JobId) -> Result<ExitReport, Fault> {
    let kill = Request::JobKill {
        job,
        grace_ms: CANCEL_GRACE_MS,
    };
    match call.sandbox().call(kill)? {
        Reply::Exited(report) => Ok(report),
        other => Err(unexpected(&other)),
    }
}

/// Renders the outcome of a command. `report` is `None` while it runs. `rest` returns a hint on how
/// to read the omitted output from an offset on.
pub(super) fn outcome(
    call: &Call<'_>,
    job: JobId,
    report: Option<&ExitReport>,
    ends: &LogEnds,
    rest: impl FnOnce(u64) -> Option<String>,
) -> ToolOutcome {
    let is_failure = report.is_some_and(|report| report.exit != Exit::Code(0));
    let mut shown = show(ends, is_failure, rest);
    shown.text.push_str(&status(call, job, report));
    let mut facts = json!({
        "job": job.0,
        "running": report.is_none(),
        "output_bytes": ends.total(),
        "truncated": shown.left_out > 0,
        "left_out_bytes": shown.left_out,
    });
    if let (Some(report), Some(facts)) = (report, facts.as_object_mut()) {
        match report.exit {
            Exit::Code(code) => facts.insert("exit_code".to_owned(), code.into()),
            Exit::Signal(signal) => facts.insert("signal".to_owned(), signal.into()),
        };
        for (name, value) in [
            ("wall_ms", report.wall_us / 1000),
            ("cpu_ms", (report.user_us + report.system_us) / 1000),
            ("max_rss_kib", report.max_rss_kib),
            ("stdout_bytes", report.stdout_bytes),
            ("stderr_bytes", report.stderr_bytes),
            ("left_running", report.left_running.into()),
        ] {
            facts.insert(name.to_owned(), value.into());
        }
        facts.insert("timed_out".to_owned(), report.timed_out.into());
        facts.insert("oom".to_owned(), report.oom.into());
    }
    ToolOutcome {
        is_error: is_failure,
        ..ToolOutcome::ok(shown.text, facts)
    }
}

/// Output as it is shown. Ends with a line feed if it is not empty.
pub(super) struct ShownOutput {
    pub(super) text: String,
    pub(super) left_out: u64,
}

/// Returns a hint with the call that reads a job's output from this offset on. `None` without a
/// tool for that.
pub(super) fn reads_on(call: &Call<'_>, job: JobId, offset: u64) -> Option<String> {
    call.hint([
        Hint::new(
            &["Job"],
            format!("Job {{\"action\":\"read\",\"id\":{job},\"offset\":{offset}}} reads on there"),
        ),
        Hint::new(
            &["Read"],
            format!("Read {{\"path\":\"job:{job}\"}} shows all of it"),
        ),
    ])
}

/// Truncates output to the room of one call, and adds how to read the omitted part.
pub(super) fn show(
    ends: &LogEnds,
    is_failure: bool,
    rest: impl FnOnce(u64) -> Option<String>,
) -> ShownOutput {
    let source = CutSource {
        head: &ends.head,
        gap: ends.gap,
        tail: &ends.tail,
    };
    let lean = if is_failure {
        CutBias::End
    } else {
        CutBias::Even
    };
    let cut = cut(source, OUTPUT_BYTES, lean);
    let mut text = cut.text;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if let Some(offset) = cut.first_left_out {
        let _ = writeln!(
            text,
            "[{} of {} bytes left out{}]",
            cut.left_out,
            ends.total(),
            rest(offset).map_or_else(String::new, |rest| format!("; {rest}"))
        );
    }
    ShownOutput {
        text,
        left_out: cut.left_out,
    }
}

/// Describes the state of a job in one line.
pub(super) fn status(call: &Call<'_>, job: JobId, report: Option<&ExitReport>) -> String {
    let Some(report) = report else {
        let waits = call.hint([Hint::new(
            &["Job"],
            format!("; Job {{\"action\":\"wait\",\"id\":{job}}} waits for it"),
        )]);
        return format!("[job {job} is still running{}]", waits.unwrap_or_default());
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
