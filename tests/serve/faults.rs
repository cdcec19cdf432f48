//! What breaks under a server that works: each fault has an honest outcome, and what can come back does so by itself.

use crate::server::{PATIENCE, Server, recording};
use crate::small_disk::SmallDisk;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{
    Person, SkipReason, await_sleepers, has_program, marker, skip, skip_because, wait_until,
};

/// Kills the process that a sandbox lives by.
fn kill_sandbox(person: &Person, name: &str) {
    let listed = person.line("list --json").run().expect_code(0);
    let listed: Value = serde_json::from_str(&listed.out()).unwrap();
    let sandboxes = listed["data"]["sandboxes"].as_array().unwrap();
    let found = sandboxes.iter().find(|one| one["name"] == name);
    let pid = found.unwrap_or_else(|| panic!("no {name} in {listed}"))["pid"].as_i64();
    let pid = Pid::from_raw(i32::try_from(pid.unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// The place where sandboxes run goes away and comes back.
#[test]
fn sandboxes_that_stop_working_turn_readiness_off_until_they_work_again() {
    let person = Person::myself();
    let broken = person.place().root().join("broken");
    let script = format!(
        "#!/bin/sh\nif [ -e '{}' ]; then echo 'no route to the box' >&2; exit 1; fi\nexec \"$@\"\n",
        broken.display()
    );
    let carrier = person.write("carrier", script);
    fs::set_permissions(&carrier, fs::Permissions::from_mode(0o755)).unwrap();
    let model = recording(
        &person,
        "quick",
        &[("Bash", json!({ "command": "echo on" }))],
    );
    let server = Server::start(
        &person,
        &format!(
            "--backend command --carrier {} --model {model}",
            carrier.display()
        ),
    );
    let (admin, anybody) = (server.admin(), server.anybody());
    anybody.get("/health/ready").expect(200);

    fs::write(&broken, "").unwrap();
    assert!(wait_until(PATIENCE, || anybody.get("/health/ready").status == 503));
    let ready = anybody.get("/health/ready").expect(503).json();
    assert_eq!(ready["is_ready"], false);
    let components = ready["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|one| one["name"] == name).unwrap();
    let detail = named("sandbox")["detail"].as_str().unwrap();
    assert!(detail.contains("no route to the box"), "{detail}");
    assert_eq!(named("sandbox")["is_ready"], false);
    assert_eq!(
        (&named("sessions")["is_ready"], &named("disk")["is_ready"]),
        (&json!(true), &json!(true))
    );
    let refused = admin
        .post("/api/tasks", &json!({ "task": "x" }))
        .expect(503);
    assert_eq!(
        (refused.code().as_str(), refused.header("retry-after")),
        ("unavailable", Some("2"))
    );
    assert_eq!(
        admin.get("/api/sessions").json()["sessions"],
        json!([]),
        "nothing began"
    );
    let started = admin.post("/api/sandboxes", &json!({}));
    assert!(started.status >= 500, "{started:?}");

    fs::remove_file(&broken).unwrap();
    // Metrics start no sandbox: the server has looked by itself.
    let is_back = || {
        let metrics = admin.get("/metrics").text();
        metrics.contains("glovebox_component_ready{component=\"sandbox\"} 1")
    };
    assert!(wait_until(PATIENCE, is_back));
    anybody.get("/health/ready").expect(200);
    let id = admin.submit(&json!({ "task": "x" }));
    let events = admin.follow_to_end(&id);
    assert_eq!(
        events.last().unwrap().data["ending"],
        "completed",
        "{events:?}"
    );
}

#[test]
fn a_sandbox_that_is_killed_in_a_call_is_lost_and_comes_back_for_the_next() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let admin = server.admin();
    let made = admin.post("/api/sandboxes", &json!({})).expect(201).json();
    let name = made["id"].as_str().unwrap();
    let call = |command: &str| {
        let body =
            json!({ "tool": "Bash", "arguments": { "command": command, "timeout_ms": 600_000 } });
        admin.post(&format!("/api/sandboxes/{name}/call"), &body)
    };
    call("echo kept > file").expect(200);
    let marker = marker();
    let lost = std::thread::scope(|scope| {
        let called = scope.spawn(|| call(&format!("sleep {marker}")));
        await_sleepers(&marker, 1);
        kill_sandbox(&person, name);
        called.join().unwrap()
    });
    let lost = lost.expect(502);
    assert_eq!(lost.json()["error"]["class"], "lost", "{lost:?}");
    let metrics = admin.get("/metrics").text();
    let counted = format!(
        "glovebox_sandbox_errors_total{{code=\"{}\",tool=\"Bash\"}} 1",
        lost.code()
    );
    assert!(metrics.contains(&counted), "{counted} in {metrics}");
    let next = call("cat file").expect(200).json();
    assert!(next["text"].as_str().unwrap().contains("kept"), "{next}");
}

#[test]
fn a_session_whose_sandbox_is_killed_in_a_call_says_so_and_goes_on_when_it_is_asked_to() {
    let person = Person::myself();
    let marker = marker();
    let calls = [
        ("Read", json!({ "path": "nothing" })),
        ("Write", json!({ "path": "file", "content": "kept" })),
        (
            "Bash",
            json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 }),
        ),
    ];
    let model = recording(&person, "work", &calls);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "work" }));
    await_sleepers(&marker, 1);
    let session = admin.get(&format!("/api/sessions/{id}")).json();
    kill_sandbox(&person, session["sandbox"].as_str().unwrap());
    let events = admin.follow_to_end(&id);
    let last = events.last().unwrap();
    assert_eq!(
        (last.kind.as_str(), &last.data["ending"]),
        ("ended", &json!("lost")),
        "{last:?}"
    );
    admin.await_state(&id, "lost");
    let metrics = admin.get("/metrics").text();
    let counted = "glovebox_sandbox_errors_total{code=\"not-found\",tool=\"Read\"} 1";
    assert!(metrics.contains(counted), "{metrics}");

    let words = json!({ "text": "go on" });
    admin
        .post(&format!("/api/sessions/{id}/messages"), &words)
        .expect(202);
    let events = admin.follow_to_end(&id);
    assert_eq!(
        events.last().unwrap().data["ending"],
        "completed",
        "{:?}",
        events.last()
    );
    let file = admin.get(&format!("/api/sessions/{id}/files/file"));
    assert_eq!(file.expect(200).text(), "kept");
}

#[test]
fn a_model_that_does_not_answer_fails_its_session_and_nothing_else() {
    let person = Person::myself();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", free.local_addr().unwrap());
    drop(free);
    let quick = recording(&person, "quick", &[]);
    let env = [
        ("OPENAI_BASE_URL", url),
        ("OPENAI_API_KEY", "sk-test".to_owned()),
    ];
    let server = Server::start_with(
        &person,
        &format!("--model openai/none --model {quick}"),
        &env,
    );
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x" }));
    let events = admin.follow_to_end(&id);
    let last = events.last().unwrap();
    assert_eq!(last.data["ending"], "failed", "{last:?}");
    let message = last.data["message"].as_str().unwrap();
    insta::assert_snapshot!(message, @"the connection to the model server failed: Connection refused (os error 111)");
    server.anybody().get("/health/ready").expect(200);
    let other = admin.submit(&json!({ "task": "x", "model": quick }));
    let events = admin.follow_to_end(&other);
    assert_eq!(events.last().unwrap().data["ending"], "completed");
}

/// Another process holds the server's database for a moment, then for too long.
#[test]
fn a_database_that_another_process_holds_is_waited_for_and_then_named() {
    const HOLD: &str = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
        db.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()\n";
    if !has_program("python3") {
        skip!("needs python3");
    }
    let person = Person::myself();
    let model = recording(&person, "quick", &[]);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let hold = || {
        let mut child = Command::new("python3")
            .args(["-c", HOLD])
            .arg(person.place().state().join("server/server.db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        child
    };
    let mut holder = hold();
    let id = std::thread::scope(|scope| {
        let submitted = scope.spawn(|| admin.submit(&json!({ "task": "waits" })));
        std::thread::sleep(Duration::from_secs(1));
        drop(holder.stdin.take());
        holder.wait().unwrap();
        submitted.join().unwrap()
    });
    admin.follow_to_end(&id);

    let mut holder = hold();
    let refused = admin
        .post("/api/tasks", &json!({ "task": "x" }))
        .expect(503);
    assert_eq!(refused.code(), "unavailable");
    insta::assert_snapshot!(refused.words(), @"
    the server's database cannot be used: database is locked
    another process holds it: try again in a while
    ");
    assert_eq!(
        admin.get(&format!("/api/sessions/{id}")).expect(200).json()["state"],
        "completed"
    );
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let id = admin.submit(&json!({ "task": "x" }));
    admin.await_state(&id, "completed");
}

/// Nothing more fits below the server's state: what needs room says so, all else goes on, and with room so does everything.
#[test]
fn a_full_disk_is_named_with_what_to_do_and_is_over_when_there_is_room() {
    let person = Person::myself();
    if !person.is_root() {
        skip_because!(SkipReason::needs_root("to mount a small file system"));
    }
    let state = person.place().state();
    fs::create_dir_all(&state).unwrap();
    let Some(disk) = SmallDisk::mount(&state, "96m") else {
        skip!("needs a tmpfs that can be mounted");
    };
    let write = json!({ "path": "file", "content": "kept" });
    let marker = marker();
    let model = recording(&person, "write", &[("Write", write)]);
    let wait = json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 });
    let long = recording(&person, "long", &[("Bash", wait)]);
    let server = Server::start(&person, &format!("--model {model} --model {long}"));
    let (admin, anybody) = (server.admin(), server.anybody());
    let before = admin.submit(&json!({ "task": "x" }));
    admin.await_state(&before, "completed");
    let at_work = admin.submit(&json!({ "task": "x", "model": long }));
    await_sleepers(&marker, 1);

    let filler = disk.fill();
    let refused = admin.post("/api/tasks", &json!({ "task": "y".repeat(1 << 16) }));
    let refused = refused.expect(507);
    assert_eq!(refused.code(), "no-space");
    let remedy = refused.json()["error"]["remedy"].to_string();
    assert!(remedy.contains("room"), "{remedy}");
    // The server looks by itself, and says which part it is.
    let is_noticed = || anybody.get("/health/ready").status == 503;
    assert!(wait_until(PATIENCE, is_noticed));
    let ready = anybody.get("/health/ready").expect(503).json();
    let components = ready["components"].as_array().unwrap();
    let disk_part = components.iter().find(|one| one["name"] == "disk").unwrap();
    assert_eq!(disk_part["is_ready"], false);
    assert!(
        disk_part["detail"].as_str().unwrap().contains("make room"),
        "{disk_part}"
    );
    let refused = admin
        .post("/api/tasks", &json!({ "task": "x" }))
        .expect(507);
    assert_eq!(refused.code(), "no-space");
    // What needs no room is answered, and the session at work can be ended.
    let file = admin.get(&format!("/api/sessions/{before}/files/file"));
    assert_eq!(file.expect(200).text(), "kept");
    admin
        .post(&format!("/api/sessions/{at_work}/cancel"), &json!({}))
        .expect(202);
    let is_over = || {
        let metrics = admin.get("/metrics").expect(200).text();
        metrics.contains("glovebox_sessions{state=\"running\"} 0")
    };
    assert!(wait_until(PATIENCE, is_over));
    // What makes room goes on, too: some is kept for it.
    admin.delete(&format!("/api/sessions/{before}")).expect(204);
    admin.get(&format!("/api/sessions/{before}")).expect(404);

    fs::remove_file(filler).unwrap();
    assert!(wait_until(PATIENCE, || anybody.get("/health/ready").status == 200));
    let after = admin.submit(&json!({ "task": "x" }));
    admin.await_state(&after, "completed");
    let state = admin.get(&format!("/api/sessions/{at_work}")).json()["state"].clone();
    assert!(state != "running" && state != "queued", "{state}");
    // Nobody finds them once their state has been unmounted.
    assert_eq!(server.end(), Some(0));
    person.line("kill --all").run().expect_code(0);
}
