//! Run of one script: sends it to the session, reads its events and makes the calls that it
//! requests.
//!
//! ```text
//! this thread   reads events of the session, and checks the deadline and the cancellation
//! feeder        sends the script
//! callers       up to eight: make calls and send their results
//! ```
//!
//! A thread that sends blocks while the session does not read. Ending the session also ends that
//! block. A session that is late or breaks the protocol is ended.

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

/// Maximum number of calls at the same time.
const MAX_PARALLEL: usize = 8;
/// Interval at which the deadline and the cancellation are checked.
const LOOK: Duration = Duration::from_millis(50);
/// Time that a session may take beyond the script's own time limit before it is ended.
const GRACE: Duration = Duration::from_secs(15);
/// Time that a cancelled script has to end before its session is ended.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// Maximum size of the result of a call, as JSON text, in bytes.
const MAX_ANSWER_BYTES: usize = 2 << 20;
const BREACH: ScriptEnd = ScriptEnd::Breach("it broke the rules");

/// Report about a script that has ended.
#[derive(Debug, Default)]
pub(super) struct ScriptReport {
    pub(super) output: LogEnds,
    /// End of the script. `None` if its session ended first.
    pub(super) ending: Option<Ending>,
    pub(super) error: Option<ScriptException>,
    /// True if the session's variables are lost.
    pub(super) is_fresh: bool,
    pub(super) calls: Vec<ScriptCall>,
}

/// Call that the script made.
#[derive(Debug, Serialize)]
pub(super) struct ScriptCall {
    tool: String,
    is_error: bool,
    /// Identifier that `glovebox why` takes. Null if there is none.
    #[serde(skip_serializing_if = "Value::is_null")]
    call: Value,
}

/// Call that a script requests.
#[derive(Debug)]
struct ToolRequest {
    call: u32,
    name: String,
    arguments: String,
}

/// State that the threads of one script share.
#[derive(Debug)]
struct ScriptState<'a> {
    call: &'a Call<'a>,
    token: &'a str,
    input: Input,
    /// Locked while a line is sent, so that lines do not mix.
    turn: Mutex<()>,
    wishes: Mutex<Receiver<ToolRequest>>,
    /// Set when the script has ended or was cancelled. Its calls are cancelled with it.
    is_over: AtomicBool,
    calls: Mutex<Vec<ScriptCall>>,
}

/// Reason for which the script is no longer followed.
enum ScriptEnd {
    /// The script or its session has ended.
    Ended,
    /// The call was cancelled, and the script or its session has ended.
    GivenUp(Fault),
    /// The session must be ended, for this reason.
    Breach(&'static str),
}

/// Runs a script in the session of this job. Blocks until the script has ended.
///
/// # Errors
/// `cancelled`; `busy` if no thread can be made; the loss of the sandbox.
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
        // The flag is set before the sender is dropped, so that callers discard the queued requests
        // instead of making them. The scope joins its threads: callers that wait for a request end
        // when the sender is dropped, and threads that wait for the session to read end when the
        // session is.
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

/// Reader of the events of one script.
#[derive(Debug)]
struct Follower<'a> {
    desk: &'a ScriptState<'a>,
    job: JobId,
    stream: Stream,
    /// Sender of requested calls to the callers. Dropped when the script has ended.
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
                // Standard error of the program does not belong to any script.
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

    /// Cancels the script if its call was cancelled, and ends the session if it is late. Returns
    /// the reason to stop following, if there is one.
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
            // The script waited for another script of the session until now, so its time begins
            // here.
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

/// Encodes a message to the session, with its type in the field `do`.
fn json_line(word: &str, value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("do".to_owned(), word.into());
    }
    value
}

impl ScriptState<'_> {
    /// Writes a line to the session. Errors are ignored: the reader learns of a session that has
    /// ended.
    fn hand_over(&self, word: &Value) {
        let mut line = word.to_string().into_bytes();
        line.push(b'\n');
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.input.send(&line);
    }

    /// Makes the requested calls until the sender of requests is dropped.
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

    // TRUST: a request is like a call of a model: the name and the arguments pass the same checks.
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

/// Splits the received bytes into lines.
#[derive(Debug, Default)]
struct Lines {
    pending: Vec<u8>,
    /// Bytes of `pending` that were returned already.
    given: usize,
}

impl Lines {
    /// Appends received bytes. Returns false if a line exceeds the limit.
    // TRUST: the session is in the sandbox. It can make this process keep one line.
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.pending.drain(..self.given);
        self.given = 0;
        self.pending.extend_from_slice(bytes);
        self.pending.len() <= MAX_LINE_BYTES + bytes.len()
    }

    /// Returns the next line that parses as a message. The first line may be the end of one that
    /// began before this reader attached.
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
