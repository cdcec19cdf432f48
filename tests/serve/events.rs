//! Streams of events: cut off anywhere, they go on without a gap and without a repetition.

use crate::server::{Server, read_all, recording};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use testkit::{Person, wait_until};

#[test]
fn a_reader_that_is_cut_off_anywhere_misses_nothing_and_sees_nothing_twice() {
    let person = Person::myself();
    let model = recording(
        &person,
        "steps",
        &[
            (
                "Bash",
                json!({ "command": "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.2; done" }),
            ),
            ("Bash", json!({ "command": "echo again" })),
        ],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "work" }));
    // While it works, a connection for each event.
    let mut seen = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let events = admin.follow(&id, after.as_deref(), |_| true);
        let Some(event) = events.into_iter().next() else {
            break;
        };
        after = Some(event.id.clone());
        seen.push(event);
    }
    let whole = admin.follow_to_end(&id);
    let kept: Vec<_> = seen
        .iter()
        .filter(|event| !event.id.contains('.'))
        .cloned()
        .collect();
    assert_eq!(kept, whole, "what is kept comes once, in order");
    let mut ids: Vec<&str> = seen.iter().map(|event| event.id.as_str()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id came twice");
    assert_eq!(whole.last().unwrap().kind, "ended");
    // From every place, the rest and nothing else.
    for (at, event) in whole.iter().enumerate() {
        assert_eq!(
            admin.follow(&id, Some(&event.id), |_| false),
            whole[at + 1..]
        );
    }
    let path = format!("/api/sessions/{id}/events");
    let last = whole.last().unwrap().id.clone();
    admin
        .ask("GET", &path, &[("last-event-id", &last)], b"")
        .expect(204);
    admin
        .ask("GET", &path, &[("last-event-id", "yesterday")], b"")
        .expect(400);
}

/// nginx collects an answer until its buffer is full, unless the answer says otherwise.
#[test]
fn event_streams_ask_proxies_to_pass_them_on_at_once() {
    let person = Person::myself();
    let model = recording(&person, "steps", &[("Bash", json!({ "command": "true" }))]);
    let server = Server::start(&person, &format!("--model {model}"));
    let id = server.admin().submit(&json!({ "task": "work" }));
    let head = |path: &str| {
        let mut stream = TcpStream::connect(&server.addr).unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            server.addr,
            crate::server::TOKEN
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap().to_ascii_lowercase()
    };
    let stream = head(&format!("/api/sessions/{id}/events"));
    assert!(stream.contains("x-accel-buffering: no\r\n"), "{stream}");
    let control = "cache-control: no-store, no-transform\r\n";
    assert!(stream.contains(control), "{stream}");
    let other = head("/api/sessions");
    assert!(!other.contains("x-accel-buffering"), "{other}");
}

#[test]
fn words_on_their_way_come_before_the_whole() {
    let person = Person::myself();
    let model = recording(
        &person,
        "slow",
        &[(
            "Bash",
            json!({ "command": "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.3; done" }),
        )],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "work" }));
    let events = admin.follow_to_end(&id);
    let output = events.iter().position(|event| event.kind == "tool_output");
    let finished = events
        .iter()
        .position(|event| event.kind == "call_finished");
    assert!(
        output.is_some() && output < finished,
        "no live output: {events:?}"
    );
}

/// A reader that reads nothing keeps nobody from working and costs nothing; others read on.
#[test]
fn a_reader_that_does_not_read_stops_nobody() {
    let person = Person::myself();
    let model = recording(
        &person,
        "flood",
        &[
            (
                "Bash",
                json!({ "command": "i=0; while [ $i -lt 200 ]; do head -c 20000 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done" }),
            ),
            ("Bash", json!({ "command": "echo through" })),
        ],
    );
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "flood" }));
    let mut stuck: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.addr).unwrap();
            let head = format!(
                "GET /api/sessions/{id}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
                server.addr,
                crate::server::TOKEN
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let events = admin.follow_to_end(&id);
    assert_eq!(events.last().unwrap().data["ending"], "completed");
    let readers = || {
        let text = admin.get("/metrics").expect(200).text();
        let line = text
            .lines()
            .find(|line| line.starts_with("glovebox_event_readers "));
        line.and_then(|line| line.split(' ').nth(1)?.parse::<u32>().ok())
    };
    assert!(readers().is_some());
    // What a stuck reader gets in the end is whole events.
    let mut first = stuck.remove(0);
    first
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut begin = vec![0; 64];
    first.read_exact(&mut begin).unwrap();
    assert!(begin.starts_with(b"HTTP/1.1 200"));
    drop(stuck);
    let rest = read_all(first);
    assert!(String::from_utf8_lossy(&rest).contains("event: ended"));
    assert!(
        wait_until(Duration::from_secs(30), || readers() == Some(0)),
        "{:?}",
        readers()
    );
}
