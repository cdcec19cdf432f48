//! What whoever runs a server sees: whether it works, what it counts, and why it does not start.

use crate::server::{Server, TOKEN};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::Person;

/// Requirements F5, P1.
#[test]
fn a_server_says_whether_it_can_work() {
    Person::each(|person| {
        let server = Server::start(person, "");
        server.told("was started, tried and ended");
        let anybody = server.anybody();
        assert_eq!(anybody.get("/health/live").expect(200).text(), "live\n");
        let ready = anybody.get("/health/ready").expect(200).json();
        assert_eq!(
            (&ready["is_ready"], &ready["placement"]),
            (&json!(true), &json!("sandbox"))
        );
        let admin = server.admin();
        let text = admin.get("/metrics").expect(200);
        assert!(
            text.header("content-type")
                .unwrap()
                .starts_with("application/openmetrics-text")
        );
        assert!(text.text().ends_with("# EOF\n"));
    });
}

#[test]
fn the_description_has_every_route() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let description = server.admin().get("/api/openapi.json").expect(200).json();
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = description["paths"].as_object().unwrap();
    for (path, methods) in [
        ("/api/tasks", &["post"][..]),
        ("/api/sessions", &["get"]),
        ("/api/sessions/{id}", &["get", "delete"]),
        ("/api/sessions/{id}/events", &["get"]),
        ("/api/sessions/{id}/cancel", &["post"]),
        ("/api/sessions/{id}/messages", &["post"]),
        ("/api/sessions/{id}/approvals", &["post"]),
        ("/api/sessions/{id}/diff", &["get"]),
        ("/api/sessions/{id}/apply", &["post"]),
        ("/api/sessions/{id}/files", &["get"]),
        ("/api/sessions/{id}/files/{path}", &["get"]),
        ("/api/sessions/{id}/checkpoints", &["get", "post"]),
        ("/api/sessions/{id}/restore", &["post"]),
        ("/api/sessions/{id}/fork", &["post"]),
        ("/api/sandboxes", &["get", "post"]),
        ("/api/sandboxes/{id}", &["delete"]),
        ("/api/sandboxes/{id}/call", &["post"]),
        ("/api/sandboxes/{id}/terminal", &["get"]),
        ("/api/sessions/{id}/terminal", &["get"]),
        ("/api/tools", &["get"]),
        ("/metrics", &["get"]),
    ] {
        for method in methods {
            let operation = &paths[path][method];
            assert!(operation["responses"].is_object(), "{method} {path}");
            let summary = operation["summary"]
                .as_str()
                .or(operation["description"].as_str());
            assert!(
                summary.is_some_and(|text| !text.is_empty()),
                "{method} {path} is not described"
            );
        }
    }
    // Every type that is named is there.
    let text = description.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(
            description["components"]["schemas"][name].is_object(),
            "{name}"
        );
    }
}

/// Requirement F6: a sandbox that does not work keeps the server from starting, soon, with what to do.
#[test]
fn a_server_without_a_working_sandbox_does_not_start() {
    let person = Person::myself();
    let begun = Instant::now();
    let refused = person
        .line("serve --listen 127.0.0.1:0 --backend command --carrier false")
        .env("GLOVEBOX_SERVER_TOKEN", TOKEN)
        .run();
    assert_ne!(refused.code, 0, "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(
        refused.err().contains("error:") && !refused.err().contains("serving at"),
        "{refused}"
    );
}

#[test]
fn a_server_that_is_started_wrongly_says_how_to_do_it() {
    let person = Person::myself();
    let serve = |args: &str| person.line(&format!("serve {args}")).run();
    let reached = serve("--listen 0.0.0.0:0").expect_code(2);
    assert!(reached.err().contains("GLOVEBOX_SERVER_TOKEN"), "{reached}");
    let host = serve("--listen 127.0.0.1:0 --backend host").expect_code(2);
    assert!(host.err().contains("--unsafe-local"), "{host}");
    let gone = serve("--listen 127.0.0.1:0 --project none");
    assert!(gone.err().contains("open the project"), "{gone}");
    let weak = person
        .line("serve --listen 127.0.0.1:0")
        .env("GLOVEBOX_SERVER_TOKEN", "short")
        .run()
        .expect_code(2);
    assert!(weak.err().contains("at least 16"), "{weak}");
    let model = serve("--listen 127.0.0.1:0 --model nonsense").expect_code(2);
    assert!(model.err().contains("nonsense"), "{model}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = serve(&format!("--listen {}", taken.local_addr().unwrap()));
    assert!(busy.err().contains("listen at"), "{busy}");
}

/// Local placement needs the flag, says so everywhere, and works on the machine.
#[test]
fn without_walls_only_when_it_is_said() {
    let person = Person::myself();
    let model = crate::server::recording(
        &person,
        "write",
        &[("Write", json!({ "path": "made", "content": "x" }))],
    );
    let server = Server::start(
        &person,
        &format!("--unsafe-local --project . --model {model}"),
    );
    let ready: Value = server.anybody().get("/health/ready").expect(200).json();
    assert_eq!(ready["placement"], "local");
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "write" }));
    let events = admin.follow_to_end(&id);
    let started = events.iter().find(|event| event.kind == "started");
    assert_eq!(started.unwrap().data["placement"], "local");
    assert!(person.project().join("made").exists());
    assert_eq!(
        admin.get(&format!("/api/sessions/{id}")).json()["placement"],
        "local"
    );
    admin.post("/api/sandboxes", &json!({})).expect(400);
}
