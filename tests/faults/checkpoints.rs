//! Whoever changes what a sandbox stands on is killed at every step of it: the files are those from
//! before or those from after, nothing in between, and the next command works.

use crate::{alone, finish, kill, start};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{Person, has_program, skip, wait_until};

/// What changes directories and files of the state; each is a step.
const STEPS: [&str; 6] = [
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "unlink",
    "write",
];
/// More steps than any change has that matter.
const MAX_STEPS: u32 = 60;

fn line(person: &Person, line: &str) -> String {
    person.line(line).run().expect_code(0).out()
}

fn inside(person: &Person, script: &str) -> String {
    person.script("exec box", script).run().expect_code(0).out()
}

fn files(person: &Person) -> String {
    inside(
        person,
        "cd /workspace; for f in *; do echo $f $(cat $f); done",
    )
}

/// The pid of the supervisor.
fn supervisor(person: &Person) -> u32 {
    let list = line(person, "list --json");
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    u32::try_from(list["data"]["sandboxes"][0]["pid"].as_u64().unwrap()).unwrap()
}

fn lose(person: &Person) {
    let pid = supervisor(person);
    kill(pid);
    assert!(wait_until(Duration::from_secs(5), || {
        line(person, "list").contains("lost")
    }));
}

/// Runs a command of the box that is killed at its `step`th `call`. False when it got through.
fn killed_at(person: &Person, words: &[&str], call: &str, step: u32) -> bool {
    let mut command = person.program("strace");
    command
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"))
        .arg("-e")
        .arg(format!("inject={call}:signal=KILL:when={step}"))
        .arg(person.binary())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (code, said) = finish(command.spawn().unwrap());
    assert!(
        code == 0 || said.is_empty() || code > 128,
        "{words:?} at {call} {step}: {code} {said}"
    );
    code != 0
}

/// A tracer that kills a process at its `step`th `call` from now on.
fn lie_in_wait(person: &Person, pid: u32, call: &str, step: u32) -> Child {
    let mut command: Command = person.program("strace");
    command
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"))
        .arg("-e")
        .arg(format!("inject={call}:signal=KILL:when={step}"))
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let is_traced = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        tasks.flatten().all(|task| {
            std::fs::read_to_string(task.path().join("status"))
                .is_ok_and(|text| !text.contains("TracerPid:\t0\n"))
        })
    };
    assert!(wait_until(Duration::from_secs(10), is_traced));
    child
}

fn prepare(person: &Person) {
    person.write("project/base", "base\n");
    line(person, "start box");
    inside(person, "echo 1 > one");
    line(person, "checkpoint box -m first");
    inside(person, "echo 2 > two; echo 1b > one");
}

/// The files are one whole state, which they are then brought back to for the next round.
fn check(person: &Person, verb: &str) -> String {
    let found = files(person);
    if found == FIRST && verb.starts_with("restore") {
        inside(person, "echo 2 > two; echo 1b > one");
    } else {
        assert_eq!(found, LATER, "{verb}");
    }
    found
}

const LATER: &str = "base base\none 1b\ntwo 2\n";
const FIRST: &str = "base base\none 1\n";

#[test]
fn a_command_dies_at_every_step_of_a_change() {
    if !has_program("strace") {
        skip!("strace is not installed");
    }
    let _alone = alone();
    Person::each(|person| {
        prepare(person);
        let mut restored = 0;
        for (verb, words) in [
            ("checkpoint", &["checkpoint", "box"][..]),
            ("restore", &["restore", "box", "v1"][..]),
        ] {
            for call in STEPS {
                for step in 1.. {
                    assert!(step < MAX_STEPS, "{verb} does not come to an end");
                    lose(person);
                    let was_killed = killed_at(person, words, call, step);
                    line(person, "start box");
                    let found = check(person, verb);
                    restored += u32::from(verb == "restore" && found == FIRST && was_killed);
                    if !was_killed {
                        break;
                    }
                }
            }
        }
        assert!(restored > 0, "no restore was finished by the next command");
        let list = line(person, "checkpoints box --json");
        assert!(list.contains("\"first\""), "{list}");
        line(person, "restore box v1");
        assert_eq!(files(person), FIRST);
        line(person, "kill box");
        person.assert_nothing_lives();
    });
}

#[test]
fn the_supervisor_dies_at_every_step_of_a_change() {
    if !has_program("strace") {
        skip!("strace is not installed");
    }
    let _alone = alone();
    Person::each(|person| {
        prepare(person);
        for verb in ["checkpoint box", "checkpoint --live box", "restore box v1"] {
            for call in STEPS {
                for step in 1..MAX_STEPS {
                    let pid = supervisor(person);
                    let mut tracer = lie_in_wait(person, pid, call, step);
                    let (code, _) = finish(start(person.line(verb)));
                    kill(tracer.id());
                    tracer.wait().unwrap();
                    line(person, "start box");
                    check(person, verb);
                    if code == 0 {
                        break;
                    }
                }
            }
        }
        line(person, "restore box v1");
        assert_eq!(files(person), FIRST);
        line(person, "kill box");
        person.assert_nothing_lives();
    });
}
