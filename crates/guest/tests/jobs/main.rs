//! Jobs beyond one command: deadlines, killing, leftovers, logs, attaching, terminals, wardens.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../client/mod.rs"]
mod client;
mod terminals;
mod wardens;

use client::{Guest, count_marked, mark, sh};
use glovebox_proto::{
    Background, Channel, Code, Exec, Exit, ExitReport, JobId, JobState, LogCaps, Reply, Request,
    Stdin,
};
use std::time::{Duration, Instant};
use terminals::terminal;

fn exited(reply: Result<Reply, glovebox_proto::Fault>) -> ExitReport {
    match reply.unwrap() {
        Reply::Exited(report) => report,
        other => panic!("{other:?}"),
    }
}

fn kill(guest: &mut Guest, job: JobId, grace_ms: u64) -> ExitReport {
    exited(guest.call(&Request::JobKill { job, grace_ms }))
}

/// Log from `offset` until the end, as (stream, bytes) runs joined.
fn whole_log(guest: &mut Guest, job: JobId, mut offset: u64) -> (Vec<(bool, Vec<u8>)>, u64) {
    let mut runs: Vec<(bool, Vec<u8>)> = Vec::new();
    let mut first = None;
    loop {
        let read = Request::JobRead {
            job,
            offset,
            max_bytes: 10_000,
            wait_ms: 20_000,
        };
        match guest.call(&read).unwrap() {
            Reply::Log {
                start,
                chunks,
                next,
                total,
                is_end,
            } => {
                first.get_or_insert(start);
                assert!(start >= offset && next <= total);
                for chunk in chunks {
                    match runs.last_mut() {
                        Some((stream, bytes)) if *stream == chunk.is_stderr => {
                            bytes.extend_from_slice(&chunk.bytes);
                        }
                        _ => runs.push((chunk.is_stderr, chunk.bytes.into_vec())),
                    }
                }
                if is_end {
                    return (runs, first.unwrap_or(0));
                }
                offset = next;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn deadline_asks_first() {
    let mut guest = Guest::start();
    let mut exec = sh("trap 'echo bye; exit 7' TERM; echo hi; while :; do sleep 0.02; done");
    exec.timeout_ms = Some(200);
    exec.grace_ms = 5000;
    let begin = Instant::now();
    let ran = guest.run(exec).unwrap();
    assert_eq!(ran.out(), "hi\nbye\n");
    assert!(ran.report.timed_out);
    assert_eq!(ran.report.exit, Exit::Code(7));
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn deadline_kills_whatever_hides() {
    let mut guest = Guest::start();
    let scripts = [
        "trap '' TERM HUP INT; while :; do sleep MARK; done",
        "sleep MARK & kill -STOP $!; kill -STOP $$",
        "(setsid sh -c 'exec >&- 2>&- <&-; trap \"\" TERM; sleep MARK & sleep MARK' &); trap '' TERM; sleep MARK & wait; wait; sleep MARK",
        "setsid sh -c 'setsid sh -c \"trap \\\"\\\" TERM; setsid sleep MARK; sleep MARK\" & exit' & trap '' TERM; sleep MARK; sleep MARK",
    ];
    for (index, script) in scripts.iter().enumerate() {
        let mark = mark(100 + index as u32);
        let mut exec = sh(&script.replace("MARK", &mark));
        exec.timeout_ms = Some(250);
        exec.grace_ms = 150;
        let id = guest.ask(&Request::Exec(exec));
        guest.listen(Duration::from_millis(120));
        assert!(count_marked(&mark) > 0, "{script}: not running");
        let begin = Instant::now();
        let ran = guest.ran(id).unwrap();
        assert!(ran.report.timed_out, "{script}: {ran:?}");
        assert_eq!(count_marked(&mark), 0, "{script}");
        assert!(
            begin.elapsed() < Duration::from_secs(3),
            "{script}: {:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn leftovers_are_killed_or_kept() {
    let mut guest = Guest::start();
    let mark = mark(1);
    let script = format!("sleep {mark} & (setsid sleep {mark} >/dev/null 2>&1 &); echo ok");
    let ran = guest.run(sh(&script)).unwrap();
    assert_eq!(ran.out(), "ok\n");
    assert_eq!(count_marked(&mark), 0);
    assert_eq!((ran.report.killed, ran.report.left_running), (2, 0));

    let mut exec = sh(&script);
    exec.background = Background::Keep;
    let begin = Instant::now();
    let ran = guest.run(exec).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(ran.out(), "ok\n");
    assert_eq!((ran.report.killed, ran.report.left_running), (0, 2));
    assert_eq!(count_marked(&mark), 2);
    let Reply::Jobs(jobs) = guest.call(&Request::JobList).unwrap() else {
        panic!()
    };
    assert!(matches!(jobs[1].state, JobState::Background(_)), "{jobs:?}");
    let report = kill(&mut guest, ran.report.job, 1000);
    assert_eq!(report.left_running, 0);
    assert_eq!(report.exit, Exit::Code(0));
    assert_eq!(count_marked(&mark), 0);
    let Reply::Jobs(jobs) = guest.call(&Request::JobList).unwrap() else {
        panic!()
    };
    assert!(matches!(jobs[1].state, JobState::Ended(_)), "{jobs:?}");
}

#[test]
fn kept_leftovers_that_write_on_do_not_hold_the_answer() {
    let mut guest = Guest::start();
    let mut exec = sh("(while :; do echo flood; done) & echo mine");
    exec.background = Background::Keep;
    let ran = guest.run(exec).unwrap();
    assert!(ran.out().contains("mine\n"));
    // It keeps going with nobody listening, and its log says so.
    let total = |guest: &mut Guest| match guest.call(&Request::JobList).unwrap() {
        Reply::Jobs(jobs) => jobs[0].output_bytes,
        other => panic!("{other:?}"),
    };
    let before = total(&mut guest);
    guest.listen(Duration::from_millis(300));
    assert!(total(&mut guest) > before);
    kill(&mut guest, ran.report.job, 0);
}

#[test]
fn cancel_ends_the_command() {
    let mut guest = Guest::start();
    let mark = mark(2);
    let mut exec = sh(&format!(
        "trap '' TERM; sleep {mark} & sleep {mark}; sleep {mark}"
    ));
    exec.grace_ms = 100;
    let id = guest.ask(&Request::Exec(exec));
    guest.listen(Duration::from_millis(100));
    assert!(count_marked(&mark) > 0);
    guest.cancel(id);
    assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
    assert_eq!(count_marked(&mark), 0);
    // Also one that floods a host that gives no credit.
    guest.gives_credit = false;
    let mut exec = sh("cat /dev/zero");
    exec.grace_ms = 5000;
    let id = guest.ask(&Request::Exec(exec));
    guest.listen(Duration::from_millis(300));
    guest.cancel(id);
    assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
}

#[test]
fn logs_are_exact_at_offsets() {
    let mut guest = Guest::start();
    let mut exec =
        sh("i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; echo problem >&2");
    exec.log = LogCaps {
        head_bytes: 1000,
        tail_bytes: 1000,
        spill_bytes: 20_000,
    };
    let job = guest.start_job(exec);
    let wait = Request::JobWait {
        job,
        wait_ms: Some(20_000),
    };
    let report = exited(guest.call(&wait));
    let lines: Vec<_> = (0..5000).map(|i| format!("line {i}\n")).collect();
    let expected = lines.concat();
    assert_eq!(report.stdout_bytes, expected.len() as u64);
    let read = |guest: &mut Guest, offset, max_bytes| match guest
        .call(&Request::JobRead {
            job,
            offset,
            max_bytes,
            wait_ms: 0,
        })
        .unwrap()
    {
        Reply::Log {
            start,
            chunks,
            total,
            ..
        } => {
            assert_eq!(total, expected.len() as u64 + 8);
            (start, chunks.concat_bytes())
        }
        other => panic!("{other:?}"),
    };
    for offset in [0_u64, 1, 999, 1000, 1001, 20_000, 20_999] {
        let (start, bytes) = read(&mut guest, offset, 500);
        assert_eq!(start, offset);
        assert!(!bytes.is_empty());
        assert_eq!(bytes, expected.as_bytes()[offset as usize..][..bytes.len()]);
    }
    // The middle is not kept: the answer says where it goes on.
    let (start, bytes) = read(&mut guest, 30_000, 5000);
    assert_eq!(start, expected.len() as u64 + 8 - 1000);
    assert!(bytes.ends_with(b"line 4999\nproblem\n"));
    let (runs, _) = whole_log(&mut guest, job, start);
    assert_eq!(runs.last().unwrap(), &(true, b"problem\n".to_vec()));
    assert_eq!(read(&mut guest, u64::MAX, 10).1, b"");
}

trait ConcatBytes {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl ConcatBytes for Vec<glovebox_proto::LogChunk> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter()
            .flat_map(|chunk| chunk.bytes.iter().copied())
            .collect()
    }
}

#[test]
fn reading_waits_for_something_new() {
    let mut guest = Guest::start();
    let job = guest.start_job(sh("echo one; sleep 0.3; echo two >&2; sleep 0.3; exit 3"));
    let (runs, start) = whole_log(&mut guest, job, 0);
    assert_eq!(start, 0);
    assert_eq!(
        runs,
        [(false, b"one\n".to_vec()), (true, b"two\n".to_vec())]
    );
    let job = guest.start_job(sh("sleep 30"));
    let begin = Instant::now();
    let read = Request::JobRead {
        job,
        offset: 0,
        max_bytes: 10,
        wait_ms: 100,
    };
    assert!(matches!(
        guest.call(&read).unwrap(),
        Reply::Log {
            total: 0,
            is_end: false,
            ..
        }
    ));
    assert!(begin.elapsed() >= Duration::from_millis(100));
    let wait = Request::JobWait {
        job,
        wait_ms: Some(50),
    };
    assert_eq!(guest.call(&wait).unwrap_err().code, Code::TimedOut);
    let id = guest.ask(&Request::JobWait { job, wait_ms: None });
    guest.cancel(id);
    assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
    let id = guest.ask(&Request::JobWait { job, wait_ms: None });
    let report = kill(&mut guest, job, 1000);
    assert_eq!(report.exit, Exit::Signal(15));
    assert_eq!(exited(guest.answer(id)), report);
    assert_eq!(
        kill(&mut guest, job, 1000),
        report,
        "killing again is no error"
    );
}

#[test]
fn signals_reach_group_or_tree() {
    let mut guest = Guest::start();
    let script = "trap 'echo group' USR1; setsid sh -c 'trap \"echo tree >&2; exit\" USR1; echo ready; while :; do sleep 0.02; done' & \
                  while :; do wait; done";
    let job = guest.start_job(sh(script));
    let read = Request::JobRead {
        job,
        offset: 0,
        max_bytes: 100,
        wait_ms: 5000,
    };
    guest.call(&read).unwrap();
    let signal = |whole_tree| Request::JobSignal {
        job,
        signal: 10,
        whole_tree,
    };
    assert_eq!(guest.call(&signal(false)).unwrap(), Reply::Done);
    let read = Request::JobRead {
        job,
        offset: 6,
        max_bytes: 100,
        wait_ms: 5000,
    };
    match guest.call(&read).unwrap() {
        Reply::Log { chunks, .. } => assert_eq!(chunks.concat_bytes(), b"group\n"),
        other => panic!("{other:?}"),
    }
    assert_eq!(guest.call(&signal(true)).unwrap(), Reply::Done);
    guest.listen(Duration::from_millis(300));
    let read = Request::JobRead {
        job,
        offset: 12,
        max_bytes: 100,
        wait_ms: 5000,
    };
    match guest.call(&read).unwrap() {
        Reply::Log { chunks, .. } => {
            let text = String::from_utf8(chunks.concat_bytes()).unwrap();
            assert!(
                text.contains("tree\n") && text.contains("group\n"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    kill(&mut guest, job, 0);
    assert_eq!(guest.call(&signal(true)).unwrap_err().code, Code::JobEnded);
    let job = guest.start_job(sh("exec sleep 30"));
    let real_time = Request::JobSignal {
        job,
        signal: 40,
        whole_tree: false,
    };
    assert_eq!(guest.call(&real_time).unwrap(), Reply::Done);
    let wait = Request::JobWait {
        job,
        wait_ms: Some(5000),
    };
    assert_eq!(exited(guest.call(&wait)).exit, Exit::Signal(40));
    let nobody = Request::JobSignal {
        job: JobId(999),
        signal: 10,
        whole_tree: true,
    };
    assert_eq!(guest.call(&nobody).unwrap_err().code, Code::JobNotFound);
}

#[test]
fn attaching_replays_and_follows() {
    let mut guest = Guest::start();
    let mut exec = sh("echo before; read line; echo got $line; read line; exit 4");
    exec.stdin = Stdin::Stream;
    let job = guest.start_job(exec);
    guest.listen(Duration::from_millis(100));
    let first = guest.ask(&Request::JobAttach {
        job,
        offset: Some(0),
        sends_events: false,
    });
    let second = guest.ask(&Request::JobAttach {
        job,
        offset: None,
        sends_events: false,
    });
    let left = guest.ask(&Request::JobAttach {
        job,
        offset: None,
        sends_events: false,
    });
    guest.cancel(left);
    assert_eq!(guest.answer(left).unwrap_err().code, Code::Cancelled);
    guest.send(first, b"hello\n", false);
    guest.listen(Duration::from_millis(100));
    guest.send(second, b"x\n", false);
    assert_eq!(exited(guest.answer(first)).exit, Exit::Code(4));
    assert_eq!(exited(guest.answer(second)).exit, Exit::Code(4));
    assert_eq!(guest.take(first, Channel::Stdout), b"before\ngot hello\n");
    assert_eq!(guest.take(second, Channel::Stdout), b"got hello\n");
    // One that has ended is replayed from its log.
    let late = guest.ask(&Request::JobAttach {
        job,
        offset: Some(7),
        sends_events: false,
    });
    assert_eq!(exited(guest.answer(late)).exit, Exit::Code(4));
    assert_eq!(guest.take(late, Channel::Stdout), b"got hello\n");
}

#[test]
fn the_list_says_whose_input_is_open() {
    let mut guest = Guest::start();
    let without = guest.start_job(sh("exec sleep 30"));
    let mut exec = sh("cat; exec sleep 30");
    exec.stdin = Stdin::Stream;
    let with = guest.start_job(exec);
    let terminal = guest.start_job(terminal("exec sleep 30", 24, 80));
    let open = |guest: &mut Guest| match guest.call(&Request::JobList) {
        Ok(Reply::Jobs(jobs)) => jobs
            .iter()
            .filter(|info| info.has_input)
            .map(|info| info.job)
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(open(&mut guest), [with, terminal]);
    let feed = guest.ask(&Request::JobAttach {
        job: with,
        offset: None,
        sends_events: false,
    });
    guest.send(feed, b"x\n", true);
    assert_eq!(open(&mut guest), [terminal]);
    for job in [without, with, terminal] {
        kill(&mut guest, job, 0);
    }
    assert_eq!(open(&mut guest), []);
}

#[test]
fn a_hanging_follower_does_not_hold_the_owner() {
    let mut guest = Guest::start();
    guest.gives_credit = false;
    let exec = sh("sleep 0.2; head -c 900000 /dev/zero; sleep 0.1");
    let mut detached = exec.clone();
    detached.log = LogCaps {
        head_bytes: 2 << 20,
        ..LogCaps::default()
    };
    let job = guest.start_job(detached);
    let stuck = guest.ask(&Request::JobAttach {
        job,
        offset: Some(0),
        sends_events: false,
    });
    guest.listen(Duration::from_millis(500));
    // It slows the job down while it runs, like any terminal; ending the job frees everybody else.
    let report = kill(&mut guest, job, 0);
    assert_eq!(report.exit, Exit::Signal(9));
    assert!(!guest.replies.contains_key(&stuck));
    guest.gives_credit = true;
    guest.give(stuck, Channel::Stdout, 512 << 10);
    guest.forget_window(stuck, Channel::Stdout);
    assert_eq!(exited(guest.answer(stuck)), report);
    assert_eq!(
        guest.received[&(stuck, Channel::Stdout)],
        report.stdout_bytes
    );
}

#[test]
fn a_guest_that_is_killed_takes_its_commands_along() {
    let mut guest = Guest::start();
    let mark = mark(6);
    let mut exec = Exec::new(["sleep", &mark]);
    exec.background = Background::Keep;
    guest.start_job(exec);
    let deadline = Instant::now() + Duration::from_secs(10);
    // The kernel shows the new command line a moment after the old memory is gone.
    while count_marked(&mark) == 0 {
        assert!(Instant::now() < deadline, "the command does not run");
    }
    guest.child.kill().unwrap();
    guest.child.wait().unwrap();
    while count_marked(&mark) > 0 {
        assert!(Instant::now() < deadline, "the command survives");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_fork_bomb_ends_with_its_deadline() {
    let mut guest = Guest::start();
    let mark = mark(4);
    let script = format!(
        "bomb() {{ [ $1 -le 0 ] && {{ sleep {mark}; return; }}; while :; do bomb $(($1-1)) & bomb $(($1-1)) & wait; done; }}; trap '' TERM; bomb 7"
    );
    let mut exec = sh(&script);
    exec.timeout_ms = Some(400);
    exec.grace_ms = 50;
    let ran = guest.run(exec).unwrap();
    assert!(ran.report.timed_out);
    assert!(ran.report.killed > 50, "{:?}", ran.report);
    assert_eq!(count_marked(&mark), 0);
}

#[test]
fn shutdown_and_hangup_leave_nothing() {
    for is_polite in [true, false] {
        let mut guest = Guest::start();
        let mark = mark(5);
        let script = format!(
            "trap '' TERM; (setsid sleep {mark} &); sleep {mark} & kill -STOP $!; sleep {mark}"
        );
        guest.start_job(sh(&script));
        guest.listen(Duration::from_millis(100));
        assert!(count_marked(&mark) >= 3);
        if is_polite {
            assert_eq!(guest.call(&Request::Shutdown).unwrap(), Reply::Done);
        } else {
            guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
        assert_eq!(guest.await_exit(), Some(0));
        assert_eq!(count_marked(&mark), 0);
    }
}
