//! The HTTP door and those who mean no good: they are told no, they cost little, and others are served.

use crate::pipe::Pipe;
use crate::site::{Answer, Site, TOKEN, call, hello, read};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use testkit::{Person, Process, marker, wait_until};

fn list() -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" })
}

#[test]
fn only_who_shows_the_token_and_calls_it_by_its_name_is_served() {
    let person = Person::myself();
    let site = Site::open(
        &person,
        "--allow-host box.test:1 --allow-origin https://ide.test:443",
    );
    let almost = format!("Bearer {}x", &TOKEN[1..]);
    let longer = format!("Bearer {TOKEN}0");
    let refused: [(&[(&str, &str)], u16); 9] = [
        (&[("Authorization", "")], 401),
        (&[("Authorization", &almost)], 401),
        (&[("Authorization", &longer)], 401),
        (&[("Authorization", "Basic Zm9vOmJhcg==")], 401),
        // A page of somebody else's, whose name was made to lead here.
        (&[("Host", "evil.test")], 403),
        (&[("Host", "127.0.0.1:1")], 403),
        (&[("Origin", "https://evil.test")], 403),
        (&[("Origin", "null")], 403),
        (&[("Content-Type", "text/plain")], 415),
    ];
    for (but, status) in refused {
        let answer = site.hello(but);
        assert_eq!(answer.status, status, "{but:?}: {answer:?}");
        assert!(
            !answer.head.to_ascii_lowercase().contains("mcp-session-id"),
            "{answer:?}"
        );
    }
    for but in [
        &[][..],
        &[("Host", "box.test:1")],
        &[("Origin", "https://ide.test")],
    ] {
        let answer = site.hello(but);
        assert_eq!(answer.status, 200, "{but:?}: {answer:?}");
        assert!(answer.body.contains("\"name\":\"glovebox\""), "{answer:?}");
    }
    // A session of nobody.
    let answer = site.post(
        &list(),
        &[("Mcp-Session-Id", "00000000-0000-0000-0000-000000000000")],
    );
    assert_eq!(answer.status, 404, "{answer:?}");
    person.assert_nothing_left();
}

#[test]
fn an_open_address_needs_a_token_and_a_token_needs_some_length() {
    let person = Person::myself();
    let root = person.place().root();
    let ran = person.line("mcp --http 0.0.0.0:0").run().expect_code(3);
    insta::assert_snapshot!(ran.failure(root), @"
    error: 0.0.0.0:0 can be reached from other machines, and there is no token
    hint: set a token (GLOVEBOX_MCP_TOKEN or `--token-file`), or serve on 127.0.0.1
    ");
    let ran = person.line("mcp --http 0.0.0.0:0 --no-token").run();
    insta::assert_snapshot!(ran.expect_code(3).failure(root), @"
    error: 0.0.0.0:0 can be reached from other machines, and there is no token
    hint: set a token (GLOVEBOX_MCP_TOKEN or `--token-file`), or serve on 127.0.0.1
    ");
    let short = person
        .line("mcp --http 127.0.0.1:0")
        .env("GLOVEBOX_MCP_TOKEN", "short");
    insta::assert_snapshot!(short.run().expect_code(2).failure(root), @"
    error: $GLOVEBOX_MCP_TOKEN: a token has at least 16 printable characters and no spaces
    hint: make one with `openssl rand -hex 32`
    ");
}

#[test]
fn without_a_token_the_server_makes_one_for_the_run() {
    let person = Person::myself();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let site = Site::open_with(&person, "", None);
        let line = site.told("Authorization: Bearer ");
        let token = line
            .split("Bearer ")
            .nth(1)
            .unwrap()
            .split('`')
            .next()
            .unwrap();
        assert_eq!(token.len(), 64, "{line}");
        let none = site.post(&list(), &[("Authorization", "")]);
        assert_eq!(none.status, 401, "{none:?}");
        let bearer = format!("Bearer {token}");
        let shown = site.hello(&[("Authorization", &bearer)]);
        assert_eq!(shown.status, 200, "{shown:?}");
        tokens.push(token.to_owned());
    }
    assert_ne!(tokens[0], tokens[1]);
    let open = Site::open_with(&person, "--no-token", None);
    let answer = open.hello(&[("Authorization", "")]);
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn bodies_and_headers_are_bounded() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    // More than is allowed, announced: told so, without being read.
    let mut stream = site.connect();
    let head = site.head("POST", 1 << 40, &[]);
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = vec![b' '; 1 << 20];
    for _ in 0..12 {
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    let answer = read(stream);
    assert!([413, 0].contains(&answer.status), "{answer:?}");
    // The same, not announced.
    let mut stream = site.connect();
    let head = site.head("POST", 0, &[("Transfer-Encoding", "chunked")]);
    stream
        .write_all(head.replace("Content-Length: 0\r\n", "").as_bytes())
        .unwrap();
    for _ in 0..12 {
        let sent = stream
            .write_all(b"100000\r\n")
            .and_then(|()| stream.write_all(&chunk))
            .and_then(|()| stream.write_all(b"\r\n"));
        if sent.is_err() {
            break;
        }
    }
    let answer = read(stream);
    assert!([413, 0].contains(&answer.status), "{answer:?}");
    let mut stream = site.connect();
    let head = format!(
        "GET /mcp HTTP/1.1\r\nHost: {}\r\nX: {}\r\n\r\n",
        site.addr,
        "y".repeat(64 << 10)
    );
    let _ = stream.write_all(head.as_bytes());
    let answer = read(stream);
    assert!([431, 0].contains(&answer.status), "{answer:?}");
    for wrong in ["", "{", "[]", "null", "{\"jsonrpc\":\"2.0\"}", "\u{0}"] {
        let mut stream = site.connect();
        let head = site.head("POST", wrong.len(), &[]);
        stream.write_all((head + wrong).as_bytes()).unwrap();
        let answer = read(stream);
        assert!((400..500).contains(&answer.status), "{wrong:?}: {answer:?}");
    }
    let pid = site.child.id();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < 128 << 10, "{peak_kib} KiB");
    assert_eq!(site.hello(&[]).status, 200);
}

/// Waits until the server has hung up on all of them, which it does by itself.
fn assert_hung_up(streams: &mut [TcpStream], begin: Instant) {
    for stream in streams {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(
        begin.elapsed() < Duration::from_secs(45),
        "{:?}",
        begin.elapsed()
    );
}

/// A head of so many bytes for a list of tools, and the answer's status.
fn status_of_head(site: &Site, bytes: usize) -> u16 {
    let plain = site.head("GET", 0, &[("X-Filler", "x")]);
    let filler = "x".repeat(1 + bytes - plain.len());
    let head = site.head("GET", 0, &[("X-Filler", &filler)]);
    assert_eq!(head.len(), bytes);
    let mut stream = site.connect();
    let _ = stream.write_all(head.as_bytes());
    read(stream).status
}

#[test]
fn a_head_has_32_kib_and_one_host() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    let limit = 32 << 10;
    for (bytes, is_read) in [
        (limit - 1, true),
        (limit, true),
        (limit + 1, false),
        (limit + 4096, false),
        (2 * limit - 1, false),
        (2 * limit, false),
    ] {
        let status = status_of_head(&site, bytes);
        // What is read is no good request, but for another reason.
        assert_eq!(![431, 0].contains(&status), is_read, "{bytes}: {status}");
    }
    let two = |second: &str| format!("{}\r\nHost: {second}", site.addr);
    for (host, status) in [
        (site.addr.clone(), 200),
        (two("evil.test"), 400),
        (two(&site.addr), 400),
    ] {
        let answer = site.hello(&[("Host", &host)]);
        assert_eq!(answer.status, status, "{host}: {answer:?}");
    }
    // A target that says another host than the header does.
    let body = hello().to_string();
    for (target, status) in [
        (format!("http://{}/mcp", site.addr), 200),
        ("http://evil.test/mcp".to_owned(), 400),
    ] {
        let head = site.head("POST", body.len(), &[]);
        let head = head.replace("POST /mcp ", &format!("POST {target} "));
        let mut stream = site.connect();
        stream.write_all((head + &body).as_bytes()).unwrap();
        let answer = read(stream);
        assert_eq!(answer.status, status, "{target}: {answer:?}");
    }
}

#[test]
fn connections_without_the_token_hold_no_place_of_a_client() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    let (session, other) = (site.session(), site.session());
    // A client's call that goes on while strangers come.
    let body = call("Bash", &json!({ "command": "sleep 6; echo still-served" })).to_string();
    let mut long = site.connect();
    let head = site.head("POST", body.len(), &[("Mcp-Session-Id", &other)]);
    long.write_all((head + &body).as_bytes()).unwrap();
    // More than there are places, by far: silent ones, ones that begin a head, and ones with a wrong token.
    let begin = Instant::now();
    let wrong = site.head(
        "GET",
        0,
        &[("Authorization", "Bearer 0123456789abcdefWRONG")],
    );
    let mut strangers: Vec<_> = (0..330)
        .map(|n| {
            // Slower than the kernel's queue overflows, or it answers for connections that the server never sees.
            std::thread::sleep(Duration::from_millis(4));
            let mut stream = site.connect();
            let _ = match n % 3 {
                0 => Ok(()),
                1 => stream.write_all(b"POST /mcp HTTP/1.1\r\nHost:"),
                _ => stream.write_all(wrong.as_bytes()),
            };
            stream
        })
        .collect();
    for _ in 0..3 {
        let answer = site.call(&session, "Bash", &json!({ "command": "echo served" }));
        assert!(answer.body.contains("served"), "{answer:?}");
    }
    // They would wait for strangers to give up otherwise, which takes 10 s and more.
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    let answer = read(long);
    assert!(answer.body.contains("still-served"), "{answer:?}");
    assert_hung_up(&mut strangers, begin);
}

#[test]
fn connections_that_say_nothing_end_and_keep_nobody_out() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    let mut silent: Vec<_> = (0..40).map(|_| site.connect()).collect();
    for stream in &mut silent[20..] {
        stream.write_all(b"POST /mcp HTTP/1.1\r\nHost:").unwrap();
    }
    let begin = Instant::now();
    let session = site.session();
    let answer = site.call(&session, "Bash", &json!({ "command": "echo served" }));
    assert!(answer.body.contains("served"), "{answer:?}");
    assert!(begin.elapsed() < Duration::from_secs(8));
    assert_hung_up(&mut silent, begin);
}

#[test]
fn clients_are_bounded_and_those_who_stay_silent_are_gone() {
    let person = Person::myself();
    let site = Site::open(&person, "--max-clients 2 --idle 5s");
    let sessions = [site.session(), site.session()];
    for session in &sessions {
        let answer = site.call(session, "Bash", &json!({ "command": "echo here" }));
        assert!(answer.body.contains("here"), "{answer:?}");
    }
    assert_eq!(person.sandboxes().len(), 2);
    let third = site.hello(&[]);
    assert_eq!(third.status, 503, "{third:?}");
    // Nothing was changed, so nothing stays of them.
    assert!(wait_until(Duration::from_secs(20), || person
        .sandboxes()
        .is_empty()));
    let late = site.call(&sessions[0], "List", &json!({}));
    assert_eq!(late.status, 404, "{late:?}");
    let again = site.session();
    assert!(
        site.call(&again, "List", &json!({}))
            .body
            .contains("result")
    );
}

#[test]
fn a_client_that_disappears_in_the_middle_of_a_call_finds_its_command_again() {
    Person::each(|person| {
        let site = Site::open(person, "");
        let session = site.session();
        let marker = marker();
        let command = json!({ "command": format!("sleep {marker}; true") });
        let mut body = call("Bash", &command);
        // Not that of the calls that follow: a second request of one id is the same one.
        body["id"] = 100.into();
        let body = body.to_string();
        let mut stream = site.connect();
        let head = site.head("POST", body.len(), &[("Mcp-Session-Id", &session)]);
        stream.write_all((head + &body).as_bytes()).unwrap();
        let is_there = || !Process::mentioning(&format!("sleep {marker}")).is_empty();
        assert!(wait_until(Duration::from_secs(10), is_there));
        stream.shutdown(Shutdown::Both).unwrap();
        drop(stream);
        // The session itself is still good, and knows what goes on in it.
        let is_told = wait_until(Duration::from_secs(10), || {
            let answer: Answer = site.call(&session, "Bash", &json!({ "command": "echo still" }));
            assert!(answer.body.contains("still"), "{answer:?}");
            answer.body.contains("whose call was given up, still runs")
        });
        assert!(is_told && is_there());
        let mut stream = site.connect();
        let delete = site.head("DELETE", 0, &[("Mcp-Session-Id", &session)]);
        stream.write_all(delete.as_bytes()).unwrap();
        assert_eq!(read(stream).status, 204);
        assert!(wait_until(Duration::from_secs(10), || !is_there()));
        assert!(wait_until(Duration::from_secs(10), || person
            .sandboxes()
            .is_empty()));
    });
}

#[test]
fn what_is_no_message_harms_no_pipe() {
    let person = Person::myself();
    let mut pipe = Pipe::open(&person, "");
    pipe.write(b"nonsense\n\n{\"jsonrpc\":\"2.0\"}\n[1,2]\n\xff\xfe\n");
    // One line of more than any message.
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..10 {
        pipe.write(&chunk);
    }
    pipe.write(b"\n");
    assert_eq!(
        pipe.call("Bash", &json!({ "command": "printf fine" }))
            .lines()
            .next(),
        Some("fine")
    );
    // As many calls at once as a client likes: each is answered.
    let ids: Vec<u64> = (0..100)
        .map(|n| {
            pipe.send(
                "tools/call",
                &json!({ "name": "Bash", "arguments": { "command": format!("echo n{n}") } }),
            )
        })
        .collect();
    let mut answered = 0;
    while answered < ids.len() {
        let message = pipe.hear().unwrap();
        answered += usize::from(ids.iter().any(|id| message["id"] == *id));
    }
    pipe.hang_up();
    assert_eq!(pipe.end().0, Some(0));
    person.assert_nothing_left();
}

#[test]
fn discovery_of_a_newer_protocol_is_method_not_found_and_the_client_goes_on() {
    let person = Person::myself();
    let with_version = json!({
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" }
    });
    for params in [with_version, json!({})] {
        let mut pipe = Pipe::open(&person, "");
        let answer = pipe.ask("server/discover", &params);
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        let said = pipe.call("Bash", &json!({ "command": "printf fine" }));
        assert_eq!(said.lines().next(), Some("fine"));
        pipe.hang_up();
        assert_eq!(pipe.end().0, Some(0));

        let site = Site::open(&person, "");
        let discover =
            json!({ "jsonrpc": "2.0", "id": "a", "method": "server/discover", "params": params });
        let answer = site.post(&discover, &[]);
        assert_eq!(answer.status, 404, "{answer:?}");
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["error"]["code"], -32601, "{body}");
        assert_eq!(body["id"], "a", "{body}");
        assert_eq!(site.hello(&[]).status, 200);
    }
    person.assert_nothing_left();
}
