//! A task from its submission to its changes.

use crate::server::{Server, TOKEN, recording};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};
use testkit::{Person, Process, filters, marker, wait_until};

/// Requirements F1, F2, S1: what an agent writes is in its sandbox, can be read and reviewed, and is on the machine
/// when it is taken over and not before.
#[test]
fn a_task_works_in_a_sandbox_and_its_changes_are_taken_over_when_somebody_says_so() {
    Person::each(|person| {
        person.write("project/kept.txt", "before\n");
        let model = recording(
            person,
            "write",
            &[
                (
                    "Write",
                    json!({ "path": "new/a.txt", "content": "hello\n" }),
                ),
                (
                    "Bash",
                    json!({ "command": "echo after > kept.txt; hostname" }),
                ),
            ],
        );
        let server = Server::start(person, &format!("--project . --model {model}"));
        let admin = server.admin();
        let id = admin.submit(&json!({ "task": "write" }));
        let events = admin.follow_to_end(&id);
        let last = events.last().unwrap();
        assert_eq!(
            (last.kind.as_str(), &last.data["ending"]),
            ("ended", &json!("completed")),
            "{last:?}"
        );
        let session = admin.get(&format!("/api/sessions/{id}")).json();
        assert_eq!(
            (&session["state"], &session["placement"]),
            (&json!("completed"), &json!("sandbox"))
        );

        let file = admin
            .get(&format!("/api/sessions/{id}/files/new/a.txt"))
            .expect(200);
        assert_eq!(file.text(), "hello\n");
        assert_eq!(file.header("content-disposition"), Some("attachment"));
        let list = admin
            .get(&format!("/api/sessions/{id}/files"))
            .expect(200)
            .json();
        let names: Vec<&str> = list["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["kept.txt", "new"]);
        let absent = admin
            .get(&format!("/api/sessions/{id}/files/none"))
            .expect(404);
        assert_eq!(absent.code(), "not-found");
        // Nothing outside the workspace by any spelling.
        for path in [
            "%2e%2e/%2e%2e/etc/passwd",
            "%2Fetc%2Fpasswd",
            "new/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        ] {
            let answer = admin.get(&format!("/api/sessions/{id}/files/{path}"));
            assert!(answer.status >= 400, "{path}: {answer:?}");
        }

        let patch = admin
            .get(&format!("/api/sessions/{id}/diff"))
            .expect(200)
            .text();
        assert!(
            patch.contains("+++ b/new/a.txt") && patch.contains("-before\n+after\n"),
            "{patch}"
        );
        assert!(
            !person.project().join("new").exists(),
            "nothing is taken over yet"
        );
        let list = admin
            .get(&format!("/api/sessions/{id}/diff?format=json"))
            .expect(200)
            .json();
        assert_eq!(list["files"].as_array().unwrap().len(), 2, "{list}");

        let applied = admin.post(
            &format!("/api/sessions/{id}/apply"),
            &json!({ "paths": ["new"] }),
        );
        let applied = applied.expect(200).json()["outcome"]["applied"].clone();
        let mut paths = applied.as_array().unwrap().iter().map(|one| &one["path"]);
        assert!(paths.any(|path| path == "new/a.txt"), "{applied}");
        assert_eq!(
            fs::read(person.project().join("new/a.txt")).unwrap(),
            b"hello\n"
        );
        assert_eq!(
            fs::read(person.project().join("kept.txt")).unwrap(),
            b"before\n"
        );
        admin
            .post(&format!("/api/sessions/{id}/apply"), &json!({}))
            .expect(200);
        assert_eq!(
            fs::read(person.project().join("kept.txt")).unwrap(),
            b"after\n"
        );

        admin.delete(&format!("/api/sessions/{id}")).expect(204);
        admin.get(&format!("/api/sessions/{id}")).expect(404);
        drop(server);
        person.assert_nothing_lives();
    });
}

/// Without a project, a session begins with an empty workspace, and never with the server's own directory.
#[test]
fn without_a_project_a_session_begins_with_nothing() {
    let person = Person::myself();
    person.write("project/secret.txt", "the server's");
    let model = recording(
        &person,
        "look",
        &[("Bash", json!({ "command": "ls -A; echo made > made.txt" }))],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "look", "apply": true }));
    let events = admin.follow_to_end(&id);
    let called = events
        .iter()
        .find(|event| event.kind == "call_finished")
        .unwrap();
    assert!(
        !called.data["text"].as_str().unwrap().contains("secret"),
        "{called:?}"
    );
    // Taken over into the session's own workspace.
    let workspaces = person.place().state().join("server/workspaces");
    let made = |dir: &std::path::Path| dir.join("made.txt").exists();
    let found = fs::read_dir(&workspaces)
        .unwrap()
        .any(|entry| made(&entry.unwrap().path()));
    assert!(found && !person.project().join("made.txt").exists());
    admin.delete(&format!("/api/sessions/{id}")).expect(204);
    let left = fs::read_dir(&workspaces)
        .unwrap()
        .any(|entry| made(&entry.unwrap().path()));
    assert!(!left, "a workspace goes with its session");
}

#[test]
fn a_session_is_cancelled_in_the_middle_and_nothing_of_it_goes_on() {
    let person = Person::myself();
    let marker = marker();
    let model = recording(
        &person,
        "long",
        &[(
            "Bash",
            json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 }),
        )],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "wait" }));
    let is_running = || {
        Process::all()
            .iter()
            .any(|process| process.line == format!("sleep {marker}"))
    };
    assert!(wait_until(Duration::from_mins(1), is_running));
    let begun = Instant::now();
    let cancelled = admin.post(&format!("/api/sessions/{id}/cancel"), &json!({}));
    assert_eq!(cancelled.expect(202).json()["is_ending"], true);
    let events = admin.follow_to_end(&id);
    assert_eq!(events.last().unwrap().data["ending"], "aborted");
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert!(wait_until(Duration::from_secs(10), || !is_running()));
    let again = admin.post(&format!("/api/sessions/{id}/cancel"), &json!({}));
    assert_eq!(again.expect(202).json()["is_ending"], false);
}

#[test]
fn a_session_goes_on_with_what_is_said_to_it_where_it_was() {
    let person = Person::myself();
    let model = recording(
        &person,
        "steps",
        &[("Bash", json!({ "command": "echo one > /tmp/one; sleep 1" }))],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "begin" }));
    // Said while it works: heard when it has ended what it does.
    admin.follow(&id, None, |event| event.kind == "call_started");
    admin
        .post(
            &format!("/api/sessions/{id}/messages"),
            &json!({ "text": "and then?" }),
        )
        .expect(202);
    let events = admin.follow_to_end(&id);
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let said = events
        .iter()
        .position(|event| event.kind == "said" && event.data["text"] == "and then?");
    let said = said.unwrap_or_else(|| panic!("{kinds:?}"));
    let first_end = kinds.iter().position(|kind| *kind == "ended").unwrap();
    assert!(
        first_end < said && kinds.last() == Some(&"ended"),
        "{kinds:?}"
    );
    // Said after it has ended: it goes on in the same sandbox.
    let sandbox = admin.get(&format!("/api/sessions/{id}")).json()["sandbox"].clone();
    let answer = admin
        .post("/api/tasks", &json!({ "task": "more", "session_id": id }))
        .expect(202);
    assert_eq!(answer.json()["session_id"], json!(id));
    let last_seen = events.last().unwrap().id.clone();
    let more = admin.follow(&id, Some(&last_seen), |_| false);
    assert_eq!(more.last().unwrap().data["ending"], "completed", "{more:?}");
    let after = admin.get(&format!("/api/sessions/{id}")).json();
    assert_eq!(after["sandbox"], sandbox);
    let call = json!({ "tool": "Read", "arguments": { "path": "/tmp/one" } });
    let name = sandbox.as_str().unwrap();
    let read = admin
        .post(&format!("/api/sandboxes/{name}/call"), &call)
        .expect(200)
        .json();
    assert!(read["text"].as_str().unwrap().contains("one"), "{read}");
}

#[test]
fn a_call_that_a_rule_asks_about_waits_for_the_users_word() {
    let person = Person::myself();
    person.write(
        "home/.config/glovebox/glovebox.toml",
        "[policy]\nask = [\"Bash\"]\n",
    );
    let model = recording(
        &person,
        "ask",
        &[
            ("Bash", json!({ "command": "echo first" })),
            ("Bash", json!({ "command": "echo second" })),
        ],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "ask", "ask": true }));
    let open = |n: usize| {
        let mut found = Value::Null;
        let is_there = wait_until(Duration::from_secs(30), || {
            let session = admin.get(&format!("/api/sessions/{id}")).json();
            found = session["approvals"][0].clone();
            found["id"] == format!("a{n}")
        });
        assert!(is_there, "no question {n}: {found}");
        found
    };
    let first = open(1);
    assert_eq!(
        (&first["tool"], &first["arguments"]["command"]),
        (&json!("Bash"), &json!("echo first"))
    );
    let path = format!("/api/sessions/{id}/approvals");
    admin
        .post(&path, &json!({ "approval_id": "a9", "answer": "allow" }))
        .expect(404);
    admin
        .post(&path, &json!({ "approval_id": "a1", "answer": "perhaps" }))
        .expect(400);
    admin
        .post(&path, &json!({ "approval_id": "a1", "answer": "allow" }))
        .expect(204);
    let _ = open(2);
    admin
        .post(
            &path,
            &json!({ "approval_id": "a2", "answer": "deny", "reason": "not that" }),
        )
        .expect(204);
    let events = admin.follow_to_end(&id);
    let told: Vec<&str> = events
        .iter()
        .filter(|event| event.kind == "call_finished")
        .map(|event| event.data["text"].as_str().unwrap())
        .collect();
    assert!(told[0].contains("first"), "{told:?}");
    insta::assert_snapshot!(told[1], @"
    [refused: policy-refused] Bash was asked about by the rule `ask Bash` and denied: not that
    [hint] do not work around it: stop, or ask the user
    ");
    // Without anybody to ask it is refused at once.
    let id = admin.submit(&json!({ "task": "nobody" }));
    let events = admin.follow_to_end(&id);
    let refused = events
        .iter()
        .find(|event| event.kind == "call_finished")
        .unwrap();
    assert_eq!(refused.data["is_error"], true, "{refused:?}");
}

#[test]
fn files_are_kept_gone_back_to_and_begun_from() {
    let person = Person::myself();
    let model = recording(
        &person,
        "one",
        &[("Write", json!({ "path": "a", "content": "one" }))],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "write" }));
    admin.follow_to_end(&id);
    let path = |what: &str| format!("/api/sessions/{id}/{what}");
    let made = admin
        .post(&path("checkpoints"), &json!({ "comment": "first" }))
        .expect(201)
        .json();
    let sandbox = admin.get(&format!("/api/sessions/{id}")).json()["sandbox"]
        .as_str()
        .unwrap()
        .to_owned();
    let call = json!({ "tool": "Bash", "arguments": { "command": "printf two > a" } });
    admin
        .post(&format!("/api/sandboxes/{sandbox}/call"), &call)
        .expect(200);
    assert_eq!(admin.get(&path("files/a")).text(), "two");
    let fork = admin
        .post(&path("fork"), &json!({ "checkpoint_id": made["id"] }))
        .expect(201)
        .json();
    admin
        .post(&path("restore"), &json!({ "checkpoint_id": "v9" }))
        .expect(404);
    admin
        .post(&path("restore"), &json!({ "checkpoint_id": made["id"] }))
        .expect(200);
    assert_eq!(admin.get(&path("files/a")).text(), "one");
    let list = admin.get(&path("checkpoints")).expect(200).json();
    assert_eq!(
        (&list["current"], &list["checkpoints"][0]["comment"]),
        (&made["id"], &json!("first"))
    );
    let fork = fork["session_id"].as_str().unwrap();
    assert_eq!(
        admin.get(&format!("/api/sessions/{fork}/files/a")).text(),
        "one"
    );
    admin
        .post(
            &format!("/api/sessions/{fork}/messages"),
            &json!({ "text": "go on" }),
        )
        .expect(202);
    let events = admin.follow_to_end(fork);
    assert_eq!(
        events.last().unwrap().data["ending"],
        "completed",
        "{events:?}"
    );
}

#[test]
fn tools_are_called_one_by_one_without_an_agent() {
    Person::each(|person| {
        let server = Server::start(person, "");
        let admin = server.admin();
        let tools = admin.get("/api/tools").expect(200).json();
        let names: Vec<&str> = tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert!(
            names.contains(&"Bash") && names.contains(&"Read"),
            "{names:?}"
        );
        let id = admin.post("/api/sandboxes", &json!({})).expect(201).json()["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let path = format!("/api/sandboxes/{id}/call");
        let call = |tool: &str, arguments: Value| {
            admin.post(&path, &json!({ "tool": tool, "arguments": arguments }))
        };
        let wrote = call("Write", json!({ "path": "x", "content": "1" }))
            .expect(200)
            .json();
        assert_eq!(wrote["is_error"], false, "{wrote}");
        let failed = call("Bash", json!({ "command": "cat x; exit 3" }))
            .expect(200)
            .json();
        assert_eq!(
            (&failed["is_error"], &failed["facts"]["exit_code"]),
            (&json!(true), &json!(3))
        );
        // A tool that did not succeed is an answer; a call that cannot be made is an error.
        let absent = call("Read", json!({ "path": "none" })).expect(200).json();
        assert_eq!(
            (&absent["is_error"], &absent["facts"]["fault"]),
            (&json!(true), &json!("not-found"))
        );
        assert_eq!(
            call("Read", json!({ "pth": "x" })).expect(400).code(),
            "invalid-argument"
        );
        let list = admin.get("/api/sandboxes").expect(200).json();
        assert_eq!(
            (&list["sandboxes"][0]["id"], &list["sandboxes"][0]["state"]),
            (&json!(id), &json!("ready"))
        );
        admin.delete(&format!("/api/sandboxes/{id}")).expect(204);
        call("Bash", json!({ "command": "true" })).expect(404);
        drop(server);
        person.assert_nothing_left();
    });
}

#[test]
fn what_is_asked_for_wrongly_is_told_with_its_field() {
    let person = Person::myself();
    let model = recording(&person, "none", &[]);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let told = [
        json!({ "task": "" }),
        json!({ "task": "x", "limits": { "max_turns": "many" } }),
        json!({ "task": "x", "limits": { "max_time_s": 0 } }),
        json!({ "task": "x", "tsak": 1 }),
        json!({ "task": "x", "model": "openai/gpt-5" }),
        json!({ "task": "x", "phase": "dance" }),
        json!({ "task": "x".repeat((1 << 20) + 1) }),
        json!([]),
    ]
    .map(|body| {
        let answer = admin.post("/api/tasks", &body);
        let error = answer.json()["error"].clone();
        assert!((400..500).contains(&answer.status), "{answer:?}");
        assert!(error["remedy"].is_string(), "no next step: {error}");
        answer.words()
    });
    insta::assert_snapshot!(filters(&told.join("\n\n"), person.place().root()), @r#"
    `task` is empty
    say what is to be done

    `limits.max_turns` is wrong: invalid type: string "many", expected u32 at line 1 column 40
    /api/openapi.json describes what can be asked for

    `limits.max_time_s` is not more than 0
    give a limit above 0, or leave it out for the server's

    `tsak` is wrong: unknown field `tsak`, expected one of `task`, `session_id`, `model`, `phase`, `workspace`, `limits`, `apply`, `ask` at line 1 column 18
    /api/openapi.json describes what can be asked for

    this server does not offer that model
    choose one of: replay:[ROOT]/none

    there is no toolset `dance`; the toolsets are research, plan, implement, review, full, safe
    `glovebox tools` shows the toolsets

    `task` has more than 1 MiB
    put it into a file of the workspace

    the body is wrong: invalid length 0, expected an object at line 1 column 2
    /api/openapi.json describes what can be asked for
    "#);
    let huge = server.raw(&format!(
        "POST /api/tasks HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        server.addr,
        3 << 20
    ));
    assert!(
        huge.starts_with("HTTP/1.1 413") && huge.contains("more than 2 MiB"),
        "{huge}"
    );
    let text = [("content-type", "text/plain")];
    admin.ask("POST", "/api/tasks", &text, b"{}").expect(415);
    admin.get("/api/nothing").expect(404);
    admin.get("/api/tasks").expect(405);
    assert_eq!(
        admin.get("/api/sessions").json()["sessions"],
        json!([]),
        "nothing was begun"
    );
}

#[test]
fn a_request_that_is_repeated_with_its_key_leads_to_one_session() {
    let person = Person::myself();
    let model = recording(&person, "none", &[]);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "k-1"),
    ];
    let send = |body: &str| admin.ask("POST", "/api/tasks", &headers, body.as_bytes());
    let all: Vec<String> = std::thread::scope(|scope| {
        let sent: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| send(r#"{"task":"x"}"#).expect(202).text()))
            .collect();
        sent.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    assert_eq!(
        admin.get("/api/sessions").json()["sessions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(send(r#"{"task":"y"}"#).expect(409).code(), "conflict");
}

#[test]
fn session_that_another_process_works_on_is_a_conflict() {
    let person = Person::myself();
    let model = recording(&person, "none", &[]);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x" }));
    admin.follow_to_end(&id);
    // As `glovebox agent` holds a session that it goes on with.
    let lock = person.place().state().join("sessions/locks").join(&id);
    let lock = std::fs::File::open(lock).unwrap();
    lock.lock().unwrap();
    let path = format!("/api/sessions/{id}");
    let message = json!({ "text": "go on" });
    let said = admin.post(&format!("{path}/messages"), &message);
    assert_eq!(said.expect(409).code(), "conflict");
    assert_eq!(admin.delete(&path).expect(409).code(), "conflict");
    drop(lock);
    admin
        .post(&format!("{path}/messages"), &message)
        .expect(202);
    admin.follow_to_end(&id);
    admin.delete(&path).expect(204);
}

#[test]
fn the_list_of_sessions_comes_in_pages_and_by_state() {
    let person = Person::myself();
    let server = Server::start(&person, "--model demo");
    let admin = server.admin();
    let ids: Vec<String> = (0..5)
        .map(|n| admin.submit(&json!({ "task": format!("task {n}") })))
        .collect();
    for id in &ids {
        admin.follow_to_end(id);
    }
    let names = |answer: &Value| -> Vec<String> {
        let sessions = answer["sessions"].as_array().unwrap().iter();
        sessions
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = admin.get("/api/sessions").expect(200).json();
    assert_eq!(all["next"], Value::Null);
    let all = names(&all);
    assert_eq!(all.len(), 5);
    let (mut paged, mut path) = (Vec::new(), "/api/sessions?limit=2".to_owned());
    loop {
        let page = admin.get(&path).expect(200).json();
        paged.extend(names(&page));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/sessions?limit=2&after={next}");
        // One that is gone does not move the pages after it.
        let gone = paged.last().unwrap();
        admin.delete(&format!("/api/sessions/{gone}")).expect(204);
    }
    assert_eq!(paged, all);
    let count = |query: &str| {
        let page = admin.get(&format!("/api/sessions?{query}")).expect(200);
        names(&page.json()).len()
    };
    assert_eq!(count("state=running,queued"), 0);
    assert_eq!(count("state=running,completed"), 3);
    let told = [
        "state=done",
        "limit=0",
        "limit=1001",
        "limit=x",
        "after=x",
        "page=2",
    ]
    .map(|query| {
        let refused = admin.get(&format!("/api/sessions?{query}")).expect(400);
        refused.words()
    });
    insta::assert_snapshot!(told.join("\n\n"), @"
    `state`: there is no state `done`
    the states are queued, running, interrupted, completed, stopped_by_limit, aborted, lost, failed

    `limit` is not from 1 to 1000
    ask for fewer, and for the next page with `after`

    `limit` is not from 1 to 1000
    ask for fewer, and for the next page with `after`

    the query is wrong: limit: invalid digit found in string
    /api/openapi.json describes what can be asked for

    `after` is not the end of a page
    send `next` of the page before as it is

    the query is wrong: page: unknown field `page`, expected one of `state`, `limit`, `after`
    /api/openapi.json describes what can be asked for
    ");
}
