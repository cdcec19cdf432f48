//! The four wire formats: requests as JSON, and answers from their pieces.
//!
//! In: a prompt, and the events of an answer. Out: the body of a request, and one whole answer or the reason
//! why there is none. Nothing here does I/O. A piece that cannot be read fails the answer; nothing is
//! skipped, joined or taken for an end. New kinds of events are passed over.

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
    /// The format that `provider` speaks.
    pub const fn of_provider(provider: Provider) -> Self {
        match provider {
            Provider::Anthropic => Self::Anthropic,
            Provider::OpenAi | Provider::Ollama => Self::Chat,
            Provider::OpenAiResponses => Self::Responses,
            Provider::Gemini => Self::Gemini,
        }
    }

    /// The path of a streamed request below the base address.
    pub(super) fn path(self, model: &str) -> String {
        match self {
            Self::Anthropic => "messages".to_owned(),
            Self::Chat => "chat/completions".to_owned(),
            Self::Responses => "responses".to_owned(),
            Self::Gemini => format!("models/{model}:streamGenerateContent"),
        }
    }

    /// The body of a request.
    pub(super) fn encode(self, prompt: &Prompt<'_>, model: &str) -> Value {
        match self {
            Self::Anthropic => anthropic::encode(prompt, model),
            Self::Chat => chat::encode(prompt, model),
            Self::Responses => responses::encode(prompt, model),
            Self::Gemini => gemini::encode(prompt, model),
        }
    }

    /// A decoder for one answer.
    pub(super) fn decoder(self) -> Box<dyn Decoder + Send> {
        match self {
            Self::Anthropic => Box::<anthropic::AnthropicDecoder>::default(),
            Self::Chat => Box::<chat::ChatDecoder>::default(),
            Self::Responses => Box::<responses::ResponsesDecoder>::default(),
            Self::Gemini => Box::<gemini::GeminiDecoder>::default(),
        }
    }
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More has to come.
    Open,
    /// The server said why the model stopped; counts may follow.
    Stopped,
    /// Nothing follows.
    Over,
}

/// An answer after its end.
#[derive(Debug)]
pub(super) struct DecodedAnswer {
    pub(super) answer: ModelAnswer,
    /// The end says that tools are called.
    pub(super) claims_calls: bool,
    /// The stream ended in order, but no word said why the model stopped.
    pub(super) lacks_reason: bool,
}

/// Decoder of one answer. Knows nothing of connections and time.
pub(super) trait Decoder {
    /// Reads one event, and appends what is to be shown to `out`.
    ///
    /// # Errors
    /// When the event cannot be read, or reports a failure of the server.
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// How far the answer has come.
    fn progress(&self) -> Progress;

    /// Bytes of the answer so far.
    fn size(&self) -> usize;

    /// Ends the answer after the connection's end or the last event.
    ///
    /// # Errors
    /// When it is not whole.
    fn end(self: Box<Self>) -> Result<DecodedAnswer, ModelError>;
}

/// Decodes the pieces of a recorded body, as they came in packets.
///
/// # Errors
/// As [`crate::RemoteModel`] has them, without a second attempt.
// TRUST: a server chose every byte of this.
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
    // Packets that are there already keep nobody waiting.
    decoding
        .now_or_never()
        .unwrap_or_else(|| Err(unreadable("the stream stood still")))?;
    let decoded = decoder.end()?;
    if decoded.lacks_reason {
        return Err(without_reason());
    }
    Ok(decoded.answer)
}

/// An answer that broke off.
pub(super) fn broken_off() -> ModelError {
    ModelError::passing("the model's answer broke off before its end")
}

/// An answer whose end does not say why the model stopped.
pub(super) fn without_reason() -> ModelError {
    ModelError::passing(
        "the model's answer ended without a finish_reason and may be cut; if the next one ends so too it is taken",
    )
}

/// A piece that cannot be read.
fn unreadable(why: impl std::fmt::Display) -> ModelError {
    ModelError::passing(format!(
        "the model server sent a piece that cannot be read: {}",
        refusal::told(&why.to_string())
    ))
}

/// The arguments of a call as providers accept them. They refuse a conversation whose calls are no objects,
/// so that one answer that was cut in the middle of a call would spoil all that follow.
fn sent_arguments(call: &ToolCall) -> Value {
    match &call.arguments {
        Value::Object(_) => call.arguments.clone(),
        Value::Null => json!({}),
        other => json!({ "not_an_object": other }),
    }
}

/// Signatures of an answer: its own, or else those that an earlier log repeats with its calls.
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

/// True if data of an earlier log, or of this format, belongs into this format's requests.
fn is_own(format: Option<WireFormat>, own: WireFormat) -> bool {
    format.is_none_or(|format| format == own)
}

/// The stop reasons of all formats, by their words.
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
