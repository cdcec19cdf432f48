//! The other ways out of a network of listed hosts: its proxy, for programs that know of proxies, and listed addresses.

use crate::egress::{Server, answer_hello, python};
use crate::without_network::has;
use crate::workspace::told;
use std::net::Ipv6Addr;
pub(crate) use testkit::own_address;
use testkit::{Person, skip};

/// Asks the proxy by SOCKS and by CONNECT for what stands in `HOSTS`, each a host as bytes, and prints the answers.
const ASK: &str = r"
import socket, struct, sys
port = int(sys.argv[1])
def recv(s, count):
    got = b''
    while len(got) < count:
        part = s.recv(count - len(got))
        if not part: break
        got += part
    return got
def proxy():
    s = socket.create_connection(('198.18.0.1', 808)); s.settimeout(20); return s
def socks(kind, address):
    s = proxy(); s.sendall(b'\x05\x02\x00\x02')
    assert recv(s, 2) == b'\x05\x00'
    s.sendall(b'\x05\x01\x00' + bytes([kind]) + address + struct.pack('>H', port))
    return s, recv(s, 10)[1]
def named(host): return socks(3, bytes([len(host)]) + host)
def connect(authority, more=b''):
    s = proxy(); s.sendall(b'CONNECT ' + authority + b' HTTP/1.1\r\nHost: x\r\n\r\n' + more)
    return s, recv(s, 12)[9:].decode()
def rest(s):
    got = b''
    while True:
        part = s.recv(4096)
        if not part: return got
        got += part
GET = b'GET /%s HTTP/1.1\r\nConnection: close\r\nHost: web.test:' + str(port).encode() + b'\r\n\r\n'
";

/// Runs a script that may use what stands in [`ASK`], where the server is listed as `web.test`.
pub(crate) fn ask(person: &Person, server: &Server, script: &str) -> testkit::Ran {
    python(person, server, "web.test", &format!("{ASK}{script}")).run()
}

#[test]
fn the_proxy_leads_to_listed_hosts() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let script = r"
stand_in = socket.gethostbyname('web.test')
for kind, address in ((3, b'\x08web.test'), (3, b'\x09WEB.test.'), (1, socket.inet_aton(stand_in))):
    s, reply = socks(kind, address)
    s.sendall(GET % b'socks'); print(reply, rest(s).endswith(b'hello\n'))
s, status = connect(b'web.test:%d' % port)
recv(s, len(' Connection established\r\n\r\n')); s.sendall(GET % b'tunnel'); print(status, rest(s).endswith(b'hello\n'))
# Who does not wait for the answer loses nothing.
s, status = connect(b'web.test:%d' % port, GET % b'early')
print(status, rest(s).endswith(b'hello\n'))
s = proxy(); s.sendall(b'GET http://web.test:%d/whole HTTP/1.1\r\nHost: web.test:%d\r\n\r\n' % (port, port) * 2)
print(rest(s).count(b'hello\n'))
";
    Person::each(|person| {
        let server = Server::http();
        let ran = ask(person, &server, script).expect_code(0);
        let said = "0 True\n0 True\n0 True\n200 True\n200 True\n1\n";
        assert_eq!(ran.out(), said, "as {}: {ran}", person.name());
        let brought = server.brought(6);
        assert_eq!(brought.len(), 6, "{brought:?}");
        // A request by its whole address arrives as any other, and the second of its connection was another matter.
        assert!(
            brought[5].starts_with("GET /whole HTTP/1.1\r\n"),
            "{brought:?}"
        );
    });
}

#[test]
fn what_has_no_clear_reading_is_refused_by_the_proxy() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let script = r"
hosts = [b'', b'.', b'web.test\x00.evil.test', b'web.test\r\n', b'web.test ', b'web.test\t', b'%77eb.test', b'me@web.test',
         b'web.test#', b'web.test/', b'web.t\xc3\xa9st', b'w\xffeb.test', b'evilweb.test', b'web.test.evil.test', b'127.1',
         b'0x7f000001', b'017700000001', b'127.0.0.1', b'[::1]', b'::1', b'198.18.0.1', b'198.18.0.200', b'localhost', b'*']
print({named(host)[1] for host in hosts})
addresses = [(1, bytes([127, 0, 0, 1])), (1, bytes([198, 18, 0, 1])), (4, bytes(15) + b'\x01'),
             (4, bytes(10) + b'\xff\xff' + bytes([127, 0, 0, 1])), (1, bytes([169, 254, 169, 254]))]
print({socks(*address)[1] for address in addresses})
print(sorted({connect(host + b':%d' % port)[1] for host in hosts if b'\r' not in host}))
print(sorted({connect(b'web.test' + end)[1] for end in (b'', b':', b':0', b':-1', b':65536', b':+%d' % port, b':%d@evil.test:80' % port)}))
for start in (b'GET / HTTP/1.1\r\nHost: web.test\r\n\r\n', b'GET https://web.test/ HTTP/1.1\r\n\r\n', b'GET ftp://web.test/ HTTP/1.1\r\n\r\n',
              b'CONNECT web.test:%d HTTP/1.1\r\n' % port + b'X: ' + b'x' * 70000, b'\x16\x03\x01\x00\x05hello', b'\x04\x01'):
    s = proxy(); s.sendall(start)
    try: s.shutdown(socket.SHUT_WR); print(s.recv(12))
    except OSError as e: print('ended')
# Another version, another command, no method that there is.
for message in (b'\x05\x01\x00\x05\x02\x00\x01' + bytes(6), b'\x05\x01\x00\x05\x03\x00\x01' + bytes(6), b'\x05\x01\x02'):
    s = proxy(); s.sendall(message); print(s.recv(2)[1], s.recv(10)[1:2])
sys.exit(1)
";
    Person::each(|person| {
        let server = Server::http();
        let ran = ask(person, &server, script).expect_code(1);
        let lines: Vec<_> = ran.out().lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "{2}", "{ran}");
        assert_eq!(lines[1], "{2}", "{ran}");
        assert_eq!(lines[2], "['400', '403']", "{ran}");
        assert_eq!(lines[3], "['400', '403']", "{ran}");
        assert!(
            lines[4..10]
                .iter()
                .all(|line| line.contains("HTTP/1.1 400") || line.contains("ended")),
            "{ran}"
        );
        assert_eq!(
            &lines[10..],
            ["0 b'\\x07'", "0 b'\\x07'", "255 b''"],
            "{ran}"
        );
        assert!(
            ran.err().contains("which no sandbox reaches") && !ran.err().contains("--allow 169"),
            "{ran}"
        );
        assert_eq!(server.brought(0).len(), 0, "{:?}", server.brought(0));
    });
}

#[test]
fn clients_that_are_told_of_the_proxy_use_it() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let (one, two) = (
            Server::http(),
            Server::start_at(Ipv6Addr::LOCALHOST.into(), answer_hello),
        );
        let flags = format!(
            "run -q --net egress --allow {} --allow {}",
            one.rule("one.test"),
            two.rule("two.test")
        );
        let (one_url, two_url) = (
            format!("http://one.test:{}/", one.port),
            format!("http://two.test:{}/", two.port),
        );
        for way in [
            "-x $https_proxy",
            "-px $https_proxy",
            "-x socks5h://198.18.0.1:808",
            "",
        ] {
            // One connection to the proxy, and two hosts: each gets what is meant for it. One has an address of
            // version 6 outside.
            let ran = person
                .script(
                    &flags,
                    &format!("curl -sS {way} {one_url} {two_url} {one_url}"),
                )
                .run()
                .expect_code(0);
            assert_eq!(ran.out(), "hello\nhello\nhello\n", "{way}: {ran}");
        }
        assert_eq!((one.brought(8).len(), two.brought(4).len()), (8, 4));
        // A refusal is an answer in words, and the command is told of the host as it would be without a proxy.
        let said = [
            ("-fx $https_proxy", "403"),
            ("-px $https_proxy", "403"),
            ("-x socks5h://198.18.0.1:808", "SOCKS5"),
        ]
        .map(|(way, words)| {
            let ran = person
                .script(&flags, &format!("curl -sS {way} http://other.test:81/"))
                .run();
            assert!(ran.code != 0 && ran.err().contains(words), "{way}: {ran}");
            told(person, &ran)
        });
        insta::assert_snapshot!(said.join("\n"), @"
        glovebox: the command asked for `other.test:81`, which is not among what this sandbox may reach: `--allow other.test:81` opens it
        glovebox: the command asked for `other.test:81`, which is not among what this sandbox may reach: `--allow other.test:81` opens it
        glovebox: the command asked for `other.test:81`, which is not among what this sandbox may reach: `--allow other.test:81` opens it
        ");
        // Servers of the sandbox itself are no business of the proxy.
        let ran = person
            .script(&flags, "printf %s,%s $no_proxy $HTTP_PROXY$ALL_PROXY")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "localhost,127.0.0.1,::1,glovebox,", "{ran}");
        let ran = person
            .script(&flags, "printf %s $https_proxy")
            .args(["--", "x"])
            .run();
        assert!(ran.out().starts_with("http://198.18.0.1:808"), "{ran}");
    });
}

#[test]
fn a_listed_address_is_reached_and_no_other() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    let Some(address) = own_address() else {
        skip!("this machine has no address but its loopback's");
    };
    Person::each(|person| {
        let server = Server::start_at(address, answer_hello);
        let (listed, other) = (
            Server::start_at(address, answer_hello),
            Server::start(answer_hello),
        );
        let flags = format!("run -q --net egress --allow {address}:{}", listed.port);
        let fetch = |way: &str, port: u16| {
            person
                .script(&flags, &format!("curl -sS {way} http://{address}:{port}/"))
                .run()
        };
        for way in ["", "-px $https_proxy", "-x socks5h://198.18.0.1:808"] {
            assert_eq!(
                fetch(way, listed.port).expect_code(0).out(),
                "hello\n",
                "{way}"
            );
            let ran = fetch(way, server.port);
            assert!(ran.code != 0 && ran.out().is_empty(), "{way}: {ran}");
        }
        let ran = person
            .script(
                &flags,
                &format!(
                    "curl -sS -H 'Host: other.test' http://{address}:{}/",
                    listed.port
                ),
            )
            .run();
        let said = ran.out().replace(&address.to_string(), "[ADDRESS]");
        insta::assert_snapshot!(said, @"glovebox: this connection is for [ADDRESS], and the request names another host");
        assert_eq!(listed.brought(3).len(), 3);
        assert_eq!((server.brought(0).len(), other.brought(0).len()), (0, 0));
        let said = ["127.0.0.1", "198.18.0.1:80", "[::1]:80"].map(|own| {
            let ran = person
                .line(&format!("run --net egress --allow {own} -- true"))
                .run()
                .expect_code(125);
            ran.failure(person.place().root())
        });
        insta::assert_snapshot!(said.join("\n"), @"
        error: --allow: 127.0.0.1 is an address of the sandbox itself
        hint: give what is meant a name: `NAME:PORT=127.0.0.1`
        error: --allow: 198.18.0.1 is an address of the sandbox itself
        hint: give what is meant a name: `NAME:PORT=198.18.0.1`
        error: --allow: ::1 is an address of the sandbox itself
        hint: give what is meant a name: `NAME:PORT=::1`
        ");
    });
}
