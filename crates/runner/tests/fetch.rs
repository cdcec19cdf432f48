//! `fetch` of tools that were granted hosts: real requests to a server on loopback, which a name is pinned to, from a
//! process that has no network.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bench;
#[path = "bench/web.rs"]
mod web;

use bench::Bench;
use glovebox_proto::EgressReason;
use glovebox_runner::FailureKind::{Cancelled, Timeout, ToolError};
use glovebox_runner::{
    CALL_BUDGET, CallFailure, CallReport, Engine, GrantFlags, HostGrant, HostRule, RunnerConfig,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use web::Web;

/// Less than the server needs for `/slow`, and enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(15);

/// A runner whose tools may reach `api.example` at the port of the server, and that server.
fn granted() -> (Bench, Web) {
    granted_by(&["api.example:PORT=127.0.0.1"], &[])
}

fn granted_by(allow: &[&str], deny: &[&str]) -> (Bench, Web) {
    let web = Web::start();
    let rules = |words: &[&str]| -> Vec<HostRule> {
        let port = web.port.to_string();
        words
            .iter()
            .map(|word| word.replace("PORT", &port).parse().unwrap())
            .collect()
    };
    let bench = Bench::with(RunnerConfig {
        hosts: HostGrant::new(&rules(allow), &rules(deny), GrantFlags::Serve).unwrap(),
        ..RunnerConfig::default()
    });
    (bench, web)
}

fn call(
    bench: &Bench,
    engine: Engine,
    web: &Web,
    body: &str,
    wall_ms: u64,
) -> Result<CallReport, CallFailure> {
    let code = format!(
        "const at = (path) => `http://api.example:{}${{path}}`;\nexport default async (input) => {{ {body} }};",
        web.port
    );
    bench.call_with(&code, &json!({}), |request| {
        request.engine = engine;
        request.limits.wall_ms = wall_ms;
    })
}

fn value(bench: &Bench, web: &Web, body: &str) -> Value {
    match call(bench, Engine::Quickjs, web, body, 10_000) {
        Ok(report) => report.value,
        Err(failure) => panic!("{body}: {failure:?}"),
    }
}

/// What a tool catches: code, message, host, port, reason.
const CAUGHT: &str = "const caught = async (f) => { try { return ['no error', await f()]; } catch (e) \
    { return [e.code ?? e.name, e.message, e.host, e.port, e.reason, e instanceof TypeError]; } };";

fn caught(bench: &Bench, web: &Web, expression: &str) -> Value {
    value(
        bench,
        web,
        &format!("{CAUGHT} return caught(() => {expression});"),
    )
}

#[test]
fn an_answer_is_what_the_server_said() {
    let (bench, web) = granted();
    assert_eq!(
        value(
            &bench,
            &web,
            "const r = await fetch(at('/json')); \
             return [r.ok, r.status, r.statusText, r.headers.get('Content-Type'), r.headers.has('x'), r.redirected, r.url, \
             await r.json(), r.bodyUsed];"
        ),
        json!([
            true, 200, "OK", "application/json", false, false,
            format!("http://api.example:{}/json", web.port),
            { "a": [1, "é"] }, true
        ])
    );
    assert_eq!(
        value(
            &bench,
            &web,
            "const r = await fetch(new URL(at('/missing'))); return [r.ok, r.status, r.statusText, await r.text()];"
        ),
        json!([false, 404, "Not Here", "no"])
    );
    assert_eq!(
        value(
            &bench,
            &web,
            "const r = await fetch(at('/bytes')); const b = new Uint8Array(await r.clone().arrayBuffer()); \
             return [b.length, b[0], b[255], b.reduce((a, c) => a + c), (await r.bytes()).length];"
        ),
        json!([256, 0, 255, 32640, 256])
    );
    let echoed = value(
        &bench,
        &web,
        "const r = await fetch(at('/echo'), { method: 'post', headers: { 'X-Key': 'k' }, body: new URLSearchParams({ a: 'é' }) }); \
         return r.text();",
    );
    let echoed = echoed.as_str().unwrap().to_owned();
    assert!(echoed.starts_with("POST /echo HTTP/1.1\r\n"), "{echoed}");
    assert!(echoed.contains("x-key: k\r\n"), "{echoed}");
    assert!(echoed.contains("content-type: application/x-www-form-urlencoded;charset=UTF-8\r\n"));
    assert!(echoed.ends_with("\na=%C3%A9"), "{echoed}");
    assert_eq!(
        value(
            &bench,
            &web,
            "const r = await fetch(at('/round')); return [r.redirected, r.url.endsWith('/json')];"
        ),
        json!([true, true])
    );
}

#[test]
fn what_was_not_granted_is_refused_in_words_with_the_host_and_what_opens_it() {
    let (bench, web) = granted_by(
        &["api.example:PORT=127.0.0.1", "bad.example:PORT=127.0.0.1"],
        &["bad.example"],
    );
    let port = web.port;
    for (url, host, asked, reason) in [
        (
            "http://evil.example/".to_owned(),
            "evil.example",
            80,
            "unlisted",
        ),
        (
            format!("http://127.0.0.1:{port}/"),
            "127.0.0.1",
            port,
            "unlisted",
        ),
        (
            format!("http://2130706433:{port}/"),
            "127.0.0.1",
            port,
            "unlisted",
        ),
        (
            "https://api.example/".to_owned(),
            "api.example",
            443,
            "port",
        ),
        (
            format!("http://bad.example:{port}/"),
            "bad.example",
            port,
            "denied",
        ),
        (
            "http://169.254.169.254/".to_owned(),
            "169.254.169.254",
            80,
            "unlisted",
        ),
    ] {
        let told = caught(&bench, &web, &format!("fetch('{url}')"));
        assert_eq!(told[0], "E_NETWORK", "{url}: {told}");
        let message = told[1].as_str().unwrap();
        assert!(
            message.contains(&format!("{host}:{asked} may not be reached")),
            "{message}"
        );
        let opener = match (reason, asked) {
            ("denied", _) => "leave out that `--bundle-deny`".to_owned(),
            (_, 80 | 443) if !host.starts_with(char::is_numeric) => {
                format!("; `--bundle-allow get={host}` opens it")
            }
            _ => format!("; `--bundle-allow get={host}:{asked}` opens it"),
        };
        assert!(message.ends_with(&opener), "{message}");
        assert_eq!(
            told.as_array().unwrap()[2..6],
            [json!(host), json!(asked), json!(reason), json!(true)]
        );
    }
    let told = caught(&bench, &web, "fetch(at('/away'))");
    assert_eq!(
        (&told[0], &told[2]),
        (&json!("E_NETWORK"), &json!("evil.example")),
        "{told}"
    );
    // The server heard of the redirect, and of nothing else.
    assert_eq!(web.asked(), 1);
    let failure = call(
        &bench,
        Engine::Quickjs,
        &web,
        "await fetch('http://evil.example:81/');",
        10_000,
    )
    .unwrap_err();
    assert_eq!(
        (failure.kind, failure.name.as_str()),
        (ToolError, "TypeError")
    );
    let [refused] = &*failure.refused_hosts else {
        panic!("{failure:?}");
    };
    assert_eq!(
        (refused.host.as_str(), refused.port, refused.reason),
        ("evil.example", Some(81), EgressReason::Unlisted)
    );
    assert_eq!(
        refused.remedy,
        "`--bundle-allow get=evil.example:81` opens it"
    );
    let caught = call(
        &bench,
        Engine::Quickjs,
        &web,
        "try { await fetch('http://evil.example:81/'); } catch {} return 1;",
        10_000,
    );
    assert_eq!(caught.unwrap().refused_hosts, *failure.refused_hosts);
}

#[test]
fn requests_that_cannot_be_made_say_why() {
    let (bench, web) = granted();
    for (expression, told) in [
        ("fetch('/relative')", "Invalid URL"),
        ("fetch('file:///etc/passwd')", "neither http: nor https:"),
        (
            "fetch('http://ann:pw@api.example/')",
            "a user or a password",
        ),
        (
            "fetch(at('/'), { method: 'TRACE' })",
            "the method is none of GET",
        ),
        (
            "fetch(at('/'), { headers: { host: 'x' } })",
            "`host` cannot be set",
        ),
        (
            "fetch(at('/'), { headers: { 'a b': 'x' } })",
            "is no name of a header",
        ),
        (
            "fetch(at('/'), { headers: { a: 'x\\r\\nhost: y' } })",
            "characters that no header has",
        ),
        ("fetch(at('/'), { body: 'x' })", "a GET request has no body"),
        (
            "fetch(at('/'), { method: 'POST', body: {} })",
            "a body is a string",
        ),
        ("fetch(at('/large'))", "longer than 4194304 bytes"),
        ("fetch(at('/away'), { redirect: 'error' })", "does not want"),
        (
            "fetch(at('/'), { method: 'POST', body: new Uint8Array(5 << 20) })",
            "at most 4194304 bytes",
        ),
        (
            "fetch(at('/json')).then(async (r) => { await r.text(); return r.text(); })",
            "already been read",
        ),
    ] {
        let found = caught(&bench, &web, expression);
        assert!(
            found[1]
                .as_str()
                .is_some_and(|message| message.contains(told)),
            "{expression}: {found}"
        );
        assert_eq!(found[5], json!(true), "{expression}: {found}");
    }
    assert_eq!(
        value(
            &bench,
            &web,
            "return (await (await fetch(at('/fits'))).text()).length;"
        ),
        json!(4 << 20)
    );
}

#[test]
fn hostile_headers_are_data() {
    let (bench, web) = granted();
    assert_eq!(
        value(
            &bench,
            &web,
            "const r = await fetch(at('/hostile')); \
             return [r.statusText, r.headers.get('__proto__'), r.headers.get('constructor'), r.headers.get('toString'), \
             r.headers.getSetCookie(), r.headers.get('x').length, ({}).x, [...r.headers.keys()].includes('__proto__'), \
             await r.text()];"
        ),
        // Nothing is decoded that was not asked for.
        json!([
            "<script>",
            "x",
            "y",
            null,
            ["a=1, b", "c=2"],
            4,
            null,
            true,
            "not gzip"
        ])
    );
}

#[test]
fn a_slow_server_ends_with_the_call_or_with_the_signal() {
    let (bench, web) = granted();
    for path in ["/slow", "/endless"] {
        let begun = Instant::now();
        let failure = call(
            &bench,
            Engine::Quickjs,
            &web,
            &format!("await fetch(at('{path}'));"),
            500,
        )
        .unwrap_err();
        assert_eq!(failure.kind, Timeout, "{failure:?}");
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
    assert_eq!(
        value(
            &bench,
            &web,
            "try { await fetch(at('/slow'), { signal: AbortSignal.timeout(50) }); } catch (e) \
             { return [e.name, await (await fetch(at('/json'))).text() !== '']; }"
        ),
        json!(["TimeoutError", true])
    );
    assert_eq!(
        value(
            &bench,
            &web,
            "const c = new AbortController(); const p = fetch(at('/slow'), { signal: c.signal }).catch((e) => e.name); \
             c.abort(); return [await p, await fetch(at('/'), { signal: AbortSignal.abort() }).catch((e) => e.name)];"
        ),
        json!(["AbortError", "AbortError"])
    );
    // Timers go on while an answer is waited for.
    assert_eq!(
        value(
            &bench,
            &web,
            "let n = 0; const t = setInterval(() => n++, 5); \
             await Promise.all([fetch(at('/json')), new Promise((r) => setTimeout(r, 100))]); clearInterval(t); return n > 0;"
        ),
        json!(true)
    );
    let cancel = AtomicBool::new(false);
    let code = format!(
        "export default () => fetch('http://api.example:{}/slow');",
        web.port
    );
    std::thread::scope(|scope| {
        let called = scope.spawn(|| bench.call_until(&code, &json!({}), &cancel, |_| {}));
        std::thread::sleep(Duration::from_millis(300));
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(called.join().unwrap().unwrap_err().kind, Cancelled);
    });
    assert_eq!(
        value(&bench, &web, "return (await fetch(at('/'))).text();"),
        json!("ok")
    );
}

#[test]
fn a_call_makes_a_hundred_requests_and_no_more() {
    let (bench, web) = granted();
    let max = CALL_BUDGET.requests;
    let flood = format!(
        "const r = await Promise.allSettled(Array.from({{ length: {max} + 20 }}, () => fetch(at('/json')))); \
         const left = r.filter((one) => one.status === 'rejected'); \
         return [r.length - left.length, left.length, left[0].reason.code, left[0].reason.message];"
    );
    let told = value(&bench, &web, &flood);
    assert_eq!(
        told.as_array().unwrap()[..3],
        [json!(max), json!(20), json!("E_LIMIT")]
    );
    assert_eq!(web.asked(), max as usize);
    // A redirect is a request as well.
    let told = value(
        &bench,
        &web,
        &format!(
            "const r = await Promise.allSettled(Array.from({{ length: {max} }}, () => fetch(at('/round')))); \
             return r.filter((one) => one.status === 'fulfilled').length;"
        ),
    );
    assert!(told.as_u64().unwrap() <= u64::from(max / 2), "{told}");
    assert!(web.asked() <= 2 * max as usize);
    // A tool that takes no answer holds nobody up.
    let idle = "for (let i = 0; i < 20; i++) fetch(at('/fits')); for (;;) {}";
    assert_eq!(
        call(&bench, Engine::Quickjs, &web, idle, 1000)
            .unwrap_err()
            .kind,
        Timeout
    );
    assert_eq!(
        value(&bench, &web, "return (await fetch(at('/'))).text();"),
        json!("ok")
    );
}

#[test]
fn a_grant_gives_the_process_itself_no_network() {
    let (bench, web) = granted();
    assert_eq!(
        value(
            &bench,
            &web,
            "return [typeof WebSocket, typeof XMLHttpRequest, typeof Headers, typeof Response];"
        ),
        json!(["undefined", "undefined", "function", "function"])
    );
    for code in [
        "await import('node:net');",
        "require('net');",
        "require('http');",
    ] {
        let failure = call(&bench, Engine::Quickjs, &web, code, 5000).unwrap_err();
        assert!(
            failure.message.contains("there is no module"),
            "{failure:?}"
        );
    }
}

#[test]
fn node_reaches_the_same_hosts() {
    let (bench, web) = granted();
    let report = call(
        &bench,
        Engine::Node,
        &web,
        "return (await (await fetch(at('/json'))).json()).a[1];",
        10_000,
    );
    assert_eq!(report.unwrap().value, json!("é"));
    let failure = call(
        &bench,
        Engine::Node,
        &web,
        "await fetch('http://evil.example/');",
        10_000,
    )
    .unwrap_err();
    assert_eq!(failure.kind, ToolError);
    assert!(failure.message.contains("E_NETWORK"), "{failure:?}");
    assert!(
        failure
            .refused_hosts
            .iter()
            .any(|one| one.host == "evil.example"),
        "{failure:?}"
    );
}

/// One runner, three tools: what is granted to one opens nothing for another, in both engines.
#[test]
fn a_tool_reaches_the_hosts_of_all_and_its_own_and_those_of_no_other() {
    let (bench, web) = granted_by(
        &[
            "all.example:PORT=127.0.0.1",
            "weather=api.example:PORT=127.0.0.1",
            "news=news.example:PORT=127.0.0.1",
        ],
        &["news=all.example"],
    );
    let port = web.port;
    let ask = |engine: Engine, tool: &'static str, host: &str| {
        let code =
            format!("export default async () => (await fetch('http://{host}:{port}/')).text();");
        let called = bench.call_with(&code, &json!({}), |request| {
            request.engine = engine;
            request.tool = tool;
        });
        called.map(|report| report.value).map_err(|failure| {
            assert!(failure.message.contains("E_NETWORK"), "{failure:?}");
            let mut refused = failure.refused_hosts.into_iter();
            let one = refused.find(|one| one.host == host);
            one.map(|one| (one.reason, one.remedy))
        })
    };
    for engine in [Engine::Quickjs, Engine::Node] {
        let refused = |tool: &'static str, host: &str, reason: EgressReason, remedy: &str| {
            let (was, told) = ask(engine, tool, host).unwrap_err().unwrap_or_else(|| {
                panic!("{engine} {tool} {host}: the host is not among those that were refused")
            });
            assert_eq!(
                (was, told.as_str()),
                (reason, remedy),
                "{engine} {tool} {host}"
            );
        };
        for (tool, host) in [
            ("weather", "all.example"),
            ("weather", "api.example"),
            ("news", "news.example"),
            ("other", "all.example"),
        ] {
            assert_eq!(
                ask(engine, tool, host),
                Ok(json!("ok")),
                "{engine} {tool} {host}"
            );
        }
        for (tool, host) in [
            ("news", "api.example"),
            ("other", "api.example"),
            ("weather", "news.example"),
        ] {
            // Of a name that is not listed Node hears when it looks it up: no port is known then.
            let remedy = match engine {
                Engine::Quickjs => format!("`--bundle-allow {tool}={host}:{port}` opens it"),
                Engine::Node => format!("`--bundle-allow {tool}={host}` opens it"),
            };
            refused(tool, host, EgressReason::Unlisted, &remedy);
        }
        let remedy = "whoever runs the tool can leave out that `--bundle-deny`";
        refused("news", "all.example", EgressReason::Denied, remedy);
    }
    assert_eq!(web.asked(), 8);
}

/// A tool for which nothing is granted is told what was refused, also in Node, whose sandbox then reaches nothing.
#[test]
fn a_tool_without_a_host_of_its_own_is_told_what_opens_one() {
    let (bench, web) = granted_by(&["weather=api.example:PORT=127.0.0.1"], &[]);
    for engine in [Engine::Quickjs, Engine::Node] {
        let failure = call(&bench, engine, &web, "await fetch(at('/'));", 10_000).unwrap_err();
        let [refused] = &*failure.refused_hosts else {
            panic!("{engine}: {failure:?}");
        };
        assert!(
            refused
                .remedy
                .starts_with("`--bundle-allow get=api.example"),
            "{engine}: {refused:?}"
        );
    }
    assert_eq!(web.asked(), 0);
}

/// What calls ask for is counted for whoever keeps accounts: by tenant, session and tool, in both engines alike.
#[test]
fn what_calls_ask_of_hosts_is_told_by_whose_it_was() {
    // Nobody listens there. Not one of the ports that the Fetch standard closes, of which Node asks nobody.
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (bench, web) = granted_by(
        &[
            "api.example:PORT=127.0.0.1",
            &format!("gone.example:{gone}=127.0.0.1"),
        ],
        &[],
    );
    let port = web.port;
    let code = format!(
        "export default async () => {{ for (const url of ['http://api.example:{port}/', 'http://api.example:{port}/', \
         'http://evil.example/', 'http://gone.example:{gone}/']) {{ try {{ await (await fetch(url)).text(); }} catch {{}} }} }};"
    );
    let run = |engine, tenant: &'static str, session: Option<&'static str>| {
        let called = bench.call_with(&code, &json!({}), |request| {
            request.engine = engine;
            request.tenant = tenant;
            request.session = session;
        });
        called.unwrap();
    };
    for engine in [Engine::Quickjs, Engine::Node] {
        run(engine, "ann", None);
        run(engine, "ann", None);
        run(engine, "ann", Some("s-1"));
        run(engine, "bea", None);
        let mut news = bench.runner.take_network_news(true);
        news.sort_by_key(|(caller, _)| (caller.tenant.clone(), caller.session.clone()));
        let whose: Vec<_> = news
            .iter()
            .map(|(caller, _)| {
                assert_eq!(caller.tool, "get");
                (caller.tenant.as_str(), caller.session.as_deref())
            })
            .collect();
        assert_eq!(whose, [("ann", None), ("ann", Some("s-1")), ("bea", None)]);
        for ((_, news), calls) in news.iter().zip([2, 1, 1]) {
            assert_eq!(news.allowed, 2 * calls, "{engine}: {news:?}");
            assert_eq!(news.failed, calls, "{engine}: {news:?}");
            // A look-up may ask for both versions of addresses.
            let refused = news.refused["unlisted"];
            assert!((calls..=4 * calls).contains(&refused), "{engine}: {news:?}");
            assert!(news.received_bytes >= 2 * 2 * calls, "{engine}: {news:?}");
            let mut hosts: Vec<_> = news
                .decisions
                .iter()
                .map(|sum| (sum.host.as_deref().unwrap(), sum.verdict.word()))
                .collect();
            hosts.sort_unstable();
            hosts.dedup();
            let expected = [
                ("api.example", "allowed"),
                ("evil.example", "refused"),
                ("gone.example", "failed"),
            ];
            assert_eq!(hosts, expected, "{engine}");
            let allowed = news
                .decisions
                .iter()
                .find(|sum| sum.verdict.word() == "allowed");
            let allowed = allowed.unwrap();
            // Equal decisions of several calls are told together, with the rule.
            assert_eq!(allowed.count, 2 * calls, "{engine}");
            assert_eq!(allowed.rule, Some(format!("api.example:{port}=127.0.0.1")));
        }
    }
}

/// Calls of one tenant whose server does not answer leave places to the calls of others.
#[test]
fn a_tenant_does_not_hold_the_places_of_others() {
    let (bench, web) = granted();
    let code = |path: &str| {
        format!(
            "export default async () => (await Promise.all(Array.from({{ length: 6 }}, () => fetch('http://api.example:{}{path}')))).length;",
            web.port
        )
    };
    let (slow, fast) = (code("/slow"), code("/json"));
    let run = |tenant: &str, code: &str, wall_ms: u64| {
        bench.call_with(code, &json!({}), |request| {
            request.tenant = tenant;
            request.limits.wall_ms = wall_ms;
        })
    };
    std::thread::scope(|scope| {
        let held: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| run("slow", &slow, 8000)))
            .collect();
        // Until they have all the places that they can get.
        let begun = Instant::now();
        while web.asked() < 8 && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let begun = Instant::now();
        assert_eq!(run("fast", &fast, 5000).unwrap().value, json!(6));
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(web.asked(), 8 + 6);
        for call in held {
            assert_eq!(call.join().unwrap().unwrap_err().kind, Timeout);
        }
    });
    // Their places are free again.
    assert_eq!(run("slow", &fast, 5000).unwrap().value, json!(6));
}

/// What servers send counts to the bound of a call, also what leads elsewhere.
#[test]
fn bodies_of_redirects_count() {
    let (bench, web) = granted();
    let told = value(
        &bench,
        &web,
        "const codes = []; for (let i = 0; i < 10; i++) { try { await fetch(at('/heavy')); codes.push('ok'); } catch (e) { codes.push(e.code); } } return codes;",
    );
    let told = told.as_array().unwrap();
    // Each has 4 MiB before it leads to an answer, and 32 MiB is what a call may receive.
    assert_eq!(told[0], json!("ok"), "{told:?}");
    assert_eq!(told[9], json!("E_LIMIT"), "{told:?}");
    let fine = told.iter().filter(|code| **code == json!("ok")).count();
    assert!((6..=8).contains(&fine), "{told:?}");
}
