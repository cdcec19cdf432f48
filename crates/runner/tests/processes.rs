//! The process of a call seen from outside: by what it is held while it runs a stranger's code, and what becomes of a call
//! whose process does not keep to the form of its messages, ends too soon, lingers, or loses its sandbox.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bench;

use bench::Bench;
use glovebox_js::tool_call::CallLimits;
use glovebox_runner::FailureKind::{Killed, Memory, Timeout, Unavailable};
use glovebox_runner::{CallFailure, CallReport, Engine};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Long, so that a call that ends before has not been waited for.
const WALL_MS: u64 = 25_000;
/// Most of which is the start of Node on a busy machine.
const SOON: Duration = Duration::from_secs(10);

impl Bench {
    fn run(&self, engine: Engine, body: &str, wall_ms: u64) -> Result<CallReport, CallFailure> {
        let code = format!("export default async (input) => {{ {body} }};");
        self.call_with(&code, &json!({}), |request| {
            request.engine = engine;
            request.limits.wall_ms = wall_ms;
        })
    }

    fn honest(&self) {
        let report = self.run(Engine::Quickjs, "return 1;", 5000).unwrap();
        assert_eq!(report.value, json!(1));
    }

    /// Calls a tool that loops, and looks at its process meanwhile.
    fn beside<T>(&self, look: impl FnOnce(PathBuf) -> T) -> (T, Result<CallReport, CallFailure>) {
        std::thread::scope(|scope| {
            let called = scope.spawn(|| self.run(Engine::Quickjs, "for (;;);", 3000));
            let begun = Instant::now();
            let process = loop {
                // It is confined before it runs the tool's code.
                let found = self.pids("glovebox-tool").into_iter().find(|dir| {
                    let limits = limits(dir).unwrap_or_default();
                    limits.get("Max file size").is_some_and(|max| max == "0")
                });
                if let Some(found) = found {
                    break found;
                }
                assert!(begun.elapsed() < SOON, "there is no process of the tool");
                std::thread::sleep(Duration::from_millis(5));
            };
            (look(process), called.join().unwrap())
        })
    }
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Hard limits of a process, by their names.
fn limits(dir: &std::path::Path) -> Option<std::collections::HashMap<String, String>> {
    let text = fs::read_to_string(dir.join("limits")).ok()?;
    let limits = text.lines().skip(1).map(|line| {
        let (name, rest) = line.split_at(26);
        let hard = rest.split_whitespace().nth(1).unwrap_or_default();
        (name.trim().to_owned(), hard.to_owned())
    });
    Some(limits.collect())
}

/// What the kernel holds the process of a tool by, read from outside while it runs.
#[test]
fn the_process_of_a_tool_is_held_by_the_kernel() {
    let bench = Bench::new();
    bench.honest();
    let (seen, outcome) = bench.beside(|dir| {
        let status = fs::read_to_string(dir.join("status")).unwrap();
        let network = fs::read_to_string(dir.join("net/dev")).unwrap_or_default();
        (limits(&dir).unwrap(), status, network)
    });
    assert_eq!(outcome.unwrap_err().kind, Timeout);
    let (limits, status, network) = seen;
    let memory = (192 << 20) + CallLimits::default().memory_bytes;
    for (name, expected) in [
        ("Max address space", memory.to_string()),
        (
            "Max cpu time",
            (CallLimits::default().cpu_ms / 1000 + 1).to_string(),
        ),
        ("Max file size", "0".to_owned()),
        ("Max open files", "3".to_owned()),
        ("Max processes", "0".to_owned()),
        ("Max core file size", "0".to_owned()),
    ] {
        assert_eq!(limits[name], expected, "{name}: {limits:?}");
    }
    for (name, expected) in [
        ("NoNewPrivs:", 1),
        ("Seccomp:", 2),
        ("Threads:", 1),
        ("CapPrm:", 0),
        ("CapEff:", 0),
        ("CapBnd:", 0),
    ] {
        assert_eq!(field(&status, name), Some(expected), "{name} {status}");
    }
    // Its own process namespace and one within it: the host's number, and that inside.
    let numbers = status.lines().find(|line| line.starts_with("NSpid:"));
    assert!(
        numbers.unwrap().split_whitespace().count() > 2,
        "{numbers:?}"
    );
    let interfaces: Vec<&str> = network
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next())
        .map(str::trim)
        .collect();
    assert!(
        interfaces.iter().all(|name| *name == "lo"),
        "{interfaces:?}"
    );
}

/// Memory that the engine of JavaScript does not count is the kernel's to bound.
#[test]
fn memory_outside_the_heap_is_bounded_too() {
    let bench = Bench::new();
    for body in [
        "const s = '\\u00e9'.repeat(2e7); const all = []; for (;;) all.push(new TextEncoder().encode(s));",
        "return new URL('https://a.example/' + '\\u00e9'.repeat(2e7)).href.length;",
        "const s = '\\u{1f600}'.repeat(8e6); return Buffer.from(s + s, 'utf16le').toString('hex').length;",
    ] {
        let failure = bench.run(Engine::Quickjs, body, 20_000).unwrap_err();
        assert_eq!(failure.kind, Memory, "{body}: {failure:?}");
        bench.honest();
    }
}

/// A process that has been taken over says what it likes. It is ended at once, long before its time is over.
#[test]
fn a_process_that_breaks_the_rules_is_ended_at_once() {
    let bench = Bench::new();
    let say = "const { writeSync } = require('fs'); const say = (m) => { const b = Buffer.from(JSON.stringify(m)); \
        const h = Buffer.alloc(4); h.writeUInt32LE(b.length); writeSync(1, h); writeSync(1, b); };";
    for (body, told) in [
        (
            "writeSync(1, Buffer.from([255, 255, 255, 255, 1]));",
            "announced an answer of 4294967295 bytes",
        ),
        (
            "writeSync(1, Buffer.from([255, 255, 255, 127, 1]));",
            "announced an answer",
        ),
        (
            "writeSync(1, Buffer.from([2, 0, 0, 0, 123, 125]));",
            "no answer",
        ),
        (
            "say({ is: 'value', json: '1 2', warnings: [] });",
            "no JSON",
        ),
        (
            "say({ is: 'value', json: '['.repeat(5000) + ']'.repeat(5000), warnings: [] });",
            "no JSON",
        ),
        (
            "say({ is: 'value', json: '\"' + 'x'.repeat(1 << 20) + '\"', warnings: [] });",
            "announced an answer",
        ),
        (
            "for (let i = 0; i < 1e5; i++) say({ is: 'log', level: 'info', text: 'x'.repeat(1000) });",
            "logs more",
        ),
        (
            "say({ is: 'fetch', id: 1, method: 'GET', url: 'http://a.example/', headers: [], body: '', redirect: 'follow' });",
            "may not make",
        ),
        ("say({ is: 'fetch_abort', id: 1 });", "had not made"),
    ] {
        let begun = Instant::now();
        let body = format!("{say} {body} for (;;);");
        let failure = bench.run(Engine::Node, &body, WALL_MS).unwrap_err();
        assert_eq!(failure.kind, Killed, "{body}: {failure:?}");
        assert!(failure.message.contains(told), "{body}: {failure:?}");
        assert!(begun.elapsed() < SOON, "{body}: {:?}", begun.elapsed());
    }
    assert_eq!(bench.processes("max-old-space-size"), 0);
}

/// An answer counts once it is whole, whatever its process does then; a part of one is none.
#[test]
fn an_answer_is_whole_or_none() {
    let bench = Bench::new();
    let frame = "const { writeSync, closeSync } = require('fs'); const b = Buffer.from('{\"is\":\"value\",\"json\":\"7\",\"warnings\":[]}'); \
        const h = Buffer.alloc(4); h.writeUInt32LE(b.length); const all = Buffer.concat([h, b]);";
    let run = |body: &str, wall_ms: u64| {
        let begun = Instant::now();
        let outcome = bench.run(Engine::Node, &format!("{frame} {body}"), wall_ms);
        (outcome, begun.elapsed())
    };
    let (outcome, taken) = run("writeSync(1, all); for (;;);", WALL_MS);
    assert_eq!(outcome.unwrap().value, json!(7));
    assert!(taken < SOON, "{taken:?}");
    for end in [
        "process.kill(process.pid, 'SIGSEGV'); for (;;);",
        "process.reallyExit(0);",
    ] {
        let (outcome, _) = run(&format!("writeSync(1, all.subarray(0, 9)); {end}"), WALL_MS);
        let failure = outcome.unwrap_err();
        assert_eq!(failure.kind, Killed, "{end}: {failure:?}");
        assert!(
            failure.message.ends_with("in the middle of a message"),
            "{end}: {failure:?}"
        );
    }
    let (outcome, _) = run("writeSync(1, all.subarray(0, 9)); for (;;);", 1500);
    assert_eq!(outcome.unwrap_err().kind, Timeout);
    let (outcome, _) = run("closeSync(1); closeSync(0); for (;;);", 1500);
    assert_eq!(outcome.unwrap_err().kind, Timeout);
    assert_eq!(bench.processes("max-old-space-size"), 0);
}

/// A call whose sandbox dies says so, and the next one has another sandbox.
#[test]
fn a_sandbox_that_dies_takes_its_calls_with_it_and_no_others() {
    let bench = Bench::new();
    bench.honest();
    let begun = Instant::now();
    let ((), outcome) = bench.beside(|dir| {
        let status = |dir: &std::path::Path| fs::read_to_string(dir.join("status")).unwrap();
        let mut dir = dir;
        // Up to the first process of its namespace.
        loop {
            let text = status(&dir);
            let numbers = text
                .lines()
                .find(|line| line.starts_with("NSpid:"))
                .unwrap();
            if numbers.split_whitespace().next_back() == Some("1") {
                break;
            }
            let parent = field(&text, "PPid:").unwrap();
            dir = PathBuf::from(format!("/proc/{parent}"));
        }
        let first = dir.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let first = rustix::process::Pid::from_raw(first).unwrap();
        rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
    });
    let failure = outcome.unwrap_err();
    assert_eq!(failure.kind, Unavailable, "{failure:?}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    bench.honest();
    assert_eq!(bench.processes("glovebox-tool"), 0);
}

/// Nothing of a call is there for the next one, of the same tenant in the same sandbox.
#[test]
fn nothing_of_a_call_is_left_for_the_next() {
    let bench = Bench::new();
    let seen = "[globalThis.left, Object.prototype.left, Symbol.for('left').description === 'left' && Symbol.keyFor(Symbol.for('left')), \
        Math.left, RegExp.$1 ?? '', require('util').left, require('crypto').left, console.left, Array.prototype.left]";
    let first: Value = json!([null, null, "left", null, "", null, null, null, null]);
    for _ in 0..3 {
        let body = format!(
            "const before = {seen}; globalThis.left = Object.prototype.left = Math.left = 1; /(left)/.test('left'); \
             require('util').left = require('crypto').left = console.left = 1; return before;"
        );
        let report = bench.run(Engine::Quickjs, &body, 5000).unwrap();
        assert_eq!(report.value, first);
    }
}
