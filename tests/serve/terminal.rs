//! A terminal of a sandbox over a WebSocket.

use crate::server::{PATIENCE, Server, TOKEN, recording, token};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::time::Duration;
use testkit::{Person, Process, await_sleepers, marker, wait_until};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

type Socket = WebSocket<TcpStream>;

/// Opens a terminal, or tells the status of the refusal.
fn open(server: &Server, path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, u16> {
    let mut request = format!("ws://{}{path}", server.addr)
        .into_client_request()
        .unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(&server.addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
            Err(answer.status().as_u16())
        }
        Err(error) => panic!("{error}"),
    }
}

fn open_as(server: &Server, path: &str, token: &str) -> Result<Socket, u16> {
    open(
        server,
        path,
        &[("authorization", &format!("Bearer {token}"))],
    )
}

fn type_in(socket: &mut Socket, text: &str) {
    let bytes = text.as_bytes().to_vec();
    socket.send(Message::Binary(bytes.into())).unwrap();
}

/// Reads until what was shown has this in it: all of it.
fn read_until(socket: &mut Socket, part: &str) -> String {
    let mut shown = String::new();
    let mut seen = 0;
    while !shown[seen..].contains(part) {
        // Where the part can begin that the next bytes complete.
        seen = shown.floor_char_boundary(shown.len().saturating_sub(part.len()));
        match socket.read().unwrap() {
            Message::Binary(bytes) => shown.push_str(&String::from_utf8_lossy(&bytes)),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?} after {shown}"),
        }
    }
    shown
}

/// Reads to the end: the last text message, and how the socket was closed.
fn read_to_end(socket: &mut Socket) -> (Value, u16, String) {
    let mut last = Value::Null;
    loop {
        match socket.read().unwrap() {
            Message::Text(text) => last = serde_json::from_str(&text).unwrap(),
            Message::Close(Some(frame)) => {
                return (last, frame.code.into(), frame.reason.to_string());
            }
            Message::Close(None) => panic!("closed without a reason"),
            _ => {}
        }
    }
}

fn sandbox(server: &Server) -> String {
    let started = server.admin().post("/api/sandboxes", &json!({}));
    started.expect(201).json()["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_terminal_shows_a_shell_of_the_sandbox_until_it_ends() {
    Person::each(|person| {
        let server = Server::start(person, "");
        let path = format!("/api/sandboxes/{}/terminal", sandbox(&server));
        let mut socket = open_as(&server, &format!("{path}?cols=97&rows=31"), TOKEN).unwrap();
        // What is typed is echoed; the quotes keep the echo from looking like the answer.
        type_in(
            &mut socket,
            "stty size; echo $TERM en''d; pwd; echo fin''ished\n",
        );
        let shown = read_until(&mut socket, "finished");
        assert!(shown.contains("31 97"), "{shown}");
        assert!(shown.contains("xterm-256color end"), "{shown}");
        assert!(shown.contains("/workspace"), "{shown}");
        let resize = json!({ "resize": { "cols": 120, "rows": 40 } }).to_string();
        socket.send(Message::Text(resize.into())).unwrap();
        type_in(&mut socket, "stty size\n");
        read_until(&mut socket, "40 120");
        type_in(&mut socket, "exit 7\n");
        let (exit, code, reason) = read_to_end(&mut socket);
        assert_eq!(exit, json!({ "exit": { "code": 7, "signal": null } }));
        assert_eq!((code, reason.as_str()), (1000, "exit 7"));
    });
}

/// The terminal of a session works in its files; leaving it ends what was started in it, and so does its session.
#[test]
fn a_terminal_ends_with_its_client_and_with_its_session() {
    let person = Person::myself();
    let made = [(
        "Write",
        json!({ "path": "made", "content": "by the agent" }),
    )];
    let model = recording(&person, "write", &made);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "write" }));
    admin.follow_to_end(&id);
    let path = format!("/api/sessions/{id}/terminal");
    let mut socket = open_as(&server, &path, TOKEN).unwrap();
    type_in(&mut socket, "cat made\n");
    read_until(&mut socket, "by the agent");
    let marker = marker();
    type_in(&mut socket, &format!("sleep {marker} & sleep {marker}\n"));
    await_sleepers(&marker, 2);
    drop(socket);
    let is_gone = || Process::mentioning(&marker).is_empty();
    assert!(
        wait_until(PATIENCE, is_gone),
        "a client that leaves ends it"
    );

    let mut socket = open_as(&server, &path, TOKEN).unwrap();
    type_in(&mut socket, "echo re''ady\n");
    read_until(&mut socket, "ready");
    admin.delete(&format!("/api/sessions/{id}")).expect(204);
    let (error, code, _) = read_to_end(&mut socket);
    assert_eq!((&error["error"]["class"], code), (&json!("lost"), 1011));
    assert_eq!(open_as(&server, &path, TOKEN).unwrap_err(), 404);
    let audit = person.place().state().join("server/audit.jsonl");
    let audit = std::fs::read_to_string(audit).unwrap();
    let opened = audit.lines().filter(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["action"] == "GET /api/sessions/{id}/terminal" && line["status"] == 101
    });
    assert_eq!(opened.count(), 2, "{audit}");
}

#[test]
fn a_terminal_is_for_those_who_may_run_and_for_pages_of_the_server() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let path = format!("/api/sandboxes/{}/terminal", sandbox(&server));
    assert_eq!(open(&server, &path, &[]).unwrap_err(), 401);
    let reader = token(&person, "reader --scope read");
    assert_eq!(open_as(&server, &path, &reader).unwrap_err(), 403);
    let bob = token(&person, "bob --scope run");
    assert_eq!(open_as(&server, &path, &bob).unwrap_err(), 404);
    let wrong = format!("{path}?cols=0");
    assert_eq!(open_as(&server, &wrong, TOKEN).unwrap_err(), 400);
    let plain = server.admin().get(&path).expect(400);
    assert_eq!(plain.code(), "invalid-argument");
    // A browser's cookie comes with whatever page asks.
    let login = server.admin().post("/api/login", &json!({})).expect(303);
    let cookie = login.header("set-cookie").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let from = |origin: &str| open(&server, &path, &[("cookie", cookie), ("origin", origin)]);
    assert_eq!(from("http://evil.test").unwrap_err(), 403);
    assert_eq!(
        open(&server, &path, &[("cookie", cookie)]).unwrap_err(),
        403
    );
    let mut socket = from(&format!("http://{}", server.addr)).unwrap();
    // What is not understood closes it.
    socket.send(Message::Text("ls".into())).unwrap();
    let (error, code, _) = read_to_end(&mut socket);
    assert_eq!(
        (&error["error"]["code"], code),
        (&json!("invalid-argument"), 1008)
    );
}

/// A client that does not read stops what writes, and costs the server nothing; one that reads gets all of it.
#[test]
fn a_terminal_that_is_not_read_makes_programs_wait() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let path = format!("/api/sandboxes/{}/terminal", sandbox(&server));
    let mut socket = open_as(&server, &path, TOKEN).unwrap();
    let lines = 2_000_000;
    type_in(
        &mut socket,
        &format!("stty -echo -opost; echo; seq {lines}; echo all of i''t\n"),
    );
    std::thread::sleep(Duration::from_secs(2));
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let rss = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kib: u64 = rss.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 200_000, "{rss}");
    let shown = read_until(&mut socket, "all of it");
    let numbers = shown.lines().filter_map(|line| line.parse::<u32>().ok());
    assert!(numbers.eq(1..=lines), "a line is missing");
    type_in(&mut socket, "exit\n");
    assert_eq!(read_to_end(&mut socket).0["exit"]["code"], 0);
}

/// The end of the server is told.
#[test]
fn a_terminal_hears_that_the_server_ends() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let path = format!("/api/sandboxes/{}/terminal", sandbox(&server));
    let mut socket = open_as(&server, &path, TOKEN).unwrap();
    type_in(&mut socket, "echo re''ady\n");
    read_until(&mut socket, "ready");
    let ended = std::thread::spawn(move || server.end());
    assert_eq!(read_to_end(&mut socket).1, 1001);
    assert_eq!(ended.join().unwrap(), Some(0));
}
