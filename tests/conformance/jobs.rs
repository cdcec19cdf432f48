//! Jobs that live without the request that started them.

use crate::Fixture;
use crate::commands::sh;
use crate::fixture::{eventually, marker, processes};
use glovebox_proto::{Code, Exec, Exit, ExitReport, JobId, JobState, Reply, Request, Stdin};
use glovebox_sandbox::{Incoming, Sandbox};
use std::time::{Duration, Instant};

fn wait(sandbox: &Sandbox, job: JobId) -> ExitReport {
    match sandbox
        .call(Request::JobWait {
            job,
            wait_ms: Some(20_000),
        })
        .unwrap()
    {
        Reply::Exited(report) => report,
        other => panic!("{other:?}"),
    }
}

fn read(
    sandbox: &Sandbox,
    job: JobId,
    offset: u64,
    wait_ms: u64,
) -> (Vec<(bool, Vec<u8>)>, u64, bool) {
    match sandbox
        .call(Request::JobRead {
            job,
            offset,
            max_bytes: 1 << 20,
            wait_ms,
        })
        .unwrap()
    {
        Reply::Log {
            start,
            chunks,
            next,
            is_end,
            ..
        } => {
            assert_eq!(start, offset);
            let chunks = chunks
                .into_iter()
                .map(|chunk| (chunk.is_stderr, chunk.bytes.into_vec()));
            (chunks.collect(), next, is_end)
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn logs_are_kept_and_read_by_offset(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let job = sandbox
        .start_job(sh(
            "printf one; sleep 0.3; printf two >&2; sleep 0.3; printf three",
        ))
        .unwrap();
    let (mut text, mut offset, begin) = (Vec::new(), 0, Instant::now());
    loop {
        let (chunks, next, is_end) = read(&sandbox, job, offset, 10_000);
        text.extend(chunks);
        offset = next;
        if is_end {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(
        text,
        [
            (false, b"one".to_vec()),
            (true, b"two".to_vec()),
            (false, b"three".to_vec())
        ]
    );
    assert_eq!(offset, 11);
    let (chunks, next, is_end) = read(&sandbox, job, 4, 0);
    assert_eq!(chunks, [(true, b"wo".to_vec()), (false, b"three".to_vec())]);
    assert_eq!((next, is_end), (11, true));
    assert_eq!(wait(&sandbox, job).exit, Exit::Code(0));
}

pub(crate) fn jobs_are_listed_signalled_and_killed(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let marker = marker();
    let first = sandbox.start_job(Exec::new(["sleep", &marker])).unwrap();
    let stubborn = format!("trap '' TERM; echo up; sleep {marker}; sleep {marker}; sleep {marker}");
    let second = sandbox.start_job(sh(&stubborn)).unwrap();
    assert!(second > first);
    let jobs = sandbox.jobs().unwrap();
    assert_eq!(
        jobs.iter().map(|info| info.job).collect::<Vec<_>>(),
        [first, second]
    );
    assert!(jobs.iter().all(|info| info.state == JobState::Running));
    assert_eq!(jobs[0].argv[0], b"sleep");

    let waited = sandbox
        .call(Request::JobWait {
            job: first,
            wait_ms: Some(50),
        })
        .unwrap_err();
    assert_eq!(waited.code, Code::TimedOut);
    sandbox
        .call(Request::JobSignal {
            job: first,
            signal: 15,
            whole_tree: false,
        })
        .unwrap();
    assert_eq!(wait(&sandbox, first).exit, Exit::Signal(15));
    let late = sandbox
        .call(Request::JobSignal {
            job: first,
            signal: 15,
            whole_tree: false,
        })
        .unwrap_err();
    assert_eq!(late.code, Code::JobEnded);

    // Not before it ignores the signal.
    assert!(!read(&sandbox, second, 0, 5000).0.is_empty());
    let killed = sandbox
        .call(Request::JobKill {
            job: second,
            grace_ms: 200,
        })
        .unwrap();
    assert!(matches!(killed, Reply::Exited(report) if report.exit == Exit::Signal(9)));
    assert!(eventually(|| processes(&marker).is_empty()));
    assert!(
        sandbox
            .jobs()
            .unwrap()
            .iter()
            .all(|info| matches!(info.state, JobState::Ended(_)))
    );
}

pub(crate) fn attaching_follows_and_feeds(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let exec = Exec {
        stdin: Stdin::Stream,
        ..sh("echo ready; while read line; do echo \"<$line>\"; done; echo bye")
    };
    let job = sandbox.start_job(exec).unwrap();
    {
        // Detaching leaves the job alone.
        let mut first = sandbox
            .open(Request::JobAttach {
                job,
                offset: Some(0),
                sends_events: false,
            })
            .unwrap();
        assert!(matches!(first.recv(), Incoming::Data { .. }));
        first.cancel().unwrap();
        while !matches!(first.recv(), Incoming::Reply(_)) {}
    }
    assert!(
        sandbox
            .jobs()
            .unwrap()
            .iter()
            .any(|info| info.job == job && info.state == JobState::Running)
    );
    let mut second = sandbox
        .open(Request::JobAttach {
            job,
            offset: Some(0),
            sends_events: false,
        })
        .unwrap();
    let input = second.input();
    let feeder = std::thread::spawn(move || {
        for number in 0..100 {
            input.send(format!("{number}\n").as_bytes()).unwrap();
        }
        input.finish().unwrap();
    });
    let mut shown = Vec::new();
    let reply = loop {
        match second.recv() {
            Incoming::Data { bytes, .. } => shown.extend(bytes),
            Incoming::Reply(reply) => break reply,
        }
    };
    feeder.join().unwrap();
    assert!(matches!(reply, Ok(Reply::Exited(report)) if report.exit == Exit::Code(0)));
    let expected: String = (0..100)
        .flat_map(|number| ["<".to_owned(), number.to_string(), ">\n".to_owned()])
        .collect();
    assert_eq!(
        String::from_utf8(shown).unwrap(),
        format!("ready\n{expected}bye\n")
    );
}

pub(crate) fn unknown_jobs_are_named(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let job = JobId(77);
    for request in [
        Request::JobRead {
            job,
            offset: 0,
            max_bytes: 1,
            wait_ms: 0,
        },
        Request::JobWait { job, wait_ms: None },
        Request::JobSignal {
            job,
            signal: 1,
            whole_tree: true,
        },
        Request::JobKill { job, grace_ms: 0 },
        Request::JobAttach {
            job,
            offset: None,
            sends_events: false,
        },
        Request::JobResize {
            job,
            size: glovebox_proto::WindowSize { rows: 1, cols: 1 },
        },
    ] {
        let fault = sandbox.call(request).unwrap_err();
        assert_eq!(fault.code, Code::JobNotFound, "{fault}");
        assert!(fault.message.contains("77"), "{fault}");
    }
    let fault = sandbox
        .call(Request::JobSignal {
            job,
            signal: 99,
            whole_tree: true,
        })
        .unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument);
}
