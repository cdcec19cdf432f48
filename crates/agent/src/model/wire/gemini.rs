//! Gemini API of Google.
//! <https://ai.google.dev/api/generate-content>

use super::blocks::{Block, Blocks, CallBlock};
use super::piece::Piece;
use super::{
    DecodedAnswer, Decoder, Progress, WireFormat, broken_off, refusal, sent_arguments, stop_reason,
    unreadable,
};
use crate::model::{Delta, ModelError, Prompt};
use crate::{Message, MessagePart, ModelAnswer, ToolCall, Usage};
use serde_json::{Value, json};

/// Prefix of the ids that we give to calls without one; they are not sent back.
const OWN_ID: &str = "call#";
/// Stands in for a missing signature. Newer models refuse a call without one.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Encodes a request.
pub(super) fn encode(prompt: &Prompt<'_>, model: &str) -> Value {
    let needs_signatures = model.contains("gemini-3");
    let mut contents = Vec::new();
    for message in prompt.messages {
        match message {
            Message::User { text } => {
                contents.push(json!({ "role": "user", "parts": [{ "text": text }] }));
            }
            Message::Assistant { parts } => {
                let parts = encode_parts(parts, needs_signatures);
                if !parts.is_empty() {
                    contents.push(json!({ "role": "model", "parts": parts }));
                }
            }
            Message::Results { results } => {
                let parts: Vec<Value> = results
                    .iter()
                    .map(|result| {
                        let mut response = json!({ "name": result.name,
                            "response": { "name": result.name, "content": result.text } });
                        if !is_own_id(&result.id) {
                            response["id"] = result.id.as_str().into();
                        }
                        json!({ "functionResponse": response })
                    })
                    .collect();
                contents.push(json!({ "role": "user", "parts": parts }));
                let images = results.iter().flat_map(|result| &result.images);
                let images: Vec<Value> = images
                    .map(|image| json!({ "inline_data": { "mime_type": image.mime, "data": image.base64 } }))
                    .collect();
                if !images.is_empty() {
                    contents.push(json!({ "role": "user", "parts": images }));
                }
            }
        }
    }
    let mut body = json!({
        "generationConfig": { "thinkingConfig": { "includeThoughts": true } },
        "systemInstruction": { "parts": [{ "text": prompt.system }] },
    });
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            json!({ "name": tool.name, "description": tool.description,
                "parametersJsonSchema": tool.schema })
        });
        body["tools"] = json!([{ "functionDeclarations": tools.collect::<Vec<Value>>() }]);
    }
    body["contents"] = contents.into();
    body
}

/// Encodes an answer. A signature belongs to the text or call after it.
fn encode_parts(parts: &[MessagePart], needs_signatures: bool) -> Vec<Value> {
    let calls = || {
        parts.iter().filter_map(|part| match part {
            MessagePart::Call(call) => Some(call),
            _ => None,
        })
    };
    let mut sent = Vec::new();
    let mut pending: Option<&String> = None;
    let mut is_first_call = true;
    for part in parts {
        match part {
            // Logs of earlier versions hold the signatures of calls twice.
            MessagePart::Signature { value }
                if calls().any(|call| call.signatures.contains(value)) => {}
            MessagePart::Signature { value } => pending = Some(value),
            MessagePart::Text { text } => {
                sent.push(signed(json!({ "text": text }), pending.take()));
            }
            MessagePart::Call(call) => {
                let signature = call.signatures.first().or_else(|| pending.take());
                let mut part = signed(json!({ "functionCall": encode_call(call) }), signature);
                if signature.is_none() && needs_signatures && is_first_call {
                    part["thoughtSignature"] = NO_SIGNATURE.into();
                }
                is_first_call = false;
                sent.push(part);
            }
            MessagePart::Reasoning { .. } | MessagePart::Opaque { .. } => {}
        }
    }
    // The signature of a whole answer is sent beside an empty text, as it arrived.
    if let Some(signature) = pending
        && !sent.is_empty()
    {
        sent.push(signed(json!({ "text": "" }), Some(signature)));
    }
    sent
}

fn encode_call(call: &ToolCall) -> Value {
    let mut sent = json!({});
    if !is_own_id(&call.id) {
        sent["id"] = call.id.as_str().into();
    }
    sent["name"] = call.name.as_str().into();
    sent["args"] = sent_arguments(call);
    sent
}

fn signed(mut part: Value, signature: Option<&String>) -> Value {
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.as_str().into();
    }
    part
}

fn is_own_id(id: &str) -> bool {
    id.is_empty() || id.starts_with(OWN_ID)
}

/// Decoder of one answer.
#[derive(Debug, Default)]
pub(super) struct GeminiDecoder {
    blocks: Blocks,
    calls: usize,
    stop: Option<String>,
    usage: Option<Usage>,
}

impl GeminiDecoder {
    fn chunk(
        &mut self,
        value: &Value,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        if !value["error"].is_null() {
            return Err(refusal::in_answer(value));
        }
        if !value.is_object() {
            return Err(unreadable("a piece that is no object"));
        }
        if let Some(reason) = value["promptFeedback"]["blockReason"].as_str() {
            // The prompt was refused. Its block reasons differ from the finish reasons of answers.
            self.stop = Some(match stop_reason(reason) {
                crate::StopReason::Filtered => reason.to_owned(),
                _ => "SAFETY".to_owned(),
            });
        }
        let candidate = &value["candidates"][0];
        for part in candidate["content"]["parts"]
            .as_array()
            .into_iter()
            .flatten()
        {
            self.part(part, piece, out)?;
        }
        match candidate["finishReason"].as_str() {
            Some(
                word @ ("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE"),
            ) => {
                return Err(ModelError::passing(format!(
                    "the model's answer could not be read by its own server ({word})"
                )));
            }
            Some(word) => self.stop = Some(word.to_owned()),
            None => {}
        }
        self.count(&value["usageMetadata"]);
        Ok(())
    }

    fn part(
        &mut self,
        part: &Value,
        piece: &Piece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let signature = part["thoughtSignature"]
            .as_str()
            .or_else(|| part["thought_signature"].as_str());
        let signature = signature.map(|text| piece.string(text));
        let call = part
            .get("functionCall")
            .or_else(|| part.get("function_call"));
        if let Some(call) = call {
            let name = piece.string(call["name"].as_str().unwrap_or_default());
            let id = match call["id"].as_str().filter(|id| !id.is_empty()) {
                Some(id) => piece.string(id),
                None => format!("{OWN_ID}{name}#{}", self.calls),
            };
            self.calls += 1;
            let mut block = CallBlock {
                id,
                name,
                signatures: signature.into_iter().collect(),
                ..CallBlock::default()
            };
            match &call["args"] {
                Value::Null => {}
                Value::String(text) => block.text.push(piece.fragment(text)),
                args => block.object = Some(piece.data(args)),
            }
            self.blocks.grow(call.to_string().len());
            out.push(block.delta());
            self.blocks.begin(Block::Call(block));
            return Ok(());
        }
        if let Some(signature) = signature {
            self.blocks.grow(signature.len());
            self.blocks.begin(Block::Signature(signature));
        }
        match &part["text"] {
            Value::String(text) if part["thought"] == true => {
                self.blocks.reasoning(piece.fragment(text), out);
            }
            Value::String(text) => self.blocks.text(piece.fragment(text), out),
            Value::Null => {
                let kind = part
                    .as_object()
                    .and_then(|fields| fields.keys().find(|key| !key.starts_with("thought")));
                if let Some(kind) = kind {
                    let line = format!("\n[a `{}` that cannot be shown]\n", refusal::told(kind));
                    self.blocks.text(piece.fragment(&line), out);
                }
            }
            _ => return Err(unreadable("a text that is none")),
        }
        Ok(())
    }

    fn count(&mut self, usage: &Value) {
        let told = |field: &str| usage[field].as_u64();
        let of_tools = told("toolUsePromptTokenCount").unwrap_or(0);
        let input = told("promptTokenCount")
            .unwrap_or(0)
            .saturating_add(of_tools);
        if input == 0 {
            return;
        }
        let thoughts = told("thoughtsTokenCount").unwrap_or(0);
        let rest = told("totalTokenCount").and_then(|total| total.checked_sub(input));
        let Some(output) = told("candidatesTokenCount")
            .map(|tokens| tokens.saturating_add(thoughts))
            .or(rest)
        else {
            return;
        };
        self.usage = Some(Usage {
            input,
            output,
            cached: told("cachedContentTokenCount").unwrap_or(0),
            cache_written: 0,
            reasoning: thoughts,
        });
    }
}

impl Decoder for GeminiDecoder {
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        let piece = match Piece::parse(data) {
            Ok(piece) => piece,
            Err(_) if !matches!(event, "" | "message" | "error") => return Ok(()),
            Err(error) => return Err(error),
        };
        match &piece.value {
            value if event == "error" => Err(refusal::in_answer(value)),
            // Without `alt=sse`, all chunks arrive in one list.
            Value::Array(chunks) => chunks
                .iter()
                .try_for_each(|chunk| self.chunk(chunk, &piece, out)),
            chunk => self.chunk(chunk, &piece, out),
        }
    }

    fn progress(&self) -> Progress {
        if self.stop.is_some() {
            Progress::Stopped
        } else {
            Progress::Open
        }
    }

    fn size(&self) -> usize {
        self.blocks.size()
    }

    fn end(self: Box<Self>) -> Result<DecodedAnswer, ModelError> {
        let word = self.stop.ok_or_else(broken_off)?;
        Ok(DecodedAnswer {
            answer: ModelAnswer {
                parts: self.blocks.finish(WireFormat::Gemini),
                stop: stop_reason(&word),
                usage: self.usage,
            },
            claims_calls: false,
            lacks_reason: false,
        })
    }
}
