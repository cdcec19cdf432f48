//! A host with a secret that only the machine's own proxy reaches: TLS to it ends in the owner all
//! the same, and the proxy sees neither the secret nor the request.

use super::{Place, VALUE, assert_hidden};
use crate::egress::Server as Proxy;
use crate::without_network::has;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use testkit::{Person, skip};

/// A proxy that gives tunnels to this machine, whatever name is asked for, and keeps what goes
/// through them.
fn serve_tunnel(mut stream: TcpStream, bytes: &mut Vec<u8>) {
    let mut byte = [0; 1];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(bytes).into_owned();
    let port = head.split([' ', ':']).nth(2).unwrap().parse().unwrap();
    let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let carried = Arc::new(Mutex::new(Vec::new()));
    let carry = |mut from: TcpStream, mut to: TcpStream| {
        let carried = Arc::clone(&carried);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut part) {
                carried.lock().unwrap().extend_from_slice(&part[..length]);
                if to.write_all(&part[..length]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(std::net::Shutdown::Write);
        })
    };
    let both = [
        carry(stream.try_clone().unwrap(), server.try_clone().unwrap()),
        carry(server, stream),
    ];
    for one in both {
        one.join().unwrap();
    }
    bytes.extend_from_slice(&carried.lock().unwrap());
}

#[test]
fn secret_is_filled_in_within_the_tunnel_of_the_proxy() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    let person = Person::myself();
    let place = Place::new(&person);
    let proxy = Proxy::start(serve_tunnel);
    let host = format!("api.test:{}", place.api.port);
    let secret = format!("API_TOKEN=env:MY_TOKEN@{host}");
    let script = format!(
        r#"curl -sS -H "Authorization: Bearer $API_TOKEN" {}"#,
        place.url("/")
    );
    let words = [
        "run", "-q", "--net", "egress", "--allow", &host, "--secret", &secret,
    ];
    let call = person.glovebox(words).args(["--", "sh", "-c", &script]);
    let ran = place
        .adjusted(call)
        .env("https_proxy", format!("http://127.0.0.1:{}", proxy.port))
        .run()
        .expect_code(0);
    assert_hidden(&ran.out(), "the answer");
    let told = place.api.take_seen().join("\n");
    assert!(told.contains(VALUE), "{ran}: {told}");
    for bytes in proxy.brought(1) {
        assert!(
            bytes.starts_with(&format!("CONNECT {host} HTTP/1.1\r\n")),
            "{bytes}"
        );
        assert_hidden(&bytes, "what the proxy saw");
        assert!(!bytes.contains("GET /"), "{bytes}");
    }
}
