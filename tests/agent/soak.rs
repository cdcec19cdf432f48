//! A long session with the real program: neither it nor its sandbox grows.

use super::{agent, unseen};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use testkit::{ModelServer, Person, Step, wait_until};

const TURNS: usize = 500;
/// The turn after which nothing grows any more, and one near the end.
const EARLY: usize = 100;
const LATE: usize = 490;
/// What a conversation of hundreds of turns comes to, several times over.
const MAX_GROWTH_KIB: u64 = 24 * 1024;

/// Resident memory and open descriptors.
#[derive(Debug, Clone, Copy)]
struct Size {
    kib: u64,
    descriptors: usize,
}

fn size(pid: u32) -> Size {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    Size {
        kib: kib.parse().unwrap(),
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
    }
}

/// Looks at it while it holds still.
fn look(pid: u32, server: &ModelServer, turn: usize) -> Size {
    let is_there = wait_until(std::time::Duration::from_mins(3), || {
        server.asked_count() >= turn
    });
    assert!(is_there, "turn {turn} did not come");
    let process = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    let size = size(pid);
    kill_process(process, Signal::CONT).unwrap();
    size
}

#[test]
fn five_hundred_turns_with_flat_memory_and_descriptors() {
    let person = Person::myself();
    person.write("project/notes.txt", "line\n");
    let steps = (0..TURNS).map(|turn| {
        let (tool, arguments) = match turn % 4 {
            0 => ("Bash", json!({ "command": format!("echo turn {turn}") })),
            1 => (
                "Write",
                json!({ "path": "out.txt", "content": format!("{turn}\n"), "overwrite": true }),
            ),
            2 => ("Read", json!({ "path": "out.txt" })),
            _ => ("Grep", json!({ "pattern": format!("line|{turn}") })),
        };
        Step::call(tool, &arguments.to_string())
    });
    let server = ModelServer::start(steps.chain([Step::text("Done.")]));
    let args = ["--sandbox", "--apply", "never", "--max-turns", "none"];
    let mut child = unseen(agent(&person, &server, args, "go on"));
    let head = child.id();
    let early = look(head, &server, EARLY);
    let list = person.line("list --json").run().expect_code(0).out();
    let list: Value = serde_json::from_str(&list).unwrap();
    let owner = list["data"]["sandboxes"][0]["pid"].as_u64().unwrap();
    let owner = u32::try_from(owner).unwrap();
    let early_owner = size(owner);
    let late = look(head, &server, LATE);
    let late_owner = size(owner);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(server.steps_left(), 0);

    for (who, early, late) in [
        ("the agent", early, late),
        ("the sandbox's owner", early_owner, late_owner),
    ] {
        println!("{who}: {early:?} after {EARLY} turns, {late:?} after {LATE}");
        let grown = late.kib.saturating_sub(early.kib);
        assert!(grown < MAX_GROWTH_KIB, "{who}: {early:?} {late:?}");
        // A connection and a command may just be open or not.
        assert!(
            late.descriptors <= early.descriptors + 4,
            "{who}: {early:?} {late:?}"
        );
    }
    person.assert_nothing_lives();
}
