//! Detection of tool calls that a model writes as text. Small models do this, and servers without a
//! parser for the format of their model.
//!
//! In: an answer without calls, and the tools. Out: whether the answer is such a call. Nothing is
//! ever executed from text: the model is asked to make the call, and if it continues like this, the
//! run fails. A call that is merely quoted, in the middle of prose or in a code block beside prose,
//! is ignored.

use crate::ToolDefinition;
use glovebox_proto::{Code, Fault};
use serde_json::Value;

/// Tags that models write calls in.
const TAGS: [&str; 6] = [
    "tool_call",
    "tool_calls",
    "function_call",
    "function_calls",
    "tool_use",
    "invoke",
];
/// Tokens that open a call in formats without a closing tag.
const OPENINGS: [&str; 4] = [
    "[TOOL_CALLS]",
    "<|tool_call|>",
    "<|tool_calls_section_begin|>",
    "<|python_tag|>",
];
/// Maximum length of a tool's name that is compared.
const MAX_NAME_BYTES: usize = 100;

/// Call that was written as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenCall {
    /// Name of the tool; `None` if it is not found in the text or unknown.
    tool: Option<String>,
}

/// Returns the call if `text` is one.
pub(crate) fn find(text: &str, tools: &[ToolDefinition]) -> Option<WrittenCall> {
    let text = without_thoughts(text.trim());
    if let Some(inner) = fenced(text) {
        return find_json(inner, tools);
    }
    if text.starts_with(['{', '[']) && !starts_with_opening(text) {
        return find_json(text, tools);
    }
    let call = tagged(text)?;
    Some(WrittenCall {
        tool: named_tool(call, tools),
    })
}

/// Returns the message that asks the model to make the call.
pub(crate) fn correction(written: &WrittenCall) -> String {
    let tool = match &written.tool {
        Some(tool) => format!("a call of {tool}"),
        None => "a tool call".to_owned(),
    };
    format!(
        "[Your answer is {tool} written as text. It was not made: nothing is executed from text. Make the call \
         through the tool interface. If you meant to show it to the user, say in words what you want to say.]"
    )
}

/// Returns the error that ends a run whose model continues to write calls as text.
pub(crate) fn ending(written: &WrittenCall) -> Fault {
    let tool = match &written.tool {
        Some(tool) => format!(" (the last is one of {tool})"),
        None => String::new(),
    };
    Fault::failed(
        Code::Unsupported,
        format!(
            "the model writes its tool calls as text instead of making them{tool}; nothing was executed from them"
        ),
    )
    .remedy(
        "use a model that can call tools, or let its server read them: vLLM with --enable-auto-tool-choice and \
         --tool-call-parser, llama.cpp with --jinja",
    )
}

/// Returns the text after a leading `<think>` block. Some models write their reasoning into the
/// text.
fn without_thoughts(text: &str) -> &str {
    match text.strip_prefix("<think>") {
        Some(rest) => rest
            .split_once("</think>")
            .map_or("", |(_, rest)| rest)
            .trim(),
        None => text,
    }
}

/// Returns the content of the code block if `text` is exactly one.
fn fenced(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("```")?.strip_suffix("```")?;
    if inner.contains("```") {
        return None;
    }
    let (language, content) = inner.split_once('\n')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    language
        .trim()
        .chars()
        .all(is_word)
        .then_some(content.trim())
}

/// Returns the call if `text` is JSON of a call of a known tool, or of a list of such calls.
fn find_json(text: &str, tools: &[ToolDefinition]) -> Option<WrittenCall> {
    if let Some(call) = tagged(text) {
        return Some(WrittenCall {
            tool: named_tool(call, tools),
        });
    }
    let value: Value = serde_json::from_str(text).ok()?;
    let first = value.get(0).unwrap_or(&value);
    let tool = known(called_name(first)?, tools)?;
    Some(WrittenCall { tool: Some(tool) })
}

/// Returns the name of the tool that a JSON object calls; `None` if the object has no arguments.
fn called_name(value: &Value) -> Option<&str> {
    let call = value
        .get("function")
        .filter(|f| f.is_object())
        .unwrap_or(value);
    let has_arguments = ["arguments", "parameters", "args", "input", "tool_input"]
        .iter()
        .any(|field| call.get(field).is_some());
    if !has_arguments {
        return None;
    }
    ["name", "tool", "tool_name", "function"]
        .iter()
        .find_map(|field| call.get(field)?.as_str())
}

/// Returns the call with which `text` begins, or with which it ends after prose. Code blocks are
/// skipped.
fn tagged(text: &str) -> Option<&str> {
    if starts_with_opening(text) || starts_with_tag(text) {
        return Some(text);
    }
    // Prose often precedes a call. The call then begins a line and is the end of the answer.
    let mut is_fenced = false;
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let rest = text[begin..].trim_start();
        begin += line.len();
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        if is_fenced {
            continue;
        }
        if starts_with_opening(rest) || (starts_with_tag(rest) && ends_with_tag(rest)) {
            return Some(rest);
        }
    }
    None
}

fn starts_with_opening(text: &str) -> bool {
    OPENINGS.iter().any(|opening| text.starts_with(opening))
}

fn starts_with_tag(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('<') else {
        return false;
    };
    // `<function=NAME>` is a format of its own.
    rest.starts_with("function=")
        || TAGS.iter().any(|tag| {
            rest.strip_prefix(tag)
                .is_some_and(|rest| rest.starts_with(['>', ' ', '\n']))
        })
}

/// True if `text`, which begins with a tag, ends with a closing tag or has none.
fn ends_with_tag(text: &str) -> bool {
    let ends = TAGS.iter().copied().chain(["function"]);
    let mut closed = false;
    for tag in ends {
        let end = format!("</{tag}>");
        if text.trim_end().ends_with(&end) {
            return true;
        }
        closed |= text.contains(&end);
    }
    !closed
}

/// Returns the known tool that a call in a tag names.
fn named_tool(call: &str, tools: &[ToolDefinition]) -> Option<String> {
    let after = |mark: &str| {
        let (_, rest) = call.split_once(mark)?;
        let rest = rest.trim_start_matches([':', ' ', '"', '\'', '=', '\n']);
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'));
        Some(&rest[..end.unwrap_or(rest.len())])
    };
    ["<function=", "\"name\"", "name=", "\"tool\""]
        .iter()
        .find_map(|mark| known(after(mark)?, tools))
}

// TRUST: a model chose the name. Only the name of a known tool is repeated.
fn known(name: &str, tools: &[ToolDefinition]) -> Option<String> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let mut tools = tools.iter();
    tools
        .find(|tool| tool.name.eq_ignore_ascii_case(name))
        .map(|tool| tool.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(text: &str) -> Option<WrittenCall> {
        let tool = |name: &str| ToolDefinition {
            name: name.to_owned(),
            description: String::new(),
            schema: json!({}),
            is_read_only: true,
            server: None,
        };
        find(text, &[tool("Read"), tool("desk__look")])
    }

    #[test]
    fn calls_as_text_are_found_in_the_formats_of_models() {
        for text in [
            r#"<tool_call>{"name": "Read", "arguments": {"path": "a"}}</tool_call>"#,
            "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>",
            "I look first.\n\n<tool_call>{\"name\":\"Read\",\"arguments\":{}}</tool_call>\n",
            "<think>Hm. <tool_call></think>\n<tool_call>{\"name\":\"Read\"}</tool_call>",
            "<tool_call>{\"name\":\"Read\",\"arg",
            "<tool_call>\n<function=Read>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
            "<function=Read><parameter=path>a</parameter></function>",
            "<function_calls>\n<invoke name=\"Read\">\n<parameter name=\"path\">a</parameter>\n</invoke>\n</function_calls>",
            "[TOOL_CALLS][{\"name\":\"Read\",\"arguments\":{}}]",
            "```json\n{\"name\": \"Read\", \"arguments\": {\"path\": \"a\"}}\n```",
            "```\n{\"tool\": \"Read\", \"args\": {\"path\": \"a\"}}\n```",
            "```tool_call\n{\"name\": \"Read\", \"parameters\": {}}\n```",
            "```xml\n<tool_call>{\"name\": \"Read\"}</tool_call>\n```",
            r#"{"name": "Read", "arguments": "{\"path\": \"a\"}"}"#,
            r#"{"type":"function","function":{"name":"Read","arguments":{}}}"#,
            r#"[{"name": "Read", "input": {}}]"#,
        ] {
            let tool = Some("Read".to_owned());
            assert_eq!(found(text), Some(WrittenCall { tool }), "{text}");
        }
        // A tag is a call whatever it names.
        let unknown = r#"<tool_call>{"name": "Fly", "arguments": {}}</tool_call>"#;
        assert_eq!(found(unknown), Some(WrittenCall { tool: None }));
    }

    #[test]
    fn an_answer_that_quotes_a_call_is_left_alone() {
        for text in [
            "All done.",
            "",
            "Models write `<tool_call>{\"name\":\"Read\"}</tool_call>` when they err.",
            "The log says:\n<tool_call>{\"name\":\"Read\"}</tool_call>\nwhich is a mistake of the server.",
            "Use this:\n```json\n{\"name\": \"Read\", \"arguments\": {\"path\": \"a\"}}\n```",
            "```json\n{\"name\": \"Read\", \"arguments\": {}}\n```\nis what it sent.",
            "Before:\n```\n<tool_call>{\"name\":\"Read\"}</tool_call>\n```",
            "```json\n{\"name\": \"glovebox\", \"arguments\": {}}\n```",
            "```json\n{\"name\": \"Read\"}\n```",
            r#"{"name": "my-package", "version": "1.0.0"}"#,
            "```json\n{\"name\": \"Read\", \"args\": 1}\n```\n```json\n{}\n```",
            "a < b and <tool>",
            "[1, 2]",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
