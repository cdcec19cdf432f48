//! Much at once and for long: no errors, and no more memory and descriptors than before.

use crate::server::{PATIENCE, Server, recording};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use testkit::{Person, await_sleepers, marker, skip, wait_until};

/// So many open files for this process, if it may.
fn may_open(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return true;
    }
    limit.maximum.is_none_or(|maximum| maximum >= count)
        && setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(count),
                maximum: limit.maximum,
            },
        )
        .is_ok()
}

/// The smaller sister of the bench `serve`: 100 sessions of 20 calls.
#[test]
fn sessions_of_many_calls_work_at_once_without_an_error() {
    const SESSIONS: usize = 20;
    let person = Person::myself();
    let calls: Vec<(&str, Value)> = (0..20)
        .map(|n| {
            if n % 2 == 0 {
                ("Bash", json!({ "command": format!("echo {n} >> log") }))
            } else {
                ("Read", json!({ "path": "log" }))
            }
        })
        .collect();
    let model = recording(&person, "calls", &calls);
    let server = Server::start(
        &person,
        &format!(
            "--model {model} --max-running {SESSIONS} --max-running-per-user {SESSIONS} --max-requests-per-second 0"
        ),
    );
    let admin = server.admin();
    let ids: Vec<String> = (0..SESSIONS)
        .map(|n| admin.submit(&json!({ "task": format!("{n}") })))
        .collect();
    std::thread::scope(|scope| {
        for id in &ids {
            let admin = admin.clone();
            scope.spawn(move || {
                let events = admin.follow_to_end(id);
                let last = events.last().unwrap();
                assert_eq!(last.data["ending"], "completed", "{last:?}");
                let ended = events.iter().filter(|event| event.kind == "call_finished");
                let errors = ended.clone().filter(|event| event.data["is_error"] == true);
                assert_eq!((ended.count(), errors.count()), (20, 0), "{events:?}");
            });
        }
    });
    let failed: Vec<String> = server
        .lines()
        .into_iter()
        .filter(|line| line.contains(" error ") || line.contains(" warn "))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_thousand_idle_readers_cost_little_and_all_hear_the_end() {
    const READERS: usize = 1000;
    if !may_open(READERS as u64 + 200) {
        skip!("needs more open files than `ulimit -n` allows");
    }
    let person = Person::myself();
    let marker = marker();
    let call = json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 });
    let model = recording(&person, "long", &[("Bash", call)]);
    let server = Server::start(
        &person,
        &format!("--model {model} --max-requests-per-second 0"),
    );
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x" }));
    await_sleepers(&marker, 1);
    let (memory, files) = (server.resident_kib(), server.descriptors());
    let request = format!(
        "GET /api/sessions/{id}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.addr,
        crate::server::TOKEN
    );
    let mut readers: Vec<TcpStream> = (0..READERS)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.addr).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            // The head, and with it a place among the readers.
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let metrics = admin.get("/metrics").text();
    assert!(
        metrics.contains(&format!("glovebox_event_readers {READERS}")),
        "{metrics}"
    );
    let each_kib = server.resident_kib().saturating_sub(memory) / READERS as u64;
    assert!(each_kib < 128, "{each_kib} KiB for each reader");
    // Nobody waits for them.
    let begun = Instant::now();
    for _ in 0..50 {
        admin.get("/api/tools").expect(200);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );

    admin
        .post(&format!("/api/sessions/{id}/cancel"), &json!({}))
        .expect(202);
    for reader in &mut readers {
        let mut text = Vec::new();
        // The connection stays open for another request; the stream's last chunk is empty.
        while !text.ends_with(b"\r\n0\r\n\r\n") {
            let mut bytes = [0; 16 << 10];
            let count = reader.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&bytes[..count]);
        }
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("event: ended"), "{text}");
    }
    drop(readers);
    assert!(
        wait_until(PATIENCE, || server.descriptors() <= files + 8),
        "{files} descriptors became {}",
        server.descriptors()
    );
}

#[test]
fn sessions_that_come_and_go_leave_neither_memory_nor_descriptors() {
    let person = Person::myself();
    let calls = [
        ("Bash", json!({ "command": "seq 20000" })),
        ("Write", json!({ "path": "file", "content": "x\n" })),
    ];
    let model = recording(&person, "soak", &calls);
    let server = Server::start(
        &person,
        &format!("--model {model} --max-requests-per-second 0"),
    );
    let admin = server.admin();
    let come_and_go = |count: usize| {
        for _ in 0..count {
            let id = admin.submit(&json!({ "task": "x" }));
            let events = admin.follow_to_end(&id);
            assert_eq!(events.last().unwrap().data["ending"], "completed");
            admin.get(&format!("/api/sessions/{id}/diff")).expect(200);
            let is_gone = || admin.delete(&format!("/api/sessions/{id}")).status == 204;
            assert!(wait_until(PATIENCE, is_gone), "{id}");
        }
    };
    come_and_go(10);
    let (memory, files) = (server.resident_kib(), server.descriptors());
    come_and_go(40);
    assert!(
        wait_until(Duration::from_secs(10), || server.descriptors()
            <= files + 4),
        "{files} descriptors became {}",
        server.descriptors()
    );
    let now = server.resident_kib();
    assert!(now < memory + (16 << 10), "{memory} KiB became {now}");
    assert_eq!(person.sandboxes().len(), 0, "{:?}", person.sandboxes());
}
