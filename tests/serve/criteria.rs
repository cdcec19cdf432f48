//! Acceptance criteria that no other file of this suite has: the table is in `main.rs`.

use crate::server::{Server, recording};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Duration;
use testkit::{Person, Process, marker, wait_until};

/// A sandbox of `server`, and what calls a tool in it.
fn caller(server: &Server) -> impl Fn(&str, Value) -> Value + use<> {
    let admin = server.admin();
    let made = admin.post("/api/sandboxes", &json!({})).expect(201).json();
    let path = format!("/api/sandboxes/{}/call", made["id"].as_str().unwrap());
    move |tool, arguments| {
        let body = json!({ "tool": tool, "arguments": arguments });
        admin.post(&path, &body).expect(200).json()
    }
}

#[test]
fn f2_shell_and_search_tools_work_in_the_sandbox() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let call = caller(&server);
    for space in ["mnt", "pid", "ipc", "uts"] {
        let link = format!("/proc/self/ns/{space}");
        let inside = call("Bash", json!({ "command": format!("readlink {link}") }));
        let inside = inside["text"].as_str().unwrap();
        let outside = fs::read_link(&link).unwrap();
        assert!(inside.contains(&format!("{space}:[")), "{inside}");
        assert!(!inside.contains(outside.to_str().unwrap()), "{inside}");
    }
    call(
        "Write",
        json!({ "path": "only-inside.txt", "content": "a needle\n" }),
    );
    for (tool, arguments) in [
        ("Grep", json!({ "pattern": "needle" })),
        ("Glob", json!({ "pattern": "*.txt" })),
    ] {
        let found = call(tool, arguments);
        assert!(
            found["text"].as_str().unwrap().contains("only-inside.txt"),
            "{tool}: {found}"
        );
    }
    assert!(!person.project().join("only-inside.txt").exists());
}

#[test]
fn f4_tools_are_the_same_with_and_without_a_sandbox() {
    let person = Person::myself();
    let tools = |args: &str| {
        let server = Server::start(&person, args);
        server.admin().get("/api/tools").expect(200).json()
    };
    let inside = tools("");
    assert!(inside["tools"].as_array().unwrap().len() > 5, "{inside}");
    assert_eq!(inside, tools("--unsafe-local --project ."));
}

#[test]
fn p4_sandboxes_that_come_and_go_leave_neither_memory_nor_descriptors() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let admin = server.admin();
    let proc = format!("/proc/{}", server.child.id());
    let come_and_go = |count: usize| {
        for _ in 0..count {
            let made = admin.post("/api/sandboxes", &json!({})).expect(201).json();
            let path = format!("/api/sandboxes/{}", made["id"].as_str().unwrap());
            let body = json!({ "tool": "Bash", "arguments": { "command": "echo on" } });
            admin.post(&format!("{path}/call"), &body).expect(200);
            admin.delete(&path).expect(204);
        }
    };
    let descriptors = || fs::read_dir(format!("{proc}/fd")).unwrap().count();
    let resident_kib = || {
        let status = fs::read_to_string(format!("{proc}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap()
    };
    come_and_go(8);
    let (before, before_kib) = (descriptors(), resident_kib());
    come_and_go(24);
    // A connection of the last request may still be closing.
    assert!(
        wait_until(Duration::from_secs(10), || descriptors() <= before + 4),
        "{before} descriptors became {}",
        descriptors()
    );
    let now_kib = resident_kib();
    assert!(
        now_kib < before_kib + (24 << 10),
        "{before_kib} KiB became {now_kib}"
    );
}

#[test]
fn s2_a_command_that_ignores_signals_and_hides_its_children_ends_at_its_timeout() {
    let person = Person::myself();
    let marker = marker();
    let command =
        format!("trap '' TERM INT HUP; (setsid sleep {marker} &); sleep {marker}; sleep {marker}");
    let call = json!({ "command": command, "timeout_ms": 600_000 });
    let model = recording(&person, "stubborn", &[("Bash", call)]);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x", "limits": { "max_time_s": 6 } }));
    testkit::await_sleepers(&marker, 2);
    let events = admin.follow_to_end(&id);
    let last = events.last().unwrap();
    assert_eq!(last.data["ending"], "stopped_by_limit", "{last:?}");
    assert!(wait_until(Duration::from_secs(20), || {
        Process::mentioning(&marker).is_empty()
    }));
}

#[test]
fn s4_a_credential_of_the_server_is_in_nothing_that_it_writes_or_answers() {
    const SECRET: &str = "planted-4f1c9a7be2d84c30";
    let person = Person::myself();
    let look = json!({ "command": "env; cat /proc/*/environ | tr '\\0' '\\n'; true" });
    let model = recording(&person, "look", &[("Bash", look.clone())]);
    let env = ["AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DATABASE_URL"];
    let env = env.map(|name| (name, SECRET.to_owned()));
    let server = Server::start_with(&person, &format!("--model {model}"), &env);
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "look" }));
    let events = admin.follow_to_end(&id);
    assert_eq!(events.last().unwrap().data["ending"], "completed");
    let call = caller(&server);
    let answers = [
        format!("{events:?}"),
        call("Bash", look).to_string(),
        admin.get(&format!("/api/sessions/{id}")).text(),
        admin.get("/metrics").text(),
        admin.get("/api/environment").text(),
        server.anybody().get("/health/ready").text(),
    ];
    assert!(
        answers[1].contains("PATH="),
        "the command has looked: {}",
        answers[1]
    );
    for answer in &answers {
        assert!(!answer.contains(SECRET), "{answer}");
    }
    let state = person.place().state();
    let grep = |what: &str| {
        let mut command = Command::new("grep");
        command.args(["-rlaF", "--", what]).arg(&state);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(!grep(&id).is_empty(), "grep finds what is there");
    assert_eq!(grep(SECRET), "");
    assert_eq!(server.end(), Some(0));
}
