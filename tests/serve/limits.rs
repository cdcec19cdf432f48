//! How many work at once, and who waits.

use crate::server::{Server, recording, token};
use serde_json::{Value, json};
use std::io::Read as _;
use std::net::TcpStream;
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
        .expect(503);
    assert_eq!(
        (full.code().as_str(), full.header("retry-after")),
        ("unavailable", Some("2"))
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
    let at_work = format!("/api/sessions/{first}");
    assert_eq!(admin.delete(&at_work).expect(409).code(), "conflict");
    let restore = json!({ "checkpoint_id": "v1" });
    let restored = admin.post(&format!("{at_work}/restore"), &restore);
    assert_eq!(restored.expect(409).code(), "conflict");
    admin
        .post(&format!("/api/sessions/{first}/cancel"), &json!({}))
        .expect(202);
    admin.await_state(&third, "running");
    admin
        .post(&format!("/api/sessions/{third}/cancel"), &json!({}))
        .expect(202);
    admin.await_state(&third, "aborted");
}

/// Sandboxes of sessions that have ended give way to those of sessions that work; what they hold stays.
#[test]
fn idle_sandboxes_make_room_and_keep_their_files() {
    let person = Person::myself();
    person.write("home/.config/glovebox/glovebox.toml", "max_sandboxes = 4\n");
    let calls = [("Bash", json!({ "command": "echo kept > file" }))];
    let model = recording(&person, "write", &calls);
    let refused = person
        .line("serve --listen 127.0.0.1:0 --max-running 4")
        .run()
        .expect_code(2);
    insta::assert_snapshot!(refused.failure(person.place().root()), @"
    error: 4 sessions cannot work at the same time: `max_sandboxes` is 4
    hint: raise it in glovebox.toml to 5 or more
    ");
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let ids: Vec<String> = (0..9)
        .map(|n| admin.submit(&json!({ "task": format!("{n}") })))
        .collect();
    for id in &ids {
        let events = admin.follow_to_end(id);
        // Some have given way since, which is an event of its own.
        let ended = events.iter().rfind(|event| event.kind == "ended").unwrap();
        assert_eq!(ended.data["ending"], "completed", "{ended:?}");
    }
    for id in &ids {
        let path = format!("/api/sessions/{id}/files/file");
        assert_eq!(admin.get(&path).expect(200).text(), "kept\n");
    }
}

#[test]
fn a_flood_of_one_user_is_answered_429_and_others_go_on() {
    let person = Person::myself();
    let server = Server::start(&person, "--max-requests-per-second 3");
    let ann = server.client(&token(&person, "ann --scope read"));
    let answers: Vec<_> = (0..40).map(|_| ann.get("/api/tools")).collect();
    let refused = answers.iter().find(|answer| answer.status == 429).unwrap();
    assert_eq!(
        (refused.code().as_str(), refused.header("retry-after")),
        ("busy", Some("1"))
    );
    assert!(answers[..6].iter().all(|answer| answer.status == 200));
    server.admin().get("/api/tools").expect(200);
    assert!(wait_until(Duration::from_secs(10), || ann
        .get("/api/tools")
        .status
        == 200));
}

/// Whoever has no token holds no place that a client could have.
#[test]
fn connections_without_a_token_are_few_and_short() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let mut strangers: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(&server.addr).unwrap())
        .collect();
    server.admin().get("/api/tools").expect(200);
    let last = strangers.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let ended = last.read(&mut [0]);
    assert!(
        !matches!(ended, Ok(1..)) && !is_timeout(&ended),
        "{ended:?}"
    );
}

fn is_timeout(read: &std::io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| {
        matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        )
    })
}

#[test]
fn a_user_has_no_more_sandboxes_than_the_quota_and_others_keep_theirs() {
    let person = Person::myself();
    let marker = marker();
    let server = Server::start(&person, "--max-sandboxes-per-user 2");
    let ann = server.client(&token(&person, "ann --scope run"));
    let bob = server.client(&token(&person, "bob --scope run"));
    let start = |client: &crate::server::Client| client.post("/api/sandboxes", &json!({}));
    let id = |answer: crate::server::Answer| {
        let made = answer.expect(201).json();
        made["id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (id(start(&ann)), id(start(&ann)));
    let quotas = ann.get("/api/quotas").expect(200).json();
    assert_eq!(quotas["user"], "ann");
    assert_eq!(quotas["sandboxes"], json!({ "used": 2, "limit": 2 }));
    assert!(quotas["each_sandbox"]["memory_bytes"].is_u64(), "{quotas}");
    // Nothing runs in the first one: it stops, and makes room.
    let third = id(start(&ann));
    let state = |name: &str| {
        let list = ann.get("/api/sandboxes").json();
        let mut all = list["sandboxes"].as_array().unwrap().iter();
        let found = all.find(|one| one["id"] == *name).unwrap();
        found["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (state(&first), state(&third)),
        ("stopped".into(), "ready".into())
    );
    // Something runs in both: no more for this user, and none of the other's business.
    for name in [&second, &third] {
        let command = format!("sleep {marker}");
        let call =
            json!({ "tool": "Bash", "arguments": { "command": command, "background": true } });
        ann.post(&format!("/api/sandboxes/{name}/call"), &call)
            .expect(200);
    }
    await_sleepers(&marker, 2);
    let refused = start(&ann).expect(429);
    assert_eq!(refused.code(), "too-many-sandboxes");
    insta::assert_snapshot!(refused.words(), @"
    2 sandboxes of this user run, and that is the most
    end one, or wait until a command in one has ended; /api/quotas says what is used
    ");
    id(start(&bob));
    ann.delete(&format!("/api/sandboxes/{second}")).expect(204);
    id(start(&ann));
}
