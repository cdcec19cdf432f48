//! The nth call of each important system call fails, in every process of glovebox.
//!
//! strace(1) makes them fail: the real binary, the real guest, one failure per process and run.
//! Calls are counted by each process for itself, so one run may hit several processes at once.

use crate::{HANG, alone, assert_all_dead};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{Person, Process, has_program, skip, wait_until};

/// Everything that builds, guards or ends a sandbox.
const CALLS: [&str; 43] = [
    "bind",
    "capset",
    "chdir",
    "clone",
    "clone3",
    "connect",
    "dup2",
    "dup3",
    "epoll_create1",
    "epoll_ctl",
    "eventfd2",
    "execve",
    "fchdir",
    "fchownat",
    "flock",
    "fsconfig",
    "fsmount",
    "fsopen",
    "ftruncate",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "listen",
    "memfd_create",
    "mkdir",
    "mkdirat",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "openat2",
    "pidfd_open",
    "pipe2",
    "pivot_root",
    "prctl",
    "recvmsg",
    "renameat2",
    "seccomp",
    "sendmsg",
    "setsid",
    "signalfd4",
    "socket",
    "socketpair",
    "umount2",
];
/// Which of its calls fail: all of the first, then fewer.
const TURNS: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 22, 30, 42, 60];

/// One command, start to end; a sandbox with a supervisor, start to end.
const RUN: &str = "exec \"$GLOVEBOX\" run --quiet -- /bin/echo fine";
const KEEP: &str = "\"$GLOVEBOX\" start --quiet box && \"$GLOVEBOX\" exec --quiet box -- /bin/echo fine; code=$?; \
    \"$GLOVEBOX\" kill --quiet box; exit $code";

struct Outcome {
    code: i32,
    out: String,
    said: String,
    /// Whether any process got as far as the call that was to fail.
    was_hit: bool,
    /// Control groups that were made.
    groups: BTreeSet<String>,
    /// Who was still there when it should have ended long ago.
    stuck: Vec<Process>,
}

/// Runs a script while the `turn`th `call` of every process of glovebox fails.
fn run(person: &Person, script: &str, call: &str, errno: &str, turn: u32) -> Outcome {
    let log = person.place().root().join("home/trace");
    // The shell's own calls count as well, except before it has become glovebox.
    let mut command: Command = person.program("strace");
    let inject = format!("inject={call}:error={errno}:when={turn}");
    command
        .args(["-f", "-qq", "--seccomp-bpf", "-s", "256", "-e"])
        .arg(format!("trace={call},mkdir,mkdirat"))
        .args(["-e", &inject, "-o"])
        .arg(&log)
        .args(["sh", "-c", script])
        .env("GLOVEBOX", person.binary())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let is_over = wait_until(HANG, || child.try_wait().unwrap().is_some());
    let stuck = if is_over {
        Vec::new()
    } else {
        Process::descendants(child.id())
    };
    if !is_over {
        for process in &stuck {
            crate::kill(process.id);
        }
        crate::kill(child.id());
    }
    let output = child.wait_with_output().unwrap();
    let trace = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    let groups = trace
        .lines()
        .filter(|line| line.contains("mkdir") && line.contains("/sys/fs/cgroup"))
        .filter_map(|line| line.split('"').nth(1))
        .filter(|path| path.contains("/sandbox-"))
        .map(ToOwned::to_owned)
        .collect();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
        was_hit: trace.contains("(INJECTED)"),
        groups,
        stuck,
    }
}

/// Fails the first, second, nth of every call in turn until none is left to fail.
fn sweep(person: &Person, script: &str, errno: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for call in CALLS {
        for turn in TURNS {
            let outcome = run(person, script, call, errno, turn);
            let mut complain = |what: &str| {
                wrong.push(format!(
                    "as {}: {call} {errno} {turn}: {what}: code {}, out {:?}, said {:?}",
                    person.name(),
                    outcome.code,
                    outcome.out,
                    outcome.said
                ));
            };
            let has_words = outcome.said.lines().any(|line| line.starts_with("error: "));
            if outcome.said.contains("panicked") {
                complain("a panic");
            }
            if !outcome.stuck.is_empty() {
                complain(&format!("it hangs: {:?}", outcome.stuck));
            }
            match outcome.code {
                0 if outcome.out != "fine\n" => complain("success without its output"),
                0 => {}
                // The command itself was hit, or the shell around it: they have their own words.
                _ if !has_words && outcome.said.is_empty() => complain("a failure without a word"),
                _ => {}
            }
            // What could not be cleaned up by those who were hit is cleaned up by the next call.
            let _ = person.line("kill --all --quiet").run();
            let doctor = person.line("doctor --fix --json").run();
            if !doctor.out().contains(r#""success":true"#) {
                complain(&format!("then doctor: {doctor}"));
            }
            let left = person.sandboxes();
            if !left.is_empty() {
                complain(&format!("it leaves {left:?}"));
            }
            let is_gone = wait_until(crate::END, || {
                Process::descendants(std::process::id()).is_empty()
            });
            if !is_gone {
                complain(&format!(
                    "still there: {:?}",
                    Process::descendants(std::process::id())
                ));
            }
            for group in outcome
                .groups
                .iter()
                .filter(|group| Path::new(group).exists())
            {
                complain(&format!("it leaves {group}"));
            }
            if !outcome.was_hit {
                break;
            }
        }
    }
    wrong
}

fn sweep_all(script: &str) -> Option<String> {
    if !has_program("strace") {
        return Some("needs strace".to_owned());
    }
    let _alone = alone();
    let mut is_possible = true;
    Person::each(|person| {
        let probe = run(person, RUN, "acct", "EIO", 1);
        if probe.out != "fine\n" {
            is_possible = false;
            return;
        }
        let wrong = sweep(person, script, "EIO");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_all_dead("failing calls");
        person.assert_nothing_lives();
    });
    (!is_possible).then(|| "strace cannot trace here".to_owned())
}

#[test]
fn failing_during_run() {
    if let Some(reason) = sweep_all(RUN) {
        skip!("{reason}");
    }
}

#[test]
fn failing_around_a_supervisor() {
    if let Some(reason) = sweep_all(KEEP) {
        skip!("{reason}");
    }
}
