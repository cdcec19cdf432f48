//! Detection of a model that repeats the same calls with the same results.

use crate::{CallResult, Message};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Number of equal turns after which the model is warned.
const TELL_AT: u32 = 3;
/// Number of equal turns after which the run ends.
const END_AT: u32 = 6;

/// Reaction to a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopDetection {
    /// Continue.
    No,
    /// Warn the model.
    Tell,
    /// End the run.
    End,
}

/// Counter of consecutive equal turns.
#[derive(Debug, Default)]
pub(crate) struct Repetition {
    last: Option<u64>,
    count: u32,
}

impl Repetition {
    /// Records the calls and results of a turn, and returns the reaction. `is_waiting` is true if a
    /// command still runs: a model that waits for it repeats the same call for good reason.
    pub(crate) fn note(
        &mut self,
        calls: &Message,
        results: &[CallResult],
        is_waiting: bool,
    ) -> LoopDetection {
        let Message::Assistant { parts } = calls else {
            return LoopDetection::No;
        };
        let mut hasher = DefaultHasher::new();
        for call in crate::conversation::calls(parts) {
            call.name.hash(&mut hasher);
            call.arguments.to_string().hash(&mut hasher);
        }
        for result in results {
            without_numbers(&result.text).hash(&mut hasher);
        }
        let now = hasher.finish();
        if is_waiting {
            *self = Self::default();
            return LoopDetection::No;
        }
        if self.last.replace(now) == Some(now) {
            self.count += 1;
        } else {
            self.count = 1;
        }
        match self.count {
            END_AT.. => LoopDetection::End,
            TELL_AT => LoopDetection::Tell,
            _ => LoopDetection::No,
        }
    }
}

/// Removes digits and dots: durations and process ids differ each time and mean nothing here.
fn without_numbers(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_ascii_digit() && *c != '.')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MessagePart, ToolCall};
    use serde_json::json;

    #[test]
    fn circles_are_told_and_then_ended() {
        let turn = |command: &str| Message::Assistant {
            parts: vec![MessagePart::Call(ToolCall {
                id: command.to_owned(),
                name: "Bash".to_owned(),
                arguments: json!({ "command": command }),
                signatures: Vec::new(),
                extra: serde_json::Map::new(),
            })],
        };
        let result = |ms: u32| {
            vec![CallResult {
                id: String::new(),
                name: "Bash".to_owned(),
                text: format!("no\n[exit code 1, {ms} ms]"),
                is_error: true,
                images: Vec::new(),
            }]
        };
        let mut seen = Repetition::default();
        let said: Vec<LoopDetection> = (0..6)
            .map(|n| seen.note(&turn("x"), &result(n), false))
            .collect();
        assert_eq!(
            said[..3],
            [LoopDetection::No, LoopDetection::No, LoopDetection::Tell]
        );
        assert_eq!(said[5], LoopDetection::End);
        assert_eq!(seen.note(&turn("y"), &result(1), false), LoopDetection::No);
        for n in 0..10 {
            assert_eq!(seen.note(&turn("x"), &result(n), true), LoopDetection::No);
        }
    }
}
