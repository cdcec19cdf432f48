//! A guest that says nothing: deadlines are the host's as well, and an end needs no answer.

use crate::arena::ALONE;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use testkit::Home;
use testkit::{Process, marker, wait_until};

/// What a deadline of one second may take when the guest is silent: the host's own patience on top.
const PATIENCE: Duration = Duration::from_secs(40);

fn stop(process: u32) {
    let pid = i32::try_from(process)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a pid");
    kill_process(pid, Signal::STOP).expect("stop the guest");
}

/// Whatever carries what sleeps for `marker` seconds: all its ancestors below `top`, nearest last.
fn carriers(marker: &str, top: u32) -> Vec<u32> {
    let line = format!("sleep {marker}");
    let find = || {
        Process::all()
            .into_iter()
            .find(|process| process.line == line)
    };
    let mut sleeper = None;
    let is_found = || {
        sleeper = find();
        sleeper.is_some()
    };
    assert!(
        wait_until(Duration::from_secs(30), is_found),
        "nothing sleeps for {marker} s"
    );
    let mut process = sleeper.expect("the sleeper");
    let mut found = Vec::new();
    while process.parent != top && process.parent > 1 {
        process = Process::find(process.parent).expect("its parent");
        found.push(process.id);
    }
    found.reverse();
    found
}

fn spawn(home: &Home, line: &str, more: &[&str]) -> Child {
    home.line(line)
        .args(more)
        .command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("glovebox starts")
}

/// `exec --timeout` and `kill` of a named sandbox whose guest was stopped from outside -> 124 and gone,
/// both in seconds. Twin: before that, the same command works.
#[test]
fn a_stopped_guest_of_a_named_sandbox() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = Home::new();
    let _ = home
        .line("--quiet start --no-toolchains box")
        .run()
        .expect_code(0);
    let twin = home
        .line("exec --timeout 10s box -- echo on")
        .run()
        .expect_code(0);
    assert_eq!(twin.out(), "on\n");
    let marker = marker();
    let _ = home
        .line("exec --keep-background box -- sh -c")
        .args([format!("sleep {marker} >/dev/null 2>&1 &")])
        .run()
        .expect_code(0);
    let supervisor = supervisor(&home);
    let guest = carriers(&marker, supervisor)[0];
    stop(guest);
    let begun = Instant::now();
    let ran = home
        .line("exec --timeout 1s box -- true")
        .run()
        .expect_code(124);
    assert!(begun.elapsed() < PATIENCE, "{:?}: {ran}", begun.elapsed());
    assert!(ran.err().contains("does not answer"), "{ran}");
    assert!(ran.err().contains("glovebox kill"), "no next step: {ran}");
    let begun = Instant::now();
    let killed = home.line("kill box").run().expect_code(0);
    assert!(
        begun.elapsed() < PATIENCE,
        "{:?}: {killed}",
        begun.elapsed()
    );
    assert!(Process::mentioning(&marker).is_empty());
    assert!(
        !Process::all().iter().any(|process| process.id == guest),
        "the guest lives"
    );
}

fn supervisor(home: &Home) -> u32 {
    let state = home.state().display().to_string();
    Process::mentioning("__supervise")
        .into_iter()
        .find(|process| process.line.contains(&state))
        .expect("a supervisor")
        .id
}

/// `run --timeout` of every backend, whose guest is stopped from outside in the middle -> 124 in seconds, and
/// nothing is left. Twin: without that it ends as the command does.
#[test]
fn a_stopped_guest_of_a_running_command() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = Home::new();
    for backend in [
        "--no-toolchains",
        "--backend host",
        "--backend command --carrier sh",
    ] {
        let twin = home
            .line(&format!("--quiet run {backend} --timeout 20s -- sh -c"))
            .args(["exit 7"])
            .run();
        let _ = twin.expect_code(7);
        let marker = marker();
        let mut child = spawn(
            &home,
            &format!("--quiet run {backend} --timeout 1s -- sleep"),
            &[&marker],
        );
        let above = carriers(&marker, child.id());
        // The guest, and whatever stands between it and us: the stream goes silent.
        for process in &above {
            stop(*process);
        }
        let begun = Instant::now();
        let is_over = wait_until(PATIENCE, || {
            child.try_wait().is_ok_and(|status| status.is_some())
        });
        if !is_over {
            let _ = child.kill();
        }
        let output = child.wait_with_output().expect("its output");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(
            is_over,
            "{backend}: nothing after {:?}: {err}",
            begun.elapsed()
        );
        assert_eq!(output.status.code(), Some(124), "{backend}: {err}");
        assert!(err.contains("does not answer"), "{backend}: {err}");
        assert!(
            wait_until(Duration::from_secs(20), || Process::mentioning(&marker)
                .is_empty()),
            "{backend}: {:?}",
            Process::mentioning(&marker)
        );
    }
}
