//! What is said between the head and a model: messages, calls, results, and what it cost.
//!
//! These types are written to the session log, so fields are only ever added. Reasoning and its
//! signatures are kept as they came: providers want them back, unchanged, with the next turn.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the user: the task, or what follows it.
    User {
        /// The words.
        text: String,
    },
    /// From the model.
    Assistant {
        /// In the order they came.
        parts: Vec<MessagePart>,
    },
    /// From the tools, for all calls of the answer before.
    Results {
        /// In the order of the calls.
        results: Vec<CallResult>,
    },
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MessagePart {
    /// For the user.
    Text {
        /// The words.
        text: String,
    },
    /// The model's thoughts, where the provider shows them.
    Reasoning {
        /// The words.
        text: String,
    },
    /// What proves to the provider that the thoughts are its own.
    Signature {
        /// Opaque.
        value: String,
    },
    /// Something only the provider understands, such as encrypted thoughts.
    Opaque {
        /// As it came.
        data: Value,
        /// The wire format that understands it; `None` in logs of before it was kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<WireFormat>,
    },
    /// The wish to use a tool.
    Call(ToolCall),
}

/// A wire format. Stands in the log with what only that format understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFormat {
    /// Messages of Anthropic.
    Anthropic,
    /// Chat completions of OpenAI and compatible servers.
    Chat,
    /// Responses of OpenAI.
    Responses,
    /// Gemini of Google.
    Gemini,
}

/// The wish to use a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Ours to pass back; unique within one answer at least.
    pub id: String,
    /// Name as the model wrote it.
    pub name: String,
    /// Arguments; a string when what came is no JSON.
    pub arguments: Value,
    /// Proofs that belong to this very call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<String>,
    /// Fields of chat completions that only the server understands; they go back with the call.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Of the call.
    pub id: String,
    /// Of the tool.
    pub name: String,
    /// For the model.
    pub text: String,
    /// Whether what was asked for did not succeed.
    pub is_error: bool,
    /// Pictures the tool found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// A picture for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Such as `image/png`.
    pub mime: String,
    /// The file, in base64.
    pub base64: String,
}

/// One whole answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelAnswer {
    /// In the order they came.
    pub parts: Vec<MessagePart>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What it cost; `None` when the server does not say.
    pub usage: Option<Usage>,
}

impl ModelAnswer {
    /// The calls, in order.
    pub fn calls(&self) -> Vec<&ToolCall> {
        calls(&self.parts)
    }

    /// All text for the user.
    pub fn text(&self) -> String {
        text(&self.parts)
    }
}

pub(crate) fn calls(parts: &[MessagePart]) -> Vec<&ToolCall> {
    parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Call(call) => Some(call),
            _ => None,
        })
        .collect()
}

pub(crate) fn text(parts: &[MessagePart]) -> String {
    parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// Why a model stopped. Whether there are calls decides what happens next, not this word: providers
/// say `completed` with calls pending.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It said all it wanted to.
    #[default]
    Done,
    /// It reached the most it may say at once.
    Length,
    /// The provider did not let it go on.
    Filtered,
    /// Something else, in the provider's word.
    Other(String),
}

/// Tokens of one answer or of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// All that was sent, cached or not.
    pub input: u64,
    /// All that came back, thoughts included.
    pub output: u64,
    /// Of `input`: read from the provider's cache.
    #[serde(default)]
    pub cached: u64,
    /// Of `input`: written to the provider's cache.
    #[serde(default)]
    pub cache_written: u64,
    /// Of `output`: thoughts.
    #[serde(default)]
    pub reasoning: u64,
}

impl Usage {
    /// Everything together.
    pub const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_written = self.cache_written.saturating_add(other.cache_written);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }
}

/// What many answers came to, as far as that is known. What a server did not count is never zero.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spending {
    tokens: Usage,
    counted: u32,
    uncounted: u32,
    cost_usd: f64,
    unpriced: u32,
}

impl Spending {
    /// Adds one answer.
    pub fn add(&mut self, usage: Option<Usage>, cost_usd: Option<f64>) {
        match usage {
            Some(usage) => {
                self.tokens += usage;
                self.counted = self.counted.saturating_add(1);
            }
            None => self.uncounted = self.uncounted.saturating_add(1),
        }
        match cost_usd {
            Some(cost) => self.cost_usd += cost,
            None => self.unpriced = self.unpriced.saturating_add(1),
        }
    }

    /// Tokens, at least; `None` when there were answers and none of them was counted.
    pub const fn usage(&self) -> Option<Usage> {
        if self.counted == 0 && self.uncounted > 0 {
            return None;
        }
        Some(self.tokens)
    }

    /// Tokens of the answers that were counted.
    pub const fn counted_tokens(&self) -> Usage {
        self.tokens
    }

    /// Answers whose tokens nobody counted.
    pub const fn uncounted_answers(&self) -> u32 {
        self.uncounted
    }

    /// Dollars; `None` when the cost of some answer is not known.
    pub const fn cost_usd(&self) -> Option<f64> {
        if self.unpriced > 0 {
            return None;
        }
        Some(self.cost_usd)
    }

    /// Dollars, as far as they are known.
    pub const fn known_cost_usd(&self) -> f64 {
        self.cost_usd
    }
}

impl std::ops::AddAssign for Spending {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.counted = self.counted.saturating_add(other.counted);
        self.uncounted = self.uncounted.saturating_add(other.uncounted);
        self.cost_usd += other.cost_usd;
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }
}

impl std::fmt::Display for Spending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.usage(), self.uncounted) {
            (None, _) => f.write_str("tokens unknown")?,
            (Some(usage), 0) => write!(f, "{} tokens", usage.total())?,
            (Some(usage), _) => write!(f, "at least {} tokens", usage.total())?,
        }
        match self.cost_usd() {
            Some(cost) => write!(f, ", ${cost:.4}"),
            None => f.write_str(", cost unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_never_zero() {
        let usage = Usage {
            input: 100,
            output: 10,
            ..Usage::default()
        };
        let mut spent = Spending::default();
        assert_eq!(spent.to_string(), "0 tokens, $0.0000");
        spent.add(Some(usage), Some(0.5));
        assert_eq!(spent.to_string(), "110 tokens, $0.5000");
        spent.add(None, None);
        assert_eq!(spent.to_string(), "at least 110 tokens, cost unknown");
        assert_eq!((spent.usage(), spent.cost_usd()), (Some(usage), None));
        let mut unknown = Spending::default();
        unknown.add(None, None);
        assert_eq!(unknown.to_string(), "tokens unknown, cost unknown");
        assert_eq!((unknown.usage(), unknown.uncounted_answers()), (None, 1));
    }
}
