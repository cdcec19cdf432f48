//! Sessions whose sandboxes are machines of a service: AIO Sandbox and Sprites, as servers with their contracts.

use crate::server::{Server, TOKEN, recording, token};
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

/// Two containers, and flags for both.
fn two_containers() -> (Vec<RemoteService>, String) {
    let services = vec![RemoteService::aio(), RemoteService::aio()];
    let urls = services
        .iter()
        .map(|one| format!("--base-url {}", one.server.url()));
    let urls = urls.collect::<Vec<_>>().join(" ");
    let flags = format!("--backend aio {urls} --reconnect 3s");
    (services, flags)
}

#[test]
fn s3_each_user_of_a_service_has_a_container_and_a_third_one_is_refused() {
    let person = Person::myself();
    let (mut services, flags) = two_containers();
    let key = ("AIO_API_KEY", SERVICE_TOKEN.to_owned());
    let server = Server::start_with(&person, &flags, &[key]);
    let ready = server.admin().get("/health/ready").expect(200).json();
    let detail = ready["components"][0]["detail"].as_str().unwrap();
    assert_eq!(detail, "2 of 2 addresses of the service answer");
    // Asking makes nothing there.
    assert!(!services.iter().any(|one| one.holds("glovebox-probe")));
    let names = ["ann", "bob", "eve"];
    let [ann, bob, eve] = names.map(|name| server.client(&token(&person, name)));
    let start = |user: &crate::server::Client| {
        let made = user.post("/api/sandboxes", &json!({})).expect(201).json();
        made["id"].as_str().unwrap().to_owned()
    };
    let bash = |user: &crate::server::Client, id: &str, command: &str| {
        let body = json!({ "tool": "Bash", "arguments": { "command": command } });
        let path = format!("/api/sandboxes/{id}/call");
        user.post(&path, &body).expect(200).json()["text"].to_string()
    };
    let (anns, bobs, again) = (start(&ann), start(&bob), start(&ann));
    bash(&ann, &anns, "echo private >anns-file");
    let seen = bash(&ann, &again, "cat ../glovebox-*/anns-file");
    assert!(seen.contains("private"), "a user's own share one: {seen}");
    let seen = bash(
        &bob,
        &bobs,
        "ls -d ../glovebox-*; cat ../glovebox-*/anns-file 2>/dev/null; true",
    );
    assert_eq!(seen.matches("glovebox-").count(), 1, "{seen}");
    assert!(!seen.contains("private"), "{seen}");
    let refused = eve.post("/api/sandboxes", &json!({}));
    assert_eq!(refused.code(), "too-many-sandboxes");
    assert!(refused.words().contains("another user"), "{refused:?}");
    let refused = eve.post("/api/tasks", &json!({ "task": "x" }));
    assert_eq!(refused.code(), "too-many-sandboxes");

    let metric = |service: &RemoteService, value: u8| {
        let url = service.server.url();
        let line = format!("glovebox_backend_up{{backend=\"aio\",place=\"{url}\"}} {value}");
        server.admin().get("/metrics").text().contains(&line)
    };
    assert!(services.iter().all(|one| metric(one, 1)));
    services[0].server.kill();
    let is_down = || server.admin().get("/health/ready").status == 503;
    let patience = Duration::from_mins(1);
    assert!(wait_until(patience, || !is_down() && metric(&services[0], 0)));
    // The other user goes on.
    assert!(bash(&bob, &bobs, "echo on").contains("on"));
    services[1].server.kill();
    assert!(wait_until(patience, is_down));
}

#[test]
fn f6_a_server_with_a_dead_container_does_not_start_and_names_it() {
    let person = Person::myself();
    let (mut services, flags) = two_containers();
    services[1].server.kill();
    let begun = Instant::now();
    let serve = |flags: &str| {
        let line = format!("serve --listen 127.0.0.1:0 {flags}");
        let line = person.line(&line).env("GLOVEBOX_SERVER_TOKEN", TOKEN);
        line.env("AIO_API_KEY", SERVICE_TOKEN).run()
    };
    let refused = serve(&flags);
    assert_ne!(refused.code, 0, "{refused}");
    let told = refused.err();
    assert!(told.contains(services[1].server.url()), "{told}");
    assert!(!told.contains(services[0].server.url()), "{told}");
    assert!(!told.contains(SERVICE_TOKEN), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{refused}");
    let refused = serve(&format!("{flags} --pool 1"));
    assert!(refused.err().contains("leave the pool out"), "{refused}");
    // One sandbox has one address; with its name in it, one of its own.
    let refused = person.line(&format!("run {flags} -- true")).run();
    assert!(refused.err().contains("has one address"), "{refused}");
    let named = format!(
        "run --backend aio --base-url {}/{{name}} -- true",
        services[1].server.url()
    );
    let refused = person.line(&named).run();
    assert!(refused.err().contains("/run-"), "{refused}");
    let several = person.line("run --backend aio --reconnect 1s --reconnect 2s -- true");
    assert!(several.run().err().contains("several times"));
}
