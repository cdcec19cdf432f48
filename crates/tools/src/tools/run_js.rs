//! RunJS: runs a JavaScript script that calls the other tools and searches the context.
//!
//! ```text
//! session   a job that runs the program of `glovebox-js`; its command line identifies it
//! script    one at a time per sandbox, beside commands; its calls wait for turns of their own
//! call      a request of the script; it passes the same permit as all calls, marked as nested
//! ```
//!
//! The program runs in the sandbox, so its output is untrusted. The output is bounded, and the only
//! effect that it can have is to request calls.

mod script;
mod session;

use super::bash::{check_session, show};
use crate::ToolOutcome;
use crate::call::Call;
use crate::catalog::{Effect, Tool};
use crate::cut::readable;
use crate::schedule::ScheduleLane;
use glovebox_js::{Ending, MAX_CODE_BYTES, Run, ScriptException};
use glovebox_proto::{Code, Fault};
use schemars::JsonSchema;
use script::ScriptReport;
use serde::{Deserialize, Serialize};
use serde_json::json;
use session::Session;
use std::fmt::Write as _;
use std::time::Instant;

pub(super) use session::MARK;
pub use session::is_script_session;

/// Default session.
const USUAL_SESSION: &str = "main";
/// Maximum number of stack lines in the outcome.
const MAX_STACK_LINES: usize = 10;
/// Maximum number of calls that the outcome lists.
const MAX_TOLD_CALLS: usize = 100;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunJs {
    /// The script; `await` can be used anywhere.
    #[serde(alias = "code", alias = "script")]
    source: String,
    /// Name of the session whose variables it has; `main` unless given.
    #[serde(default)]
    session: Option<String>,
    /// Milliseconds after which it is ended (120000 unless given, at most 600000); what it calls counts.
    #[serde(default, alias = "timeout", alias = "wait_ms")]
    timeout_ms: Option<u64>,
}

impl Tool for RunJs {
    const NAME: &'static str = "RunJS";
    const ALIASES: &'static [&'static str] = &["run_js", "javascript", "repl"];
    const DESCRIPTION: &'static str = "Runs JavaScript in a session that keeps its variables for the next \
        call (declare them with var to set them again). `await tools.NAME({...})` calls another of these tools with its arguments and gives \
        {text, facts, is_error}; a call that is refused throws. CONTEXT_DATA is the text of the file that \
        was given as context, if there is one; search(pattern) gives its hits as {line, offset, text}, \
        lines(first, count) its lines. print(...) and the value of the last expression are returned. Files, \
        programs and network are reached through tools only, and there are no modules.";
    const EFFECT: Effect = Effect::Runs;
    const IS_FOR_SCRIPTS: bool = false;

    fn lane(&self) -> ScheduleLane {
        ScheduleLane::Script
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        if self.source.len() > MAX_CODE_BYTES {
            let message = format!("the script has more than {MAX_CODE_BYTES} bytes");
            return Err(Fault::failed(Code::TooLarge, message)
                .remedy("run it in parts: a session keeps what they define"));
        }
        let name = self.session.unwrap_or_else(|| USUAL_SESSION.to_owned());
        check_session(&name)?;
        let session = Session::open(call, &name)?;
        let context = call.session.context();
        let run = Run {
            token: super::token(),
            code: self.source,
            limit_ms: call.session.waits().limit_ms(self.timeout_ms),
            context: context.map(|context| context.path.clone()),
            context_bytes: context.map_or(0, |context| context.bytes),
        };
        let begin = Instant::now();
        let told = script::run(call, session.job, &run)?;
        Ok(outcome(
            &told,
            &session,
            &name,
            begin.elapsed().as_millis() as u64,
        ))
    }
}

/// Renders the outcome of a script.
fn outcome(told: &ScriptReport, session: &Session, name: &str, wall_ms: u64) -> ToolOutcome {
    let is_error = told.ending != Some(Ending::Done);
    let rest = |_| Some("print less of it at a time".to_owned());
    let mut shown = show(&told.output, is_error, rest);
    if let Some(error) = &told.error {
        shown.text.push_str(&describe(error));
    }
    let how = match told.ending {
        Some(Ending::Done) => "done",
        Some(Ending::Failed) => "failed",
        Some(Ending::TimedOut) => "ended: its time was up",
        Some(Ending::Cancelled) => "ended: it was given up",
        Some(Ending::OutOfMemory) => "ended: out of memory",
        Some(Ending::Stuck) => "ended: it waits for nothing that can come",
        None => "ended with its session",
    };
    let new = if session.is_new { "new " } else { "" };
    let gone = if told.is_fresh {
        ", whose variables are gone"
    } else {
        ""
    };
    let calls = told.calls.len();
    let _ = write!(
        shown.text,
        "[{how}, {:.1} s, {calls} call{}, {new}session {name}{gone}]",
        wall_ms as f64 / 1000.0,
        if calls == 1 { "" } else { "s" },
    );
    let error = told.error.as_ref().map(|error| {
        // TRUST: from the sandbox. The session also bounds it, but that is not relied upon.
        let message: String = readable(error.message.as_bytes())
            .chars()
            .take(500)
            .collect();
        json!({ "message": message, "line": error.line })
    });
    let facts = json!({
        "job": session.job.0,
        "session": name,
        "is_new_session": session.is_new,
        "ending": told.ending,
        "variables_lost": told.is_fresh,
        "error": error,
        "calls_made": calls,
        "calls": told.calls.iter().take(MAX_TOLD_CALLS).collect::<Vec<_>>(),
        "wall_ms": wall_ms,
        "output_bytes": told.output.total(),
        "truncated": shown.left_out > 0,
        "left_out_bytes": shown.left_out,
    });
    ToolOutcome {
        is_error,
        ..ToolOutcome::ok(shown.text, facts)
    }
}

/// Describes an exception for the model.
// TRUST: from the sandbox. Bounded in characters and lines, and escaped.
fn describe(error: &ScriptException) -> String {
    let message: String = error.message.chars().take(4000).collect();
    let mut text = readable(message.as_bytes());
    if let Some(line) = error.line {
        let _ = write!(text, " (line {line})");
    }
    text.push('\n');
    let stack = error.stack.lines().map(str::trim_end);
    for line in stack.filter(|line| !line.is_empty()).take(MAX_STACK_LINES) {
        let line: String = line.chars().take(300).collect();
        text.push_str(&readable(line.as_bytes()));
        text.push('\n');
    }
    text
}
