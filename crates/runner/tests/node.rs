//! Calls in Node: the same results, errors and limits as in the other engine, and each difference that the guide tells of.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bench;
#[path = "bench/probes.rs"]
mod table;
#[path = "bench/uncarried.rs"]
mod uncarried;

use bench::Bench;
use glovebox_js::tool_call::{CallLimits, FixedSources, LogLevel};
use glovebox_runner::FailureKind::{
    Cpu, Killed, Memory, NotFound, NotJson, OutputLimit, Syntax, Timeout, ToolError, Unavailable,
};
use glovebox_runner::{CallFailure, CallReport, Engine, NodeView};
use serde_json::{Value, json};
use std::net::TcpListener;
use table::Expectation::{self, Ends, Is, Nowhere};
use table::probes;
use uncarried::UNCARRIED;

/// A node process takes a while to begin.
const LATE_MS: u64 = 1500;

impl Bench {
    fn call_in(
        &self,
        engine: Engine,
        code: &str,
        input: &Value,
        limits: CallLimits,
    ) -> Result<CallReport, CallFailure> {
        self.call_with(code, input, |request| {
            request.engine = engine;
            request.limits = limits;
        })
    }

    fn node(&self, code: &str) -> Result<CallReport, CallFailure> {
        self.call_in(Engine::Node, code, &json!({}), CallLimits::default())
    }

    fn value(&self, body: &str) -> Value {
        let code = format!("export default async (input, context) => {{ {body} }};");
        match self.node(&code) {
            Ok(report) => report.value,
            Err(failure) => panic!("{body}: {failure:?}"),
        }
    }

    fn honest(&self) {
        let code = "export default ({ a }) => [a + 1, typeof ({}).polluted, typeof globalThis.left, JSON.stringify([a])];";
        let report = self.call_in(
            Engine::Node,
            code,
            &json!({ "a": 1 }),
            CallLimits::default(),
        );
        assert_eq!(
            report.unwrap().value,
            json!([2, "undefined", "undefined", "[1]"])
        );
    }
}

#[test]
fn both_engines_answer_the_same() {
    let bench = Bench::new();
    for code in [
        "export default async ({ a }, context) => ({ a, id: context.toolCallId, session: context.sessionId, messages: context.messages, aborted: context.abortSignal.aborted });",
        "export default () => [undefined, NaN, -0, new Date(0), new Uint8Array(2), Object.create(null), { toJSON: () => 1 }, '\\ud800'];",
        "export default () => undefined;",
        "export default async function* () { yield 1; yield 2; }",
        "import { createHash } from 'node:crypto';\nexport default () => createHash('sha256').update('x').digest('hex');",
        "export default () => require('node:util').format('%s-%d', 'a', 1);",
        "export default () => { console.log('a', { b: 1 }); console.error('c'); return 1; };",
        "export default () => { Promise.reject(new Error('left')); return new Promise((done) => setTimeout(done, 5, 'late')); };",
    ] {
        let call = |engine| {
            let report = bench.call_in(
                engine,
                code,
                &json!({ "a": [1, { "b": null }] }),
                CallLimits::default(),
            );
            let report = report.unwrap_or_else(|failure| panic!("{engine}: {code}: {failure:?}"));
            (report.value, report.warnings, report.log)
        };
        assert_eq!(call(Engine::Node), call(Engine::Quickjs), "{code}");
    }
}

#[test]
fn both_engines_fail_the_same() {
    let bench = Bench::new();
    for (code, kind) in [
        (
            "export default () => { throw new TypeError('bad'); };",
            ToolError,
        ),
        ("export default () => { throw null; };", ToolError),
        ("export default () => { throw 'text'; };", ToolError),
        ("export default () => new Promise(() => {});", ToolError),
        ("export default (", Syntax),
        ("export default 1;", NotFound),
        ("throw new SyntaxError('of the tool');", ToolError),
        (
            "export default () => { const a = []; a.push(a); return a; };",
            NotJson,
        ),
        ("export default () => 'x'.repeat(2e6);", OutputLimit),
        ("export default () => { for (;;); };", Timeout),
        (
            "export default () => { const a = []; for (;;) a.push({ a: [1] }); };",
            Memory,
        ),
        (
            "export default () => fetch('http://127.0.0.1:1/');",
            ToolError,
        ),
    ] {
        let limits = CallLimits {
            wall_ms: if kind == Timeout { LATE_MS } else { 10_000 },
            ..CallLimits::default()
        };
        let call = |engine| {
            let failure = bench.call_in(engine, code, &json!({}), limits).unwrap_err();
            assert_eq!(failure.kind, kind, "{engine}: {code}: {failure:?}");
            failure
        };
        let (node, quickjs) = (call(Engine::Node), call(Engine::Quickjs));
        assert_eq!(node.name, quickjs.name, "{code}");
        // The words of engines differ where the engine itself throws, and where the kernel ends a process.
        if !matches!(kind, Syntax | Memory) {
            assert_eq!(node.message, quickjs.message, "{code}");
        }
    }
}

#[test]
fn result_that_json_cannot_carry_is_refused_as_in_quickjs() {
    let bench = Bench::new();
    for (expression, reason) in UNCARRIED {
        let code = format!("export default async () => ({expression});");
        let failure = bench.node(&code).unwrap_err();
        assert_eq!(failure.kind, NotJson, "{expression}: {failure:?}");
        let expected = format!("E_RESULT: {reason}");
        assert!(
            failure.message.starts_with(&expected),
            "{expression}: {}",
            failure.message
        );
    }
}

#[test]
fn errors_name_lines_of_the_tool() {
    let bench = Bench::new();
    let failure = bench
        .node("const a = 1;\nfunction deep() {\n  throw new RangeError('here');\n}\nexport default () => deep();")
        .unwrap_err();
    assert_eq!(
        &*failure.stack,
        "at deep (tool.js:3:9)\nat default (tool.js:5:22)"
    );
}

/// The table of differences in `docs/guides/bundles.md`, a row each.
#[test]
fn differences_are_those_of_the_guide() {
    let bench = Bench::new();
    let quickjs = |body: &str| {
        let code = format!("export default async () => {{ {body} }};");
        let report = bench.call_in(Engine::Quickjs, &code, &json!({}), CallLimits::default());
        report.map(|report| report.value)
    };
    for (row, body, in_quickjs, in_node) in [
        (
            "modules",
            "return typeof process.getBuiltinModule('node:zlib').gzipSync;",
            None,
            json!("function"),
        ),
        (
            "Intl",
            "return typeof Intl === 'object' && new Intl.NumberFormat('de-DE').format(1234.5);",
            Some(json!(false)),
            json!("1.234,5"),
        ),
        (
            "WebAssembly",
            "return typeof WebAssembly;",
            Some(json!("undefined")),
            json!("object"),
        ),
        (
            "process",
            "return [typeof process, typeof process === 'object' && process.env.PATH !== undefined];",
            Some(json!(["undefined", false])),
            json!(["object", true]),
        ),
        (
            "files of the system",
            "return require('fs').readFileSync('/etc/os-release', 'utf8').length > 0;",
            None,
            json!(true),
        ),
        (
            "files that end with the call",
            "require('fs').writeFileSync('/workspace/a', 'x'); return require('fs').readdirSync('/workspace');",
            None,
            json!(["a"]),
        ),
        (
            "other programs",
            "return String(require('child_process').execSync('echo 1')).trim();",
            None,
            json!("1"),
        ),
    ] {
        assert_eq!(quickjs(body).ok(), in_quickjs, "{row}");
        assert_eq!(bench.value(body), in_node, "{row}");
    }
    assert_eq!(
        bench.value("return require('fs').readdirSync('/workspace');"),
        json!([])
    );
}

#[test]
fn a_tool_that_ends_its_process_is_told_of_as_such() {
    let bench = Bench::new();
    let failure = bench
        .node("export default () => process.exit(3);")
        .unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (ToolError, "the tool ended its process with code 3")
    );
    let failure = bench
        .node("export default () => process.reallyExit(127);")
        .unwrap_err();
    assert!(matches!(failure.kind, Killed | Unavailable), "{failure:?}");
    let failure = bench
        .node("export default () => process.kill(process.pid, 'SIGSEGV') && new Promise(() => {});")
        .unwrap_err();
    assert_eq!(failure.kind, Killed);
}

#[test]
fn what_is_written_to_streams_of_the_process_is_in_the_log() {
    let bench = Bench::new();
    let report = bench
        .node("export default () => { process.stdout.write('a\\n'); process.stderr.write('b\\n'); console.debug('c'); return 1; };")
        .unwrap();
    let log: Vec<_> = report
        .log
        .iter()
        .map(|one| (one.level, one.text.as_str()))
        .collect();
    assert_eq!(
        log,
        [
            (LogLevel::Info, "a"),
            (LogLevel::Error, "b"),
            (LogLevel::Debug, "c")
        ]
    );
}

#[test]
fn limits_hold_outside_the_javascript_heap_and_in_other_threads() {
    let bench = Bench::new();
    let small = CallLimits {
        memory_bytes: 32 << 20,
        cpu_ms: 1000,
        ..CallLimits::default()
    };
    let call = |code: &str| {
        let failure = bench.call_in(Engine::Node, code, &json!({}), small);
        failure.unwrap_err().kind
    };
    let buffers =
        "export default () => { const a = []; for (;;) a.push(Buffer.alloc(1 << 20, 1)); };";
    assert_eq!(call(buffers), Memory);
    let disk = "export default () => { const fs = require('fs'); for (let i = 0; ; i++) fs.writeFileSync(`/workspace/${i}`, Buffer.alloc(1 << 20, 1)); };";
    assert!(matches!(call(disk), ToolError | Memory));
    let threads = "import { Worker } from 'node:worker_threads';\nexport default () => new Promise(() => { for (let i = 0; i < 2; i++) new Worker('for(;;);', { eval: true }); });";
    assert_eq!(call(threads), Cpu);
}

#[test]
fn without_node_inside_the_next_step_is_named() {
    let bench = Bench::with_node(NodeView {
        path: "/nowhere".to_owned(),
        ..NodeView::default()
    });
    let failure = bench.node("export default () => 1;").unwrap_err();
    assert_eq!(failure.kind, Unavailable);
    assert!(
        failure.message.contains("install Node 20") && failure.message.contains("quickjs"),
        "{}",
        failure.message
    );
}

#[test]
fn a_fixed_clock_is_refused() {
    let bench = Bench::new();
    let called = bench.call_with("export default () => 1;", &json!({}), |request| {
        request.engine = Engine::Node;
        request.fixed = Some(FixedSources { now_ms: 0, seed: 1 });
    });
    let failure = called.unwrap_err();
    assert_eq!(failure.kind, Unavailable);
}

/// What comes of a probe where that differs: Node has its own modules, programs and files of the system in reach, and
/// large buffers cost nothing before they are touched.
fn in_node(name: &str) -> Option<Expectation> {
    Some(match name {
        "constructor chain" => Is(json!("object")),
        "Function constructor" => Is(json!("objectundefinedundefined")),
        "async and generator constructors" => Is(json!(["object", "object"])),
        // Newer versions have more of the web's objects.
        "import of files"
        | "require and its properties"
        | "sockets"
        | "workers and WebAssembly" => Nowhere,
        "process bindings" => Is(json!([
            "object",
            "object",
            "undefined",
            "object",
            "undefined",
            "undefined"
        ])),
        "host functions" => Is(json!(["object", true, null])),
        "flood of timers" | "survived lack of memory" => Ends(&[Memory, Timeout]),
        "typed array" | "Buffer.alloc" => Is(json!(2_147_483_647_u32)),
        _ => return None,
    })
}

/// Tries probes, two at a time: what has not come to what is expected, by its name.
fn run_probes(
    bench: &Bench,
    wrap: impl Fn(&str) -> String + Sync,
    expected: impl Fn(&str, Expectation) -> Option<Expectation> + Sync,
) -> Vec<(&'static str, String)> {
    let table = probes();
    let (one, other) = table.split_at(table.len() / 2);
    let run = |half: &[(&'static str, &'static str, Expectation)]| {
        let mut wrong = Vec::new();
        for (name, body, usual) in half {
            let Some(expected) = expected(name, usual.clone()) else {
                continue;
            };
            let limits = CallLimits {
                wall_ms: expected.wall_ms(10_000, LATE_MS),
                memory_bytes: 24 << 20,
                ..CallLimits::default()
            };
            let mut outcome = bench.call_in(Engine::Node, &wrap(body), &json!({}), limits);
            if let Err(failure) = &mut outcome {
                failure.log = Box::default();
            }
            if !expected.is_met(&outcome) {
                wrong.push((*name, format!("{expected:?}, but {outcome:?}")));
            }
        }
        wrong
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| run(one));
        let mut wrong = run(other);
        wrong.extend(one.join().unwrap());
        wrong
    })
}

#[test]
fn every_probe_comes_to_what_is_expected_in_node() {
    let bench = Bench::new();
    let wrap = |body: &str| format!("export default async (input) => {{ {body} }};");
    let wrong = run_probes(&bench, wrap, |name, usual| {
        Some(in_node(name).unwrap_or(usual))
    });
    bench.honest();
    assert_eq!(bench.processes("max-old-space-size"), 0);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The control of the probes: `node:vm`, which has no walls of its own, meets what quickjs would be held to. Where no
/// probe failed here, the probes would prove nothing.
#[test]
fn the_probes_see_that_plain_node_vm_keeps_nothing_in() {
    let bench = Bench::new();
    let wrap = |body: &str| {
        let code = json!(format!("(async () => {{ {body} }})()"));
        format!(
            "import vm from 'node:vm';\nexport default () => vm.runInContext({code}, vm.createContext({{ console, setTimeout, Buffer }}));"
        )
    };
    let wrong = run_probes(&bench, wrap, |_, usual| match usual {
        Is(_) => Some(usual),
        _ => None,
    });
    let names: Vec<_> = wrong.iter().map(|(name, _)| *name).collect();
    for name in ["constructor chain", "host functions", "patched built-ins"] {
        assert!(names.contains(&name), "not seen: {name}, of {wrong:#?}");
    }
}

#[test]
fn nothing_outside_the_sandbox_is_in_reach() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!(
        "return new Promise((done) => {{ const s = require('net').connect({port}, '127.0.0.1'); s.on('error', (e) => done(e.code)); s.on('connect', () => done('connected')); }});"
    );
    assert_ne!(bench.value(&connect), json!("connected"));
    assert!(listener.accept().is_err(), "a packet arrived");
    let own = std::env::current_dir().unwrap();
    let own = json!(own.join("Cargo.toml"));
    for (body, expected) in [
        ("return Object.keys(process.env).filter((name) => !['HOME', 'PATH', 'PWD', 'OLDPWD', 'SHLVL', 'TZ', '_'].includes(name));".to_owned(), json!([])),
        ("return require('fs').readdirSync('/workspace');".to_owned(), json!([])),
        (format!("return require('fs').existsSync({own});"), json!(false)),
        ("try { require('fs').writeFileSync('/usr/bin/left-by-a-tool', ''); } catch {} return 1;".to_owned(), json!(1)),
        ("require('child_process').spawn('sleep', ['98765'], { detached: true, stdio: 'ignore' }).unref(); return 1;".to_owned(), json!(1)),
    ] {
        assert_eq!(bench.value(&body), expected, "{body}");
    }
    assert_eq!(bench.processes("98765"), 0);
    assert!(!std::path::Path::new("/usr/bin/left-by-a-tool").exists());
    // The processes above it, the frames and the limits are not the tool's to change.
    for body in [
        "for (const pid of [1, process.ppid]) try { process.kill(pid, 'SIGKILL'); } catch {} await new Promise((done) => setTimeout(done, 50)); return 1;",
        "require('fs').writeSync(1, Buffer.from([255, 255, 255, 127, 1])); return 1;",
        "require('fs').writeSync(1, '\\x02\\0\\0\\0{}'); return 1;",
        "require('fs').closeSync(1); return 1;",
        "process.removeAllListeners(); process.reallyExit(0);",
    ] {
        let code = format!("export default async () => {{ {body} }};");
        let limits = CallLimits {
            wall_ms: LATE_MS,
            ..CallLimits::default()
        };
        if let Err(failure) = bench.call_in(Engine::Node, &code, &json!({}), limits) {
            assert!(
                matches!(failure.kind, Killed | Timeout),
                "{body}: {failure:?}"
            );
        }
    }
    bench.honest();
}
