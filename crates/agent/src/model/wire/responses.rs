//! Responses API of OpenAI.
//! <https://platform.openai.com/docs/api-reference/responses-streaming>

use super::blocks::{Block, Blocks, CallBlock};
use super::piece::{Piece, Text};
use super::{
    DecodedAnswer, Decoder, Progress, WireFormat, broken_off, is_own, refusal, sent_arguments,
    signatures, stop_reason, unreadable,
};
use crate::model::{Delta, ModelError, Prompt};
use crate::{Message, MessagePart, ModelAnswer, StopReason, Usage};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Encodes a request.
pub(super) fn encode(prompt: &Prompt<'_>, model: &str) -> Value {
    let mut input = Vec::new();
    for message in prompt.messages {
        match message {
            Message::User { text } => input.push(json!({ "role": "user", "content": text })),
            Message::Assistant { parts } => encode_answer(parts, &mut input),
            Message::Results { results } => {
                input.extend(results.iter().map(|result| {
                    json!({ "type": "function_call_output", "call_id": result.id, "output": result.text })
                }));
                let images = results.iter().flat_map(|result| &result.images);
                let images: Vec<Value> = images
                    .map(|image| {
                        let url = format!("data:{};base64,{}", image.mime, image.base64);
                        json!({ "type": "input_image", "detail": "auto", "image_url": url })
                    })
                    .collect();
                if !images.is_empty() {
                    input.push(json!({ "role": "user", "content": images }));
                }
            }
        }
    }
    let mut body = json!({
        "store": false,
        "model": model,
        "stream": true,
        "instructions": prompt.system,
        "reasoning": { "summary": "detailed" },
        "include": ["reasoning.encrypted_content"],
    });
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            json!({ "type": "function", "name": tool.name, "parameters": tool.schema,
                "description": tool.description })
        });
        body["tools"] = tools.collect();
    }
    body["input"] = input.into();
    body
}

/// Encodes the items of an answer. Reasoning is sent back encrypted or not at all: requests set
/// `store` to false, so that the server keeps none.
fn encode_answer(parts: &[MessagePart], input: &mut Vec<Value>) {
    let has_items = parts.iter().any(|part| is_thought(part).is_some());
    if !has_items {
        // Logs of earlier versions hold only the encrypted content.
        input.extend(
            signatures(parts).into_iter().map(
                |blob| json!({ "type": "reasoning", "encrypted_content": blob, "summary": [] }),
            ),
        );
    }
    let mut content = Vec::new();
    let flush = |content: &mut Vec<Value>, input: &mut Vec<Value>| {
        if !content.is_empty() {
            let content = std::mem::take(content);
            input.push(json!({ "type": "message", "role": "assistant", "content": content }));
        }
    };
    for part in parts {
        match part {
            MessagePart::Text { text } => {
                content.push(json!({ "type": "output_text", "text": text }));
            }
            MessagePart::Call(call) => {
                flush(&mut content, input);
                input.push(
                    json!({ "type": "function_call", "call_id": call.id, "name": call.name,
                    "arguments": sent_arguments(call).to_string() }),
                );
            }
            part => {
                if let Some(item) = is_thought(part) {
                    flush(&mut content, input);
                    input.push(item.clone());
                }
            }
        }
    }
    flush(&mut content, input);
}

/// Returns the reasoning item in a part, if it can be sent back.
fn is_thought(part: &MessagePart) -> Option<&Value> {
    match part {
        MessagePart::Opaque { data, format }
            if is_own(*format, WireFormat::Responses)
                && data["type"] == "reasoning"
                && data["encrypted_content"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()) =>
        {
            Some(data)
        }
        _ => None,
    }
}

/// Output item that is still arriving.
#[derive(Debug, Default)]
struct Item {
    /// Texts, by kind (true for reasoning) and position.
    texts: BTreeMap<(bool, u64), Text>,
    call: Option<CallBlock>,
    /// Finished item; it replaces the fragments.
    whole: Option<Whole>,
}

/// Finished item, without marks of surrogates.
#[derive(Debug)]
struct Whole(Value);

/// Decoder of one answer.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    items: BTreeMap<u64, Item>,
    last: Option<u64>,
    size: usize,
    stop: Option<StopReason>,
    usage: Option<Usage>,
}

impl ResponsesDecoder {
    /// Returns the item of an event. `begins` is true for an event that begins an item.
    fn item(&mut self, value: &Value, begins: bool) -> &mut Item {
        let next = || self.items.keys().next_back().map_or(0, |last| last + 1);
        let index = match value["output_index"].as_u64() {
            Some(index) => index,
            None if begins => next(),
            None => self.last.unwrap_or(0),
        };
        self.last = Some(index);
        self.items.entry(index).or_default()
    }

    fn text(
        &mut self,
        piece: &Piece,
        is_thought: bool,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let value = &piece.value;
        let delta = value["delta"]
            .as_str()
            .ok_or_else(|| unreadable("a delta without text"))?;
        self.size = self.size.saturating_add(delta.len());
        let part = value["content_index"]
            .as_u64()
            .or_else(|| value["summary_index"].as_u64());
        let item = self.item(value, false);
        let text = item
            .texts
            .entry((is_thought, part.unwrap_or(0)))
            .or_default();
        text.push(piece.fragment(delta));
        let shown = text.take_shown();
        if !shown.is_empty() {
            out.push(if is_thought {
                Delta::Reasoning(shown)
            } else {
                Delta::Text(shown)
            });
        }
        Ok(())
    }

    fn arguments(&mut self, piece: &Piece, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let value = &piece.value;
        let delta = value["delta"]
            .as_str()
            .ok_or_else(|| unreadable("a delta without text"))?;
        self.size = self.size.saturating_add(delta.len());
        let call = self.item(value, false).call.get_or_insert_default();
        call.text.push(piece.fragment(delta));
        out.push(call.delta());
        Ok(())
    }

    fn begin(&mut self, piece: &Piece, out: &mut Vec<Delta>) {
        let value = &piece.value;
        let described = &value["item"];
        let item = self.item(value, true);
        if described["type"] == "function_call" {
            let call = item.call.get_or_insert_default();
            call.id = piece.string(described["call_id"].as_str().unwrap_or_default());
            call.name = piece.string(described["name"].as_str().unwrap_or_default());
            out.push(call.delta());
        }
    }

    fn finish_item(
        &mut self,
        index: &Value,
        described: &Value,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) {
        self.size = self.size.saturating_add(described.to_string().len());
        let whole = piece.data(described);
        let item = self.item(index, self.last.is_none());
        let is_unheard = item.texts.is_empty();
        if is_unheard && whole["type"] == "message" {
            out.extend(message_texts(&whole).map(|text| Delta::Text(text.to_owned())));
        }
        item.whole = Some(Whole(whole));
    }

    fn finish(&mut self, piece: &Piece, out: &mut Vec<Delta>) {
        // A server that does not stream sends the response object itself.
        let value = &piece.value;
        let response = if value["response"].is_object() {
            &value["response"]
        } else {
            value
        };
        for (at, described) in response["output"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let at = at as u64;
            // An item that arrived alone takes precedence: some servers omit it here, or number it
            // differently.
            if self.items.get(&at).is_none_or(|item| item.whole.is_none()) {
                self.finish_item(&json!({ "output_index": at }), described, piece, out);
            }
        }
        let status = response["status"].as_str().unwrap_or("completed");
        self.stop = Some(
            match (status, response["incomplete_details"]["reason"].as_str()) {
                ("incomplete", Some(reason)) => stop_reason(reason),
                (status, _) => stop_reason(status),
            },
        );
        self.count(&response["usage"]);
    }

    fn count(&mut self, usage: &Value) {
        let told = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
        let Some(input) = told("/input_tokens").filter(|&tokens| tokens > 0) else {
            return;
        };
        let rest = told("/total_tokens").and_then(|total| total.checked_sub(input));
        let Some(output) = told("/output_tokens").or(rest) else {
            return;
        };
        self.usage = Some(Usage {
            input,
            output,
            cached: told("/input_tokens_details/cached_tokens").unwrap_or(0),
            cache_written: 0,
            reasoning: told("/output_tokens_details/reasoning_tokens").unwrap_or(0),
        });
    }
}

/// Returns the texts of a finished message, refusals included.
fn message_texts(item: &Value) -> impl Iterator<Item = &str> {
    item["content"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|part| part["text"].as_str().or_else(|| part["refusal"].as_str()))
}

/// Appends the blocks of an item; true if it is a refusal.
fn item_blocks(item: Item, blocks: &mut Blocks) -> bool {
    let mut begin_text = |text: &str, is_thought: bool| {
        let mut all = Text::default();
        all.push(super::piece::plain(text));
        blocks.begin(if is_thought {
            Block::Reasoning(all)
        } else {
            Block::Text(all)
        });
    };
    let Some(Whole(whole)) = item.whole else {
        for ((is_thought, _), text) in item.texts {
            blocks.begin(if is_thought {
                Block::Reasoning(text)
            } else {
                Block::Text(text)
            });
        }
        if let Some(call) = item.call {
            blocks.begin(Block::Call(call));
        }
        return false;
    };
    match whole["type"].as_str() {
        Some("message") => {
            message_texts(&whole).for_each(|text| begin_text(text, false));
            let parts = whole["content"].as_array();
            return parts
                .into_iter()
                .flatten()
                .any(|part| part["type"] == "refusal");
        }
        Some("reasoning") => {
            let listed = |field: &str| {
                let parts = whole[field].as_array().into_iter().flatten();
                parts
                    .filter_map(|part| part["text"].as_str())
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            let text = [listed("summary"), listed("content")]
                .into_iter()
                .find(|text| !text.is_empty());
            if let Some(text) = text {
                begin_text(&text, true);
            }
            blocks.begin(Block::Opaque(whole));
        }
        Some("function_call") => {
            let mut call = item.call.unwrap_or_default();
            let told = |field: &str| whole[field].as_str().filter(|text| !text.is_empty());
            if let Some(id) = told("call_id") {
                id.clone_into(&mut call.id);
            }
            if let Some(name) = told("name") {
                name.clone_into(&mut call.name);
            }
            match &whole["arguments"] {
                Value::String(text) if !text.is_empty() => {
                    call.text = Text::default();
                    call.text.push(super::piece::plain(text));
                }
                object @ Value::Object(_) => {
                    call.text = Text::default();
                    call.object = Some(object.clone());
                }
                _ => {}
            }
            blocks.begin(Block::Call(call));
        }
        _ => {
            blocks.begin(Block::Opaque(whole));
        }
    }
    false
}

impl Decoder for ResponsesDecoder {
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        let is_known = matches!(event, "" | "message" | "error") || event.starts_with("response.");
        let piece = match Piece::parse(data) {
            Ok(piece) => piece,
            Err(_) if !is_known => return Ok(()),
            Err(error) => return Err(error),
        };
        let value = &piece.value;
        let kind = value["type"].as_str().unwrap_or(event);
        match kind {
            "response.output_item.added" => self.begin(&piece, out),
            "response.output_item.done" => self.finish_item(value, &value["item"], &piece, out),
            "response.output_text.delta" | "response.refusal.delta" => {
                self.text(&piece, false, out)?;
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                self.text(&piece, true, out)?;
            }
            "response.function_call_arguments.delta" => self.arguments(&piece, out)?,
            "response.completed" | "response.incomplete" => self.finish(&piece, out),
            "response.failed" | "error" => return Err(refusal::in_answer(value)),
            _ if event == "error" => return Err(refusal::in_answer(value)),
            _ if value["object"] == "response" && value["status"] == "failed" => {
                return Err(refusal::in_answer(&json!({ "response": value })));
            }
            _ if value["object"] == "response" => self.finish(&piece, out),
            _ if !value["error"].is_null() => return Err(refusal::in_answer(value)),
            _ => {}
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        if self.stop.is_some() {
            Progress::Over
        } else {
            Progress::Open
        }
    }

    fn size(&self) -> usize {
        self.size
    }

    fn end(self: Box<Self>) -> Result<DecodedAnswer, ModelError> {
        let mut stop = self.stop.ok_or_else(broken_off)?;
        let mut blocks = Blocks::default();
        let mut has_refused = false;
        for item in self.items.into_values() {
            has_refused |= item_blocks(item, &mut blocks);
        }
        if has_refused && stop == StopReason::Done {
            stop = StopReason::Filtered;
        }
        Ok(DecodedAnswer {
            answer: ModelAnswer {
                parts: blocks.finish(WireFormat::Responses),
                stop,
                usage: self.usage,
            },
            claims_calls: false,
            lacks_reason: false,
        })
    }
}
