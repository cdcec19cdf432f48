//! However a `run` ends, what its command changed is not lost: it is asked about, or parked under a name.

use crate::screen::Terminal;
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;
use testkit::{Person, Process, Ran, await_sleepers, marker, wait_until};

/// The only sandbox there is, which must be parked.
fn parked(person: &Person) -> Value {
    let ran = person.line("list --json").run().expect_code(0);
    let list: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let all = list["data"]["sandboxes"].as_array().unwrap();
    assert_eq!(all.len(), 1, "as {}: {ran}", person.name());
    assert_eq!(all[0]["state"], "parked", "as {}: {ran}", person.name());
    all[0].clone()
}

/// Takes over what is parked, after checking that the file `made` is not there yet, and drops the rest.
fn take(person: &Person) {
    let made = person.project().join("made");
    assert!(!made.exists(), "applied without being asked for");
    let name = parked(person)["name"].as_str().unwrap().to_owned();
    let shown = person.line(&format!("diff {name}")).run().expect_code(0);
    assert!(shown.out().contains("+++ b/made"), "{shown}");
    let _ = person.line(&format!("pull {name}")).run().expect_code(0);
    assert_eq!(fs::read_to_string(&made).unwrap(), "new\n");
    fs::remove_file(&made).unwrap();
    let _ = person.line(&format!("kill {name}")).run().expect_code(0);
    person.assert_nothing_left();
}

/// One line on standard error says how many changes there are and how to take them over.
fn assert_told(ran: &Ran, changes: &str) {
    let said = ran.err();
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("parked") && line.contains("`glovebox pull run-"))
        .collect();
    assert_eq!(lines.len(), 1, "{ran}");
    assert!(lines[0].contains(changes), "{ran}");
}

#[test]
fn every_limit_that_ends_a_command_leaves_its_changes() {
    Person::each(|person| {
        let sleep = marker();
        let fill = format!("head -c 5M /dev/zero > b; head -c 5M /dev/zero > c; sleep {sleep}");
        let hold = "head -c 300M /dev/zero | tail -c 300M | read -r held; exit 137";
        let fork = "for i in $(seq 60); do sleep 1 & done; wait; exit 2";
        let table: [(&str, &str, Option<i32>, &str, &str); 6] = [
            ("run", "exit 0", Some(0), "1 change ", ""),
            ("run --disk 8MiB", &fill, Some(125), "changes ", "--disk"),
            (
                "run --memory 64MiB",
                hold,
                Some(137),
                "1 change ",
                "--memory",
            ),
            (
                "run --timeout 1s",
                &format!("sleep {sleep}"),
                Some(124),
                "1 change ",
                "--timeout",
            ),
            (
                "run --file-size 1MiB",
                "exec head -c 5M /dev/zero > b",
                Some(153),
                "2 changes ",
                "--file-size",
            ),
            // A shell may say itself that it cannot fork, and with which code.
            ("run --pids 30", fork, None, "1 change ", "--pids"),
        ];
        for (args, script, code, changes, flag) in table {
            let ran = person
                .script(args, &format!("echo new > made; {script}"))
                .run();
            if let Some(code) = code {
                assert_eq!(ran.code, code, "as {}: {args}: {ran}", person.name());
            }
            assert_told(&ran, changes);
            assert!(ran.err().contains(flag), "{args}: {ran}");
            take(person);
        }
        assert!(Process::mentioning(&sleep).is_empty());
    });
}

#[test]
fn changes_are_told_of_even_quietly_and_dropped_only_when_that_was_said() {
    Person::each(|person| {
        let ran = person
            .script("run --quiet", "echo new > made")
            .run()
            .expect_code(0);
        assert_told(&ran, "1 change ");
        take(person);
        let _ = person
            .script("run --apply never", "echo new > made")
            .run()
            .expect_code(0);
        // A command that changed nothing leaves nothing.
        let _ = person.script("run", "cat /etc/passwd").run().expect_code(0);
        person.assert_nothing_left();
        // Not taken over because the command failed.
        let ran = person
            .script("run --sync-on-success", "echo new > made; exit 4")
            .run()
            .expect_code(4);
        assert_told(&ran, "1 change ");
        take(person);
    });
}

#[test]
fn layers_in_memory_are_parked_on_disk() {
    if !testkit::has_layers_in_memory() {
        return;
    }
    Person::each(|person| {
        person.write("project/old", "old\n");
        person.write("project/dir/gone", "gone\n");
        let script =
            "echo new > made; rm old; rm -r dir; mkdir dir; head -c 3M /dev/zero > dir/large";
        let ran = person
            .script("run --layers memory", script)
            .run()
            .expect_code(0);
        assert_told(&ran, "4 changes ");
        take(person);
        assert!(!person.project().join("old").exists());
        assert!(!person.project().join("dir/gone").exists());
        assert_eq!(
            person.project().join("dir/large").metadata().unwrap().len(),
            3 << 20
        );
    });
}

/// A `run` in the background whose command has written and sleeps for `marker` seconds.
fn sleeping(person: &Person, marker: &str) -> Child {
    let mut call = person.script("run", &format!("echo new > made; sleep {marker}"));
    let child = call
        .command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    await_sleepers(marker, 1);
    child
}

#[test]
fn a_signal_or_a_lost_guest_leaves_the_changes() {
    Person::each(|person| {
        for signal in ["-INT", "-TERM", "-HUP"] {
            let marker = marker();
            let mut run = sleeping(person, &marker);
            let pid = run.id().to_string();
            assert!(
                person
                    .program("kill")
                    .args([signal, &pid])
                    .status()
                    .unwrap()
                    .success()
            );
            let status = run.wait().unwrap();
            assert!(!status.success(), "{signal}: {status:?}");
            take(person);
        }
        // Its first process is killed from outside.
        let marker = marker();
        let mut run = sleeping(person, &marker);
        let name = {
            let ran = person.line("list --json").run();
            let list: Value = serde_json::from_slice(&ran.stdout).unwrap();
            list["data"]["sandboxes"][0]["name"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let status = person
            .place()
            .state()
            .join("sandboxes")
            .join(&name)
            .join("status.json");
        let status: Value = serde_json::from_slice(&fs::read(status).unwrap()).unwrap();
        let first = status["process"]["pid"].as_u64().unwrap().to_string();
        assert!(
            person
                .program("kill")
                .args(["-KILL", &first])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(run.wait().unwrap().code(), Some(125));
        take(person);
    });
}

#[test]
fn a_run_that_is_killed_leaves_its_changes_to_the_next_command() {
    Person::each(|person| {
        let marker = marker();
        let mut run = sleeping(person, &marker);
        run.kill().unwrap();
        run.wait().unwrap();
        assert!(wait_until(Duration::from_secs(10), || {
            Process::mentioning(&marker).is_empty()
        }));
        let ran = person.line("list").run().expect_code(0);
        assert_told(&ran, "was killed");
        take(person);
    });
}

#[test]
fn a_closed_terminal_leaves_the_changes() {
    Person::each(|person| {
        let marker = marker();
        let script = format!("echo new > made; echo at-$((40 + 2)); sleep {marker}");
        let terminal = Terminal::run(person, &["run", "--", "sh", "-c", &script]);
        terminal.see("at-42");
        terminal.close();
        assert!(wait_until(Duration::from_secs(20), || {
            let ran = person.line("list").run();
            ran.out().contains("parked")
        }));
        take(person);
    });
}

#[test]
fn on_a_terminal_a_limit_is_told_and_the_changes_asked_about() {
    Person::each(|person| {
        let script =
            "echo new > made; head -c 5M /dev/zero > b; head -c 5M /dev/zero > c; sleep 60";
        let args = ["run", "--disk", "8MiB", "--", "sh", "-c", script];
        let mut terminal = Terminal::run(person, &args);
        terminal.see("apply to ");
        let text = terminal.text();
        let (limit, question) = (text.find("disk limit"), text.find("apply to "));
        assert!(limit.is_some() && limit < question, "{text}");
        terminal.type_keys("y\n");
        assert_eq!(terminal.end(), 125);
        let made = fs::read_to_string(person.project().join("made")).unwrap();
        assert_eq!(made, "new\n");
        person.assert_nothing_left();
    });
}

#[test]
fn parked_changes_are_bounded_in_time_and_number() {
    Person::each(|person| {
        let _ = person.script("run", "echo new > made").run().expect_code(0);
        let name = parked(person)["name"].as_str().unwrap().to_owned();
        let path = person
            .place()
            .state()
            .join("sandboxes")
            .join(&name)
            .join("status.json");
        let mut status: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let at = status["parked"]["unix_ms"].as_u64().unwrap();
        let set = |status: &mut Value, at: u64| {
            status["parked"]["unix_ms"] = at.into();
            fs::write(&path, status.to_string()).unwrap();
        };
        let day_ms = 24 * 60 * 60 * 1000;
        set(&mut status, at - day_ms + 60_000);
        let _ = parked(person);
        set(&mut status, at - day_ms);
        let ran = person.line("list").run().expect_code(0);
        assert!(ran.err().contains(&name), "{ran}");
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        warning: the changes parked as `run-[RANDOM]` were dropped: nobody took them over for a day
        glovebox: there are no sandboxes; `glovebox start NAME` makes one
        ");
        person.assert_nothing_left();

        let mut dropped = String::new();
        for _ in 0..21 {
            let ran = person.script("run", "echo new > made").run().expect_code(0);
            dropped.push_str(&ran.err());
        }
        assert_eq!(person.sandboxes().len(), 20);
        assert_eq!(dropped.matches("were dropped").count(), 1, "{dropped}");
        let first = dropped.split("`glovebox pull ").nth(1).unwrap();
        let first = first.split('`').next().unwrap();
        assert!(
            dropped.contains(&format!("parked as `{first}` were dropped")),
            "{dropped}"
        );
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}
