//! One tool of a bundle, called over HTTP.

use super::*;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// R138: every way in which a call can fail has its status and its word, and the next call is answered as if nothing
/// had been.
#[test]
fn each_failure_of_a_tool_has_its_status_and_its_word() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    let bundle = hash(&admin, TOOLS);
    let call = |tool: &str, arguments: &Value, timeout: u32| {
        let body = json!({ "bundle": bundle, "tool": tool, "arguments": arguments, "timeout_ms": timeout });
        admin.post("/api/tool", &body)
    };
    for (tool, arguments, status, code) in [
        ("throws", json!({}), 422, "tool_error"),
        // The parser of the upload knows more of the language than the engine.
        ("newer", json!({}), 422, "syntax"),
        ("loops", json!({}), 504, "timeout"),
        ("eats", json!({}), 422, "memory"),
        ("talks", json!({}), 413, "output_limit"),
        ("lies", json!({}), 422, "invalid_result"),
        ("echo", json!({ "text": 1 }), 400, "invalid_arguments"),
        ("echo", json!({}), 400, "invalid_arguments"),
        ("asks", json!({}), 404, "not_executable"),
        ("none", json!({}), 404, "not_found"),
        ("constructor", json!({}), 404, "not_found"),
        ("__proto__", json!({}), 404, "not_found"),
        (
            "\"); process.exit(1); //\n\u{1b}[2J",
            json!({}),
            404,
            "not_found",
        ),
    ] {
        let timeout = if tool == "loops" { 300 } else { 10_000 };
        let answer = call(tool, &arguments, timeout).expect(status);
        assert_eq!(answer.code(), code, "{tool}");
        let message = answer.json()["error"]["message"].to_string();
        assert!(!message.contains("\\u001b"), "{tool}: {answer:?}");
        let begun = Instant::now();
        let honest = call("echo", &json!({ "text": "hi" }), 10_000)
            .expect(200)
            .json();
        assert_eq!(honest["result"]["input"]["text"], "hi", "after {tool}");
        assert!(begun.elapsed() < Duration::from_secs(5), "after {tool}");
    }
    let large = json!({ "text": "x".repeat(3 << 20) });
    assert_eq!(call("echo", &large, 10_000).expect(413).code(), "too-large");
    let thrown = call("throws", &json!({}), 10_000).expect(422).json();
    assert_eq!(thrown["error"]["details"]["thrown"]["name"], "TypeError");
    let wrong = call("echo", &json!({ "text": 1 }), 10_000)
        .expect(400)
        .json();
    assert_eq!(wrong["error"]["details"]["mismatches"][0]["path"], "/text");
    // Data stays data, state is not kept, and nothing of this machine is within reach.
    let polluting = call(
        "echo",
        &json!({ "text": "x", "__proto__": { "admin": true } }),
        10_000,
    );
    assert!(matches!(polluting.status, 200 | 400), "{polluting:?}");
    for _ in 0..2 {
        assert_eq!(
            call("counts", &json!({}), 10_000).expect(200).json()["result"],
            1
        );
    }
    let reached = call("reaches", &json!({}), 10_000).expect(200).json();
    assert_eq!(reached["result"], "undefined,undefined,undefined,undefined");
    let said = call("echo", &json!({ "text": "hi" }), 10_000)
        .expect(200)
        .json();
    assert_eq!(said["log"][0]["text"], "said hi");
    assert_eq!(said["result"]["who"], "admin");
    for (body, status) in [
        (json!({ "tool": "echo" }), 400),
        (
            json!({ "tool": "echo", "bundle": bundle, "run_id": "s-1" }),
            400,
        ),
        (
            json!({ "tool": "echo", "bundle": bundle, "timeout_ms": 0 }),
            400,
        ),
        (
            json!({ "tool": "echo", "bundle": bundle, "timeout_ms": 30_001 }),
            400,
        ),
        (
            json!({ "tool": "echo", "bundle": bundle, "call_id": "a b" }),
            400,
        ),
        (
            json!({ "tool": "echo", "bundle": bundle, "toolCode": "() => 1" }),
            400,
        ),
        (json!({ "tool": "echo", "bundle": "../../etc" }), 400),
        (json!({ "tool": "echo", "bundle": "0".repeat(64) }), 404),
        (json!({ "tool": "echo", "run_id": "s-none" }), 404),
    ] {
        assert_eq!(admin.post("/api/tool", &body).status, status, "{body}");
    }
}

/// A caller that leaves ends the call; the next one is answered.
#[test]
fn a_call_ends_with_its_caller() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    let bundle = hash(&admin, TOOLS);
    let body = json!({ "bundle": bundle, "tool": "loops", "timeout_ms": 30_000 }).to_string();
    let head = format!(
        "POST /api/tool HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        server.addr,
        body.len()
    );
    for _ in 0..20 {
        let mut stream = std::net::TcpStream::connect(&server.addr).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    // Twenty calls of one user would be more than are made at once, had they not ended.
    let call = json!({ "bundle": bundle, "tool": "echo", "arguments": { "text": "x" } });
    let is_answered = wait_until(PATIENCE, || admin.post("/api/tool", &call).status == 200);
    assert!(is_answered);
}

/// Node runs a tool only where the operator allows it, and a session keeps the engine that it began with.
#[test]
fn requests_name_an_engine_that_the_operator_allows() {
    let text = EXAMPLE.replace(
        "({ hello: name })",
        "({ hello: name + typeof new (globalThis.Intl ?? { NumberFormat: Object }).NumberFormat().format })",
    );
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    let bundle = hash(&admin, &text);
    let call = json!({ "bundle": bundle, "tool": "myTool", "arguments": { "name": "ann" }, "engine": "node" });
    let refused = admin.post("/api/tool", &call).expect(403);
    insta::assert_snapshot!(refused.words(), @"
    the engine `node` is not allowed here
    leave `engine` out; whoever runs the server allows it: `glovebox serve --bundle-engine node`
    ");
    let run = json!({ "bundle": bundle, "input": "greet ann", "engine": "node" });
    admin.post("/api/execute", &run).expect(403);
    let wrong = json!({ "bundle": bundle, "tool": "myTool", "arguments": { "name": "ann" }, "engine": "v8" });
    admin.post("/api/tool", &wrong).expect(400);
    drop(server);

    let person = Person::myself();
    let server = example_server(&person, "--bundle-engine node");
    let admin = server.admin();
    let bundle = hash(&admin, &text);
    let health = admin.get("/api/tool").expect(200).json();
    assert_eq!(health["engines"], json!(["quickjs", "node"]));
    let result = |body: &Value| admin.post("/api/tool", body).expect(200).json()["result"].clone();
    assert_eq!(result(&call), json!({ "hello": "annfunction" }));
    let usual = json!({ "bundle": bundle, "tool": "myTool", "arguments": { "name": "ann" } });
    assert_eq!(result(&usual), json!({ "hello": "annundefined" }));
    let (session, events) = execute(&admin, &run);
    let told = serde_json::to_string(&events).unwrap();
    assert!(told.contains("annfunction"), "{told}");
    let of_run = json!({ "run_id": session, "tool": "myTool", "arguments": { "name": "bob" } });
    assert_eq!(result(&of_run), json!({ "hello": "bobfunction" }));
    let other = json!({ "sessionId": session, "input": "more", "engine": "quickjs" });
    admin.post("/api/execute", &other).expect(400);
}
