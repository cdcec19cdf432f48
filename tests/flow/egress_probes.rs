//! The probes of the isolation design about networks, by their numbers, where no other file of this suite has them: each
//! with a twin that works.
//!
//! | probe | here, or where |
//! |---|---|
//! | 28 net-none | here |
//! | 29 proxy-unset | here |
//! | 30 allow-exact | `egress::a_listed_host_is_reached_and_no_other`; here the spellings of one name |
//! | 31 nul-and-control | `egress_proxy::what_has_no_clear_reading_is_refused_by_the_proxy` |
//! | 35 empty-list | here |
//! | 36 dns-exfil | here, and `egress::datagrams_are_refused_at_once_and_names_carry_nothing_out` |
//! | 37 port-rule | here |
//! | 38 redirect | here |
//! | 40 env-clean | `tests/escape/environment.rs` |
//! | 62 config-escape | `untrusted_repository`, `tests/escape/project_files.rs` |

use crate::egress::{Server, python};
use crate::egress_proxy::own_address;
use crate::without_network::{AT_ONCE, has};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};
use testkit::{Person, skip};

/// Without network nothing of the host is reached by any protocol, at once; its own loopback works.
#[test]
fn probe_28_net_none() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let listener = Server::http();
    let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    datagrams
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let udp = datagrams.local_addr().unwrap().port();
    let beyond = own_address().map_or_else(|| "192.0.2.1".to_owned(), |own| own.to_string());
    let script = format!(
        r"
import socket, sys
tcp, udp = {}, {udp}
def attempt(kind, at, family=socket.AF_INET, proto=0):
    try:
        s = socket.socket(family, kind, proto); s.settimeout(5)
        s.connect(at); s.send(b'x'); s.recv(1); print('reached', at)
    except OSError as e: print(type(e).__name__)
for host in ('127.0.0.1', '{beyond}', '198.51.100.1'):
    attempt(socket.SOCK_STREAM, (host, tcp)); attempt(socket.SOCK_DGRAM, (host, udp))
    attempt(socket.SOCK_DGRAM, (host, 1), proto=socket.IPPROTO_ICMP)
    attempt(socket.SOCK_RAW, (host, 1), proto=socket.IPPROTO_ICMP)
for host in ('::1', '2001:db8::1', '::ffff:127.0.0.1'):
    attempt(socket.SOCK_STREAM, (host, tcp), socket.AF_INET6)
# Routes of multicast and broadcast stay on the loopback interface.
print(sorted({{line.split()[0] for line in open('/proc/net/route')}} - {{'Iface', 'lo'}}))
print(sorted({{line.split()[-1] for line in open('/proc/net/ipv6_route')}} - {{'lo'}}))
own = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(own.getsockname()); s, _ = own.accept(); c.send(b'own'); print(s.recv(3))
",
        listener.port
    );
    Person::each(|person| {
        let begun = Instant::now();
        let ran = person
            .glovebox(["run", "-q", "--", "python3", "-c", &script])
            .run()
            .expect_code(0);
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        let out = ran.out();
        assert!(
            !out.contains("reached") && !out.contains("Timeout"),
            "as {}: {ran}",
            person.name()
        );
        assert!(out.ends_with("[]\n[]\nb'own'\n"), "{ran}");
        assert_eq!(listener.brought(0).len(), 0);
        assert!(datagrams.recv(&mut [0; 8]).is_err());
    });
}

/// Without the variables about proxies a listed host is reached, and another is refused.
#[test]
fn probe_29_proxy_unset() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let run = |name: &str| {
            let script = format!(
                "unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; env | grep -i _proxy=; \
                 curl -sS http://{name}:{}/",
                server.port
            );
            let rule = server.rule("web.test");
            person
                .script(&format!("run -q --net egress --allow {rule}"), &script)
                .run()
        };
        let listed = run("web.test").expect_code(0);
        assert!(listed.out().ends_with("hello\n"), "{listed}");
        let other = run("other.test");
        assert!(
            other.code != 0 && other.err().contains("--allow other.test"),
            "{other}"
        );
        assert_eq!(server.brought(1).len(), 1);
    });
}

/// One name has one meaning in every spelling that is a name, and no other name has it.
#[test]
fn probe_30_allow_exact() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let script = r"
import socket, sys
port = int(sys.argv[1])
def ask(name):
    try:
        s = socket.create_connection((name, port), 5); s.sendall(b'GET / HTTP/1.1\r\nHost: web.test:%d\r\nConnection: close\r\n\r\n' % port)
        return s.recv(12) == b'HTTP/1.1 200'
    except (OSError, UnicodeError): return False
print([ask(name) for name in ('web.test', 'WEB.Test', 'web.test.')])
print([ask(name) for name in ('evilweb.test', 'web.test.evil.io', 'sub.web.test', 'test', 'xn--wb-xia.test', 'w\u00e9b.test',
                              'web.test..', '.web.test', 'web-test')])
";
    Person::each(|person| {
        let server = Server::http();
        let ran = python(person, &server, "web.test", script)
            .run()
            .expect_code(0);
        let (listed, others) = (["True"; 3].join(", "), ["False"; 9].join(", "));
        assert_eq!(ran.out(), format!("[{listed}]\n[{others}]\n"), "{ran}");
        assert_eq!(server.brought(3).len(), 3);
    });
}

/// An empty list opens nothing, whether it was left out or written down.
#[test]
fn probe_35_empty_list() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let url = format!(
            "curl -sS --max-time 10 http://127.0.0.1.test:{}/",
            server.port
        );
        let refused = |ran: testkit::Ran| {
            assert!(
                ran.code != 0
                    && ran
                        .err()
                        .contains("is not among what this sandbox may reach"),
                "as {}: {ran}",
                person.name()
            );
        };
        refused(person.script("run -q --net egress", &url).run());
        person.write(
            "home/.config/glovebox/glovebox.toml",
            "net = \"egress\"\nallow = []\n",
        );
        refused(person.script("run -q", &url).run());
        // The twin: the same list with one host in it.
        let rule = server.rule("127.0.0.1.test");
        person.write(
            "home/.config/glovebox/glovebox.toml",
            format!("net = \"egress\"\nallow = [\"{rule}\"]\n"),
        );
        let ran = person.script("run -q", &url).run().expect_code(0);
        assert_eq!(ran.out(), "hello\n");
        assert_eq!(server.brought(1).len(), 1);
    });
}

/// Questions for names carry nothing out, of whatever type and over whatever protocol; those that are listed are answered.
#[test]
fn probe_36_dns_exfil() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let script = r"
import socket, struct, sys
def question(name, kind):
    labels = b''.join(bytes([len(part)]) + part for part in name.split(b'.'))
    return struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>HH', kind, 1)
def ask(name, kind):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('127.0.0.1', 53))
    s.send(question(name, kind)); answer = s.recv(512)
    return answer[3] & 15, struct.unpack('>H', answer[6:8])[0]
# A, AAAA, TXT, NULL, MX, ANY
print([ask(b'c2VjcmV0.secret.example', kind) for kind in (1, 28, 16, 10, 15, 255)])
print(ask(b'web.test', 1), [ask(b'web.test', kind)[1] for kind in (28, 16, 10)])
try: socket.create_connection(('127.0.0.1', 53), 5); print('TCP 53')
except OSError as e: print(type(e).__name__)
for at in ('9.9.9.9', '198.18.0.9'):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
    try: s.connect((at, 53)); s.send(question(b'a.example', 1)); print(s.recv(512))
    except OSError as e: print(type(e).__name__)
";
    Person::each(|person| {
        let server = Server::http();
        let ran = python(person, &server, "web.test", script)
            .run()
            .expect_code(0);
        let lines: Vec<_> = ran.out().lines().map(str::to_owned).collect();
        // No such name, for each type.
        assert_eq!(lines[0], format!("[{}]", ["(3, 0)"; 6].join(", ")), "{ran}");
        assert_eq!(lines[1], "(0, 1) [0, 0, 0]", "{ran}");
        assert_eq!(lines[2], "ConnectionRefusedError", "{ran}");
        assert_eq!(lines[3..], ["OSError", "ConnectionRefusedError"], "{ran}");
    });
}

/// A listed host is reached at the ports of its rule and at no other.
#[test]
fn probe_37_port_rule() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let (listed, other) = (Server::http(), Server::http());
        let rules = format!(
            "--allow {} --allow second.test:{}=127.0.0.1",
            listed.rule("web.test"),
            other.port
        );
        let fetch = |port: u16| {
            let script = format!("curl -sS http://web.test:{port}/");
            person
                .script(&format!("run -q --net egress {rules}"), &script)
                .run()
        };
        assert_eq!(fetch(listed.port).expect_code(0).out(), "hello\n");
        // One that is listened on for another host, and some that are not.
        for port in [other.port, 22, 8080] {
            let ran = fetch(port);
            assert!(ran.code != 0 && ran.out().is_empty(), "{port}: {ran}");
        }
        let told = format!("`--allow web.test:{}` opens it", other.port);
        assert!(fetch(other.port).err().contains(&told));
        assert_eq!(other.brought(0).len(), 0);
    });
}

/// Where an answer leads is decided anew; what is listed too is followed.
#[test]
fn probe_38_redirect() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let last = Server::http();
        let port = last.port;
        let first = Server::start(move |mut stream, bytes| {
            let mut part = [0; 4096];
            while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut part) {
                    Ok(length @ 1..) => bytes.extend_from_slice(&part[..length]),
                    _ => return,
                }
            }
            let head = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://last.test:{port}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes());
        });
        for way in ["", "-x socks5h://198.18.0.1:808", "-x $https_proxy"] {
            let fetch = |rules: &str| {
                let script = format!("curl -sSfL {way} http://first.test:{}/", first.port);
                let flags = format!(
                    "run -q --net egress --allow {} {rules}",
                    first.rule("first.test")
                );
                person.script(&flags, &script).run()
            };
            let ran = fetch("");
            assert!(
                ran.code != 0 && ran.out().is_empty() && ran.err().contains("--allow last.test"),
                "{way}: {ran}"
            );
            let ran = fetch(&format!("--allow {}", last.rule("last.test"))).expect_code(0);
            assert_eq!(ran.out(), "hello\n", "{way}");
        }
        assert_eq!((first.brought(6).len(), last.brought(3).len()), (6, 3));
    });
}
