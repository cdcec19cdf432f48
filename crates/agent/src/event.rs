//! Everything that happens in a session, as it is shown, kept, exported and read again.
//!
//! Kept events are the truth about a session: [`Conversation`] is made from them and from nothing
//! else. Kinds and fields are only ever added; anything else changes [`EVENT_VERSION`].

use crate::conversation::calls;
use crate::{
    CallResult, Ending, Image, Message, MessagePart, Spending, StopReason, ToolServer, Usage,
};
use glovebox_tools::ContextData;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Version of the shape of events.
pub const EVENT_VERSION: u32 = 1;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// It began.
    Started {
        /// What is to be done.
        task: String,
        /// `PROVIDER/NAME`.
        model: String,
        /// `local`, `sandbox` or `bundle`.
        placement: String,
        /// Name of the sandbox, where it has one that outlives us.
        #[serde(default)]
        sandbox: Option<String>,
        /// The same, where it was made for this session and nobody else named it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own_sandbox: Option<String>,
        /// What the model was told about its surroundings.
        system: String,
        /// Names of the tools it was given.
        tools: Vec<String>,
        /// What kind of work it is.
        #[serde(default)]
        phase: Option<String>,
        /// What the model was told in addition, where a workflow says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addition: Option<String>,
        /// The file that came along with the task, as the tools see it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<ContextData>,
        /// The agent of a bundle that it is, where it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        declared: Option<DeclaredAgent>,
    },
    /// It goes on in another process.
    Resumed {
        /// `PROVIDER/NAME`.
        model: String,
        /// What the model is told about its surroundings now.
        system: String,
        /// Name of the sandbox that was made anew for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own_sandbox: Option<String>,
    },
    /// The user, or we in the user's place, said something.
    Said {
        /// The words.
        text: String,
    },
    /// The model is asked.
    TurnStarted {
        /// From 1.
        turn: u32,
    },
    /// Words on their way. Not kept.
    Text {
        /// A piece.
        text: String,
    },
    /// Thoughts on their way. Not kept.
    Reasoning {
        /// A piece.
        text: String,
    },
    /// A call on its way. Not kept.
    CallWritten {
        /// The tool.
        tool: String,
        /// Bytes of arguments so far.
        bytes: usize,
    },
    /// The answer broke off and is asked for again; what came of it is void.
    Retrying {
        /// From 2.
        attempt: u32,
        /// Pause before.
        wait_ms: u64,
        /// Why.
        reason: String,
    },
    /// The model has answered.
    Answered {
        /// From 1.
        turn: u32,
        /// All of it.
        parts: Vec<MessagePart>,
        /// Why it stopped.
        #[serde(default)]
        stop: StopReason,
        /// What it cost; `None` when the server does not say.
        #[serde(default)]
        usage: Option<Usage>,
        /// The same in US dollars, if the price is known.
        #[serde(default)]
        cost_usd: Option<f64>,
    },
    /// A tool is called.
    CallStarted {
        /// Of the call.
        id: String,
        /// The tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
        /// Whose it is, if it is a server's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<ToolServer>,
    },
    /// Lines that a running command has written. Not kept: the end of the call tells what it came to.
    ToolOutput {
        /// Of the call.
        id: String,
        /// Whole lines; control characters are shown and not sent.
        text: String,
    },
    /// A tool has been called, or the call was refused.
    CallFinished {
        /// Of the call.
        id: String,
        /// The tool.
        tool: String,
        /// What the model is told.
        text: String,
        /// Whether what was asked for did not succeed.
        is_error: bool,
        /// For programs.
        #[serde(default)]
        facts: Map<String, Value>,
        /// Pictures.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
        /// For people: what changed, as a unified diff.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
        /// How long it took.
        #[serde(default)]
        wall_ms: u64,
    },
    /// Old outputs were taken out of what the model is told.
    Pruned {
        /// How many.
        results: usize,
        /// About how many tokens that saves.
        tokens: u64,
        /// The calls whose outputs they were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<String>,
    },
    /// All that is old is told as a summary from here on.
    Compacted {
        /// The model's own words for it.
        summary: String,
        /// The call with which the part begins that is told as it was; without one, nothing is.
        #[serde(default)]
        first_kept: Option<String>,
        /// How many messages the summary stands for.
        messages: usize,
        /// About how many tokens that saves.
        tokens: u64,
        /// What the summary cost; `None` when the server does not say.
        #[serde(default)]
        usage: Option<Usage>,
        /// The same in US dollars, if the price is known.
        #[serde(default)]
        cost_usd: Option<f64>,
    },
    /// There was to be a summary, and there is none.
    NotCompacted {
        /// Why.
        reason: String,
        /// What the attempt cost; `None` when the server does not say.
        #[serde(default)]
        usage: Option<Usage>,
        /// The same in US dollars, if the price is known.
        #[serde(default)]
        cost_usd: Option<f64>,
    },
    /// Its sandbox was stopped, with its files kept. Whatever ran in it has ended.
    SandboxStopped {
        /// Its name.
        sandbox: String,
        /// Why.
        reason: String,
    },
    /// It ended, for now.
    Ended {
        /// How.
        ending: Ending,
        /// In words.
        message: String,
        /// Turns so far.
        turns: u32,
        /// All tokens so far that a server has counted; `None` when none has.
        usage: Option<Usage>,
        /// Answers so far whose tokens nobody counted.
        #[serde(default)]
        uncounted_answers: u32,
        /// What they cost, if that is known of all of them.
        cost_usd: Option<f64>,
    },
}

/// An agent that a bundle declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredAgent {
    /// SHA-256 of the bundle's text, in hexadecimal digits.
    pub bundle: String,
    /// The agent's key in it.
    pub agent: String,
    /// What runs the code of its tools, where that is not the usual engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

impl Event {
    /// Whether it belongs in the log; pieces of what comes whole later do not.
    pub const fn is_kept(&self) -> bool {
        !matches!(
            self,
            Self::Text { .. }
                | Self::Reasoning { .. }
                | Self::CallWritten { .. }
                | Self::ToolOutput { .. }
        )
    }

    /// The sandbox that was made for the session here, under a name that nobody chose.
    pub fn own_sandbox(&self) -> Option<&str> {
        match self {
            Self::Started { own_sandbox, .. } | Self::Resumed { own_sandbox, .. } => {
                own_sandbox.as_deref()
            }
            _ => None,
        }
    }

    /// The word under `type`.
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

/// An event with its place in the log: one line of an export.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// [`EVENT_VERSION`] of whoever wrote it.
    #[serde(default = "version")]
    pub version: u32,
    /// From 1, without gaps.
    #[serde(default)]
    pub seq: u64,
    /// When, in milliseconds since 1970.
    #[serde(default)]
    pub at_unix_ms: u64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

const fn version() -> u32 {
    EVENT_VERSION
}

/// What was said and done so far, as the model is told it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// In order.
    pub messages: Vec<Message>,
    /// Times the model was asked.
    pub turns: u32,
    /// What all answers came to, summaries included.
    pub spent: Spending,
    /// Calls whose outputs are told no more.
    cut: BTreeSet<String>,
    /// What stands for all that was said between the task and the second message.
    pub(crate) summary: Option<String>,
}

/// What the model is told about a call that was not made any more.
const NOT_DONE: &str = "[not done: the run ended before this call]";
/// What the model is told about a call whose end nobody saw.
const UNKNOWN_END: &str = "[interrupted: the agent stopped while this call ran. It may have had its \
    effect, in part or in full; look before you repeat it]";

impl Conversation {
    /// Begins with a task.
    pub fn new(task: impl Into<String>) -> Self {
        Self {
            messages: vec![Message::User { text: task.into() }],
            ..Self::default()
        }
    }

    /// Takes up what a log tells. Calls without an end get one that says so.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut conversation = Self::default();
        for event in events {
            conversation.take(event);
        }
        conversation.close_open_calls(UNKNOWN_END);
        conversation
    }

    /// What `event` changes in what the model is told.
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

    /// Counts what `earlier` used, as if it were a part of this one.
    pub fn count(&mut self, earlier: &Self) {
        self.turns += earlier.turns;
        self.spent += earlier.spent;
    }

    /// Lets `summary` stand for everything between the task and the call `first_kept`. In a conversation
    /// without that call nothing changes.
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

    /// Whether the output of this call is told no more.
    pub(crate) fn is_cut(&self, call: &str) -> bool {
        self.cut.contains(call)
    }

    /// The messages as the model is told them.
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
            // In the same message: not every provider takes two of the user's in a row.
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

    /// The run is over: calls that were not made any more have a result that says so.
    pub(crate) fn close(&mut self) {
        self.close_open_calls(NOT_DONE);
    }

    /// Every call needs a result before the model can be asked again: those without get `text`.
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

/// An answer has tokens: earlier versions wrote zeros where nothing was counted.
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
