//! Tool calls of one model answer: approval, parallel execution, and the results for the model.
//!
//! Every call gets exactly one result, a refusal or an error included, before the loop continues or
//! ends.

use super::outcome::{EarlyEnd, RunOutcome};
use super::{AgentLoop, Observe};
use crate::Ending;
use crate::{CallResult, Conversation, Event, ToolCall, ToolDefinition, ToolOutput, Tools};
use glovebox_proto::{Class, Code, Fault};
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Maximum number of calls that run at the same time.
const MAX_PARALLEL: usize = 8;
/// Interval at which the deadline is checked while tools work.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Outcome of one call, and its duration.
type FinishedCall = (Result<ToolOutput, Fault>, Duration);

/// Calls of one model answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnsweredCalls<'a> {
    pub(super) calls: &'a [ToolCall],
    /// Id of the call in which the answer was cut at the output limit; `None` if no call was cut.
    /// The loop never runs this call, even if its arguments can be parsed: the file or command in
    /// it may be incomplete.
    pub(super) cut_call: Option<&'a str>,
}

/// Decision of the user about a call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// The call may run.
    Yes,
    /// The call is refused. Holds the user's reason; empty if none was given.
    No(String),
}

impl Approval {
    /// Converts the decision into permission for the call.
    ///
    /// # Errors
    /// `permission-denied` with the user's reason if the call is refused.
    pub fn permit(self) -> Result<(), Fault> {
        let message = match self {
            Self::Yes => return Ok(()),
            Self::No(reason) if reason.is_empty() => "the user refused this call".to_owned(),
            Self::No(reason) => format!("the user refused this call: {reason}"),
        };
        Err(Fault::refused(Code::PermissionDenied, message))
    }
}

/// Decides whether a call may change something.
pub trait Approve {
    /// Decides about `call`. The loop asks before each call of a tool that is not read-only. An
    /// implementation that lets the user approve for longer has to remember that itself.
    fn approve(&self, call: &ToolCall) -> Approval;
}

/// Approves every call. Used in a sandbox, and where the user approved all changes with `--yes`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoApproval;

impl Approve for NoApproval {
    fn approve(&self, _call: &ToolCall) -> Approval {
        Approval::Yes
    }
}

impl AgentLoop<'_> {
    /// Runs all calls of one answer in the order of the answer. Neighbouring calls of read-only
    /// tools run at the same time, all others one by one. Returns the results, and true if a
    /// command still runs.
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

    /// Asks for approval of a call. Returns the refusal; `None` if the call may run. Nothing is
    /// asked about arguments that [`call_one`] rejects.
    fn refusal(&self, call: &ToolCall) -> Option<Fault> {
        if !can_be_called_with(&call.arguments) {
            return None;
        }
        self.approve.approve(call).permit().err()
    }

    /// Runs the calls of `group` at the same time, each on its own thread, and blocks until all
    /// have returned. At the deadline, or when the user stops the run, the tools are cancelled and
    /// still waited for.
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
                // If no thread can be created, the current thread runs the call.
                if spawned.is_err() {
                    done[index] = Some(one(call));
                }
            }
            // The threads now hold the only senders, so the loop below ends when the last thread
            // does.
            drop(send);
            loop {
                match receive.recv_timeout(LOOK_AGAIN) {
                    Ok((index, outcome)) => done[index] = Some(outcome),
                    Err(RecvTimeoutError::Timeout) => {
                        if deadline.is_some_and(|at| Instant::now() >= at) {
                            self.stop.flag().store(true, Ordering::SeqCst);
                        }
                        // Only a call that runs alone can be a command, and only commands have live
                        // output.
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
            // The flag was set by the deadline, not by the user. `call_all` reports the time limit;
            // a flag left set would make `check_stop` report that the user stopped the run.
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

    /// Converts the outcome of a call into the output for the model, and the fault if it failed.
    // TRUST: tools bound and escape their texts; here our own secrets are removed from them.
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

/// Returns true for an object, and for null, which stands for no arguments at all.
fn can_be_called_with(arguments: &Value) -> bool {
    arguments.is_object() || arguments.is_null()
}

fn call_one(tools: &dyn Tools, call: &ToolCall, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
    if !can_be_called_with(&call.arguments) {
        return Err(Fault::failed(
            Code::InvalidArgument,
            format!("the arguments of {} are not a JSON object", call.name),
        )
        .remedy("make the call again, with all of its arguments as one JSON object"));
    }
    tools.call(&call.name, call.arguments.clone(), cancel)
}
