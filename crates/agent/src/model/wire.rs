//! Our words in the words of the adapter library, and back.

use super::{ModelError, Prompt, quota};
use crate::{Message, MessagePart, ModelAnswer, StopReason, ToolCall, Usage};
use genai::adapter::AdapterKind;
use genai::chat::{
    Binary, BinarySource, CacheControl, ChatMessage, ChatRequest, ChatRole, ContentPart,
    CustomPart, MessageContent, StopReason as WireStop, StreamEnd, Tool, ToolCall as WireCall,
    ToolResponse, Usage as WireUsage,
};
use genai::{Error, ModelIden};
use glovebox_proto::{Remedy, Setting};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// Most of what a server says in a failure that is passed on.
const MAX_ERROR_CHARS: usize = 300;

pub(super) fn request(prompt: &Prompt<'_>, model: &ModelIden) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(prompt.messages.len());
    for message in prompt.messages {
        match message {
            Message::User { text } => messages.push(ChatMessage::user(text.as_str())),
            Message::Assistant { parts } => {
                let parts: Vec<ContentPart> =
                    parts.iter().map(|part| content(part, model)).collect();
                messages.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
            }
            Message::Results { results } => {
                let responses: Vec<ToolResponse> = results
                    .iter()
                    .map(|result| {
                        ToolResponse::new(result.id.as_str(), result.text.as_str())
                            .with_fn_name(result.name.as_str())
                    })
                    .collect();
                // All in one message: providers want the answers to parallel calls together.
                messages.push(ChatMessage::from(responses));
                let images: Vec<ContentPart> = results
                    .iter()
                    .flat_map(|result| &result.images)
                    .map(|image| {
                        ContentPart::Binary(Binary::new(
                            image.mime.as_str(),
                            BinarySource::Base64(image.base64.as_str().into()),
                            None,
                        ))
                    })
                    .collect();
                if !images.is_empty() {
                    messages.push(ChatMessage::user(MessageContent::from_parts(images)));
                }
            }
        }
    }
    let tools = prompt.tools.iter().map(|tool| {
        Tool::new(tool.name.as_str())
            .with_description(tool.description.as_str())
            .with_schema(tool.schema.clone())
    });
    if model.adapter_kind == AdapterKind::Anthropic {
        mark(&mut messages);
    }
    let request = ChatRequest::new(messages).with_system(prompt.system);
    // Some servers refuse a list of no tools.
    if prompt.tools.is_empty() {
        return request;
    }
    request.with_tools(tools)
}

/// Marks where Anthropic's prompt cache is to end: others decide that by themselves. Behind the newest
/// message that is not the model's, so that the next turn finds all before it, and behind the one before
/// that, which is looked for when a turn has brought more blocks than the provider looks back.
/// <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>
fn mark(messages: &mut [ChatMessage]) {
    let told = messages
        .iter_mut()
        .rev()
        .filter(|message| message.role != ChatRole::Assistant);
    for message in told.take(2) {
        message.options = Some(CacheControl::Ephemeral.into());
    }
}

fn content(part: &MessagePart, model: &ModelIden) -> ContentPart {
    match part {
        MessagePart::Text { text } => ContentPart::Text(text.clone()),
        MessagePart::Reasoning { text } => ContentPart::ReasoningContent(text.clone()),
        MessagePart::Signature { value } => ContentPart::ThoughtSignature(value.clone()),
        MessagePart::Opaque { data } => ContentPart::Custom(CustomPart {
            model_iden: Some(model.clone()),
            data: data.clone(),
        }),
        MessagePart::Call(call) => ContentPart::ToolCall(WireCall {
            call_id: call.id.clone(),
            fn_name: call.name.clone(),
            // Providers refuse a conversation whose calls are no objects, so that one answer that was
            // cut in the middle of a call would spoil all that follow.
            fn_arguments: match &call.arguments {
                Value::Object(_) => call.arguments.clone(),
                Value::Null => json!({}),
                other => json!({ "not_an_object": other }),
            },
            thought_signatures: (!call.signatures.is_empty()).then(|| call.signatures.clone()),
        }),
    }
}

/// The end of a stream as one answer.
// TRUST: a model server chose all of this; sizes were bounded while it came.
pub(super) fn answer(end: StreamEnd) -> ModelAnswer {
    let mut parts = Vec::new();
    let reasoning = end.captured_reasoning_content;
    for part in end
        .captured_content
        .map(MessageContent::into_parts)
        .unwrap_or_default()
    {
        match part {
            ContentPart::Text(text) if text.is_empty() => {}
            ContentPart::Text(text) => parts.push(MessagePart::Text { text }),
            ContentPart::ReasoningContent(text) => parts.push(MessagePart::Reasoning { text }),
            ContentPart::ThoughtSignature(value) => parts.push(MessagePart::Signature { value }),
            ContentPart::Custom(custom) => parts.push(MessagePart::Opaque { data: custom.data }),
            ContentPart::ToolCall(call) => parts.push(MessagePart::Call(ToolCall {
                id: call.call_id,
                name: call.fn_name,
                arguments: call.fn_arguments,
                signatures: call.thought_signatures.unwrap_or_default(),
            })),
            ContentPart::Binary(_) | ContentPart::ToolResponse(_) => {}
        }
    }
    let has_reasoning = parts
        .iter()
        .any(|part| matches!(part, MessagePart::Reasoning { .. }));
    if let Some(text) = reasoning
        && !has_reasoning
        && !text.is_empty()
    {
        parts.insert(0, MessagePart::Reasoning { text });
    }
    ModelAnswer {
        parts,
        stop: end.captured_stop_reason.map_or(StopReason::Done, stop),
        usage: end.captured_usage.as_ref().and_then(usage),
    }
}

fn stop(reason: WireStop) -> StopReason {
    match reason {
        WireStop::Completed(_) | WireStop::ToolCall(_) | WireStop::StopSequence(_) => {
            StopReason::Done
        }
        WireStop::MaxTokens(_) => StopReason::Length,
        WireStop::ContentFilter(_) => StopReason::Filtered,
        WireStop::Other(word) => StopReason::Other(word),
    }
}

/// What a server counted; `None` when it did not: no prompt has no tokens.
fn usage(usage: &WireUsage) -> Option<Usage> {
    let told = |number: Option<i32>| number.and_then(|n| u64::try_from(n).ok());
    let count = |number: Option<i32>| told(number).unwrap_or(0);
    let input = told(usage.prompt_tokens).filter(|&tokens| tokens > 0)?;
    let rest = told(usage.total_tokens).and_then(|total| total.checked_sub(input));
    Some(Usage {
        input,
        output: told(usage.completion_tokens).or(rest)?,
        cached: count(
            usage
                .prompt_tokens_details
                .as_ref()
                .and_then(|details| details.cached_tokens),
        ),
        cache_written: count(
            usage
                .prompt_tokens_details
                .as_ref()
                .and_then(|details| details.cache_creation_tokens),
        ),
        reasoning: count(
            usage
                .completion_tokens_details
                .as_ref()
                .and_then(|details| details.reasoning_tokens),
        ),
    })
}

/// A failure of the adapter library as one of ours. In a stream the answer of the server sits inside
/// another error.
pub(super) fn error(error: Error) -> ModelError {
    match error {
        Error::WebStream { cause, error, .. } => match error.downcast::<Error>() {
            Ok(inner) => self::error(*inner),
            Err(other) => ModelError::passing(format!(
                "the connection to the model server failed: {}",
                chain(other.as_ref(), &cause)
            )),
        },
        Error::ChatResponse { body, .. } => {
            let kind = body["type"]
                .as_str()
                .or_else(|| body["error"]["type"].as_str());
            let is_passing = kind.is_some_and(|kind| {
                [
                    "overloaded",
                    "rate_limit",
                    "server_error",
                    "api_error",
                    "timeout",
                ]
                .iter()
                .any(|word| kind.contains(word))
            });
            let text = body.to_string();
            if quota::is_exhausted(None, &text) {
                return quota::error(None, &told(&text));
            }
            ModelError {
                is_passing,
                is_too_long: says_too_long(&text),
                ..ModelError::lasting(format!(
                    "the model server broke the answer off: {}",
                    told(&text)
                ))
            }
        }
        Error::StreamParse { serde_error, .. } => ModelError::passing(format!(
            "the model server sent what is not JSON: {serde_error}"
        )),
        Error::HttpError {
            status,
            body,
            headers,
            ..
        } => http(status.as_u16(), &body, retry_after(&headers)),
        other => {
            let status = other.status().map(|status| status.as_u16());
            match status {
                Some(status) => http(status, "", None),
                None => ModelError::lasting(format!(
                    "the model cannot be asked: {}",
                    told(&other.to_string())
                )),
            }
        }
    }
}

/// How long a server wants to be left alone: in seconds, or until a date (RFC 9110, 10.2.3).
// TRUST: whatever it says, the policy bounds it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|text| text.parse().ok()) {
        return Some(Duration::from_millis(ms));
    }
    let asked = text("retry-after")?;
    if let Ok(secs) = asked.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = httpdate::parse_http_date(asked).ok()?;
    // By the server's own clock where it tells it: ours may go wrong.
    let now = text("date")
        .and_then(|text| httpdate::parse_http_date(text).ok())
        .unwrap_or_else(SystemTime::now);
    // A date that has passed means now.
    Some(date.duration_since(now).unwrap_or_default())
}

fn http(status: u16, body: &str, retry_after: Option<Duration>) -> ModelError {
    let said = said(body);
    if quota::is_exhausted(Some(status), body) {
        return quota::error(Some(status), &said);
    }
    let tail = if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    };
    let (what, remedy) = match status {
        401 | 403 => (
            "the model server does not accept the key",
            Some(Remedy::from(
                "set the key of the provider in the environment",
            )),
        ),
        404 => (
            "the model server does not know this model or address",
            Some(Remedy::from([
                "name another with ".into(),
                Setting::Model.of("PROVIDER/NAME"),
                ", or correct the base URL".into(),
            ])),
        ),
        413 => ("the conversation is too long for the model server", None),
        429 => (
            "the model server has had too many requests",
            Some(Remedy::from(
                "wait, or use another model; `glovebox sessions resume` goes on from here",
            )),
        ),
        500.. => (
            "the model server failed",
            Some(Remedy::from(
                "try again later with `glovebox sessions resume`",
            )),
        ),
        _ => ("the model server refused the request", None),
    };
    ModelError {
        message: format!("{what} (HTTP {status}){tail}"),
        remedy,
        status: Some(status),
        is_passing: matches!(status, 408 | 409 | 425 | 429 | 500..),
        is_exhausted: false,
        is_too_long: status == 413 || (matches!(status, 400 | 422) && says_too_long(body)),
        retry_after,
    }
}

/// Words with which servers refuse a prompt that is longer than what their model can be told at once:
/// Anthropic's, OpenAI's and those of compatible servers, Gemini's, llama.cpp's.
const TOO_LONG: [&str; 7] = [
    "prompt is too long",
    "exceed context limit",
    "context_length_exceeded",
    "maximum context length",
    "context window",
    "exceeds the maximum number of tokens",
    "available context size",
];

fn says_too_long(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    TOO_LONG.iter().any(|words| body.contains(words))
}

/// What a server wrote into its refusal, found where the providers put it.
fn said(body: &str) -> String {
    let message = serde_json::from_str::<Value>(body).ok().and_then(|value| {
        let error = &value["error"];
        error["message"]
            .as_str()
            .or_else(|| error.as_str())
            .or_else(|| value["message"].as_str())
            .map(str::to_owned)
    });
    told(&message.unwrap_or_else(|| body.to_owned()))
}

// TRUST: a server's words reach a terminal and the log: one line, bounded, nothing that acts.
fn told(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_ERROR_CHARS)
        .collect();
    line.trim().to_owned()
}

fn chain(error: &dyn std::error::Error, cause: &str) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let text = deepest.to_string();
    told(if text.is_empty() { cause } else { &text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn asked(pairs: &[(&'static str, &'static str)]) -> Option<Duration> {
        let header = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        retry_after(&pairs.iter().map(header).collect())
    }

    #[test]
    fn a_prompt_that_is_too_long_is_told_apart_from_other_refusals() {
        for words in [
            "prompt is too long: 208310 tokens > 200000 maximum",
            "This model's maximum context length is 8192 tokens. However, you requested 9000",
            "Your input exceeds the context window of this model.",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "the request exceeds the available context size",
        ] {
            let body = json!({ "error": { "message": words } }).to_string();
            assert!(http(400, &body, None).is_too_long, "{words}");
            // The same words in a failure of another kind mean something else.
            assert!(!http(429, &body, None).is_too_long, "{words}");
        }
        assert!(!http(400, "{\"error\":{\"message\":\"no such tool\"}}", None).is_too_long);
        assert!(http(413, "", None).is_too_long);
    }

    #[test]
    fn a_server_names_its_wait_in_seconds_or_as_a_date() {
        let now = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let until = |date| asked(&[now, ("retry-after", date)]);
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(until("7"), secs(7));
        assert_eq!(until("Sun, 06 Nov 1994 08:50:07 GMT"), secs(30));
        assert_eq!(until("Sunday, 06-Nov-94 08:50:07 GMT"), secs(30));
        assert_eq!(until("Sun, 06 Nov 1994 08:00:00 GMT"), secs(0));
        assert_eq!(until("tomorrow"), None);
        assert_eq!(asked(&[now]), None);
        // Without a clock of the server's it is ours that counts: the date has long passed.
        let past = "Sun, 06 Nov 1994 08:50:07 GMT";
        assert_eq!(asked(&[("retry-after", past)]), secs(0));
        let ms = asked(&[("retry-after-ms", "250"), ("retry-after", "9")]);
        assert_eq!(ms, Some(Duration::from_millis(250)));
    }
}
