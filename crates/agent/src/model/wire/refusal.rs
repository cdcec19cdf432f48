//! Failures that servers report, by status or inside an answer, in wordings of many kinds.
//!
//! In: a status and a body, or an event. Out: a [`ModelError`] that says whether and when to retry,
//! and whether the prompt is too long.

use super::super::{ModelError, quota};
use glovebox_proto::{Remedy, Setting};
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Maximum length of a server's message that is passed on.
const MAX_ERROR_CHARS: usize = 300;

/// Converts a failure that a server reports inside an answer. If it names a status, it is treated
/// like a response of that status.
// TRUST: a server chose it. Only its message is passed on, bounded.
pub(super) fn in_answer(value: &Value) -> ModelError {
    let first = value.get(0).unwrap_or(value);
    let response = first.get("response").unwrap_or(first);
    let described = match &response["error"] {
        Value::Null => response,
        error => error,
    };
    let text = serde_json::json!({ "error": described }).to_string();
    let status = ["code", "status", "status_code", "http_code"]
        .iter()
        .find_map(|field| {
            let number = &described[field];
            let number = number.as_u64().or_else(|| number.as_str()?.parse().ok())?;
            u16::try_from(number)
                .ok()
                .filter(|status| (400..600).contains(status))
        });
    if let Some(status) = status {
        return from_status(status, &text, None);
    }
    let said = said(&text);
    if quota::is_exhausted(None, &text) {
        return quota::error(None, &said);
    }
    let words: String = ["type", "code", "status"]
        .iter()
        .filter_map(|field| described[field].as_str())
        .collect::<Vec<_>>()
        .join(" ")
        .to_ascii_lowercase();
    let has = |kinds: &[&str]| kinds.iter().any(|kind| words.contains(kind));
    let is_too_many = has(&["rate_limit", "resource_exhausted", "too_many"]);
    let status = if has(&[
        "authentication",
        "invalid_api_key",
        "unauthenticated",
        "unauthorized",
    ]) {
        Some(401)
    } else if has(&["permission", "forbidden"]) {
        Some(403)
    } else if has(&["not_found"]) {
        Some(404)
    } else if has(&[
        "invalid_request",
        "invalid_argument",
        "bad_request",
        "unsupported",
    ]) {
        Some(400)
    } else {
        None
    };
    let is_too_long = !is_too_many && says_too_long(&text);
    if let Some(status) = status {
        return ModelError {
            is_too_long,
            ..from_status(status, &text, None)
        };
    }
    ModelError {
        is_passing: !is_too_long,
        is_too_long,
        retry_after: delay(&text),
        ..ModelError::lasting(format!("the model server broke the answer off: {said}"))
    }
}

/// Converts a failed connection.
pub(in crate::model) fn connection(why: &str) -> ModelError {
    ModelError::passing(format!(
        "the connection to the model server failed: {}",
        told(why)
    ))
}

/// Returns the innermost cause of a failure, which is the most specific.
pub(in crate::model) fn deepest(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let text = deepest.to_string();
    if text.is_empty() {
        error.to_string()
    } else {
        text
    }
}

/// Converts a redirect. It is not followed: the key would be sent to the other server.
pub(in crate::model) fn redirect(
    status: u16,
    headers: &HeaderMap,
    base_variable: &str,
) -> ModelError {
    let location = headers
        .get("location")
        .and_then(|value| value.to_str().ok());
    // A query may contain secrets.
    let location = location.and_then(|address| address.split(['?', '#']).next());
    let tail = location.map_or_else(String::new, |address| format!(": {}", told(address)));
    ModelError {
        status: Some(status),
        ..ModelError::lasting(format!(
            "the model server leads to another address (HTTP {status}){tail}; it is not followed, because the \
             key would go along"
        ))
    }
    .remedy(format!("set {base_variable} to the address that is meant"))
}

/// Converts a refusal with a status and a body.
pub(in crate::model) fn refused(status: u16, body: &str, headers: &HeaderMap) -> ModelError {
    from_status(status, body, retry_after(headers))
}

/// Returns the pause that a server asks for: in seconds, or until a date (RFC 9110, 10.2.3).
// TRUST: a server chose it. [`crate::RetryPolicy`] bounds it.
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
    // The server's own clock, if it sends it: ours may be wrong.
    let now = text("date")
        .and_then(|text| httpdate::parse_http_date(text).ok())
        .unwrap_or_else(SystemTime::now);
    // A past date means now.
    Some(date.duration_since(now).unwrap_or_default())
}

fn from_status(status: u16, body: &str, retry_after: Option<Duration>) -> ModelError {
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
    let is_too_long = status == 413 || (matches!(status, 400 | 422 | 500) && says_too_long(body));
    ModelError {
        message: format!("{what} (HTTP {status}){tail}"),
        remedy,
        status: Some(status),
        is_passing: matches!(status, 408 | 409 | 425 | 429 | 500..) && !is_too_long,
        is_exhausted: false,
        is_too_long,
        retry_after: retry_after.or_else(|| delay(body)),
    }
}

/// Parts of `code` or `type` that mean a prompt that is too long.
const TOO_LONG_CODES: [&str; 3] = ["context_length", "context_size", "context_window"];
/// Words of three classes, one of each: a thing, its bound, and that it is exceeded.
const THINGS: [&str; 6] = ["token", "prompt", "input", "context", "messages", "request"];
const BOUNDS: [&str; 7] = ["length", "limit", "max", "window", "size", "long", "large"];
const EXCESSES: [&str; 12] = [
    "exceed",
    "too long",
    "too large",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "resulted in",
    "but the request",
    "should be [",
    "overflow",
    "reduce the",
];
/// Words about the length of one field, which a shorter conversation does not change.
const FIELDS: [&str; 6] = [
    "string too long",
    ".id",
    "schema",
    "bytes",
    "image",
    "pixel",
];
/// Words about the length of an answer or the rate of requests, unless the context is named too.
const OTHERS: [&str; 4] = ["max_tokens", "max_output_tokens", "per minute", "per day"];

/// True if a refusal says that the prompt is longer than the context window.
fn says_too_long(body: &str) -> bool {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let first = value.get(0).unwrap_or(&value);
    let error = first.get("error").unwrap_or(first);
    let is_coded = ["code", "type"].iter().any(|field| {
        let code = error[field]
            .as_str()
            .unwrap_or_default()
            .to_ascii_lowercase();
        TOO_LONG_CODES.iter().any(|known| code.contains(known))
    });
    let words = message(body)
        .unwrap_or_else(|| body.to_owned())
        .to_ascii_lowercase();
    let has = |class: &[&str]| class.iter().any(|word| words.contains(word));
    if is_coded || words.contains("maximum context length") {
        return true;
    }
    let is_of_a_field = has(&FIELDS);
    let is_of_another_limit = has(&OTHERS) && !words.contains("context");
    has(&THINGS)
        && has(&BOUNDS)
        && (has(&EXCESSES) || has_comparison(&words))
        && !is_of_a_field
        && !is_of_another_limit
}

/// True if the text contains a comparison such as `> 9`.
fn has_comparison(words: &str) -> bool {
    words
        .split('>')
        .skip(1)
        .any(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the pause that a body asks for, in a field or in its text.
fn delay(body: &str) -> Option<Duration> {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    if let Some(delay) = delay_in_field(&value, 0) {
        return Some(delay);
    }
    let words = body.to_ascii_lowercase();
    ["try again in", "retry after", "retry in"]
        .iter()
        .find_map(|introduction| {
            let (_, rest) = words.split_once(introduction)?;
            duration(rest.trim_start_matches([':', ' ', '~']))
        })
}

/// Searches the known fields, down to a depth of 8.
fn delay_in_field(value: &Value, depth: usize) -> Option<Duration> {
    if depth > 8 {
        return None;
    }
    match value {
        Value::Array(items) => items
            .iter()
            .find_map(|item| delay_in_field(item, depth + 1)),
        Value::Object(fields) => {
            let known = fields.iter().find_map(|(field, value)| {
                let seconds = match field.as_str() {
                    "retryDelay" | "retry_after" | "retry_after_seconds" => 1.0,
                    "retry_after_ms" => 0.001,
                    _ => return None,
                };
                match value {
                    Value::Number(number) => {
                        Duration::try_from_secs_f64(number.as_f64()? * seconds).ok()
                    }
                    Value::String(text) => match text.trim().parse::<f64>() {
                        Ok(number) => Duration::try_from_secs_f64(number * seconds).ok(),
                        Err(_) => duration(text.trim()),
                    },
                    _ => None,
                }
            });
            known.or_else(|| {
                fields
                    .values()
                    .find_map(|value| delay_in_field(value, depth + 1))
            })
        }
        _ => None,
    }
}

/// Parses the time with which `text` begins, such as `1m2.5s`, `350ms`, `20 seconds` or `20`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = None;
    loop {
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let Ok(number) = rest[..end].trim_end_matches('.').parse::<f64>() else {
            return total;
        };
        rest = rest[end..].trim_start();
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let seconds = match &rest[..letters] {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            // A number without a unit is in seconds and ends the time.
            _ => return total.or_else(|| Duration::try_from_secs_f64(number).ok()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = Some(total.unwrap_or_default() + part);
        rest = &rest[letters..];
    }
}

/// Returns the server's message in a refusal, from where providers put it; bounded and on one line.
fn said(body: &str) -> String {
    told(&message(body).unwrap_or_else(|| body.to_owned()))
}

fn message(body: &str) -> Option<String> {
    let value: Value = serde_json::from_str(body).ok()?;
    // Google wraps errors of streams in a list.
    let value = value.get(0).unwrap_or(&value);
    let error = &value["error"];
    let message = error["message"]
        .as_str()
        .or_else(|| error.as_str())
        .or_else(|| value["message"].as_str())
        .or_else(|| value["detail"].as_str());
    message.map(str::to_owned)
}

// TRUST: a server's message reaches a terminal and the log: one line, bounded, no control
// characters.
pub(in crate::model) fn told(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_ERROR_CHARS)
        .collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};
    use serde_json::json;

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
            assert!(from_status(400, &body, None).is_too_long, "{words}");
            // The same words in a failure of another kind mean something else.
            assert!(!from_status(429, &body, None).is_too_long, "{words}");
        }
        assert!(!from_status(400, "{\"error\":{\"message\":\"no such tool\"}}", None).is_too_long);
        assert!(from_status(413, "", None).is_too_long);
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

    fn is_long(status: u16, words: &str) -> bool {
        from_status(
            status,
            &json!({ "error": { "message": words } }).to_string(),
            None,
        )
        .is_too_long
    }

    #[test]
    fn refusals_for_length_are_known_in_any_words() {
        for words in [
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 270001)",
            "Prompt exceeds max length",
            "Range of input length should be [1, 129024]",
            "The input (270001 tokens) is longer than the model's context length (262144 tokens).",
            "The number of tokens to keep from the initial prompt is greater than the context length.",
            "Input is too long for requested model.",
            "prompt token count of 140000 exceeds the limit of 128000",
            "tokens in request more than max tokens allowed",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "Please reduce the length of the messages or completion.",
            "The context window overflowed: input has too many tokens",
            "Request too large for the model: 300000 tokens > 200000",
        ] {
            for status in [400, 422, 500] {
                assert!(is_long(status, words), "{status} {words}");
            }
            assert!(!is_long(429, words), "{words}");
            assert!(!from_status(500, words, None).is_passing, "{words}");
            let event = in_answer(&json!({ "error": { "message": words } }));
            assert!(event.is_too_long && !event.is_passing, "{words}");
        }
        for code in [
            "context_length_exceeded",
            "exceed_context_size_error",
            "model_context_window_exceeded",
        ] {
            let body = json!({ "error": { "message": "no", "code": code } }).to_string();
            assert!(from_status(400, &body, None).is_too_long, "{code}");
        }
    }

    #[test]
    fn other_refusals_are_not_for_length() {
        for words in [
            "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40",
            "messages.1.tool_calls.0.function.name: string too long, maximum length is 64",
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
            "Rate limit reached: request exceeds the limit of 30000 tokens per minute",
            "The image exceeds 5 MB maximum in this request",
            "Invalid schema for function 'Read': maximum nesting exceeded in request",
            "Request body is too large: limit is 4194304 bytes",
            "temperature should be at most 2",
            "no such tool",
            "The model `x` does not exist or you do not have access to it.",
            "Input should be a valid string",
            "messages: at least one message is required",
            "tool_use ids were found without tool_result blocks immediately after",
            "Your credit balance is too low",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "Image input has more than 8000 pixels, the maximum size",
        ] {
            assert!(!is_long(400, words), "{words}");
        }
        assert!(from_status(413, "", None).is_too_long);
    }

    #[test]
    fn a_body_names_its_wait_in_a_field_or_in_words() {
        for (body, ms) in [
            (
                json!({ "error": { "details": [{ "retryDelay": "20s" }] } }).to_string(),
                Some(20_000),
            ),
            (
                json!({ "error": { "details": [{ "retryDelay": "1.5s" }] } }).to_string(),
                Some(1500),
            ),
            (json!({ "retry_after": 3 }).to_string(), Some(3000)),
            (
                json!({ "error": { "metadata": { "retry_after_ms": 250 } } }).to_string(),
                Some(250),
            ),
            (
                "Please try again in 1m2.5s. Visit us.".to_owned(),
                Some(62_500),
            ),
            ("Please try again in 350ms".to_owned(), Some(350)),
            ("Please retry after 20 seconds.".to_owned(), Some(20_000)),
            ("retry after: 7".to_owned(), Some(7000)),
            ("Try again in 6h0m".to_owned(), Some(21_600_000)),
            ("try again in a while".to_owned(), None),
            (json!({ "retry_after": -1 }).to_string(), None),
            (json!({ "retry_after": 1e300 }).to_string(), None),
        ] {
            let found = delay(&body).map(|wait| wait.as_millis());
            assert_eq!(found, ms, "{body}");
        }
        // The header counts more than the words.
        let header = Some(Duration::from_secs(1));
        let error = from_status(429, "try again in 9s", header);
        assert_eq!(error.retry_after, header);
    }

    #[test]
    fn redirects_are_told_without_their_query() {
        let mut headers = HeaderMap::new();
        headers.insert(
            "location",
            HeaderValue::from_static("https://other.example/v1?token=x"),
        );
        let error = redirect(307, &headers, "OPENAI_BASE_URL");
        assert!(
            error.message.contains("https://other.example/v1;"),
            "{error}"
        );
        assert!(!error.message.contains("token") && !error.is_passing);
    }
}
