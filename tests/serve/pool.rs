//! Sandboxes that wait for sessions: each is used once, one that has died is not given out, and none is left behind.

use crate::server::{PATIENCE, Server, recording, token};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testkit::{Person, wait_until};

/// Names and processes of all sandboxes that run.
fn running(person: &Person) -> Vec<(String, i32)> {
    let listed = person.line("list --json").run().expect_code(0);
    let listed: Value = serde_json::from_str(&listed.out()).unwrap();
    let sandboxes = listed["data"]["sandboxes"].as_array().unwrap();
    let ready = sandboxes.iter().filter(|one| one["state"] == "ready");
    ready
        .map(|one| {
            let pid = i32::try_from(one["pid"].as_i64().unwrap()).unwrap();
            (one["name"].as_str().unwrap().to_owned(), pid)
        })
        .collect()
}

fn names(person: &Person) -> BTreeSet<String> {
    running(person).into_iter().map(|(name, _)| name).collect()
}

#[track_caller]
fn await_ready(server: &Server, count: u64) {
    let is_full = || server.admin().metric("glovebox_warm_sandboxes") == count;
    assert!(
        wait_until(PATIENCE, is_full),
        "{}",
        server.lines().join("\n")
    );
}

fn sandbox_of(server: &Server, id: &str) -> String {
    let session = server.admin().get(&format!("/api/sessions/{id}")).json();
    session["sandbox"].as_str().unwrap_or_default().to_owned()
}

const WARM: &str = "glovebox_session_starts_total{start=\"warm\"}";
const COLD: &str = "glovebox_session_starts_total{start=\"cold\"}";

#[test]
fn sessions_take_waiting_sandboxes_each_once_and_the_pool_fills_again() {
    let person = Person::myself();
    let mark = json!({ "command": "ls -A; ls -A /tmp; echo seen > mark; echo seen > /tmp/mark" });
    let model = recording(&person, "mark", &[("Bash", mark)]);
    let server = Server::start(&person, &format!("--pool 2 --model {model}"));
    await_ready(&server, 2);
    let waiting = names(&person);
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    let ready = server.anybody().get("/health/ready").expect(200).json();
    let components = ready["components"].as_array().unwrap();
    let pool = components.iter().find(|one| one["name"] == "pool").unwrap();
    assert_eq!(pool["detail"], "2 of 2 sandboxes wait");

    let mut used = BTreeSet::new();
    for user in ["ann", "bob", "ann2", "bob2"] {
        let client = server.client(&token(&person, &format!("{user} --scope run")));
        await_ready(&server, 2);
        // Those that wait are nobody's: they cannot be seen, named or reached.
        let listed = client.get("/api/sandboxes").json()["sandboxes"].clone();
        assert_eq!(listed, json!([]), "{user}");
        let before = names(&person);
        let id = client.submit(&json!({ "task": "mark" }));
        let events = client.follow_to_end(&id);
        assert_eq!(events.last().unwrap().data["ending"], "completed");
        let call = events.iter().find(|one| one.kind == "call_finished");
        let text = call.unwrap().data["text"].as_str().unwrap();
        assert!(!text.contains("mark"), "somebody was here before: {text}");
        let sandbox = sandbox_of(&server, &id);
        assert!(
            before.contains(&sandbox),
            "{sandbox} did not wait in {before:?}"
        );
        assert!(used.insert(sandbox.clone()), "{sandbox} was used twice");
        // What its user does not apply stays in it, and its workspace is its own.
        let file = client.get(&format!("/api/sessions/{id}/files/mark"));
        assert_eq!(file.expect(200).text(), "seen\n");
        let own = client.get("/api/sandboxes").json()["sandboxes"].clone();
        assert_eq!(own.as_array().unwrap().len(), 1, "{own}");
    }
    assert_eq!(
        (server.admin().metric(WARM), server.admin().metric(COLD)),
        (4, 0)
    );

    // Another spec, another workspace: started as without a pool.
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "look", "phase": "plan" }));
    admin.follow_to_end(&id);
    assert!(!waiting.contains(&sandbox_of(&server, &id)));
    assert_eq!(
        (server.admin().metric(WARM), server.admin().metric(COLD)),
        (4, 1)
    );
}

#[test]
fn a_waiting_sandbox_that_died_is_not_given_out() {
    let person = Person::myself();
    let model = recording(
        &person,
        "quick",
        &[("Bash", json!({ "command": "echo on" }))],
    );
    let server = Server::start(&person, &format!("--pool 2 --model {model}"));
    await_ready(&server, 2);
    let killed = running(&person);
    for (_, pid) in &killed {
        kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
    }
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x" }));
    let events = admin.follow_to_end(&id);
    assert_eq!(
        events.last().unwrap().data["ending"],
        "completed",
        "{events:?}"
    );
    let killed: BTreeSet<String> = killed.into_iter().map(|(name, _)| name).collect();
    assert!(!killed.contains(&sandbox_of(&server, &id)));
    let is_noticed = || server.admin().metric("glovebox_warm_sandboxes_lost") == 2;
    assert!(wait_until(PATIENCE, is_noticed));
    await_ready(&server, 2);
    assert!(killed.is_disjoint(&names(&person)));
}

#[test]
fn waiting_sandboxes_go_with_their_server_however_it_ends() {
    let person = Person::myself();
    let model = recording(&person, "quick", &[]);
    let server = Server::start(&person, &format!("--pool 3 --model {model}"));
    await_ready(&server, 3);
    assert_eq!(server.end(), Some(0));
    assert_eq!(names(&person), BTreeSet::new());

    let mut server = Server::start(&person, &format!("--pool 3 --model {model}"));
    await_ready(&server, 3);
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x" }));
    admin.follow_to_end(&id);
    let used = sandbox_of(&server, &id);
    await_ready(&server, 3);
    let left = names(&person);
    assert!(left.contains(&used) && left.len() == 4, "{used} {left:?}");
    server.child.kill().unwrap();
    server.child.wait().unwrap();

    // The next one has none itself, and takes away what nobody would ever use; what was used stays.
    let server = Server::start(&person, &format!("--model {model}"));
    assert_eq!(names(&person), BTreeSet::from([used.clone()]));
    let entries = std::fs::read_dir(person.place().state().join("server/workspaces")).unwrap();
    let kept: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "probe")
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let admin = server.admin();
    admin
        .post(
            &format!("/api/sessions/{id}/messages"),
            &json!({ "text": "on" }),
        )
        .expect(202);
    let events = admin.follow_to_end(&id);
    assert_eq!(events.last().unwrap().data["ending"], "completed");
    assert_eq!(sandbox_of(&server, &id), used);
}

#[test]
fn waiting_sandboxes_make_room_and_a_pool_that_is_useless_is_refused() {
    let person = Person::myself();
    person.write("home/.config/glovebox/glovebox.toml", "max_sandboxes = 5\n");
    let refused = [
        "--pool 1 --project .",
        "--pool 1 --unsafe-local",
        "--pool 2 --max-running 3",
        "--pool 4",
    ]
    .map(|args| {
        let ran = person
            .line(&format!("serve --listen 127.0.0.1:0 {args}"))
            .run();
        ran.expect_code(2).failure(person.place().root())
    });
    insta::assert_snapshot!(refused.join("\n\n"), @"
    error: a sandbox that is started ahead shows the project as it was then, so sessions of a project begin without
    hint: leave --pool out

    error: without sandboxes none can be started ahead
    hint: leave --pool out

    error: 3 sessions cannot work at the same time beside a pool of 2: `max_sandboxes` is 5
    hint: raise it in glovebox.toml to 6 or more

    error: no session can work beside a pool of 4: `max_sandboxes` is 5
    hint: take a smaller --pool, or raise `max_sandboxes` in glovebox.toml to 6 or more
    ");
    let model = recording(
        &person,
        "quick",
        &[("Bash", json!({ "command": "echo on" }))],
    );
    let server = Server::start(
        &person,
        &format!("--pool 2 --max-running 2 --model {model}"),
    );
    await_ready(&server, 2);
    let admin = server.admin();
    for _ in 0..5 {
        admin.post("/api/sandboxes", &json!({})).expect(201);
    }
    assert!(names(&person).len() <= 5);
}

/// A machine full of idle sandboxes is a usual state, and no failure.
#[test]
fn idle_sandboxes_that_take_all_places_stop_neither_readiness_nor_tasks() {
    let person = Person::myself();
    let model = recording(&person, "quick", &[("Bash", json!({ "command": "true" }))]);
    let bound = [("GLOVEBOX_MAX_SANDBOXES", "2".to_owned())];
    let server = Server::start_with(&person, &format!("--model {model}"), &bound);
    let admin = server.admin();
    let work = || {
        let id = admin.submit(&json!({ "task": "work" }));
        admin.follow_to_end(&id);
        admin.await_state(&id, "completed");
        id
    };
    let first = work();
    work();
    assert_eq!(names(&person).len(), 2);
    // A probe holds for ten seconds; the next one finds no place.
    let detail = || {
        let ready = server.anybody().get("/health/ready").expect(200).json();
        ready["components"][0]["detail"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        wait_until(PATIENCE, || detail().starts_with("not tried")),
        "{}",
        detail()
    );
    work();
    // The one that was used least lately made room, with its files.
    assert!(!names(&person).contains(&sandbox_of(&server, &first)));
    assert_eq!(names(&person).len(), 2);
}
