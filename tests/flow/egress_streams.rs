//! Connections to listed hosts that do not go as they should: slow, huge, broken off, and the proxy gone in the middle.

use crate::egress::{Server, python};
use crate::without_network::{AT_ONCE, has};
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use testkit::{Person, Process, skip};

#[test]
fn much_arrives_as_it_was_sent_both_ways() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    // More than what goes through a buffer before a pipe takes over; the two directions at the same time.
    const BYTES: usize = 100 << 20;
    let server = Server::start(|mut stream, bytes| {
        let mut reader = stream.try_clone().unwrap();
        let received = std::thread::spawn(move || {
            let (mut sum, mut count, mut part) = (0_u64, 0_usize, vec![0; 1 << 16]);
            while let Ok(length @ 1..) = reader.read(&mut part) {
                for byte in &part[..length] {
                    sum = sum.wrapping_mul(31).wrapping_add((*byte).into());
                }
                count += length;
            }
            format!("{count} {sum}")
        });
        let part: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
        for _ in 0..BYTES >> 20 {
            if stream.write_all(&part).is_err() {
                return;
            }
        }
        // The program ends with this, and the sandbox with it: what it sent is here by then.
        bytes.extend_from_slice(received.join().unwrap().as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
    });
    let script = "import hashlib, socket, sys, threading\n\
        s = socket.create_connection(('big.test', int(sys.argv[1])))\npart = bytes(at % 241 for at in range(1 << 20))\n\
        def send():\n for _ in range(100): s.sendall(part)\n s.shutdown(socket.SHUT_WR)\n\
        t = threading.Thread(target=send); t.start()\ndigest = hashlib.sha256(); count = 0\nwhile True:\n \
        got = s.recv(1 << 20)\n if not got: break\n digest.update(got); count += len(got)\nt.join()\n\
        want = hashlib.sha256(bytes(at % 251 for at in range(1 << 20)) * 100)\nprint(count, digest.digest() == want.digest())\n";
    let mut persons = 0;
    Person::each(|person| {
        persons += 1;
        let ran = python(person, &server, "big.test", script)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), format!("{BYTES} True\n"), "{ran}");
    });
    let mut sum = 0_u64;
    for _ in 0..BYTES >> 20 {
        for at in 0..1_u32 << 20 {
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(at % 241));
        }
    }
    let brought = server.brought(persons);
    assert_eq!(brought, vec![format!("{BYTES} {sum}"); persons]);
}

#[test]
fn what_breaks_off_is_not_taken_for_the_end() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    // Little, and so much that it goes through a pipe.
    for count in [10_usize, 8 << 20] {
        let server = Server::start(move |mut stream, bytes| {
            let mut part = [0; 16];
            let length = stream.read(&mut part).unwrap_or(0);
            bytes.extend_from_slice(&part[..length]);
            let _ = stream.write_all(&vec![b'x'; count]);
            std::thread::sleep(Duration::from_millis(300));
            // With nothing to linger for, the end is a reset (socket(7), SO_LINGER).
            let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        });
        let script = "import socket, sys\ns = socket.create_connection(('cut.test', int(sys.argv[1])))\ns.sendall(b'\\x00go')\nn = 0\n\
            try:\n while True:\n  got = s.recv(1 << 20)\n  if not got: print('end'); break\n  n += len(got)\n\
            except ConnectionResetError: print('reset', n)\n";
        Person::each(|person| {
            let ran = python(person, &server, "cut.test", script)
                .run()
                .expect_code(0);
            assert_eq!(ran.out(), format!("reset {count}\n"), "{ran}");
        });
    }
    // The other way round: a program that is killed leaves no connection behind.
    let server = Server::start(|mut stream, bytes| {
        let mut part = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut part) {
            bytes.extend_from_slice(&part[..length]);
            // The program ends once it has this: its bytes are here by then, whatever ends with it.
            let _ = stream.write_all(b"!");
        }
    });
    let script = "import os, socket, sys\ns = socket.create_connection(('cut.test', int(sys.argv[1])))\ns.sendall(b'\\x00before')\ns.recv(1)\n\
        os.kill(os.getpid(), 9)\n";
    let mut persons = 0;
    Person::each(|person| {
        persons += 1;
        let ran = python(person, &server, "cut.test", script).run();
        assert_eq!(ran.code, 137, "{ran}");
    });
    assert_eq!(server.brought(persons).len(), persons);
}

#[test]
fn what_a_program_sent_before_it_ended_arrives() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let server = Server::start(|mut stream, bytes| {
        // The program and its sandbox have ended by then.
        std::thread::sleep(Duration::from_millis(500));
        let (mut count, mut part) = (0, [0; 4096]);
        while let Ok(length @ 1..) = stream.read(&mut part) {
            count += length;
        }
        bytes.extend_from_slice(count.to_string().as_bytes());
    });
    // As much as all buffers on the way take, or what is more than that if somebody reads.
    let script = "import socket, sys\ns = socket.create_connection(('up.test', int(sys.argv[1]))); s.settimeout(0.05); n = 0\n\
        try:\n while n < 64 << 20: n += s.send(b'\\x00' * 65536)\nexcept TimeoutError: pass\nprint(n)\n";
    Person::each(|person| {
        let ran = python(person, &server, "up.test", script)
            .run()
            .expect_code(0);
        let sent = ran.out().trim_end().to_owned();
        server.brought(1);
        let arrived = std::mem::take(&mut *server.seen.lock().unwrap());
        assert_eq!(arrived, [sent.into_bytes()], "{ran}");
    });
}

#[test]
fn slow_streams_arrive_piece_by_piece() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    // The next piece is sent when the program has said, by another connection, that it has the one before.
    let had = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&had);
    let server = Server::start(move |mut stream, bytes| {
        let mut part = [0; 4096];
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(length @ 1..) => bytes.extend_from_slice(&part[..length]),
                _ => return,
            }
        }
        if bytes.starts_with(b"GET /had") {
            let _ = counted.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        let before = counted.load(Ordering::Relaxed);
        for number in 0..5 {
            let begun = Instant::now();
            while counted.load(Ordering::Relaxed) < before + number && begun.elapsed() < AT_ONCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            let event = format!("data: {number}\n\n");
            let _ = stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
        }
        let _ = stream.write_all(b"0\r\n\r\n");
    });
    let script = "import sys, time, urllib.request as u\nat = 'http://slow.test:%s/' % sys.argv[1]; began = time.monotonic()\n\
        a = u.urlopen(at); n = 0\nwhile a.readline():\n a.readline(); n += 1; u.urlopen(at + 'had').read()\n\
        print(n, time.monotonic() - began < 15)\n";
    Person::each(|person| {
        let ran = python(person, &server, "slow.test", script)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "5 True\n", "{ran}");
    });
}

#[test]
fn without_its_proxy_a_sandbox_reaches_nothing_and_starts_again() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let start = format!(
            "start -q --net egress --allow {} box",
            server.rule("web.test")
        );
        let _ = person.line(&start).run().expect_code(0);
        let url = format!("http://web.test:{}/", server.port);
        let fetch = || {
            person
                .glovebox(["exec", "box", "--", "curl", "-sS", &url])
                .run()
        };
        assert_eq!(fetch().expect_code(0).out(), "hello\n");
        // The proxy is a part of the sandbox's supervisor, and is killed with it.
        let state = person.place().state();
        let supervisor = Process::mentioning(&state.to_string_lossy())
            .into_iter()
            .find(|process| process.line.contains("__supervise"))
            .unwrap();
        let id = rustix::process::Pid::from_raw(supervisor.id as i32).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        let begun = Instant::now();
        while fetch().code == 0 {
            assert!(
                begun.elapsed() < AT_ONCE,
                "the sandbox lives without its proxy"
            );
        }
        let before = server.brought(1).len();
        let _ = person.line(&start).run().expect_code(0);
        assert_eq!(fetch().expect_code(0).out(), "hello\n");
        assert_eq!(server.brought(before + 1).len(), before + 1);
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_left();
    });
}
