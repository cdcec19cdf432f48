//! A guest whose host misbehaves: it ends the connection, never itself in a crash, and keeps to its
//! bounds meanwhile.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;

use client::{Guest, PATIENCE, sh};
use glovebox_proto::{
    Capability, Channel, Code, FrameKind, Header, Hello, Reply, Request, RequestId, Role,
    WriteMode, encode, encode_header, limits,
};
use serde_bytes::ByteBuf;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The guest closes the link and exits with a failure, not by a signal.
fn is_given_up(guest: &mut Guest) {
    let deadline = Instant::now() + PATIENCE;
    while guest.turn(deadline) {}
    assert_eq!(guest.await_exit(), Some(1));
}

#[test]
fn hello_comes_first() {
    let mut guest = Guest::start();
    let hello = guest.hello.take().unwrap();
    assert_eq!(hello.role, Role::Guest);
    for capability in [Capability::Pty, Capability::KillTree, Capability::LogSpill] {
        assert!(hello.capabilities.contains(&capability));
    }
    let again = encode(&Hello::new(Role::Host, &[])).unwrap();
    guest.frame(
        Header::control(FrameKind::Hello, RequestId(0), again.len() as u32),
        &again,
    );
    is_given_up(&mut guest);

    let mut guest = Guest::start_without_hello(Path::new("/"));
    guest.ask(&Request::Ping(ByteBuf::new()));
    is_given_up(&mut guest);

    let mut guest = Guest::start_without_hello(Path::new("/"));
    let mut hello = Hello::new(Role::Host, &[]);
    hello.version += 1;
    let hello = encode(&hello).unwrap();
    guest.frame(
        Header::control(FrameKind::Hello, RequestId(0), hello.len() as u32),
        &hello,
    );
    is_given_up(&mut guest);
}

#[test]
fn garbage_ends_the_connection() {
    for seed in 0_u64..40 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let garbage: Vec<u8> = (0..4000)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        let mut guest = if seed % 2 == 0 {
            Guest::start()
        } else {
            Guest::start_without_hello(Path::new("/"))
        };
        let _ = guest.stream.write_all(&garbage);
        is_given_up(&mut guest);
    }
    // A well-formed frame around a malformed request.
    let mut guest = Guest::start();
    guest.frame(
        Header::control(FrameKind::Request, RequestId(1), 3),
        &[200, 200, 1],
    );
    is_given_up(&mut guest);
}

#[test]
fn violations_end_the_connection() {
    type Violation = fn(&mut Guest);
    let acts: [(&str, Violation); 7] = [
        ("an id in use", |guest| {
            let id = guest.ask(&Request::Exec(sh("sleep 5")));
            let ping = encode(&Request::Ping(ByteBuf::new())).unwrap();
            guest.frame(
                Header::control(FrameKind::Request, id, ping.len() as u32),
                &ping,
            );
        }),
        ("a reply", |guest| {
            guest.frame(Header::control(FrameKind::Reply, RequestId(7), 0), &[]);
        }),
        ("data on an output channel", |guest| {
            guest.frame(Header::data(RequestId(7), Channel::Stdout, 1, false), b"x");
        }),
        ("more credit than was used", |guest| {
            let id = guest.ask(&Request::Exec(sh("sleep 5")));
            guest.give(id, Channel::Stdout, 1);
        }),
        ("credit on a channel a job does not have", |guest| {
            let id = guest.ask(&Request::Exec(sh("sleep 5")));
            guest.give(id, Channel::Input, 1);
        }),
        ("more input than there is room for", |guest| {
            let mut exec = sh("sleep 5");
            exec.stdin = glovebox_proto::Stdin::Stream;
            let id = guest.ask(&Request::Exec(exec));
            let block = vec![0; limits::MAX_DATA_BYTES as usize];
            // The pipe takes some of it, which gives room back; what counts is what is not.
            for _ in 0..(limits::WINDOW_BYTES / limits::MAX_DATA_BYTES) + 4 {
                let header =
                    encode_header(Header::data(id, Channel::Input, block.len() as u32, false));
                let _ = guest.stream.write_all(&[&header[..], &block].concat());
            }
        }),
        ("an oversized frame", |guest| {
            let mut header = encode_header(Header::data(RequestId(1), Channel::Input, 0, false));
            header[..4].copy_from_slice(&u32::MAX.to_le_bytes());
            guest.stream.write_all(&header).unwrap();
        }),
    ];
    for (what, act) in acts {
        eprintln!("{what}");
        let mut guest = Guest::start();
        act(&mut guest);
        is_given_up(&mut guest);
    }
}

#[test]
fn late_frames_are_forgiven() {
    let mut guest = Guest::start();
    let id = guest.ask(&Request::Ping(ByteBuf::from("x")));
    guest.answer(id).unwrap();
    guest.cancel(id);
    guest.give(id, Channel::Stdout, 1000);
    guest.frame(Header::data(id, Channel::Input, 3, true), b"abc");
    guest.cancel(RequestId(4_000_000_000));
    assert_eq!(
        guest.call(&Request::Ping(ByteBuf::new())).unwrap(),
        Reply::Pong(ByteBuf::new())
    );
    // The id is free again.
    let ping = encode(&Request::Ping(ByteBuf::new())).unwrap();
    guest.frame(
        Header::control(FrameKind::Request, id, ping.len() as u32),
        &ping,
    );
    guest.answer(id).unwrap();
}

#[test]
fn a_host_that_does_not_read_costs_bounded_memory() {
    let mut guest = Guest::start();
    let ping = encode(&Request::Ping(ByteBuf::from(vec![7; 100_000]))).unwrap();
    guest
        .stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut sent = 0;
    for id in 1..4000_u32 {
        let header = encode_header(Header::control(
            FrameKind::Request,
            RequestId(id),
            ping.len() as u32,
        ));
        if guest
            .stream
            .write_all(&[&header[..], &ping].concat())
            .is_err()
        {
            break;
        }
        sent += 1;
    }
    assert!(sent < 3999, "nothing stops a host that does not read");
    let resident = guest.status_kib("VmHWM");
    eprintln!("resident: {resident} KiB after {sent} unread answers");
    assert!(resident < 16 << 10, "{resident} KiB");
}

#[test]
fn open_requests_are_limited() {
    let mut guest = Guest::start();
    let job = guest.start_job(sh("sleep 20"));
    let wait = Request::JobWait { job, wait_ms: None };
    let ids: Vec<_> = (0..limits::MAX_OPEN_REQUESTS)
        .map(|_| guest.ask(&wait))
        .collect();
    assert_eq!(
        guest.call(&Request::Ping(ByteBuf::new())).unwrap_err().code,
        Code::Busy
    );
    guest.cancel(ids[0]);
    assert_eq!(guest.answer(ids[0]).unwrap_err().code, Code::Cancelled);
    guest.call(&Request::Ping(ByteBuf::new())).unwrap();
}

#[test]
fn works_over_plain_pipes() {
    use std::io::Read as _;
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_glovebox-guest"))
        .arg("serve")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let frame = |kind, id, payload: &[u8]| {
        [
            &encode_header(Header::control(kind, RequestId(id), payload.len() as u32))[..],
            payload,
        ]
        .concat()
    };
    stdin
        .write_all(&frame(
            FrameKind::Hello,
            0,
            &encode(&Hello::new(Role::Host, &[])).unwrap(),
        ))
        .unwrap();
    stdin
        .write_all(&frame(
            FrameKind::Request,
            1,
            &encode(&Request::Exec(sh("echo piped"))).unwrap(),
        ))
        .unwrap();
    let mut decoder = glovebox_proto::Decoder::new();
    let mut output = Vec::new();
    'receiving: loop {
        let count = stdout.read(decoder.space()).unwrap();
        assert!(count > 0, "link closed");
        decoder.filled(count);
        while let Some(frame) = decoder.next_frame().unwrap() {
            match frame.header.kind {
                FrameKind::Data => output.extend_from_slice(frame.payload),
                FrameKind::Reply => break 'receiving,
                _ => {}
            }
        }
    }
    assert_eq!(output, b"piped\n");
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn wrong_usage_is_one_line() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_glovebox-guest"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("glovebox-guest: usage") && text.lines().count() == 1,
        "{text}"
    );
}

fn stat_here() -> Request {
    Request::Stat {
        path: ByteBuf::from("."),
        follow: true,
    }
}

#[test]
fn an_id_is_free_as_soon_as_its_answer_is_there() {
    let mut guest = Guest::start();
    let stat = encode(&stat_here()).unwrap();
    let header = |id| Header::control(FrameKind::Request, id, stat.len() as u32);
    // Several at once, so that the guest is at work whenever one of them is asked again.
    let ids = [1, 2, 3, 4, 5, 6].map(RequestId);
    for id in ids {
        guest.frame(header(id), &stat);
    }
    let mut count = 0;
    let deadline = Instant::now() + PATIENCE;
    while count < 20_000 {
        assert!(guest.turn(deadline), "the guest closed the link");
        for id in ids {
            if let Some(answer) = guest.replies.remove(&id) {
                answer.unwrap();
                guest.frame(header(id), &stat);
                count += 1;
            }
        }
    }
}

#[test]
fn a_cancel_that_meets_the_answer_leaves_one_answer_and_nothing_open() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), [7; 100]).unwrap();
    let mut guest = Guest::start_in(dir.path());
    let read = Request::FileRead {
        path: ByteBuf::from("f"),
        offset: 0,
        max_bytes: None,
    };
    let write = Request::FileWrite {
        path: ByteBuf::from("w"),
        mode: WriteMode::Replace,
        permissions: 0o644,
        make_parents: false,
    };
    let requests = [stat_here(), read, write];
    for round in 0..=limits::MAX_OPEN_REQUESTS {
        let request = &requests[round % 3];
        let id = guest.ask(request);
        if round % 3 == 2 {
            guest.send(id, b"new", true);
        }
        // Sometimes before the worker has begun, sometimes after it has answered.
        let until = Instant::now() + Duration::from_micros(round as u64 % 100);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        guest.cancel(id);
        if let Err(fault) = guest.answer(id) {
            assert_eq!(fault.code, Code::Cancelled);
        }
    }
    // A second answer to any of them would be there by now.
    guest.call(&stat_here()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("w")).unwrap(), b"new");
}

#[test]
fn answers_of_workers_and_output_of_jobs_keep_apart() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..30_000_u32).map(|n| (n / 7) as u8).collect();
    std::fs::write(dir.path().join("f"), &content).unwrap();
    let mut guest = Guest::start_in(dir.path());
    let mut flood = sh("head -c 8000000 /dev/zero");
    flood.stream_output = true;
    let flood = guest.ask(&Request::Exec(flood));
    let read = Request::FileRead {
        path: ByteBuf::from("f"),
        offset: 0,
        max_bytes: None,
    };
    let asked: Vec<_> = (0..600).map(|_| guest.ask(&read)).collect();
    // Nobody reads meanwhile: what does not leave at once has to wait within bounds.
    std::thread::sleep(Duration::from_millis(200));
    let resident = guest.status_kib("VmHWM");
    assert!(resident < 16 << 10, "{resident} KiB");
    for id in asked {
        guest.answer(id).unwrap();
        assert!(guest.take(id, Channel::Content) == content, "{id}");
    }
    let flooded = guest.ran(flood).unwrap();
    assert_eq!((flooded.code(), flooded.stdout.len()), (0, 8_000_000));
}
