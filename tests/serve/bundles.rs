//! Bundles: uploaded, run, called tool by tool; what they may not do; and whose they are.

use crate::server::{Answer, Client, PATIENCE, Server, TOKEN, recording};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{ModelServer, Person, Step, wait_until};

/// The example of the requirements (R146): one arrow function as a tool, one agent, a model of the gateway.
const EXAMPLE: &str = r#"
const { createLightfast } = require("lightfast/client");
const { createAgent } = require("lightfast/agent");
const { createTool } = require("lightfast/tool");
const { gateway } = require("@ai-sdk/gateway");
const { z } = require("zod");

const myTool = createTool({
  description: "Says hello to somebody",
  inputSchema: z.object({ name: z.string().min(1) }),
  outputSchema: z.object({ hello: z.string() }),
  execute: async ({ name }) => ({ hello: name }),
});

module.exports = createLightfast({
  agents: {
    assistant: createAgent({
      name: "assistant",
      system: "You are helpful",
      model: gateway("gpt-4"),
      tools: { myTool },
    }),
  },
});
"#;

/// The same with what only ever happens where the whole file runs.
fn hostile(top_level: &str) -> String {
    format!("{EXAMPLE}\n{top_level}\n")
}

/// Tools that end in every way a tool can.
const TOOLS: &str = r#"
import { tool } from "ai";
import { z } from "zod";
const any = z.object({});
export const throws = tool({ description: "t", inputSchema: any, execute: async () => { throw new TypeError("no \u001b[31m luck"); } });
export const loops = tool({ description: "t", inputSchema: any, execute: () => { for (;;) {} } });
export const eats = tool({ description: "t", inputSchema: any, execute: () => { const all = []; for (;;) all.push(new Array(1e6).fill(1)); } });
export const talks = tool({ description: "t", inputSchema: any, execute: () => "x".repeat(3e6) });
export const lies = tool({ description: "t", inputSchema: any, outputSchema: z.object({ n: z.number() }), execute: () => ({ n: "1" }) });
export const echo = tool({
  description: "t",
  inputSchema: z.object({ text: z.string(), n: z.number().optional() }),
  execute: (input, context) => { console.log("said", input.text); return { input, keys: Object.keys(input), who: context.resourceId ?? null }; },
});
export const asks = tool({ description: "t", inputSchema: any });
let seen = 0;
export const counts = tool({ description: "t", inputSchema: any, execute: () => ++seen });
export const reaches = tool({
  description: "t", inputSchema: any,
  execute: () => [typeof process, typeof Deno, typeof WebAssembly, typeof XMLHttpRequest].join(),
});
"#;

fn put(client: &Client, text: &str) -> Answer {
    client.ask(
        "PUT",
        "/api/bundles",
        &[("content-type", "text/javascript")],
        text.as_bytes(),
    )
}

#[track_caller]
fn hash(client: &Client, text: &str) -> String {
    let stored = put(client, text).expect(200).json();
    stored["hash"].as_str().unwrap().to_owned()
}

/// Follows the answer to a run: its events, and the session.
#[track_caller]
fn execute(client: &Client, body: &Value) -> (String, Vec<Value>) {
    let answer = client.post("/api/execute", body).expect(200);
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/event-stream")
    );
    let events: Vec<Value> = events(&answer.text());
    let session = events[0]["session_id"].as_str().unwrap().to_owned();
    (session, events)
}

fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

fn user(person: &Person, name: &str) -> String {
    let made = person
        .line(&format!("token create {name} --scope run --json"))
        .run();
    let json: Value = serde_json::from_str(&made.expect_code(0).out()).unwrap();
    json["data"]["token"].as_str().unwrap().to_owned()
}

/// A server whose model calls `myTool` and then says what came of it.
fn example_server(person: &Person, args: &str) -> Server {
    let model = recording(person, "model", &[("myTool", json!({ "name": "ann" }))]);
    Server::start(
        person,
        &format!("--model {model} --allow-model gateway/gpt-4={model} {args}"),
    )
}

/// R135, R146: the example is uploaded, its agent runs with its tool and nothing else, and the tool is called alone.
#[test]
fn the_example_runs_over_http_with_its_own_tool_and_nothing_else() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    let stored = put(&admin, EXAMPLE).expect(200).json();
    let hash = stored["hash"].as_str().unwrap();
    let agent = &stored["agents"][0];
    assert_eq!(agent["key"], "assistant");
    assert_eq!(agent["system"], "You are helpful");
    assert_eq!(agent["model"]["name"], "gpt-4");
    assert!(
        agent["model"]["model"]
            .as_str()
            .unwrap()
            .starts_with("replay:")
    );
    assert_eq!(
        agent["tools"][0]["input_schema"]["required"],
        json!(["name"])
    );
    assert_eq!(
        put(&admin, EXAMPLE).expect(200).json()["hash"],
        hash,
        "the same text is the same bundle"
    );
    let shown = admin
        .get(&format!("/api/bundles/{hash}"))
        .expect(200)
        .json();
    assert_eq!(shown["agents"], stored["agents"]);

    let run = json!({ "bundle": hash, "agentName": "assistant", "input": "greet ann" });
    let (session, events) = execute(&admin, &run);
    let started = of_type(&events, "started")[0];
    assert_eq!(started["tools"], json!(["myTool"]));
    assert_eq!(
        (&started["placement"], &started["sandbox"]),
        (&json!("bundle"), &Value::Null)
    );
    assert_eq!(
        started["declared"],
        json!({ "bundle": hash, "agent": "assistant" })
    );
    let finished = of_type(&events, "call_finished")[0];
    assert_eq!(
        (&finished["text"], &finished["is_error"]),
        (&json!("{\"hello\":\"ann\"}"), &json!(false))
    );
    assert_eq!(of_type(&events, "ended")[0]["ending"], "completed");

    // The session goes on with more words, and its tools can be called by its name.
    let more = json!({ "sessionId": session, "input": "and now?" });
    let (again, events) = execute(&admin, &more);
    assert_eq!(again, session);
    assert_eq!(
        of_type(&events, "started").len(),
        0,
        "what was before is not told again"
    );
    assert_eq!(of_type(&events, "ended").len(), 1);
    let call = json!({ "run_id": session, "tool": "myTool", "arguments": { "name": "bob" }, "call_id": "c-1" });
    let called = admin.post("/api/tool", &call).expect(200).json();
    assert_eq!(
        (&called["result"], &called["call_id"]),
        (&json!({ "hello": "bob" }), &json!("c-1"))
    );
    let health = admin.get("/api/tool").expect(200).json();
    assert_eq!(
        (&health["is_ready"], &health["needs_signature"]),
        (&json!(true), &json!(false))
    );

    let absent = json!({ "bundle": hash, "agentName": "\"); process.exit(1); //\n\u{1b}[31m", "input": "x" });
    let absent = admin.post("/api/execute", &absent).expect(404);
    assert_eq!(
        absent.json()["error"]["details"]["agents"],
        json!(["assistant"])
    );
    assert!(
        !absent.text().contains('\u{1b}') && !absent.text().contains("\\u001b"),
        "{absent:?}"
    );

    assert_eq!(
        admin.get("/api/bundles").expect(200).json()["bundles"][0]["hash"],
        hash
    );
    admin.delete(&format!("/api/bundles/{hash}")).expect(204);
    admin.delete(&format!("/api/bundles/{hash}")).expect(404);
    admin.post("/api/tool", &call).expect(404);
    admin.post("/api/execute", &more).expect(404);
}

/// R129, R145: nothing of a bundle runs but the tool that is called.
#[test]
fn what_a_bundle_does_at_its_top_level_never_happens() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    for top_level in [
        "throw new Error('never');",
        "for (;;) {}",
        "require('node:fs').writeFileSync('/tmp/never', 'x');",
        "globalThis.polluted = Object.prototype.polluted = 1;",
    ] {
        let hash = hash(&admin, &hostile(top_level));
        let call = json!({ "bundle": hash, "tool": "myTool", "arguments": { "name": "a" } });
        let called = admin.post("/api/tool", &call).expect(200).json();
        assert_eq!(called["result"], json!({ "hello": "a" }), "{top_level}");
        let (_, events) = execute(&admin, &json!({ "bundle": hash, "input": "x" }));
        assert_eq!(
            of_type(&events, "ended")[0]["ending"],
            "completed",
            "{top_level}"
        );
    }
    assert!(!std::path::Path::new("/tmp/never").exists());
}

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

/// Everything that is wrong with an upload is told at once, and nothing of it is kept.
#[test]
fn a_wrong_upload_is_refused_with_every_error() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    let two = EXAMPLE
        .replace(
            "gateway(\"gpt-4\")",
            "process.env.X ? gateway(\"a\") : gateway(\"b\")",
        )
        .replace("system: \"You are helpful\",", "");
    let refused = put(&admin, &two).expect(422).json();
    let problems = refused["error"]["details"]["problems"].as_array().unwrap();
    let codes: Vec<&str> = problems
        .iter()
        .map(|one| one["code"].as_str().unwrap())
        .collect();
    assert!(
        codes.contains(&"E_CONDITIONAL") && codes.contains(&"E_FIELD_MISSING"),
        "{codes:?}"
    );
    assert!(
        problems
            .iter()
            .all(|one| one["line"].as_u64() > Some(0) && one["hint"].is_string())
    );
    // Names that no model can call, and schemas that lead elsewhere or round.
    for tools in [
        "{ \"a b\": tool({ description: \"t\", inputSchema: z.object({}), execute: () => 1 }) }",
        "{ a: tool({ description: \"t\", inputSchema: jsonSchema({ $ref: \"http://127.0.0.1:1/x\" }), execute: () => 1 }) }",
        "{ a: tool({ description: \"t\", inputSchema: jsonSchema({ $ref: \"#\" }), execute: () => 1 }) }",
    ] {
        let text = EXAMPLE.replace("tools: { myTool }", &format!("tools: {tools}"));
        let text = format!("const {{ tool, jsonSchema }} = require(\"ai\");\n{text}");
        let refused = put(&admin, &text).expect(422);
        assert!(
            refused.json()["error"]["details"].is_object(),
            "{refused:?}"
        );
    }
    put(&admin, "").expect(422);
    put(&admin, "export default 1").expect(422);
    admin
        .ask("PUT", "/api/bundles", &[], b"\xff\xfe")
        .expect(400);
    admin
        .ask("PUT", "/api/bundles", &[], &vec![b' '; (8 << 20) + 1])
        .expect(413);
    admin
        .ask("PUT", "/api/bundles?language=python", &[], b"1")
        .expect(400);
    let deep = format!("export default {}", "[".repeat(200_000));
    put(&admin, &deep).expect(422);
    assert_eq!(
        admin.get("/api/bundles").expect(200).json()["bundles"],
        json!([])
    );
    server.anybody().get("/api/bundles").expect(401);
}

/// A model that no rule names is refused by its name, before anything begins.
#[test]
fn a_model_that_is_not_allowed_is_refused_by_name() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    let bundle = hash(&admin, &EXAMPLE.replace("gpt-4", "gpt-5-ultra"));
    let shown = admin
        .get(&format!("/api/bundles/{bundle}"))
        .expect(200)
        .json();
    assert_eq!(shown["agents"][0]["model"]["model"], Value::Null);
    let refused = admin
        .post("/api/execute", &json!({ "bundle": bundle, "input": "x" }))
        .expect(403);
    assert!(
        refused.text().contains("gateway/gpt-5-ultra"),
        "{refused:?}"
    );
    assert_eq!(admin.get("/api/sessions").json()["sessions"], json!([]));
}

/// Users see their own bundles, runs and tools, also where the text is the same.
#[test]
fn two_tenants_do_not_see_each_others_bundles_runs_and_tools() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let (ann, bob) = (
        server.client(&user(&person, "ann")),
        server.client(&user(&person, "bob")),
    );
    let bundle = hash(&ann, EXAMPLE);
    let (session, _) = execute(&ann, &json!({ "bundle": bundle, "input": "x" }));
    let of_bundle = json!({ "bundle": bundle, "tool": "myTool", "arguments": { "name": "x" } });
    let of_run = json!({ "run_id": session, "tool": "myTool", "arguments": { "name": "x" } });
    assert_eq!(
        bob.get("/api/bundles").expect(200).json()["bundles"],
        json!([])
    );
    bob.get(&format!("/api/bundles/{bundle}")).expect(404);
    bob.delete(&format!("/api/bundles/{bundle}")).expect(404);
    bob.post("/api/tool", &of_bundle).expect(404);
    bob.post("/api/tool", &of_run).expect(404);
    bob.post("/api/execute", &json!({ "bundle": bundle, "input": "x" }))
        .expect(404);
    bob.post(
        "/api/execute",
        &json!({ "sessionId": session, "input": "x" }),
    )
    .expect(404);
    bob.get(&format!("/api/sessions/{session}/events"))
        .expect(404);
    // Bob's own upload of the same text is his; it stays when Ann's goes.
    assert_eq!(hash(&bob, EXAMPLE), bundle);
    ann.delete(&format!("/api/bundles/{bundle}")).expect(204);
    ann.post("/api/tool", &of_bundle).expect(404);
    bob.post("/api/tool", &of_bundle).expect(200);
    bob.post("/api/tool", &of_run).expect(404);
}

/// With keys of the operator only what they have signed is taken.
#[test]
fn only_signed_bundles_are_taken_where_there_are_keys() {
    let person = Person::myself();
    let key = "ops=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let server = example_server(&person, &format!("--bundle-key {key}"));
    let admin = server.admin();
    put(&admin, EXAMPLE).expect(403);
    let forged = [("glovebox-signature", "AAAA")];
    admin
        .ask("PUT", "/api/bundles", &forged, EXAMPLE.as_bytes())
        .expect(403);
    assert_eq!(admin.get("/api/tool").json()["needs_signature"], true);
    // A signature of RFC 8032 (test 1: the empty text) holds for its text alone, which is no bundle.
    let signature =
        "5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc+bRr0lv18FlbviRlUUFDjnoQCw==";
    let signed = [("glovebox-signature", signature)];
    admin.ask("PUT", "/api/bundles", &signed, b"").expect(422);
    admin
        .ask("PUT", "/api/bundles", &signed, EXAMPLE.as_bytes())
        .expect(403);
}

/// Addresses of bundles: only listed hosts, no other scheme, no private address that was not listed as one.
#[test]
fn a_bundle_is_fetched_from_nowhere_that_is_not_listed() {
    let person = Person::myself();
    let server = example_server(&person, "--bundle-host cdn.example.test");
    let admin = server.admin();
    for (url, status) in [
        ("https://127.0.0.1/x.js", 403),
        ("https://169.254.169.254/latest/meta-data", 403),
        ("https://[::1]/x.js", 403),
        ("https://2130706433/x.js", 403),
        ("https://example.com/x.js", 403),
        ("https://localhost/x.js", 403),
        ("http://cdn.example.test/x.js", 400),
        ("file:///etc/passwd", 400),
        ("https://user:pw@cdn.example.test/x.js", 400),
        ("https://cdn.example.test:8443/x.js", 403),
    ] {
        let answer = admin.post("/api/execute", &json!({ "bundleUrl": url, "input": "x" }));
        assert_eq!(answer.status, status, "{url}: {answer:?}");
    }
}

/// A server of files over TLS: what it answers, whole, to every request.
fn files_over_tls(
    config: rustls::ServerConfig,
    answer: impl Fn(&str) -> Vec<u8> + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(tls, stream);
            let mut head = String::new();
            let mut piece = [0; 1024];
            while !head.contains("\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(count) if count > 0 => {
                        head.push_str(&String::from_utf8_lossy(&piece[..count]));
                    }
                    _ => break,
                }
            }
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let _ = stream.write_all(&answer(&path));
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    port
}

/// A host that the operator has listed with its private address, and with a certificate of the operator's own.
#[test]
fn a_bundle_is_fetched_from_a_listed_host_as_it_is_pinned_and_no_further() {
    let person = Person::myself();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(["cdn.example.test".to_owned()]).unwrap();
    let ca = person.write("ca.pem", made.cert.pem());
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let port = files_over_tls(config, |path| {
        let whole = |body: &str| {
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        match path {
            "/agents.js" => whole(EXAMPLE),
            "/large.js" => whole(&" ".repeat((8 << 20) + 1)),
            "/away.js" => {
                "HTTP/1.1 302 Found\r\nlocation: /agents.js\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
        }
        .into_bytes()
    });
    let listed = format!("--bundle-host cdn.example.test:{port}=127.0.0.1");
    let server = example_server(&person, &format!("{listed} --bundle-ca {}", ca.display()));
    let admin = server.admin();
    let url = |path: &str| format!("https://cdn.example.test:{port}{path}");
    let (_, events) = execute(
        &admin,
        &json!({ "bundleUrl": url("/agents.js"), "input": "x" }),
    );
    assert_eq!(
        of_type(&events, "ended")[0]["ending"],
        "completed",
        "{events:?}"
    );
    let hash = admin.get("/api/bundles").json()["bundles"][0]["hash"]
        .as_str()
        .unwrap()
        .to_owned();
    let pinned = json!({ "bundleUrl": url("/none.js"), "bundleSha256": hash, "input": "x" });
    execute(&admin, &pinned);
    for (path, pin, status) in [
        ("/agents.js", Some("0".repeat(64)), 409),
        ("/large.js", None, 413),
        ("/away.js", None, 403),
        ("/none.js", None, 503),
    ] {
        let body = json!({ "bundleUrl": url(path), "bundleSha256": pin, "input": "x" });
        assert_eq!(admin.post("/api/execute", &body).status, status, "{path}");
    }
    // The same host without its certificate is not believed.
    let server = example_server(&person, &listed);
    let body = json!({ "bundleUrl": url("/agents.js"), "input": "x" });
    server.admin().post("/api/execute", &body).expect(503);
}

/// A server that is killed in the middle of a run finds the session again, and the run can go on.
#[test]
fn a_run_survives_the_end_of_its_server() {
    let person = Person::myself();
    let model = ModelServer::start([
        Step::call("myTool", r#"{"name":"ann"}"#),
        Step::Silence,
        Step::text("here again"),
    ]);
    let env = [
        ("OPENAI_BASE_URL", model.url()),
        ("OPENAI_API_KEY", "key".to_owned()),
    ];
    let args = "--model openai/gpt-test --allow-model gateway/gpt-4=openai/gpt-test";
    let server = Server::start_with(&person, args, &env);
    let bundle = hash(&server.admin(), EXAMPLE);
    let admin = server.admin();
    let runner = std::thread::spawn({
        let admin = admin.clone();
        // The server is killed before it has answered all of it.
        move || admin.attempt("/api/execute", &json!({ "bundle": bundle, "input": "x" }))
    });
    let mut session = String::new();
    assert!(wait_until(PATIENCE, || {
        let sessions = admin.get("/api/sessions").json();
        session = sessions["sessions"][0]["id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        sessions["sessions"][0]["events"].as_u64() > Some(4)
    }));
    drop(server);
    let _ = runner.join();
    let server = Server::start_with(&person, args, &env);
    let admin = server.admin();
    admin.await_state(&session, "interrupted");
    let (again, events) = execute(&admin, &json!({ "sessionId": session, "input": "go on" }));
    assert_eq!(again, session);
    assert_eq!(
        of_type(&events, "ended")[0]["ending"],
        "completed",
        "{events:?}"
    );
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

/// `useChat` of the AI SDK talks to an agent of a bundle: its own transport and its own reader.
#[test]
fn the_ai_sdk_chats_with_an_agent_of_a_bundle() {
    let Some(script) = testkit::installed("ai/node_modules/ai/package.json") else {
        testkit::skip!("the AI SDK is not installed");
    };
    let person = Person::myself();
    let server = example_server(&person, "");
    let bundle = hash(&server.admin(), EXAMPLE);
    let chat = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("serve/chat.mjs");
    let ran = std::process::Command::new("node")
        .arg(chat)
        .arg(script.ancestors().nth(3).unwrap())
        .arg(format!("http://{}", server.addr))
        .args([TOKEN, &bundle])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&ran.stdout)
    );
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        told["first"]["tool"],
        json!({ "state": "output-available", "input": { "name": "ann" }, "output": { "hello": "ann" } })
    );
    assert_eq!(told["first"]["text"], "done 0");
    assert_eq!(told["second"]["text"], "done 1");
    assert_eq!(told["regenerated"]["role"], "assistant");
    assert_eq!(told["status"], "ready");
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
    let refused = admin.post("/api/tool", &call).expect(403).json();
    assert!(
        refused["error"]["remedy"]
            .as_str()
            .unwrap_or_default()
            .contains("--bundle-engine node"),
        "{refused}"
    );
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
