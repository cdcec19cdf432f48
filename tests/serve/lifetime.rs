//! How long sandboxes run: at a stretch, and when nobody uses them.

use crate::server::{Client, Event, PATIENCE, Server, recording};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::{Person, Process, await_sleepers, marker, wait_until};

/// How a session's sandbox stands.
fn sandbox_state(client: &Client, session: &str) -> Value {
    let name = client.get(&format!("/api/sessions/{session}")).json()["sandbox"].clone();
    let list = client.get("/api/sandboxes").json();
    let mut list = list["sandboxes"].as_array().unwrap().iter();
    let found = list.find(|one| one["id"] == name);
    found.map_or(Value::Null, |one| one["state"].clone())
}

#[track_caller]
fn await_stop(client: &Client, session: &str) -> Event {
    let is_stopped = || sandbox_state(client, session) == "stopped";
    assert!(wait_until(PATIENCE, is_stopped), "it goes on");
    // The event is written when it has stopped.
    let mut last = Event::default();
    let is_told = wait_until(PATIENCE, || {
        last = client.follow_to_end(session).pop().unwrap();
        last.kind == "sandbox_stopped"
    });
    assert!(is_told, "{last:?}");
    last
}

/// What works at the end of its sandbox's time ends with the reason as its last event, and is not lost.
#[test]
fn a_sandbox_that_runs_for_too_long_ends_its_session_and_keeps_its_files() {
    let person = Person::myself();
    let marker = marker();
    let calls = [
        ("Bash", json!({ "command": "echo kept > file" })),
        (
            "Bash",
            json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 }),
        ),
    ];
    let model = recording(&person, "long", &calls);
    let quick = recording(&person, "quick", &[]);
    let models = format!("--model {model} --model {quick}");
    let server = Server::start(&person, &format!("{models} --session-ttl 6s"));
    let admin = server.admin();
    let begun = Instant::now();
    let id = admin.submit(&json!({ "task": "wait" }));
    let events = admin.follow_to_end(&id);
    let ended = events.iter().rfind(|event| event.kind == "ended").unwrap();
    assert_eq!(ended.data["ending"], "stopped_by_limit", "{ended:?}");
    let message = ended.data["message"].as_str().unwrap();
    insta::assert_snapshot!(message, @"its sandbox is stopped: it has run for 6s, the longest that a sandbox runs here");
    assert!(begun.elapsed() >= Duration::from_secs(6), "too early");
    let stopped = await_stop(&admin, &id);
    let reason = stopped.data["reason"].as_str().unwrap();
    insta::assert_snapshot!(reason, @"it has run for 6s, the longest that a sandbox runs here");
    assert!(wait_until(PATIENCE, || Process::mentioning(&marker).is_empty()));
    let session = admin.get(&format!("/api/sessions/{id}")).json();
    assert_eq!(session["state"], "stopped_by_limit", "{session}");
    let patch = admin.get(&format!("/api/sessions/{id}/diff")).expect(200);
    assert!(patch.text().contains("+kept"), "{}", patch.text());

    // Nobody works in this one any more, and somebody looks at it all the time: it stops all the same.
    let other = admin.submit(&json!({ "task": "look", "model": quick }));
    admin.follow_to_end(&other);
    let stopped = wait_until(PATIENCE, || {
        let looked = admin.get(&format!("/api/sessions/{other}/files"));
        // One that looks at the very moment of the stop is told that the sandbox is lost, in the words of what it met.
        assert!(
            looked.status == 200 || looked.json()["error"]["class"] == "lost",
            "{}",
            looked.text()
        );
        let events = admin.follow_to_end(&other);
        events.iter().any(|event| event.kind == "sandbox_stopped")
    });
    assert!(stopped, "it is looked at and goes on for ever");

    // Who comes back starts it again, with its files and a new time.
    let last = admin.follow_to_end(&id).pop().unwrap().id;
    let say = json!({ "text": "and now?" });
    admin
        .post(&format!("/api/sessions/{id}/messages"), &say)
        .expect(202);
    let more = admin.follow(&id, Some(&last), |event| event.kind == "ended");
    assert_eq!(more.last().unwrap().data["ending"], "completed", "{more:?}");
    let file = admin.get(&format!("/api/sessions/{id}/files/file"));
    assert_eq!(file.expect(200).text(), "kept\n");
    drop(server);

    // The same work without that limit goes on; a server that is started with it counts from the sandbox's own start.
    let server = Server::start(&person, &models);
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "wait" }));
    await_sleepers(&marker, 1);
    std::thread::sleep(Duration::from_secs(8));
    await_sleepers(&marker, 1);
    assert_eq!(
        admin.get(&format!("/api/sessions/{id}")).json()["state"],
        "running"
    );
    admin
        .post(&format!("/api/sessions/{id}/cancel"), &json!({}))
        .expect(202);
    admin.await_state(&id, "aborted");
    drop(server);
    let server = Server::start(&person, &format!("{models} --session-ttl 8s"));
    let begun = Instant::now();
    await_stop(&server.admin(), &id);
    assert!(begun.elapsed() < Duration::from_secs(7), "counted anew");
}

/// A command that runs is use, whoever looks; its twin without one stops, and says why.
#[test]
fn a_sandbox_that_nobody_uses_stops_unless_a_command_runs_in_it() {
    let person = Person::myself();
    let marker = marker();
    let command = format!("sleep {marker}");
    let busy = recording(
        &person,
        "busy",
        &[("Bash", json!({ "command": command, "background": true }))],
    );
    let quiet = recording(
        &person,
        "quiet",
        &[("Bash", json!({ "command": "echo kept > file" }))],
    );
    let server = Server::start(
        &person,
        &format!("--model {quiet} --model {busy} --idle 2s"),
    );
    let admin = server.admin();
    let begin = |model: &str| {
        let id = admin.submit(&json!({ "task": "x", "model": model }));
        admin.follow_to_end(&id);
        id
    };
    let (with_job, without) = (begin(&busy), begin(&quiet));
    await_sleepers(&marker, 1);
    let stopped = await_stop(&admin, &without);
    assert_eq!(stopped.data["reason"], "nobody has used it for 2s");
    let state = admin.get(&format!("/api/sessions/{without}")).json()["state"].clone();
    assert_eq!(state, "completed", "how the work ended stays");
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(sandbox_state(&admin, &with_job), "ready");
    await_sleepers(&marker, 1);
    // Its end is the end of the use.
    let name = admin.get(&format!("/api/sessions/{with_job}")).json()["sandbox"].clone();
    let kill = json!({ "tool": "Bash", "arguments": { "command": "pkill -x sleep" } });
    let path = format!("/api/sandboxes/{}/call", name.as_str().unwrap());
    admin.post(&path, &kill).expect(200);
    await_stop(&admin, &with_job);
    // One that is asked for is there again.
    let file = admin.get(&format!("/api/sessions/{without}/files/file"));
    assert_eq!(file.expect(200).text(), "kept\n");
    assert_eq!(sandbox_state(&admin, &without), "ready");
}
