//! `fetch` of tools over HTTP: hosts that the operator grants, and what callers are told of others.

use super::uploads::{files_over_tls, tls_of};
use super::*;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

/// Tools that fetch what they are told.
const FETCHING: &str = r#"
import { tool } from "ai";
import { z } from "zod";
export const get = tool({
  description: "t",
  inputSchema: z.object({ url: z.string() }),
  execute: async ({ url }) => {
    const answer = await fetch(url);
    return [answer.status, await answer.text()];
  },
});
"#;

fn audit(person: &Person) -> Vec<Value> {
    let path = person.place().state().join("server/audit.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A host without TLS that answers `hello` to everything.
fn plain_host() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
            );
        }
    });
    port
}

#[test]
fn tools_reach_hosts_that_the_operator_grants_and_no_others() {
    let person = Person::myself();
    let server = example_server(&person, "");
    let admin = server.admin();
    let bundle = hash(&admin, FETCHING);
    let call = |client: &Client, url: &str| {
        let body = json!({ "bundle": bundle, "tool": "get", "arguments": { "url": url } });
        client.post("/api/tool", &body)
    };
    let health = admin.get("/api/tool").expect(200).json();
    assert_eq!(health["can_fetch"], json!(false));
    let refused = call(&admin, "https://api.example.test/").expect(422);
    insta::assert_snapshot!(refused.words(), @"TypeError: E_NETWORK: tools have no network here; who runs them can grant hosts, and has granted none");
    drop(server);

    let person = Person::myself();
    let (config, certificate) = tls_of("api.example.test");
    let ca = person.write("ca.pem", certificate);
    let port = files_over_tls(config, |path| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}",
            path.len()
        )
        .into_bytes()
    });
    let granted = format!("--bundle-allow api.example.test:{port}=127.0.0.1");
    let server = example_server(&person, &format!("{granted} --bundle-ca {}", ca.display()));
    let admin = server.admin();
    assert_eq!(hash(&admin, FETCHING), bundle);
    let health = admin.get("/api/tool").expect(200).json();
    assert_eq!(health["can_fetch"], json!(true));
    let url = format!("https://api.example.test:{port}/a?b=c");
    let answered = call(&admin, &url).expect(200).json();
    assert_eq!(answered["result"], json!([200, "/a?b=c"]));
    let refused = call(&admin, "https://evil.example.test/")
        .expect(422)
        .json();
    assert_eq!(refused["error"]["code"], "tool_error");
    assert_eq!(
        refused["error"]["details"]["refused_hosts"],
        json!([{
            "host": "evil.example.test", "port": 443, "reason": "unlisted",
            "remedy": "`--bundle-allow get=evil.example.test` opens it",
        }])
    );
    // Each is counted, and written down with whose it was.
    let metrics = admin.get("/metrics").expect(200).text();
    for line in [
        r#"glovebox_egress_connections_total{verdict="allowed",reason=""} 1"#,
        r#"glovebox_egress_connections_total{verdict="refused",reason="unlisted"} 1"#,
        r#"glovebox_egress_bytes_total{direction="received"} 6"#,
    ] {
        assert!(
            metrics.lines().any(|one| one == line),
            "{line} in:\n{metrics}"
        );
    }
    let audit = audit(&person);
    let told = |host: &str, verdict: &str| {
        let mut about = audit
            .iter()
            .filter(|line| line["host"] == host && line["user"] == "admin");
        about.any(|line| line["kind"] == "egress" && line["verdict"] == verdict)
    };
    assert!(told("api.example.test", "allowed"), "{audit:?}");
    assert!(told("evil.example.test", "refused"), "{audit:?}");
    drop(server);

    // Without its certificate the host is not believed.
    let server = example_server(&person, &granted);
    let admin = server.admin();
    let failed = call(&admin, &url).expect(422).json();
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("could not be asked"), "{failed}");
}

/// Two tools that fetch what they are told, and an agent with one of them.
const TWO_FETCHING: &str = r#"
import { createLightfast } from "lightfast/client";
import { createAgent } from "lightfast/agent";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import { z } from "zod";
const get = async ({ url }) => (await fetch(url)).text();
const weather = createTool({ description: "t", inputSchema: z.object({ url: z.string() }), execute: get });
const news = createTool({ description: "t", inputSchema: z.object({ url: z.string() }), execute: get });
export default createLightfast({
  agents: { assistant: createAgent({ name: "assistant", system: "s", model: gateway("gpt-4"), tools: { weather, news } }) },
});
"#;

/// R143: a host that is granted to one tool is closed to another of the same bundle, and each decision is counted and
/// written down with whose it was: the user, the tool, the call, and of a run its session. In both engines.
#[test]
fn each_tool_has_hosts_of_its_own_and_each_decision_is_written_down_with_its_call() {
    let person = Person::myself();
    let port = plain_host();
    let url = format!("http://api.example.test:{port}/");
    let model = recording(&person, "fetches", &[("weather", json!({ "url": url }))]);
    let server = Server::start(
        &person,
        &format!(
            "--model {model} --allow-model gateway/gpt-4={model} --bundle-engine node \
             --bundle-allow weather=api.example.test:{port}=127.0.0.1"
        ),
    );
    let admin = server.admin();
    let count = |verdict: &str, reason: &str| {
        let labels = format!(r#"verdict="{verdict}",reason="{reason}""#);
        admin.metric(&format!("glovebox_egress_connections_total{{{labels}}}"))
    };
    for (at, engine) in ["quickjs", "node"].into_iter().enumerate() {
        // Users of their own, so that nothing of one engine is told with the other's.
        let name = format!("user-{engine}");
        let client = server.client(&user(&person, &name));
        let bundle = hash(&client, TWO_FETCHING);
        let call = |tool: &str, id: &str| {
            let body = json!({
                "bundle": bundle, "tool": tool, "arguments": { "url": url }, "engine": engine, "call_id": id,
            });
            client.post("/api/tool", &body)
        };
        let (allowed, refused) = (count("allowed", ""), count("refused", "unlisted"));
        assert_eq!(allowed, 2 * at as u64);
        let answered = call("weather", "w-1").expect(200).json();
        assert_eq!(answered["result"], "hello", "{engine}");
        let told = call("news", "n-1").expect(422).json();
        let hosts = &told["error"]["details"]["refused_hosts"];
        assert_eq!(hosts[0]["host"], "api.example.test", "{engine}: {told}");
        let remedy = hosts[0]["remedy"].as_str().unwrap();
        assert!(
            remedy.starts_with("`--bundle-allow news=api.example.test"),
            "{engine}: {remedy}"
        );
        let run = json!({ "bundle": bundle, "input": "how warm is it?", "engine": engine });
        let (session, _) = execute(&client, &run);

        assert_eq!(count("allowed", ""), allowed + 2, "{engine}");
        // A look-up may ask for both versions of addresses, and more than once.
        let more = count("refused", "unlisted") - refused;
        assert!((1..=4).contains(&more), "{engine}: {more}");
        let entries = audit(&person);
        let lines: Vec<&Value> = entries
            .iter()
            .filter(|line| line["kind"] == "egress" && line["user"] == name)
            .collect();
        let of = |tool: &str, session: Value| -> Vec<&&Value> {
            let mine = lines.iter();
            mine.filter(|line| line["tool"] == tool && line["session"] == session)
                .collect()
        };
        let weather = of("weather", Value::Null);
        assert_eq!(weather.len(), 1, "{lines:?}");
        let rule = format!("api.example.test:{port}=127.0.0.1");
        assert_eq!(weather[0]["rule"], rule);
        assert_eq!(
            (
                &weather[0]["host"],
                &weather[0]["verdict"],
                &weather[0]["count"]
            ),
            (&json!("api.example.test"), &json!("allowed"), &json!(1))
        );
        assert_eq!(weather[0]["calls"], json!(["w-1"]));
        let news = of("news", Value::Null);
        let refusals: u64 = news
            .iter()
            .map(|line| line["count"].as_u64().unwrap())
            .sum();
        assert_eq!(refusals, more, "{news:?}");
        for line in &news {
            assert_eq!(
                (&line["verdict"], &line["reason"], &line["calls"]),
                (&json!("refused"), &json!("unlisted"), &json!(["n-1"])),
                "{line}"
            );
        }
        // The call of the run has a line of its own with the same name.
        let of_run = of("weather", json!(session));
        assert_eq!(of_run.len(), 1, "{lines:?}");
        let call_of_run = entries
            .iter()
            .find(|line| line["kind"] == "tool" && line["session"] == json!(session))
            .unwrap();
        assert_eq!(of_run[0]["calls"], json!([call_of_run["call"]]));
        assert_eq!(lines.len(), 2 + news.len(), "{lines:?}");
    }
    let text = admin.get("/metrics").text();
    assert!(!text.contains("example.test"), "{text}");
}

/// What a tool asks for again and again is a count, and not a line each; none is lost when the server ends.
#[test]
fn equal_decisions_of_many_calls_are_one_line_and_all_are_told_before_the_server_ends() {
    let person = Person::myself();
    let port = plain_host();
    let server = example_server(
        &person,
        &format!("--bundle-engine node --bundle-allow api.example.test:{port}=127.0.0.1"),
    );
    let admin = server.admin();
    let bundle = hash(&admin, FETCHING);
    let url = format!("http://api.example.test:{port}/");
    let call = |engine: &str| {
        let body = json!({
            "bundle": bundle, "tool": "get", "arguments": { "url": url }, "engine": engine,
        });
        admin.post("/api/tool", &body).expect(200);
    };
    for engine in ["quickjs", "node", "quickjs", "node"] {
        call(engine);
        // It is told at once: what follows is of a second line.
        admin.get("/metrics").expect(200);
    }
    let lines = |person: &Person| -> Vec<u64> {
        let entries = audit(person).into_iter();
        let about = entries.filter(|line| line["host"] == "api.example.test");
        about.map(|line| line["count"].as_u64().unwrap()).collect()
    };
    assert_eq!(lines(&person), [1]);
    assert_eq!(server.end(), Some(0));
    assert_eq!(lines(&person), [1, 3]);
}
