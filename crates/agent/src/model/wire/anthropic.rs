//! Messages API of Anthropic.
//! <https://docs.anthropic.com/en/api/messages-streaming>

use super::blocks::{Block, Blocks, CallBlock};
use super::piece::{Piece, Text};
use super::{
    DecodedAnswer, Decoder, Progress, WireFormat, broken_off, is_own, refusal, sent_arguments,
    signatures, stop_reason, unreadable,
};
use crate::model::{Delta, ModelError, Prompt};
use crate::{Message, MessagePart, ModelAnswer, Usage};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Encodes a request.
pub(super) fn encode(prompt: &Prompt<'_>, model: &str) -> Value {
    let mut messages = Vec::new();
    for message in prompt.messages {
        match message {
            Message::User { text } => messages.push(json!({ "role": "user", "content": text })),
            Message::Assistant { parts } => {
                let content = encode_parts(parts);
                // The API refuses a message without content.
                match content.as_slice() {
                    [] => {}
                    [one] if one["type"] == "text" => {
                        messages.push(json!({ "role": "assistant", "content": one["text"] }));
                    }
                    _ => messages.push(json!({ "role": "assistant", "content": content })),
                }
            }
            Message::Results { results } => {
                // All results go into one message: results of parallel calls have to be in the same
                // one.
                let blocks: Vec<Value> = results
                    .iter()
                    .map(|result| {
                        json!({ "type": "tool_result", "content": result.text, "tool_use_id": result.id })
                    })
                    .collect();
                messages.push(json!({ "role": "user", "content": blocks }));
                let images = results.iter().flat_map(|result| &result.images);
                let images: Vec<Value> = images
                    .map(|image| {
                        json!({ "type": "image", "source": {
                            "type": "base64", "media_type": image.mime, "data": image.base64 } })
                    })
                    .collect();
                if !images.is_empty() {
                    messages.push(json!({ "role": "user", "content": images }));
                }
            }
        }
    }
    mark_cache(&mut messages);
    let mut body = json!({ "model": model, "stream": true, "system": prompt.system });
    // Some servers refuse an empty list of tools.
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            json!({ "name": tool.name, "input_schema": tool.schema, "description": tool.description })
        });
        body["tools"] = tools.collect();
    }
    body["messages"] = messages.into();
    body["max_tokens"] = max_tokens(model).into();
    body
}

/// Encodes an answer: reasoning first, and only with its signature, as the API requires.
fn encode_parts(parts: &[MessagePart]) -> Vec<Value> {
    let thoughts: Vec<&String> = parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Reasoning { text } => Some(text),
            _ => None,
        })
        .collect();
    let signatures = signatures(parts);
    // Reasoning of another provider has no signature.
    let is_signed = thoughts.len() == signatures.len();
    let mut pairs = thoughts.into_iter().zip(signatures);
    let mut content = Vec::new();
    let mut others = Vec::new();
    for part in parts {
        match part {
            MessagePart::Reasoning { .. } => {
                if let (true, Some((thinking, signature))) = (is_signed, pairs.next()) {
                    content.push(
                        json!({ "type": "thinking", "thinking": thinking, "signature": signature }),
                    );
                }
            }
            MessagePart::Opaque { data, format } if is_own(*format, WireFormat::Anthropic) => {
                let kind = data["type"].as_str().unwrap_or_default();
                if matches!(kind, "thinking" | "redacted_thinking") {
                    content.push(data.clone());
                } else {
                    others.push(data.clone());
                }
            }
            MessagePart::Signature { .. } | MessagePart::Opaque { .. } => {}
            MessagePart::Text { text } => others.push(json!({ "type": "text", "text": text })),
            MessagePart::Call(call) => others.push(json!({ "type": "tool_use", "id": call.id,
                "name": call.name, "input": sent_arguments(call) })),
        }
    }
    content.append(&mut others);
    content
}

/// Marks the ends of the cached prefix: the newest user message, so that the next turn finds
/// everything before it, and the user message before that, in case a turn added more blocks than
/// the provider looks back.
/// <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>
fn mark_cache(messages: &mut [Value]) {
    let told = messages
        .iter_mut()
        .rev()
        .filter(|message| message["role"] == "user");
    for message in told.take(2) {
        let content = &mut message["content"];
        if let Value::String(text) = content {
            *content = json!([{ "type": "text", "text": text }]);
        }
        if let Some(last) = content.as_array_mut().and_then(|blocks| blocks.last_mut()) {
            last["cache_control"] = json!({ "type": "ephemeral" });
        }
    }
}

/// Returns the maximum output of a model in tokens, which this API requires in every request.
fn max_tokens(model: &str) -> u32 {
    let version = |family: &str| -> Option<(u32, u32)> {
        let mut numbers = model.strip_prefix(family)?.split('-');
        let mut number = || {
            let word = numbers
                .next()
                .filter(|word| (1..=2).contains(&word.len()))?;
            word.parse::<u32>().ok()
        };
        Some((number()?, number().unwrap_or(0)))
    };
    match version("claude-opus-") {
        Some((4, 8..) | (5.., _)) => return 128_000,
        Some((4, 5..)) => return 64_000,
        Some((4, _)) => return 32_000,
        Some((3, _)) => return 4096,
        _ => {}
    }
    let has = |word: &str| model.contains(word);
    if version("claude-haiku-").is_some_and(|version| version >= (5, 0))
        || has("fable")
        || has("mythos")
    {
        128_000
    } else if has("claude-sonnet")
        || has("claude-haiku")
        || has("claude-3-7-sonnet")
        || has("claude-opus-4-5")
    {
        64_000
    } else if has("claude-opus-4") {
        32_000
    } else if has("claude-3-5") {
        8192
    } else if has("3-opus") || has("3-haiku") {
        4096
    } else {
        64_000
    }
}

/// Decoder of one answer.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    blocks: Blocks,
    /// Index in `blocks`, by the `index` of the API.
    places: BTreeMap<u64, usize>,
    /// Signatures of reasoning, by the index of their block in `blocks`.
    signatures: BTreeMap<usize, Text>,
    last: Option<usize>,
    stop: Option<String>,
    is_over: bool,
    usage: Usage,
    is_counted: bool,
}

impl AnthropicDecoder {
    fn start(&mut self, index: Option<u64>, block: &Value, piece: &Piece, out: &mut Vec<Delta>) {
        let fragment = |field: &str| piece.fragment(block[field].as_str().unwrap_or_default());
        let at = match block["type"].as_str() {
            Some("text") => {
                let at = self.blocks.begin(Block::Text(Text::default()));
                self.blocks.append(at, fragment("text"), out);
                at
            }
            Some("thinking") => {
                let at = self.blocks.begin(Block::Reasoning(Text::default()));
                self.blocks.append(at, fragment("thinking"), out);
                self.signatures
                    .entry(at)
                    .or_default()
                    .push(fragment("signature"));
                at
            }
            Some("tool_use") => {
                let call = CallBlock {
                    id: piece.string(block["id"].as_str().unwrap_or_default()),
                    name: piece.string(block["name"].as_str().unwrap_or_default()),
                    ..CallBlock::default()
                };
                out.push(call.delta());
                let at = self.blocks.begin(Block::Call(call));
                match &block["input"] {
                    Value::Null => {}
                    Value::String(text) => {
                        self.blocks.append(at, piece.fragment(text), out);
                    }
                    input => {
                        let object = piece.data(input);
                        if let Some(call) = self.blocks.call(at) {
                            call.object = Some(object);
                        }
                    }
                }
                at
            }
            // Redacted reasoning and unknown kinds of blocks are stored and sent back.
            _ => self.blocks.begin(Block::Opaque(piece.data(block))),
        };
        self.blocks.grow(block.to_string().len());
        self.last = Some(at);
        if let Some(index) = index {
            self.places.insert(index, at);
        }
    }

    fn delta(
        &mut self,
        index: Option<u64>,
        delta: &Value,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let kind = delta["type"].as_str().unwrap_or_default();
        let field = match kind {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "signature_delta" => "signature",
            "input_json_delta" => "partial_json",
            // Citations and unknown kinds have no effect on the agent.
            _ => return Ok(()),
        };
        let text = delta[field]
            .as_str()
            .ok_or_else(|| unreadable(format!("a {kind} without its {field}")))?;
        let fragment = piece.fragment(text);
        let place = match index {
            Some(index) => self.places.get(&index).copied(),
            None => self.last,
        };
        let block = place.and_then(|at| Some((at, self.blocks.blocks.get(at)?)));
        match (kind, block) {
            ("text_delta", Some((at, Block::Text(_))))
            | ("thinking_delta", Some((at, Block::Reasoning(_))))
            | ("input_json_delta", Some((at, Block::Call(_)))) => {
                self.blocks.append(at, fragment, out);
            }
            ("signature_delta", Some((at, Block::Reasoning(_)))) => {
                self.blocks.grow(text.len());
                self.signatures.entry(at).or_default().push(fragment);
            }
            // Some servers omit the beginning of a block.
            ("text_delta" | "thinking_delta", None) => {
                let block = if kind == "text_delta" {
                    Block::Text
                } else {
                    Block::Reasoning
                };
                let at = self.blocks.begin(block(Text::default()));
                self.last = Some(at);
                if let Some(index) = index {
                    self.places.insert(index, at);
                }
                self.blocks.append(at, fragment, out);
            }
            // Input of a tool that the server itself calls.
            ("input_json_delta", Some((_, Block::Opaque(_)))) => {}
            _ => return Err(unreadable(format!("a {kind} for no such block"))),
        }
        Ok(())
    }

    fn count(&mut self, usage: &Value) {
        let Some(fields) = usage.as_object() else {
            return;
        };
        let told = |field: &str| fields.get(field).and_then(Value::as_u64);
        let cached = told("cache_read_input_tokens");
        let written = told("cache_creation_input_tokens");
        // The last non-zero value of each field counts: early events report zeros.
        let later = |new: Option<u64>, old: u64| new.filter(|&tokens| tokens > 0).unwrap_or(old);
        let known = self.usage.cached.saturating_add(self.usage.cache_written);
        let fresh = self.usage.input.saturating_sub(known);
        let fresh = later(told("input_tokens"), fresh);
        self.usage.cached = later(cached, self.usage.cached);
        self.usage.cache_written = later(written, self.usage.cache_written);
        self.usage.input = fresh
            .saturating_add(self.usage.cached)
            .saturating_add(self.usage.cache_written);
        self.usage.output = later(told("output_tokens"), self.usage.output);
        let thoughts = usage["output_tokens_details"]["thinking_tokens"].as_u64();
        self.usage.reasoning = later(thoughts, self.usage.reasoning);
        self.is_counted |= told("output_tokens").is_some();
    }

    /// Reads a complete message from a server that does not stream.
    fn message(&mut self, message: &Value, piece: &Piece, out: &mut Vec<Delta>) {
        self.count(&message["usage"]);
        for block in message["content"].as_array().into_iter().flatten() {
            self.start(None, block, piece, out);
        }
        if let Some(word) = message["stop_reason"].as_str() {
            self.stop = Some(word.to_owned());
        }
    }
}

impl Decoder for AnthropicDecoder {
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        let piece = match Piece::parse(data) {
            Ok(piece) => piece,
            Err(_) if !is_known(event) => return Ok(()),
            Err(error) => return Err(error),
        };
        let value = &piece.value;
        let kind = value["type"].as_str().unwrap_or(event);
        let index = value["index"].as_u64();
        match kind {
            "message_start" => self.message(&value["message"], &piece, out),
            "message" => {
                self.message(value, &piece, out);
                self.is_over = self.stop.is_some();
            }
            "content_block_start" => self.start(index, &value["content_block"], &piece, out),
            "content_block_delta" => self.delta(index, &value["delta"], &piece, out)?,
            "message_delta" => {
                if let Some(word) = value["delta"]["stop_reason"].as_str() {
                    self.stop = Some(word.to_owned());
                }
                self.count(&value["usage"]);
            }
            "message_stop" => self.is_over = true,
            "error" => return Err(refusal::in_answer(value)),
            _ if !value["error"].is_null() => return Err(refusal::in_answer(value)),
            _ if event == "error" => return Err(refusal::in_answer(value)),
            _ => {}
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        match (self.is_over, &self.stop) {
            (true, _) => Progress::Over,
            (false, Some(_)) => Progress::Stopped,
            (false, None) => Progress::Open,
        }
    }

    fn size(&self) -> usize {
        self.blocks.size()
    }

    fn end(mut self: Box<Self>) -> Result<DecodedAnswer, ModelError> {
        if !self.is_over && self.stop.is_none() {
            return Err(broken_off());
        }
        let word = self.stop.take().unwrap_or_else(|| "end_turn".to_owned());
        // In reverse order: an insertion shifts the blocks behind it.
        for (at, signature) in std::mem::take(&mut self.signatures).into_iter().rev() {
            if !signature.is_empty() {
                self.blocks
                    .blocks
                    .insert(at + 1, Block::Signature(signature.finish()));
            }
        }
        Ok(DecodedAnswer {
            answer: ModelAnswer {
                parts: self.blocks.finish(WireFormat::Anthropic),
                stop: stop_reason(&word),
                usage: (self.is_counted && self.usage.input > 0).then_some(self.usage),
            },
            claims_calls: word == "tool_use",
            lacks_reason: false,
        })
    }
}

/// True if events of this kind carry parts of an answer.
fn is_known(event: &str) -> bool {
    event.is_empty()
        || event.starts_with("message")
        || event.starts_with("content_block")
        || event == "error"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_is_asked_for_the_most_that_it_may_say() {
        for (model, tokens) in [
            ("claude-sonnet-4-6", 64_000),
            ("claude-sonnet-5-5", 64_000),
            ("claude-haiku-4-5-20251001", 64_000),
            ("claude-haiku-5", 128_000),
            ("claude-opus-4-8", 128_000),
            ("claude-opus-5", 128_000),
            ("claude-opus-4-5-20251101", 64_000),
            ("claude-opus-4-20250514", 32_000),
            ("claude-opus-4-1", 32_000),
            ("claude-3-7-sonnet-latest", 64_000),
            ("claude-3-5-sonnet-20241022", 8192),
            ("claude-3-opus-20240229", 4096),
            ("claude-3-haiku-20240307", 4096),
            ("claude-fable-5", 128_000),
            ("anything", 64_000),
        ] {
            assert_eq!(max_tokens(model), tokens, "{model}");
        }
    }
}
