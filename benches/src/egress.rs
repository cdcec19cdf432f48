//! The way out to listed hosts beside a direct connection and beside an ordinary forward proxy (tinyproxy): what one
//! more connection takes, how fast a large answer comes, and how soon a program learns that a host is not listed.

mod link;

use crate::race::{Contestant, Outcome, race};
use crate::rival;
use crate::running::Running;
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_egress::Policy;
use glovebox_proto::{Exec, Exit};
use glovebox_sandbox::Sandbox;
use glovebox_spec::Net;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const CONNECT: &str = "connecting to a listed host";
pub(crate) const TRANSFER: &str = "an answer of 1 GiB, over loopback";
pub(crate) const LINK: &str = "an answer of 1 GiB, over a link of 10 Gbit/s";
pub(crate) const DIRECT: &str = "direct";
pub(crate) const GLOVEBOX: &str = "glovebox, listed host";
const TINYPROXY: &str = "tinyproxy, CONNECT";
pub(crate) const DENIAL: &str = "learning that a host cannot be reached";
pub(crate) const OTHER_NAME: &str = "glovebox, name that is not listed";
pub(crate) const OTHER_ADDRESS: &str = "glovebox, address that is not listed";
pub(crate) const NO_NETWORK: &str = "glovebox, name, without network";
const NAME: &str = "bench.test";
const ANSWER_BYTES: u64 = 1 << 30;

/// Prints the median nanoseconds of one connection with one byte each way or of one that fails, or those of one large
/// answer.
const CLIENT: &str = r"
import socket, sys, time
host, port, what, proxy = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
address = socket.gethostbyname(host) if what != 'denied' else host
def connect():
    if not proxy: return socket.create_connection((address, port))
    s = socket.create_connection(('127.0.0.1', proxy))
    s.sendall(b'CONNECT %s:%d HTTP/1.1\r\nHost: %s\r\n\r\n' % (address.encode(), port, address.encode()))
    got = b''
    while not got.endswith(b'\r\n\r\n'): got += s.recv(1)
    assert b' 200 ' in got, got
    return s
def timed(act):
    began = time.monotonic_ns(); act(); return time.monotonic_ns() - began
def one():
    with connect() as s: s.sendall(b'c'); assert s.recv(1)
buffer = bytearray(1 << 20)
def whole():
    seen = 0
    with connect() as s:
        s.sendall(b'g')
        while True:
            length = s.recv_into(buffer)
            if not length: break
            seen += length
    assert seen == 1 << 30, seen
def refused():
    try: connect().close()
    except OSError: return
    raise SystemExit('it was reached')
act = {'connect': one, 'get': whole, 'denied': refused}[what]
times = sorted(timed(act) for _ in range(1 if what == 'get' else 100))
print(times[len(times) // 2])
";

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let python = match rival::find("python3") {
        Ok(python) => python,
        Err(error) => {
            table.skip(CONNECT, GLOVEBOX, format!("{error:#}"));
            return Ok(());
        }
    };
    let server = serve()?;
    let sandbox = listed(world, server)?;
    let proxy = Tinyproxy::start(&world.scratch("tinyproxy")?);
    for (group, what, rounds, described) in [
        (
            CONNECT,
            "connect",
            40,
            "connect, one byte each way, close; median of 100",
        ),
        (TRANSFER, "get", 12, "one connection"),
    ] {
        let mut contestants = direct_and_listed(&python, &sandbox, server, what);
        match &proxy {
            Ok(proxy) => {
                let python = &python;
                contestants.push(Contestant::new(TINYPROXY, move || {
                    outside(python, server, what, proxy.port)
                }));
            }
            Err(error) => table.skip(group, TINYPROXY, format!("{error:#}")),
        }
        let outcome = race(contestants, world.rounds(rounds), world.budget(60));
        if group == TRANSFER {
            speeds(table, group, &outcome);
        }
        table.race(group, described, outcome, &[DIRECT, TINYPROXY]);
    }
    match link::serve(answer_all) {
        Ok(server) => {
            let sandbox = listed(world, server)?;
            let contestants = direct_and_listed(&python, &sandbox, server, "get");
            let outcome = race(contestants, world.rounds(12), world.budget(60));
            speeds(table, LINK, &outcome);
            table.race(LINK, "one connection", outcome, &[DIRECT]);
        }
        Err(error) => table.skip(LINK, GLOVEBOX, format!("{error:#}")),
    }
    let without = world.sandbox(&world.unlimited())?;
    let denied = [
        (OTHER_NAME, &sandbox, "other.test"),
        (OTHER_ADDRESS, &sandbox, "192.0.2.1"),
        (NO_NETWORK, &without, "other.test"),
    ];
    let contestants = denied.map(|(name, sandbox, host)| {
        Contestant::new(name, move || inside(sandbox, host, server.port(), "denied"))
    });
    let outcome = race(contestants.into(), world.rounds(40), world.budget(60));
    table.race(
        DENIAL,
        "connect until it fails; median of 100",
        outcome,
        &[],
    );
    Ok(())
}

/// A sandbox that reaches the server by a name.
fn listed(world: &World, server: SocketAddrV4) -> Result<Sandbox> {
    let mut spec = world.unlimited();
    spec.jail.net = Net::Egress;
    let rule = format!("{NAME}:{}={}", server.port(), server.ip());
    spec.egress = Policy::new(&[rule], &[])?;
    world.sandbox(&spec)
}

fn direct_and_listed<'a>(
    python: &'a Path,
    sandbox: &'a Sandbox,
    server: SocketAddrV4,
    what: &'static str,
) -> Vec<Contestant<'a>> {
    vec![
        Contestant::new(DIRECT, move || outside(python, server, what, 0)),
        Contestant::new(GLOVEBOX, move || inside(sandbox, NAME, server.port(), what)),
    ]
}

fn speeds(table: &mut Table, group: &str, outcome: &Outcome) {
    for sample in &outcome.samples {
        let rate = ANSWER_BYTES as f64 / f64::from(1 << 20) / (sample.p50_us / 1e6);
        table.figure(group, sample.contestant.clone(), rate, "MiB/s");
    }
}

fn outside(python: &Path, server: SocketAddrV4, what: &str, proxy_port: u16) -> Result<Duration> {
    let (host, port) = (server.ip().to_string(), server.port().to_string());
    let output = Command::new(python)
        .args(["-c", CLIENT, &host, &port, what, &proxy_port.to_string()])
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    nanos(&output.stdout)
}

fn inside(sandbox: &Sandbox, host: &str, port: u16, what: &str) -> Result<Duration> {
    let port = port.to_string();
    let output = sandbox.exec(Exec::new(["python3", "-c", CLIENT, host, &port, what, "0"]))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.report.exit == Exit::Code(0),
        "{:?}: {said}",
        output.report.exit
    );
    nanos(&output.stdout)
}

fn nanos(stdout: &[u8]) -> Result<Duration> {
    let text = String::from_utf8_lossy(stdout);
    let nanos: u64 = text
        .trim()
        .parse()
        .with_context(|| format!("not a number: {text}"))?;
    Ok(Duration::from_nanos(nanos))
}

/// A server on loopback: `c` is answered with a byte, `g` with [`ANSWER_BYTES`]. It lives as long as this program.
fn serve() -> Result<SocketAddrV4> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || answer_all(&listener));
    Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

fn answer_all(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        // A client that has gone has been answered enough.
        std::thread::spawn(move || answer(stream));
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut wish = [0];
    stream.read_exact(&mut wish)?;
    if wish == *b"c" {
        return stream.write_all(b"c");
    }
    let part = vec![0; 1 << 20];
    for _ in 0..ANSWER_BYTES / part.len() as u64 {
        stream.write_all(&part)?;
    }
    Ok(())
}

/// A forward proxy in the foreground; it ends with this.
struct Tinyproxy {
    _process: Running,
    port: u16,
}

impl Tinyproxy {
    fn start(dir: &Path) -> Result<Self> {
        let program = rival::find("tinyproxy")?;
        // Free a moment ago; who is faster than the proxy makes it end, which is said.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let config = dir.join("tinyproxy.conf");
        std::fs::write(
            &config,
            format!(
                "Port {port}\nListen 127.0.0.1\nTimeout 600\nAllow 127.0.0.1\nMaxClients 100\nLogLevel Critical\n"
            ),
        )?;
        let process = rival::quiet(&program)
            .arg("-d")
            .arg("-c")
            .arg(&config)
            .spawn()?;
        let proxy = Self {
            _process: Running(process),
            port,
        };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(
                began.elapsed() < Duration::from_secs(5),
                "tinyproxy does not listen"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(proxy)
    }
}
