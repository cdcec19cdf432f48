//! Runs of the agent against servers of many dialects: the user's files are the same in the end.

use super::agent;
use serde_json::{Value, json};
use std::fs;
use testkit::{ModelServer, Person, Step, Wanted};

const FLAGS: [&str; 4] = ["--sandbox", "--yes", "--apply", "auto"];
const CONTENT: &str = "set -e\ncd build\nrm -rf ./* # \u{1F600}\n";

fn arguments() -> String {
    json!({ "path": "made.sh", "content": CONTENT }).to_string()
}

fn event(delta: &Value, finish: Option<&str>, end: &str) -> String {
    let value = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    format!("data: {value}{end}{end}")
}

/// One answer that calls Write in these pieces.
fn answer(pieces: &[Value], end: &str, tail: &str) -> Step {
    let mut body = String::new();
    for piece in pieces {
        body += &event(&json!({ "tool_calls": [piece] }), None, end);
    }
    Step::Raw(body + &event(&json!({}), Some("tool_calls"), end) + tail)
}

fn dialects() -> Vec<(&'static str, Step)> {
    let text = arguments();
    let object: Value = serde_json::from_str(&text).unwrap();
    let (head, tail) = text.split_at(text.find("cd build").unwrap());
    let function = |arguments: &Value| json!({ "name": "Write", "arguments": arguments });
    let rest = json!({ "function": { "arguments": tail } });
    let done = "data: [DONE]\n\n";
    let whole = |piece: Value| answer(&[piece], "\n", done);
    vec![
        (
            "to the letter",
            answer(
                &[
                    json!({ "index": 0, "id": "a", "function": function(&json!(head)) }),
                    json!({ "index": 0, "function": { "arguments": tail } }),
                ],
                "\n",
                done,
            ),
        ),
        (
            "without index",
            answer(
                &[json!({ "id": "a", "function": function(&json!(head)) }), rest.clone()],
                "\n",
                done,
            ),
        ),
        (
            "without id and index",
            answer(&[json!({ "function": function(&json!(head)) }), rest], "\n", done),
        ),
        ("an object", whole(json!({ "index": 0, "id": "a", "function": function(&object) }))),
        (
            "text of text",
            whole(json!({ "index": 0, "id": "a", "function": function(&json!(json!(text).to_string())) })),
        ),
        (
            "CR LF and no [DONE]",
            answer(
                &[json!({ "index": 1, "id": "a", "function": function(&json!(text)) })],
                "\r\n",
                "",
            ),
        ),
        (
            "CR",
            answer(
                &[json!({ "index": 0, "id": "", "function": function(&json!(text)) })],
                "\r",
                "data: [DONE]\r\r",
            ),
        ),
        (
            "one document",
            Step::Raw(
                json!({ "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
                    "role": "assistant",
                    "tool_calls": [{ "id": "a", "type": "function", "function": function(&json!(text)) }],
                } }] })
                .to_string(),
            ),
        ),
    ]
}

#[test]
fn run_in_every_dialect_leaves_the_same_files() {
    let person = Person::myself();
    let made = person.project().join("made.sh");
    person.write("project/a.txt", "one\n");
    for (dialect, step) in dialects() {
        let server = ModelServer::start([step, Step::text("Done.")]);
        let ran = agent(&person, &server, FLAGS, "write it")
            .run()
            .expect_code(0);
        assert_eq!(server.steps_left(), 0, "{dialect}: {ran}");
        let content = fs::read_to_string(&made);
        assert_eq!(content.unwrap_or_default(), CONTENT, "{dialect}: {ran}");
        fs::remove_file(&made).unwrap();
    }
    person.assert_nothing_lives();
}

#[test]
fn call_that_breaks_off_in_its_arguments_is_not_made_and_asked_for_again() {
    let person = Person::myself();
    person.write("project/a.txt", "one\n");
    let broken = json!({ "command": "echo broken >> made.sh; rm a.txt; true; true; true" });
    let server = ModelServer::start([
        Step::CutCall(Wanted::new("Bash", &broken.to_string())),
        Step::call("Write", &arguments()),
        Step::text("Done."),
    ]);
    let ran = agent(&person, &server, FLAGS, "write it")
        .run()
        .expect_code(0);
    assert_eq!(server.asked_count(), 3, "{ran}");
    let asked = server.asked();
    assert_eq!(asked[0].body, asked[1].body, "the same is asked again");
    let made = fs::read_to_string(person.project().join("made.sh")).unwrap();
    assert_eq!(made, CONTENT);
    assert!(person.project().join("a.txt").exists());
    person.assert_nothing_lives();
}
