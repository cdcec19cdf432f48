//! P1 to P5: how long it takes, how much of it at once, and what is left behind.

use super::caller;
use crate::server::{Server, recording};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::{Person, wait_until};

/// Calls of one session in a comparison, and how often it is repeated.
const CALLS: usize = 60;
const ROUNDS: usize = 5;

#[test]
fn p1_a_sandbox_is_there_within_three_seconds() {
    let person = Person::myself();
    let server = Server::start(&person, "--log-format json");
    let line = server.told("serving: a sandbox was started");
    let line: Value = serde_json::from_str(&line).unwrap();
    let probe_ms = line["probe_ms"].as_u64().unwrap();
    assert!(probe_ms < 3000, "the server's own took {probe_ms} ms");
    let begun = Instant::now();
    let call = caller(&server);
    assert_eq!(
        call("Bash", json!({ "command": "true" }))["is_error"],
        false
    );
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
}

/// How long all calls of `tool` in one session took together, by its log.
fn calls_ms(server: &Server, tool: &str) -> u64 {
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "x" }));
    let events = admin.follow_to_end(&id);
    let begun = events.iter().filter(|event| event.kind == "call_started");
    let ended = events.iter().filter(|event| event.kind == "call_finished");
    let at = |data: &Value| data["at_unix_ms"].as_u64().unwrap();
    let took: Vec<u64> = begun
        .zip(ended)
        .inspect(|(_, end)| assert_eq!(end.data["is_error"], false, "{end:?}"))
        .filter(|(begin, _)| begin.data["tool"] == tool)
        .map(|(begin, end)| at(&end.data) - at(&begin.data))
        .collect();
    assert_eq!(took.len(), CALLS, "{events:?}");
    took.iter().sum()
}

/// The same session with and without a sandbox, in turns: the quickest with one takes less than twice as long as the
/// quickest without. What else the machine does slows some down and none up.
fn compare(person: &Person, tool: &str, arguments: impl Fn(usize) -> Value) {
    let calls: Vec<(&str, Value)> = (0..CALLS).map(|n| (tool, arguments(n))).collect();
    let model = recording(person, "compare", &calls);
    let start = |args: &str| Server::start(person, &format!("{args} --project . --model {model}"));
    let (inside, local) = (start(""), start("--unsafe-local"));
    let rounds = (0..ROUNDS).map(|_| (calls_ms(&inside, tool), calls_ms(&local, tool)));
    let (inside, local): (Vec<u64>, Vec<u64>) = rounds.unzip();
    let quickest = |all: &[u64]| all.iter().copied().min().unwrap();
    assert!(
        quickest(&inside) < 2 * quickest(&local).max(1),
        "{CALLS} calls of {tool} took {inside:?} ms in a sandbox, and {local:?} ms without"
    );
}

#[test]
fn p2_a_file_is_read_in_less_than_twice_the_local_time() {
    let person = Person::myself();
    person.write("project/read.txt", "a line of the file\n".repeat(5000));
    // Each a little different: an agent that only repeats itself is stopped.
    compare(
        &person,
        "Read",
        |n| json!({ "path": "read.txt", "offset": n }),
    );
}

#[test]
fn p3_a_command_takes_less_than_twice_the_local_time() {
    let person = Person::myself();
    // As much work as the smallest real command has: a shell that starts a few programs.
    let work = "for n in 1 2 3 4 5; do ls / | wc -l; done";
    compare(
        &person,
        "Bash",
        |n| json!({ "command": format!("echo {n}; {work}") }),
    );
}

#[test]
fn p4_sandboxes_that_come_and_go_leave_neither_memory_nor_descriptors() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let admin = server.admin();
    let come_and_go = |count: usize| {
        for _ in 0..count {
            let made = admin.post("/api/sandboxes", &json!({})).expect(201).json();
            let path = format!("/api/sandboxes/{}", made["id"].as_str().unwrap());
            let body = json!({ "tool": "Bash", "arguments": { "command": "echo on" } });
            admin.post(&format!("{path}/call"), &body).expect(200);
            admin.delete(&path).expect(204);
        }
    };
    come_and_go(8);
    let (before, before_kib) = (server.descriptors(), server.resident_kib());
    come_and_go(24);
    // A connection of the last request may still be closing.
    assert!(
        wait_until(Duration::from_secs(10), || server.descriptors()
            <= before + 4),
        "{before} descriptors became {}",
        server.descriptors()
    );
    let now_kib = server.resident_kib();
    assert!(
        now_kib < before_kib + (24 << 10),
        "{before_kib} KiB became {now_kib}"
    );
}

/// More than ten: 24 sessions at once, each with calls of its own.
#[test]
fn p5_many_sessions_work_at_once_each_in_its_own_sandbox() {
    let person = Person::myself();
    let calls: Vec<(&str, Value)> = (0..5)
        .map(|n| {
            (
                "Bash",
                json!({ "command": format!("echo {n} >> log; cat log | wc -l") }),
            )
        })
        .collect();
    let model = recording(&person, "many", &calls);
    let server = Server::start(
        &person,
        &format!("--model {model} --max-running 12 --max-running-per-user 12"),
    );
    let admin = server.admin();
    let ids: Vec<String> = (0..24)
        .map(|n| admin.submit(&json!({ "task": format!("{n}") })))
        .collect();
    std::thread::scope(|scope| {
        for id in &ids {
            let admin = admin.clone();
            scope.spawn(move || {
                let events = admin.follow_to_end(id);
                assert_eq!(
                    events.last().unwrap().data["ending"],
                    "completed",
                    "{:?}",
                    events.last()
                );
                // Nobody else wrote into its files.
                let log = admin.get(&format!("/api/sessions/{id}/files/log")).text();
                assert_eq!(log, "0\n1\n2\n3\n4\n");
            });
        }
    });
    let text = admin.get("/metrics").text();
    let line =
        r#"glovebox_tool_executions_total{placement="sandbox",tool="Bash",outcome="ok"} 120"#;
    assert!(text.contains(line), "{text}");
    assert!(wait_until(Duration::from_secs(10), || {
        admin
            .get("/metrics")
            .text()
            .contains("glovebox_sessions{state=\"running\"} 0")
    }));
}
