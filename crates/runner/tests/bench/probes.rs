//! What tools try: to get out, to take more than they may, to lie. The table is for every engine; what comes of a probe is
//! for quickjs, and the tests of another engine say where that differs.

use glovebox_runner::FailureKind::{
    self, Killed, Memory, NotJson, OutputLimit, Timeout, ToolError,
};
use glovebox_runner::{CallFailure, CallReport};
use serde_json::{Value, json};

/// What may come of a probe.
#[derive(Debug, Clone)]
pub(crate) enum Expectation {
    /// This value.
    Is(Value),
    /// Any value or an error of the tool's own: what it tried has led nowhere.
    Nowhere,
    /// One of these kinds.
    Ends(&'static [FailureKind]),
}

use Expectation::{Ends, Is, Nowhere};

/// Name, body of the tool, and what comes of it.
pub(crate) fn probes() -> Vec<(&'static str, &'static str, Expectation)> {
    const LATE: Expectation = Ends(&[Timeout]);
    const FULL: Expectation = Ends(&[Memory]);
    const FULL_OR_LATE: Expectation = Ends(&[Memory, Timeout, ToolError]);
    const THROWN: Expectation = Ends(&[ToolError]);
    vec![
        (
            "constructor chain",
            "return (await (async () => this?.constructor ?? globalThis.constructor)()).constructor('return typeof process')();",
            Is(json!("undefined")),
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
            "const f = console.log; let caller; try { caller = f.caller ?? f.arguments; } catch {} return [f.constructor('return typeof process')(), String(setTimeout).length > 0, caller ?? null];",
            Is(json!(["undefined", true, null])),
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
            "splice of a huge list",
            "const a = []; a.length = 2 ** 32 - 1; a.splice(0, 1);",
            FULL_OR_LATE,
        ),
        (
            "join of a huge list",
            "return Array.prototype.join.call({ length: 2 ** 53 - 1 }, '').length;",
            FULL_OR_LATE,
        ),
        (
            "BigInt of a long text",
            "return BigInt('9'.repeat(1e7)) > 0n;",
            FULL_OR_LATE,
        ),
        (
            "padded text",
            "return 'x'.padStart(2 ** 30 - 1, 'yz').length;",
            Ends(&[Memory, ToolError]),
        ),
        (
            "text in another form",
            "return '\\ufdfa'.repeat(3e6).normalize('NFKD').length;",
            Ends(&[Memory, ToolError]),
        ),
        (
            "object with many keys",
            "const o = {}; for (let i = 0; i < 2e6; i++) o[`k${i}`] = i; return 1;",
            FULL_OR_LATE,
        ),
        (
            "shared memory that grows",
            "const a = []; for (;;) a.push(new SharedArrayBuffer(1 << 24));",
            Ends(&[Memory, ToolError]),
        ),
        (
            "Atomics.waitAsync",
            "const w = Atomics.waitAsync?.(new Int32Array(new SharedArrayBuffer(4)), 0, 0); await (w?.value ?? new Promise(() => {}));",
            Ends(&[ToolError, Timeout]),
        ),
        (
            "map bomb",
            "const m = new Map(); for (let i = 0; ; i++) m.set(i, {});",
            FULL,
        ),
        (
            "queries in a loop",
            "const u = new URL('https://a.example/'); for (;;) u.searchParams.append('x', 'y'.repeat(1e5));",
            FULL_OR_LATE,
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
        (
            "recursion in toJSON",
            "const o = { toJSON() { return JSON.stringify(o); } }; return JSON.stringify(o);",
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

impl Expectation {
    /// How long a probe may take: those that go on for ever need not be waited for long.
    pub(crate) fn wall_ms(&self, usual: u64, late: u64) -> u64 {
        match self {
            Ends(kinds) if kinds.contains(&Timeout) => late,
            _ => usual,
        }
    }

    pub(crate) fn is_met(&self, outcome: &Result<CallReport, CallFailure>) -> bool {
        match (self, outcome) {
            (Is(value), Ok(report)) => report.value == *value,
            (Nowhere, Ok(_)) => true,
            (Nowhere, Err(failure)) => failure.kind == ToolError,
            (Ends(kinds), Err(failure)) => kinds.contains(&failure.kind),
            (Is(_), Err(_)) | (Ends(_), Ok(_)) => false,
        }
    }
}
