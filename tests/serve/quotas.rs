//! What sandboxes of one user, and of all, may use together: who does not fit waits, and is told for what.

use crate::server::{Client, Server, recording, token};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Person, await_sleepers, marker, wait_until};

const MIB: u64 = 1 << 20;

/// A model whose session works until it is cancelled.
fn long(person: &Person, marker: &str) -> String {
    let call = json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 });
    recording(person, "long", &[("Bash", call)])
}

fn session(client: &Client, id: &str) -> Value {
    client
        .get(&format!("/api/sessions/{id}"))
        .expect(200)
        .json()
}

#[test]
fn a_session_waits_for_its_users_memory_or_for_that_of_all_and_knows_it() {
    let person = Person::myself();
    let marker = marker();
    let model = long(&person, &marker);
    let server = Server::start(
        &person,
        &format!(
            "--model {model} --memory 256MiB --cpus 1 --max-memory-per-user 512MiB --max-memory 768MiB --max-cpus 8"
        ),
    );
    let ann = server.client(&token(&person, "ann --scope run"));
    let bob = server.client(&token(&person, "bob --scope run"));
    let submit = |client: &Client| client.submit(&json!({ "task": "work" }));
    let (first, _second, third) = (submit(&ann), submit(&ann), submit(&ann));
    await_sleepers(&marker, 2);
    let waits = session(&ann, &third);
    assert_eq!(
        (&waits["state"], &waits["queue_position"]),
        (&json!("queued"), &json!(1))
    );
    let what = waits["waits_for"].as_str().unwrap();
    insta::assert_snapshot!(what, @"this user's sandboxes use the memory that they may have (512MiB)");
    // It is told its place first, and what it waits for when those before it have begun.
    let events = ann.follow(&third, None, |event| {
        event.kind == "queued" && !event.data["waits_for"].is_null()
    });
    assert_eq!(events.last().unwrap().data["waits_for"], what, "{events:?}");

    // The other user is not held up, until nothing is left for anybody.
    submit(&bob);
    await_sleepers(&marker, 3);
    let fourth = submit(&bob);
    let what = session(&bob, &fourth)["waits_for"].clone();
    let what = what.as_str().unwrap_or_default();
    insta::assert_snapshot!(what, @"all sandboxes together use the memory that they may have (768MiB)");
    let refused = bob.post("/api/sandboxes", &json!({})).expect(503);
    assert_eq!(
        (refused.code().as_str(), refused.header("retry-after")),
        ("unavailable", Some("2"))
    );
    insta::assert_snapshot!(refused.words(), @"
    all sandboxes together use the memory that they may have (768MiB)
    wait until a sandbox has stopped, end one, or delete a session; /api/quotas says what is used
    ");

    let amount = |used: u64, limit: Value| json!({ "used": used, "limit": limit });
    let of_ann = ann.get("/api/quotas").expect(200).json();
    let resources = &of_ann["resources"];
    assert_eq!(
        resources["memory_bytes"],
        amount(512 * MIB, json!(512 * MIB))
    );
    assert_eq!(resources["cpu_millis"], amount(2000, Value::Null));
    assert_eq!(
        of_ann["all_users"],
        Value::Null,
        "that is for administrators"
    );
    let of_all = &server.admin().get("/api/quotas").expect(200).json()["all_users"];
    assert_eq!(of_all["memory_bytes"], amount(768 * MIB, json!(768 * MIB)));
    assert_eq!(of_all["cpu_millis"], amount(3000, json!(8000)));

    // What ends makes room, although its sandbox would go on for those who look at it.
    ann.post(&format!("/api/sessions/{first}/cancel"), &json!({}))
        .expect(202);
    ann.await_state(&third, "running");
    assert_eq!(session(&ann, &third)["waits_for"], Value::Null);
    assert_eq!(
        session(&bob, &fourth)["state"],
        "queued",
        "its place is not taken"
    );
    ann.post(&format!("/api/sessions/{third}/cancel"), &json!({}))
        .expect(202);
    bob.await_state(&fourth, "running");
}

#[test]
fn a_sandbox_that_never_fits_is_refused_with_what_to_do() {
    let person = Person::myself();
    let refused = |args: &str| {
        let ran = person
            .line(&format!("serve --listen 127.0.0.1:0 {args}"))
            .run();
        assert_ne!(ran.code, 0, "{ran}");
        ran.failure(person.place().root())
    };
    let text = refused("--memory 1GiB --max-memory-per-user 512MiB");
    insta::assert_snapshot!(text, @"
    error: a sandbox with 1GiB of memory never fits: the server has 512MiB for each user
    hint: the operator lowers the limit of a sandbox, `glovebox serve --memory`, or raises the quota, `glovebox serve --max-memory-per-user`
    ");
    let text = refused("--max-cpus 2");
    insta::assert_snapshot!(text, @"
    error: a sandbox with no limit of processors never fits: the server has 2 for all users together
    hint: the operator lowers the limit of a sandbox, `glovebox serve --cpus`, or raises the quota, `glovebox serve --max-cpus`
    ");
    let text = refused("--unsafe-local --project . --max-disk 1GiB");
    insta::assert_snapshot!(text, @"
    error: without sandboxes nothing holds quotas of memory, processors and disk
    hint: serve without --unsafe-local, or leave the quotas out
    ");

    // A sandbox of an earlier run of the server has the limits that it was made with.
    let model = recording(&person, "quick", &[]);
    let server = Server::start(&person, &format!("--model {model} --memory 512MiB"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x" }));
    admin.await_state(&id, "completed");
    assert_eq!(server.end(), Some(0));
    let server = Server::start(
        &person,
        &format!("--model {model} --memory 256MiB --max-memory-per-user 300MiB"),
    );
    let admin = server.admin();
    let refused = admin.post(
        &format!("/api/sessions/{id}/messages"),
        &json!({ "text": "go on" }),
    );
    let refused = refused.expect(413);
    assert_eq!(refused.code(), "too-large");
    insta::assert_snapshot!(refused.words(), @"
    a sandbox with 512MiB of memory never fits: the server has 300MiB for each user
    the operator lowers the limit of a sandbox, `glovebox serve --memory`, or raises the quota, `glovebox serve --max-memory-per-user`
    ");
    let id = admin.submit(&json!({ "task": "x" }));
    admin.await_state(&id, "completed");
}

#[test]
fn files_of_stopped_sandboxes_count_until_they_are_deleted() {
    let person = Person::myself();
    let write = json!({ "command": "head -c 52428800 /dev/zero > filled" });
    let model = recording(&person, "fill", &[("Bash", write)]);
    let server = Server::start(
        &person,
        &format!("--model {model} --disk 64MiB --max-disk-per-user 100MiB"),
    );
    let admin = server.admin();
    let first = admin.submit(&json!({ "task": "x" }));
    admin.await_state(&first, "completed");
    let second = admin.submit(&json!({ "task": "x" }));
    let waits = || {
        let view = session(&admin, &second);
        let what = view["waits_for"].as_str().unwrap_or_default().to_owned();
        what.contains("disk")
    };
    assert!(
        wait_until(Duration::from_secs(20), waits),
        "{}",
        session(&admin, &second)
    );
    let disk = &admin.get("/api/quotas").expect(200).json()["resources"]["disk_bytes"];
    let used = disk["used"].as_u64().unwrap();
    assert!((50 * MIB..60 * MIB).contains(&used), "{disk}");
    admin.delete(&format!("/api/sessions/{first}")).expect(204);
    admin.await_state(&second, "completed");
}
