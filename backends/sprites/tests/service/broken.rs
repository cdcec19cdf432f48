//! Responses that violate the contract, from a fake service.

use crate::service::{TOKEN, client, soon};
use glovebox_proto::Code;
use glovebox_sprites::ExecRequest;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// Responds to one request with fixed bytes. Returns the URL, and a handle that returns the
/// request.
fn answer_once(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        while !request.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..count]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, serving)
}

fn exec(answer: &'static str) -> (glovebox_proto::Fault, String) {
    let (url, serving) = answer_once(answer);
    let request = ExecRequest {
        argv: &["sh"],
        run_after_disconnect: "0",
        times: glovebox_sprites::ExecTimes::default(),
    };
    let client = client(&url, &[TOKEN]);
    let fault = client.exec("one", &request, soon()).unwrap_err();
    (fault, serving.join().unwrap())
}

#[test]
fn redirect_is_not_followed() {
    // Nothing listens there; a client that followed the redirect would report that.
    let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\n\
                  content-length: 0\r\n\r\n";
    let (url, serving) = answer_once(answer);
    let fault = client(&url, &[TOKEN]).get("one", soon()).unwrap_err();
    assert_eq!(fault.code, Code::Protocol, "{fault:?}");
    assert!(fault.message.contains("307"), "{fault:?}");
    serving.join().unwrap();
    assert_eq!(exec(answer).0.code, Code::Protocol);
}

#[test]
fn token_stands_in_its_header_alone() {
    let (_, request) = exec("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n");
    let lines: Vec<&str> = request
        .lines()
        .filter(|line| line.contains("planted"))
        .collect();
    assert_eq!(lines, [format!("authorization: Bearer {TOKEN}")]);
}

#[test]
fn other_answers_open_no_session() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ] {
        let (fault, _) = exec(answer);
        assert_eq!(fault.code, Code::Protocol, "{fault:?}");
    }
}

#[test]
fn answer_that_is_no_json_is_told_shortly() {
    let (url, serving) =
        answer_once("HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n<html>\x1b[2J\r\n");
    let fault = client(&url, &[TOKEN]).get("one", soon()).unwrap_err();
    assert_eq!(fault.code, Code::Protocol);
    assert!(!fault.message.contains('\x1b'));
    serving.join().unwrap();
}
