//! B1 to B4: what an earlier version wrote, and what clients of it send, still holds.
//!
//! `earlier` has what version 0.1 wrote and was sent. What is added there stays; what has to be changed there breaks
//! somebody.

use super::caller;
use crate::server::{Server, recording};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};
use testkit::{Person, has_program, skip};

/// The log of sessions as version 0.1 wrote it, over this person's project.
fn write_earlier_log(person: &Person) {
    const LOAD: &str =
        "import sqlite3, sys\nsqlite3.connect(sys.argv[1]).executescript(sys.stdin.read())\n";
    // Makes the directory as it has to be.
    person.line("sessions list").run().expect_code(0);
    let db = person.place().state().join("sessions/sessions.db");
    std::fs::write(&db, "").unwrap();
    let project = person.project();
    let sql = include_str!("../earlier/sessions-0.1.sql");
    let sql = sql.replace("@PROJECT@", project.to_str().unwrap());
    let mut child = Command::new("python3")
        .args(["-c", LOAD])
        .arg(&db)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(sql.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    person.write(
        "project/recorded.jsonl",
        include_str!("../earlier/recorded.jsonl"),
    );
}

const EARLIER: &str = "s-8407mvpwvb";

#[test]
fn b1_a_session_of_an_earlier_version_is_listed_shown_and_goes_on() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    let person = Person::myself();
    write_earlier_log(&person);
    let listed = person.line("sessions list").run().expect_code(0).out();
    assert!(
        listed.contains(EARLIER) && listed.contains("write notes"),
        "{listed}"
    );
    let shown = person
        .line(&format!("sessions show {EARLIER}"))
        .run()
        .expect_code(0)
        .out();
    assert!(
        shown.contains("cat notes.txt") && shown.contains("It is written."),
        "{shown}"
    );
    let resumed = person
        .glovebox(["sessions", "resume", "--apply", "auto", EARLIER, "more"])
        .run()
        .expect_code(0);
    assert!(resumed.out().contains("More is written."), "{resumed}");
    assert_eq!(
        std::fs::read_to_string(person.project().join("more.txt")).unwrap(),
        "more\n"
    );
}

#[test]
fn b2_calls_in_the_form_of_an_earlier_version_are_understood() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let call = caller(&server);
    for line in include_str!("../earlier/calls.jsonl").lines() {
        let sent: Value = serde_json::from_str(line).unwrap();
        let answer = call(sent["tool"].as_str().unwrap(), sent["arguments"].clone());
        assert_eq!(answer["is_error"], false, "{sent}: {answer}");
        assert!(
            answer["text"].is_string() && answer["facts"].is_object(),
            "{answer}"
        );
    }
}

#[test]
fn b3_events_keep_the_form_of_an_earlier_version() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    let person = Person::myself();
    write_earlier_log(&person);
    let export = |id: &str| -> Vec<Value> {
        let text = person
            .line(&format!("sessions export {id}"))
            .run()
            .expect_code(0)
            .out();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let earlier = export(EARLIER);
    assert_eq!(earlier.len(), 12);
    // The same session, made now: every field that there was is there, in the same type.
    let calls = [
        ("Write", json!({ "path": "notes.txt", "content": "kept\n" })),
        ("Bash", json!({ "command": "cat notes.txt" })),
    ];
    let model = recording(&person, "now", &calls);
    person
        .line(&format!(
            "agent --sandbox --apply never --model {model} write"
        ))
        .run()
        .expect_code(0);
    let listed = person
        .line("sessions list --json")
        .run()
        .expect_code(0)
        .out();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let sessions = listed["data"]["sessions"].as_array().unwrap();
    let new = sessions.iter().find(|one| one["id"] != EARLIER).unwrap();
    let now = export(new["id"].as_str().unwrap());
    let kinds = |events: &[Value]| -> Vec<String> {
        events
            .iter()
            .map(|event| event["type"].to_string())
            .collect()
    };
    assert_eq!(kinds(&earlier), kinds(&now));
    for (before, after) in earlier.iter().zip(&now) {
        for (name, value) in before.as_object().unwrap() {
            let kept = &after[name];
            let is_same = std::mem::discriminant(kept) == std::mem::discriminant(value);
            assert!(is_same, "`{name}` was {value} and is {kept} in {after}");
        }
        assert_eq!(before["version"], after["version"]);
    }
}

#[test]
fn b4_the_description_has_every_route() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let description = server.admin().get("/api/openapi.json").expect(200).json();
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = description["paths"].as_object().unwrap();
    for (path, methods) in [
        ("/api/tasks", &["post"][..]),
        ("/api/sessions", &["get"]),
        ("/api/sessions/{id}", &["get", "delete"]),
        ("/api/sessions/{id}/events", &["get"]),
        ("/api/sessions/{id}/cancel", &["post"]),
        ("/api/sessions/{id}/messages", &["post"]),
        ("/api/sessions/{id}/approvals", &["post"]),
        ("/api/sessions/{id}/diff", &["get"]),
        ("/api/sessions/{id}/apply", &["post"]),
        ("/api/sessions/{id}/files", &["get"]),
        ("/api/sessions/{id}/files/{path}", &["get"]),
        ("/api/sessions/{id}/checkpoints", &["get", "post"]),
        ("/api/sessions/{id}/restore", &["post"]),
        ("/api/sessions/{id}/fork", &["post"]),
        ("/api/sandboxes", &["get", "post"]),
        ("/api/sandboxes/{id}", &["delete"]),
        ("/api/sandboxes/{id}/call", &["post"]),
        ("/api/sandboxes/{id}/terminal", &["get"]),
        ("/api/sessions/{id}/terminal", &["get"]),
        ("/api/tools", &["get"]),
        ("/metrics", &["get"]),
    ] {
        for method in methods {
            let operation = &paths[path][method];
            assert!(operation["responses"].is_object(), "{method} {path}");
            let summary = operation["summary"]
                .as_str()
                .or(operation["description"].as_str());
            assert!(
                summary.is_some_and(|text| !text.is_empty()),
                "{method} {path} is not described"
            );
        }
    }
    // Every type that is named is there.
    let text = description.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(
            description["components"]["schemas"][name].is_object(),
            "{name}"
        );
    }
}

#[test]
fn b4_the_api_is_the_one_in_the_repository() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let served = server.admin().get("/api/openapi.json").expect(200).json();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/openapi.json");
    let kept: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(
        served, kept,
        "a change of the API is a change of this file, to be seen in its review"
    );
}
