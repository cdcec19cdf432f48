//! The calls of one answer: who permits them, which are made at the same time, what the model is told.
//!
//! Every call gets one result, whatever happens to it, before the loop goes on or ends.

use super::outcome::{EarlyEnd, RunOutcome};
use super::{AgentLoop, Observe};
use crate::Ending;
use crate::{CallResult, Conversation, Event, ToolCall, ToolDefinition, ToolOutput, Tools};
use glovebox_proto::{Class, Code, Fault};
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Calls made at the same time.
const MAX_PARALLEL: usize = 8;
/// How often a deadline is looked at while tools work.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What a call came to, and how long it took.
type FinishedCall = (Result<ToolOutput, Fault>, Duration);

/// The calls of one answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnsweredCalls<'a> {
    pub(super) calls: &'a [ToolCall],
    /// Id of the call in which the answer was cut at the output limit. It is never made, not even where what
    /// came of it can be read: the file or command that it holds may be half of what was meant.
    pub(super) cut_call: Option<&'a str>,
}

/// What the user says to a call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// Yes.
    Yes,
    /// No, and why; the reason may be empty.
    No(String),
}

impl Approval {
    /// The call's right to be made.
    ///
    /// # Errors
    /// The refusal.
    pub fn permit(self) -> Result<(), Fault> {
        let message = match self {
            Self::Yes => return Ok(()),
            Self::No(reason) if reason.is_empty() => "the user refused this call".to_owned(),
            Self::No(reason) => format!("the user refused this call: {reason}"),
        };
        Err(Fault::refused(Code::PermissionDenied, message))
    }
}

/// Whoever says whether a call may change something.
pub trait Approve {
    /// Asked before each call of a tool that is not read-only; a lasting yes is remembered by whoever
    /// gives it.
    fn approve(&self, call: &ToolCall) -> Approval;
}

/// Lets everything pass: there is a wall, or the user said `--yes`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoApproval;

impl Approve for NoApproval {
    fn approve(&self, _call: &ToolCall) -> Approval {
        Approval::Yes
    }
}

impl AgentLoop<'_> {
    /// Makes all calls of one answer: those that only read at the same time, the others one by one, in
    /// the order of the answer.
    pub(super) fn call_all(
        &self,
        AnsweredCalls { calls, cut_call }: AnsweredCalls<'_>,
        tools: &[ToolDefinition],
        deadline: Option<Instant>,
        conversation: &mut Conversation,
        observe: &mut dyn Observe,
    ) -> Result<(Vec<CallResult>, bool), EarlyEnd> {
        let is_cut = |call: &ToolCall| cut_call == Some(call.id.as_str());
        let reads = |call: &ToolCall| {
            !is_cut(call)
                && tools
                    .iter()
                    .any(|tool| tool.name.eq_ignore_ascii_case(&call.name) && tool.is_read_only)
        };
        let mut results = Vec::with_capacity(calls.len());
        let mut is_waiting = false;
        let mut rest = calls;
        while let Some(first) = rest.first() {
            let count = if reads(first) {
                rest.iter()
                    .take(MAX_PARALLEL)
                    .take_while(|call| reads(call))
                    .count()
            } else {
                1
            };
            let (group, later) = rest.split_at(count);
            rest = later;
            self.check_stop()?;
            let refused = if reads(first) {
                None
            } else if is_cut(first) {
                Some(cut_fault())
            } else {
                self.refusal(first)
            };
            for call in group {
                observe.observe(&Event::CallStarted {
                    id: call.id.clone(),
                    tool: call.name.clone(),
                    arguments: call.arguments.clone(),
                    server: tools
                        .iter()
                        .find(|tool| tool.name == call.name)
                        .and_then(|tool| tool.server.clone()),
                })?;
            }
            let done = match refused {
                Some(fault) => vec![(Err(fault), Duration::ZERO)],
                None => self.call_group(group, deadline, observe)?,
            };
            let mut lost = None;
            for (call, (outcome, wall)) in group.iter().zip(done) {
                let (output, fault) = self.told(outcome);
                is_waiting |= output.facts.get("running").is_some_and(|fact| fact == true);
                let result = CallResult {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    text: output.text,
                    is_error: output.is_error,
                    images: output.images,
                };
                observe.observe(&Event::CallFinished {
                    id: result.id.clone(),
                    tool: result.name.clone(),
                    text: result.text.clone(),
                    is_error: result.is_error,
                    facts: output.facts,
                    images: result.images.clone(),
                    diff: output.diff.map(|diff| self.secrets.clean(diff)),
                    wall_ms: wall.as_millis() as u64,
                })?;
                conversation.add_result(result.clone());
                results.push(result);
                lost = lost.or(fault.filter(|fault| fault.class == Class::Lost));
            }
            if let Some(fault) = lost {
                return Err(EarlyEnd(RunOutcome {
                    ending: Ending::Lost,
                    message: format!("the sandbox is gone: {}", fault.message),
                    fault: Some(fault),
                    remedy: None,
                }));
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(self.too_late());
            }
        }
        self.check_stop()?;
        Ok((results, is_waiting))
    }

    /// Asks whether a call may change something; the refusal if not.
    fn refusal(&self, call: &ToolCall) -> Option<Fault> {
        if !call.arguments.is_object() {
            return None;
        }
        self.approve.approve(call).permit().err()
    }

    /// Makes these calls at the same time, each on a thread of its own, and waits for all of them. When
    /// time is up or the user stops, they are asked to end and still waited for.
    fn call_group(
        &self,
        group: &[ToolCall],
        deadline: Option<Instant>,
        observe: &mut dyn Observe,
    ) -> Result<Vec<FinishedCall>, Fault> {
        let mut watched = Ok(());
        let (tools, cancel) = (self.tools, self.stop.flag());
        let one = |call: &ToolCall| {
            let began = Instant::now();
            (call_one(tools, call, cancel), began.elapsed())
        };
        let (send, receive) = channel();
        let mut done: Vec<Option<FinishedCall>> = group.iter().map(|_| None).collect();
        std::thread::scope(|scope| {
            for (index, call) in group.iter().enumerate() {
                let send = send.clone();
                let spawned = std::thread::Builder::new()
                    .name("tool".to_owned())
                    .spawn_scoped(scope, move || {
                        let _ = send.send((index, one(call)));
                    });
                // Where there can be no more threads, this one does the work.
                if spawned.is_err() {
                    done[index] = Some(one(call));
                }
            }
            drop(send);
            loop {
                match receive.recv_timeout(LOOK_AGAIN) {
                    Ok((index, outcome)) => done[index] = Some(outcome),
                    Err(RecvTimeoutError::Timeout) => {
                        if deadline.is_some_and(|at| Instant::now() >= at) {
                            self.stop.flag().store(true, Ordering::SeqCst);
                        }
                        // Only calls that are made alone run commands.
                        if let ([call], Ok(())) = (group, &watched)
                            && let Some(text) = tools.live_output()
                        {
                            watched = observe.observe(&Event::ToolOutput {
                                id: call.id.clone(),
                                text: self.secrets.clean(text),
                            });
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        if deadline.is_some_and(|at| Instant::now() >= at) {
            // Time was up, which is not the user's wish to stop; what follows tells it apart.
            self.stop.clear();
        }
        watched?;
        Ok(done
            .into_iter()
            .map(|outcome| {
                outcome.unwrap_or_else(|| {
                    let fault = Fault::failed(Code::Internal, "the tool ended without an outcome");
                    (Err(fault), Duration::ZERO)
                })
            })
            .collect())
    }

    /// What the model is told, and the failure if there was one.
    // TRUST: tools bound and escape their texts; what is left to do is to take our own secrets out.
    fn told(&self, outcome: Result<ToolOutput, Fault>) -> (ToolOutput, Option<Fault>) {
        match outcome {
            Ok(mut output) => {
                output.text = self.secrets.clean(output.text);
                for fact in output.facts.values_mut() {
                    self.secrets.clean_json(fact);
                }
                (output, None)
            }
            Err(fault) => {
                let mut text = format!("[{}: {}] {}", fault.class, fault.code, fault.message);
                if let Some(remedy) = &fault.remedy {
                    text.push_str("\n[hint] ");
                    text.push_str(&remedy.to_string());
                }
                let mut facts = Map::new();
                facts.insert("fault".to_owned(), fault.code.as_str().into());
                let output = ToolOutput {
                    text: self.secrets.clean(text),
                    facts,
                    is_error: true,
                    images: Vec::new(),
                    diff: None,
                };
                (output, Some(fault))
            }
        }
    }
}

fn cut_fault() -> Fault {
    Fault::failed(
        Code::TooLarge,
        "Your answer was cut off at the output limit in this call; nothing was done",
    )
    .remedy("Write in smaller pieces.")
}

fn call_one(tools: &dyn Tools, call: &ToolCall, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
    match &call.arguments {
        Value::Object(_) | Value::Null => tools.call(&call.name, call.arguments.clone(), cancel),
        _ => Err(Fault::failed(
            Code::InvalidArgument,
            format!("the arguments of {} are not a JSON object", call.name),
        )
        .remedy("make the call again, with all of its arguments as one JSON object")),
    }
}
