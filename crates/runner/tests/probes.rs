//! Attempts to get out of a tool's process, to take more than it may, and to lie to who called it. Each is tried with a
//! real sandbox and has one expected outcome; after each the next call must be right, and no process, packet or file
//! may be left.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bench;

use bench::Bench;
use glovebox_runner::{CallFailure, CallLimits, CallReport, FailureKind, ToolRequest};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;

/// What may come of a probe.
#[derive(Debug, Clone)]
enum Expectation {
    /// This value.
    Is(Value),
    /// Any value or an error of the tool's own: what it tried has led nowhere.
    Nowhere,
    /// One of these kinds.
    Ends(&'static [FailureKind]),
}

use Expectation::{Ends, Is, Nowhere};
use FailureKind::{Killed, Memory, NotJson, OutputLimit, Timeout, ToolError};

/// Name, body of the tool, and what comes of it.
fn probes() -> Vec<(&'static str, &'static str, Expectation)> {
    const LATE: Expectation = Ends(&[Timeout]);
    const FULL: Expectation = Ends(&[Memory]);
    const FULL_OR_LATE: Expectation = Ends(&[Memory, Timeout, ToolError]);
    const THROWN: Expectation = Ends(&[ToolError]);
    vec![
        (
            "constructor chain",
            "return typeof (await (async () => this?.constructor ?? globalThis.constructor)()).constructor('return typeof process')();",
            Is(json!("string")),
        ),
        (
            "Function constructor",
            "return Function('return typeof process + typeof Deno + typeof std')();",
            Is(json!("undefinedundefinedundefined")),
        ),
        (
            "async and generator constructors",
            "return [await (async () => {}).constructor('return typeof process')(), (function* () {}).constructor('return typeof process')().next().value];",
            Is(json!(["undefined", "undefined"])),
        ),
        (
            "import of files",
            "const bad = []; for (const name of ['node:fs', 'fs', 'file:///etc/passwd', '/etc/passwd', 'data:text/javascript,1', './tool.js', 'os', 'std', 'child_process', 'worker_threads']) { try { await import(name); bad.push(name); } catch (e) { if (e.code !== 'E_MODULE') bad.push(`${name}: ${e}`); } } return bad;",
            Is(json!([])),
        ),
        (
            "require and its properties",
            "const out = [typeof require.cache, typeof require.main, typeof module, typeof exports]; for (const n of ['module', 'vm', 'fs', '__proto__', 'constructor', 'toString']) { try { require(n); out.push(n); } catch {} } return out;",
            Is(json!(["undefined", "undefined", "undefined", "undefined"])),
        ),
        (
            "process bindings",
            "return [typeof process, typeof global, typeof std, typeof os, typeof bjson, typeof scriptArgs];",
            Is(json!([
                "undefined",
                "undefined",
                "undefined",
                "undefined",
                "undefined",
                "undefined"
            ])),
        ),
        (
            "prepareStackTrace",
            "const seen = []; Error.prepareStackTrace = (e, sites) => { for (const s of sites ?? []) { const f = s.getFunction?.(); seen.push(typeof f === 'function' && !String(s.getFileName()).includes('tool.js')); } return 'x'; }; try { console.log(new Error('a').stack); new URL('::'); } catch (e) { void e.stack; } return seen.some(Boolean);",
            Is(json!(false)),
        ),
        (
            "host functions",
            "const f = console.log; return [typeof f.constructor('return typeof process')(), String(setTimeout).length > 0, f.caller === undefined || f.caller === null].length;",
            Nowhere,
        ),
        (
            "patched built-ins",
            "JSON.stringify = () => 'null'; Array.prototype.push = () => 0; Promise.prototype.then = () => { throw 1; }; Object.prototype.toJSON = undefined; Array.prototype[Symbol.iterator] = () => { throw 2; }; Reflect.ownKeys = () => []; String.prototype.toWellFormed = () => 'x'; Number.prototype.toString = () => 'y'; Map.prototype.get = () => 1; Object.defineProperty(Array.prototype, '0', { set() { throw 3; } }); return { a: 'right', n: 5 };",
            Is(json!({ "a": "right", "n": 5 })),
        ),
        (
            "polluted prototype",
            "Object.prototype.polluted = 1; globalThis.left = 1; Symbol.for('left').x; return 1;",
            Is(json!(1)),
        ),
        (
            "proxy as a result",
            "return new Proxy({}, { ownKeys() { for (;;); } });",
            LATE,
        ),
        (
            "proxy with many keys",
            "return new Proxy({}, { ownKeys: () => Array.from({ length: 3e7 }, (_, i) => `k${i}`) });",
            FULL_OR_LATE,
        ),
        (
            "toJSON without end",
            "const f = () => ({ toJSON: f, get a() { return f(); } }); return f();",
            Ends(&[NotJson, ToolError, Timeout]),
        ),
        (
            "result that refers to itself",
            "const a = []; a.push(a); return a;",
            Ends(&[NotJson]),
        ),
        (
            "huge text",
            "return 'x'.repeat(2e7);",
            Ends(&[OutputLimit, Memory]),
        ),
        (
            "many keys",
            "const o = {}; for (let i = 0; i < 3e5; i++) o[`k${i}`] = i; return o;",
            Ends(&[OutputLimit, Memory]),
        ),
        (
            "deep list",
            "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; return a;",
            Ends(&[NotJson]),
        ),
        ("throws null", "throw null;", THROWN),
        (
            "throws a proxy",
            "throw new Proxy(new Error('x'), { get() { throw new Error('y'); } });",
            THROWN,
        ),
        (
            "throws with evil getters",
            "const e = new Error('x'); Object.defineProperty(e, 'message', { get() { for (;;); } }); throw e;",
            LATE,
        ),
        (
            "cause in a circle",
            "const e = new Error('x'); e.cause = e; throw e;",
            THROWN,
        ),
        ("thenable that never calls", "return { then() {} };", THROWN),
        (
            "thenable that calls twice",
            "return { then(done) { done(1); done(2); } };",
            Is(json!(1)),
        ),
        (
            "thenable with a getter that throws",
            "return { get then() { throw new Error('x'); } };",
            THROWN,
        ),
        (
            "species of Promise",
            "class P extends Promise { static get [Symbol.species]() { return function (f) { f(() => {}, () => {}); }; } } await P.resolve(1).then(() => 2).catch?.(() => 3); return 1;",
            Nowhere,
        ),
        (
            "species of Array",
            "const a = [1, 2]; a.constructor = { [Symbol.species]: function () { return a; } }; return a.map((x) => x * 2);",
            Nowhere,
        ),
        (
            "rejection that nobody handles",
            "Promise.reject(new Error('x')); return 1;",
            Is(json!(1)),
        ),
        ("loop", "for (;;);", LATE),
        (
            "loop in finally",
            "try { for (;;); } finally { for (;;); }",
            LATE,
        ),
        ("loop of microtasks", "for (;;) await 0;", LATE),
        (
            "microtasks that queue themselves",
            "const f = () => Promise.resolve().then(f); f(); await new Promise(() => {});",
            // Each waits for the next: memory may be at an end first, and then nothing is left to run.
            FULL_OR_LATE,
        ),
        (
            "flood of timers",
            "for (let i = 0; i < 1e6; i++) setTimeout(() => {}, 0);",
            THROWN,
        ),
        (
            "interval for ever",
            "setInterval(() => {}, 1); await new Promise(() => {});",
            LATE,
        ),
        (
            "regular expression",
            "return /^(a+)+$/.test('a'.repeat(40) + 'b');",
            LATE,
        ),
        (
            "another regular expression",
            "return /(x+x+)+y/v.test('x'.repeat(60));",
            FULL_OR_LATE,
        ),
        (
            "native sort",
            "const a = []; a.length = 2 ** 32 - 1; a.sort();",
            LATE,
        ),
        (
            "native reverse",
            "const a = { length: 2 ** 53 - 1 }; Array.prototype.reverse.call(a);",
            LATE,
        ),
        (
            "native copyWithin",
            "const a = { length: 2 ** 53 - 1 }; Array.prototype.copyWithin.call(a, 0, 1);",
            LATE,
        ),
        (
            "large power",
            "return String(2n ** (2n ** 30n)).length;",
            FULL_OR_LATE,
        ),
        (
            "BigInt as text",
            "let a = 3n; for (let i = 0; i < 25; i++) a *= a; return String(a).length;",
            FULL_OR_LATE,
        ),
        (
            "doubled text",
            "let s = 'x'; for (;;) s += s;",
            Ends(&[Memory, ToolError]),
        ),
        (
            "repeated text",
            "return 'x'.repeat(2 ** 29).length;",
            Ends(&[Memory, ToolError]),
        ),
        (
            "replace bomb",
            "return 'x'.repeat(1e6).replace(/x/g, 'y'.repeat(1e4)).length;",
            Ends(&[Memory, ToolError]),
        ),
        (
            "list bomb",
            "const a = []; for (;;) a.push([1, 2, 3]);",
            FULL,
        ),
        (
            "map bomb",
            "const m = new Map(); for (let i = 0; ; i++) m.set(i, {});",
            FULL,
        ),
        (
            "symbol bomb",
            "const a = []; for (let i = 0; ; i++) a.push(Symbol.for(`s${i}`));",
            FULL_OR_LATE,
        ),
        (
            "closures",
            "let f = () => 1; for (;;) { const g = f; f = () => g; }",
            FULL_OR_LATE,
        ),
        (
            "survived lack of memory",
            "let n = 0; for (let i = 0; i < 50; i++) { try { const a = []; for (;;) a.push(new Uint8Array(1 << 20)); } catch { n++; } } return n;",
            Is(json!(50)),
        ),
        (
            "typed array",
            "return new Uint8Array(2 ** 31 - 1).length;",
            Ends(&[Memory, ToolError]),
        ),
        (
            "resizable buffer",
            "return new ArrayBuffer(8, { maxByteLength: 2 ** 40 }).byteLength;",
            Ends(&[Memory, ToolError]),
        ),
        (
            "Buffer.alloc",
            "return Buffer.alloc(2 ** 31 - 1).length;",
            Ends(&[Memory, ToolError]),
        ),
        (
            "randomBytes",
            "return require('crypto').randomBytes(2 ** 31 - 1).length;",
            Ends(&[Memory, ToolError]),
        ),
        ("recursion", "const f = () => f() + 1; return f();", THROWN),
        (
            "recursion in a getter",
            "const o = { get a() { return this.a; } }; return o.a;",
            THROWN,
        ),
        (
            "recursion in a proxy",
            "const p = new Proxy({}, { get: (_, k) => p[k] }); return p.x;",
            THROWN,
        ),
        (
            "recursion in valueOf",
            "const o = { valueOf() { return +this; } }; return +o;",
            THROWN,
        ),
        ("deep JSON", "return JSON.parse('['.repeat(2e5));", THROWN),
        (
            "deep regular expression",
            "return new RegExp('('.repeat(2e5) + ')'.repeat(2e5)).source.length;",
            THROWN,
        ),
        ("deep source", "return eval('['.repeat(2e5));", THROWN),
        (
            "Atomics.wait",
            "return Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1e9);",
            Ends(&[ToolError, Timeout, Killed]),
        ),
        (
            "workers and WebAssembly",
            "return [typeof Worker, typeof WebAssembly, typeof SharedWorker, typeof navigator];",
            Is(json!(["undefined", "undefined", "undefined", "undefined"])),
        ),
        (
            "flood of the log",
            "for (let i = 0; i < 1e5; i++) console.log('line'); console.log('\\u001b[2J\\r\\0{\"is\":\"value\",\"json\":\"0\"}'); return 1;",
            Is(json!(1)),
        ),
        (
            "one long line",
            "console.log('x'.repeat(1e7)); return 1;",
            Is(json!(1)),
        ),
        (
            "sockets",
            "return [typeof WebSocket, typeof XMLHttpRequest, typeof EventSource];",
            Is(json!(["undefined", "undefined", "undefined"])),
        ),
        (
            "date of the machine",
            "return new Date(2020, 6, 1).getTimezoneOffset();",
            Is(json!(0)),
        ),
    ]
}

impl Bench {
    fn call(&self, tenant: &str, code: &str, input: &Value) -> Result<CallReport, CallFailure> {
        self.call_within(5000, tenant, code, input)
    }

    fn call_within(
        &self,
        wall_ms: u64,
        tenant: &str,
        code: &str,
        input: &Value,
    ) -> Result<CallReport, CallFailure> {
        let request = ToolRequest {
            tenant,
            code,
            input,
            context: &json!({}),
            call_id: "c",
            limits: CallLimits {
                wall_ms,
                memory_bytes: 24 << 20,
                ..CallLimits::default()
            },
            fixed: None,
        };
        self.runner.call(&request, &AtomicBool::new(false))
    }

    /// The next call is right: nothing of what others did is there.
    fn honest(&self, tenant: &str) {
        let code = "export default ({ a }) => [a + 1, typeof ({}).polluted, typeof globalThis.left, JSON.stringify([a])];";
        let report = self.call(tenant, code, &json!({ "a": 1 })).unwrap();
        assert_eq!(report.value, json!([2, "undefined", "undefined", "[1]"]));
    }

    /// Processes of tools on this machine that belong to this test, by their command line.
    fn processes() -> usize {
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| {
                let dir = entry.path();
                let line = std::fs::read(dir.join("cmdline")).ok()?;
                if !line.windows(13).any(|part| part == b"glovebox-tool") {
                    return None;
                }
                is_descendant(&dir).then_some(())
            })
            .count()
    }
}

/// Whether a process of /proc descends from this one.
fn is_descendant(dir: &std::path::Path) -> bool {
    let own = std::process::id().to_string();
    let mut dir = dir.to_owned();
    loop {
        let Ok(status) = std::fs::read_to_string(dir.join("status")) else {
            return false;
        };
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:"))
            .map_or("0", str::trim);
        if parent == own {
            return true;
        }
        if parent == "0" {
            return false;
        }
        dir = std::path::Path::new("/proc").join(parent);
    }
}

#[test]
fn every_probe_comes_to_what_is_expected_and_leaves_nothing() {
    let bench = Bench::new();
    let mut wrong = Vec::new();
    for (name, body, expected) in probes() {
        let code = format!("export default async (input) => {{ {body} }};");
        let is_late = matches!(&expected, Ends(kinds) if kinds.contains(&Timeout));
        let wall_ms = if is_late { 400 } else { 5000 };
        let mut outcome = bench.call_within(wall_ms, "a", &code, &json!({}));
        if let Err(failure) = &mut outcome {
            failure.log.clear();
        }
        let is_right = match (&expected, &outcome) {
            (Is(value), Ok(report)) => report.value == *value,
            (Nowhere, Ok(_)) => true,
            (Nowhere, Err(failure)) => failure.kind == ToolError,
            (Ends(kinds), Err(failure)) => kinds.contains(&failure.kind),
            (Is(_), Err(_)) | (Ends(_), Ok(_)) => false,
        };
        if !is_right {
            wrong.push(format!("{name}: {expected:?}, but {outcome:?}"));
        }
        bench.honest("a");
    }
    bench.honest("b");
    assert_eq!(Bench::processes(), 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn input_brings_no_prototype() {
    let bench = Bench::new();
    let code = "export default (input) => [Object.keys(input), ({}).admin === undefined, input.admin === undefined];";
    let input: Value =
        serde_json::from_str(r#"{"__proto__":{"admin":true},"constructor":{}}"#).unwrap();
    let report = bench.call("a", code, &input).unwrap();
    assert_eq!(
        report.value,
        json!([["__proto__", "constructor"], true, true])
    );
}

#[test]
fn fetch_without_a_grant_says_so_and_sends_nothing() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let code =
        format!("export default async () => {{ await fetch('http://127.0.0.1:{port}/'); }};");
    let failure = bench.call("a", &code, &json!({})).unwrap_err();
    assert_eq!(failure.kind, ToolError);
    assert!(
        failure.message.contains("E_NETWORK") && failure.message.contains("grant"),
        "{}",
        failure.message
    );
    assert!(listener.accept().is_err(), "a packet arrived");
}

#[test]
fn hostile_calls_in_a_row_leave_the_runner_as_it_was() {
    let bench = Bench::new();
    let hostile = [
        "export default () => { const a = []; for (;;) a.push({}); };",
        "export default () => { throw null; };",
        "export default () => ({ get a() { return this; } });",
        "export default () => Function('return this')().x = 1;",
        "export default (",
        "export default () => 'x'.repeat(1e8);",
    ];
    for round in 0..300 {
        let _ = bench.call("a", hostile[round % hostile.len()], &json!({}));
    }
    bench.honest("a");
    assert_eq!(Bench::processes(), 0);
}

#[test]
fn bombs_beside_honest_calls_do_them_no_harm() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..64)
            .map(|number| {
                let bench = &bench;
                scope.spawn(move || {
                    let bomb = "export default () => { const a = []; for (;;) a.push({}); };";
                    let request = ToolRequest {
                        tenant: if number % 2 == 0 { "bombs" } else { "honest" },
                        code: if number % 2 == 0 {
                            bomb
                        } else {
                            "export default ({ a }) => a * 2;"
                        },
                        input: &json!({ "a": number }),
                        context: &json!({}),
                        call_id: "c",
                        limits: CallLimits::default(),
                        fixed: None,
                    };
                    (number, bench.runner.call(&request, &AtomicBool::new(false)))
                })
            })
            .collect();
        for call in calls {
            let (number, outcome) = call.join().unwrap();
            match outcome {
                Ok(report) => assert_eq!((number % 2, report.value), (1, json!(number * 2))),
                Err(failure) => assert_eq!((number % 2, failure.kind), (0, Memory), "{failure:?}"),
            }
        }
    });
    assert_eq!(Bench::processes(), 0);
}
