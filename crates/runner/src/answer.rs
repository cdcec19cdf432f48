//! Messages of the program inside about one call: decoding them from the bytes as they arrive, and
//! judging the result when the process has ended.

use crate::call::{CallFailure, FailureKind};
use crate::fetch::{FetchMessage, MAX_REQUEST_FRAME_BYTES};
use glovebox_js::tool_call::{
    CallError, CallErrorKind, CallLimits, CallMessage, FRAME_SLACK_BYTES, FrameDecoder, FrameError,
    LogRecord,
};
use glovebox_js::tool_fetch::FetchGrant;
use glovebox_proto::{Exit, ExitReport};
use serde_json::Value;
use std::time::Duration;

/// Signal of the system call filter (seccomp(2)).
const SIGSYS: i32 = 31;
/// Signal of the kernel's CPU time limit (setrlimit(2), RLIMIT_CPU).
const SIGXCPU: i32 = 24;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGABRT: i32 = 6;
/// Growth factor of an encoded byte: JSON may write it as six bytes, and a value is JSON text
/// within JSON.
const JSON_GROWTH: usize = 6;
const MAX_WARNINGS: usize = 32;
/// Maximum bytes that are kept of the program's standard error.
const MAX_COMPLAINT_BYTES: usize = 256;
/// Allowance for the record that reports a full log, in bytes.
const LOG_SLACK_BYTES: u64 = 1024;
const MAX_TEXT_BYTES: usize = 32 << 10;

/// State of a call's messages.
#[derive(Debug)]
pub(crate) struct Answer {
    frames: FrameDecoder,
    limits: CallLimits,
    log: Vec<LogRecord>,
    log_bytes: u64,
    is_silent: bool,
    complaint: Vec<u8>,
    grant: Option<FetchGrant>,
    /// Number of requests that the program has started.
    begun: u32,
    asked: Vec<FetchMessage>,
    outcome: Option<Outcome>,
}

/// Result of the call as the program reports it.
#[derive(Debug)]
enum Outcome {
    Value {
        value: Value,
        warnings: Vec<String>,
    },
    Error(CallError),
    /// The program violated the protocol. Holds the violation as a clause.
    Broken(String),
}

impl Answer {
    pub(crate) fn new(limits: CallLimits, grant: Option<FetchGrant>) -> Self {
        let value_bytes = usize::try_from(limits.output_bytes).unwrap_or(usize::MAX);
        let max = value_bytes
            .saturating_mul(JSON_GROWTH)
            .saturating_add(FRAME_SLACK_BYTES * JSON_GROWTH);
        let max_request = grant.map_or(0, |_| MAX_REQUEST_FRAME_BYTES);
        Self {
            frames: FrameDecoder::new(max.max(max_request)),
            limits,
            log: Vec::new(),
            log_bytes: 0,
            is_silent: true,
            complaint: Vec::new(),
            grant,
            begun: 0,
            asked: Vec::new(),
            outcome: None,
        }
    }

    /// Processes bytes that the program wrote. Returns false if further output has no effect: the
    /// result is complete, or the protocol was violated.
    // TRUST: the program runs untrusted code, which may have taken it over. Frames, log and value
    // are bounded, and nothing is kept after a result or an invalid frame.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        self.is_silent &= bytes.is_empty();
        if self.outcome.is_some() {
            return false;
        }
        self.frames.push(bytes);
        loop {
            match self.frames.next_frame() {
                Ok(None) => return true,
                Ok(Some(frame)) => match serde_json::from_slice::<CallMessage>(&frame) {
                    Ok(message) => self.hear(message),
                    Err(_) => self.broken(&FrameError::NotAMessage),
                },
                Err(error) => self.broken(&error),
            }
            if self.outcome.is_some() {
                return false;
            }
        }
    }

    /// Processes bytes of the program's standard error, of which the first [`MAX_COMPLAINT_BYTES`]
    /// are kept.
    pub(crate) fn complain(&mut self, bytes: &[u8]) {
        let room = MAX_COMPLAINT_BYTES.saturating_sub(self.complaint.len());
        self.complaint
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns true if the program has reported a failed allocation. The abort that follows looks
    /// like a system call of the tool that the filter denied. A program that was taken over can
    /// fake the report, which only changes the reported reason of its failure.
    fn lacked_memory(&self) -> bool {
        self.complaint.starts_with(b"memory allocation of ")
    }

    /// Takes the requests and aborts since the previous call.
    pub(crate) fn take_asked(&mut self) -> Vec<FetchMessage> {
        std::mem::take(&mut self.asked)
    }

    /// Returns true if the program has written nothing.
    pub(crate) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Returns true if the program violated the protocol. Its further output is ignored.
    pub(crate) const fn is_broken(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Broken(_)))
    }

    fn broken(&mut self, error: &FrameError) {
        self.overstep(match error {
            FrameError::TooLarge(bytes) => format!("it announced an answer of {bytes} bytes"),
            FrameError::NotAMessage => "it wrote something that is no answer".to_owned(),
        });
    }

    /// Records a violation that the unmodified program would not commit: it must have been taken
    /// over.
    fn overstep(&mut self, what: impl Into<String>) {
        self.outcome = Some(Outcome::Broken(what.into()));
    }

    fn hear(&mut self, message: CallMessage) {
        match message {
            CallMessage::Log(record) => {
                // The program counts overhead for each record, so it stays below this bound. Only
                // the record that reports a full log can exceed it.
                self.log_bytes += record.text.len() as u64 + 1;
                if self.log_bytes > self.limits.log_bytes.saturating_add(LOG_SLACK_BYTES) {
                    return self.overstep("it logs more than it may");
                }
                self.log.push(record);
            }
            CallMessage::Fetch(call) => {
                self.begun += 1;
                if call.id == self.begun
                    && self.grant.is_some_and(|grant| call.id <= grant.requests)
                {
                    self.asked.push(FetchMessage::Begin(call));
                } else {
                    self.overstep("it asked for a request that it may not make");
                }
            }
            CallMessage::FetchAbort { id } if (1..=self.begun).contains(&id) => {
                self.asked.push(FetchMessage::Abort(id));
            }
            CallMessage::FetchAbort { .. } => {
                self.overstep("it gave up a request that it had not made");
            }
            CallMessage::Value { json, mut warnings } => {
                if json.len() as u64 > self.limits.output_bytes {
                    return self.broken(&FrameError::TooLarge(json.len() as u64));
                }
                warnings.truncate(MAX_WARNINGS);
                self.outcome = Some(match serde_json::from_str(&json) {
                    Ok(value) => Outcome::Value { value, warnings },
                    Err(_) => Outcome::Broken("its result is no JSON".to_owned()),
                });
            }
            CallMessage::Error(mut error) => {
                for text in [&mut error.name, &mut error.message, &mut error.stack] {
                    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
                }
                self.outcome = Some(Outcome::Error(error));
            }
        }
    }

    /// Returns the result of the call. `end` is the report about the process. `None` if it was
    /// terminated after its last message that counts. `wall` is the duration of the call.
    pub(crate) fn judge(
        self,
        end: Option<&ExitReport>,
        wall: Duration,
    ) -> Result<(Value, Vec<String>, Vec<LogRecord>), CallFailure> {
        let allowed = Duration::from_millis(self.limits.wall_ms);
        let fail = |kind, message: String, log: Vec<LogRecord>| {
            Err(CallFailure {
                log: log.into(),
                wall,
                ..CallFailure::new(kind, message)
            })
        };
        let late = format!("the tool took longer than {} ms", self.limits.wall_ms);
        match self.outcome {
            Some(Outcome::Value { value, warnings }) => Ok((value, warnings, self.log)),
            Some(Outcome::Broken(what)) => fail(
                FailureKind::Killed,
                format!("the tool's process broke the rules: {what}"),
                self.log,
            ),
            Some(Outcome::Error(error)) => {
                let kind = match error.kind {
                    CallErrorKind::Interrupted if wall >= allowed => {
                        return fail(FailureKind::Timeout, late, self.log);
                    }
                    // The program reports a timeout before the time limit.
                    CallErrorKind::Interrupted => FailureKind::Killed,
                    CallErrorKind::Null
                        if end.is_some_and(|end| {
                            end.max_rss_kib.saturating_mul(1024) > self.limits.memory_bytes / 3
                        }) =>
                    {
                        let message = "the tool wanted more memory than it may have";
                        return fail(FailureKind::Memory, message.to_owned(), self.log);
                    }
                    CallErrorKind::Null | CallErrorKind::Tool => FailureKind::ToolError,
                    CallErrorKind::Syntax => FailureKind::Syntax,
                    CallErrorKind::NotFound => FailureKind::NotFound,
                    CallErrorKind::NotJson => FailureKind::NotJson,
                    CallErrorKind::OutputLimit => FailureKind::OutputLimit,
                    CallErrorKind::Memory => FailureKind::Memory,
                };
                Err(CallFailure {
                    kind,
                    name: error.name,
                    message: error.message,
                    stack: error.stack.into(),
                    log: self.log.into(),
                    refused_hosts: Box::default(),
                    wall,
                })
            }
            None => {
                let (kind, mut message) = match end {
                    Some(end) => unanswered(end, self.limits, late, self.lacked_memory()),
                    None => (FailureKind::Timeout, late),
                };
                if kind == FailureKind::Killed && self.frames.is_torn() {
                    message.push_str(", in the middle of a message");
                }
                fail(kind, message, self.log)
            }
        }
    }
}

/// Returns the failure of a process that ended without a result.
fn unanswered(
    end: &ExitReport,
    limits: CallLimits,
    late: String,
    lacked_memory: bool,
) -> (FailureKind, String) {
    let cpu_ms = (end.user_us + end.system_us) / 1000;
    if end.timed_out {
        return (FailureKind::Timeout, late);
    }
    if end.oom {
        let message = "the tools of this tenant together took all the memory there is for them";
        return (FailureKind::Memory, message.to_owned());
    }
    match end.exit {
        Exit::Signal(SIGXCPU) => (
            FailureKind::Cpu,
            format!("the tool used {cpu_ms} ms of a processor, more than it may"),
        ),
        Exit::Signal(SIGKILL) if cpu_ms >= limits.cpu_ms => (
            FailureKind::Cpu,
            format!("the tool used {cpu_ms} ms of a processor, more than it may"),
        ),
        // If the kernel kills several processes for memory at once, it reports `oom` for one only.
        Exit::Signal(SIGKILL) => (
            FailureKind::Memory,
            "the tool's process was killed: the tools of this tenant together took all the memory there is for them"
                .to_owned(),
        ),
        Exit::Signal(SIGSYS | SIGABRT) if lacked_memory => (
            FailureKind::Memory,
            "the tool's process could not get the memory it wanted".to_owned(),
        ),
        Exit::Signal(SIGSYS) => (
            FailureKind::Killed,
            "the tool's process made a system call that it may not make (SIGSYS)".to_owned(),
        ),
        Exit::Signal(SIGABRT) => (
            FailureKind::Memory,
            "the tool's process could not get the memory it wanted (SIGABRT)".to_owned(),
        ),
        Exit::Signal(SIGTERM) => (FailureKind::Timeout, late),
        Exit::Signal(signal) => (
            FailureKind::Killed,
            format!("the tool's process was ended by signal {signal}"),
        ),
        Exit::Code(code) => (
            FailureKind::Killed,
            format!("the tool's process ended with code {code} and without an answer"),
        ),
    }
}

#[cfg(test)]
mod tests;
