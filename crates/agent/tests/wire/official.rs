//! Comparison with official clients on the recorded streams: `openai` and `anthropic` for Python,
//! and the AI SDK for JavaScript. Each difference has a row with the reason for ours.

use super::streams::{decode, directory, recorded};
use glovebox_agent::{MessagePart, ModelAnswer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use testkit::{ModelServer, Step, installed};

/// Stream, the fields of the client's answer that differ, and the reason for ours.
type Difference = (&'static str, &'static str, &'static str);

const NO_FIELD_OF_OPENAI: &str =
    "the client knows OpenAI's fields; thoughts of other servers stand in one of theirs";
const BEGINNING_LOST: &str =
    "the client passes over text in `content_block_start`; the API allows it there";

const PYTHON: [Difference; 11] = [
    (
        "anthropic-length",
        r#"{"calls":[{"name":"Write","arguments":{}}]}"#,
        "the client completes half an object; a call that was cut is not made, so its text is kept as it came",
    ),
    (
        "chat-content-list",
        r#"{"text":[{"type":"text","text":"Yes"},{"type":"text","text":"."}]}"#,
        "the client leaves a list to its user; Mistral's servers send thoughts and text so",
    ),
    ("chat-details", r#"{"thoughts":""}"#, NO_FIELD_OF_OPENAI),
    (
        "chat-empty-arguments",
        r#"{"calls":[{"name":"Jobs","arguments":""}]}"#,
        "the client leaves decoding to its user; no text is how servers write a call without arguments",
    ),
    (
        "chat-equal-index",
        r#"{"calls":[{"name":"ReadRead","arguments":"{\"path\":\"a\"}{\"path\":\"b\"}"}]}"#,
        "the client joins two calls; another id with a name begins a call",
    ),
    (
        "chat-length",
        r#"{"error":"LengthFinishReasonError"}"#,
        "the client throws half an answer away; the agent tells the model that it was cut",
    ),
    (
        "chat-refusal",
        r#"{"stop":"done"}"#,
        "the client leaves `refusal` to its user; a refused answer is no normal end",
    ),
    ("chat-thoughts", r#"{"thoughts":""}"#, NO_FIELD_OF_OPENAI),
    (
        "chat-without-index",
        r#"{"error":"TypeError"}"#,
        "the client wants `index`; several servers leave it out",
    ),
    (
        "responses-only-completed",
        r#"{"calls":[{"name":"Read","arguments":""}]}"#,
        "the client leaves decoding to its user; no text is how servers write a call without arguments",
    ),
    (
        "responses-refusal",
        r#"{"stop":"done"}"#,
        "the client leaves `refusal` to its user; a refused answer is no normal end",
    ),
];

const JAVASCRIPT: [Difference; 7] = [
    ("anthropic-calls", r#"{"text":""}"#, BEGINNING_LOST),
    ("anthropic-order", r#"{"text":"before"}"#, BEGINNING_LOST),
    (
        "anthropic-unknown",
        r#"{"error":"AI_TypeValidationError"}"#,
        "the client fails on a new kind of event; the API asks to pass over it",
    ),
    (
        "anthropic-without-stop",
        r#"{"text":"","stop":"other","usage":null}"#,
        "the client takes reason and usage at `message_stop`; they stand in `message_delta`, and text is as above",
    ),
    (
        "chat-object-arguments",
        r#"{"error":"AI_TypeValidationError"}"#,
        "the client wants text; an object says the same",
    ),
    (
        "responses-calls",
        r#"{"calls":[{"name":"Read","arguments":{"path":"b"}},{"name":"Read","arguments":{"path":"ä"}}]}"#,
        "the client has calls in the order of their ends; ours is that of `output_index`",
    ),
    (
        "responses-only-completed",
        r#"{"text":"","calls":[]}"#,
        "the client takes no output from `response.completed`; it is whole there",
    ),
];

#[test]
fn clients_in_python_read_what_ours_reads() {
    let Some(python) = installed("models/bin/python3") else {
        testkit::skip!(
            "needs openai and anthropic (Python) in the directory GLOVEBOX_TEST_CLIENTS"
        );
    };
    let mut command = Command::new(python);
    command.arg(directory().with_file_name("official.py"));
    // The Python clients have no decoder for Gemini.
    compare(command, |format| format != "gemini", &PYTHON);
}

#[test]
fn the_ai_sdk_reads_what_ours_reads() {
    let Some(package) = installed("ai/node_modules/@ai-sdk/google/package.json") else {
        testkit::skip!("needs the AI SDK in the directory GLOVEBOX_TEST_CLIENTS");
    };
    if !testkit::has_program("node") {
        testkit::skip!("needs node");
    }
    let packages = package.ancestors().nth(4).unwrap_or(Path::new("/"));
    let mut command = Command::new("node");
    command
        .arg(directory().with_file_name("official.mjs"))
        .arg(packages);
    compare(command, |_| true, &JAVASCRIPT);
}

/// Serves the streams of the formats to the client, and compares its answers with ours.
fn compare(mut command: Command, reads: impl Fn(&str) -> bool, differences: &[Difference]) {
    let mut streams = recorded();
    streams.retain(|(name, ..)| reads(name.split('-').next().unwrap()));
    let server = ModelServer::start(streams.iter().map(|(.., text)| Step::Raw(text.clone())));
    let output = command
        .arg(server.url())
        .args(streams.iter().map(|(name, ..)| name))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}\n{told}");
    assert_eq!(server.steps_left(), 0, "{printed}");
    let mut found = BTreeMap::new();
    for (line, (name, format, text)) in printed.lines().zip(&streams) {
        let theirs: Value = serde_json::from_str(line).unwrap();
        assert_eq!(theirs["name"], name.as_str(), "{printed}");
        let ours = summarize(&decode(*format, &[text.as_bytes()]).unwrap());
        let differing = find_differences(&ours, &theirs);
        if !differing.is_empty() {
            found.insert(name.as_str(), Value::Object(differing));
        }
    }
    assert_eq!(printed.lines().count(), streams.len(), "{printed}\n{told}");
    let told = differences
        .iter()
        .map(|(name, theirs, _)| (*name, serde_json::from_str(theirs).unwrap()))
        .collect();
    assert_eq!(found, told, "{printed}");
}

/// Returns an answer in the form that the scripts print.
fn summarize(answer: &ModelAnswer) -> Value {
    let thoughts: String = answer
        .parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Reasoning { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let calls: Vec<Value> = answer
        .calls()
        .iter()
        .map(|call| json!({ "name": call.name, "arguments": call.arguments }))
        .collect();
    let usage = answer.usage.map(|usage| [usage.input, usage.output]);
    json!({ "text": answer.text(), "thoughts": thoughts, "calls": calls, "stop": answer.stop, "usage": usage })
}

/// Returns the fields of the client's answer that differ from ours; its error if it has no answer.
fn find_differences(ours: &Value, theirs: &Value) -> Map<String, Value> {
    if let Some(error) = theirs.get("error") {
        return Map::from_iter([("error".to_owned(), error.clone())]);
    }
    let mut theirs = theirs.clone();
    for call in theirs["calls"].as_array_mut().unwrap() {
        let text = call["arguments"].as_str().unwrap_or_default();
        if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
            call["arguments"] = object;
        }
    }
    theirs["stop"] = match theirs["stop"].as_str().unwrap_or_default() {
        "stop" | "end_turn" | "tool_use" | "tool_calls" | "tool-calls" | "completed" => "done",
        "length" | "max_tokens" | "max_output_tokens" => "length",
        "content_filter" | "content-filter" | "refusal" => "filtered",
        other => other,
    }
    .into();
    let fields = ours.as_object().unwrap().iter();
    fields
        .filter(|(field, value)| theirs[field.as_str()] != **value)
        .map(|(field, _)| (field.clone(), theirs[field.as_str()].clone()))
        .collect()
}
