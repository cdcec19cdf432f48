//! F1 to F8: tools work where they should, and errors say what to do.

use super::caller;
use crate::server::{Server, TOKEN, recording};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};
use testkit::{Person, filters};

#[test]
fn f1_file_tools_work_in_the_sandbox() {
    let person = Person::myself();
    person.write("project/there.txt", "the project's\n");
    let server = Server::start(&person, "--project .");
    let call = caller(&server);
    let text = |answer: &Value| answer["text"].as_str().unwrap().to_owned();
    let done = |tool: &str, arguments: Value| {
        let answer = call(tool, arguments);
        assert_eq!(answer["is_error"], false, "{tool}: {answer}");
        text(&answer)
    };
    done("Write", json!({ "path": "made.txt", "content": "first\n" }));
    done(
        "Edit",
        json!({ "path": "made.txt", "old": "first", "new": "second" }),
    );
    assert!(done("Read", json!({ "path": "made.txt" })).contains("second"));
    assert!(done("Read", json!({ "path": "there.txt" })).contains("the project's"));
    done(
        "Edit",
        json!({ "path": "there.txt", "old": "project", "new": "sandbox" }),
    );
    let listed = done("List", json!({}));
    assert!(
        listed.contains("made.txt") && listed.contains("there.txt"),
        "{listed}"
    );
    // Commands of the sandbox see them; on the machine nothing has changed.
    let seen = done("Bash", json!({ "command": "cat made.txt there.txt" }));
    assert!(
        seen.contains("second") && seen.contains("the sandbox's"),
        "{seen}"
    );
    assert!(!person.project().join("made.txt").exists());
    let kept = fs::read_to_string(person.project().join("there.txt")).unwrap();
    assert_eq!(kept, "the project's\n");
}

#[test]
fn f2_shell_and_search_tools_work_in_the_sandbox() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let call = caller(&server);
    for space in ["mnt", "pid", "ipc", "uts"] {
        let link = format!("/proc/self/ns/{space}");
        let inside = call("Bash", json!({ "command": format!("readlink {link}") }));
        let inside = inside["text"].as_str().unwrap();
        let outside = fs::read_link(&link).unwrap();
        assert!(inside.contains(&format!("{space}:[")), "{inside}");
        assert!(!inside.contains(outside.to_str().unwrap()), "{inside}");
    }
    call(
        "Write",
        json!({ "path": "only-inside.txt", "content": "a needle\n" }),
    );
    for (tool, arguments) in [
        ("Grep", json!({ "pattern": "needle" })),
        ("Glob", json!({ "pattern": "*.txt" })),
    ] {
        let found = call(tool, arguments);
        assert!(
            found["text"].as_str().unwrap().contains("only-inside.txt"),
            "{tool}: {found}"
        );
    }
    assert!(!person.project().join("only-inside.txt").exists());
}

/// Local placement needs the flag, says so everywhere, and works on the machine.
#[test]
fn f3_tools_work_on_the_machine_only_when_it_is_said() {
    let person = Person::myself();
    let model = recording(
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
    assert_eq!(ready["components"][0]["name"], "tools");
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
    // Nothing claims walls that are not there: no line of the log, and no component.
    let components = ready["components"].to_string();
    let claims = server.lines().into_iter().chain([components]);
    let claims: Vec<String> = claims
        .filter(|line| {
            let denied = ["no sandbox", "without a sandbox", "without sandboxes"];
            let line = denied
                .iter()
                .fold(line.clone(), |line, denied| line.replace(denied, ""));
            line.contains("sandbox")
        })
        .collect();
    assert!(claims.is_empty(), "{claims:#?}");
    admin.post("/api/sandboxes", &json!({})).expect(400);
}

#[test]
fn f4_tools_are_the_same_with_and_without_a_sandbox() {
    let person = Person::myself();
    let tools = |args: &str| {
        let server = Server::start(&person, args);
        server.admin().get("/api/tools").expect(200).json()
    };
    let inside = tools("");
    assert!(inside["tools"].as_array().unwrap().len() > 5, "{inside}");
    assert_eq!(inside, tools("--unsafe-local --project ."));
}

#[test]
fn f5_a_server_has_tried_a_sandbox_before_it_answers() {
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

/// A sandbox that does not work keeps the server from starting, soon, with what to do.
#[test]
fn f6_a_server_without_a_working_sandbox_does_not_start() {
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
fn f7_the_command_line_needs_no_server() {
    let person = Person::myself();
    let model = recording(
        &person,
        "alone",
        &[("Write", json!({ "path": "made", "content": "x" }))],
    );
    // Whatever is said of a server is for nobody to ask.
    let ran = person
        .line(&format!(
            "agent --sandbox --apply auto --model {model} write"
        ))
        .env("GLOVEBOX_SERVER_TOKEN", TOKEN)
        .env("GLOVEBOX_SERVER_URL", "http://192.0.2.1:9")
        .run()
        .expect_code(0);
    assert!(ran.out().contains("done"), "{ran}");
    assert!(person.project().join("made").exists());
    let ran = person.line("run -- echo alone").run().expect_code(0);
    assert_eq!(ran.out(), "alone\n");
}

#[test]
fn f8_a_server_that_is_started_wrongly_says_how_to_do_it() {
    let person = Person::myself();
    let serve = |args: &str| person.line(&format!("serve {args}")).run();
    let root = person.place().root();
    let reached = serve("--listen 0.0.0.0:0").expect_code(2);
    insta::assert_snapshot!(reached.failure(root), @"
    error: 0.0.0.0:0 can be reached from other machines, and there is no token
    hint: set GLOVEBOX_SERVER_TOKEN, name a file with --token-file, or listen on 127.0.0.1
    ");
    let host = serve("--listen 127.0.0.1:0 --backend host").expect_code(2);
    insta::assert_snapshot!(host.failure(root), @"
    error: the backend `host` is no sandbox
    hint: leave it out, or say --unsafe-local to let agents work on this machine without walls
    ");
    let gone = serve("--listen 127.0.0.1:0 --project none");
    insta::assert_snapshot!(gone.failure(root), @"error: cannot open the project [ROOT]/project/none: No such file or directory");
    let weak = person
        .line("serve --listen 127.0.0.1:0")
        .env("GLOVEBOX_SERVER_TOKEN", "short")
        .run()
        .expect_code(2);
    insta::assert_snapshot!(weak.failure(root), @"
    error: $GLOVEBOX_SERVER_TOKEN: a token has at least 16 printable characters and no spaces
    hint: make one with `openssl rand -hex 32`
    ");
    let model = serve("--listen 127.0.0.1:0 --model nonsense").expect_code(2);
    insta::assert_snapshot!(model.failure(root), @"
    error: `nonsense` is not PROVIDER/NAME; the providers are anthropic, openai, openai-responses, gemini, ollama
    hint: name one with `--model PROVIDER/NAME`, such as openai/gpt-5
    ");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let busy = serve(&format!("--listen {taken}")).failure(root);
    insta::assert_snapshot!(busy.replace(&taken.to_string(), "[ADDRESS]"), @"
    error: cannot listen at [ADDRESS]: Address already in use
    hint: something listens there already: name another port with --listen, or port 0 for a free one
    ");
}

#[test]
fn f8_an_error_of_the_api_has_a_code_a_sentence_and_what_to_do() {
    let person = Person::myself();
    let model = recording(&person, "quick", &[]);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x" }));
    admin.await_state(&id, "completed");
    let task = |extra: Value| {
        let mut body = json!({ "task": "x" });
        for (name, value) in extra.as_object().unwrap() {
            body[name] = value.clone();
        }
        admin.post("/api/tasks", &body)
    };
    let told = [
        (
            admin.post("/api/tasks", &json!({ "task": " " })),
            400,
            "invalid-argument",
        ),
        (task(json!({ "model": "no/such" })), 400, "invalid-argument"),
        (task(json!({ "phase": "no such" })), 400, "invalid-argument"),
        (
            task(json!({ "limits": { "max_turns": 0 } })),
            400,
            "invalid-argument",
        ),
        (
            task(json!({ "workspace": { "source": "none" } })),
            404,
            "not-found",
        ),
        (task(json!({ "unknown": 1 })), 400, "invalid-argument"),
        (
            admin.ask("POST", "/api/tasks", &[], b"task=x"),
            415,
            "invalid-argument",
        ),
        (server.anybody().get("/api/tools"), 401, "permission-denied"),
        (admin.get("/api/nothing"), 404, "not-found"),
        (
            admin.ask("PATCH", "/api/tasks", &[], b""),
            405,
            "invalid-argument",
        ),
    ]
    .map(|(answer, status, code)| {
        let answer = answer.expect(status);
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], code, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            !message.contains("panicked") && !message.contains("Error("),
            "{error}"
        );
        let remedy = error["remedy"].as_str();
        assert!(
            remedy.is_some_and(|remedy| remedy.len() > 10),
            "what to do: {error}"
        );
        assert!(error["request_id"].is_string(), "{error}");
        answer.words()
    });
    insta::assert_snapshot!(filters(&told.join("\n\n"), person.place().root()), @"
    `task` is empty
    say what is to be done

    this server does not offer that model
    choose one of: replay:[ROOT]/quick

    there is no toolset `no such`; the toolsets are research, plan, implement, review, full, safe
    `glovebox tools` shows the toolsets

    `limits.max_turns` is not more than 0
    give a limit above 0, or leave it out for the server's

    there is no source `none`
    this server has no sources; leave `workspace` out

    `unknown` is wrong: unknown field `unknown`, expected one of `task`, `session_id`, `model`, `phase`, `workspace`, `limits`, `apply`, `ask` at line 1 column 21
    /api/openapi.json describes what can be asked for

    the body is not JSON
    send JSON with `Content-Type: application/json`

    a token is needed
    send `Authorization: Bearer TOKEN`, or open the address that the server printed in a browser

    there is nothing at this address
    /api/openapi.json describes what there is, /api-docs shows it in a browser

    this address does not take that method
    /api/openapi.json describes what it takes, /api-docs shows it in a browser
    ");
}
