//! Attempts to get out of a tool's process, to take more than it may, and to lie to who called it. Each is tried with a
//! real sandbox and has one expected outcome; after each the next call must be right, and no process, packet or file
//! may be left.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bench;
#[path = "bench/probes.rs"]
mod table;

use bench::Bench;
use glovebox_runner::FailureKind::{Memory, ToolError};
use glovebox_runner::{CallFailure, CallReport};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::PathBuf;
use table::probes;

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
        self.call_with(code, input, |request| {
            request.tenant = tenant;
            request.limits.wall_ms = wall_ms;
            request.limits.memory_bytes = 24 << 20;
        })
    }

    /// The next call is right: nothing of what others did is there.
    fn honest(&self, tenant: &str) {
        let code = "export default ({ a }) => [a + 1, typeof ({}).polluted, typeof globalThis.left, JSON.stringify([a])];";
        let report = self.call(tenant, code, &json!({ "a": 1 })).unwrap();
        assert_eq!(report.value, json!([2, "undefined", "undefined", "[1]"]));
    }
}

#[test]
fn every_probe_comes_to_what_is_expected_and_leaves_nothing() {
    let bench = Bench::new();
    bench.honest("a");
    bench.honest("b");
    let files = bench.files();
    let mut wrong = Vec::new();
    for (name, body, expected) in probes() {
        let code = format!("export default async (input) => {{ {body} }};");
        let wall_ms = expected.wall_ms(5000, 400);
        let mut outcome = bench.call_within(wall_ms, "a", &code, &json!({}));
        if let Err(failure) = &mut outcome {
            failure.log = Box::default();
        }
        if !expected.is_met(&outcome) {
            wrong.push(format!("{name}: {expected:?}, but {outcome:?}"));
        }
        bench.honest("a");
        let now = bench.files();
        if now != files {
            let (gone, new) = (without(&files, &now), without(&now, &files));
            wrong.push(format!("{name}: files {gone:?} are gone, {new:?} are new"));
        }
    }
    bench.honest("b");
    assert_eq!(bench.processes("glovebox-tool"), 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Those of `files` that are not in `others`.
fn without<'a>(files: &'a [PathBuf], others: &[PathBuf]) -> Vec<&'a PathBuf> {
    let missing = files.iter().filter(|file| !others.contains(file));
    missing.collect()
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
    assert_eq!(bench.processes("glovebox-tool"), 0);
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
                    let (tenant, code) = if number % 2 == 0 {
                        ("bombs", bomb)
                    } else {
                        ("honest", "export default ({ a }) => a * 2;")
                    };
                    let input = json!({ "a": number });
                    let called = bench.call_with(code, &input, |request| request.tenant = tenant);
                    (number, called)
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
    assert_eq!(bench.processes("glovebox-tool"), 0);
}
