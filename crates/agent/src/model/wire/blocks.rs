//! Blocks of an answer that is still arriving, in the order in which they began.

use super::WireFormat;
use super::piece::{Fragment, Text};
use crate::model::Delta;
use crate::{MessagePart, ToolCall};
use glovebox_proto::json::mend;
use serde_json::{Map, Value};

/// Block of an answer.
#[derive(Debug)]
pub(super) enum Block {
    Text(Text),
    Reasoning(Text),
    Signature(String),
    Opaque(Value),
    Call(CallBlock),
}

/// Call that is still arriving.
#[derive(Debug, Default)]
pub(super) struct CallBlock {
    pub(super) id: String,
    pub(super) name: String,
    /// Arguments as text so far.
    pub(super) text: Text,
    /// Arguments that the server sent as an object.
    pub(super) object: Option<Value>,
    pub(super) signatures: Vec<String>,
    /// Fields that only the server understands.
    pub(super) extra: Map<String, Value>,
}

impl CallBlock {
    /// True if the arguments are a complete object.
    pub(super) fn is_whole(&self) -> bool {
        self.object.is_some()
            || (self.text.ends_with(b'}') && parse_arguments(self.text.so_far()).is_object())
    }

    pub(super) fn delta(&self) -> Delta {
        Delta::Call {
            name: self.name.clone(),
            bytes: self.text.len(),
        }
    }

    fn finish(self) -> ToolCall {
        let arguments = match self.object {
            Some(object) if self.text.is_empty() => object,
            _ => parse_arguments(self.text.finish()),
        };
        ToolCall {
            id: self.id,
            name: self.name,
            arguments,
            signatures: self.signatures,
            extra: self.extra,
        }
    }
}

/// Blocks of one answer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) blocks: Vec<Block>,
    size: usize,
}

impl Blocks {
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    pub(super) fn grow(&mut self, bytes: usize) {
        self.size = self.size.saturating_add(bytes);
    }

    /// Begins a block and returns its index.
    pub(super) fn begin(&mut self, block: Block) -> usize {
        self.size = self.size.saturating_add(64);
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    /// Appends to the last block if it is text, or begins a text block.
    pub(super) fn text(&mut self, fragment: Fragment<'_>, out: &mut Vec<Delta>) {
        self.append_to_last(
            fragment,
            out,
            |block| matches!(block, Block::Text(_)),
            Block::Text,
        );
    }

    /// Appends to the last block if it is reasoning, or begins a reasoning block.
    pub(super) fn reasoning(&mut self, fragment: Fragment<'_>, out: &mut Vec<Delta>) {
        let is_reasoning = |block: &Block| matches!(block, Block::Reasoning(_));
        self.append_to_last(fragment, out, is_reasoning, Block::Reasoning);
    }

    fn append_to_last(
        &mut self,
        fragment: Fragment<'_>,
        out: &mut Vec<Delta>,
        is_wanted: impl Fn(&Block) -> bool,
        block: impl Fn(Text) -> Block,
    ) {
        if fragment.text.is_empty() {
            return;
        }
        // Opaque details between two fragments do not interrupt the text.
        let last = self
            .blocks
            .iter()
            .rposition(|block| !matches!(block, Block::Opaque(_)));
        let at = match last.filter(|&at| is_wanted(&self.blocks[at])) {
            Some(at) => at,
            None => self.begin(block(Text::default())),
        };
        self.append(at, fragment, out);
    }

    /// Appends to the block at index `at`; false if it takes no text.
    pub(super) fn append(
        &mut self,
        at: usize,
        fragment: Fragment<'_>,
        out: &mut Vec<Delta>,
    ) -> bool {
        self.size = self.size.saturating_add(fragment.text.len());
        match self.blocks.get_mut(at) {
            Some(Block::Text(text)) => {
                text.push(fragment);
                show(text.take_shown(), Delta::Text, out);
            }
            Some(Block::Reasoning(text)) => {
                text.push(fragment);
                show(text.take_shown(), Delta::Reasoning, out);
            }
            Some(Block::Call(call)) => {
                call.text.push(fragment);
                out.push(call.delta());
            }
            _ => return false,
        }
        true
    }

    pub(super) fn call(&mut self, at: usize) -> Option<&mut CallBlock> {
        match self.blocks.get_mut(at) {
            Some(Block::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// Returns the parts of the complete answer.
    pub(super) fn finish(self, format: WireFormat) -> Vec<MessagePart> {
        let mut parts = Vec::with_capacity(self.blocks.len());
        let mut blocks = self.blocks.into_iter().peekable();
        while let Some(block) = blocks.next() {
            match block {
                Block::Text(text) if text.is_empty() => {}
                Block::Text(text) => parts.push(MessagePart::Text {
                    text: text.finish(),
                }),
                // Reasoning that the provider hides has a signature all the same.
                Block::Reasoning(text)
                    if text.is_empty() && !matches!(blocks.peek(), Some(Block::Signature(_))) => {}
                Block::Reasoning(text) => parts.push(MessagePart::Reasoning {
                    text: text.finish(),
                }),
                Block::Signature(value) if value.is_empty() => {}
                Block::Signature(value) => parts.push(MessagePart::Signature { value }),
                Block::Opaque(data) => parts.push(MessagePart::Opaque {
                    data,
                    format: Some(format),
                }),
                Block::Call(call) => parts.push(MessagePart::Call(call.finish())),
            }
        }
        parts
    }
}

fn show(text: String, delta: impl Fn(String) -> Delta, out: &mut Vec<Delta>) {
    if !text.is_empty() {
        out.push(delta(text));
    }
}

/// Parses arguments: an object, also one inside a JSON string. Blank text means an empty object;
/// text that is not JSON, even after mending, stays a string.
fn parse_arguments(text: String) -> Value {
    let parse = |text: &str| -> Option<Value> {
        serde_json::from_str(text)
            .ok()
            .or_else(|| serde_json::from_str(&mend(text)?).ok())
    };
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match parse(&text) {
        Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(inner)) if inner.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(inner)) => match parse(&inner) {
            Some(object @ Value::Object(_)) => object,
            _ => Value::String(text),
        },
        Some(value) => value,
        None => Value::String(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_an_object_where_they_can_be() {
        for (text, value) in [
            ("", json!({})),
            (" \n", json!({})),
            ("null", json!({})),
            ("\"\"", json!({})),
            (r#"{"a":1}"#, json!({ "a": 1 })),
            (r#""{\"a\":1}""#, json!({ "a": 1 })),
            (r#"{"a":"\ud83d"}"#, json!({ "a": "\u{FFFD}" })),
            (r#"{"a":"\\ud83d"}"#, json!({ "a": "\\ud83d" })),
            ("{\"a\":", json!("{\"a\":")),
            ("\"word\"", json!("\"word\"")),
            ("{\"a\":1}{\"b\":2}", json!("{\"a\":1}{\"b\":2}")),
            ("[1]", json!([1])),
        ] {
            assert_eq!(parse_arguments(text.to_owned()), value, "{text}");
        }
    }
}
