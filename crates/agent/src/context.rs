//! How much a model is told: old tool outputs go first, then everything old becomes a summary; the
//! newest stays.
//!
//! In: a conversation and a budget. Out: what has to go, as words for an event; the conversation itself
//! changes only by that event ([`Conversation::take`]), so that a log gives the same prompts again. What
//! is taken out stays out, so that the beginning of a prompt stays the same from turn to turn and a
//! provider's cache keeps its worth.

use crate::event::Conversation;
use crate::{CallResult, Message, MessagePart, ToolDefinition};

/// Tokens, estimated at four bytes each where no provider has counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextBudget {
    /// What the model can be told at once.
    pub window_tokens: u64,
    /// Newest tool outputs that always stay.
    pub protect_tokens: u64,
    /// Less than this is not worth the loss.
    pub min_gain_tokens: u64,
}

impl ContextBudget {
    /// For a model that can be told so much at once.
    pub const fn of_window(window_tokens: u64) -> Self {
        Self {
            window_tokens,
            protect_tokens: window_tokens / 5,
            min_gain_tokens: window_tokens / 10,
        }
    }

    /// From here on old outputs of tools go.
    const fn is_half_full(self, tokens: u64) -> bool {
        tokens >= self.window_tokens / 2
    }

    /// From here on what is old becomes a summary: an answer needs room too.
    pub(crate) const fn is_nearly_full(self, tokens: u64) -> bool {
        tokens >= self.window_tokens / 10 * 9
    }
}

impl Default for ContextBudget {
    fn default() -> Self {
        Self::of_window(200_000)
    }
}

const BYTES_PER_TOKEN: u64 = 4;
/// Shorter outputs cost less than the words that replace them.
const MIN_BYTES: usize = 400;
/// About what providers take for a picture, whatever its size as a file.
const IMAGE_BYTES: usize = 6000;

/// Old outputs that are told no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DroppedOutputs {
    /// Of the calls they belong to.
    pub calls: Vec<String>,
    /// About how many tokens that saves.
    pub tokens: u64,
}

/// Which old outputs go, when `now` tokens are told; `None` when that is not called for.
pub(crate) fn cut(
    conversation: &Conversation,
    now: u64,
    budget: ContextBudget,
) -> Option<DroppedOutputs> {
    if !budget.is_half_full(now) {
        return None;
    }
    let protect = if budget.is_nearly_full(now) {
        budget.protect_tokens / 4
    } else {
        budget.protect_tokens
    };
    let cut = older_than(conversation, protect);
    (cut.tokens >= budget.min_gain_tokens.max(1)).then_some(cut)
}

/// Every output but those of the newest calls.
pub(crate) fn cut_all(conversation: &Conversation) -> Option<DroppedOutputs> {
    let newest = conversation
        .messages
        .iter()
        .rev()
        .find_map(|message| match message {
            Message::Results { results } => {
                Some(results.iter().map(|result| result.text.len()).sum())
            }
            _ => None,
        })
        .unwrap_or(0_usize);
    let cut = older_than(conversation, newest as u64 / BYTES_PER_TOKEN);
    (cut.tokens > 0).then_some(cut)
}

fn older_than(conversation: &Conversation, protect_tokens: u64) -> DroppedOutputs {
    let mut newer = 0_u64;
    let mut cut = DroppedOutputs {
        calls: Vec::new(),
        tokens: 0,
    };
    let results = conversation
        .messages
        .iter()
        .rev()
        .filter_map(|message| match message {
            Message::Results { results } => Some(results.iter().rev()),
            _ => None,
        })
        .flatten();
    for result in results {
        let size = result_bytes(result);
        let tokens = size as u64 / BYTES_PER_TOKEN;
        if newer < protect_tokens {
            newer += tokens;
        } else if size >= MIN_BYTES && !conversation.is_cut(&result.id) {
            cut.calls.push(result.id.clone());
            cut.tokens += tokens;
        }
    }
    cut
}

/// Where the newest part begins that comes to no more than `tokens`: at an answer with calls, so that no
/// call loses its result. At the end of the messages when even the last such part is too large. `None`
/// when nothing would lie before it but the task.
pub(crate) fn newest_part(conversation: &Conversation, tokens: u64) -> Option<usize> {
    let messages = &conversation.messages;
    let mut newer = 0_u64;
    let mut begin = messages.len();
    for (at, message) in messages.iter().enumerate().skip(1).rev() {
        newer += bytes(conversation, message) as u64 / BYTES_PER_TOKEN;
        if newer > tokens {
            break;
        }
        if matches!(message, Message::Assistant { parts } if !crate::conversation::calls(parts).is_empty())
        {
            begin = at;
        }
    }
    (begin > 1).then_some(begin)
}

/// What a prompt comes to: estimated, and set right by what the provider counted last.
#[derive(Debug)]
pub(crate) struct PromptSize {
    /// Bytes of what is said with every prompt.
    fixed_bytes: u64,
    /// What the last prompt was counted to, and what it had been estimated at.
    counted: Option<(u64, u64)>,
}

impl PromptSize {
    pub(crate) fn new(system: &str, tools: &[ToolDefinition]) -> Self {
        let tools: usize = tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.schema.to_string().len())
            .sum();
        Self {
            fixed_bytes: (system.len() + tools) as u64,
            counted: None,
        }
    }

    /// What the provider counted for the prompt that `estimated` belongs to.
    pub(crate) fn note(&mut self, estimated: u64, counted: u64) {
        if counted > 0 {
            self.counted = Some((counted, estimated));
        }
    }

    /// What the provider counted last.
    pub(crate) fn counted(&self) -> Option<u64> {
        self.counted.map(|(counted, _)| counted)
    }

    /// Four bytes for a token.
    pub(crate) fn estimate(&self, conversation: &Conversation) -> u64 {
        let said: u64 = conversation
            .messages
            .iter()
            .map(|message| bytes(conversation, message) as u64)
            .sum();
        let summary = conversation.summary.as_ref().map_or(0, String::len) as u64;
        (self.fixed_bytes + said + summary) / BYTES_PER_TOKEN
    }

    /// The best that is known.
    pub(crate) fn tokens(&self, conversation: &Conversation) -> u64 {
        let estimated = self.estimate(conversation);
        match self.counted {
            Some((counted, then)) => (counted + estimated).saturating_sub(then),
            None => estimated,
        }
    }
}

fn result_bytes(result: &CallResult) -> usize {
    result.text.len() + result.images.len() * IMAGE_BYTES
}

/// As it is told.
fn bytes(conversation: &Conversation, message: &Message) -> usize {
    match message {
        Message::User { text } => text.len(),
        Message::Results { results } => results
            .iter()
            .map(|result| {
                if conversation.is_cut(&result.id) {
                    MIN_BYTES / 4
                } else {
                    result_bytes(result)
                }
            })
            .sum(),
        Message::Assistant { parts } => parts
            .iter()
            .map(|part| match part {
                MessagePart::Text { text } | MessagePart::Reasoning { text } => text.len(),
                MessagePart::Signature { value } => value.len(),
                MessagePart::Opaque { data, .. } => data.to_string().len(),
                MessagePart::Call(call) => call.name.len() + call.arguments.to_string().len(),
            })
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, ToolCall};
    use serde_json::json;

    /// `turns` calls, each with an output of `bytes`.
    fn conversation(turns: usize, bytes: usize) -> Conversation {
        let mut conversation = Conversation::new("task");
        for turn in 0..turns {
            let id = format!("c{turn}");
            conversation.messages.push(Message::Assistant {
                parts: vec![MessagePart::Call(ToolCall {
                    id: id.clone(),
                    name: "Bash".to_owned(),
                    arguments: json!({}),
                    signatures: Vec::new(),
                    extra: serde_json::Map::new(),
                })],
            });
            conversation.add_result(CallResult {
                id,
                name: "Bash".to_owned(),
                text: "y".repeat(bytes),
                is_error: false,
                images: Vec::new(),
            });
        }
        conversation
    }

    #[test]
    fn old_outputs_go_and_new_ones_stay() {
        let budget = ContextBudget::default();
        let gauge = PromptSize::new("", &[]);
        let few = conversation(5, 40_000);
        assert_eq!(cut(&few, gauge.tokens(&few), budget), None);
        let mut many = conversation(20, 40_000);
        let gone = cut(&many, gauge.tokens(&many), budget).unwrap();
        assert_eq!((gone.calls.len(), gone.tokens), (19, 190_000));
        many.take(&Event::Pruned {
            results: 19,
            tokens: gone.tokens,
            calls: gone.calls,
        });
        let told = many.told();
        assert!(
            matches!(&told[2], Message::Results { results } if results[0].text.contains("40000 bytes"))
        );
        assert_eq!(told.last(), many.messages.last());
        // It is done once.
        assert_eq!(cut(&many, gauge.tokens(&many), budget), None);
        assert_eq!(cut_all(&many), None);
    }

    #[test]
    fn the_newest_part_begins_with_calls_or_is_empty() {
        let many = conversation(10, 4_000);
        // A thousand tokens each, and a little for the call.
        assert_eq!(newest_part(&many, 3_500), Some(many.messages.len() - 6));
        assert_eq!(newest_part(&many, 10), Some(many.messages.len()));
        assert_eq!(newest_part(&many, 1_000_000), None);
        assert_eq!(newest_part(&Conversation::new("task"), 10), None);
    }

    #[test]
    fn what_a_provider_counted_sets_the_estimate_right() {
        let few = conversation(2, 4_000);
        let mut gauge = PromptSize::new("four", &[]);
        let estimated = gauge.estimate(&few);
        assert!((2_000..2_020).contains(&estimated), "{estimated}");
        gauge.note(estimated, 5_000);
        assert_eq!(gauge.tokens(&few), 5_000);
        let more = conversation(3, 4_000);
        assert!((6_000..6_010).contains(&gauge.tokens(&more)));
        gauge.note(estimated, 0);
        assert_eq!(gauge.tokens(&few), 5_000);
    }
}
