//! The end of a server, wanted or not: nothing is lost, nothing goes on unseen, every session says what happened.

use crate::server::{Server, recording};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Person, Process, await_sleepers, marker, wait_until};

/// kill -9 in the middle of ten running sessions.
#[test]
fn a_server_that_is_killed_finds_its_sessions_again() {
    let person = Person::myself();
    let marker = marker();
    let model = recording(
        &person,
        "work",
        &[
            ("Write", json!({ "path": "done.txt", "content": "kept" })),
            (
                "Bash",
                json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 }),
            ),
        ],
    );
    let args = format!("--model {model}");
    let mut server = Server::start(&person, &args);
    let addr = server.addr.clone();
    let admin = server.admin();
    let ids: Vec<String> = (0..10)
        .map(|n| admin.submit(&json!({ "task": format!("task {n}") })))
        .collect();
    await_sleepers(&marker, 10);
    let before: Vec<Value> = ids
        .iter()
        .map(|id| admin.get(&format!("/api/sessions/{id}")).json()["sandbox"].clone())
        .collect();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::start_at(&person, &addr, &args);
    let admin = server.admin();
    let mut told = Vec::new();
    for (id, sandbox) in ids.iter().zip(&before) {
        let session = admin.get(&format!("/api/sessions/{id}")).expect(200).json();
        assert_eq!(
            (&session["state"], &session["sandbox"]),
            (&json!("interrupted"), sandbox),
            "{session}"
        );
        let events = admin.follow_to_end(id);
        let last = events.last().unwrap();
        assert_eq!(last.kind, "ended");
        told.push(last.data["message"].as_str().unwrap().to_owned());
        assert_eq!(
            admin
                .get(&format!("/api/sessions/{id}/files/done.txt"))
                .text(),
            "kept"
        );
    }
    told.dedup();
    insta::assert_snapshot!(told.join("\n"), @"the server ended while it worked; a message goes on with it, in the same sandbox if that is still there");
    // One goes on; the model hears that its call was interrupted.
    let id = &ids[0];
    admin
        .post(
            &format!("/api/sessions/{id}/messages"),
            &json!({ "text": "go on" }),
        )
        .expect(202);
    let events = admin.follow_to_end(id);
    let resumed = events
        .iter()
        .position(|event| event.kind == "resumed")
        .unwrap();
    assert!(events[resumed..].iter().any(|event| event.kind == "said"));
    assert_eq!(
        events.last().unwrap().data["ending"],
        "completed",
        "{:?}",
        events.last()
    );
    for id in &ids {
        admin.delete(&format!("/api/sessions/{id}")).expect(204);
    }
    assert!(wait_until(Duration::from_secs(20), || Process::mentioning(
        &marker
    )
    .is_empty()));
    assert_eq!(admin.get("/api/sandboxes").json()["sandboxes"], json!([]));
    drop(server);
    person.assert_nothing_lives();
}

#[test]
fn a_server_that_is_asked_to_end_lets_sessions_end_and_then_ends_them() {
    let person = Person::myself();
    let quick = recording(
        &person,
        "quick",
        &[("Bash", json!({ "command": "sleep 1; echo through" }))],
    );
    let server = Server::start(&person, &format!("--model {quick} --drain 30s"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "quick" }));
    admin.follow(&id, None, |event| event.kind == "call_started");
    assert_eq!(server.end(), Some(0));
    let state = |id: &str| {
        person
            .line(&format!("sessions show {id}"))
            .run()
            .expect_code(0)
            .out()
    };
    assert!(state(&id).contains("completed"), "{}", state(&id));

    let marker = marker();
    let long = recording(
        &person,
        "long",
        &[(
            "Bash",
            json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 }),
        )],
    );
    let server = Server::start(
        &person,
        &format!("--model {long} --drain 200ms --max-running 1"),
    );
    let admin = server.admin();
    let running = admin.submit(&json!({ "task": "long" }));
    let waiting = admin.submit(&json!({ "task": "waits" }));
    await_sleepers(&marker, 1);
    assert_eq!(server.end(), Some(0));
    let said = state(&running);
    assert!(said.contains("interrupted"), "{said}");
    assert!(said.contains("a message goes on with it"), "{said}");
    assert!(state(&waiting).contains("aborted"), "{}", state(&waiting));
    assert!(wait_until(Duration::from_secs(20), || Process::mentioning(
        &marker
    )
    .is_empty()));
}

/// A load balancer sends nothing more to a server that ends, and what it would refuse a moment later is not begun.
#[test]
fn a_server_that_ends_takes_no_new_work_while_sessions_go_on() {
    let person = Person::myself();
    let marker = marker();
    let long = recording(
        &person,
        "long",
        &[(
            "Bash",
            json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 }),
        )],
    );
    let mut server = Server::start(&person, &format!("--model demo --model {long} --drain 60s"));
    let admin = server.admin();
    let resting = admin.submit(&json!({ "task": "rest" }));
    admin.follow_to_end(&resting);
    admin.await_state(&resting, "completed");
    let working = admin.submit(&json!({ "task": "work", "model": long }));
    await_sleepers(&marker, 1);
    admin.get("/health/ready").expect(200);
    server.ask_to_end();
    let is_ready = || server.anybody().get("/health/ready").status == 200;
    assert!(wait_until(Duration::from_secs(20), || !is_ready()));
    let say = |id: &str| format!("/api/sessions/{id}/messages");
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" } } });
    for (method, path, body) in [
        ("POST", "/api/tasks".to_owned(), json!({ "task": "late" })),
        ("POST", "/api/sandboxes".to_owned(), json!({})),
        ("POST", say(&resting), json!({ "text": "more" })),
        ("POST", format!("/api/sessions/{resting}/fork"), json!({})),
        ("PUT", "/api/workspaces".to_owned(), json!({})),
        ("PUT", "/api/bundles".to_owned(), json!({})),
        ("POST", "/api/tool".to_owned(), json!({ "tool": "t" })),
        ("POST", "/mcp".to_owned(), initialize),
    ] {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let body = body.to_string();
        let refused = admin.ask(method, &path, &headers, body.as_bytes());
        let refused = refused.expect(503);
        assert!(refused.header("retry-after").is_some(), "{method} {path}");
    }
    // What is at work is read, spoken to and ended as usual.
    let session = format!("/api/sessions/{working}");
    assert_eq!(admin.get(&session).expect(200).json()["state"], "running");
    admin
        .post(&say(&working), &json!({ "text": "and then" }))
        .expect(202);
    admin
        .get(&format!("/api/sessions/{resting}/diff"))
        .expect(200);
    admin
        .post(&format!("{session}/cancel"), &json!({}))
        .expect(202);
    assert_eq!(server.end(), Some(0));
}
