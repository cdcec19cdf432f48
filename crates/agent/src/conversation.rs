//! Data model of a conversation: messages, calls, results, tokens and cost.
//!
//! These types are stored in the session log, so fields are only ever added. Reasoning and its
//! signatures are stored unchanged: providers require them back in the next turn exactly as they
//! sent them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the user: the task, or a later message.
    User {
        /// Content.
        text: String,
    },
    /// Answer of the model.
    Assistant {
        /// Parts, in the order in which they arrived.
        parts: Vec<MessagePart>,
    },
    /// Results of all calls of the preceding answer.
    Results {
        /// Results, in the order of the calls.
        results: Vec<CallResult>,
    },
}

/// Part of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MessagePart {
    /// Text for the user.
    Text {
        /// Content.
        text: String,
    },
    /// Reasoning of the model, if the provider shows it.
    Reasoning {
        /// Content.
        text: String,
    },
    /// Signature with which the provider recognizes its own reasoning.
    Signature {
        /// Opaque value.
        value: String,
    },
    /// Data that only the provider understands, such as encrypted reasoning.
    Opaque {
        /// Data as received.
        data: Value,
        /// Wire format that understands the data; `None` in logs from before the format was stored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<WireFormat>,
    },
    /// Request to call a tool.
    Call(ToolCall),
}

/// Wire format. Stored in the log beside data that only that format understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFormat {
    /// Messages API of Anthropic.
    Anthropic,
    /// Chat completions API of OpenAI and compatible servers.
    Chat,
    /// Responses API of OpenAI.
    Responses,
    /// Gemini API of Google.
    Gemini,
}

/// Request of the model to call a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Id that the result refers to; unique within one answer at least.
    pub id: String,
    /// Name of the tool, as the model wrote it.
    pub name: String,
    /// Arguments; a JSON string with the raw text if the model did not write valid JSON.
    pub arguments: Value,
    /// Signatures that belong to this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<String>,
    /// Fields of chat completions that only the server understands; they are sent back with the
    /// call.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// Result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Text for the model.
    pub text: String,
    /// True if the call failed.
    pub is_error: bool,
    /// Pictures that the tool returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// Picture for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// MIME type, such as `image/png`.
    pub mime: String,
    /// Content of the file, in base64.
    pub base64: String,
}

/// Complete model answer, after the stream has ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelAnswer {
    /// Parts, in the order in which they arrived.
    pub parts: Vec<MessagePart>,
    /// Reason why the model stopped.
    pub stop: StopReason,
    /// Tokens of the answer; `None` if the server does not count them.
    pub usage: Option<Usage>,
}

impl ModelAnswer {
    /// Returns the calls, in order.
    pub fn calls(&self) -> Vec<&ToolCall> {
        calls(&self.parts)
    }

    /// Returns all text for the user.
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

/// Reason why a model stopped. It does not decide whether the loop continues, only the calls in the
/// answer do: providers say `completed` with calls pending.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The answer is complete.
    #[default]
    Done,
    /// The answer reached the output limit.
    Length,
    /// The provider's filter ended the answer.
    Filtered,
    /// Another reason, in the provider's word.
    Other(String),
}

/// Token counts of one or more answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent, cached or not.
    pub input: u64,
    /// Tokens received, reasoning included.
    pub output: u64,
    /// Part of `input` that was read from the provider's cache.
    #[serde(default)]
    pub cached: u64,
    /// Part of `input` that was written to the provider's cache.
    #[serde(default)]
    pub cache_written: u64,
    /// Part of `output` that is reasoning.
    #[serde(default)]
    pub reasoning: u64,
}

impl Usage {
    /// Returns the sum of input and output.
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

/// Tokens and cost of many answers, as far as they are known. An unknown value is reported as
/// unknown, never as zero.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spending {
    tokens: Usage,
    counted: u32,
    uncounted: u32,
    cost_usd: f64,
    unpriced: u32,
}

impl Spending {
    /// Adds one answer. `None` means that its tokens or its cost are unknown.
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

    /// Returns the tokens, a lower bound if some answers were not counted; `None` if there were
    /// answers but none was counted.
    pub const fn usage(&self) -> Option<Usage> {
        if self.counted == 0 && self.uncounted > 0 {
            return None;
        }
        Some(self.tokens)
    }

    /// Returns the tokens of the answers that were counted.
    pub const fn counted_tokens(&self) -> Usage {
        self.tokens
    }

    /// Returns the number of answers without token counts.
    pub const fn uncounted_answers(&self) -> u32 {
        self.uncounted
    }

    /// Returns the cost in US dollars; `None` if the cost of any answer is unknown.
    pub const fn cost_usd(&self) -> Option<f64> {
        if self.unpriced > 0 {
            return None;
        }
        Some(self.cost_usd)
    }

    /// Returns the known part of the cost in US dollars.
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
