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
    for id in [&running, &waiting] {
        assert!(state(id).contains("aborted"), "{}", state(id));
    }
    assert!(wait_until(Duration::from_secs(20), || Process::mentioning(
        &marker
    )
    .is_empty()));
}
