//! However a server or its client ends: what was changed is kept, what was not is gone, nothing runs.

use crate::pipe::Pipe;
use crate::site::Site;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;
use testkit::{Person, Process, filters, marker, wait_until};

/// Names and states of the sandboxes there are.
fn states(person: &Person) -> Vec<(String, String)> {
    let list = person.line("list --json").run().expect_code(0);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let word = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    list["data"]["sandboxes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (word(entry, "name"), word(entry, "state")))
        .collect()
}

/// The one sandbox there is stops within a while; its change comes out.
fn pull_work(person: &Person) {
    let is_stopped = || states(person).iter().any(|(_, state)| state == "stopped");
    assert!(
        wait_until(Duration::from_secs(30), is_stopped),
        "{:?}",
        states(person)
    );
    let (name, _) = states(person).remove(0);
    let _ = person.line(&format!("pull {name}")).run().expect_code(0);
    let work = fs::read_to_string(person.project().join("work")).unwrap();
    assert_eq!(work, "done\n");
    fs::remove_file(person.project().join("work")).unwrap();
    let _ = person.line(&format!("kill {name}")).run().expect_code(0);
    person.assert_nothing_left();
}

/// A server with some work done and a command that runs.
fn at_work(person: &Person) -> (Pipe, String) {
    let mut pipe = Pipe::open(person, "");
    let write = json!({ "path": "work", "content": "done\n" });
    assert!(pipe.call("Write", &write).contains("work"));
    let marker = marker();
    let command = format!("sleep {marker}; true");
    pipe.send(
        "tools/call",
        &json!({ "name": "Bash", "arguments": { "command": command } }),
    );
    let is_there = || !Process::mentioning(&format!("sleep {marker}")).is_empty();
    assert!(wait_until(Duration::from_secs(10), is_there));
    (pipe, marker)
}

#[test]
fn a_client_that_hangs_up_and_a_server_that_is_told_to_end_keep_the_work() {
    Person::each(|person| {
        for signal in [None, Some("TERM"), Some("INT")] {
            let (mut pipe, marker) = at_work(person);
            match signal {
                None => pipe.hang_up(),
                Some(signal) => {
                    let pid = pipe.child.id().to_string();
                    let kill = std::process::Command::new("kill")
                        .args(["-s", signal, &pid])
                        .status();
                    assert!(kill.unwrap().success());
                }
            }
            let (code, told) = pipe.end();
            assert_eq!(code, Some(0), "{told}");
            let kept: Vec<&str> = told.lines().filter(|line| line.contains("kept")).collect();
            let root = person.place().root();
            insta::assert_snapshot!(filters(&kept.join("\n"), root), @"glovebox: 1 change is kept in the sandbox mcp-[RANDOM]: `glovebox diff mcp-[RANDOM]`, `glovebox pull mcp-[RANDOM]`, `glovebox kill mcp-[RANDOM]`");
            assert!(Process::mentioning(&format!("sleep {marker}")).is_empty());
            pull_work(person);
        }
    });
}

#[test]
fn a_server_that_is_killed_loses_no_work_and_leaves_nothing_running() {
    Person::each(|person| {
        let (mut pipe, marker) = at_work(person);
        pipe.child.kill().unwrap();
        let _ = pipe.child.wait();
        let is_gone = || Process::mentioning(&format!("sleep {marker}")).is_empty();
        assert!(wait_until(Duration::from_secs(30), is_gone));
        pull_work(person);
    });
}

#[test]
fn a_client_that_changes_nothing_leaves_nothing() {
    Person::each(|person| {
        let mut pipe = Pipe::open(person, "--toolset review");
        let tools = pipe.ask("tools/list", &json!({}));
        let names: Vec<&str> = tools["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert!(
            names.contains(&"Bash") && !names.contains(&"Write"),
            "{names:?}"
        );
        let tried = pipe.call("Bash", &json!({ "command": "touch x" }));
        assert!(tried.contains("Read-only file system"), "{tried}");
        let refused = pipe.call("Write", &json!({ "path": "x", "content": "" }));
        insta::assert_snapshot!(filters(&refused, person.place().root()), @"
        the toolset `review` does not have the tool Write
        use another tool; the user can choose another toolset (`glovebox tools` shows them, `glovebox why call-[RANDOM]` explains)
        ");
        pipe.hang_up();
        assert_eq!(pipe.end().0, Some(0));
        person.assert_nothing_left();
    });
}

#[test]
fn a_client_that_asks_for_it_hears_of_progress() {
    let person = Person::myself();
    let mut pipe = Pipe::open(&person, "");
    let meta = json!({ "progressToken": "p" });
    let arguments = json!({ "command": "sleep 1.5" });
    pipe.send(
        "tools/call",
        &json!({ "name": "Bash", "arguments": arguments, "_meta": meta }),
    );
    let note = pipe.hear().unwrap();
    assert_eq!(note["method"], "notifications/progress", "{note}");
    assert_eq!(note["params"]["progressToken"], "p");
}

#[test]
fn a_server_of_many_clients_keeps_the_work_of_each() {
    let person = Person::myself();
    let mut site = Site::open(&person, "");
    for n in 0..3 {
        let session = site.session();
        let write = json!({ "path": format!("work{n}"), "content": "x" });
        assert!(
            site.call(&session, "Write", &write)
                .body
                .contains("written")
        );
    }
    let pid = site.child.id().to_string();
    let kill = std::process::Command::new("kill")
        .args(["-s", "TERM", &pid])
        .status();
    assert!(kill.unwrap().success());
    assert_eq!(site.child.wait().unwrap().code(), Some(0));
    let found = states(&person);
    assert!(
        found.len() == 3 && found.iter().all(|(_, state)| state == "stopped"),
        "{found:?}"
    );
    let _ = person.line("kill --all").run().expect_code(0);
    person.assert_nothing_left();
}
