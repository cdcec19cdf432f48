//! Code: runs a program in one of the languages of the sandbox.
//!
//! Without a session it is a command like any other. With a session, its state lives in a job: a
//! small driver in the language itself reads cells from its standard input. The driver marks the
//! begin and the end of each cell's output with a token that programs cannot predict.

mod cell;

use super::bash::{
    Bash, DRIVER_VARIABLE, check_session, end, feed, leave, reads_on, show, variable, wait_or_end,
};
use super::log::part;
use crate::ToolOutcome;
use crate::call::Call;
use crate::catalog::{Effect, Tool};
use crate::hint::{Hint, with_hint};
use crate::schedule::ScheduleLane;
use cell::{Cell, CellStatus};
use glovebox_proto::limits::MAX_ARG_BYTES;
use glovebox_proto::{Background, Code as FaultCode, Exec, Fault, JobId, JobState, Request, Stdin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Bytes of output that are fetched at a time.
const STEP_BYTES: usize = 256 << 10;
/// Maximum wait of one request for output, in milliseconds.
const STEP_MS: u64 = 10_000;
/// Time that an interrupted cell has to end before its session is ended, in milliseconds.
const INTERRUPT_MS: u64 = 2000;
const SIGINT: i32 = 2;
/// Second to last word of a session's command line, by which the session is found.
pub(super) const MARK: &str = "glovebox-session";

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Code {
    /// The language.
    language: Language,
    /// The program.
    #[serde(alias = "code", alias = "script")]
    source: String,
    /// Name of a session that keeps variables, functions and imports between calls; the value of the
    /// last expression is shown. Without it every program starts afresh.
    #[serde(default)]
    session: Option<String>,
    /// Milliseconds to wait for the end (120000 unless given, at most 600000; less where the caller
    /// itself does not wait as long). A program that takes longer goes on as a job.
    #[serde(default, alias = "timeout", alias = "timeout_ms")]
    wait_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Language {
    #[serde(alias = "py", alias = "python3")]
    Python,
    #[serde(alias = "js", alias = "node")]
    Javascript,
    #[serde(alias = "sh", alias = "shell")]
    Bash,
}

impl Language {
    const ALL: [Self; 3] = [Self::Python, Self::Javascript, Self::Bash];

    const fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Javascript => "javascript",
            Self::Bash => "bash",
        }
    }

    /// Returns the programs that run the language, preferred ones first.
    const fn interpreters(self) -> &'static [&'static str] {
        match self {
            Self::Python => &["python3", "python"],
            Self::Javascript => &["node", "nodejs"],
            Self::Bash => &["bash"],
        }
    }

    /// Returns the option with which the interpreter runs its next argument.
    const fn flag(self) -> &'static str {
        match self {
            Self::Javascript => "-e",
            Self::Python | Self::Bash => "-c",
        }
    }

    /// Returns the program that loads the driver of a session.
    const fn run_driver(self) -> &'static str {
        match self {
            Self::Python => "import os; exec(os.environ.pop('GLOVEBOX_DRIVER'))",
            Self::Javascript => {
                "{ const d = process.env.GLOVEBOX_DRIVER; delete process.env.GLOVEBOX_DRIVER; (0, eval)(d) }"
            }
            Self::Bash => "",
        }
    }

    const fn driver(self) -> &'static str {
        match self {
            Self::Python => include_str!("code/python.py"),
            Self::Javascript => include_str!("code/node.js"),
            // Sessions of bash are those of the Bash tool.
            Self::Bash => "",
        }
    }
}

impl Tool for Code {
    const NAME: &'static str = "Code";
    const ALIASES: &'static [&'static str] =
        &["code", "code_execute", "code_execution", "run_code"];
    const DESCRIPTION: &'static str = "Runs a program in Python, JavaScript (Node.js) or bash, if the \
        sandbox has it, and returns what it prints. With a session its state is kept for the next call. A \
        program that is still running when the wait is over goes on as a job.";
    const EFFECT: Effect = Effect::Runs;

    fn lane(&self) -> ScheduleLane {
        let session = self.session.as_ref().map(|session| match self.language {
            // Sessions of bash are those of the Bash tool, so they share its lane.
            Language::Bash => session.clone(),
            language => format!("{}:{session}", language.name()),
        });
        ScheduleLane::Command(session)
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let wait_ms = call.session.waits().wait_ms(self.wait_ms);
        match self.session {
            Some(session) if self.language == Language::Bash => {
                Tool::run(Bash::new(self.source, Some(session), Some(wait_ms)), call)
            }
            Some(session) => {
                check_session(&session)?;
                let session = Session::open(call, self.language, session)?;
                session.run(call, &self.source, wait_ms)
            }
            None => {
                let job = start(call, self.language, &[&self.source], "")?;
                let mut outcome = wait_or_end(call, job, wait_ms)?.outcome(call, job)?;
                let language = self.language.name();
                outcome.facts.insert("language".to_owned(), language.into());
                Ok(outcome)
            }
        }
    }
}

/// Starts an interpreter on a program: `words` are its arguments. `driver` is the source of a
/// session's driver, or empty.
fn start(
    call: &Call<'_>,
    language: Language,
    words: &[&str],
    driver: &str,
) -> Result<JobId, Fault> {
    if words.iter().any(|word| word.len() > MAX_ARG_BYTES) {
        let message = format!("the program has more than {MAX_ARG_BYTES} bytes");
        let hint = Hint::new(&["Bash"], "write it to a file, and run that with Bash");
        let hint = call.hint([hint]);
        return Err(with_hint(Fault::failed(FaultCode::TooLarge, message), hint));
    }
    for interpreter in language.interpreters() {
        let argv = [*interpreter, language.flag()].into_iter();
        let exec = Exec {
            env: vec![
                // Unbuffered, so that output from before a timeout is shown.
                variable("PYTHONUNBUFFERED", "1"),
                variable(DRIVER_VARIABLE, driver),
            ],
            stdin: if driver.is_empty() {
                Stdin::Null
            } else {
                Stdin::Stream
            },
            stream_output: false,
            background: Background::Keep,
            ..Exec::new(argv.chain(words.iter().copied()))
        };
        match call.sandbox().start_job(exec) {
            Err(fault) if fault.code == FaultCode::CommandNotFound => {}
            started => return started,
        }
    }
    let has = available(call)?;
    let has = if has.is_empty() {
        "none of the languages of this tool".to_owned()
    } else {
        has.join(", ")
    };
    let message = format!(
        "the sandbox has no {}: {} was not found there",
        language.name(),
        language.interpreters().join(" or ")
    );
    Err(Fault::failed(FaultCode::Unsupported, message).remedy(format!("it has {has}")))
}

/// Returns the languages for which the sandbox has an interpreter.
fn available(call: &Call<'_>) -> Result<Vec<&'static str>, Fault> {
    let all = Language::ALL.map(Language::interpreters).concat();
    let script = "for name; do command -v \"$name\" >/dev/null && echo \"$name\"; done; :";
    let argv = ["sh", "-c", script, super::PROBE].into_iter().chain(all);
    let found = call.sandbox().exec(Exec {
        timeout_ms: Some(5000),
        ..Exec::new(argv)
    })?;
    let found = String::from_utf8_lossy(&found.stdout);
    let has = |name: &&str| found.lines().any(|line| line == *name);
    Ok(Language::ALL
        .into_iter()
        .filter(|language| language.interpreters().iter().any(has))
        .map(Language::name)
        .collect())
}

/// Running session of a driver.
struct Session {
    name: String,
    language: Language,
    job: JobId,
    /// Offset in its log from which output is read next.
    offset: u64,
    is_new: bool,
}

impl Session {
    /// Returns the session of this name, and starts it if there is none.
    fn open(call: &Call<'_>, language: Language, name: String) -> Result<Self, Fault> {
        let tail = [language.run_driver(), MARK, &name];
        let known = call.sandbox().jobs()?.into_iter().find(|info| {
            let argv: Vec<&[u8]> = info.argv.iter().map(|word| &word[..]).collect();
            info.state == JobState::Running && argv.ends_with(&tail.map(str::as_bytes))
        });
        let (job, offset, is_new) = match known {
            Some(info) => (info.job, info.output_bytes, false),
            None => (start(call, language, &tail, language.driver())?, 0, true),
        };
        Ok(Self {
            name,
            language,
            job,
            offset,
            is_new,
        })
    }

    fn run(mut self, call: &Call<'_>, source: &str, wait_ms: u64) -> Result<ToolOutcome, Fault> {
        let mut cell = Cell::new();
        let mut line = json!({ "token": cell.token(), "source": source }).to_string();
        line.push('\n');
        feed(call, self.job, line.into_bytes(), false)?;
        let begin = Instant::now();
        match self.follow(call, &mut cell, Duration::from_millis(wait_ms)) {
            Err(fault) if fault.code == FaultCode::Cancelled => {
                if call.keeps_command() {
                    return Err(leave(call, self.job));
                }
                return Err(self.interrupt(call, &mut cell)?);
            }
            followed => followed?,
        }
        Ok(self.outcome(call, &cell, begin.elapsed()))
    }

    /// Collects output until the cell or the driver has ended, or `wait` is over.
    fn follow(&mut self, call: &Call<'_>, cell: &mut Cell, wait: Duration) -> Result<(), Fault> {
        let until = Instant::now() + wait;
        while cell.word().is_none() {
            let left = until.saturating_duration_since(Instant::now()).as_millis() as u64;
            let part = part(call, self.job, self.offset, STEP_BYTES, left.min(STEP_MS))?;
            cell.take(self.offset, &part);
            self.offset = part.next();
            if part.is_end {
                cell.lose();
            }
            if left == 0 && part.bytes.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Interrupts the cell of a cancelled call, and ends the session if the cell does not stop.
    /// Returns the fault for the call.
    fn interrupt(&mut self, call: &Call<'_>, cell: &mut Cell) -> Result<Fault, Fault> {
        let calm = call.to_the_end();
        let asked = calm.ask(Request::JobSignal {
            job: self.job,
            signal: SIGINT,
            whole_tree: false,
        });
        if asked.is_ok() {
            self.follow(&calm, cell, Duration::from_millis(INTERRUPT_MS))?;
        }
        if cell.word().is_none() {
            end(&calm, self.job)?;
        }
        let session = if cell.word().is_none() {
            "ended with its session"
        } else {
            "interrupted; the session goes on"
        };
        let message = format!("the call was cancelled and its cell {session}");
        Ok(Fault::failed(FaultCode::Cancelled, message))
    }

    fn outcome(&self, call: &Call<'_>, cell: &Cell, took: Duration) -> ToolOutcome {
        let word = cell.word();
        let is_failure = matches!(word, Some(CellStatus::Failed | CellStatus::Lost));
        let rest = |offset| reads_on(call, self.job, cell.base() + offset);
        let mut shown = show(cell.ends(), is_failure, rest);
        let how = match word {
            Some(CellStatus::Ok) => "done",
            Some(CellStatus::Failed) => "failed",
            Some(CellStatus::Lost) => "the session has ended",
            None if cell.has_begun() => "still running",
            None => "waiting for the cell before it",
        };
        let new = if self.is_new { "new " } else { "" };
        let _ = write!(
            shown.text,
            "[{how}, {:.1} s, {new}{} session {}, job {}]",
            took.as_secs_f64(),
            self.language.name(),
            self.name,
            self.job
        );
        let facts = json!({
            "job": self.job.0,
            "running": word.is_none(),
            "language": self.language.name(),
            "session": self.name,
            "is_new_session": self.is_new,
            "session_ended": word == Some(CellStatus::Lost),
            "wall_ms": took.as_millis() as u64,
            "output_bytes": cell.ends().total(),
            "truncated": shown.left_out > 0,
            "left_out_bytes": shown.left_out,
        });
        ToolOutcome {
            is_error: is_failure,
            ..ToolOutcome::ok(shown.text, facts)
        }
    }
}
