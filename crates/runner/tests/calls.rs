//! Calls of tools in real sandboxes: values, errors, and what the code of a tool has around it.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bench;
#[path = "bench/uncarried.rs"]
mod uncarried;

use bench::Bench;
use glovebox_js::tool_call::FixedSources;
use glovebox_runner::{CallFailure, CallReport, FailureKind};
use serde_json::{Value, json};
use std::sync::atomic::AtomicBool;
use uncarried::UNCARRIED;

impl Bench {
    fn call(&self, code: &str) -> Result<CallReport, CallFailure> {
        self.call_with(code, &json!({}), |_| {})
    }

    fn value(&self, expression: &str) -> Value {
        let code = format!("export default async (input, context) => ({expression});");
        match self.call(&code) {
            Ok(report) => report.value,
            Err(failure) => panic!("{expression}: {failure:?}"),
        }
    }
}

#[test]
fn a_tool_gets_its_input_and_both_shapes_of_a_context() {
    let bench = Bench::new();
    let code = "export default async ({ a, b }, context) => \
        ({ sum: a + b, id: context.toolCallId, session: context.sessionId, messages: context.messages, \
           aborted: context.abortSignal.aborted });";
    let report = bench
        .call_with(code, &json!({ "a": 1, "b": 2 }), |_| {})
        .unwrap();
    assert_eq!(
        report.value,
        json!({ "sum": 3, "id": "call-1", "session": "s1", "messages": [], "aborted": false })
    );
    assert!(report.warnings.is_empty() && report.log.is_empty());
    assert!(report.peak_memory_bytes > 100_000);
}

#[test]
fn results_are_written_as_json_with_what_was_changed() {
    let bench = Bench::new();
    for (expression, expected) in [
        ("undefined", json!(null)),
        ("[undefined]", json!([null])),
        ("({ a: undefined, b: 1 })", json!({ "b": 1 })),
        (
            "({ a: { toJSON: () => undefined }, b: [{ toJSON: (key) => key }] })",
            json!({ "b": ["0"] }),
        ),
        (
            "Object.assign(Object.create(null), { a: [{ b: 1 }] })",
            json!({ "a": [{ "b": 1 }] }),
        ),
        (
            "Object.assign(Object.create({ a: 1 }), { b: 2 })",
            json!({ "b": 2 }),
        ),
        (
            "(() => { const a = { x: 1 }; return [a, a]; })()",
            json!([{ "x": 1 }, { "x": 1 }]),
        ),
        ("[NaN, Infinity, -0]", json!([null, null, 0])),
        ("new Date(0)", json!("1970-01-01T00:00:00.000Z")),
        ("new Date(NaN)", json!(null)),
        ("'\\ud800x'", json!("\u{fffd}x")),
        ("({ ['\\ud800']: 1 })", json!({ "\u{fffd}": 1 })),
        ("new Uint8Array([1, 2])", json!({ "0": 1, "1": 2 })),
        (
            "Buffer.from('hi')",
            json!({ "type": "Buffer", "data": [104, 105] }),
        ),
        ("({ toJSON() { return { a: 1 }; } })", json!({ "a": 1 })),
        (
            "[new Number(1), new String('x'), new Boolean(false)]",
            json!([1, "x", false]),
        ),
        (
            "JSON.parse('{\"__proto__\": 1}')",
            json!({ "__proto__": 1 }),
        ),
        ("[1e21, 0.1, 1e-7]", json!([1e21, 0.1, 1e-7])),
    ] {
        assert_eq!(bench.value(expression), expected, "{expression}");
    }
    let report = bench.call("export default () => [1, NaN];").unwrap();
    assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
}

#[test]
fn result_that_json_cannot_carry_is_refused_with_path_and_kind() {
    let bench = Bench::new();
    for (expression, reason) in UNCARRIED {
        let code = format!("export default async () => ({expression});");
        let failure = bench.call(&code).unwrap_err();
        assert_eq!(
            failure.kind,
            FailureKind::NotJson,
            "{expression}: {failure:?}"
        );
        let expected = format!("E_RESULT: {reason}");
        assert!(
            failure.message.starts_with(&expected),
            "{expression}: {}",
            failure.message
        );
    }
}

#[test]
fn a_tool_has_the_host_functions_that_it_was_promised() {
    let bench = Bench::new();
    for (expression, expected) in [
        (
            "new TextDecoder().decode(new TextEncoder().encode('h\u{e9}\u{1f600}'))",
            json!("h\u{e9}\u{1f600}"),
        ),
        (
            "new URL('/b?x=1#y', 'https://ex\u{e4}mple.org/a').href",
            json!("https://xn--exmple-cua.org/b?x=1#y"),
        ),
        (
            "(() => { const u = new URL('https://a.b/'); u.searchParams.append('q', 'a b&'); return u.href; })()",
            json!("https://a.b/?q=a+b%26"),
        ),
        (
            "[...new URLSearchParams('a=1&b=%20+')]",
            json!([["a", "1"], ["b", "  "]]),
        ),
        ("URL.canParse('nope')", json!(false)),
        (
            "structuredClone({ a: new Date(5), m: new Map([[1, { x: 2 }]]) }).m.get(1)",
            json!({ "x": 2 }),
        ),
        ("crypto.randomUUID().length", json!(36)),
        ("crypto.getRandomValues(new Uint8Array(4)).length", json!(4)),
        (
            "Buffer.from(await crypto.subtle.digest('SHA-256', new TextEncoder().encode('abc'))).toString('hex').slice(0, 16)",
            json!("ba7816bf8f01cfea"),
        ),
        (
            "require('node:crypto').createHash('md5').update('a').update('bc').digest('hex')",
            json!("900150983cd24fb0d6963f7d28e17f72"),
        ),
        (
            "require('crypto').createHmac('sha1', 'key').update('x').digest('base64')",
            json!("KgDo6DQ9+GxMGIsmPuyjMa+jFUg="),
        ),
        (
            "require('crypto').createHash('sha384').update('').digest('hex').slice(0, 8)",
            json!("38b060a7"),
        ),
        (
            "require('crypto').createHash('sha512').update('').digest('hex').slice(0, 8)",
            json!("cf83e135"),
        ),
        (
            "require('crypto').timingSafeEqual(Buffer.from('a'), Buffer.from('b'))",
            json!(false),
        ),
        ("require('crypto').randomBytes(70000).length", json!(70000)),
        (
            "Buffer.from('aGk-_w', 'base64').toString('hex')",
            json!("6869 3eff".replace(' ', "")),
        ),
        (
            "Buffer.concat([Buffer.from('ff00', 'hex'), Buffer.alloc(2)]).readUInt32BE(0)",
            json!(0xff00_0000_u32),
        ),
        (
            "Buffer.from('abc').equals(Buffer.from('abc')) && Buffer.byteLength('\u{e9}')",
            json!(2),
        ),
        (
            "require('util').format('%s is %d %j', 'x', 5, { a: 1 }, [1])",
            json!("x is 5 {\"a\":1} [ 1 ]"),
        ),
        (
            "require('util').inspect({ a: [1, 'b'], c: new Map([[1, 2]]) })",
            json!("{ a: [ 1, 'b' ], c: Map(1) { 1 => 2 } }"),
        ),
        (
            "require('util').isDeepStrictEqual({ a: [1] }, { a: [1] })",
            json!(true),
        ),
        (
            "await require('util').promisify((x, done) => done(null, x + 1))(1)",
            json!(2),
        ),
        ("require('util').types.isDate(new Date())", json!(true)),
        (
            "await new Promise((done) => setTimeout(done, 5, 'late'))",
            json!("late"),
        ),
        (
            "await new Promise((done) => { let n = 0; const t = setInterval(() => { if (++n === 3) { clearInterval(t); done(n); } }, 1); })",
            json!(3),
        ),
        ("atob(btoa('x'))", json!("x")),
        (
            "(await import('node:crypto')).createHash('sha1').update('').digest('hex').slice(0, 8)",
            json!("da39a3ee"),
        ),
        (
            "[typeof process, typeof Intl, typeof WebAssembly, typeof Worker]",
            json!(["undefined", "undefined", "undefined", "undefined"]),
        ),
    ] {
        assert_eq!(bench.value(expression), expected, "{expression}");
    }
    let code = "import { createHash } from 'node:crypto'; import util, { format } from 'util';\n\
        export default () => [typeof createHash, format('%s', 1), typeof util.inspect];";
    assert_eq!(
        bench.call(code).unwrap().value,
        json!(["function", "1", "function"])
    );
}

#[test]
fn an_error_says_what_was_thrown_and_where_in_the_tools_code() {
    let bench = Bench::new();
    let failure = bench
        .call("const deep = (x) => { throw new TypeError(`bad ${x}`); };\nexport default (input) => deep('y');")
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::ToolError);
    assert_eq!(
        (failure.name.as_str(), failure.message.as_str()),
        ("TypeError", "bad y")
    );
    assert!(
        failure.stack.contains("tool.js:1:") && failure.stack.contains("tool.js:2:"),
        "{}",
        failure.stack
    );
    assert!(!failure.stack.contains("glovebox"), "{}", failure.stack);
    let kind = |code: &str| bench.call(code).unwrap_err().kind;
    assert_eq!(kind("export default ("), FailureKind::Syntax);
    assert_eq!(kind("export const a = 1;"), FailureKind::NotFound);
    assert_eq!(kind("export default 1;"), FailureKind::NotFound);
    assert_eq!(
        kind("throw new SyntaxError('x'); export default () => 1;"),
        FailureKind::ToolError
    );
    assert_eq!(
        kind("export default () => { const a = {}; a.a = a; return a; };"),
        FailureKind::NotJson
    );
    let failure = bench
        .call("import fs from 'node:fs'; export default () => 1;")
        .unwrap_err();
    assert!(
        failure.message.contains("node:fs") && failure.message.contains("node:crypto"),
        "{failure:?}"
    );
}

#[test]
fn the_log_comes_with_the_answer_and_with_a_failure() {
    let bench = Bench::new();
    let code = "export default () => { console.log('a', { b: 1 }); console.warn('w'); throw new Error('x'); };";
    let log = bench.call(code).unwrap_err().log;
    let texts: Vec<&str> = log.iter().map(|record| record.text.as_str()).collect();
    assert_eq!(texts, ["a { b: 1 }", "w"]);
    // What was logged before a call is killed is there too.
    let code = "export default () => { console.log('before'); const a = []; a.length = 2 ** 32 - 1; a.sort(); };";
    let failure = bench
        .call_with(code, &json!({}), |request| request.limits.wall_ms = 300)
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert_eq!(failure.log.len(), 1);
}

#[test]
fn with_fixed_sources_a_call_comes_out_the_same_twice() {
    let bench = Bench::new();
    let code = "export default () => [Date.now(), new Date().toISOString(), Math.random(), crypto.randomUUID(), \
        performance.now(), new Date(2020, 1, 2).getFullYear(), typeof Date()];";
    let fixed = |seed| {
        bench
            .call_with(code, &json!({}), |request| {
                request.fixed = Some(FixedSources { now_ms: 1000, seed });
            })
            .unwrap()
            .value
    };
    let first = fixed(7);
    assert_eq!(first, fixed(7));
    assert_ne!(first, fixed(8));
    assert_eq!(first[0], 1000);
    assert_eq!(first[1], "1970-01-01T00:00:01.000Z");
    assert_ne!(
        bench.call(code).unwrap().value,
        bench.call(code).unwrap().value
    );
}

#[test]
fn a_tool_that_streams_has_its_last_value_as_result() {
    let bench = Bench::new();
    assert_eq!(
        bench
            .call("export default async function* () { yield 1; yield { a: 2 }; }")
            .unwrap()
            .value,
        json!({ "a": 2 })
    );
}

#[test]
fn a_call_that_is_given_up_ends_soon() {
    let bench = Bench::new();
    bench.value("1");
    let cancel = AtomicBool::new(false);
    let started = std::time::Instant::now();
    let failure = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let code = "export default () => { for (;;); };";
        let called = bench.call_until(code, &json!({}), &cancel, |_| {});
        called.unwrap_err()
    });
    assert_eq!(failure.kind, FailureKind::Cancelled);
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}

#[test]
fn processor_time_is_a_limit_of_its_own() {
    let bench = Bench::new();
    let failure = bench
        .call_with(
            "export default () => { for (;;); };",
            &json!({}),
            |request| {
                request.limits.cpu_ms = 1000;
            },
        )
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Cpu, "{failure:?}");
}
