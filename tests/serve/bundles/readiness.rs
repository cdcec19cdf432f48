//! Whether tools can be called: what a server says of itself, what it says where it cannot, and what is left of its calls
//! when it dies.

use super::*;
use std::io::Write as _;
use std::time::{Duration, Instant};
use testkit::Process;

/// Tools that take their time, or end in ways that are not the tool's own.
const SLOW: &str = r#"
import { tool } from "ai";
import { z } from "zod";
const any = z.object({});
export const waits = tool({ description: "t", inputSchema: any, execute: () => new Promise((done) => setTimeout(done, 25000, 1)) });
export const loops = tool({ description: "t", inputSchema: any, execute: () => { for (;;) {} } });
export const cycles = tool({ description: "t", inputSchema: any, execute: () => { const a = {}; a.a = a; return a; } });
export const crashes = tool({ description: "t", inputSchema: any, execute: () => {
  if (typeof process === "undefined") throw new Error("no process");
  process.kill(process.pid, "SIGSEGV");
  return new Promise(() => {});
} });
export const honest = tool({ description: "t", inputSchema: any, execute: () => 1 });
"#;

fn call(client: &Client, bundle: &str, tool: &str, engine: &str) -> Answer {
    let body = json!({ "bundle": bundle, "tool": tool, "arguments": {}, "engine": engine });
    client.post("/api/tool", &body)
}

/// R138: the failures that are not the code's own have their status and word, too.
#[test]
fn failures_of_what_is_around_a_tool_have_their_status_and_word() {
    let person = Person::myself();
    let server = example_server(&person, "--bundle-engine node --max-requests-per-second 0");
    let admin = server.admin();
    let bundle = hash(&admin, SLOW);
    let cycles = call(&admin, &bundle, "cycles", "quickjs").expect(422);
    assert_eq!(cycles.code(), "not_json");
    let crashed = call(&admin, &bundle, "crashes", "node").expect(422);
    assert_eq!(crashed.code(), "killed");
    // More calls at a time than one user may have.
    let health = admin.get("/api/tool").expect(200).json();
    let most = health["limits"]["calls_per_user"].as_u64().unwrap();
    let body = json!({ "bundle": bundle, "tool": "waits", "timeout_ms": 30_000 }).to_string();
    let head = format!(
        "POST /api/tool HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        server.addr,
        body.len()
    );
    let open: Vec<_> = (0..most)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(&server.addr).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert!(wait_until(PATIENCE, || {
        let family = Process::descendants(server.child.id());
        let calls = family
            .iter()
            .filter(|one| one.line.contains("glovebox-tool"));
        calls.count() as u64 == most
    }));
    let busy = call(&admin, &bundle, "honest", "quickjs").expect(429);
    assert_eq!(busy.code(), "busy");
    assert!(
        busy.json()["error"]["remedy"].is_string(),
        "{}",
        busy.text()
    );
    // Callers that leave make room.
    drop(open);
    assert!(wait_until(PATIENCE, || {
        call(&admin, &bundle, "honest", "quickjs").status == 200
    }));
}

/// A server that can have no sandbox says so where it is asked, and to callers; it is ready again once it can.
#[test]
fn a_server_without_room_for_a_sandbox_is_not_ready_and_says_why() {
    let person = Person::myself();
    let model = recording(&person, "model", &[]);
    let server = Server::start_with(
        &person,
        &format!("--model {model} --allow-model gateway/gpt-4={model}"),
        &[("GLOVEBOX_MAX_SANDBOXES", "1".to_owned())],
    );
    let admin = server.admin();
    // The one place there is goes to another sandbox of the same user.
    assert!(wait_until(PATIENCE, || {
        person
            .line("start other --no-toolchains")
            .env("GLOVEBOX_MAX_SANDBOXES", "1")
            .run()
            .code
            == 0
    }));
    let bundle = hash(&admin, SLOW);
    let health = admin.get("/api/tool").expect(503).json();
    assert_eq!(
        (&health["is_ready"], &health["engines"]),
        (&json!(false), &json!([]))
    );
    assert_eq!(health["failures"][0]["engine"], "quickjs");
    assert_eq!(health["failures"][0]["code"], "unavailable");
    assert!(
        !health["failures"][0]["message"]
            .as_str()
            .unwrap()
            .is_empty(),
        "{health}"
    );
    // What does not need a sandbox is told all the same.
    assert_eq!(health["limits"]["max_timeout_ms"], json!(30_000));
    let refused = call(&admin, &bundle, "honest", "quickjs").expect(503);
    assert_eq!(refused.code(), "unavailable");
    person.line("stop other").run().expect_code(0);
    person.line("rm other").run().expect_code(0);
    assert!(wait_until(PATIENCE, || admin.get("/api/tool").status == 200));
    call(&admin, &bundle, "honest", "quickjs").expect(200);
    assert_eq!(
        admin.get("/api/tool").expect(200).json()["failures"],
        json!([])
    );
}

/// A server that is killed takes the processes of its calls with it.
#[test]
fn a_server_that_is_killed_leaves_no_call_behind() {
    let person = Person::myself();
    let mut server = example_server(&person, "");
    let admin = server.admin();
    let bundle = hash(&admin, SLOW);
    call(&admin, &bundle, "honest", "quickjs").expect(200);
    let body = json!({ "bundle": bundle, "tool": "loops", "timeout_ms": 30_000 });
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (admin, body) = (admin.clone(), body.clone());
            std::thread::spawn(move || admin.attempt("/api/tool", &body))
        })
        .collect();
    let mut family = Vec::new();
    assert!(wait_until(PATIENCE, || {
        family = Process::descendants(server.child.id());
        let calls = family
            .iter()
            .filter(|one| one.line.contains("glovebox-tool"));
        calls.count() >= 4
    }));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let begun = Instant::now();
    let is_left = |one: &Process| {
        Process::find(one.id).is_some_and(|now| now.started == one.started && now.state != 'Z')
    };
    assert!(
        wait_until(PATIENCE, || !family.iter().any(is_left)),
        "left: {:?}",
        family.iter().filter(|one| is_left(one)).collect::<Vec<_>>()
    );
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    for caller in callers {
        let _ = caller.join();
    }
}
