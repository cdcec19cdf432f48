//! The loop: ask the model, call what it wants called, tell it what came of that, until it is done.
//!
//! In: a [`Conversation`], a model, tools, limits. Out: a [`Verdict`]. Nothing here ends in "done" but
//! an answer of the model without calls: a limit, a refusal of the provider, a sandbox that is gone
//! each have an ending of their own. Whenever the loop ends, every call has a result, so that the
//! conversation can go on.

use crate::context::{Budget, Pruned};
use crate::conversation::text;
use crate::event::Conversation;
use crate::model::ModelError;
use crate::repetition::{Circle, Repetition};
use crate::{
    Answer, Call, CallResult, Delta, Event, Limits, Message, Model, Part, Price, Prompt, Secrets,
    Stop, StopReason, ToolDefinition, ToolOutput, Tools,
};
use glovebox_proto::{Class, Code, Fault};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Calls made at the same time.
const MAX_PARALLEL: usize = 8;
/// Answers in a row that were cut for their length before the run ends.
const MAX_CUT_ANSWERS: u32 = 3;
/// How often a deadline is looked at while tools work.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The model said it is done.
    Completed,
    /// A limit was reached first.
    StoppedByLimit,
    /// The user stopped it.
    Aborted,
    /// The sandbox is gone.
    Lost,
    /// It could not go on.
    Failed,
}

/// How a run ended, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// How.
    pub ending: Ending,
    /// The model's last words when it is done; otherwise why it ended.
    pub message: String,
    /// What went wrong, when something did.
    pub fault: Option<Fault>,
}

/// What the user says to a call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// This once.
    Once,
    /// Every call of this tool in this run.
    Always,
    /// No, and why; the reason may be empty.
    Deny(String),
}

/// Whoever says whether a call may change something.
pub trait Approve {
    /// Asked before each call of a tool that is not read-only.
    fn approve(&self, call: &Call) -> Approval;
}

/// Lets everything pass: there is a wall, or the user said `--yes`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoApproval;

impl Approve for NoApproval {
    fn approve(&self, _call: &Call) -> Approval {
        Approval::Once
    }
}

/// Whoever is told what happens.
pub trait Observe {
    /// Told each event, in order, before what follows from it happens.
    ///
    /// # Errors
    /// When it cannot be kept; the run ends then.
    fn observe(&mut self, event: &Event) -> Result<(), Fault>;
}

/// All that one run needs besides its conversation.
#[expect(missing_debug_implementations, reason = "holds what others implement")]
pub struct Head<'a> {
    /// Answers.
    pub model: &'a dyn Model,
    /// Acts.
    pub tools: &'a dyn Tools,
    /// Permits.
    pub approve: &'a dyn Approve,
    /// What the model is told about where it is.
    pub system: &'a str,
    /// How far it may go.
    pub limits: Limits,
    /// What tokens cost.
    pub price: Option<Price>,
    /// How much the model is told at once.
    pub budget: Budget,
    /// What is taken out of every text.
    pub secrets: &'a Secrets,
    /// The user's wish to stop.
    pub stop: Stop,
}

/// Why the loop leaves before the model is done.
struct Leave(Verdict);

impl From<Fault> for Leave {
    fn from(fault: Fault) -> Self {
        Self(Verdict {
            ending: Ending::Failed,
            message: fault.message.clone(),
            fault: Some(fault),
        })
    }
}

impl Leave {
    fn because(ending: Ending, message: impl Into<String>) -> Self {
        Self(Verdict {
            ending,
            message: message.into(),
            fault: None,
        })
    }
}

impl Head<'_> {
    /// Goes on with `conversation` until something ends it. The ending is told to `observe` as well.
    pub fn run(&self, conversation: &mut Conversation, observe: &mut dyn Observe) -> Verdict {
        let verdict = match tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => match self.go(conversation, observe, &runtime) {
                Ok(verdict) | Err(Leave(verdict)) => verdict,
            },
            Err(error) => {
                let fault = Fault::failed(
                    Code::Io,
                    format!("model servers cannot be waited for: {error}"),
                );
                Leave::from(fault).0
            }
        };
        conversation.close_open_calls("[not done: the run ended before this call]");
        let ended = Event::Ended {
            ending: verdict.ending,
            message: verdict.message.clone(),
            turns: conversation.turns,
            usage: conversation.usage,
            cost_usd: self.price.map(|_| conversation.cost_usd),
        };
        match observe.observe(&ended) {
            Ok(()) => verdict,
            Err(fault) => Leave::from(fault).0,
        }
    }

    fn go(
        &self,
        conversation: &mut Conversation,
        observe: &mut dyn Observe,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<Verdict, Leave> {
        let began = Instant::now();
        let deadline = self.limits.max_time.map(|time| began + time);
        let tools = self.tools.definitions();
        let mut pruned = Pruned::default();
        let mut repetition = Repetition::default();
        let mut approved = BTreeSet::new();
        let mut cut_answers = 0;
        let mut last_prompt_tokens = 0;
        loop {
            self.check_stop()?;
            let reached = self.limits.reached(
                conversation.turns,
                conversation.usage,
                conversation.cost_usd,
                began.elapsed(),
            );
            if let Some(sentence) = reached {
                return Err(Leave::because(Ending::StoppedByLimit, sentence));
            }
            conversation.turns += 1;
            let turn = conversation.turns;
            observe.observe(&Event::TurnStarted { turn })?;
            let gain = pruned.decide(&conversation.messages, last_prompt_tokens, self.budget);
            if let Some((results, tokens)) = gain {
                observe.observe(&Event::Pruned { results, tokens })?;
            }
            let told = pruned.apply(&conversation.messages);
            let mut answer = self.ask(&told, &tools, deadline, observe, runtime)?;
            last_prompt_tokens = answer.usage.input;
            make_ids_unique(&mut answer, conversation, turn);
            self.clean(&mut answer);
            let cost_usd = self.price.map(|price| price.of(answer.usage));
            conversation.usage += answer.usage;
            conversation.cost_usd += cost_usd.unwrap_or(0.0);
            observe.observe(&Event::Answered {
                turn,
                parts: answer.parts.clone(),
                stop: answer.stop.clone(),
                usage: answer.usage,
                cost_usd,
            })?;
            let said = text(&answer.parts);
            let assistant = Message::Assistant {
                parts: answer.parts,
            };
            conversation.messages.push(assistant.clone());
            let calls: Vec<Call> = match &assistant {
                Message::Assistant { parts } => crate::conversation::calls(parts)
                    .into_iter()
                    .cloned()
                    .collect(),
                _ => Vec::new(),
            };
            if calls.is_empty() {
                if answer.stop == StopReason::Length && cut_answers < MAX_CUT_ANSWERS {
                    cut_answers += 1;
                    say(
                        conversation,
                        observe,
                        "Your answer was cut off because it was too long. Go on where it ended.",
                    )?;
                    continue;
                }
                return finished(&said, &answer.stop);
            }
            cut_answers = 0;
            let (results, is_waiting) = self.call_all(
                &calls,
                &tools,
                &mut approved,
                deadline,
                conversation,
                observe,
            )?;
            match repetition.note(&assistant, &results, is_waiting) {
                Circle::No => {}
                Circle::Tell => say(
                    conversation,
                    observe,
                    "You have made the same call with the same outcome several times. It will not come to \
                     anything else: try another way, or say what keeps you from going on.",
                )?,
                Circle::End => {
                    return Err(Leave::because(
                        Ending::Failed,
                        "the model goes in circles: the same calls with the same outcome, again and again",
                    ));
                }
            }
        }
    }

    fn check_stop(&self) -> Result<(), Leave> {
        if self.stop.is_asked() {
            return Err(Leave::because(Ending::Aborted, "stopped by the user"));
        }
        Ok(())
    }

    /// One answer, or the reason why there is none.
    fn ask(
        &self,
        messages: &[Message],
        tools: &[ToolDefinition],
        deadline: Option<Instant>,
        observe: &mut dyn Observe,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<Answer, Leave> {
        enum Came {
            Answer(Result<Answer, ModelError>),
            Stop,
            Deadline,
        }
        let prompt = Prompt {
            system: self.system,
            messages,
            tools,
        };
        // Pieces go through a queue: whoever is told may be slow or fail, and the connection is read on.
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let mut on_delta = move |delta| {
            let _ = send.send(delta);
        };
        let mut kept = Ok(());
        let came = runtime.block_on(async {
            let answering = self.model.answer(prompt, &mut on_delta);
            tokio::pin!(answering);
            let late = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(late);
            loop {
                tokio::select! {
                    biased;
                    () = self.stop.asked() => break Came::Stop,
                    () = &mut late => break Came::Deadline,
                    Some(delta) = receive.recv() => {
                        kept = observe.observe(&delta_event(delta));
                        if kept.is_err() {
                            break Came::Stop;
                        }
                    }
                    answer = &mut answering => break Came::Answer(answer),
                }
            }
        });
        while let Ok(delta) = receive.try_recv() {
            kept = kept.and(observe.observe(&delta_event(delta)));
        }
        kept?;
        match came {
            Came::Answer(Ok(answer)) => Ok(answer),
            Came::Answer(Err(error)) => Err(Fault::from(error).into()),
            Came::Stop => {
                self.check_stop()?;
                Err(Leave::because(Ending::Aborted, "stopped"))
            }
            Came::Deadline => Err(self.too_late()),
        }
    }

    fn too_late(&self) -> Leave {
        let sentence = self.limits.reached(
            0,
            crate::Usage::default(),
            0.0,
            self.limits.max_time.unwrap_or_default(),
        );
        Leave::because(Ending::StoppedByLimit, sentence.unwrap_or_default())
    }

    /// Makes all calls of one answer: those that only read at the same time, the others one by one, in
    /// the order of the answer.
    fn call_all(
        &self,
        calls: &[Call],
        tools: &[ToolDefinition],
        approved: &mut BTreeSet<String>,
        deadline: Option<Instant>,
        conversation: &mut Conversation,
        observe: &mut dyn Observe,
    ) -> Result<(Vec<CallResult>, bool), Leave> {
        let reads = |call: &Call| {
            tools
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
            } else {
                self.refusal(first, approved)
            };
            for call in group {
                observe.observe(&Event::CallStarted {
                    id: call.id.clone(),
                    tool: call.name.clone(),
                    arguments: call.arguments.clone(),
                })?;
            }
            let done = match refused {
                Some(fault) => vec![(Err(fault), Duration::ZERO)],
                None => self.call_group(group, deadline),
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
                return Err(Leave(Verdict {
                    ending: Ending::Lost,
                    message: format!("the sandbox is gone: {}", fault.message),
                    fault: Some(fault),
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
    fn refusal(&self, call: &Call, approved: &mut BTreeSet<String>) -> Option<Fault> {
        let tool = call.name.to_ascii_lowercase();
        if approved.contains(&tool) || !call.arguments.is_object() {
            return None;
        }
        match self.approve.approve(call) {
            Approval::Once => None,
            Approval::Always => {
                approved.insert(tool);
                None
            }
            Approval::Deny(reason) => Some(Fault::refused(
                Code::PermissionDenied,
                if reason.is_empty() {
                    "the user refused this call".to_owned()
                } else {
                    format!("the user refused this call: {reason}")
                },
            )),
        }
    }

    /// Makes these calls at the same time, each on a thread of its own, and waits for all of them. When
    /// time is up or the user stops, they are asked to end and still waited for.
    fn call_group(
        &self,
        group: &[Call],
        deadline: Option<Instant>,
    ) -> Vec<(Result<ToolOutput, Fault>, Duration)> {
        let (tools, cancel) = (self.tools, self.stop.flag());
        let one = |call: &Call| {
            let began = Instant::now();
            (call_one(tools, call, cancel), began.elapsed())
        };
        let (send, receive) = channel();
        let mut done: Vec<Option<(Result<ToolOutput, Fault>, Duration)>> =
            group.iter().map(|_| None).collect();
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
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        if deadline.is_some_and(|at| Instant::now() >= at) {
            // Time was up, which is not the user's wish to stop; what follows tells it apart.
            self.stop.clear();
        }
        done.into_iter()
            .map(|outcome| {
                outcome.unwrap_or_else(|| {
                    let fault = Fault::failed(Code::Internal, "the tool ended without an outcome");
                    (Err(fault), Duration::ZERO)
                })
            })
            .collect()
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
                    text.push_str(remedy);
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

    fn clean(&self, answer: &mut Answer) {
        for part in &mut answer.parts {
            match part {
                Part::Text { text } => *text = self.secrets.clean(std::mem::take(text)),
                Part::Call(call) => self.secrets.clean_json(&mut call.arguments),
                // Changed thoughts would no longer fit their signatures.
                Part::Reasoning { .. } | Part::Signature { .. } | Part::Opaque { .. } => {}
            }
        }
    }
}

fn call_one(tools: &dyn Tools, call: &Call, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
    match &call.arguments {
        Value::Object(_) | Value::Null => tools.call(&call.name, call.arguments.clone(), cancel),
        _ => Err(Fault::failed(
            Code::InvalidArgument,
            format!("the arguments of {} are not a JSON object", call.name),
        )
        .remedy("make the call again, with all of its arguments as one JSON object")),
    }
}

/// Something we say in the user's place.
fn say(
    conversation: &mut Conversation,
    observe: &mut dyn Observe,
    words: &str,
) -> Result<(), Leave> {
    let text = words.to_owned();
    observe.observe(&Event::Said { text: text.clone() })?;
    conversation.messages.push(Message::User { text });
    Ok(())
}

/// An answer without calls: done, unless the provider cut it.
fn finished(said: &str, stop: &StopReason) -> Result<Verdict, Leave> {
    match stop {
        StopReason::Length => Err(Leave::because(
            Ending::StoppedByLimit,
            "the model's answers were cut for their length, again and again",
        )),
        StopReason::Filtered => Err(Leave::because(
            Ending::Failed,
            "the provider did not let the model answer (its filter refused)",
        )),
        StopReason::Done | StopReason::Other(_) if said.trim().is_empty() => Err(Leave::because(
            Ending::Failed,
            "the model said nothing and called nothing",
        )),
        StopReason::Done | StopReason::Other(_) => Ok(Verdict {
            ending: Ending::Completed,
            message: said.to_owned(),
            fault: None,
        }),
    }
}

/// Some servers number calls anew in every answer, or not at all; results would go astray.
fn make_ids_unique(answer: &mut Answer, conversation: &Conversation, turn: u32) {
    let mut known: BTreeSet<String> = conversation
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::Assistant { parts } => Some(parts),
            _ => None,
        })
        .flat_map(|parts| crate::conversation::calls(parts))
        .map(|call| call.id.clone())
        .collect();
    for (index, part) in answer.parts.iter_mut().enumerate() {
        if let Part::Call(call) = part
            && (call.id.is_empty() || !known.insert(call.id.clone()))
        {
            call.id = format!("call_{turn}_{index}");
            known.insert(call.id.clone());
        }
    }
}

fn delta_event(delta: Delta) -> Event {
    match delta {
        Delta::Text(text) => Event::Text { text },
        Delta::Reasoning(text) => Event::Reasoning { text },
        Delta::Call { name, bytes } => Event::CallWritten { tool: name, bytes },
        Delta::Retry {
            attempt,
            wait,
            reason,
        } => Event::Retrying {
            attempt,
            wait_ms: wait.as_millis() as u64,
            reason,
        },
    }
}
