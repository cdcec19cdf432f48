//! Who comes in from a browser: logins, their bounds and ends, and pages of other origins.

use crate::server::{Client, Server, recording, token};
use serde_json::json;
use testkit::Person;

/// Logs a browser in. Returns its cookie.
fn log_in(client: &Client) -> String {
    let login = client.post("/api/login", &json!({})).expect(303);
    let cookie = login.header("set-cookie").unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

/// The status of a request with a cookie and nothing else.
fn status_with(server: &Server, cookie: &str) -> u16 {
    let cookie = [("cookie", cookie)];
    server
        .anybody()
        .ask("GET", "/api/sessions", &cookie, b"")
        .status
}

#[test]
fn logins_of_one_user_push_out_only_the_oldest_of_the_same_user() {
    let person = Person::myself();
    let server = Server::start(&person, "--model demo");
    let (ann, bob) = (
        server.client(&token(&person, "ann")),
        server.client(&token(&person, "bob")),
    );
    let (of_bob, of_admin) = (log_in(&bob), log_in(&server.admin()));
    let of_ann: Vec<String> = (0..40).map(|_| log_in(&ann)).collect();
    let holding = of_ann
        .iter()
        .filter(|cookie| status_with(&server, cookie) == 200);
    assert_eq!(holding.count(), 16);
    assert_eq!(status_with(&server, &of_ann[23]), 401);
    assert_eq!(status_with(&server, &of_ann[24]), 200);
    for other in [&of_bob, &of_admin] {
        assert_eq!(status_with(&server, other), 200);
    }
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_login_outlives_a_restart_and_ends_with_a_logout_or_another_token() {
    let person = Person::myself();
    let server = Server::start(&person, "--model demo");
    let ann = server.client(&token(&person, "ann"));
    let cookies = [
        log_in(&ann),
        log_in(&ann),
        log_in(&ann),
        log_in(&server.admin()),
    ];
    assert_eq!(server.end(), Some(0));

    let server = Server::start(&person, "--model demo");
    for cookie in &cookies {
        assert_eq!(status_with(&server, cookie), 200);
    }
    let log_out = |cookie: &str, body: &str| {
        let headers = [
            ("cookie", cookie),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/json"),
        ];
        server
            .anybody()
            .ask("POST", "/api/logout", &headers, body.as_bytes())
    };
    // A page of another site logs nobody out.
    let foreign = [
        ("cookie", cookies[0].as_str()),
        ("sec-fetch-site", "cross-site"),
    ];
    server
        .anybody()
        .ask("POST", "/api/logout", &foreign, b"")
        .expect(403);
    let ended = log_out(&cookies[0], "").expect(204);
    assert!(ended.header("set-cookie").unwrap().contains("Max-Age=0"));
    let states = |server: &Server| cookies.each_ref().map(|cookie| status_with(server, cookie));
    assert_eq!(states(&server), [401, 200, 200, 200]);
    log_out(&cookies[1], r#"{"all":true}"#).expect(204);
    assert_eq!(states(&server), [401, 401, 401, 200]);
    assert_eq!(server.end(), Some(0));

    // An administrator's login holds as long as the token does.
    let other = ("GLOVEBOX_SERVER_TOKEN", "another-token-of-16".to_owned());
    let server = Server::start_with(&person, "--model demo", &[other]);
    assert_eq!(states(&server), [401, 401, 401, 401]);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn pages_of_listed_origins_are_let_in_without_cookies_and_no_others() {
    let person = Person::myself();
    let server = Server::start(
        &person,
        "--model demo --allow-origin https://app.example.com",
    );
    let preflight = |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "authorization,content-type",
            ),
        ];
        server.anybody().ask("OPTIONS", "/api/chat", &headers, b"")
    };
    let allowed = preflight("https://app.example.com");
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://app.example.com")
    );
    assert!(
        allowed
            .header("access-control-allow-headers")
            .unwrap()
            .contains("authorization")
    );
    assert_eq!(allowed.header("access-control-allow-credentials"), None);
    for other in [
        "https://evil.example",
        "https://app.example.com.evil.example",
        "null",
    ] {
        assert_eq!(
            preflight(other).header("access-control-allow-origin"),
            None,
            "{other}"
        );
    }
    let origin = [("origin", "https://app.example.com")];
    let read = server
        .admin()
        .ask("GET", "/api/sessions", &origin, b"")
        .expect(200);
    assert_eq!(
        read.header("access-control-allow-origin"),
        Some("https://app.example.com")
    );
    // A refusal can be read as well.
    let refused = server
        .anybody()
        .ask("GET", "/api/sessions", &origin, b"")
        .expect(401);
    assert!(refused.header("access-control-allow-origin").is_some());
    assert_eq!(server.end(), Some(0));
}

#[test]
fn sessions_of_this_machine_are_the_administrators_to_read_and_delete() {
    let person = Person::myself();
    let model = recording(
        &person,
        "quick",
        &[("Bash", json!({ "command": "echo on" }))],
    );
    let run = format!("agent --model {model} --sandbox --yes --no-toolchains hello");
    person.line(&run).run().expect_code(0);
    let server = Server::start(&person, "--model demo");
    let (admin, ann) = (server.admin(), server.client(&token(&person, "ann")));
    let listed = admin.get("/api/sessions").expect(200).json();
    let id = listed["sessions"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed["sessions"][0]["user"], "(this machine)");
    let path = format!("/api/sessions/{id}");
    assert_eq!(ann.get("/api/sessions").json()["sessions"], json!([]));
    ann.get(&path).expect(404);
    ann.delete(&path).expect(404);
    admin.get(&path).expect(200);
    assert!(!admin.follow_to_end(&id).is_empty());
    // It is nobody's to work in.
    admin
        .post(&format!("{path}/messages"), &json!({ "text": "go on" }))
        .expect(404);
    admin.post(&format!("{path}/apply"), &json!({})).expect(404);
    admin.delete(&path).expect(204);
    admin.get(&path).expect(404);
    assert_eq!(server.end(), Some(0));
    person.line("kill --all").run().expect_code(0);
}

#[test]
fn a_refusal_names_the_rule_and_nothing_of_the_operators() {
    let person = Person::myself();
    let file = person.write(
        "operators-file.toml",
        "[policy]\nask = [\"Bash\"]\ndeny = [\"Write\"]\n",
    );
    let server = Server::start(
        &person,
        &format!("--model demo --config {}", file.display()),
    );
    let ann = server.client(&token(&person, "ann"));
    let made = ann.post("/api/sandboxes", &json!({})).expect(201).json();
    let path = format!("/api/sandboxes/{}/call", made["id"].as_str().unwrap());
    for (tool, arguments, rule) in [
        ("Bash", json!({ "command": "id" }), "ask Bash"),
        (
            "Write",
            json!({ "path": "x", "content": "x" }),
            "deny Write",
        ),
    ] {
        let refused = ann.post(&path, &json!({ "tool": tool, "arguments": arguments }));
        let text = refused.text();
        assert!(text.contains(rule), "{text}");
        assert!(
            !text.contains("operators-file") && !text.contains("glovebox why"),
            "{text}"
        );
    }
    assert_eq!(server.end(), Some(0));
    person.line("kill --all").run().expect_code(0);
}
