//! MCP clients at `/mcp`: the official SDK drives every tool, and users do not meet.

use crate::server::{Answer, Client, PATIENCE, Server, TOKEN, token};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::{Person, await_sleepers, installed, marker, wait_until};

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// Posts a message of a client; the answer up to its end.
fn send(
    client: &Client,
    session: Option<&str>,
    headers: &[(&str, &str)],
    message: &Value,
) -> Answer {
    let mut all = vec![("content-type", "application/json"), ACCEPT];
    all.extend(session.map(|id| ("mcp-session-id", id)));
    all.extend(headers);
    client.ask("POST", "/mcp", &all, message.to_string().as_bytes())
}

fn hello() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    } })
}

/// Introduces a client: the name of its session.
pub(crate) fn introduce(client: &Client) -> String {
    let answer = send(client, None, &[], &hello()).expect(200);
    let session = answer.header("mcp-session-id").unwrap().to_owned();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    send(client, Some(&session), &[], &ready).expect(202);
    session
}

/// Runs a command in the sandbox of a session: the whole answer.
pub(crate) fn bash(client: &Client, session: &str, command: &str) -> String {
    let params = json!({ "name": "Bash", "arguments": { "command": command } });
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    send(client, Some(session), &[], &call).expect(200).text()
}

/// Posts a call of a tool over a connection of its own, and does not wait for its end.
fn post_call(
    server: &Server,
    token: &str,
    session: &str,
    id: usize,
    arguments: &Value,
) -> TcpStream {
    let params = json!({ "name": "Bash", "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let body = call.to_string();
    let mut stream = TcpStream::connect(&server.addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Accept: {}\r\nMcp-Session-Id: {session}\r\nContent-Length: {}\r\n\r\n",
        server.addr,
        ACCEPT.1,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    stream
}

/// A call that waits holds its arguments: one client must not fill the memory of all with calls that it leaves.
#[test]
fn calls_of_a_client_that_wait_have_a_bound_and_end_with_their_connections() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let secret = token(&person, "ann --scope run");
    let ann = server.client(&secret);
    let session = introduce(&ann);
    let marker = marker();
    let sleep = json!({ "command": format!("sleep {marker}"), "timeout_ms": 600_000 });
    let at_work: Vec<_> = (0..32)
        .map(|id| post_call(&server, &secret, &session, 100 + id, &sleep))
        .collect();
    await_sleepers(&marker, 32);
    let quick = json!({ "command": "echo done" });
    let call = |id: usize| post_call(&server, &secret, &session, id, &quick);
    let waiting: Vec<_> = (0..64).map(|id| call(200 + id)).collect();
    // One that is refused is answered; those before it are not, in whatever order they came in.
    let answered = |streams: &[TcpStream]| {
        streams.iter().any(|stream| {
            stream.set_nonblocking(true).unwrap();
            let mut bytes = vec![0; 64 << 10];
            let peeked = stream.peek(&mut bytes).unwrap_or_default();
            stream.set_nonblocking(false).unwrap();
            String::from_utf8_lossy(&bytes[..peeked]).contains("wait for their turn")
        })
    };
    let more: Vec<_> = (0..8).map(|id| call(300 + id)).collect();
    assert!(wait_until(PATIENCE, || answered(&more) || answered(&waiting)));
    // Those whose connections end make room.
    drop((waiting, more));
    assert!(wait_until(PATIENCE, || {
        let next = [call(400)];
        std::thread::sleep(Duration::from_millis(300));
        !answered(&next)
    }));
    drop(at_work);
}

fn sandboxes(client: &Client) -> Vec<Value> {
    let list = client.get("/api/sandboxes").expect(200).json();
    list["sandboxes"].as_array().unwrap().clone()
}

#[test]
fn the_python_sdk_drives_every_tool_under_the_server() {
    let Some(python) = installed("python/bin/python3") else {
        testkit::skip!("needs the Python SDK of MCP in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let person = Person::myself();
    person.write("project/a.txt", "one\ntwo\n");
    person.write("project/src/main.py", "print(1)\n");
    let server = Server::start(&person, "--project .");
    let ann = server.client(&token(&person, "ann --scope run"));
    let secret = token(&person, "bea --scope run");
    let bea = server.client(&secret);
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp/drive.py");
    let url = format!("http://{}/mcp", server.addr);
    let ran = Command::new(python)
        .arg(driver)
        .args(["http", &url, &secret])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success() && said.ends_with("ok\n"),
        "{said}{complained}"
    );
    // What was changed is kept, for its user alone, and the project is as it was.
    let is_stopped = || sandboxes(&bea).iter().all(|one| one["state"] == "stopped");
    assert!(
        wait_until(Duration::from_secs(20), is_stopped),
        "{:?}",
        sandboxes(&bea)
    );
    let kept = sandboxes(&bea);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(sandboxes(&ann), Vec::<Value>::new());
    let project = std::fs::read_to_string(person.project().join("a.txt")).unwrap();
    assert_eq!(project, "one\ntwo\n");
    let metrics = server.admin().get("/metrics").expect(200).text();
    assert!(
        metrics.contains(r#"tool="Write",outcome="ok""#),
        "{metrics}"
    );
}

#[test]
fn a_client_has_a_sandbox_that_only_its_user_reaches() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let ann = server.client(&token(&person, "ann --scope run"));
    let bob = server.client(&token(&person, "bob --scope run"));
    let session = introduce(&ann);
    assert!(bash(&ann, &session, "echo secret > a && cat a").contains("secret"));
    // The name of a session is worth nothing to another user, nor to the administrator.
    let call = json!({ "jsonrpc": "2.0", "id": 8, "method": "tools/list" });
    for other in [&bob, &server.admin()] {
        send(other, Some(&session), &[], &call).expect(404);
        // Nor can they end it: there is nothing of that name to them.
        other
            .ask("DELETE", "/mcp", &[("mcp-session-id", &session)], b"")
            .expect(204);
    }
    assert!(bash(&ann, &session, "cat a").contains("secret"));
    let own = introduce(&bob);
    assert!(bash(&bob, &own, "cat a; ls -A").contains("No such file"));
    let (of_ann, of_bob) = (sandboxes(&ann), sandboxes(&bob));
    assert_eq!((of_ann.len(), of_bob.len()), (1, 1));
    assert_ne!(of_ann[0]["id"], of_bob[0]["id"]);
    // One that was left untouched is gone with its client.
    bob.ask("DELETE", "/mcp", &[("mcp-session-id", &own)], b"")
        .expect(204);
    assert!(wait_until(Duration::from_secs(20), || sandboxes(&bob).is_empty()));
    // The end of the server keeps what was changed.
    assert_eq!(server.end(), Some(0));
    let list = person.line("list --json").run().expect_code(0);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let left = list["data"]["sandboxes"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(
        (&left[0]["name"], &left[0]["state"]),
        (&of_ann[0]["id"], &json!("stopped"))
    );
}

#[test]
fn who_may_not_come_in_does_not_reach_the_endpoint() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    send(&server.anybody(), None, &[], &hello()).expect(401);
    send(
        &server.client("no token of this server"),
        None,
        &[],
        &hello(),
    )
    .expect(401);
    let reader = server.client(&token(&person, "eve --scope read"));
    send(&reader, None, &[], &hello()).expect(403);
    // A cookie is sent by whatever page asks, so it is not enough, wherever the page is from.
    let login = server.admin().post("/api/login", &json!({})).expect(303);
    let cookie = login.header("set-cookie").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let own = format!("http://{}", server.addr);
    for origin in [own.as_str(), "http://evil.test"] {
        let headers = [("cookie", cookie), ("origin", origin)];
        let refused = send(&server.anybody(), None, &headers, &hello());
        assert!(
            [401, 403].contains(&refused.status),
            "{origin}: {refused:?}"
        );
        let stream = [("cookie", cookie), ("origin", origin), ACCEPT];
        server
            .anybody()
            .ask("GET", "/mcp", &stream, b"")
            .expect(401);
    }
    let admin = server.admin();
    send(&admin, None, &[("origin", "http://evil.test")], &hello()).expect(403);
    send(&admin, None, &[("host", "evil.test")], &hello()).expect(421);
    send(
        &admin,
        None,
        &[("origin", "http://localhost:5173")],
        &hello(),
    )
    .expect(200);
    // As everywhere: bounded.
    let large = json!({ "jsonrpc": "2.0", "id": 1, "method": "x".repeat(9 << 20) });
    let told = [("content-type", "application/json"), ACCEPT];
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n{}: {}\r\n{}: {}\r\ncontent-length: {}\r\n\r\n",
        server.addr,
        told[0].0,
        told[0].1,
        told[1].0,
        told[1].1,
        large.to_string().len()
    );
    assert!(server.raw(&head).starts_with("HTTP/1.1 413"));
}
