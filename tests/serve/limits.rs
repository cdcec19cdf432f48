//! How many work at once, and who waits.

use crate::server::{Server, recording};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Person, await_sleepers, marker, wait_until};

#[test]
fn those_who_wait_know_their_place_and_too_many_are_sent_away() {
    let person = Person::myself();
    let marker = marker();
    let model = recording(
        &person,
        "long",
        &[(
            "Bash",
            json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 }),
        )],
    );
    let server = Server::start(
        &person,
        &format!("--model {model} --max-running 1 --max-queued 2"),
    );
    let admin = server.admin();
    let submit = || admin.submit(&json!({ "task": "wait" }));
    let first = submit();
    await_sleepers(&marker, 1);
    let (second, third) = (submit(), submit());
    let place =
        |id: &str| admin.get(&format!("/api/sessions/{id}")).json()["queue_position"].clone();
    assert_eq!(
        (place(&first), place(&second), place(&third)),
        (Value::Null, json!(1), json!(2))
    );
    let full = admin
        .post("/api/tasks", &json!({ "task": "x" }))
        .expect(429);
    assert_eq!(
        (full.code().as_str(), full.header("retry-after")),
        ("busy", Some("2"))
    );
    let events = admin.follow(&third, None, |event| event.kind == "queued");
    assert_eq!(events[0].data["position"], 2, "{events:?}");
    // One who waits and is cancelled gives the place up; one who works, too.
    admin
        .post(&format!("/api/sessions/{second}/cancel"), &json!({}))
        .expect(202);
    assert_eq!(
        admin.await_state(&second, "aborted")["sandbox"],
        Value::Null
    );
    assert_eq!(place(&third), json!(1));
    admin.delete(&format!("/api/sessions/{first}")).expect(429);
    admin
        .post(&format!("/api/sessions/{first}/cancel"), &json!({}))
        .expect(202);
    admin.await_state(&third, "running");
    admin
        .post(&format!("/api/sessions/{third}/cancel"), &json!({}))
        .expect(202);
    admin.await_state(&third, "aborted");
}

/// Requirement P5, and more of it: 24 sessions at once, each with calls of its own.
#[test]
fn many_sessions_work_at_once_each_in_its_own_sandbox() {
    let person = Person::myself();
    let calls: Vec<(&str, Value)> = (0..5)
        .map(|n| {
            (
                "Bash",
                json!({ "command": format!("echo {n} >> log; cat log | wc -l") }),
            )
        })
        .collect();
    let model = recording(&person, "many", &calls);
    let server = Server::start(
        &person,
        &format!("--model {model} --max-running 12 --max-running-per-user 12"),
    );
    let admin = server.admin();
    let ids: Vec<String> = (0..24)
        .map(|n| admin.submit(&json!({ "task": format!("{n}") })))
        .collect();
    std::thread::scope(|scope| {
        for id in &ids {
            let admin = admin.clone();
            scope.spawn(move || {
                let events = admin.follow_to_end(id);
                assert_eq!(
                    events.last().unwrap().data["ending"],
                    "completed",
                    "{:?}",
                    events.last()
                );
                // Nobody else wrote into its files.
                let log = admin.get(&format!("/api/sessions/{id}/files/log")).text();
                assert_eq!(log, "0\n1\n2\n3\n4\n");
            });
        }
    });
    let text = admin.get("/metrics").text();
    let line =
        r#"glovebox_tool_executions_total{placement="sandbox",tool="Bash",outcome="ok"} 120"#;
    assert!(text.contains(line), "{text}");
    assert!(wait_until(Duration::from_secs(10), || {
        admin
            .get("/metrics")
            .text()
            .contains("glovebox_sessions{state=\"running\"} 0")
    }));
}
