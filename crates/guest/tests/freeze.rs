//! Holding what commands have started still: what stops, what waits, what goes on, and how it ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;

use client::{Guest, sh};
use glovebox_proto::{Channel, Code, Exec, Exit, Reply, Request, RequestId, Stdin, WriteMode};
use serde_bytes::ByteBuf;
use std::fs;
use std::os::unix::fs::DirEntryExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Long enough for what is not held to show that it moves.
const A_WHILE: Duration = Duration::from_millis(60);
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for a hold and waits until nothing moves.
fn hold(guest: &mut Guest) -> RequestId {
    let id = guest.ask(&Request::Hold);
    let deadline = Instant::now() + PATIENCE;
    while guest.take(id, Channel::Content).is_empty() {
        guest.turn(deadline);
    }
    id
}

fn let_go(guest: &mut Guest, id: RequestId) {
    guest.cancel(id);
    assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

fn await_growth(path: &Path, from: u64) {
    let deadline = Instant::now() + PATIENCE;
    while size(path) <= from {
        assert!(Instant::now() < deadline, "{} stands still", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a request has its answer after a while.
fn is_answered(guest: &mut Guest, id: RequestId) -> bool {
    guest.listen(A_WHILE);
    guest.has_answer(id)
}

#[test]
fn what_commands_started_stands_still_and_goes_on() {
    let temp = tempfile::tempdir().unwrap();
    let [grown, other] = ["n", "other"].map(|name| temp.path().join(name));
    let mut guest = Guest::start_in(temp.path());
    // A command, a child in a session of its own, and one that forks all the time.
    guest.start_job(sh("setsid sh -c 'while :; do echo x >> n; done' & \
                        while :; do /bin/true; echo x >> other; done"));
    await_growth(&grown, 0);
    await_growth(&other, 0);
    for _ in 0..10 {
        let first = hold(&mut guest);
        let second = hold(&mut guest);
        let sizes = [size(&grown), size(&other)];
        std::thread::sleep(A_WHILE / 4);
        assert_eq!([size(&grown), size(&other)], sizes);
        let_go(&mut guest, first);
        std::thread::sleep(A_WHILE / 4);
        assert_eq!(
            [size(&grown), size(&other)],
            sizes,
            "somebody still holds it"
        );
        let_go(&mut guest, second);
        await_growth(&grown, sizes[0]);
        await_growth(&other, sizes[1]);
    }
}

#[test]
fn what_changes_files_or_starts_commands_waits_and_all_else_is_answered() {
    let temp = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(temp.path());
    let held = hold(&mut guest);
    let mkdir = guest.ask(&Request::Mkdir {
        path: ByteBuf::from("made"),
        permissions: 0o755,
        make_parents: false,
    });
    let mut cat = Exec::new(["cat"]);
    cat.stdin = Stdin::Stream;
    cat.stream_output = true;
    let cat = guest.ask(&Request::Exec(cat));
    guest.send(cat, b"in the right", false);
    guest.send(cat, b" order", true);
    let given_up = guest.ask(&Request::Exec(sh("echo x > never")));
    guest.cancel(given_up);
    assert_eq!(guest.answer(given_up).unwrap_err().code, Code::Cancelled);
    guest.call(&Request::Ping(ByteBuf::from("x"))).unwrap();
    guest.call(&Request::JobList).unwrap();
    let list = Request::List {
        path: ByteBuf::from("."),
        max_entries: 10,
    };
    guest.call(&list).unwrap();
    for id in [mkdir, cat] {
        assert!(!is_answered(&mut guest, id));
    }
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    let_go(&mut guest, held);
    guest.answer(mkdir).unwrap();
    assert_eq!(guest.ran(cat).unwrap().out(), "in the right order");
    assert!(temp.path().join("made").is_dir());
    assert!(!temp.path().join("never").exists());
}

#[test]
fn nothing_says_still_while_a_change_is_being_made() {
    let temp = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(temp.path());
    let contents = [b"a", b"b"].map(|byte| byte.repeat(200 << 10));
    let inodes = || {
        let entries = fs::read_dir(temp.path()).unwrap().map(Result::unwrap);
        let mut inodes: Vec<_> = entries
            .map(|entry| (entry.file_name(), entry.ino()))
            .collect();
        inodes.sort();
        inodes
    };
    for round in 0..40 {
        let written: Vec<_> = (0..6)
            .map(|n| {
                let id = guest.ask(&Request::FileWrite {
                    path: ByteBuf::from(format!("f{n}")),
                    mode: WriteMode::Replace,
                    permissions: 0o644,
                    make_parents: false,
                });
                guest.send(id, &contents[round % 2], true);
                id
            })
            .collect();
        let held = hold(&mut guest);
        let before = inodes();
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(inodes(), before);
        let_go(&mut guest, held);
        for id in written {
            guest.answer(id).unwrap();
        }
        assert_eq!(inodes().len(), 6);
    }
}

#[test]
fn a_held_job_can_be_ended_and_notices_when_it_is_let_go() {
    let temp = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(temp.path());
    let words = temp.path().join("words");
    let polite =
        "trap 'echo bye >> words; exit 7' TERM; echo hi > words; while :; do sleep 0.01; done";
    let job = guest.start_job(sh(polite));
    let hard = guest.start_job(sh("while :; do sleep 0.01; done"));
    let mut limited = sh("trap '' TERM; while :; do sleep 0.01; done");
    (limited.timeout_ms, limited.grace_ms) = (Some(300), 1);
    let limited = guest.start_job(limited);
    await_growth(&words, 0);
    let held = hold(&mut guest);
    let grace_ms = 60_000;
    let asked = guest.ask(&Request::JobKill { job, grace_ms });
    let killed = guest.call(&Request::JobKill {
        job: hard,
        grace_ms: 0,
    });
    assert!(matches!(killed, Ok(Reply::Exited(report)) if report.exit == Exit::Signal(9)));
    let ended = guest.call(&Request::JobWait {
        job: limited,
        wait_ms: Some(10_000),
    });
    assert!(matches!(ended, Ok(Reply::Exited(report)) if report.timed_out));
    assert!(!is_answered(&mut guest, asked));
    assert_eq!(fs::read_to_string(&words).unwrap(), "hi\n");
    let_go(&mut guest, held);
    let report = guest.answer(asked).unwrap();
    assert!(matches!(report, Reply::Exited(report) if report.exit == Exit::Code(7)));
    assert_eq!(fs::read_to_string(&words).unwrap(), "hi\nbye\n");
}

#[test]
fn what_was_stopped_before_stays_so() {
    let temp = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(temp.path());
    guest.start_job(sh(
        "sh -c 'echo $$ > pid; kill -STOP $$; echo went on > on' & wait",
    ));
    await_growth(&temp.path().join("pid"), 0);
    let pid = fs::read_to_string(temp.path().join("pid")).unwrap();
    let is_stopped = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    let deadline = Instant::now() + PATIENCE;
    while !is_stopped() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
    let held = hold(&mut guest);
    let_go(&mut guest, held);
    std::thread::sleep(A_WHILE);
    assert!(is_stopped() && !temp.path().join("on").exists());
}

#[test]
fn a_lost_link_leaves_nothing_held() {
    let temp = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(temp.path());
    guest.start_job(sh("echo $$ > pid; while :; do sleep 0.01; done"));
    await_growth(&temp.path().join("pid"), 0);
    let pid = fs::read_to_string(temp.path().join("pid")).unwrap();
    hold(&mut guest);
    guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
    guest.await_exit();
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
}
