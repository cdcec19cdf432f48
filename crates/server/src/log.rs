//! Log of sessions and calls with `tracing`. The caller of the server decides where it is written.
//!
//! Spans carry ids and have the highest level, so that a line of any level has its `request_id`,
//! `session_id` and `call_id`. No line has content: no text of tasks or models, no arguments,
//! output, file names or tokens. A value that a client or a model chooses is logged only if it is
//! an id or a word of ours.
//!
//! A collector of traces receives the same spans (`traces`). Fields with a dot in their name are
//! for traces only, follow OpenTelemetry's semantic conventions, and appear in no log line;
//! `otel.name`, `otel.kind` and `otel.status_code` are the name, kind and status of the span there.

use glovebox_proto::Code;
use serde_json::{Map, Value};
use std::time::Duration;
use tracing::{Span, error_span, field, info};

/// Maximum length of an id from elsewhere.
const MAX_ID_CHARS: usize = 64;

/// Returns true if a text is an id: short, of letters, digits, `-`, `_` and `.`.
pub(crate) fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_ID_CHARS).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Converts a time to milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Creates the span of a session: its id, besides those of the request that it works for.
///
/// A session continues after its request was answered. So the span is not a child of the request
/// but follows from it: a trace of its own, with a link to the request.
pub(crate) fn session_span(id: &str, user: &str) -> Span {
    let span = error_span!(
        parent: None,
        "session",
        session_id = id,
        user,
        otel.name = "invoke_agent",
        otel.status_code = field::Empty,
        "error.type" = field::Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.conversation.id = id,
        gen_ai.provider.name = field::Empty,
        glovebox.ending = field::Empty,
    );
    span.follows_from(Span::current());
    span
}

/// Creates the span of the start of a sandbox, until it takes calls.
pub(crate) fn start_span(backend: &'static str) -> Span {
    error_span!(
        "sandbox_start",
        sandbox = field::Empty,
        otel.name = "start_sandbox",
        otel.status_code = field::Empty,
        "error.type" = field::Empty,
        glovebox.backend = backend,
        glovebox.is_new = field::Empty,
        glovebox.is_warm = field::Empty,
    )
}

/// Records a number in a span. Traces have signed numbers only; others would become text.
pub(crate) fn record_number(span: &Span, name: &str, number: u64) {
    span.record(name, i64::try_from(number).unwrap_or(i64::MAX));
}

/// Marks a span as failed in traces, with a word of ours as the reason.
pub(crate) fn mark_failed(span: &Span, why: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", why);
}

/// Returns the code of the fault in a call's facts.
// TRUST: a tool server chooses its facts; only known codes are passed on.
pub(crate) fn fault_code(facts: &Map<String, Value>) -> Option<Code> {
    let fault = facts.get("fault").and_then(Value::as_str);
    let mut codes = Code::ALL.iter();
    codes.find(|code| fault == Some(code.as_str())).copied()
}

/// Logs the end of a tool call.
pub(crate) fn call_ended(
    call_id: Option<&str>,
    tool: &str,
    is_error: bool,
    took_ms: u64,
    code: Option<Code>,
) {
    let call_id = call_id.filter(|id| is_id(id));
    let tool = tool_word(tool);
    let code = code.map(Code::as_str);
    info!(call_id, tool, is_error, took_ms, code, "call ended");
}

/// Returns the name of a tool, or `other` if the model chose a name that is none of ours.
pub(crate) fn tool_word(tool: &str) -> &'static str {
    glovebox_tools::find(tool).map_or("other", |tool| tool.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_choose_is_told_where_it_is_ours() {
        assert!(is_id("toolu_01A.b-c") && !is_id("") && !is_id("a\nb") && !is_id("ключ"));
        assert_eq!((tool_word("Bash"), tool_word("Bash\nx")), ("Bash", "other"));
        let facts = |value: Value| Map::from_iter([("fault".to_owned(), value)]);
        assert_eq!(fault_code(&facts("not-found".into())), Some(Code::NotFound));
        assert_eq!(fault_code(&facts("hush".into())), None);
    }
}
