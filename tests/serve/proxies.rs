//! A server behind a proxy: below a path of its own, with the client's address and TLS as a trusted proxy tells them.

use crate::server::{Server, TOKEN, recording};
use serde_json::{Value, json};
use testkit::Person;

/// Entries of the audit log.
fn audit(person: &Person) -> Vec<Value> {
    let path = person.place().state().join("server/audit.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str(line).unwrap());
    entries.collect()
}

/// Headers as a proxy with TLS adds them for a client.
const FORWARDED: [(&str, &str); 2] = [
    ("x-forwarded-for", "192.0.2.66, 203.0.113.9"),
    ("x-forwarded-proto", "https"),
];

fn log_in(server: &Server) -> String {
    let authorization = format!("Bearer {TOKEN}");
    let mut headers = FORWARDED.to_vec();
    headers.push(("authorization", &authorization));
    let login = server.anybody().ask("POST", "/api/login", &headers, b"");
    login.expect(303).header("set-cookie").unwrap().to_owned()
}

#[test]
fn a_trusted_proxy_tells_the_client_and_its_tls() {
    let person = Person::myself();
    let server = Server::start(&person, "--model demo --trusted-proxy 127.0.0.0/8");
    let cookie = log_in(&server);
    assert!(
        cookie.starts_with("__Host-glovebox=") && cookie.ends_with("; Secure"),
        "{cookie}"
    );
    // The login holds over TLS only: the same cookie without it is none.
    let pair = cookie.split(';').next().unwrap();
    let with = |headers: &[(&str, &str)]| {
        let mut headers = headers.to_vec();
        headers.push(("cookie", pair));
        let asked = server.anybody().ask("GET", "/api/sessions", &headers, b"");
        asked.status
    };
    assert_eq!((with(&FORWARDED), with(&[])), (200, 401));
    let entries = audit(&person);
    let login = entries.last().unwrap();
    assert_eq!(login["action"], "POST /api/login");
    assert_eq!(
        (&login["address"], &login["via"]),
        (&json!("203.0.113.9"), &json!("token"))
    );
    let id = server.admin().submit(&json!({ "task": "x" }));
    let headers = [
        FORWARDED[0],
        FORWARDED[1],
        ("cookie", pair),
        ("sec-fetch-site", "same-origin"),
    ];
    let path = format!("/api/sessions/{id}/cancel");
    let _ = server.anybody().ask("POST", &path, &headers, b"{}");
    let entries = audit(&person);
    let cancelled = entries
        .iter()
        .find(|entry| entry["object"] == json!(id) && entry["via"] == "cookie");
    assert_eq!(cancelled.unwrap()["address"], "203.0.113.9");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn nobody_else_is_believed_about_the_client() {
    let person = Person::myself();
    let server = Server::start(&person, "--model demo --trusted-proxy 10.0.0.0/8");
    let cookie = log_in(&server);
    assert!(
        cookie.starts_with("glovebox=") && !cookie.contains("Secure"),
        "{cookie}"
    );
    assert_eq!(audit(&person).last().unwrap()["address"], "127.0.0.1");
    assert_eq!(server.end(), Some(0));
    let wrong = person.line("serve --trusted-proxy proxy.example.com").run();
    assert!(
        wrong.err().contains("no address and no network"),
        "{}",
        wrong.err()
    );
}

#[test]
fn a_server_below_a_path_answers_there_and_nowhere_else() {
    let person = Person::myself();
    let model = recording(&person, "one", &[("Bash", json!({ "command": "echo hi" }))]);
    let server = Server::start(
        &person,
        &format!("--model {model} --base-path /tools/box/ --trusted-proxy 127.0.0.1"),
    );
    assert!(server.addr.ends_with("/tools/box"), "{}", server.addr);
    let root = server.anybody_at_root();
    // Probes come by the machine's address, with the path or without.
    for client in [&root, &server.anybody()] {
        client.get("/health/live").expect(200);
        client.get("/health/ready").expect(200);
    }
    for path in ["/api/sessions", "/", "/tools", "/tools/boxes", "/metrics"] {
        let missed = root.get(path).expect(404);
        assert!(
            missed.text().contains("/tools/box/"),
            "{path}: {}",
            missed.text()
        );
    }
    let led = root.get("/tools/box").expect(303);
    assert_eq!(led.header("location"), Some("/tools/box/"));
    let page = server.anybody().get("/").expect(200).text();
    assert!(page.contains(r#"src="/tools/box/assets/app.js""#), "{page}");
    assert!(
        page.contains(r#"name="base-path" content="/tools/box""#),
        "{page}"
    );

    let admin = server.admin();
    let begun = admin
        .post("/api/tasks", &json!({ "task": "x" }))
        .expect(202)
        .json();
    let id = begun["session_id"].as_str().unwrap();
    assert_eq!(
        begun["session_url"],
        format!("/tools/box/api/sessions/{id}")
    );
    let events = begun["events_url"].as_str().unwrap();
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("authorization", authorization.as_str())];
    root.ask("GET", events, &headers, b"").expect(200);
    let described = admin.get("/api/openapi.json").expect(200).json();
    assert_eq!(described["servers"], json!([{ "url": "/tools/box" }]));
    // Browsers keep the login to the path.
    let plain = admin.post("/api/login", &json!({})).expect(303);
    assert_eq!(plain.header("location"), Some("/tools/box/"));
    let cookie = plain.header("set-cookie").unwrap();
    assert!(
        cookie.starts_with("glovebox=") && cookie.contains("; Path=/tools/box/;"),
        "{cookie}"
    );
    let secure = log_in(&server);
    assert!(
        secure.starts_with("__Secure-glovebox=") && secure.ends_with("; Secure"),
        "{secure}"
    );
    // The tools for MCP clients.
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let accept = ("accept", "application/json, text/event-stream");
    let kind = ("content-type", "application/json");
    let headers = [headers[0], accept, kind];
    let answer = root.ask(
        "POST",
        "/tools/box/mcp",
        &headers,
        hello.to_string().as_bytes(),
    );
    answer.expect(200);
    assert_eq!(server.end(), Some(0));
}
