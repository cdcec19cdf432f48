//! What happens when something breaks at the worst moment: a process dies, the disk is full, a
//! system call fails.
//!
//! Whatever breaks, three things must hold: nobody hangs, what went wrong is said in words, and
//! what was left behind is gone after the next call. As in the flow suite everything is tried as
//! whoever runs the tests and, when that is root, as an ordinary user too.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod checkpoints;
mod deaths;
mod disk;
mod system_calls;

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use testkit::{Glovebox, Person, Process, wait_until};

/// How long anything may take to end on its own once its cause is gone.
const END: Duration = Duration::from_secs(5);
/// How long a call may take at all.
const HANG: Duration = Duration::from_secs(20);

/// Tests of this suite run one at a time: then every process that descends from this one belongs
/// to the test that runs, also those whose parents have died, which this process inherits.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_child_subreaper(Some(getpid())).unwrap();
    guard
}

/// Starts a call whose words are of interest.
fn start(mut call: Glovebox) -> Child {
    call.command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills a process as nothing else can be killed: without a chance to react.
fn kill(id: u32) {
    let pid = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    // It may have ended by itself.
    let _ = kill_process(pid, Signal::KILL);
}

/// Exit code and words of a call, which must end soon. Only for calls of few words.
#[track_caller]
fn finish(mut child: Child) -> (i32, String) {
    let is_over = wait_until(HANG, || child.try_wait().unwrap().is_some());
    if !is_over {
        kill(child.id());
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(is_over, "it did not end: {said}");
    let status = output.status;
    (
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap()),
        said,
    )
}

/// Checks that everything this process ever started is dead.
#[track_caller]
fn assert_all_dead(what: &str) {
    let own = std::process::id();
    let is_quiet = wait_until(END, || Process::descendants(own).is_empty());
    assert!(is_quiet, "{what}: {:?}", Process::descendants(own));
}

/// Checks that the next call finds everything in order and leaves it so.
#[track_caller]
fn assert_recovers(person: &Person, what: &str) {
    let ran = person.line("run --quiet -- echo fine").run();
    assert!(
        ran.code == 0 && ran.out() == "fine\n",
        "after {what}: {ran}"
    );
    assert_all_dead(what);
    person.assert_nothing_lives();
}

/// A failure of glovebox's own, in words.
#[track_caller]
fn assert_in_words(code: i32, said: &str, what: &str) {
    assert!(
        said.lines().any(|line| line.starts_with("error: ")),
        "{what}: {code}: {said}"
    );
    assert!(!said.contains("panicked"), "{what}: {said}");
}
