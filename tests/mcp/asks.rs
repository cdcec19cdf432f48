//! What a rule asks about is asked of the client's user, and whatever is not a clear yes is a no.

use crate::clients::{command, run};
use crate::pipe::Pipe;
use crate::site::{Site, TOKEN};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use testkit::{Person, filters, installed};

fn project() -> Person {
    let person = Person::myself();
    person.write(
        "project/glovebox.toml",
        "[policy]\nask = [\"Bash(touch *)\"]\n",
    );
    let _ = person.line("start box").run().expect_code(0);
    person
}

fn driver() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp/asks.py")
}

fn leave(person: &Person) {
    let _ = person.line("kill box").run().expect_code(0);
    person.assert_nothing_left();
}

#[test]
fn a_client_of_the_python_sdk_asks_its_user_over_pipes() {
    let Some(python) = installed("python/bin/python3") else {
        testkit::skip!("needs the Python SDK in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let person = project();
    let mut drive = command(&person, &python);
    drive.arg(driver()).arg("stdio").arg(person.binary());
    drive.args(["--sandbox", "box"]);
    assert!(run(drive).ends_with("ok\n"));
    leave(&person);
}

#[test]
fn a_client_of_the_python_sdk_asks_its_user_over_http() {
    let Some(python) = installed("python/bin/python3") else {
        testkit::skip!("needs the Python SDK in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let person = project();
    let site = Site::open(&person, "--sandbox box");
    let mut drive = command(&person, &python);
    drive.arg(driver()).args(["http", &site.url(), TOKEN]);
    assert!(run(drive).ends_with("ok\n"));
    drop(site);
    leave(&person);
}

/// Calls what a rule asks about, and gives the ids of the call and of the question.
fn ask(pipe: &mut Pipe, tool: &str, arguments: &Value) -> (u64, Value, String) {
    let call = pipe.send(
        "tools/call",
        &json!({ "name": tool, "arguments": arguments }),
    );
    let question = pipe.hear().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let message = question["params"]["message"].as_str().unwrap().to_owned();
    (call, question["id"].clone(), message)
}

/// The answer to a call, and whether it is an error.
fn answer(pipe: &mut Pipe, call: u64) -> (String, bool) {
    let answer = pipe.hear().unwrap();
    assert_eq!(answer["id"], call, "{answer}");
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    (text, result["isError"] == true)
}

#[test]
fn whatever_is_no_yes_is_a_no_and_a_call_given_up_takes_its_question_along() {
    let person = project();
    let mut pipe = Pipe::open_as(&person, "--sandbox box", &json!({ "elicitation": {} }));
    let touch = json!({ "command": "touch no" });
    let refused = [
        json!({ "result": { "action": "accept", "content": { "allow": "true" } } }),
        json!({ "result": { "action": "accept", "content": { "allow": true, "also": 1 } } }),
        json!({ "result": { "action": "accept" } }),
        json!({ "result": { "action": "maybe", "content": { "allow": true } } }),
        json!({ "result": {} }),
        json!({ "error": { "code": -32603, "message": "\u{1b}[2Jno screen" } }),
    ]
    .map(|reply| {
        let (call, question, _) = ask(&mut pipe, "Bash", &touch);
        let mut message = reply.clone();
        message["jsonrpc"] = "2.0".into();
        message["id"] = question;
        pipe.say(&message);
        let (text, is_error) = answer(&mut pipe, call);
        assert!(is_error && !text.contains('\u{1b}'), "{reply}: {text}");
        text
    });
    insta::assert_snapshot!(filters(&refused.join("\n"), person.place().root()), @r"
    Bash was asked about by the rule `ask Bash(touch *)` and denied: the client's answer is neither yes nor no
    do not work around it: stop, or ask the user
    Bash was asked about by the rule `ask Bash(touch *)` and denied: the client's answer is neither yes nor no
    do not work around it: stop, or ask the user
    Bash was asked about by the rule `ask Bash(touch *)` and denied: the client's answer is neither yes nor no
    do not work around it: stop, or ask the user
    Bash was asked about by the rule `ask Bash(touch *)` and denied: the client's answer is neither yes nor no
    do not work around it: stop, or ask the user
    Bash was asked about by the rule `ask Bash(touch *)` and denied: the client's answer is neither yes nor no
    do not work around it: stop, or ask the user
    Bash was asked about by the rule `ask Bash(touch *)` and denied: the client could not ask its user: Mcp error: -32603: \x1b[2Jno screen
    do not work around it: stop, or ask the user
    ");

    // Given up while it waits: the question goes with it, and the next call is served.
    let (call, question, _) = ask(&mut pipe, "Bash", &touch);
    pipe.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": call } }));
    let told = pipe.hear().unwrap();
    assert_eq!(told["method"], "notifications/cancelled", "{told}");
    assert_eq!(told["params"]["requestId"], question, "{told}");

    // All of it is shown, and reads as what it is, below a warning.
    let long = format!("touch no #\u{202e}\u{1b}{}; evil", "x".repeat(40_000));
    let (call, question, message) = ask(&mut pipe, "Bash", &json!({ "command": long }));
    assert!(
        message.starts_with("Warning: 2 hidden characters: RLO, ESC.\n"),
        "{message}"
    );
    assert!(
        message.contains("#\\u{202e}\\u001bx") && message.contains("x; evil\""),
        "{message}"
    );
    assert!(!message.contains(['\u{202e}', '\u{1b}']));
    pipe.say(&json!({ "jsonrpc": "2.0", "id": question, "result": { "action": "decline" } }));
    assert!(answer(&mut pipe, call).1);

    // What cannot be shown whole is not asked about.
    let long = format!("touch no #{}", "x".repeat(70_000));
    let call = pipe.send(
        "tools/call",
        &json!({ "name": "Bash", "arguments": { "command": long } }),
    );
    let (text, is_error) = answer(&mut pipe, call);
    assert!(
        is_error && text.contains("longer than the 64 KiB"),
        "{text}"
    );

    // A text that needs its joiners raises no warning.
    let twin =
        json!({ "command": "touch no # \u{5e9}\u{5dc}\u{5d5}\u{5dd}\t\u{1f468}\u{200d}\u{1f469}" });
    let (call, question, message) = ask(&mut pipe, "Bash", &twin);
    assert!(
        message.starts_with("Bash is to be called") && message.contains("\u{1f468}\u{200d}"),
        "{message}"
    );
    pipe.say(&json!({ "jsonrpc": "2.0", "id": question, "result": { "action": "decline" } }));
    assert!(answer(&mut pipe, call).1);

    // So it is with what a script calls.
    let script = json!({ "source": "(await tools.Bash({ command: 'touch yes' })).is_error" });
    let (call, question, message) = ask(&mut pipe, "RunJS", &script);
    insta::assert_snapshot!(filters(&message, person.place().root()), @r#"
    Bash is to be called with {"command":"touch yes","background":false,"pty":false}

    The rule `ask Bash(touch *)` ([ROOT]/project/glovebox.toml) asks about that. May this call be made?
    "#);
    pipe.say(&json!({ "jsonrpc": "2.0", "id": question, "result": { "action": "accept", "content": { "allow": true } } }));
    let (text, is_error) = answer(&mut pipe, call);
    assert!(!is_error && text.starts_with("false"), "{text}");
    let listed = pipe.call("List", &json!({}));
    assert!(
        listed.contains("yes ") && !listed.contains("no "),
        "{listed}"
    );
    pipe.hang_up();
    let _ = pipe.end();
    leave(&person);
}
