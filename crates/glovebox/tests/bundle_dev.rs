//! The page of `bundle dev`: its responses, their access control, and real calls of tools.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{Home, filters};

const BUNDLE: &str = "const { createLightfast, createAgent } = require('lightfast');
const { createTool } = require('lightfast/tool');
const { z } = require('zod');
const double = createTool({
  description: '<img src=x onerror=alert(1)>', inputSchema: z.object({ x: z.number() }), execute: async ({ x }) => { console.log('got', x); return x * 2; },
});
module.exports = createLightfast({ agents: { a: createAgent({ name: 'a', system: 's', model: 'm', tools: { double } }) } });
";

/// A running `bundle dev`, with the address of its page.
struct Dev {
    child: Child,
    file: PathBuf,
    address: String,
    code: String,
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dev {
    fn start(home: &Home) -> Self {
        let file = home.root().join("page.js");
        fs::write(&file, BUNDLE).unwrap();
        let mut child = Command::new(testkit::binary())
            .args(["bundle", "dev", file.to_str().unwrap()])
            .env("GLOVEBOX_STATE", home.state())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.find(|line| line.as_ref().unwrap().contains("http://"));
        let line = line.unwrap().unwrap();
        let (_, url) = line.split_once("http://").unwrap();
        let (address, code) = url.trim().split_once("/#").unwrap();
        let (address, code) = (address.to_owned(), code.to_owned());
        // Read its further output, or it would block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            file,
            address,
            code,
        }
    }

    /// Sends a request. Returns status, head and body of the response.
    fn ask(
        &self,
        request: &str,
        host: &str,
        code: Option<&str>,
        body: &str,
    ) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        let code = code.map_or(String::new(), |code| format!("x-glovebox-code: {code}\r\n"));
        let length = body.len();
        write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{code}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    fn json(&self, request: &str, body: &str) -> Value {
        let (status, _, body) = self.ask(request, &self.address, Some(&self.code), body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[test]
fn the_page_shows_the_bundle_as_it_is_saved_and_calls_its_tools() {
    let home = Home::new();
    let dev = Dev::start(&home);
    let state = dev.json("GET /api/state", "");
    assert_eq!(
        (&state["number"], &state["error_count"]),
        (&1.into(), &0.into())
    );
    assert_eq!(state["tools"][0]["name"], "double");
    let call = |arguments: Value| {
        let call = json!({"agent": "a", "tool": "double", "arguments": arguments});
        dev.json("POST /api/call", &call.to_string())
    };
    let done = call(json!({"x": 21}));
    assert_eq!(
        (&done["success"], &done["data"]["result"]),
        (&true.into(), &42.into()),
        "{done}"
    );
    assert_eq!(done["data"]["log"][0]["text"], "got 21");
    let wrong = call(json!({"x": "a"}));
    assert_eq!(
        (&wrong["success"], &wrong["data"]["kind"]),
        (&false.into(), &"invalid_arguments".into())
    );
    let missing = dev.json(
        "POST /api/call",
        r#"{"agent":"a","tool":"triple","arguments":{}}"#,
    );
    assert_eq!(missing["success"], false);
    // Save a version with an error, then the corrected one: the page waits for each.
    fs::write(
        &dev.file,
        BUNDLE.replace("model: 'm'", "model: process.env.M"),
    )
    .unwrap();
    let state = dev.json("GET /api/state?after=1", "");
    assert_eq!(
        (&state["number"], &state["error_count"]),
        (&2.into(), &1.into()),
        "{state}"
    );
    assert_eq!(state["problems"][0]["code"], "E_DYNAMIC_VALUE");
    let refused = call(json!({"x": 1}));
    let message = refused["message"].as_str().unwrap();
    insta::assert_snapshot!(filters(message, home.root()), @"the bundle has errors, so none of its tools can be called");
    fs::write(&dev.file, BUNDLE.replace("x * 2", "x * 3")).unwrap();
    assert_eq!(dev.json("GET /api/state?after=2", "")["error_count"], 0);
    assert_eq!(call(json!({"x": 2}))["data"]["result"], 6);
}

#[test]
fn the_page_answers_only_who_has_its_address_and_loads_nothing_from_elsewhere() {
    let home = Home::new();
    let dev = Dev::start(&home);
    let own = dev.address.as_str();
    for code in [None, Some(""), Some("0000"), Some(&dev.code[1..])] {
        for request in ["GET /api/state", "POST /api/call"] {
            let (status, _, body) = dev.ask(request, own, code, "{}");
            assert_eq!(status, 403, "{request} {code:?}: {body}");
        }
    }
    // A host name that an attacker points to this machine is refused, even with the code (DNS
    // rebinding).
    for host in ["evil.example", "evil.example:80", "127.0.0.1", "0.0.0.0:1"] {
        let (status, _, body) = dev.ask("GET /api/state", host, Some(&dev.code), "");
        assert_eq!(status, 421, "{host}: {body}");
        assert_eq!(dev.ask("GET /", host, None, "").0, 421);
    }
    for path in ["/", "/page.js", "/page.css"] {
        let (status, head, body) = dev.ask(&format!("GET {path}"), own, None, "");
        assert_eq!(status, 200);
        assert!(
            head.contains("content-security-policy: default-src 'none'; script-src 'self'"),
            "{head}"
        );
        assert!(
            !body.contains("://") && !body.contains(&dev.code),
            "{path}: {body}"
        );
        assert!(
            !body.contains("innerHTML") && !body.contains("<img"),
            "{path}"
        );
    }
    let too_large = format!("{{\"x\":\"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(
        dev.ask("POST /api/call", own, Some(&dev.code), &too_large)
            .0,
        413
    );
    // It listens on loopback only.
    assert!(own.starts_with("127.0.0.1:"), "{own}");
}

/// Ctrl-C ends the command, its page and the sandboxes of calls.
#[test]
fn an_interrupt_ends_everything() {
    let home = Home::new();
    let mut dev = Dev::start(&home);
    let call = json!({"agent": "a", "tool": "double", "arguments": {"x": 1}});
    dev.json("POST /api/call", &call.to_string());
    let kill = Command::new("kill")
        .args(["-INT", &dev.child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let code = dev.child.wait().unwrap().code();
    assert_eq!(code, Some(130));
    assert!(TcpStream::connect(&dev.address).is_err());
    let left = home.line("list --json").run().expect_code(0).out();
    let left: Value = serde_json::from_str(&left).unwrap();
    assert_eq!(left["data"]["sandboxes"], json!([]), "{left}");
}
