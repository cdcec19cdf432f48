//! Hostile calls in a row, over HTTP: the server answers each, the next honest call is right, and nothing is left of them.

use super::*;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs};
use testkit::Process;

/// Tools that take what they can, and one that is honest.
const HOSTILE: &str = r#"
import { tool } from "ai";
import { z } from "zod";
const any = z.object({});
export const honest = tool({
  description: "t", inputSchema: z.object({ a: z.number() }),
  execute: ({ a }) => [a + 1, typeof ({}).polluted, typeof globalThis.left, JSON.stringify([a])],
});
export const loops = tool({ description: "t", inputSchema: any, execute: () => { for (;;) {} } });
export const sorts = tool({ description: "t", inputSchema: any, execute: () => { const a = []; a.length = 2 ** 32 - 1; a.sort(); } });
export const waits = tool({ description: "t", inputSchema: any, execute: () => new Promise(() => {}) });
export const ticks = tool({ description: "t", inputSchema: any, execute: async () => { for (;;) await 0; } });
export const eats = tool({ description: "t", inputSchema: any, execute: () => { const all = []; for (;;) all.push(new Array(1e6).fill(1)); } });
export const doubles = tool({ description: "t", inputSchema: any, execute: () => { let x = "x"; for (;;) x += x; } });
export const buffers = tool({ description: "t", inputSchema: any, execute: () => Array.from({ length: 64 }, () => new Uint8Array(2 ** 26).fill(1)).length });
export const talks = tool({ description: "t", inputSchema: any, execute: () => "x".repeat(3e6) });
export const floods = tool({ description: "t", inputSchema: any, execute: () => { for (let i = 0; i < 1e5; i++) console.log("\u001b[2J", i); return 1; } });
export const recurses = tool({ description: "t", inputSchema: any, execute: () => { const f = () => f() + 1; return f(); } });
export const cycles = tool({ description: "t", inputSchema: any, execute: () => { const a = {}; a.a = a; return a; } });
export const proxies = tool({ description: "t", inputSchema: any, execute: () => new Proxy({}, { ownKeys: () => { throw null; } }) });
export const nothing = tool({ description: "t", inputSchema: any, execute: () => { throw null; } });
export const pollutes = tool({ description: "t", inputSchema: any, execute: () => {
  Object.prototype.polluted = 1; globalThis.left = 1; JSON.stringify = () => "no"; Array.prototype.push = null;
  Promise.prototype.then = null; return 1;
} });
export const times = tool({ description: "t", inputSchema: any, execute: () => { for (let i = 0; i < 1e5; i++) setTimeout(() => {}, 1e6); } });
export const reaches = tool({ description: "t", inputSchema: any, execute: async () => { await fetch("http://127.0.0.1:1/"); } });
export const imports = tool({ description: "t", inputSchema: any, execute: () => (async () => {}).constructor("return (await import('node:fs')).readdirSync('/')")() });
export const backtracks = tool({ description: "t", inputSchema: any, execute: () => /^(a+)+$/.test("a".repeat(40) + "b") });
"#;

/// Those that go on until their time is over, which is short for them.
const ENDLESS: [&str; 5] = ["loops", "sorts", "ticks", "backtracks", "waits"];
const QUICK: [&str; 14] = [
    "eats", "doubles", "buffers", "talks", "floods", "recurses", "cycles", "proxies", "nothing",
    "pollutes", "times", "reaches", "imports", "loops",
];

/// What a server holds.
#[derive(Debug)]
struct Holdings {
    processes: usize,
    threads: usize,
    descriptors: usize,
    files: BTreeSet<PathBuf>,
    resident_kib: u64,
}

impl Holdings {
    fn of(server: &Server, state: &Path) -> Self {
        let pid = server.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap()
                .trim_start_matches(':')
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .unwrap()
        };
        Self {
            processes: Process::descendants(pid).len(),
            threads: field("Threads") as usize,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            files: files_of(state),
            resident_kib: field("VmRSS"),
        }
    }
}

/// All files and directories, but for the places of sandboxes: those are as many as there ever were sandboxes at a time,
/// and the server tries one of its own now and then.
fn files_of(dir: &Path) -> BTreeSet<PathBuf> {
    let (mut found, mut open) = (BTreeSet::new(), vec![dir.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path
                .parent()
                .is_some_and(|parent| parent.ends_with("slots"))
            {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} processes, {} threads, {} descriptors, {} files, {} KiB",
            self.processes,
            self.threads,
            self.descriptors,
            self.files.len(),
            self.resident_kib
        )
    }
}

/// What honest calls took while hostile ones went on.
struct EnduranceResult {
    hostile: usize,
    honest: Vec<Duration>,
    before: Holdings,
    after: Holdings,
    taken: Duration,
}

/// Makes so many hostile calls, every tenth of which is one whose caller leaves.
fn endure(calls: usize) -> EnduranceResult {
    let person = Person::myself();
    let server = example_server(&person, "--max-requests-per-second 0");
    let admin = server.admin();
    let bundle = hash(&admin, HOSTILE);
    let call = |tool: &str, arguments: Value, timeout_ms: u32| {
        let body = json!({ "bundle": bundle, "tool": tool, "arguments": arguments, "timeout_ms": timeout_ms });
        admin.post("/api/tool", &body)
    };
    let mut honest = Vec::new();
    let mut is_right = || {
        let begun = Instant::now();
        let answer = call("honest", json!({ "a": 1 }), 10_000).expect(200).json();
        assert_eq!(
            answer["result"],
            json!([2, "undefined", "undefined", "[1]"])
        );
        honest.push(begun.elapsed());
    };
    let hostile = |number: usize| {
        if number % 10 == 9 {
            return leave(&server, &bundle);
        }
        // One of them in sixteen goes on for as long as it may.
        let (tool, ms) = match number % 16 {
            15 => (ENDLESS[number / 16 % ENDLESS.len()], 100),
            _ => (QUICK[number % QUICK.len()], 1000),
        };
        let ms = if tool == "loops" { 50 } else { ms };
        let answer = call(tool, json!({}), ms);
        assert!(
            matches!(answer.status, 200 | 413 | 422 | 504),
            "{tool}: {answer:?}"
        );
    };
    // What grows once has grown then.
    (0..40).for_each(hostile);
    is_right();
    let state = person.place().root().to_owned();
    let settled = |wanted: Option<&Holdings>| {
        let mut now = Holdings::of(&server, &state);
        wait_until(PATIENCE, || {
            now = Holdings::of(&server, &state);
            let calls = Process::descendants(server.child.id());
            let is_quiet = !calls.iter().any(|one| one.line.contains("glovebox-tool"));
            is_quiet
                && wanted.is_none_or(|wanted| {
                    now.processes <= wanted.processes
                        && now.descriptors <= wanted.descriptors
                        && now.threads <= wanted.threads
                        // The server looks after its sandbox now and then, and has a file more meanwhile.
                        && now.files.is_subset(&wanted.files)
                })
        });
        now
    };
    let before = settled(None);
    let begun = Instant::now();
    for number in 0..calls {
        hostile(number);
        if number % 20 == 0 {
            is_right();
        }
    }
    is_right();
    let taken = begun.elapsed();
    let after = settled(Some(&before));
    EnduranceResult {
        hostile: calls,
        honest,
        before,
        after,
        taken,
    }
}

/// A caller that sends a call without an end, and goes.
fn leave(server: &Server, bundle: &str) {
    let body = json!({ "bundle": bundle, "tool": "loops", "timeout_ms": 30_000 }).to_string();
    let head = format!(
        "POST /api/tool HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        server.addr,
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(&server.addr).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(5));
}

fn check(endured: &EnduranceResult) {
    let EnduranceResult { before, after, .. } = endured;
    assert!(
        after.processes <= before.processes
            && after.descriptors <= before.descriptors
            && after.threads <= before.threads,
        "{before} -> {after}"
    );
    let left: Vec<_> = after.files.difference(&before.files).collect();
    assert!(left.is_empty(), "{left:?}");
    // Allocators keep some of what was freed.
    assert!(
        after.resident_kib <= before.resident_kib + 32 * 1024,
        "{before} -> {after}"
    );
}

#[test]
fn hostile_calls_in_a_row_leave_the_server_as_it_was() {
    check(&endure(600));
}

/// By hand, with the program that is shipped:
/// `GLOVEBOX_TEST_BIN=... cargo nextest run --workspace --test serve --run-ignored only --no-capture ten_thousand`.
#[test]
#[ignore = "takes many minutes; run by hand"]
fn ten_thousand_hostile_calls_leave_the_server_as_it_was() {
    let mut endured = endure(10_000);
    endured.honest.sort_unstable();
    let at = |part: usize| endured.honest[(endured.honest.len() - 1) * part / 100];
    println!(
        "{} hostile calls in {:?}; {} honest ones in between: p50 {:?}, p95 {:?}, longest {:?}\nbefore {}\nafter  {}",
        endured.hostile,
        endured.taken,
        endured.honest.len(),
        at(50),
        at(95),
        at(100),
        endured.before,
        endured.after
    );
    check(&endured);
    assert!(at(50) < Duration::from_millis(50), "{:?}", at(50));
}
