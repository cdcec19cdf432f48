//! What the log of the server tells of sessions and calls, with `tracing`; whoever runs the server decides where it is
//! written.
//!
//! Spans carry ids and are of the highest level, so that a line of any level has its `request_id`, `session_id` and
//! `call_id`. No line has content: neither words of tasks and models nor arguments, output, names of files or tokens.
//! What a client or a model chooses is logged where it is an id or one of our own words, else it is left out.
//!
//! The same spans are what a collector of traces gets (`traces`). A field whose name has a dot is for traces only, in the
//! words of OpenTelemetry's semantic conventions, and is in no line of the log; `otel.name`, `otel.kind` and
//! `otel.status_code` are the name, kind and status of the span there.

use glovebox_proto::Code;
use serde_json::{Map, Value};
use std::time::Duration;
use tracing::{Span, error_span, field, info};

/// Longest id that is taken from elsewhere.
const MAX_ID_CHARS: usize = 64;

/// Whether a text is an id: short, and of letters, digits, `-`, `_` and `.`.
pub(crate) fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_ID_CHARS).contains(&text.len()) && text.bytes().all(is_plain)
}

/// A time as it is logged.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What the lines of a session have: its id besides those of the request that it works for.
///
/// A session goes on when its request has been answered. So it is no child of the request but follows from it: a trace of
/// its own, with a link to the request.
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

/// The start of a sandbox, until it takes calls.
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

/// Records a number in a span. Traces have signed numbers only: others would become text there.
pub(crate) fn record_number(span: &Span, name: &str, number: u64) {
    span.record(name, i64::try_from(number).unwrap_or(i64::MAX));
}

/// Says in traces that what a span stands for did not succeed, and why in one of our own words.
pub(crate) fn mark_failed(span: &Span, why: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", why);
}

/// The code of a fault that a call has in its facts.
// TRUST: a server of tools chooses its facts; only words of ours are passed on.
pub(crate) fn fault_code(facts: &Map<String, Value>) -> Option<Code> {
    let fault = facts.get("fault").and_then(Value::as_str);
    let mut codes = Code::ALL.iter();
    codes.find(|code| fault == Some(code.as_str())).copied()
}

/// A tool call has ended.
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

/// A model chooses names of tools; only ours are told.
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
