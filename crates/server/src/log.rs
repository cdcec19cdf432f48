//! What the log of the server tells of sessions and calls, with `tracing`; whoever runs the server decides where it is
//! written.
//!
//! Spans carry ids and are of the highest level, so that a line of any level has its `request_id`, `session_id` and
//! `call_id`. No line has content: neither words of tasks and models nor arguments, output, names of files or tokens.
//! What a client or a model chooses is logged where it is an id or one of our own words, else it is left out.

use glovebox_proto::Code;
use serde_json::{Map, Value};
use std::time::Duration;
use tracing::{Span, error_span, info};

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
pub(crate) fn session_span(id: &str, user: &str) -> Span {
    error_span!("session", session_id = id, user)
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
