//! Size of a prompt, and the choice of old tool outputs to drop and old messages to summarize.
//!
//! In: a conversation and a budget. Out: the calls whose outputs are dropped, for an event. The
//! conversation changes only by that event ([`Conversation::take`]), so that a log reproduces the
//! same prompts. Dropped outputs stay dropped: the beginning of the prompt then stays the same from
//! turn to turn, which keeps the prompt cache of the provider valid.

use crate::event::Conversation;
use crate::{CallResult, Message, MessagePart, ToolDefinition};

/// Budget in tokens, estimated at four bytes each unless a provider has counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextBudget {
    /// Context window of the model.
    pub window_tokens: u64,
    /// Newest tool outputs that are never dropped.
    pub protect_tokens: u64,
    /// Minimum number of tokens to free; dropping less is not worth the loss.
    pub min_gain_tokens: u64,
}

impl ContextBudget {
    /// Returns the budget for a context window of this size.
    pub const fn of_window(window_tokens: u64) -> Self {
        Self {
            window_tokens,
            protect_tokens: window_tokens / 5,
            min_gain_tokens: window_tokens / 10,
        }
    }

    /// True if old tool outputs have to be dropped.
    const fn is_half_full(self, tokens: u64) -> bool {
        tokens >= self.window_tokens / 2
    }

    /// True if the old part has to be summarized; the rest of the window is for the answer.
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
/// Minimum size of an output that is dropped. A shorter one costs less than the note that replaces
/// it.
const MIN_BYTES: usize = 400;
/// Size of a picture in a prompt: about the size that providers charge for any picture.
const IMAGE_BYTES: usize = 6000;

/// Old tool outputs to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DroppedOutputs {
    /// Ids of the calls.
    pub calls: Vec<String>,
    /// Estimated number of tokens that this frees.
    pub tokens: u64,
}

/// Chooses the old outputs to drop for a prompt of `now` tokens; `None` if there is room, or if too
/// little would be freed.
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

/// Chooses every output except those of the newest calls; `None` if there is none to drop.
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

/// Returns the index of the first message of the newest part that has at most `tokens`. The part
/// begins at an answer with calls, so that no call is separated from its result. Returns the number
/// of messages if even the last such part is too large, and `None` if only the task would lie
/// before it.
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

/// Size of a prompt: estimated, and corrected by the provider's last count.
#[derive(Debug)]
pub(crate) struct PromptSize {
    /// Bytes of the system prompt and the tool definitions, which are part of every prompt.
    fixed_bytes: u64,
    /// Tokens that the provider counted for the last prompt, and the estimate for that prompt.
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

    /// Records the provider's count for the prompt that was estimated at `estimated` tokens. A
    /// count of zero is ignored.
    pub(crate) fn note(&mut self, estimated: u64, counted: u64) {
        if counted > 0 {
            self.counted = Some((counted, estimated));
        }
    }

    /// Returns the provider's last count.
    pub(crate) fn counted(&self) -> Option<u64> {
        self.counted.map(|(counted, _)| counted)
    }

    /// Estimates the tokens of the next prompt, at four bytes each.
    pub(crate) fn estimate(&self, conversation: &Conversation) -> u64 {
        let said: u64 = conversation
            .messages
            .iter()
            .map(|message| bytes(conversation, message) as u64)
            .sum();
        let summary = conversation.summary.as_ref().map_or(0, String::len) as u64;
        (self.fixed_bytes + said + summary) / BYTES_PER_TOKEN
    }

    /// Returns the provider's last count plus the estimated growth since; the estimate alone
    /// without a count.
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

/// Returns the size of a message in the prompt, with dropped outputs as short notes.
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
