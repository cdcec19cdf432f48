//! S1 to S4: walls, timeouts, users, credentials.

use super::caller;
use crate::server::{Server, recording};
use serde_json::json;
use std::fs;
use std::process::Command;
use std::time::Duration;
use testkit::{Person, Process, marker, wait_until};

#[test]
fn s1_tools_have_no_way_to_the_machines_files() {
    const CANARY: &str = "canary-of-the-machine-7c21";
    let person = Person::myself();
    let canary = person.write("outside.txt", CANARY);
    let canary = canary.to_str().unwrap();
    person.write("project/here.txt", "x");
    let server = Server::start(&person, "--project .");
    let call = caller(&server);
    // The same file by its twin inside, so that these tools do find what is there.
    call(
        "Write",
        json!({ "path": "/tmp/inside.txt", "content": CANARY }),
    );
    let found = call("Read", json!({ "path": "/tmp/inside.txt" }));
    assert!(found["text"].as_str().unwrap().contains(CANARY), "{found}");
    let up = "../".repeat(12) + canary.trim_start_matches('/');
    for link in [canary, &up] {
        call(
            "Bash",
            json!({ "command": format!("ln -sf '{link}' link; ln -sf / root") }),
        );
        for (tool, arguments) in [
            ("Read", json!({ "path": canary })),
            ("Read", json!({ "path": up })),
            ("Read", json!({ "path": "link" })),
            ("Read", json!({ "path": format!("root{canary}") })),
            ("Read", json!({ "path": format!("/proc/1/root{canary}") })),
            ("Grep", json!({ "pattern": CANARY, "path": canary })),
            (
                "Glob",
                json!({ "pattern": "outside.txt", "path": "/", "no_ignore": true }),
            ),
            (
                "Bash",
                json!({ "command": format!("cat '{canary}' '{up}' /proc/*/root{canary}; mount --bind / /mnt") }),
            ),
            (
                "Bash",
                json!({ "command": "mknod disk b 254 0 && head -c 1 disk; ln /etc/passwd hard; true" }),
            ),
        ] {
            let answer = call(tool, arguments.clone()).to_string();
            assert!(!answer.contains(CANARY), "{tool} {arguments}: {answer}");
        }
    }
    // Nor is anything of it written.
    for path in [canary, &up, "link"] {
        call(
            "Write",
            json!({ "path": path, "content": "changed", "overwrite": true }),
        );
        call(
            "Bash",
            json!({ "command": format!("echo changed > '{path}'") }),
        );
    }
    assert_eq!(fs::read_to_string(canary).unwrap(), CANARY);
}

#[test]
fn s2_a_command_that_ignores_signals_and_hides_its_children_ends_at_its_timeout() {
    let person = Person::myself();
    let marker = marker();
    let command =
        format!("trap '' TERM INT HUP; (setsid sleep {marker} &); sleep {marker}; sleep {marker}");
    let call = json!({ "command": command, "timeout_ms": 600_000 });
    let model = recording(&person, "stubborn", &[("Bash", call)]);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x", "limits": { "max_time_s": 6 } }));
    testkit::await_sleepers(&marker, 2);
    let events = admin.follow_to_end(&id);
    let last = events.last().unwrap();
    assert_eq!(last.data["ending"], "stopped_by_limit", "{last:?}");
    assert!(wait_until(Duration::from_secs(20), || {
        Process::mentioning(&marker).is_empty()
    }));
}

#[test]
fn s4_a_credential_of_the_server_is_in_nothing_that_it_writes_or_answers() {
    const SECRET: &str = "planted-4f1c9a7be2d84c30";
    let person = Person::myself();
    let look = json!({ "command": "env; cat /proc/*/environ | tr '\\0' '\\n'; true" });
    let model = recording(&person, "look", &[("Bash", look.clone())]);
    let env = ["AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DATABASE_URL"];
    let env = env.map(|name| (name, SECRET.to_owned()));
    let server = Server::start_with(&person, &format!("--model {model}"), &env);
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "look" }));
    let events = admin.follow_to_end(&id);
    assert_eq!(events.last().unwrap().data["ending"], "completed");
    let call = caller(&server);
    let answers = [
        format!("{events:?}"),
        call("Bash", look).to_string(),
        admin.get(&format!("/api/sessions/{id}")).text(),
        admin.get("/metrics").text(),
        admin.get("/api/environment").text(),
        server.anybody().get("/health/ready").text(),
    ];
    assert!(
        answers[1].contains("PATH="),
        "the command has looked: {}",
        answers[1]
    );
    for answer in &answers {
        assert!(!answer.contains(SECRET), "{answer}");
    }
    let state = person.place().state();
    let grep = |what: &str| {
        let mut command = Command::new("grep");
        command.args(["-rlaF", "--", what]).arg(&state);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(!grep(&id).is_empty(), "grep finds what is there");
    assert_eq!(grep(SECRET), "");
    assert_eq!(server.end(), Some(0));
}
