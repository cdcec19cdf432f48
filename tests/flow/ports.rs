//! Servers of a sandbox, reached from this machine by a port of it, and listed.

use crate::without_network::{AT_ONCE, has};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testkit::{Person, skip, wait_until};

/// Echoes what a connection brings until its end, then says how much that was; at an address and a port.
const ECHO: &str = "import socketserver, socket, sys\nclass H(socketserver.BaseRequestHandler):\n def handle(self):\n  n = 0\n  while True:\n   \
    got = self.request.recv(65536)\n   if not got: break\n   n += len(got); self.request.sendall(got)\n  self.request.sendall(b'%d bytes' % n)\n\
class S(socketserver.ThreadingTCPServer):\n address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET\n allow_reuse_address = True\n request_queue_size = 200\n daemon_threads = True\n\
S((sys.argv[1], int(sys.argv[2])), H).serve_forever()\n";

/// `glovebox expose` of a port, running; it ends with this.
struct Exposed {
    process: Child,
    address: SocketAddr,
}

impl Exposed {
    fn start(person: &Person, flags: &str) -> Self {
        let mut command = person.line(&format!("expose --json {flags}")).command;
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let _ = said.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let address = said["data"]["address"].as_str().unwrap().parse().unwrap();
        Self { process, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(AT_ONCE)).unwrap();
        stream
    }

    /// What the echo server answers to this, as soon as it listens.
    fn echo(&self, bytes: &[u8]) -> Vec<u8> {
        let begun = Instant::now();
        loop {
            let mut stream = self.connect();
            let mut got = Vec::new();
            let sent = stream
                .write_all(bytes)
                .and_then(|()| stream.shutdown(Shutdown::Write));
            if sent.is_ok() && stream.read_to_end(&mut got).is_ok() {
                return got;
            }
            assert!(begun.elapsed() < AT_ONCE, "no answer");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(person: &Person, address: &str, port: u16) {
    let script = format!("python3 -c \"{ECHO}\" {address} {port} > /dev/null 2>&1 &");
    let _ = person
        .glovebox(["exec", "--keep-background", "box", "--", "sh", "-c"])
        .args([&script])
        .run()
        .expect_code(0);
}

#[test]
fn a_server_of_a_sandbox_is_reached_and_listed() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        for (net, address) in [
            ("none", "127.0.0.1"),
            ("egress", "0.0.0.0"),
            ("none", "::1"),
        ] {
            let _ = person
                .line(
                    &format!("start -q --net {net} --allow a.example:4321 box")
                        .replace("--net none --allow a.example:4321", "--net none"),
                )
                .run()
                .expect_code(0);
            let listed = |person: &Person| {
                let listed = person.line("ports box --json").run().expect_code(0);
                let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
                listed["data"]["ports"].as_array().unwrap().clone()
            };
            assert_eq!(listed(person), Vec::<Value>::new());
            serve(person, address, 3000);
            let exposed = Exposed::start(person, "box 3000");
            assert!(exposed.address.ip().is_loopback());
            assert_eq!(exposed.echo(b"hello"), b"hello5 bytes", "{net} {address}");
            let ports = listed(person);
            assert_eq!(ports.len(), 1, "{ports:?}");
            assert_eq!(
                (&ports[0]["port"], ports[0]["address"].as_str()),
                (&Value::from(3000), Some(address)),
                "{ports:?}"
            );
            // Much, both ways at once.
            let mut stream = exposed.connect();
            let mut writer = stream.try_clone().unwrap();
            let part: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
            let (sent, count) = (part.clone(), 20);
            let writing = std::thread::spawn(move || {
                for _ in 0..count {
                    writer.write_all(&sent).unwrap();
                }
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut got = Vec::new();
            let _ = stream.read_to_end(&mut got).unwrap();
            writing.join().unwrap();
            let end = format!("{} bytes", count * part.len());
            assert!(
                got.ends_with(end.as_bytes()) && got[..count * part.len()] == part.repeat(count)
            );
            drop(exposed);
            let _ = person.line("kill -q box").run().expect_code(0);
        }
        person.assert_nothing_left();
    });
}

#[test]
fn many_connections_at_once_and_a_client_that_never_reads() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let me = Person::myself();
    let _ = me.line("start -q box").run().expect_code(0);
    serve(&me, "127.0.0.1", 3000);
    let exposed = Exposed::start(&me, "box 3000 --listen 127.0.0.1");
    assert_eq!(exposed.echo(b"x"), b"x1 bytes");
    // Any free port, whether or not the one of the same number is free.
    let anywhere = Exposed::start(&me, "box 3000 --listen 127.0.0.1:0");
    assert!(![0, 3000, exposed.address.port()].contains(&anywhere.address.port()));
    assert_eq!(anywhere.echo(b"hello"), b"hello5 bytes");
    drop(anywhere);
    // This one sends and takes nothing: what it holds up is itself.
    let stuck = exposed.connect();
    let mut writer = stuck.try_clone().unwrap();
    let stuffing = std::thread::spawn(move || {
        let part = vec![b'z'; 1 << 20];
        for _ in 0..64 {
            if writer.write_all(&part).is_err() {
                return;
            }
        }
    });
    let mut open: Vec<TcpStream> = (0..100).map(|_| exposed.connect()).collect();
    for (number, stream) in open.iter_mut().enumerate() {
        stream.write_all(format!("{number:04}").as_bytes()).unwrap();
    }
    for (number, stream) in open.iter_mut().enumerate() {
        let mut got = [0; 4];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, format!("{number:04}").as_bytes());
    }
    let ran = me.line("exec box -- echo alive").run().expect_code(0);
    assert_eq!(ran.out(), "alive\n");
    let _ = stuck.shutdown(Shutdown::Both);
    stuffing.join().unwrap();
    drop((open, exposed));
    let _ = me.line("kill -q box").run().expect_code(0);
    me.assert_nothing_left();
}

#[test]
fn what_cannot_be_exposed_is_told() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let mut exposed = Exposed::start(person, "box 3000");
        // Nothing listens there: to a client the port is closed.
        let mut stream = exposed.connect();
        let mut got = Vec::new();
        let read = stream.read_to_end(&mut got);
        assert!(read.is_err() && got.is_empty(), "{read:?}");
        // The port is taken: another one is found, unless it was asked for.
        let other = Exposed::start(person, "box 3000");
        assert_ne!(other.address, exposed.address);
        let taken = format!("expose box 3000 --listen {}", exposed.address);
        let said = [
            taken.as_str(),
            "expose box 0",
            "expose box 3000 --listen localhost",
            "expose nobox 3000",
            "ports nobox",
            "expose box",
        ]
        .map(|line| {
            let ran = person.line(line).run();
            assert_ne!(ran.code, 0, "{line}: {ran}");
            let failure = ran.failure(person.place().root());
            format!("$ glovebox {line}\n{failure}\n")
        });
        let said = said
            .concat()
            .replace(&exposed.address.to_string(), "[ADDRESS]");
        insta::assert_snapshot!(said, @"
        $ glovebox expose box 3000 --listen [ADDRESS]
        error: cannot listen at [ADDRESS]: Address already in use
        hint: something listens there already: name another port with --listen, or port 0 for a free one
        $ glovebox expose box 0
        error: PORT: 0 is not in 1..=65535
        hint: `glovebox expose --help` shows the flags and examples
        $ glovebox expose box 3000 --listen localhost
        error: --listen: `localhost` is no address of this machine
        hint: write 127.0.0.1, 127.0.0.1:8080 or [::1]:8080
        $ glovebox expose nobox 3000
        error: there is no sandbox `nobox`
        hint: `glovebox list` shows what there is; `glovebox start NAME` makes one
        $ glovebox ports nobox
        error: there is no sandbox `nobox`
        hint: `glovebox list` shows what there is; `glovebox start NAME` makes one
        $ glovebox expose box
        error: PORT: invalid digit found in string
        hint: `glovebox expose --help` shows the flags and examples
        ");
        // It ends with its sandbox.
        let _ = person.line("kill -q box").run().expect_code(0);
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = exposed.process.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < AT_ONCE, "it goes on without its sandbox");
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(!status.success());
        drop(other);
        person.assert_nothing_left();
    });
}

/// The holder of a port by `glovebox ports`: job, pid and command.
fn holder(person: &Person, port: u16) -> Option<Value> {
    let listed = person.line("ports --json box").run().expect_code(0);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let ports = listed["data"]["ports"].as_array().unwrap().clone();
    ports.into_iter().find(|found| found["port"] == port)
}

#[test]
fn holder_of_a_port_is_named() {
    if !has("python3") {
        skip!("needs python3");
    }
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        serve(person, "127.0.0.1", 8080);
        assert!(wait_until(Duration::from_secs(20), || holder(person, 8080).is_some()));
        let held = holder(person, 8080).unwrap();
        assert_eq!(held["job"], 1, "{held}");
        assert!(
            held["command"].as_str().unwrap().starts_with("sh -c "),
            "{held}"
        );
        let pid = held["pid"].as_u64().unwrap();
        let table = person.line("ports box").run().expect_code(0);
        assert!(table.out().contains(&format!("  1    {pid}")), "{table}");

        // Another command still cannot look into the server; its twin, a child of its own, it can.
        let look = format!(
            "sleep 9 & ls /proc/$!/fd >/dev/null && ls -l /proc/{pid}/fd 2>&1 | grep -c -e socket -e pipe; kill $!"
        );
        let ran = person.script("exec box", &look).run();
        assert_eq!(ran.out(), "0\n", "{ran}");
        let taken = "python3 -c 'import socket; socket.socket().bind((\"127.0.0.1\", 8080))'";
        let ran = person.script("exec box", taken).run().expect_code(1);
        let line = "glovebox: port 8080 is held by job 1 (`sh -c ";
        assert!(ran.err().contains(line), "{ran}");
        let remedy = format!(", pid {pid}): `kill {pid}` inside ends it");
        assert!(ran.err().contains(&remedy), "{ran}");
        // A pipe hides the exit code of what wanted it.
        let hidden = format!("{taken} 2>&1 | cat");
        let ran = person.script("exec box", &hidden).run().expect_code(0);
        assert!(ran.err().contains(&remedy), "{ran}");
        // What it says helps.
        let kill = format!("kill {pid}");
        let _ = person.script("exec box", &kill).run().expect_code(0);
        assert!(wait_until(Duration::from_secs(20), || holder(person, 8080).is_none()));
        let _ = person.script("exec box", taken).run().expect_code(0);
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn process_that_hides_its_descriptors_is_not_named() {
    if !has("python3") {
        skip!("needs python3");
    }
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let server = "python3 -c 'import ctypes, socket, time
ctypes.CDLL(None).prctl(4, 0)
s = socket.socket(); s.bind((\"127.0.0.1\", 8081)); s.listen(); time.sleep(60)' >/dev/null 2>&1 &";
        let _ = person
            .script("exec --keep-background box", server)
            .run()
            .expect_code(0);
        assert!(wait_until(Duration::from_secs(20), || holder(person, 8081).is_some()));
        assert!(holder(person, 8081).unwrap()["pid"].is_null());
        let taken = "python3 -c 'import socket; socket.socket().bind((\"127.0.0.1\", 8081))'";
        let ran = person.script("exec box", taken).run().expect_code(1);
        assert!(
            ran.err()
                .contains("port 8081 is in use in this sandbox: use another port"),
            "{ran}"
        );
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn port_of_the_way_out_is_named() {
    if !has("python3") {
        skip!("needs python3");
    }
    Person::each(|person| {
        for (flags, port, kind) in [
            ("--net egress --allow example.com", 443, "STREAM"),
            ("--net none", 53, "DGRAM"),
        ] {
            let script = format!(
                "python3 -c 'import socket; socket.socket(type=socket.SOCK_{kind}).bind((\"0.0.0.0\", {port}))'"
            );
            let ran = person
                .script(&format!("run -q {flags}"), &script)
                .run()
                .expect_code(1);
            let line = format!("port {port} is held by the way out of this sandbox");
            assert!(ran.err().contains(&line), "{ran}");
        }
    });
}
