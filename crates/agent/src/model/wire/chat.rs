//! Chat completions API of OpenAI and compatible servers, with their deviations.
//! <https://platform.openai.com/docs/api-reference/chat-streaming>

use super::blocks::{Block, Blocks, CallBlock};
use super::piece::Piece;
use super::{
    DecodedAnswer, Decoder, Progress, WireFormat, broken_off, is_own, refusal, sent_arguments,
    stop_reason, unreadable,
};
use crate::model::{Delta, ModelError, Prompt};
use crate::{Message, MessagePart, ModelAnswer, StopReason, Usage};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Encodes a request.
pub(super) fn encode(prompt: &Prompt<'_>, model: &str) -> Value {
    let mut messages = vec![json!({ "role": "system", "content": prompt.system })];
    for message in prompt.messages {
        match message {
            Message::User { text } => messages.push(json!({ "role": "user", "content": text })),
            Message::Assistant { parts } => messages.extend(encode_answer(parts)),
            Message::Results { results } => {
                messages.extend(results.iter().map(|result| {
                    json!({ "role": "tool", "content": result.text, "tool_call_id": result.id })
                }));
                let images = results.iter().flat_map(|result| &result.images);
                let images: Vec<Value> = images
                    .map(|image| {
                        let url = format!("data:{};base64,{}", image.mime, image.base64);
                        json!({ "type": "image_url", "image_url": { "url": url } })
                    })
                    .collect();
                if !images.is_empty() {
                    messages.push(json!({ "role": "user", "content": images }));
                }
            }
        }
    }
    let mut body = json!({ "model": model, "stream": true });
    // Some servers refuse an empty list of tools.
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            json!({ "type": "function", "function": { "name": tool.name,
                "description": tool.description, "parameters": tool.schema, "strict": false } })
        });
        body["tools"] = tools.collect();
    }
    body["messages"] = messages.into();
    body["stream_options"] = json!({ "include_usage": true });
    body
}

/// Encodes an answer of the model; `None` if it has neither text nor calls.
fn encode_answer(parts: &[MessagePart]) -> Option<Value> {
    let (mut texts, mut thoughts, mut details, mut calls) = (vec![], vec![], vec![], vec![]);
    for part in parts {
        match part {
            MessagePart::Text { text } => texts.push(text.as_str()),
            MessagePart::Reasoning { text } => thoughts.push(text.as_str()),
            MessagePart::Opaque { data, format } => {
                let kind = data["type"].as_str().unwrap_or_default();
                if is_own(*format, WireFormat::Chat) && kind.starts_with("reasoning.") {
                    details.push(data.clone());
                }
            }
            MessagePart::Signature { .. } => {}
            MessagePart::Call(call) => {
                let mut sent = json!({ "type": "function", "id": call.id, "function": {
                    "name": call.name, "arguments": sent_arguments(call).to_string() } });
                for (field, value) in &call.extra {
                    sent[field] = value.clone();
                }
                calls.push(sent);
            }
        }
    }
    if texts.is_empty() && calls.is_empty() {
        return None;
    }
    let mut message = json!({ "role": "assistant", "content": texts.join("\n\n") });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    if !thoughts.is_empty() {
        message["reasoning_content"] = thoughts.join("\n").into();
    }
    if !details.is_empty() {
        message["reasoning_details"] = details.into();
    }
    Some(message)
}

/// Decoder of one answer.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    blocks: Blocks,
    /// Current call of each `index`.
    by_index: BTreeMap<u64, usize>,
    /// Call of each `id`.
    by_id: BTreeMap<String, usize>,
    last_call: Option<usize>,
    /// Index of reasoning details in `blocks`, by their kind and `index`.
    details: BTreeMap<(String, u64), usize>,
    choice: Option<u64>,
    stop: Option<String>,
    is_done: bool,
    has_refused: bool,
    usage: Option<Usage>,
}

impl ChatDecoder {
    fn choice(
        &mut self,
        choice: &Value,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        // One choice is requested. Fragments of a second one would be mixed into the first.
        let index = choice["index"].as_u64().unwrap_or(0);
        if *self.choice.get_or_insert(index) != index {
            return Ok(());
        }
        let delta = match choice.get("delta").filter(|delta| !delta.is_null()) {
            Some(delta) => delta,
            None => &choice["message"],
        };
        match delta {
            Value::Null => {}
            Value::Object(fields) => self.delta(fields, piece, out)?,
            _ => return Err(unreadable("a delta that is no object")),
        }
        self.count(&choice["usage"]);
        match &choice["finish_reason"] {
            Value::Null => {}
            Value::String(word) if word.is_empty() => {}
            Value::String(word) if word == "error" => {
                return Err(ModelError::passing(
                    "the model server broke the answer off (finish_reason error)",
                ));
            }
            Value::String(word) => self.stop = Some(word.clone()),
            _ => return Err(unreadable("a finish_reason that is no text")),
        }
        Ok(())
    }

    fn delta(
        &mut self,
        fields: &Map<String, Value>,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let field = |name: &str| fields.get(name).unwrap_or(&Value::Null);
        let reasoning = text_of(field("reasoning"), "reasoning")?;
        let reasoning_content = text_of(field("reasoning_content"), "reasoning_content")?;
        self.blocks.reasoning(piece.fragment(reasoning), out);
        // Servers that send both fields send the same text.
        if reasoning_content != reasoning {
            self.blocks
                .reasoning(piece.fragment(reasoning_content), out);
        }
        for detail in field("reasoning_details").as_array().into_iter().flatten() {
            self.detail(detail, piece);
        }
        self.content(field("content"), piece, out)?;
        let refusal = text_of(field("refusal"), "refusal")?;
        if !refusal.is_empty() {
            self.has_refused = true;
            self.blocks.text(piece.fragment(refusal), out);
        }
        match field("tool_calls") {
            Value::Null => {}
            Value::Array(calls) => {
                for call in calls {
                    self.call(call, piece, out)?;
                }
            }
            call @ Value::Object(_) => self.call(call, piece, out)?,
            _ => return Err(unreadable("tool_calls that are no list")),
        }
        // Older format, from before lists of calls.
        if field("function_call").is_object() {
            self.call(&json!({ "function": field("function_call") }), piece, out)?;
        }
        Ok(())
    }

    fn content(
        &mut self,
        content: &Value,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let Value::Array(parts) = content else {
            self.blocks
                .text(piece.fragment(text_of(content, "content")?), out);
            return Ok(());
        };
        for part in parts {
            let kind = part["type"].as_str().unwrap_or("text");
            match (part, kind) {
                (Value::String(text), _) => self.blocks.text(piece.fragment(text), out),
                (_, "text" | "output_text") => {
                    self.blocks
                        .text(piece.fragment(text_of(&part["text"], "text")?), out);
                }
                (_, "thinking" | "reasoning") => self.thinking(&part[kind], piece, out)?,
                (_, "refusal") => {
                    self.has_refused = true;
                    self.blocks
                        .text(piece.fragment(text_of(&part["refusal"], "refusal")?), out);
                }
                _ => {
                    let line = format!("\n[a `{}` that cannot be shown]\n", refusal::told(kind));
                    self.blocks.text(piece.fragment(&line), out);
                }
            }
        }
        Ok(())
    }

    /// Reads reasoning in a content list: text, or a list of texts.
    fn thinking(
        &mut self,
        thinking: &Value,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        match thinking {
            Value::Array(parts) => {
                for part in parts {
                    let text = part.get("text").unwrap_or(part);
                    self.blocks
                        .reasoning(piece.fragment(text_of(text, "thinking")?), out);
                }
            }
            text => self
                .blocks
                .reasoning(piece.fragment(text_of(text, "thinking")?), out),
        }
        Ok(())
    }

    /// Reads reasoning details, which arrive in fragments with the same index.
    fn detail(&mut self, detail: &Value, piece: &Piece) {
        let detail = piece.data(detail);
        self.blocks.grow(detail.to_string().len());
        let kind = detail["type"].as_str().unwrap_or_default().to_owned();
        let key = detail["index"].as_u64().map(|index| (kind, index));
        let known = key.as_ref().and_then(|key| self.details.get(key)).copied();
        if let Some(at) = known
            && let (Some(Block::Opaque(Value::Object(all))), Value::Object(new)) =
                (self.blocks.blocks.get_mut(at), &detail)
        {
            for (field, value) in new {
                let is_written = matches!(field.as_str(), "text" | "summary" | "data");
                match (all.get_mut(field), value) {
                    (Some(Value::String(text)), Value::String(more)) if is_written => {
                        text.push_str(more);
                    }
                    (Some(_), Value::Null) => {}
                    _ => {
                        all.insert(field.clone(), value.clone());
                    }
                }
            }
            return;
        }
        let at = self.blocks.begin(Block::Opaque(detail));
        if let Some(key) = key {
            self.details.insert(key, at);
        }
    }

    fn call(
        &mut self,
        call: &Value,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let Some(fields) = call.as_object() else {
            return Err(unreadable("a piece of a call that is no object"));
        };
        let function = &call["function"];
        let index = call["index"].as_u64();
        let id = piece.string(call["id"].as_str().unwrap_or_default());
        let name = piece.string(text_of(&function["name"], "name")?);
        let at = if let Some(at) = self.find_call(index, &id, &name) {
            at
        } else {
            let begun = CallBlock {
                id: id.clone(),
                name: name.clone(),
                ..CallBlock::default()
            };
            self.blocks.begin(Block::Call(begun))
        };
        self.last_call = Some(at);
        if let Some(index) = index {
            self.by_index.insert(index, at);
        }
        if !id.is_empty() {
            self.by_id.insert(id.clone(), at);
        }
        let Some(block) = self.blocks.call(at) else {
            return Err(unreadable("a piece of a call for no call"));
        };
        if block.name.is_empty() {
            block.name.clone_from(&name);
        }
        if block.id.is_empty() {
            block.id = id;
        }
        if !name.is_empty() && block.name != name {
            return Err(unreadable("a call with two names"));
        }
        for (field, value) in fields {
            if !matches!(field.as_str(), "index" | "id" | "type" | "function") && !value.is_null() {
                block.extra.insert(piece.string(field), piece.data(value));
            }
        }
        match &function["arguments"] {
            Value::Null => out.push(block.delta()),
            Value::String(text) => {
                self.blocks.append(at, piece.fragment(text), out);
            }
            object @ Value::Object(_) if block.text.is_empty() => {
                block.object = Some(piece.data(object));
                out.push(block.delta());
                self.blocks.grow(object.to_string().len());
            }
            _ => return Err(unreadable("arguments that are neither text nor an object")),
        }
        Ok(())
    }

    /// Returns the call that a fragment continues; `None` if it begins a new one.
    fn find_call(&mut self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let known = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None if !id.is_empty() => self.by_id.get(id).copied(),
            None => self.last_call,
        }?;
        let block = self.blocks.call(known)?;
        let has_name = !name.is_empty() && !block.name.is_empty();
        let has_other_id = !id.is_empty() && !block.id.is_empty() && id != block.id;
        // After complete arguments, a name begins the next call: some servers number none of them.
        let begins = has_name
            && (has_other_id || block.is_whole() || (index.is_none() && name != block.name));
        (!begins).then_some(known)
    }

    fn count(&mut self, usage: &Value) {
        let told = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
        let Some(input) = told("/prompt_tokens").filter(|&tokens| tokens > 0) else {
            return;
        };
        let rest = told("/total_tokens").and_then(|total| total.checked_sub(input));
        let Some(output) = told("/completion_tokens").or(rest) else {
            return;
        };
        self.usage = Some(Usage {
            input,
            output,
            cached: told("/prompt_tokens_details/cached_tokens").unwrap_or(0),
            cache_written: told("/prompt_tokens_details/cache_creation_tokens").unwrap_or(0),
            reasoning: told("/completion_tokens_details/reasoning_tokens").unwrap_or(0),
        });
    }
}

/// Returns a string field; empty if it is null.
fn text_of<'a>(value: &'a Value, field: &str) -> Result<&'a str, ModelError> {
    match value {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        _ => Err(unreadable(format!("{field} that is no text"))),
    }
}

impl Decoder for ChatDecoder {
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let piece = match Piece::parse(data) {
            Ok(piece) => piece,
            // Keep-alives and unknown kinds of events.
            Err(_) if !matches!(event, "" | "message" | "error" | "data") => return Ok(()),
            Err(error) => return Err(error),
        };
        let value = &piece.value;
        if event == "error" || !value["error"].is_null() || value["type"] == "error" {
            return Err(refusal::in_answer(value));
        }
        let is_document = value["object"] == "chat.completion";
        match value {
            Value::Object(_) => {}
            _ if event.is_empty() => return Err(refusal::in_answer(value)),
            _ => return Ok(()),
        }
        match &value["choices"] {
            Value::Null => {}
            Value::Array(choices) => {
                for choice in choices {
                    self.choice(choice, &piece, out)?;
                }
            }
            _ => return Err(unreadable("choices that are no list")),
        }
        self.count(&value["usage"]);
        self.count(&value["x_groq"]["usage"]);
        self.is_done |= is_document && self.stop.is_some();
        Ok(())
    }

    fn progress(&self) -> Progress {
        match (self.is_done, &self.stop) {
            (true, _) => Progress::Over,
            (false, Some(_)) => Progress::Stopped,
            (false, None) => Progress::Open,
        }
    }

    fn size(&self) -> usize {
        self.blocks.size()
    }

    fn end(self: Box<Self>) -> Result<DecodedAnswer, ModelError> {
        if self.stop.is_none() && !self.is_done {
            return Err(broken_off());
        }
        let word = self.stop.as_deref().unwrap_or("stop");
        let mut stop = stop_reason(word);
        if self.has_refused && stop == StopReason::Done {
            stop = StopReason::Filtered;
        }
        let answer = ModelAnswer {
            parts: self.blocks.finish(WireFormat::Chat),
            stop,
            usage: self.usage,
        };
        let calls = answer.calls();
        let has_whole_calls =
            !calls.is_empty() && calls.iter().all(|call| call.arguments.is_object());
        Ok(DecodedAnswer {
            claims_calls: matches!(word, "tool_calls" | "function_call"),
            lacks_reason: self.stop.is_none() && !has_whole_calls,
            answer,
        })
    }
}
