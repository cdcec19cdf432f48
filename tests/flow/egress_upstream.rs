//! Listed hosts on a machine whose own way out is a proxy that the environment names.

use crate::egress::Server;
use crate::without_network::has;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use testkit::{Glovebox, Person, skip};

/// `me:p@ss` as a header has it.
const CREDENTIALS: &str = "Basic bWU6cEBzcw==";

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";

/// The head of a request, with which the rest of it has not been read.
fn read_head(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    let begin = bytes.len();
    let mut byte = [0; 1];
    while !bytes[begin..].ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&bytes[begin..]).into_owned())
}

/// A proxy that answers in the place of every host, and wants credentials.
fn serve_all(mut stream: TcpStream, bytes: &mut Vec<u8>) {
    let Some(head) = read_head(&mut stream, bytes) else {
        return;
    };
    if !head.contains(&format!("Proxy-Authorization: {CREDENTIALS}\r\n")) {
        let _ = stream.write_all(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let _ = stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
    if read_head(&mut stream, bytes).is_some() {
        let _ = stream.write_all(HELLO);
    }
}

/// A proxy that passes requests on by their whole address and gives tunnels to no host.
fn serve_without_tunnels(mut stream: TcpStream, bytes: &mut Vec<u8>) {
    let Some(head) = read_head(&mut stream, bytes) else {
        return;
    };
    if head.starts_with("CONNECT ") {
        let _ = stream.write_all(b"HTTP/1.1 403 Only for port 443\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let _ = stream.write_all(HELLO);
}

/// The call on a machine with this proxy.
fn behind(call: Glovebox, proxy: &Server, user_info: &str) -> Glovebox {
    let url = format!("http://{user_info}127.0.0.1:{}", proxy.port);
    call.env("http_proxy", &url).env("https_proxy", &url)
}

/// Fails if a file below a directory holds this text.
fn assert_in_no_file(dir: &Path, text: &str) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => assert_in_no_file(&path, text),
            Ok(kind) if kind.is_file() => {
                let content = fs::read(&path).unwrap_or_default();
                let has_it = content
                    .windows(text.len())
                    .any(|part| part == text.as_bytes());
                assert!(!has_it, "{text} is in {}", path.display());
            }
            _ => {}
        }
    }
}

#[test]
fn listed_host_is_reached_through_the_proxy_of_the_machine() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let proxy = Server::start(serve_all);
        let start = "start -q --net egress --allow only.by-proxy.test --allow 10.0.0.1 box";
        behind(person.line(start), &proxy, "me:p%40ss@")
            .run()
            .expect_code(0);
        let ran = person
            .line("exec box -- curl -sS http://only.by-proxy.test/path")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "hello\n", "as {}: {ran}", person.name());
        let brought = proxy.brought(1);
        // The name is for the proxy to look up, and what it is told is in no request of the
        // program.
        let (connect, request) = brought[0].split_once("\r\n\r\n").unwrap();
        assert!(
            connect.starts_with("CONNECT only.by-proxy.test:80 HTTP/1.1\r\n"),
            "{brought:?}"
        );
        assert!(request.starts_with("GET /path HTTP/1.1\r\n"), "{brought:?}");
        assert!(
            !request.to_ascii_lowercase().contains("proxy-"),
            "{brought:?}"
        );

        let shown = format!("127.0.0.1:{} (https_proxy, http_proxy)", proxy.port);
        let report = fs::read(person.sandboxes()[0].join("report.json")).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["network"]["upstream"], shown);
        let ran = person
            .line("net test --json box http://only.by-proxy.test/")
            .run()
            .expect_code(0);
        let probe: Value = serde_json::from_str(&ran.out()).unwrap();
        let told = probe["data"]["probe"]["upstream"].as_str().unwrap();
        assert!(told.starts_with("127.0.0.1:"), "{ran}");

        // Commands see neither the proxy nor what it is told.
        let ran = person.line("exec box -- env").run().expect_code(0);
        let inside = ran.out();
        assert!(
            !inside.contains("p%40ss") && !inside.contains(&proxy.port.to_string()),
            "{ran}"
        );
        let log = person.line("net log box").run().expect_code(0).out();
        assert!(!log.contains("p%40ss"), "{log}");
        for text in ["p%40ss", "bWU6cEBzcw"] {
            assert_in_no_file(&person.place().state(), text);
        }
        person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn refusal_by_the_proxy_is_told_with_its_status_and_the_variable() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let proxy = Server::start(serve_all);
        let call = person.script(
            "run -q --net egress --allow only.by-proxy.test",
            "curl -sS https://only.by-proxy.test/",
        );
        let ran = behind(call, &proxy, "me:wrong@").run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(
                proxy.told(person, &ran),
                @"glovebox: the command asked for only.by-proxy.test:443, and this machine's proxy (`https_proxy`) refused it with status 407: start the sandbox with user and password in `https_proxy` (`http://USER:PASSWORD@HOST:PORT`)"
            );
        }
        assert!(!ran.err().contains("wrong"), "{ran}");
    });
}

#[test]
fn requests_go_by_their_whole_address_where_the_proxy_gives_no_tunnel() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let proxy = Server::start(serve_without_tunnels);
        let call = person.script(
            "run -q --net egress --allow only.by-proxy.test --allow only.by-proxy.test:8080",
            "curl -sS http://only.by-proxy.test/a?b http://only.by-proxy.test:8080/c",
        );
        let ran = behind(call, &proxy, "me:p%40ss@").run().expect_code(0);
        assert_eq!(ran.out(), "hello\nhello\n", "as {}: {ran}", person.name());
        let brought = proxy.brought(4);
        for start in [
            "GET http://only.by-proxy.test/a?b HTTP/1.1\r\n",
            "GET http://only.by-proxy.test:8080/c HTTP/1.1\r\n",
        ] {
            let request = brought.iter().find(|request| request.starts_with(start));
            let request = request.unwrap_or_else(|| panic!("no {start} in {brought:?}"));
            let told = request.to_ascii_lowercase();
            let credentials = CREDENTIALS.to_ascii_lowercase();
            assert!(
                told.contains(&format!("proxy-authorization: {credentials}\r\n")),
                "{request}"
            );
        }
    });
}

#[test]
fn exceptions_and_pinned_names_are_dialled_directly() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    let person = Person::myself();
    let (proxy, server) = (Server::start(serve_all), Server::http());
    let rule = server.rule("near.test");
    let url = format!("http://near.test:{}/", server.port);
    let call = person.script(
        &format!("run -q --net egress --allow {rule}"),
        &format!("curl -sS {url}"),
    );
    let ran = behind(call, &proxy, "me:p%40ss@").run().expect_code(0);
    assert_eq!(ran.out(), "hello\n", "{ran}");
    // An exception that this machine does not know leads nowhere, as it does outside.
    let call = person.script(
        "run -q --net egress --allow only.by-proxy.test",
        "curl -sS http://only.by-proxy.test/",
    );
    let call = behind(call, &proxy, "me:p%40ss@").env("no_proxy", "x.example, .by-proxy.test");
    assert_ne!(call.run().code, 0);
    assert_eq!(proxy.seen.lock().unwrap().len(), 0);
}

#[test]
fn proxy_that_is_not_used_is_named_in_one_line() {
    let person = Person::myself();
    let ran = person
        .line("run --net egress --allow a.test -- true")
        .env("ALL_PROXY", "socks5h://me:hush@127.0.0.1:1080")
        .run()
        .expect_code(0);
    let lines = ran
        .err()
        .lines()
        .filter(|line| line.contains("ALL_PROXY"))
        .count();
    assert_eq!(lines, 1, "{ran}");
    assert!(
        ran.err().contains("SOCKS") && !ran.err().contains("hush"),
        "{ran}"
    );
}
