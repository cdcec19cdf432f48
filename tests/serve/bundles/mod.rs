//! Bundles: uploaded, run, called tool by tool; what they may not do; and whose they are.

mod endurance;
mod network;
mod readiness;
mod tools;
mod uploads;

use crate::server::{Answer, Client, PATIENCE, Server, TOKEN, recording};
use serde_json::{Value, json};
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
export const newer = tool({ description: "t", inputSchema: any, execute: () => new (class { accessor n = 1; })().n });
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
    insta::assert_snapshot!(refused.words(), @"
    the agent `assistant` wants the model `gateway/gpt-5-ultra`, which is not allowed here
    whoever runs this allows it as the model `gateway/gpt-5-ultra=PROVIDER/NAME`
    ");
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
        // The silence is this server's, and not of the next one.
        sessions["sessions"][0]["events"].as_u64() > Some(4) && model.asked_count() == 2
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
