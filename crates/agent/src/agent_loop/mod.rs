//! The agent loop: ask the model, run the calls in its answer, send the results, until it is done.
//!
//! In: a [`Conversation`], a model, tools, limits. Out: a [`RunOutcome`]. Only an answer without
//! calls ends a run as completed, and a call that is written as text counts as a call. A limit, a
//! refusal of the provider and the loss of the sandbox each have an ending of their own. Whenever
//! the loop ends, every call has a result, so that the conversation can be continued.

mod calls;
mod compaction;
mod outcome;

pub use calls::{Approval, Approve, NoApproval};
pub use outcome::RunOutcome;

use crate::Ending;
use crate::context::{ContextBudget, PromptSize};
use crate::conversation::text;
use crate::event::Conversation;
use crate::model::ModelError;
use crate::repetition::{LoopDetection, Repetition};
use crate::written_call;
use crate::{
    Delta, Event, Message, MessagePart, Model, ModelAnswer, Prompt, RunLimits, Secrets, Spending,
    StopReason, StopSignal, Tariff, ToolCall, ToolDefinition, Tools, Usage,
};
use calls::AnsweredCalls;
use glovebox_proto::{Code, Fault};
use outcome::{EarlyEnd, finished};
use std::collections::BTreeSet;
use std::time::Instant;

/// Consecutive answers cut at the output limit before the run ends.
const MAX_CUT_ANSWERS: u32 = 3;

/// Consecutive answers that contain a call as text and are corrected, before the run ends.
const MAX_WRITTEN_CALLS: u32 = 2;

/// Message to the model after an empty answer.
const EMPTY_ANSWER: &str =
    "[Your answer was empty. Go on: call a tool, or say in words what you have done.]";

/// Receiver of the events of a run.
pub trait Observe {
    /// Receives each event, in order, before the loop acts on it.
    ///
    /// # Errors
    /// If the event cannot be stored; the run then ends.
    fn observe(&mut self, event: &Event) -> Result<(), Fault>;
}

/// Model, tools, limits and everything else that one run needs besides its conversation.
#[expect(missing_debug_implementations, reason = "holds what others implement")]
pub struct AgentLoop<'a> {
    /// Model that answers.
    pub model: &'a dyn Model,
    /// Tools that the model can call.
    pub tools: &'a dyn Tools,
    /// Approval of calls that change something.
    pub approve: &'a dyn Approve,
    /// System prompt.
    pub system: &'a str,
    /// Limits of the run.
    pub limits: RunLimits,
    /// Price of tokens; `None` if it is unknown.
    pub price: Option<Tariff>,
    /// Context window of the model, and the part of it that is protected from compaction.
    pub budget: ContextBudget,
    /// Secrets that are removed from every text.
    pub secrets: &'a Secrets,
    /// Stop request of the user or of a limit.
    pub stop: StopSignal,
}

/// State of one run besides its conversation.
struct Run<'a> {
    began: Instant,
    deadline: Option<Instant>,
    runtime: &'a tokio::runtime::Runtime,
    tools: Vec<ToolDefinition>,
    gauge: PromptSize,
    /// Context budget: as configured, or smaller once a server has refused a prompt that fits.
    budget: ContextBudget,
    failed_summaries: u32,
}

impl AgentLoop<'_> {
    /// Continues `conversation` until the run ends, and blocks meanwhile. `observe` receives the
    /// ending as its last event.
    pub fn run(&self, conversation: &mut Conversation, observe: &mut dyn Observe) -> RunOutcome {
        let verdict = match tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => match self.go(conversation, observe, &runtime) {
                Ok(verdict) | Err(EarlyEnd(verdict)) => verdict,
            },
            Err(error) => {
                let fault = Fault::failed(
                    Code::Io,
                    format!("model servers cannot be waited for: {error}"),
                );
                EarlyEnd::from(fault).0
            }
        };
        // Before the ending is reported: a call without a result would make a resumed run fail.
        conversation.close();
        let ended = Event::Ended {
            ending: verdict.ending,
            message: verdict.message.clone(),
            turns: conversation.turns,
            usage: conversation.spent.usage(),
            uncounted_answers: conversation.spent.uncounted_answers(),
            cost_usd: conversation.spent.cost_usd(),
        };
        match observe.observe(&ended) {
            Ok(()) => verdict,
            Err(fault) => EarlyEnd::from(fault).0,
        }
    }

    fn go(
        &self,
        conversation: &mut Conversation,
        observe: &mut dyn Observe,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<RunOutcome, EarlyEnd> {
        let tools = self.tools.definitions();
        let mut run = Run {
            began: Instant::now(),
            deadline: self.limits.max_time.map(|time| Instant::now() + time),
            runtime,
            gauge: PromptSize::new(self.system, &tools),
            budget: self.budget,
            failed_summaries: 0,
            tools,
        };
        let mut repetition = Repetition::default();
        let mut cut_answers = 0;
        let mut written_calls = 0;
        let mut is_after_empty = false;
        loop {
            self.check_limits(&run, conversation)?;
            if self.compact_context(&mut run, conversation, observe)? {
                self.check_limits(&run, conversation)?;
            }
            conversation.turns += 1;
            let turn = conversation.turns;
            observe.observe(&Event::TurnStarted { turn })?;
            let mut answer = self.ask_within_window(&mut run, conversation, observe)?;
            // Ids and secrets are replaced before the answer is stored: results refer to its ids,
            // and the log must not hold a secret.
            make_ids_unique(&mut answer, conversation, turn);
            self.clean(&mut answer);
            let cost_usd = self.cost(answer.usage);
            conversation.spent.add(answer.usage, cost_usd);
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
            let calls: Vec<ToolCall> = crate::conversation::calls(assistant_parts(&assistant))
                .into_iter()
                .cloned()
                .collect();
            if calls.is_empty() {
                if let Some(written) = written_call::find(&said, &run.tools) {
                    if written_calls == MAX_WRITTEN_CALLS {
                        return Err(written_call::ending(&written).into());
                    }
                    written_calls += 1;
                    say(conversation, observe, &written_call::correction(&written))?;
                    continue;
                }
                if answer.stop == StopReason::Length && cut_answers < MAX_CUT_ANSWERS {
                    cut_answers += 1;
                    say(
                        conversation,
                        observe,
                        "Your answer was cut off because it was too long. Go on where it ended.",
                    )?;
                    continue;
                }
                // Some models send an empty answer now and then, and continue when they are asked
                // again.
                let is_empty = said.trim().is_empty()
                    && matches!(answer.stop, StopReason::Done | StopReason::Other(_));
                if is_empty && !is_after_empty {
                    is_after_empty = true;
                    say(conversation, observe, EMPTY_ANSWER)?;
                    continue;
                }
                return finished(&said, &answer.stop);
            }
            is_after_empty = false;
            written_calls = 0;
            // An answer cut at the output limit is incomplete in its last part only. A call that
            // other parts follow is complete.
            let cut_call = match assistant_parts(&assistant).last() {
                Some(MessagePart::Call(call)) if answer.stop == StopReason::Length => {
                    Some(&call.id)
                }
                _ => None,
            };
            if cut_call.is_none() {
                cut_answers = 0;
            } else if cut_answers == MAX_CUT_ANSWERS {
                return finished("", &answer.stop);
            } else {
                cut_answers += 1;
            }
            let answered = AnsweredCalls {
                calls: &calls,
                cut_call: cut_call.map(String::as_str),
            };
            let (results, is_waiting) =
                self.call_all(answered, &run.tools, run.deadline, conversation, observe)?;
            match repetition.note(&assistant, &results, is_waiting) {
                LoopDetection::No => {}
                LoopDetection::Tell => say(
                    conversation,
                    observe,
                    "You have made the same call with the same outcome several times. It will not come to \
                     anything else: try another way, or say what keeps you from going on.",
                )?,
                LoopDetection::End => {
                    return Err(EarlyEnd::because(
                        Ending::Failed,
                        "the model goes in circles: the same calls with the same outcome, again and again",
                    ));
                }
            }
        }
    }

    fn check_limits(&self, run: &Run<'_>, conversation: &Conversation) -> Result<(), EarlyEnd> {
        self.check_stop()?;
        let reached =
            self.limits
                .reached(conversation.turns, conversation.spent, run.began.elapsed());
        if let Some((setting, remedy)) = self.limits.unheld(conversation.spent) {
            let message = format!(
                "what was spent so far is not known, so that `{}` cannot limit it",
                setting.name()
            );
            return Err(Fault::failed(Code::Unsupported, message)
                .remedy(remedy)
                .into());
        }
        match reached {
            Some((sentence, remedy)) => Err(EarlyEnd::at_limit(sentence, remedy)),
            None => Ok(()),
        }
    }

    fn check_stop(&self) -> Result<(), EarlyEnd> {
        if self.stop.is_asked() {
            return Err(match self.stop.limit() {
                Some(why) => EarlyEnd::because(Ending::StoppedByLimit, why),
                None => EarlyEnd::because(Ending::Aborted, "stopped by the user"),
            });
        }
        Ok(())
    }

    /// Asks the model once. Returns its answer or its error. Deltas of the answer go to `on_piece`.
    ///
    /// # Errors
    /// If the run has to end: the user stopped it, its time is over, or `on_piece` failed.
    fn ask(
        &self,
        run: &Run<'_>,
        prompt: Prompt<'_>,
        on_piece: &mut dyn FnMut(Delta) -> Result<(), Fault>,
    ) -> Result<Result<ModelAnswer, ModelError>, EarlyEnd> {
        enum AnswerEvent {
            Answer(Result<ModelAnswer, ModelError>),
            Stop,
            Deadline,
        }
        // A queue separates the connection from `on_piece`, which may be slow or fail: the
        // connection is read on meanwhile, and does not time out.
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let mut on_delta = move |delta| {
            let _ = send.send(delta);
        };
        let mut kept = Ok(());
        let came = run.runtime.block_on(async {
            let answering = self.model.answer(prompt, &mut on_delta);
            tokio::pin!(answering);
            let late = async {
                match run.deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(late);
            loop {
                tokio::select! {
                    // The order of polling: a fast stream must not delay a stop or the deadline.
                    biased;
                    () = self.stop.asked() => break AnswerEvent::Stop,
                    () = &mut late => break AnswerEvent::Deadline,
                    Some(delta) = receive.recv() => {
                        kept = on_piece(delta);
                        if kept.is_err() {
                            break AnswerEvent::Stop;
                        }
                    }
                    answer = &mut answering => break AnswerEvent::Answer(answer),
                }
            }
        });
        // Deltas still in the queue belong before the event of the answer.
        while let Ok(delta) = receive.try_recv() {
            kept = kept.and(on_piece(delta));
        }
        kept?;
        match came {
            AnswerEvent::Answer(answer) => Ok(answer),
            AnswerEvent::Stop => {
                self.check_stop()?;
                Err(EarlyEnd::because(Ending::Aborted, "stopped"))
            }
            AnswerEvent::Deadline => Err(self.too_late()),
        }
    }

    fn too_late(&self) -> EarlyEnd {
        let reached = self.limits.reached(
            0,
            Spending::default(),
            self.limits.max_time.unwrap_or_default(),
        );
        match reached {
            Some((sentence, remedy)) => EarlyEnd::at_limit(sentence, remedy),
            None => EarlyEnd::because(Ending::StoppedByLimit, "its time is over"),
        }
    }

    /// Returns the cost of an answer in US dollars; `None` without a price or without token counts.
    fn cost(&self, usage: Option<Usage>) -> Option<f64> {
        Some(self.price?.of(usage?))
    }

    fn clean(&self, answer: &mut ModelAnswer) {
        for part in &mut answer.parts {
            match part {
                MessagePart::Text { text } => *text = self.secrets.clean(std::mem::take(text)),
                MessagePart::Call(call) => self.secrets.clean_json(&mut call.arguments),
                // Reasoning stays unchanged: its signature would no longer match.
                MessagePart::Reasoning { .. }
                | MessagePart::Signature { .. }
                | MessagePart::Opaque { .. } => {}
            }
        }
    }
}

const fn assistant_parts(message: &Message) -> &[MessagePart] {
    match message {
        Message::Assistant { parts } => parts.as_slice(),
        Message::User { .. } | Message::Results { .. } => &[],
    }
}

/// Adds a message to the conversation as if the user had written it.
fn say(
    conversation: &mut Conversation,
    observe: &mut dyn Observe,
    words: &str,
) -> Result<(), EarlyEnd> {
    let text = words.to_owned();
    observe.observe(&Event::Said { text: text.clone() })?;
    conversation.messages.push(Message::User { text });
    Ok(())
}

/// Replaces ids of calls that are empty or were used before. Some servers number calls from the
/// start in every answer, or not at all; results would then be attached to the wrong call.
fn make_ids_unique(answer: &mut ModelAnswer, conversation: &Conversation, turn: u32) {
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
        if let MessagePart::Call(call) = part
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
