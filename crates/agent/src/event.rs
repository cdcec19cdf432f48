//! Events of a session: displayed, stored in the log, exported, and read again.
//!
//! The stored events are the only source of a [`Conversation`]. Kinds and fields are only ever
//! added; any other change increments [`EVENT_VERSION`].

use crate::conversation::calls;
use crate::{
    CallResult, Ending, Image, Message, MessagePart, Spending, StopReason, ToolServer, Usage,
};
use glovebox_tools::ContextData;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Version of the event format.
pub const EVENT_VERSION: u32 = 1;

/// Event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The session began.
    Started {
        /// Task of the user.
        task: String,
        /// Model, as `PROVIDER/NAME`.
        model: String,
        /// Placement of the tools: `local`, `sandbox` or `bundle`.
        placement: String,
        /// Name of the sandbox, if it outlives the process.
        #[serde(default)]
        sandbox: Option<String>,
        /// The same name, if Glovebox created the sandbox for this session and chose the name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own_sandbox: Option<String>,
        /// System prompt.
        system: String,
        /// Names of the tools of the model.
        tools: Vec<String>,
        /// Phase of the work, such as `plan`; `None` for a plain session.
        #[serde(default)]
        phase: Option<String>,
        /// Text that a workflow added to the system prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addition: Option<String>,
        /// File that belongs to the task, as the tools see it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<ContextData>,
        /// Agent of a bundle that does the work; `None` without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        declared: Option<DeclaredAgent>,
    },
    /// The session continues in another process.
    Resumed {
        /// Model, as `PROVIDER/NAME`.
        model: String,
        /// System prompt from now on.
        system: String,
        /// Name of the sandbox that was created anew for the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own_sandbox: Option<String>,
    },
    /// A message of the user, or one that the agent loop adds in the user's place.
    Said {
        /// Content.
        text: String,
    },
    /// The model is asked.
    TurnStarted {
        /// Number of the turn, from 1.
        turn: u32,
    },
    /// Text of an answer while it arrives. Not stored.
    Text {
        /// Next piece.
        text: String,
    },
    /// Reasoning while it arrives. Not stored.
    Reasoning {
        /// Next piece.
        text: String,
    },
    /// Progress of a call that the model writes. Not stored.
    CallWritten {
        /// Name of the tool.
        tool: String,
        /// Bytes of arguments so far.
        bytes: usize,
    },
    /// The answer broke off and is requested again. Its deltas so far are void.
    Retrying {
        /// Number of the next attempt, from 2.
        attempt: u32,
        /// Pause before the attempt, in milliseconds.
        wait_ms: u64,
        /// Reason.
        reason: String,
    },
    /// The model has answered.
    Answered {
        /// Number of the turn, from 1.
        turn: u32,
        /// All parts of the answer.
        parts: Vec<MessagePart>,
        /// Reason why the model stopped.
        #[serde(default)]
        stop: StopReason,
        /// Tokens of the answer; `None` if the server does not count them.
        #[serde(default)]
        usage: Option<Usage>,
        /// Cost of the answer in US dollars; `None` if it is unknown.
        #[serde(default)]
        cost_usd: Option<f64>,
    },
    /// A tool call begins.
    CallStarted {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        tool: String,
        /// Arguments of the call.
        arguments: Value,
        /// MCP server that provides the tool; `None` for Glovebox's own tools.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<ToolServer>,
    },
    /// Output of a running command. Not stored: [`Event::CallFinished`] holds the whole output.
    ToolOutput {
        /// Id of the call.
        id: String,
        /// Whole lines, with control characters escaped.
        text: String,
    },
    /// A tool call has ended, or was refused.
    CallFinished {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        tool: String,
        /// Text for the model.
        text: String,
        /// True if the call failed.
        is_error: bool,
        /// Data for programs.
        #[serde(default)]
        facts: Map<String, Value>,
        /// Pictures that the tool returned.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
        /// Change for display, as a unified diff.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
        /// Duration in milliseconds.
        #[serde(default)]
        wall_ms: u64,
    },
    /// Old tool outputs were dropped from the prompt.
    Pruned {
        /// Number of outputs.
        results: usize,
        /// Estimated number of tokens that this frees.
        tokens: u64,
        /// Ids of the calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<String>,
    },
    /// Old messages were replaced by a summary in the prompt.
    Compacted {
        /// Summary, written by the model.
        summary: String,
        /// Id of the first call that is kept unchanged; `None` if the summary replaces everything
        /// after the task.
        #[serde(default)]
        first_kept: Option<String>,
        /// Number of messages that the summary replaces.
        messages: usize,
        /// Estimated number of tokens that this frees.
        tokens: u64,
        /// Tokens of the summary; `None` if the server does not count them.
        #[serde(default)]
        usage: Option<Usage>,
        /// Cost of the summary in US dollars; `None` if it is unknown.
        #[serde(default)]
        cost_usd: Option<f64>,
    },
    /// A summary was attempted and failed.
    NotCompacted {
        /// Reason.
        reason: String,
        /// Tokens of the attempt; `None` if the server does not count them.
        #[serde(default)]
        usage: Option<Usage>,
        /// Cost of the attempt in US dollars; `None` if it is unknown.
        #[serde(default)]
        cost_usd: Option<f64>,
    },
    /// The session's sandbox was stopped. Its files are kept; its processes have ended.
    SandboxStopped {
        /// Name of the sandbox.
        sandbox: String,
        /// Reason.
        reason: String,
    },
    /// The run ended. The session may be resumed.
    Ended {
        /// Kind of ending.
        ending: Ending,
        /// Last text of the model, or the reason for the ending.
        message: String,
        /// Turns so far.
        turns: u32,
        /// Tokens so far, as far as servers counted them; `None` if none did.
        usage: Option<Usage>,
        /// Number of answers so far without token counts.
        #[serde(default)]
        uncounted_answers: u32,
        /// Cost so far in US dollars; `None` if the cost of any answer is unknown.
        cost_usd: Option<f64>,
    },
}

/// Agent that a bundle declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredAgent {
    /// SHA-256 of the bundle's text, in hexadecimal digits.
    pub bundle: String,
    /// Key of the agent in the bundle.
    pub agent: String,
    /// Engine that runs the code of its tools; `None` for the default engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

impl Event {
    /// True if the event is stored in the log. Deltas are not: a later event holds the whole.
    pub const fn is_kept(&self) -> bool {
        !matches!(
            self,
            Self::Text { .. }
                | Self::Reasoning { .. }
                | Self::CallWritten { .. }
                | Self::ToolOutput { .. }
        )
    }

    /// Returns the name of the sandbox that was created for the session under a generated name.
    pub fn own_sandbox(&self) -> Option<&str> {
        match self {
            Self::Started { own_sandbox, .. } | Self::Resumed { own_sandbox, .. } => {
                own_sandbox.as_deref()
            }
            _ => None,
        }
    }

    /// Returns the value of the field `type`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Resumed { .. } => "resumed",
            Self::Said { .. } => "said",
            Self::TurnStarted { .. } => "turn_started",
            Self::Text { .. } => "text",
            Self::Reasoning { .. } => "reasoning",
            Self::CallWritten { .. } => "call_written",
            Self::Retrying { .. } => "retrying",
            Self::Answered { .. } => "answered",
            Self::CallStarted { .. } => "call_started",
            Self::ToolOutput { .. } => "tool_output",
            Self::CallFinished { .. } => "call_finished",
            Self::Pruned { .. } => "pruned",
            Self::Compacted { .. } => "compacted",
            Self::NotCompacted { .. } => "not_compacted",
            Self::SandboxStopped { .. } => "sandbox_stopped",
            Self::Ended { .. } => "ended",
        }
    }
}

/// Event with its position in the log; one line of an export.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// [`EVENT_VERSION`] of the process that wrote the event.
    #[serde(default = "version")]
    pub version: u32,
    /// Position, from 1 without gaps.
    #[serde(default)]
    pub seq: u64,
    /// Time in milliseconds since 1970.
    #[serde(default)]
    pub at_unix_ms: u64,
    /// The event itself.
    #[serde(flatten)]
    pub event: Event,
}

const fn version() -> u32 {
    EVENT_VERSION
}

/// Conversation so far, from which prompts are made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Messages, in order.
    pub messages: Vec<Message>,
    /// Number of times the model was asked.
    pub turns: u32,
    /// Tokens and cost of all answers, summaries included.
    pub spent: Spending,
    /// Ids of the calls whose outputs are dropped from prompts.
    cut: BTreeSet<String>,
    /// Summary that replaces the messages between the task and the second message.
    pub(crate) summary: Option<String>,
}

/// Result of a call that the loop did not start before the run ended.
const NOT_DONE: &str = "[not done: the run ended before this call]";
/// Result of a call whose end was not recorded.
const UNKNOWN_END: &str = "[interrupted: the agent stopped while this call ran. It may have had its \
    effect, in part or in full; look before you repeat it]";

impl Conversation {
    /// Begins a conversation with a task.
    pub fn new(task: impl Into<String>) -> Self {
        Self {
            messages: vec![Message::User { text: task.into() }],
            ..Self::default()
        }
    }

    /// Rebuilds a conversation from the events of a log. A call without a result gets one that says
    /// so.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut conversation = Self::default();
        for event in events {
            conversation.take(event);
        }
        conversation.close_open_calls(UNKNOWN_END);
        conversation
    }

    /// Applies `event` to the conversation.
    pub(crate) fn take(&mut self, event: &Event) {
        match event {
            Event::Started { task: text, .. } | Event::Said { text } => {
                self.close_open_calls(UNKNOWN_END);
                self.messages.push(Message::User { text: text.clone() });
            }
            Event::Answered {
                parts,
                usage,
                cost_usd,
                turn,
                ..
            } => {
                self.close_open_calls(UNKNOWN_END);
                self.messages.push(Message::Assistant {
                    parts: parts.clone(),
                });
                self.turns = (*turn).max(self.turns);
                self.spent.add(counted(*usage), *cost_usd);
            }
            Event::CallFinished {
                id,
                tool,
                text,
                is_error,
                images,
                ..
            } => self.add_result(CallResult {
                id: id.clone(),
                name: tool.clone(),
                text: text.clone(),
                is_error: *is_error,
                images: images.clone(),
            }),
            Event::Pruned { calls, .. } => self.cut.extend(calls.iter().cloned()),
            Event::Compacted {
                summary,
                first_kept,
                usage,
                cost_usd,
                ..
            } => {
                self.spent.add(counted(*usage), *cost_usd);
                self.summarize(summary, first_kept.as_deref());
            }
            Event::NotCompacted {
                usage, cost_usd, ..
            } => self.spent.add(*usage, *cost_usd),
            Event::Ended { .. } => self.close_open_calls(NOT_DONE),
            _ => {}
        }
    }

    /// Adds the turns and spending of `earlier` to this conversation.
    pub fn count(&mut self, earlier: &Self) {
        self.turns += earlier.turns;
        self.spent += earlier.spent;
    }

    /// Replaces everything between the task and the call `first_kept` by `summary`. Changes nothing
    /// if the conversation has no such call.
    fn summarize(&mut self, summary: &str, first_kept: Option<&str>) {
        let begin = match first_kept {
            None => Some(self.messages.len()),
            Some(id) => self.messages.iter().position(|message| {
                matches!(message, Message::Assistant { parts }
                    if calls(parts).iter().any(|call| call.id == id))
            }),
        };
        let Some(begin) = begin.filter(|&begin| begin >= 1) else {
            return;
        };
        self.messages.drain(1..begin);
        self.summary = Some(summary.to_owned());
        let there: BTreeSet<&str> = self
            .messages
            .iter()
            .filter_map(|message| match message {
                Message::Results { results } => Some(results),
                _ => None,
            })
            .flatten()
            .map(|result| result.id.as_str())
            .collect();
        self.cut.retain(|id| there.contains(id.as_str()));
    }

    /// True if the output of this call is dropped from prompts.
    pub(crate) fn is_cut(&self, call: &str) -> bool {
        self.cut.contains(call)
    }

    /// Returns the messages for a prompt: dropped outputs become short notes, and the summary is
    /// appended to the task.
    pub fn told(&self) -> Vec<Message> {
        let mut told = self.messages.clone();
        for message in &mut told {
            let Message::Results { results } = message else {
                continue;
            };
            for result in results.iter_mut().filter(|result| self.is_cut(&result.id)) {
                result.text = format!(
                    "[{} bytes of output were taken out to make room; call the tool again if they matter]",
                    result.text.len()
                );
                result.images.clear();
            }
        }
        if let (Some(summary), Some(Message::User { text })) = (&self.summary, told.first_mut()) {
            // The summary is part of the first message: some providers refuse two consecutive user
            // messages.
            *text = format!(
                "{text}\n\n[What was said and done since then became too long to be told again. Your own \
                 summary of it follows, and after it whatever is newer.]\n\n{summary}"
            );
        }
        told
    }

    pub(crate) fn add_result(&mut self, result: CallResult) {
        match self.messages.last_mut() {
            Some(Message::Results { results }) => results.push(result),
            _ => self.messages.push(Message::Results {
                results: vec![result],
            }),
        }
    }

    /// Gives a result to every call that the loop did not start. Called when the run is over.
    pub(crate) fn close(&mut self) {
        self.close_open_calls(NOT_DONE);
    }

    /// Gives the result `text` to every call without one. Providers refuse a prompt in which a call
    /// has no result.
    fn close_open_calls(&mut self, text: &str) {
        let (asked, answered): (Vec<(String, String)>, Vec<String>) = match self.messages.as_slice()
        {
            [.., Message::Assistant { parts }] => (named(parts), Vec::new()),
            [
                ..,
                Message::Assistant { parts },
                Message::Results { results },
            ] => (
                named(parts),
                results.iter().map(|result| result.id.clone()).collect(),
            ),
            _ => return,
        };
        for (id, name) in asked {
            if !answered.contains(&id) {
                self.add_result(CallResult {
                    id,
                    name,
                    text: text.to_owned(),
                    is_error: true,
                    images: Vec::new(),
                });
            }
        }
    }
}

/// Returns `usage`; `None` if it is zero. Earlier versions stored zeros where nothing was counted.
pub(crate) fn counted(usage: Option<Usage>) -> Option<Usage> {
    usage.filter(|usage| usage.total() > 0)
}

fn named(parts: &[MessagePart]) -> Vec<(String, String)> {
    calls(parts)
        .into_iter()
        .map(|call| (call.id.clone(), call.name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;
    use serde_json::json;

    fn answered(turn: u32, ids: &[&str]) -> Event {
        Event::Answered {
            turn,
            parts: ids
                .iter()
                .map(|id| {
                    MessagePart::Call(ToolCall {
                        id: (*id).to_owned(),
                        name: "Bash".to_owned(),
                        arguments: json!({}),
                        signatures: Vec::new(),
                        extra: serde_json::Map::new(),
                    })
                })
                .collect(),
            stop: StopReason::Done,
            usage: Some(Usage {
                input: 10,
                output: 1,
                ..Usage::default()
            }),
            cost_usd: None,
        }
    }

    fn finished(id: &str) -> Event {
        Event::CallFinished {
            id: id.to_owned(),
            tool: "Bash".to_owned(),
            text: "ok".to_owned(),
            is_error: false,
            facts: Map::new(),
            images: Vec::new(),
            diff: None,
            wall_ms: 1,
        }
    }

    #[test]
    fn a_conversation_that_broke_off_can_go_on() {
        let started = Event::Started {
            task: "do".to_owned(),
            model: "m/n".to_owned(),
            placement: "sandbox".to_owned(),
            sandbox: None,
            own_sandbox: None,
            system: String::new(),
            tools: Vec::new(),
            phase: None,
            addition: None,
            context: None,
            declared: None,
        };
        let events = [started, answered(1, &["a", "b"]), finished("a")];
        let conversation = Conversation::from_events(&events);
        let tokens = conversation.spent.counted_tokens().total();
        assert_eq!((conversation.turns, tokens), (1, 11));
        let Some(Message::Results { results }) = conversation.messages.last() else {
            panic!("{conversation:?}");
        };
        assert_eq!(results.len(), 2);
        assert!(!results[0].is_error && results[1].is_error);
        assert!(results[1].text.contains("interrupted"));
    }

    #[test]
    fn zeros_of_an_earlier_version_are_unknown() {
        let line = r#"{"type":"answered","turn":1,"parts":[],"usage":{"input":0,"output":0}}"#;
        let logged: LoggedEvent = serde_json::from_str(line).unwrap();
        let conversation = Conversation::from_events([&logged.event]);
        assert_eq!(conversation.spent.usage(), None);
        assert_eq!(conversation.spent.uncounted_answers(), 1);
    }

    #[test]
    fn events_are_read_as_they_were_written() {
        let logged = LoggedEvent {
            version: EVENT_VERSION,
            seq: 3,
            at_unix_ms: 5,
            event: answered(2, &["x"]),
        };
        let line = serde_json::to_string(&logged).unwrap();
        assert!(line.contains("\"type\":\"answered\""), "{line}");
        assert_eq!(serde_json::from_str::<LoggedEvent>(&line).unwrap(), logged);
        let bare = r#"{"type":"said","text":"hi"}"#;
        assert_eq!(
            serde_json::from_str::<LoggedEvent>(bare).unwrap().event,
            Event::Said {
                text: "hi".to_owned()
            }
        );
    }
}
