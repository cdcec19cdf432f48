//! One script: it is handed over, what it says is taken, what it wishes for is called.
//!
//! ```text
//! this thread   reads what the session says, and looks at the time and whether the call is given up
//! feeder        hands the script over
//! callers       up to eight: make calls, hand their answers over
//! ```
//!
//! Whoever hands something over may be kept waiting by a session that does not read; ending the session
//! ends that wait, and a session that is late or breaks the rules is ended.

use super::super::bash::end;
use crate::call::{Call, given_up};
use crate::tools::log::LogEnds;
use glovebox_js::{
    Ending, MAX_ARGUMENT_BYTES, MAX_CALLS, MAX_LINE_BYTES, Run, ScriptEvent, ScriptException,
    ScriptMessage,
};
use glovebox_proto::{Channel, Class, Code, Fault, JobId, Request};
use glovebox_sandbox::{Incoming, Input, Stream};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Calls made at the same time.
const MAX_PARALLEL: usize = 8;
/// How often the time is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// What a session may take beyond a script's own time before it is ended.
const GRACE: Duration = Duration::from_secs(15);
/// What a script that is given up may take to end before its session is ended.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// The longest answer to a call, as JSON text.
const MAX_ANSWER_BYTES: usize = 2 << 20;
const BREACH: ScriptEnd = ScriptEnd::Breach("it broke the rules");

/// What is known of a script when it has ended.
#[derive(Debug, Default)]
pub(super) struct ScriptReport {
    pub(super) output: LogEnds,
    /// `None` when its session has ended before it.
    pub(super) ending: Option<Ending>,
    pub(super) error: Option<ScriptException>,
    /// Whether the session's variables are gone.
    pub(super) is_fresh: bool,
    pub(super) calls: Vec<ScriptCall>,
}

/// A call the script made.
#[derive(Debug, Serialize)]
pub(super) struct ScriptCall {
    tool: String,
    is_error: bool,
    /// What `glovebox why` knows it by.
    #[serde(skip_serializing_if = "Value::is_null")]
    call: Value,
}

/// What a script wants to have called.
#[derive(Debug)]
struct ToolRequest {
    call: u32,
    name: String,
    arguments: String,
}

/// What the threads of one script share.
#[derive(Debug)]
struct ScriptState<'a> {
    call: &'a Call<'a>,
    token: &'a str,
    input: Input,
    /// Lines are handed over one by one.
    turn: Mutex<()>,
    wishes: Mutex<Receiver<ToolRequest>>,
    /// The script has ended: its calls are given up.
    is_over: AtomicBool,
    calls: Mutex<Vec<ScriptCall>>,
}

/// Why a script is not followed any more.
enum ScriptEnd {
    /// It has ended, or its session has.
    Ended,
    /// The call was given up, and the script has ended, or its session.
    GivenUp(Fault),
    /// Its session has to end, for this reason.
    Breach(&'static str),
}

/// Runs a script in the session of this job.
///
/// # Errors
/// `cancelled`, and the loss of the sandbox.
pub(super) fn run(call: &Call<'_>, job: JobId, run: &Run) -> Result<ScriptReport, Fault> {
    let stream = call.sandbox().open(Request::JobAttach {
        job,
        offset: None,
        sends_events: false,
    })?;
    let (wish, wishes) = channel();
    let desk = ScriptState {
        call,
        token: &run.token,
        input: stream.input(),
        turn: Mutex::new(()),
        wishes: Mutex::new(wishes),
        is_over: AtomicBool::new(false),
        calls: Mutex::default(),
    };
    let limit = Duration::from_millis(run.limit_ms) + GRACE;
    let mut follower = Follower {
        desk: &desk,
        job,
        stream,
        wish: Some(wish),
        limit,
        until: Instant::now() + limit,
        is_cancelled: false,
        wished: 0,
        callers: 0,
        told: ScriptReport::default(),
    };
    let left = std::thread::scope(|scope| {
        let left = follower.follow(scope, run);
        desk.is_over.store(true, Ordering::SeqCst);
        // Whoever waits for something to call, or for the session to read, stops waiting.
        follower.wish = None;
        if !matches!(left, Ok(ScriptEnd::Ended | ScriptEnd::GivenUp(_))) {
            let _ = end(call, job);
        }
        left
    })?;
    let mut told = follower.told;
    told.calls = std::mem::take(&mut *desk.calls());
    let why = match left {
        ScriptEnd::GivenUp(fault) => return Err(fault),
        ScriptEnd::Ended if told.ending.is_some() => return Ok(told),
        ScriptEnd::Ended => "the session has ended".to_owned(),
        ScriptEnd::Breach(why) => format!("the session was ended because {why}"),
    };
    told.is_fresh = true;
    told.error = Some(ScriptException {
        message: why,
        ..ScriptException::default()
    });
    Ok(told)
}

/// Reads what a session says of one script.
#[derive(Debug)]
struct Follower<'a> {
    desk: &'a ScriptState<'a>,
    job: JobId,
    stream: Stream,
    /// Dropped when there is nothing more to wish for.
    wish: Option<Sender<ToolRequest>>,
    limit: Duration,
    until: Instant,
    is_cancelled: bool,
    wished: u32,
    callers: usize,
    told: ScriptReport,
}

impl<'a> Follower<'a> {
    fn follow<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, 'a>,
        run: &'a Run,
    ) -> Result<ScriptEnd, Fault> {
        let desk = self.desk;
        spawn(scope, move || desk.hand_over(&json_line("run", run)))?;
        let mut lines = Lines::default();
        loop {
            if let Some(leave) = self.look_at_time(scope)? {
                return Ok(leave);
            }
            let bytes = match self.stream.recv_for(LOOK) {
                Some(Incoming::Data {
                    channel: Channel::Stdout,
                    bytes,
                    ..
                }) => bytes,
                // What the program itself complains about is no part of any script.
                None | Some(Incoming::Data { .. }) => continue,
                Some(Incoming::Reply(Err(fault))) if fault.class == Class::Lost => {
                    return Err(fault);
                }
                Some(Incoming::Reply(_)) if self.is_cancelled => {
                    return Ok(ScriptEnd::GivenUp(given_up()));
                }
                Some(Incoming::Reply(_)) => return Ok(ScriptEnd::Ended),
            };
            if !lines.push(&bytes) {
                return Ok(BREACH);
            }
            while let Some(said) = lines.said() {
                if said.token == desk.token
                    && let Some(leave) = self.hear(scope, said.word)?
                {
                    return Ok(leave);
                }
            }
        }
    }

    /// Gives the script up with the call, and the session when it is late.
    fn look_at_time<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, 'a>,
    ) -> Result<Option<ScriptEnd>, Fault> {
        let desk = self.desk;
        if desk.call.is_given_up() && !self.is_cancelled {
            self.is_cancelled = true;
            self.until = Instant::now() + CANCEL_GRACE;
            desk.is_over.store(true, Ordering::SeqCst);
            let cancel = json!({ "do": "cancel", "token": desk.token });
            spawn(scope, move || desk.hand_over(&cancel))?;
        }
        if Instant::now() < self.until {
            return Ok(None);
        }
        Ok(Some(if self.is_cancelled {
            end(desk.call, self.job)?;
            let message = "the call was cancelled and its script ended with the session";
            ScriptEnd::GivenUp(Fault::failed(Code::Cancelled, message))
        } else {
            ScriptEnd::Breach("it did not answer in time")
        }))
    }

    fn hear<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, 'a>,
        word: ScriptEvent,
    ) -> Result<Option<ScriptEnd>, Fault> {
        match word {
            // It waited for a script of somebody else until now.
            ScriptEvent::Begin if !self.is_cancelled => self.until = Instant::now() + self.limit,
            ScriptEvent::Begin => {}
            ScriptEvent::Output { text, skipped } => {
                self.told.output.take(skipped, text.as_bytes());
            }
            ScriptEvent::Call {
                call,
                name,
                arguments,
            } => {
                self.wished += 1;
                if self.wished > MAX_CALLS || arguments.len() > MAX_ARGUMENT_BYTES {
                    return Ok(Some(BREACH));
                }
                if let Some(wish) = &self.wish {
                    let _ = wish.send(ToolRequest {
                        call,
                        name,
                        arguments,
                    });
                }
                if self.callers < MAX_PARALLEL {
                    self.callers += 1;
                    let desk = self.desk;
                    spawn(scope, move || desk.serve())?;
                }
            }
            ScriptEvent::End {
                ending,
                error,
                is_fresh,
            } => {
                self.told.ending = Some(ending);
                self.told.error = error;
                self.told.is_fresh = is_fresh;
                return Ok(Some(if self.is_cancelled {
                    let message =
                        "the call was cancelled and its script ended; the session goes on";
                    ScriptEnd::GivenUp(Fault::failed(Code::Cancelled, message))
                } else {
                    ScriptEnd::Ended
                }));
            }
        }
        Ok(None)
    }
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), Fault> {
    let spawned = std::thread::Builder::new()
        .name("script".to_owned())
        .spawn_scoped(scope, work);
    spawned.map(drop).map_err(|error| {
        Fault::failed(Code::Busy, format!("no thread for the script: {error}")).retryable()
    })
}

/// A word with the name of what it is.
fn json_line(word: &str, value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("do".to_owned(), word.into());
    }
    value
}

impl ScriptState<'_> {
    /// Writes a line to the session. One that has ended has no use for it, and whoever reads learns of it.
    fn hand_over(&self, word: &Value) {
        let mut line = word.to_string().into_bytes();
        line.push(b'\n');
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.input.send(&line);
    }

    /// Calls what is wished for, until nothing can be wished any more.
    fn serve(&self) {
        let next = || {
            let wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
            wishes.recv().ok()
        };
        while let Some(wish) = next() {
            if self.is_over.load(Ordering::SeqCst) {
                continue;
            }
            let answer = self.answer(&wish);
            if !self.is_over.load(Ordering::SeqCst) {
                self.hand_over(&answer);
            }
        }
    }

    // TRUST: a wish is of the same kind as a model's call: name and arguments are checked where all are.
    fn answer(&self, wish: &ToolRequest) -> Value {
        let called = serde_json::from_str(&wish.arguments)
            .map_err(|error| {
                let message = format!("the arguments of the call are not JSON: {error}");
                Fault::failed(Code::InvalidArgument, message)
            })
            .and_then(|arguments| {
                self.call.session.call_nested(
                    &wish.name,
                    arguments,
                    self.call.client,
                    &self.is_over,
                )
            });
        self.calls().push(ScriptCall {
            tool: glovebox_proto::visible::line_of_text(&wish.name),
            is_error: called.as_ref().map_or(true, |outcome| outcome.is_error),
            call: called
                .as_ref()
                .ok()
                .and_then(|outcome| outcome.facts.get("call").cloned())
                .unwrap_or_default(),
        });
        let answer = |is_fault: bool, json: String| json!({ "do": "answer", "token": self.token, "call": wish.call, "is_fault": is_fault, "json": json });
        let fault = match called {
            Ok(outcome) => {
                let json = json!({
                    "text": outcome.text,
                    "facts": outcome.facts,
                    "is_error": outcome.is_error,
                })
                .to_string();
                if json.len() <= MAX_ANSWER_BYTES {
                    return answer(false, json);
                }
                let message = format!("the outcome has more than {MAX_ANSWER_BYTES} bytes");
                Fault::failed(Code::TooLarge, message).remedy("ask for less at a time")
            }
            Err(fault) => fault,
        };
        let json = json!({
            "message": fault.message,
            "code": fault.code.as_str(),
            "class": fault.class.to_string(),
            "remedy": fault.remedy.as_ref().map(ToString::to_string),
        });
        answer(true, json.to_string())
    }

    fn calls(&self) -> MutexGuard<'_, Vec<ScriptCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What arrives, as lines.
#[derive(Debug, Default)]
struct Lines {
    pending: Vec<u8>,
    /// Bytes of `pending` that have been given out.
    given: usize,
}

impl Lines {
    /// Takes bytes; false when a line is longer than any may be.
    // TRUST: the session is inside; what it can make us keep is one line.
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.pending.drain(..self.given);
        self.given = 0;
        self.pending.extend_from_slice(bytes);
        self.pending.len() <= MAX_LINE_BYTES + bytes.len()
    }

    /// The next line that says something. The first may be the end of one that began before we listened.
    fn said(&mut self) -> Option<ScriptMessage> {
        loop {
            let rest = &self.pending[self.given..];
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let said = serde_json::from_slice(&rest[..end]);
            self.given += end + 1;
            if let Ok(said) = said {
                return Some(said);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_wherever_they_are_torn_and_what_is_none_is_left_out() {
        let text = "rest of one\"}\n{\"token\":\"a\",\"is\":\"begin\"}\n{\"is\":1}\n\n\
                    {\"token\":\"b\",\"is\":\"output\",\"text\":\"\\n\"}\n{\"token\":";
        for size in [1, 3, 7, text.len()] {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                assert!(lines.push(piece));
                while let Some(said) = lines.said() {
                    found.push((said.token, said.word));
                }
            }
            let output = ScriptEvent::Output {
                text: "\n".to_owned(),
                skipped: 0,
            };
            assert_eq!(
                found,
                [
                    ("a".to_owned(), ScriptEvent::Begin),
                    ("b".to_owned(), output)
                ]
            );
        }
    }

    #[test]
    fn a_line_without_end_is_noticed() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        let taken = (0..20)
            .take_while(|_| lines.push(&piece) && lines.said().is_none())
            .count();
        assert!(taken < 10, "{taken}");
    }
}
