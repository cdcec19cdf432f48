//! Who may come in, and what they see of each other: nothing.

use crate::server::{Client, Server, TOKEN, recording, token};
use serde_json::{Value, json};
use testkit::Person;

#[test]
fn a_token_is_good_for_what_it_was_made_for_until_it_is_revoked() {
    let person = Person::myself();
    let model = recording(&person, "none", &[]);
    let server = Server::start(&person, &format!("--model {model}"));
    let task = json!({ "task": "x" });
    let reader = server.client(&token(&person, "reader --scope read"));
    assert_eq!(
        reader.post("/api/tasks", &task).expect(403).code(),
        "permission-denied"
    );
    reader.post("/api/sandboxes", &json!({})).expect(403);
    reader.get("/api/sessions").expect(200);
    reader.get("/metrics").expect(403);
    let runner = server.client(&token(&person, "runner"));
    runner
        .post("/api/tasks", &json!({ "task": "x", "apply": true }))
        .expect(403);
    let id = runner.submit(&task);
    runner.follow_to_end(&id);
    runner
        .post(&format!("/api/sessions/{id}/apply"), &json!({}))
        .expect(403);
    let short = server.client(&token(&person, "short --expires 1ms"));
    std::thread::sleep(std::time::Duration::from_millis(20));
    short.get("/api/sessions").expect(401);
    let listed = person.line("token list").run().expect_code(0).out();
    assert!(
        listed.contains("runner") && listed.contains("read,run"),
        "{listed}"
    );
    // A browser that it has let in goes with it.
    let in_browser = runner.post("/api/login", &json!({})).expect(303);
    let cookie = cookie(&in_browser);
    let by_cookie = || {
        let headers = [("cookie", cookie.as_str())];
        server.anybody().ask("GET", "/api/sessions", &headers, b"")
    };
    by_cookie().expect(200);
    person.line("token revoke runner").run().expect_code(0);
    runner.get("/api/sessions").expect(401);
    by_cookie().expect(401);
    person.line("token revoke runner").run().expect_code(6);
    let wrong = person.line("token create admin").run().expect_code(2);
    insta::assert_snapshot!(wrong.failure(person.place().root()), @"
    error: `admin` cannot be the name of a token
    hint: choose letters, digits, `-`, `_`, `.` or `@`, at most 64, and not `admin`
    ");
}

#[test]
fn nobody_comes_in_without_a_token_or_under_another_name() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let anybody = server.anybody();
    for path in [
        "/api/sessions",
        "/api/tools",
        "/metrics",
        "/api/openapi.json",
        "/api/sandboxes",
    ] {
        let refused = anybody.get(path).expect(401);
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        assert!(refused.json()["error"]["remedy"].is_string());
    }
    anybody
        .post("/api/tasks", &json!({ "task": "x" }))
        .expect(401);
    server
        .client("0123456789abcdef0123456789abcdeX")
        .get("/api/sessions")
        .expect(401);
    anybody.get("/health/live").expect(200);
    let evil = [("host", "evil.test")];
    server
        .admin()
        .ask("GET", "/api/sessions", &evil, b"")
        .expect(421);
    anybody.ask("GET", "/health/live", &evil, b"").expect(200);
    let health = anybody.ask("GET", "/health/ready", &evil, b"").expect(200);
    for component in health.json()["components"].as_array().unwrap() {
        assert_eq!(component["detail"], "", "{component}");
    }
    let basic = [("authorization", "Basic YTpi")];
    anybody.ask("GET", "/api/sessions", &basic, b"").expect(401);
    let page = anybody.get("/").expect(200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"));
}

fn cookie(answer: &crate::server::Answer) -> String {
    let set = answer.header("set-cookie").unwrap();
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Strict"),
        "{set}"
    );
    set.split(';').next().unwrap().to_owned()
}

#[test]
fn a_browser_logs_in_once_and_only_its_own_pages_act() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let line = server.told("/login?code=");
    let path = line.split(&server.addr).nth(1).unwrap();
    let anybody: Client = server.anybody();
    let first = anybody.get(path).expect(303);
    let cookie = cookie(&first);
    assert_eq!(anybody.get(path).expect(401).code(), "permission-denied");
    assert_eq!(
        anybody.get("/login").expect(401).code(),
        "permission-denied"
    );
    assert_eq!(
        anybody.get("/login?cod=1").expect(401).code(),
        "permission-denied"
    );
    // A browser is led to where it is asked for a token, or is in already.
    let page = [("accept", "text/html,*/*;q=0.8")];
    for path in [path, "/login"] {
        let led = anybody.ask("GET", path, &page, b"").expect(303);
        assert_eq!(
            (led.header("location"), led.header("set-cookie")),
            (Some("/"), None)
        );
    }
    let with = |method: &str, more: &[(&str, &str)]| {
        let mut headers = vec![("cookie", cookie.as_str())];
        headers.extend_from_slice(more);
        anybody.ask(
            method,
            if method == "GET" {
                "/api/sessions"
            } else {
                "/api/sandboxes"
            },
            &headers,
            b"",
        )
    };
    with("GET", &[]).expect(200);
    let own = format!("http://{}", server.addr);
    with("POST", &[]).expect(403);
    with("POST", &[("origin", "http://evil.test")]).expect(403);
    with(
        "POST",
        &[("origin", &own), ("sec-fetch-site", "cross-site")],
    )
    .expect(403);
    with("POST", &[("origin", &own)]).expect(201);
    with("POST", &[("sec-fetch-site", "same-origin")]).expect(201);
    // A token logs a browser in as its user.
    let by_token = server
        .client(TOKEN)
        .post("/api/login", &json!({}))
        .expect(303);
    assert!(by_token.header("set-cookie").is_some());
}

/// Requirement S3: two users cannot see, name or reach each other's sessions, files and sandboxes.
#[test]
fn s3_two_users_see_nothing_of_each_other() {
    let person = Person::myself();
    let model = recording(
        &person,
        "write",
        &[("Write", json!({ "path": "a", "content": "ann's" }))],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let ann = server.client(&token(&person, "ann --scope run --scope apply"));
    let bob = server.client(&token(&person, "bob --scope run --scope apply"));
    let id = ann.submit(&json!({ "task": "write" }));
    ann.follow_to_end(&id);
    let sandbox = ann.get(&format!("/api/sessions/{id}")).json()["sandbox"]
        .as_str()
        .unwrap()
        .to_owned();
    let of_bob = [
        ("GET", format!("/api/sessions/{id}")),
        ("GET", format!("/api/sessions/{id}/events")),
        ("GET", format!("/api/sessions/{id}/diff")),
        (
            "GET",
            format!("/api/sessions/{id}/conflicts/a?side=project"),
        ),
        ("GET", format!("/api/sessions/{id}/files")),
        ("GET", format!("/api/sessions/{id}/files/a")),
        ("GET", format!("/api/sessions/{id}/checkpoints")),
        ("POST", format!("/api/sessions/{id}/checkpoints")),
        ("POST", format!("/api/sessions/{id}/cancel")),
        ("POST", format!("/api/sessions/{id}/apply")),
        ("POST", format!("/api/sessions/{id}/fork")),
        ("DELETE", format!("/api/sessions/{id}")),
        ("DELETE", format!("/api/sandboxes/{sandbox}")),
    ];
    for (method, path) in &of_bob {
        let named = [("x-request-id", "the-same")];
        let refused = bob.ask(method, path, &named, b"").expect(404);
        assert_eq!(refused.code(), "not-found", "{method} {path}");
        let absent = bob.ask(
            method,
            &path.replace(&id, "s-none").replace(&sandbox, "none"),
            &named,
            b"",
        );
        let (one, other) = (refused.text(), absent.text());
        let hidden = |text: &str| {
            text.replace(&id, "")
                .replace(&sandbox, "")
                .replace("s-none", "")
                .replace("none", "")
        };
        assert_eq!(
            hidden(&one),
            hidden(&other),
            "{path}: what is another's is told apart from what is not there"
        );
    }
    for (path, body) in [
        (
            format!("/api/sessions/{id}/messages"),
            json!({ "text": "x" }),
        ),
        (
            format!("/api/sessions/{id}/restore"),
            json!({ "checkpoint_id": "v1" }),
        ),
        (
            format!("/api/sessions/{id}/approvals"),
            json!({ "approval_id": "a1", "answer": "allow" }),
        ),
        (
            format!("/api/sandboxes/{sandbox}/call"),
            json!({ "tool": "Bash", "arguments": { "command": "cat a" } }),
        ),
        (
            "/api/tasks".to_owned(),
            json!({ "task": "x", "session_id": id }),
        ),
    ] {
        bob.post(&path, &body).expect(404);
    }
    assert_eq!(bob.get("/api/sessions").json()["sessions"], json!([]));
    assert_eq!(bob.get("/api/sandboxes").json()["sandboxes"], json!([]));
    assert_eq!(
        ann.get(&format!("/api/sessions/{id}/files/a")).text(),
        "ann's"
    );
    let all = server.admin().get("/api/sessions").json();
    assert_eq!(all["sessions"][0]["user"], "ann");
    // Who did what is written down, and no word of it.
    let audit = std::fs::read_to_string(person.place().state().join("server/audit.jsonl")).unwrap();
    let lines: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.iter().any(|line| line["user"] == "ann"
        && line["action"] == "POST /api/tasks"
        && line["object"] == id));
    assert!(
        lines
            .iter()
            .any(|line| line["user"] == "bob" && line["status"] == 404)
    );
    assert!(!audit.contains("write") && !audit.contains("ann's"));
}
