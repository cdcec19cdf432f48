//! The log of a server: who reads one line knows what it is about, and nothing that was confided to the server is in it.

use crate::server::{Server, TOKEN, recording, token};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Person, wait_until};

/// The lines so far, each an object.
fn lines(server: &Server) -> Vec<Value> {
    let lines = server.lines();
    let parsed = lines.iter().map(|line| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in the line {line}"))
    });
    parsed.collect()
}

/// Waits for a line with this message.
fn line(server: &Server, message: &str) -> Value {
    let find = || {
        lines(server)
            .into_iter()
            .find(|one| one["message"] == message)
    };
    assert!(
        wait_until(Duration::from_secs(20), || find().is_some()),
        "no `{message}` in {:?}",
        server.lines()
    );
    find().unwrap()
}

#[test]
fn each_line_has_the_ids_of_what_it_is_about_and_nothing_that_is_confided() {
    const PLANTED: &str = "planted-8d2f41c7";
    const KEY: &str = "planted-key-51b0ce92";
    let person = Person::myself();
    let command = format!("echo {PLANTED} | tee {PLANTED}.txt; exit 3");
    let calls = [
        ("Bash", json!({ "command": command })),
        ("Read", json!({ "path": format!("{PLANTED}/none") })),
    ];
    let model = recording(&person, "calls", &calls);
    let ann = token(&person, "ann --scope run");
    let server = Server::start_with(
        &person,
        &format!("--log-format json --log-level debug --model {model}"),
        &[("OPENAI_API_KEY", KEY.to_owned())],
    );
    let client = server.client(&ann);
    let task = json!({ "task": format!("do {PLANTED}") }).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("x-request-id", "ann-1.2_3"),
    ];
    let answer = client
        .ask("POST", "/api/tasks", &headers, task.as_bytes())
        .expect(202);
    assert_eq!(answer.header("x-request-id"), Some("ann-1.2_3"));
    let id = answer.json()["session_id"].as_str().unwrap().to_owned();
    let events = client.follow_to_end(&id);
    assert!(format!("{events:?}").contains(PLANTED));
    client
        .get(&format!("/api/sessions/{id}/files/{PLANTED}.txt"))
        .expect(200);
    client
        .get(&format!("/api/sessions/{id}/files/{PLANTED}.none"))
        .expect(404);
    server
        .anybody()
        .get(&format!("/login?code={PLANTED}"))
        .expect(401);
    server.client(PLANTED).get("/api/tools").expect(401);
    let made = client.post("/api/sandboxes", &json!({})).expect(201).json();
    let sandbox = made["id"].as_str().unwrap().to_owned();
    let call = json!({ "tool": "Bash", "arguments": { "command": command } });
    client
        .post(&format!("/api/sandboxes/{sandbox}/call"), &call)
        .expect(200);

    let ended = line(&server, "session ended");
    assert_eq!(
        (&ended["level"], &ended["ending"]),
        (&json!("info"), &json!("completed"))
    );
    let of_session: Vec<Value> = lines(&server)
        .into_iter()
        .filter(|one| one["request_id"] == "ann-1.2_3")
        .collect();
    for message in [
        "session queued",
        "session begins",
        "call ended",
        "request answered",
    ] {
        let found = of_session.iter().find(|one| one["message"] == message);
        let found = found.unwrap_or_else(|| panic!("no `{message}` in {of_session:?}"));
        assert_eq!(
            (&found["session_id"], &found["user"]),
            (&json!(id), &json!("ann")),
            "{found}"
        );
        assert!(found["time"].as_str().unwrap().ends_with('Z'), "{found}");
    }
    let calls: Vec<&Value> = of_session
        .iter()
        .filter(|one| one["message"] == "call ended")
        .collect();
    assert_eq!(
        (&calls[0]["call_id"], &calls[0]["tool"]),
        (&json!("c0"), &json!("Bash"))
    );
    assert_eq!(
        (&calls[1]["call_id"], &calls[1]["code"]),
        (&json!("c1"), &json!("not-found"))
    );
    let all = lines(&server);
    let single = all
        .iter()
        .find(|one| one["message"] == "call ended" && one["sandbox"] == json!(sandbox));
    assert!(single.unwrap()["request_id"].is_string(), "{single:?}");

    client
        .delete(&format!("/api/sandboxes/{sandbox}"))
        .expect(204);
    let text = server.lines().join("\n");
    for secret in [PLANTED, KEY, TOKEN, &ann] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn an_error_names_its_request_and_the_log_says_what_failed() {
    let person = Person::myself();
    let server = Server::start(&person, "--log-format json");
    let admin = server.admin();
    let ask = |id: &str| admin.ask("GET", "/api/sessions/none", &[("x-request-id", id)], b"");
    let named = ask("mine").expect(404);
    assert_eq!(named.header("x-request-id"), Some("mine"));
    assert_eq!(named.json()["error"]["request_id"], "mine");
    // What could be something else than an id is not taken.
    for wrong in ["a b", "\"}", &"x".repeat(65)] {
        let made = ask(wrong).expect(404);
        let id = made.header("x-request-id").unwrap().to_owned();
        assert!(id.len() == 32 && id != wrong, "{id}");
        assert_eq!(made.json()["error"]["request_id"], json!(id));
    }
    // Those without a token, and those of no route, have one as well.
    for path in ["/api/tools", "/api/nothing", "/health/live"] {
        let answer = server.anybody().get(path);
        assert_eq!(answer.header("x-request-id").unwrap().len(), 32, "{path}");
    }
    // The server itself fails: nothing can be made below what is no directory.
    let dir = person.place().state().join("server/workspaces");
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::write(&dir, "").unwrap();
    let broken = admin.post("/api/sandboxes", &json!({})).expect(500);
    let failed = line(&server, "request failed");
    assert_eq!(failed["request_id"], broken.json()["error"]["request_id"]);
    assert_eq!(
        (&failed["level"], &failed["status"], &failed["code"]),
        (&json!("error"), &json!(500), &json!("io"))
    );
    let problem = failed["problem"].as_str().unwrap();
    assert!(problem.contains("make the workspace"), "{problem}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_level_leaves_out_what_is_below_it_and_settings_say_it_too() {
    let person = Person::myself();
    let server = Server::start_with(
        &person,
        "--log-format text",
        &[("GLOVEBOX_LOG_LEVEL", "warn".to_owned())],
    );
    server.admin().delete("/api/sessions/none").expect(404);
    let texts = |server: &Server| server.lines().join("\n");
    assert!(!texts(&server).contains(" info "), "{}", texts(&server));
    drop(server);

    person.write(
        "home/.config/glovebox/glovebox.toml",
        "[serve]\nlog_level = \"info\"\nlog_format = \"text\"\n",
    );
    let server = Server::start(&person, "");
    server.admin().delete("/api/sessions/none").expect(404);
    let line = server.told("request answered");
    for part in [
        " info ",
        "method=DELETE",
        "route=/api/sessions/{id}",
        "status=404",
        "code=not-found",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    drop(server);

    let refused = |args: &str| {
        person
            .line(&format!("serve --listen 127.0.0.1:0 {args}"))
            .run()
    };
    let wrong = refused("--log-level loud").expect_code(2);
    insta::assert_snapshot!(wrong.failure(person.place().root()), @"
    error: --log-level: `loud` is not a level of the log
    hint: use `error`, `warn`, `info` or `debug`
    ");
    let wrong = refused("--log-format xml").expect_code(2);
    insta::assert_snapshot!(wrong.failure(person.place().root()), @"
    error: --log-format: `xml` is not a form of the log
    hint: use `text` or `json`
    ");
    // A token that is made is shown to whoever starts the server, and a log for programs is kept.
    let made = refused("--log-format json").expect_code(2);
    insta::assert_snapshot!(made.failure(person.place().root()), @"
    error: a token that is made for this run would be printed into a log for programs
    hint: set GLOVEBOX_SERVER_TOKEN, name a file with --token-file, or take --log-format text
    ");
}
