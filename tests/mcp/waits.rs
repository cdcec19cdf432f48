//! Clients that give up after a minute, ask for several things at once, and come back: no command is lost with a
//! call, none waits for another without need, and the next client of a project goes on where the last one stopped.

use crate::pipe::Pipe;
use crate::site::Site;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};
use testkit::{Person, Process, marker, wait_until};

/// The answers to these requests, in the order in which they come.
fn answers(pipe: &mut Pipe, ids: &[u64]) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    while found.len() < ids.len() {
        let message = pipe.hear().unwrap();
        if let Some(id) = ids.iter().find(|id| message["id"] == **id) {
            let text = message["result"]["content"][0]["text"].as_str();
            found.push((*id, text.unwrap_or_else(|| panic!("{message}")).to_owned()));
        }
    }
    found
}

fn bash(pipe: &mut Pipe, arguments: &Value) -> u64 {
    pipe.send(
        "tools/call",
        &json!({ "name": "Bash", "arguments": arguments }),
    )
}

/// Waits for a file that a command makes: calls that are sent together begin in any order.
fn wait_for(pipe: &mut Pipe, file: &str) {
    let pattern = json!({ "pattern": file });
    let is_there = || pipe.call("Glob", &pattern).starts_with(file);
    assert!(wait_until(Duration::from_secs(10), is_there));
}

#[test]
fn a_long_command_is_answered_in_time_and_goes_on() {
    Person::each(|person| {
        let mut pipe = Pipe::open(person, "--max-wait 1s");
        let go = "echo begun; until [ -e go ]; do sleep 0.05; done; echo ended";
        let begin = Instant::now();
        let text = pipe.call("Bash", &json!({ "command": go, "wait_ms": 600_000 }));
        assert!(begin.elapsed() < Duration::from_mins(1));
        insta::assert_snapshot!(text, @r#"
        begun
        [job 1 is still running; Job {"action":"wait","id":1} waits for it]
        "#);
        let wait = text.rsplit_once("Job {").unwrap().1;
        let wait = format!("{{{}", wait.split_once('}').unwrap().0) + "}";
        let wait: Value = serde_json::from_str(&wait).unwrap();
        let text = pipe.call("Job", &wait);
        insta::assert_snapshot!(text, @r#"[job 1 is still running; Job {"action":"wait","id":1} waits for it]"#);
        let _ = pipe.call("Bash", &json!({ "command": "touch go" }));
        let mut text = pipe.call("Job", &wait);
        for _ in 0..30 {
            if !text.contains("is still running") {
                break;
            }
            text = pipe.call("Job", &wait);
        }
        // What was shown before is not shown again.
        assert!(text.starts_with("ended\n[exit code 0"), "{text}");
    });
}

#[test]
fn what_a_client_gives_up_waiting_for_goes_on_and_is_told_of() {
    Person::each(|person| {
        let mut pipe = Pipe::open(person, "");
        let marker = marker();
        let id = bash(
            &mut pipe,
            &json!({ "command": format!("echo begun; sleep {marker}; true") }),
        );
        let is_there = || !Process::mentioning(&format!("sleep {marker}")).is_empty();
        assert!(wait_until(Duration::from_secs(10), is_there));
        pipe.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
        let told = |text: &str| text.contains("whose call was given up, still runs");
        let mut text = String::new();
        // The cancellation takes its way beside other calls.
        let is_told = wait_until(Duration::from_secs(10), || {
            text = pipe.call("Bash", &json!({ "command": "echo next" }));
            told(&text)
        });
        assert!(is_told && text.starts_with("next\n"), "{text}");
        assert!(is_there());
        let text = pipe.call("Bash", &json!({ "command": "echo again" }));
        assert!(!told(&text), "{text}");
        // Who leaves for good takes all with them.
        pipe.hang_up();
        assert_eq!(pipe.end().0, Some(0));
        assert!(!is_there());
        person.assert_nothing_left();
    });
}

#[test]
fn what_a_user_cancels_ends_also_when_its_answer_is_on_the_way() {
    Person::each(|person| {
        let mut pipe = Pipe::open(person, "");
        for (wait_ms, reason) in [
            (60_000, "Request interrupted by user"),
            (100, "user cancelled"),
        ] {
            let marker = marker();
            let command = format!("echo begun; sleep {marker}; true");
            let id = bash(
                &mut pipe,
                &json!({ "command": command, "wait_ms": wait_ms }),
            );
            let is_there = || !Process::mentioning(&format!("sleep {marker}")).is_empty();
            assert!(wait_until(Duration::from_secs(10), is_there));
            if wait_ms < 1000 {
                let _ = answers(&mut pipe, &[id]);
            }
            let params = json!({ "requestId": id, "reason": reason });
            pipe.say(
                &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
            );
            assert!(
                wait_until(Duration::from_secs(10), || !is_there()),
                "{reason}"
            );
        }
        let text = pipe.call("Bash", &json!({ "command": "echo next" }));
        assert!(
            text.starts_with("next\n") && !text.contains("given up"),
            "{text}"
        );
        pipe.hang_up();
        assert_eq!(pipe.end().0, Some(0));
        person.assert_nothing_left();
    });
}

#[test]
fn commands_of_one_client_run_together_unless_they_share_a_session() {
    Person::each(|person| {
        let mut pipe = Pipe::open(person, "");
        let until = |file: &str| format!("until [ -e {file} ]; do sleep 0.02; done; echo met");
        // Each waits for the one after it, and would wait for ever if it did not run.
        let ids: Vec<u64> = (0..12)
            .map(|n| {
                let next = until(&format!("mark{}", n + 1));
                let command = format!("touch mark{n}; {next}");
                bash(&mut pipe, &json!({ "command": command, "wait_ms": 40_000 }))
            })
            .collect();
        let last = bash(&mut pipe, &json!({ "command": "touch mark12; echo met" }));
        let all: Vec<u64> = ids.into_iter().chain([last]).collect();
        for (_, text) in answers(&mut pipe, &all) {
            assert!(text.starts_with("met\n[exit code 0"), "{text}");
        }
        // The second one of a session begins when nobody waits for the first one any more.
        let command = format!("touch early; {}", until("late"));
        let wait = json!({ "command": command, "session": "s", "wait_ms": 3000 });
        let first = bash(&mut pipe, &wait);
        wait_for(&mut pipe, "early");
        let second = bash(
            &mut pipe,
            &json!({ "command": "touch late", "session": "s" }),
        );
        let found = answers(&mut pipe, &[first, second]);
        // Beside the second one the first would have ended. Which answer is read first says nothing.
        assert!(of(&found, first).contains("is still running"), "{found:?}");
        assert!(of(&found, second).contains("[exit code 0"), "{found:?}");
        // A file is not written beside a command.
        let command = "touch begun; sleep 2; test ! -e f";
        let before = bash(&mut pipe, &json!({ "command": command }));
        wait_for(&mut pipe, "begun");
        let write = json!({ "name": "Write", "arguments": { "path": "f", "content": "x" } });
        let write = pipe.send("tools/call", &write);
        let found = answers(&mut pipe, &[before, write]);
        assert!(of(&found, before).contains("[exit code 0"), "{found:?}");
    });
}

/// The text of one answer.
fn of(found: &[(u64, String)], id: u64) -> &str {
    &found.iter().find(|(other, _)| *other == id).unwrap().1
}

/// The sandbox that a client was told of when it came.
fn name(pipe: &Pipe) -> String {
    let words = pipe.instructions.split_once("It is called ").unwrap().1;
    words.split_once('.').unwrap().0.to_owned()
}

#[test]
fn the_next_client_goes_on_where_the_last_one_stopped() {
    Person::each(|person| {
        let mut first = Pipe::open(person, "");
        let write = json!({ "path": "work", "content": "done\n" });
        let answer = first.ask(
            "tools/call",
            &json!({ "name": "Write", "arguments": write, "_meta": { "glovebox/facts": true } }),
        );
        let result = &answer["result"];
        assert_eq!(
            result["_meta"]["glovebox/sandbox"],
            name(&first),
            "{answer}"
        );
        let text = result["content"][0]["text"].as_str().unwrap();
        let notice = text.lines().last().unwrap();
        insta::assert_snapshot!(notice.replace(&name(&first), "[NAME]"), @"[this is the sandbox [NAME]; the user takes over what is changed in it with `glovebox pull [NAME]`]");
        // One that is in use is nobody else's.
        let mut beside = Pipe::open(person, "");
        assert_ne!(name(&beside), name(&first));
        for pipe in [&mut beside, &mut first] {
            pipe.hang_up();
            assert_eq!(pipe.end().0, Some(0));
        }
        let mut second = Pipe::open(person, "");
        assert_eq!(name(&second), name(&first));
        let text = second.call("Read", &json!({ "path": "work" }));
        assert!(text.contains("done"), "{text}");
        second.hang_up();
        assert_eq!(second.end().0, Some(0));
        // Other settings, another beginning, another project: another sandbox.
        fs::create_dir_all(person.place().root().join("other")).unwrap();
        for args in ["--fresh", "--net host", "--memory 300MiB"] {
            let other = Pipe::open(person, args);
            assert_ne!(name(&other), name(&first), "{args}");
        }
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn what_is_no_request_is_answered_by_its_code() {
    let person = Person::myself();
    let mut pipe = Pipe::open(&person, "");
    let told = [json!(["a.txt"]), json!("a.txt"), json!(1)].map(|arguments| {
        let answer = pipe.ask(
            "tools/call",
            &json!({ "name": "Read", "arguments": arguments }),
        );
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    });
    insta::assert_snapshot!(told.join("\n"), @"
    the parameters of tools/call do not fit: `name` is a string and `arguments` an object
    the parameters of tools/call do not fit: `name` is a string and `arguments` an object
    the parameters of tools/call do not fit: `name` is a string and `arguments` an object
    ");
    assert_eq!(pipe.ask("no/such", &json!({}))["error"]["code"], -32601);
    pipe.write(b"{broken\n");
    let answer = pipe.hear().unwrap();
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    let chunk = vec![b' '; 1 << 20];
    for _ in 0..9 {
        pipe.write(&chunk);
    }
    pipe.write(b"x\n");
    let answer = pipe.hear().unwrap();
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    insta::assert_snapshot!(answer["error"]["message"].as_str().unwrap(), @"a message has at most 8 MiB");
    assert!(pipe.call("List", &json!({})).len() < 10_000);
}

#[test]
fn a_page_of_this_machine_is_a_client_like_any_other() {
    let person = Person::myself();
    let local = [("Origin", "http://localhost:5173")];
    let site = Site::open(&person, "");
    assert_eq!(site.hello(&local).status, 200);
    assert_eq!(
        site.hello(&[("Origin", "http://localhost.evil.test")])
            .status,
        403
    );
    let open = Site::open_with(&person, "--no-token", None);
    let without = ("Authorization", "");
    assert_eq!(open.hello(&[without, local[0]]).status, 200);
    let elsewhere = ("Origin", "http://localhost.evil.test");
    assert_eq!(open.hello(&[without, elsewhere]).status, 403);
    assert_eq!(site.hello(&[without, local[0]]).status, 401);
    let both = person
        .line("mcp --http 127.0.0.1:0 --no-token")
        .env("GLOVEBOX_MCP_TOKEN", "0123456789abcdef0123");
    let ran = both.run().expect_code(2);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: --no-token lets everybody in, and $GLOVEBOX_MCP_TOKEN is set
    hint: leave --no-token out, or unset GLOVEBOX_MCP_TOKEN
    ");
}
