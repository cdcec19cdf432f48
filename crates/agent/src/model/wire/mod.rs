//! The four wire formats: encoding of requests, and decoding of streamed answers.
//!
//! In: a prompt, and the events of an answer. Out: the body of a request, and a complete answer or
//! an error. This module does no I/O. An event that cannot be parsed fails the answer; nothing is
//! guessed. Unknown kinds of events are ignored.

mod anthropic;
mod blocks;
mod chat;
mod gemini;
mod piece;
pub(super) mod refusal;
mod responses;
pub(super) mod sse;

use super::{Delta, ModelError, Prompt, Provider};
use crate::{MessagePart, ModelAnswer, StopReason, ToolCall, WireFormat};
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use serde_json::{Value, json};

impl WireFormat {
    /// Returns the format that `provider` uses.
    pub const fn of_provider(provider: Provider) -> Self {
        match provider {
            Provider::Anthropic => Self::Anthropic,
            Provider::OpenAi | Provider::Ollama => Self::Chat,
            Provider::OpenAiResponses => Self::Responses,
            Provider::Gemini => Self::Gemini,
        }
    }

    /// Returns the path of a streamed request below the base address.
    pub(super) fn path(self, model: &str) -> String {
        match self {
            Self::Anthropic => "messages".to_owned(),
            Self::Chat => "chat/completions".to_owned(),
            Self::Responses => "responses".to_owned(),
            Self::Gemini => format!("models/{model}:streamGenerateContent"),
        }
    }

    /// Returns the body of a request.
    pub(super) fn encode(self, prompt: &Prompt<'_>, model: &str) -> Value {
        match self {
            Self::Anthropic => anthropic::encode(prompt, model),
            Self::Chat => chat::encode(prompt, model),
            Self::Responses => responses::encode(prompt, model),
            Self::Gemini => gemini::encode(prompt, model),
        }
    }

    /// Returns a decoder for one answer.
    pub(super) fn decoder(self) -> Box<dyn Decoder + Send> {
        match self {
            Self::Anthropic => Box::<anthropic::AnthropicDecoder>::default(),
            Self::Chat => Box::<chat::ChatDecoder>::default(),
            Self::Responses => Box::<responses::ResponsesDecoder>::default(),
            Self::Gemini => Box::<gemini::GeminiDecoder>::default(),
        }
    }
}

/// Progress of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More events are expected.
    Open,
    /// The stop reason has arrived; token counts may follow.
    Stopped,
    /// The answer is complete.
    Over,
}

/// Decoded answer, after its end.
#[derive(Debug)]
pub(super) struct DecodedAnswer {
    pub(super) answer: ModelAnswer,
    /// The stop reason claims that tools are called.
    pub(super) claims_calls: bool,
    /// The stream ended in order, but without a stop reason.
    pub(super) lacks_reason: bool,
}

/// Decoder of one answer, independent of connections and time.
pub(super) trait Decoder {
    /// Decodes one event, and appends the deltas for display to `out`.
    ///
    /// # Errors
    /// If the event cannot be parsed, or reports a failure of the server.
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Returns the progress of the answer.
    fn progress(&self) -> Progress;

    /// Returns the size of the answer so far, in bytes.
    fn size(&self) -> usize;

    /// Ends the answer after the last event or the end of the connection.
    ///
    /// # Errors
    /// If the answer is incomplete.
    fn end(self: Box<Self>) -> Result<DecodedAnswer, ModelError>;
}

/// Decodes a recorded response body, split into packets. Does not block.
///
/// # Errors
/// As [`crate::RemoteModel`], without a retry.
// TRUST: a server chose every byte.
pub fn decode_stream(
    format: WireFormat,
    packets: impl IntoIterator<Item = Vec<u8>>,
) -> Result<ModelAnswer, ModelError> {
    let packets = packets.into_iter().map(|packet| Ok(Bytes::from(packet)));
    let packets: Vec<Result<Bytes, std::io::Error>> = packets.collect();
    let mut decoder = format.decoder();
    let decoding = async {
        let mut events = sse::Events::open(stream::iter(packets)).await?;
        let mut deltas = Vec::new();
        while decoder.progress() != Progress::Over {
            let Some(event) = events.next().await? else {
                break;
            };
            decoder.feed(&event.name, &event.data, &mut deltas)?;
            deltas.clear();
        }
        events.check_any()
    };
    // The packets are in memory, so the future never waits.
    decoding
        .now_or_never()
        .unwrap_or_else(|| Err(unreadable("the stream stood still")))?;
    let decoded = decoder.end()?;
    if decoded.lacks_reason {
        return Err(without_reason());
    }
    Ok(decoded.answer)
}

/// Returns the error for an answer that broke off.
pub(super) fn broken_off() -> ModelError {
    ModelError::passing("the model's answer broke off before its end")
}

/// Returns the error for an answer without a stop reason.
pub(super) fn without_reason() -> ModelError {
    ModelError::passing(
        "the model's answer ended without a finish_reason and may be cut; if the next one ends so too it is taken",
    )
}

/// Returns the error for an event that cannot be parsed.
fn unreadable(why: impl std::fmt::Display) -> ModelError {
    ModelError::passing(format!(
        "the model server sent a piece that cannot be read: {}",
        refusal::told(&why.to_string())
    ))
}

/// Returns the arguments of a call as providers accept them. They refuse a conversation with
/// arguments that are not an object: an answer cut inside a call would make every later request
/// fail.
fn sent_arguments(call: &ToolCall) -> Value {
    match &call.arguments {
        Value::Object(_) => call.arguments.clone(),
        Value::Null => json!({}),
        other => json!({ "not_an_object": other }),
    }
}

/// Returns the signatures of an answer: its own, or those that an earlier log repeats with its
/// calls.
fn signatures(parts: &[MessagePart]) -> Vec<&String> {
    let own: Vec<&String> = parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Signature { value } => Some(value),
            _ => None,
        })
        .collect();
    if !own.is_empty() {
        return own;
    }
    let first_signed = parts.iter().find_map(|part| match part {
        MessagePart::Call(call) if !call.signatures.is_empty() => Some(&call.signatures),
        _ => None,
    });
    first_signed.into_iter().flatten().collect()
}

/// True if opaque data may be sent in the format `own`: it came in that format, or from an earlier
/// log without a format.
fn is_own(format: Option<WireFormat>, own: WireFormat) -> bool {
    format.is_none_or(|format| format == own)
}

/// Returns the stop reason for the word of any format.
fn stop_reason(word: &str) -> StopReason {
    match word {
        "stop" | "end_turn" | "STOP" | "COMPLETE" | "completed" | "complete" | "eos"
        | "stop_sequence" | "tool_calls" | "tool_use" | "function_call" => StopReason::Done,
        "length"
        | "max_tokens"
        | "MAX_TOKENS"
        | "max_output_tokens"
        | "incomplete"
        | "model_context_window_exceeded"
        | "model_length" => StopReason::Length,
        "content_filter"
        | "refusal"
        | "sensitive"
        | "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "LANGUAGE"
        | "ERROR_TOXIC" => StopReason::Filtered,
        other => StopReason::Other(refusal::told(other)),
    }
}
