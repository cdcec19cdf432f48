//! Sessions whose sandboxes are machines of a service: AIO Sandbox and Sprites, as servers with their contracts.

use crate::server::{Server, recording};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};
use testkit::{Person, RemoteService, SERVICE_TOKEN, await_sleepers, marker, wait_until};

fn serve(person: &Person, service: &RemoteService, rest: &str) -> Server {
    serve_at(person, service, "127.0.0.1:0", rest)
}

fn serve_at(person: &Person, service: &RemoteService, addr: &str, rest: &str) -> Server {
    let args = format!("{} {rest}", service.flags());
    let token = (service.variable, SERVICE_TOKEN.to_owned());
    Server::start_at_with(person, addr, &args, &[token])
}

/// Runs a test with a server on each service.
fn each(mut test: impl FnMut(&mut RemoteService, &Person)) {
    for mut service in [RemoteService::aio(), RemoteService::sprites()] {
        test(&mut service, &Person::myself());
    }
}

#[test]
fn a_session_works_elsewhere_and_its_changes_come_back_when_they_are_applied() {
    each(|service, person| {
        person.write("project/kept.txt", "before\n");
        person.write("project/.env", "SECRET=1\n");
        let write = json!({ "path": "new/a.txt", "content": "hello\n" });
        let command = "echo after >kept.txt; ls -A; echo $AIO_API_KEY$SPRITES_TOKEN; pwd";
        let calls = [("Write", write), ("Bash", json!({ "command": command }))];
        let model = recording(person, "write", &calls);
        let server = serve(person, service, &format!("--project . --model {model}"));
        let ready = server.anybody().get("/health/ready").expect(200).json();
        assert_eq!(ready["is_ready"], true, "{ready}");
        let admin = server.admin();
        let id = admin.submit(&json!({ "task": "write" }));
        let events = admin.follow_to_end(&id);
        let last = events.last().unwrap();
        assert_eq!(last.data["ending"], "completed", "{last:?}");
        let output = events.iter().map(|event| event.data.to_string());
        let output = output.collect::<String>();
        assert!(output.contains("glovebox-"), "where it worked: {output}");
        assert!(
            !output.contains(SERVICE_TOKEN) && !output.contains(".env"),
            "{output}"
        );
        let path = |rest: &str| format!("/api/sessions/{id}{rest}");
        let file = admin.get(&path("/files/new/a.txt")).expect(200);
        assert_eq!(file.text(), "hello\n");
        let patch = admin.get(&path("/diff")).expect(200).text();
        assert!(patch.contains("-before\n+after\n"), "{patch}");
        let list = admin.get(&path("/diff?format=json")).expect(200).json();
        assert_eq!(list["files"].as_array().unwrap().len(), 2, "{list}");
        assert!(!person.project().join("new").exists(), "applied too early");
        let digest = json!({ "digest": list["digest"] });
        admin.post(&path("/apply"), &digest).expect(200);
        let read = |name: &str| fs::read_to_string(person.project().join(name)).unwrap();
        assert_eq!(
            (read("new/a.txt"), read("kept.txt")),
            ("hello\n".into(), "after\n".into())
        );
        admin.delete(&path("")).expect(204);
        drop(server);
        assert!(!service.holds("glovebox-"), "its copy is left");
        person.assert_nothing_lives();
    });
}

#[test]
fn an_approval_lets_a_call_through_to_the_other_machine_and_two_sessions_are_apart() {
    each(|service, person| {
        let rule = "[policy]\nask = [\"Bash\"]\n";
        person.write("home/.config/glovebox/glovebox.toml", rule);
        let command = "test ! -e mine || exit 3; echo x >mine; ls";
        let bash = json!({ "command": command });
        let model = recording(person, "ask", &[("Bash", bash)]);
        let server = serve(person, service, &format!("--project . --model {model}"));
        let admin = server.admin();
        let ask = json!({ "task": "x", "ask": true });
        let ids: Vec<String> = (0..2).map(|_| admin.submit(&ask)).collect();
        for id in &ids {
            let session = format!("/api/sessions/{id}");
            let mut found = Value::Null;
            let is_asked = wait_until(Duration::from_mins(1), || {
                found = admin.get(&session).json();
                found["approvals"][0]["id"] == "a1"
            });
            assert!(is_asked, "{found}");
            let answer = json!({ "approval_id": "a1", "answer": "allow" });
            let path = format!("{session}/approvals");
            admin.post(&path, &answer).expect(204);
            let events = admin.follow_to_end(id);
            let done = events.iter().find(|event| event.kind == "call_finished");
            assert_eq!(done.unwrap().data["is_error"], false, "{events:?}");
        }
        let names: Vec<Value> = ids
            .iter()
            .map(|id| admin.get(&format!("/api/sessions/{id}")).json()["sandbox"].clone())
            .collect();
        assert_ne!(names[0], names[1]);
    });
}

#[test]
fn a_server_that_is_killed_finds_its_machines_again() {
    each(|service, person| {
        let marker = marker();
        let sleep = json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 });
        let write = json!({ "path": "done.txt", "content": "kept" });
        let model = recording(person, "work", &[("Write", write), ("Bash", sleep)]);
        let rest = format!("--project . --model {model}");
        let mut server = serve(person, service, &rest);
        let addr = server.addr.clone();
        let id = server.admin().submit(&json!({ "task": "work" }));
        await_sleepers(&marker, 1);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let server = serve_at(person, service, &addr, &rest);
        let admin = server.admin();
        let path = |rest: &str| format!("/api/sessions/{id}{rest}");
        assert_eq!(admin.get(&path("")).json()["state"], "interrupted");
        assert_eq!(admin.get(&path("/files/done.txt")).text(), "kept");
        let go_on = json!({ "text": "go on" });
        admin.post(&path("/messages"), &go_on).expect(202);
        let events = admin.follow_to_end(&id);
        assert_eq!(events.last().unwrap().data["ending"], "completed");
        admin.post(&path("/apply"), &json!({})).expect(200);
        let done = fs::read(person.project().join("done.txt")).unwrap();
        assert_eq!(done, b"kept");
    });
}

#[test]
fn a_server_does_not_start_without_its_service() {
    each(|service, person| {
        service.server.kill();
        let begun = Instant::now();
        let rest = "--listen 127.0.0.1:0";
        let refused = service.line(person, "serve", rest);
        let refused = refused
            .env("GLOVEBOX_SERVER_TOKEN", crate::server::TOKEN)
            .run();
        assert_ne!(refused.code, 0, "{refused}");
        let told = refused.err();
        assert!(
            told.contains("error:") && !told.contains("serving at"),
            "{told}"
        );
        assert!(
            told.contains(service.server.url().trim_start_matches("http://")),
            "{told}"
        );
        assert!(!told.contains(SERVICE_TOKEN), "{told}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{refused}");
    });
}
