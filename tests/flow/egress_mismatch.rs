//! Requests and greetings that say one host and mean another, or that two readers would read in two ways: none gets
//! through, and what is written in the one clear way does. Each row is one connection.

use crate::egress::{Server, python};
use crate::egress_proxy::ask;
use crate::without_network::has;
use serde_json::json;
use std::io::{Read as _, Write as _};
use testkit::{Person, skip};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is passed on.
    Arrives,
    /// It is answered with 400 or 403, and nothing arrives.
    Refused,
}
use Fate::{Arrives, Refused};

/// What stands in `Host`. `@P@` is the port of the server, which is listed as `web.test`.
const HOSTS: &[(Fate, &str)] = &[
    (Arrives, "web.test:@P@"),
    (Arrives, "web.test"),
    (Arrives, "WEB.Test:@P@"),
    (Arrives, "web.test.:@P@"),
    (Arrives, "web.test."),
    (Arrives, " web.test:@P@ "),
    (Refused, "other.test"),
    (Refused, "web.test:1"),
    (Refused, "web.test:"),
    (Refused, "web.test:+@P@"),
    (Refused, "web.test:0x1"),
    (Refused, "web.test:@P@:@P@"),
    (Refused, "web.test:@P@@other.test"),
    (Refused, "other.test@web.test:@P@"),
    (Refused, "web.test:@P@, other.test"),
    (Refused, "web.test:@P@ other.test"),
    (Refused, "web.test#@other.test"),
    (Refused, "web.test/other.test"),
    (Refused, "web.test\\other.test"),
    (Refused, "web.test?"),
    (Refused, "http://web.test"),
    (Refused, ""),
    (Refused, "."),
    (Refused, ".web.test"),
    (Refused, "web.test.."),
    (Refused, "web..test"),
    (Refused, "sub.web.test"),
    (Refused, "webXtest"),
    (Refused, "web_test"),
    (Refused, "*.test"),
    (Refused, "web%2etest"),
    (Refused, "%77eb.test"),
    (Refused, "web.test%00.other.test"),
    (Refused, "web.test\t.other.test"),
    (Refused, "web.test\u{0}.other.test"),
    // A letter of another script that looks the same, in UTF-8; a full-width dot; a label that says it is of another.
    (Refused, "w\u{d0}\u{b5}b.test"),
    (Refused, "web\u{ef}\u{bc}\u{8e}test"),
    (Refused, "xn--web-.test"),
    (Refused, "xn--wb-8bb.test"),
    (Refused, "127.0.0.1:@P@"),
    (Refused, "127.1"),
    (Refused, "2130706433"),
    (Refused, "0x7f000001"),
    (Refused, "0x7f.0.0.1"),
    (Refused, "017700000001"),
    (Refused, "0177.0.0.1"),
    (Refused, "[::1]:@P@"),
    (Refused, "[::ffff:127.0.0.1]"),
    (Refused, "[::1"),
    (Refused, "::1"),
    (Refused, "198.18.0.2"),
];

/// Whole requests.
const REQUESTS: &[(Fate, &str)] = &[
    (Arrives, "GET / HTTP/1.0\r\n\r\n"),
    (Arrives, "GET / HTTP/1.1\r\nhost:web.test:@P@\r\n\r\n"),
    (
        Arrives,
        "GET http://web.test:@P@/ HTTP/1.1\r\nHost: web.test:@P@\r\n\r\n",
    ),
    (
        Arrives,
        "GET http://WEB.test.:@P@/ HTTP/1.1\r\nHost: web.test\r\n\r\n",
    ),
    (
        Arrives,
        "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 5\r\n\r\nhello",
    ),
    (
        Arrives,
        "POST / HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ),
    // Other fields may come twice.
    (
        Arrives,
        "GET / HTTP/1.1\r\nHost: web.test\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n",
    ),
    // Characters that clients send as they are, which are no part of an address.
    (
        Arrives,
        "GET /?q={\"x\":1} HTTP/1.1\r\nHost: web.test\r\n\r\n",
    ),
    (
        Arrives,
        "GET /caf\u{e9}/<>` HTTP/1.1\r\nHost: web.test\r\n\r\n",
    ),
    // Of the two only the first arrives.
    (
        Arrives,
        "GET /\" HTTP/1.1\r\nHost: web.test\r\n\r\nGET /\" HTTP/1.1\r\nHost: other.test\r\n\r\n",
    ),
    (
        Refused,
        "GET http://web.test:@P@\"@other.test/ HTTP/1.1\r\nHost: web.test:@P@\r\n\r\n",
    ),
    (
        Refused,
        "GET \"http://other.test/\" HTTP/1.1\r\nHost: web.test:@P@\r\n\r\n",
    ),
    // Two hosts, or one of them in the first line.
    (Refused, "GET / HTTP/1.1\r\n\r\n"),
    (
        Refused,
        "GET / HTTP/1.1\r\nHost: web.test\r\nHost: other.test\r\n\r\n",
    ),
    (
        Refused,
        "GET / HTTP/1.1\r\nHost: other.test\r\nHost: web.test\r\n\r\n",
    ),
    (
        Refused,
        "GET / HTTP/1.1\r\nHost: web.test\r\nhost: web.test\r\n\r\n",
    ),
    (
        Refused,
        "GET http://other.test/ HTTP/1.1\r\nHost: web.test:@P@\r\n\r\n",
    ),
    (
        Refused,
        "GET http://web.test:@P@/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
    ),
    (
        Refused,
        "GET http://web.test:1/ HTTP/1.1\r\nHost: web.test:@P@\r\n\r\n",
    ),
    (
        Refused,
        "GET http://web.test:@P@@other.test/ HTTP/1.1\r\nHost: web.test:@P@\r\n\r\n",
    ),
    (
        Refused,
        "GET http://other.test@web.test:@P@/ HTTP/1.1\r\nHost: web.test:@P@\r\n\r\n",
    ),
    (
        Refused,
        "OPTIONS http://other.test HTTP/1.1\r\nHost: web.test:@P@\r\n\r\n",
    ),
    (Refused, "GET http://other.test/ HTTP/1.0\r\n\r\n"),
    // Fields that end or begin where another reader would not have them end or begin.
    (
        Refused,
        "GET / HTTP/1.1\r\nHost : other.test\r\nHost: web.test\r\n\r\n",
    ),
    (
        Refused,
        "GET / HTTP/1.1\r\nHost: web.test\r\n other.test\r\n\r\n",
    ),
    (
        Refused,
        "GET / HTTP/1.1\r\nX: y\r\n Host: other.test\r\nHost: web.test\r\n\r\n",
    ),
    (
        Refused,
        "GET / HTTP/1.1\r\n Host: other.test\r\nHost: web.test\r\n\r\n",
    ),
    (
        Refused,
        "GET / HTTP/1.1\r\nHost: web.test\r\nno colon\r\n\r\n",
    ),
    (
        Refused,
        "GET / HTTP/1.1\r\nHost: web.test\r\nX: a\u{0}b\r\n\r\n",
    ),
    (
        Refused,
        "GET / HTTP/1.1\r\nHost: web.test\r\nX: a\rHost: other.test\r\n\r\n",
    ),
    // Bodies of two lengths, or of none that is clear.
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    ),
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 5, 6\r\n\r\nhello!",
    ),
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: +5\r\n\r\nhello",
    ),
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: -1\r\n\r\nhello",
    ),
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 0x5\r\n\r\nhello",
    ),
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
    ),
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ),
    (
        Refused,
        "POST / HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        Refused,
        "POST / HTTP/1.0\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
];

/// Sends each row over a connection of its own, to the host or to the proxy, and prints the statuses.
const SEND: &str = r"
import json, socket, sys
def status(row, at):
    s = socket.create_connection(at); s.settimeout(20)
    try:
        s.sendall(row.encode('latin-1')); return s.recv(12)[9:].decode() or 'ended'
    except ConnectionResetError: return 'ended'
print(json.dumps([status(row, ('web.test', int(sys.argv[1]))) for row in json.loads(ROWS)]))
";

#[test]
fn requests_with_two_readings_are_refused_and_their_twins_arrive() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let port = server.port.to_string();
        let by_host = HOSTS
            .iter()
            .map(|(fate, host)| (*fate, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")));
        let whole = REQUESTS
            .iter()
            .map(|(fate, row)| (*fate, (*row).to_owned()));
        let rows: Vec<(Fate, String)> = by_host
            .chain(whole)
            .map(|(fate, row)| (fate, row.replace("@P@", &port)))
            .collect();
        let texts: Vec<&str> = rows.iter().map(|(_, row)| row.as_str()).collect();
        let script = format!(
            "ROWS = {}\n{SEND}",
            json!(serde_json::to_string(&texts).unwrap())
        );
        let ran = python(person, &server, "web.test", &script)
            .run()
            .expect_code(0);
        let statuses: Vec<String> = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(statuses.len(), rows.len(), "{ran}");
        let wrong: Vec<_> = rows
            .iter()
            .zip(&statuses)
            .filter(|((fate, _), status)| match fate {
                Arrives => *status != "200",
                Refused => !["400", "403"].contains(&status.as_str()),
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let arriving = rows.iter().filter(|(fate, _)| *fate == Arrives).count();
        let brought = server.brought(arriving);
        assert_eq!(brought.len(), arriving, "{brought:#?}");
    });
}

#[test]
fn of_two_lengths_the_server_sees_one() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    // By its length the body would hide the beginning of another request, by its chunks it ends before that.
    let row = "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n\
               0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: other.test\r\n\r\n";
    Person::each(|person| {
        let server = Server::http();
        let rows = serde_json::to_string(&[row]).unwrap();
        let script = format!("ROWS = {}\n{SEND}", json!(rows));
        let _ = python(person, &server, "web.test", &script)
            .run()
            .expect_code(0);
        for brought in server.brought(0) {
            let head = brought.to_lowercase();
            assert!(
                !(head.contains("smuggled")
                    || head.contains("content-length") && head.contains("transfer-encoding")),
                "{brought}"
            );
        }
    });
}

#[test]
fn greetings_for_another_name_get_an_alert_and_their_twins_arrive() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    // A greeting of the library, with extensions taken out and put in. 0 names hosts, 0xfe0d hides a second greeting
    // (Encrypted Client Hello).
    let script = r"
import socket, ssl, struct, sys
def sni(*names):
    entries = b''.join(bytes([kind]) + struct.pack('>H', len(name)) + name for kind, name in names)
    return (0, struct.pack('>H', len(entries)) + entries)
def host(name): return sni((0, name))
ECH = (0xfe0d, bytes([0]) + struct.pack('>HHBH', 1, 1, 7, 32) + bytes(32) + struct.pack('>H', 128) + bytes(128))
def greeting(*extensions):
    context = ssl.create_default_context(); context.check_hostname = False
    out = ssl.MemoryBIO(); tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=None)
    try: tls.do_handshake()
    except ssl.SSLWantReadError: pass
    record = out.read(); body = record[9:]
    at = 34; at += 1 + body[at]; at += 2 + struct.unpack('>H', body[at:at + 2])[0]; at += 1 + body[at]
    own = body[at + 2:]
    added = b''.join(struct.pack('>HH', kind, len(data)) + data for kind, data in extensions)
    body = body[:at] + struct.pack('>H', len(added + own)) + added + own
    message = b'\x01' + struct.pack('>I', len(body))[1:] + body
    return b'\x16\x03\x01' + struct.pack('>H', len(message)) + message
def said(bytes_):
    s = socket.create_connection(('tls.test', int(sys.argv[1]))); s.settimeout(20); s.sendall(bytes_)
    try: got = s.recv(7)
    except ConnectionResetError: got = b''
    return 'arrives' if got == b'server!' else 'alert' if got[:1] == b'\x15' else repr(got)
one = greeting(host(b'tls.test'))
pieces = b''.join(b'\x16\x03\x01' + struct.pack('>H', len(part)) + part for part in (one[5:50], one[50:]))
for bytes_ in (one, greeting(host(b'TLS.test')), greeting(host(b'tls.test'), ECH), pieces): print(said(bytes_))
print('--')
for bytes_ in (greeting(), greeting(host(b'other.test')), greeting(host(b'sub.tls.test')), greeting(host(b'tls.test.other.test')),
               greeting(host(b'other.test'), ECH), greeting(ECH), greeting(host(b'')), greeting(host(b'tls.test\x00.other.test')),
               greeting(host(b'127.0.0.1')), greeting(host(b'tls%2etest')), greeting(host(b'tls.test:443')),
               greeting(host(b'tls.test'), host(b'other.test')), greeting(host(b'other.test'), host(b'tls.test')),
               greeting(sni((0, b'tls.test'), (0, b'other.test'))), greeting(sni((1, b'tls.test'))), greeting(sni()),
               b'\x16\x03\x01\x00\x05hello', b'\x16\x03\x01\x00\x00' * 3 + b'\x16\x03\x01\x00\x04\x0b\x00\x00\x00'):
    print(said(bytes_))
";
    Person::each(|person| {
        let server = Server::start(|mut stream, bytes| {
            let mut part = [0; 4096];
            if let Ok(length) = stream.read(&mut part) {
                bytes.extend_from_slice(&part[..length]);
            }
            let _ = stream.write_all(b"server!");
        });
        let ran = python(person, &server, "tls.test", script)
            .run()
            .expect_code(0);
        let out = ran.out();
        let (twins, refused) = out.split_once("--\n").unwrap();
        assert_eq!(twins, "arrives\n".repeat(4), "{ran}");
        assert_eq!(refused, "alert\n".repeat(18), "{ran}");
        assert_eq!(server.brought(4).len(), 4);
    });
}

#[test]
fn every_way_of_asking_is_told_no_in_its_own_words() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let script = r"
import errno
for start in (b'CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n', b'GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n'):
    s = proxy(); s.sendall(start); head, body = rest(s).split(b'\r\n\r\n')
    print(head.split(b'\r\n')[0].decode(), b'Connection: close' in head, ('Content-Length: %d' % len(body)).encode() in head, body.decode().strip())
s = proxy(); s.sendall(b'\x05\x01\x00'); assert recv(s, 2) == b'\x05\x00'
s.sendall(b'\x05\x01\x00\x03\x0aother.test\x01\xbb'); print(recv(s, 10).hex(), rest(s))
# A question for a name, and its answer: no such name, with the question, by the server that is the authority here.
question = struct.pack('>HHHHHH', 77, 0x0100, 1, 0, 0, 0) + b'\x05other\x04test\x00' + struct.pack('>HH', 1, 1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.sendto(question, ('127.0.0.1', 53))
answer = s.recv(512); number, flags, asked, answers = struct.unpack('>HHHH', answer[:8])
print(number, flags >> 15, flags & 15, asked, answers, answer[12:len(question)] == question[12:])
def tried(at, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind); s.settimeout(20)
    try:
        s.connect(at); s.send(b'x'); s.recv(1); return 'connected'
    except OSError as error: return errno.errorcode.get(error.errno, repr(error))
stand_in = socket.gethostbyname('web.test')
print(tried((stand_in, 1)), tried(('192.0.2.1', 443)), tried((stand_in, port), socket.SOCK_DGRAM))
";
    Person::each(|person| {
        let server = Server::http();
        let ran = ask(person, &server, script).expect_code(0);
        let told = |place: &str| {
            format!(
                "HTTP/1.1 403 Forbidden True True glovebox: {place} is not among what this sandbox may reach\n"
            )
        };
        let expected = format!(
            "{}{}05020001000000000000 b''\n77 1 3 1 0 True\nECONNREFUSED ENETUNREACH ECONNREFUSED\n",
            told("other.test:443"),
            told("other.test:80")
        );
        assert_eq!(ran.out(), expected, "as {}: {ran}", person.name());
        assert_eq!(server.brought(0).len(), 0);
    });
}
