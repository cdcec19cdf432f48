//! Runs of the agent against servers of many dialects: the user's files are the same in the end.

use super::agent;
use super::endings::spawn;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use testkit::{ModelServer, Person, Ran, Step, Wanted};

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

/// A model's server as a process of its own. Killed when dropped.
struct ModelProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: String,
}

impl ModelProcess {
    /// Starts it on a port; `how` and `call` as `model.py` has them.
    fn start(port: &str, log: &Path, how: &str, call: &Value) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("agent/model.py");
        let mut child = Command::new("/usr/bin/python3")
            .arg(script)
            .arg(port)
            .arg(log)
            .args([how, &call.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap();
        Self { child, lines, port }
    }
}

impl Drop for ModelProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Also where the arguments are whole: the end is missing, and more could have followed.
#[test]
fn server_that_is_killed_within_a_call_is_asked_again_and_nothing_of_it_is_run() {
    if !Path::new("/usr/bin/python3").is_file() {
        testkit::skip!("needs /usr/bin/python3");
    }
    let broken = json!({ "command": "echo broken >> made.sh; rm a.txt" }).to_string();
    let whole = arguments();
    for pieces in [&broken[..broken.len() - 12], &broken] {
        let person = Person::myself();
        person.write("project/a.txt", "one\n");
        let log = person.write("asked", "");
        let (head, tail) = pieces.split_at(20);
        let mut server = ModelProcess::start("0", &log, "half", &json!(["Bash", head, tail]));
        let port = server.port.clone();
        let mut call = person.glovebox(["agent", "--model", "openai/scripted"]);
        call.command.args(FLAGS).arg("write it");
        let call = call
            .env("OPENAI_BASE_URL", format!("http://127.0.0.1:{port}"))
            .env("GLOVEBOX_TOOLCHAINS", "false");
        let running = spawn(call);
        assert_eq!(server.lines.next().unwrap().unwrap(), "half");
        // SIGKILL.
        drop(server);
        let server = ModelProcess::start(&port, &log, "whole", &json!(["Write", whole]));
        let ran = Ran::new(running.wait_with_output().unwrap()).expect_code(0);
        let asked = fs::read_to_string(&log).unwrap();
        let asked: Vec<&str> = asked.lines().collect();
        assert_eq!(asked.len(), 3, "{ran}");
        assert!(asked[0] == asked[1], "the same is asked again");
        assert!(!asked[2].contains("rm a.txt"), "{}", asked[2]);
        let made = fs::read_to_string(person.project().join("made.sh")).unwrap();
        assert_eq!(made, CONTENT, "{ran}");
        assert!(person.project().join("a.txt").exists());
        drop(server);
        person.assert_nothing_lives();
    }
}
