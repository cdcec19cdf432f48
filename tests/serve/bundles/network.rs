//! `fetch` of tools over HTTP: hosts that the operator grants, and what callers are told of others.

use super::uploads::{files_over_tls, tls_of};
use super::*;

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
    let refused = call(&admin, "https://api.example.test/").expect(422).json();
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("has granted none"), "{refused}");
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
        json!([{ "host": "evil.example.test", "port": 443, "reason": "unlisted" }])
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
    let audit = person.place().state().join("server/audit.jsonl");
    let audit = std::fs::read_to_string(audit).unwrap();
    let told = |host: &str, verdict: &str| {
        let lines = audit
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut about = lines.filter(|line| line["host"] == host && line["user"] == "admin");
        about.any(|line| line["kind"] == "egress" && line["verdict"] == verdict)
    };
    assert!(told("api.example.test", "allowed"), "{audit}");
    assert!(told("evil.example.test", "refused"), "{audit}");
    drop(server);

    // Without its certificate the host is not believed.
    let server = example_server(&person, &granted);
    let admin = server.admin();
    let failed = call(&admin, &url).expect(422).json();
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("could not be asked"), "{failed}");
}
