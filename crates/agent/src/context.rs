//! How much a model is told: old tool outputs go first, the newest stay.
//!
//! What is taken out stays out, so that the beginning of a prompt stays the same from turn to turn and
//! a provider's cache keeps its worth. The log keeps everything.

use crate::Message;
use std::collections::BTreeSet;

/// Tokens, estimated at four bytes each where no provider has counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// What the model can be told at once.
    pub window_tokens: u64,
    /// Newest tool outputs that always stay.
    pub protect_tokens: u64,
    /// Less than this is not worth the loss.
    pub min_gain_tokens: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            window_tokens: 200_000,
            protect_tokens: 40_000,
            min_gain_tokens: 20_000,
        }
    }
}

const BYTES_PER_TOKEN: u64 = 4;
/// Shorter outputs cost less than the words that replace them.
const MIN_BYTES: usize = 400;

/// Which outputs are told no more.
#[derive(Debug, Default)]
pub(crate) struct Pruned(BTreeSet<(usize, usize)>);

impl Pruned {
    /// Decides, given what the last prompt came to. Gives how many went and what that saves.
    pub(crate) fn decide(
        &mut self,
        messages: &[Message],
        last_prompt_tokens: u64,
        budget: Budget,
    ) -> Option<(usize, u64)> {
        let estimated: u64 = messages
            .iter()
            .map(|message| bytes(message) as u64)
            .sum::<u64>()
            / BYTES_PER_TOKEN;
        let now = last_prompt_tokens.max(estimated.saturating_sub(self.saved(messages)));
        if now < budget.window_tokens / 2 {
            return None;
        }
        let protect = if now > budget.window_tokens / 10 * 9 {
            budget.protect_tokens / 4
        } else {
            budget.protect_tokens
        };
        let mut newer = 0_u64;
        let mut old = Vec::new();
        let mut gain = 0_u64;
        for (at, message) in messages.iter().enumerate().rev() {
            let Message::Results { results } = message else {
                continue;
            };
            for (index, result) in results.iter().enumerate().rev() {
                let size = result.text.len();
                let tokens = size as u64 / BYTES_PER_TOKEN;
                if newer < protect {
                    newer += tokens;
                } else if size >= MIN_BYTES && !self.0.contains(&(at, index)) {
                    old.push((at, index));
                    gain += tokens;
                }
            }
        }
        if gain < budget.min_gain_tokens {
            return None;
        }
        let count = old.len();
        self.0.extend(old);
        Some((count, gain))
    }

    fn saved(&self, messages: &[Message]) -> u64 {
        self.0
            .iter()
            .filter_map(|&(at, index)| match messages.get(at)? {
                Message::Results { results } => Some(results.get(index)?.text.len() as u64),
                _ => None,
            })
            .sum::<u64>()
            / BYTES_PER_TOKEN
    }

    /// The messages as the model is told them.
    pub(crate) fn apply(&self, messages: &[Message]) -> Vec<Message> {
        let mut told = messages.to_vec();
        for &(at, index) in &self.0 {
            if let Some(Message::Results { results }) = told.get_mut(at)
                && let Some(result) = results.get_mut(index)
            {
                result.text = format!(
                    "[{} bytes of output were taken out to make room; call the tool again if they matter]",
                    result.text.len()
                );
                result.images.clear();
            }
        }
        told
    }
}

fn bytes(message: &Message) -> usize {
    use crate::Part;
    match message {
        Message::User { text } => text.len(),
        Message::Results { results } => results.iter().map(|result| result.text.len()).sum(),
        Message::Assistant { parts } => parts
            .iter()
            .map(|part| match part {
                Part::Text { text } | Part::Reasoning { text } => text.len(),
                Part::Signature { value } => value.len(),
                Part::Opaque { data } => data.to_string().len(),
                Part::Call(call) => call.name.len() + call.arguments.to_string().len(),
            })
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallResult;

    #[test]
    fn old_outputs_go_and_new_ones_stay() {
        let output = |bytes: usize| Message::Results {
            results: vec![CallResult {
                id: "x".to_owned(),
                name: "Bash".to_owned(),
                text: "y".repeat(bytes),
                is_error: false,
                images: Vec::new(),
            }],
        };
        let messages: Vec<Message> = (0..20).map(|_| output(40_000)).collect();
        let budget = Budget::default();
        let mut pruned = Pruned::default();
        assert_eq!(Pruned::default().decide(&messages[..5], 0, budget), None);
        let (count, tokens) = pruned.decide(&messages, 0, budget).unwrap();
        assert_eq!((count, tokens), (19, 190_000));
        let told = pruned.apply(&messages);
        assert!(
            matches!(&told[0], Message::Results { results } if results[0].text.contains("40000 bytes"))
        );
        assert_eq!(told[19], messages[19]);
        // It is done once.
        assert_eq!(pruned.decide(&messages, 0, budget), None);
    }
}
