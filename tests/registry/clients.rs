//! Many clients and one supervisor: what flows between them, and what it costs.

use crate::fixture::{eventually, marker, processes};
use crate::{Place, job, name, spec, supervisor};
use glovebox_egress::Policy;
use glovebox_proto::{Code, Exec, Exit, JobState, Reply, Request};
use glovebox_sandbox::{Backend, Incoming, SandboxSpec, SandboxState};
use glovebox_spec::Net;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::time::Duration;
use testkit::skip;

#[test]
fn a_hundred_clients_share_one_sandbox() {
    let place = Place::new();
    place.start("dev");
    std::thread::scope(|scope| {
        for client in 0..100 {
            let registry = &place.registry;
            scope.spawn(move || {
                let sandbox = registry.connect(&name("dev")).unwrap();
                for round in 0..3 {
                    let text = format!("{client}/{round}");
                    let output = sandbox.exec(Exec::new(["printf", &text])).unwrap();
                    assert_eq!(output.stdout, text.as_bytes());
                    sandbox.ping().unwrap();
                }
            });
        }
    });
    assert_eq!(place.entry("dev").unwrap().state, SandboxState::Ready);
}

#[test]
fn a_client_that_leaves_takes_its_commands_with_it_and_no_others() {
    let place = Place::new();
    place.start("dev");
    let (mine, theirs, kept) = (marker(), marker(), marker());
    let stays = place.registry.connect(&name("dev")).unwrap();
    let mut other = stays
        .open(Request::Exec(Exec::new([
            "sh",
            "-c",
            &format!("echo up; exec sleep {theirs}"),
        ])))
        .unwrap();
    assert!(matches!(other.recv(), Incoming::Data { .. }));
    {
        let leaves = place.registry.connect(&name("dev")).unwrap();
        let script = format!("echo up; (setsid sleep {mine} &); yes & sleep {mine}");
        let mut stream = leaves
            .open(Request::Exec(Exec::new(["sh", "-c", &script])))
            .unwrap();
        assert!(matches!(stream.recv(), Incoming::Data { .. }));
        job(&leaves, &kept);
        assert!(eventually(|| processes(&mine).len() == 2));
        // The connection goes away with a flood in it.
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(eventually(|| processes(&mine).is_empty()));
    assert_eq!((processes(&theirs).len(), processes(&kept).len()), (1, 1));
    assert_eq!(
        stays
            .jobs()
            .unwrap()
            .iter()
            .filter(|info| info.state == JobState::Running)
            .count(),
        2
    );
    assert!(stays.ping().is_ok());
}

#[test]
fn output_flows_through_a_supervisor_without_piling_up() {
    const TOTAL: u64 = 256 << 20;
    let place = Place::new();
    let (entry, _) = place.start("dev");
    let sandbox = place.registry.connect(&name("dev")).unwrap();
    let exec = Exec::new(["head", "-c", &TOTAL.to_string(), "/dev/zero"]);
    let mut stream = sandbox.open(Request::Exec(exec)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(sandbox.ping().is_ok());
    let mut taken = 0;
    loop {
        match stream.recv() {
            Incoming::Data { bytes, .. } => taken += bytes.len() as u64,
            Incoming::Reply(reply) => {
                break assert!(matches!(reply, Ok(Reply::Exited(_))), "{reply:?}");
            }
        }
    }
    assert_eq!(taken, TOTAL);
    let peak = status_kib(entry.pid.unwrap(), "VmHWM:");
    // The pages of its program count as well, and in a debug build they are most of it.
    assert!(peak < 24 << 10, "the supervisor grew to {peak} KiB");
}

#[test]
fn a_client_that_breaks_the_protocol_hurts_only_itself() {
    use std::io::{Read as _, Write as _};
    let place = Place::new();
    let (entry, _) = place.start("dev");
    let good = place.registry.connect(&name("dev")).unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0; 12]] {
        let mut bad = std::os::unix::net::UnixStream::connect(entry.dir.join("socket")).unwrap();
        bad.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        bad.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        bad.read_to_end(&mut rest).unwrap();
    }
    assert!(good.ping().is_ok());
}

#[test]
fn an_idle_supervisor_is_small() {
    let place = Place::new();
    let (entry, _) = place.start("dev");
    place
        .registry
        .connect(&name("dev"))
        .unwrap()
        .ping()
        .unwrap();
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", entry.pid.unwrap())).unwrap();
    let pss: u64 = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .unwrap();
    // A debug build is larger than what is shipped: of the pages of its own program that count here, most are code
    // that is not optimised. The promise itself is measured by the benches.
    assert!(pss < 8 << 10, "{pss} KiB");
    let threads = status_kib(entry.pid.unwrap(), "Threads:");
    // One for everything, one that waits for orders to freeze.
    assert!(threads <= 2, "{threads} threads");
}

fn status_kib(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

fn native() -> SandboxSpec {
    let mut native = SandboxSpec::new(Backend::NATIVE);
    native.jail.env = spec().jail.env;
    native
}

/// Answers one connection: what it brought, and that it has ended.
const ECHO_ONCE: &str = "import socket\nl = socket.create_server(('127.0.0.1', 7007))\nprint('ready', flush=True)\n\
c, _ = l.accept()\ngot = b''\nwhile True:\n part = c.recv(65536)\n if not part: break\n got += part\n\
c.sendall(got + b' and the end')\n";

#[test]
fn a_port_inside_is_a_stream_outside() {
    let place = Place::new();
    // Its loopback is its own, so that any port is free.
    let started = place.registry.start(&native(), &name("dev"), &supervisor());
    if let Err(fault) = started {
        skip!("no native sandboxes here: {fault}");
    }
    let sandbox = place.registry.connect(&name("dev")).unwrap();

    // Nobody listens yet: the stream ends, and says why by then.
    let (mut stream, failure) = sandbox.connect_port(7007, ()).unwrap().into_parts();
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    assert_eq!(got, b"");
    assert_eq!(failure.get().unwrap().code, Code::NotFound);

    let request = Request::Exec(Exec::new(["python3", "-c", ECHO_ONCE]));
    let mut server = sandbox.open(request).unwrap();
    assert!(matches!(server.recv(), Incoming::Data { .. }));
    let (mut stream, failure) = sandbox.connect_port(7007, ()).unwrap().into_parts();
    // More than all buffers in between hold, so that both threads have to wait.
    let sent = vec![b'x'; 3 << 20];
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    got.clear();
    let _ = stream.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent.len() + b" and the end".len());
    assert!(got.ends_with(b"x and the end"));
    assert_eq!(failure.get(), None);
}

/// Takes connections, and neither reads nor says anything on them, whatever their clients do.
const SILENT: &str = "import socket, time\nl = socket.create_server(('127.0.0.1', 7008))\nprint('ready', flush=True)\n\
kept = []\nwhile True: kept.append(l.accept())\n";

#[test]
fn a_stream_that_is_dropped_leaves_nothing_behind_though_its_server_is_silent() {
    let place = Place::new();
    let started = place.registry.start(&native(), &name("dev"), &supervisor());
    if let Err(fault) = started {
        skip!("no native sandboxes here: {fault}");
    }
    let sandbox = place.registry.connect(&name("dev")).unwrap();
    let request = Request::Exec(Exec::new(["python3", "-c", SILENT]));
    let mut server = sandbox.open(request).unwrap();
    assert!(matches!(server.recv(), Incoming::Data { .. }));
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    // As they close at once, or after the end of what they send; and when more was sent than fits in between.
    for (is_half_closed, is_much) in [(false, false), (true, false), (false, true)] {
        let streams: Vec<_> = (0..8)
            .map(|_| {
                let (mut stream, _) = sandbox.connect_port(7008, ()).unwrap().into_parts();
                if is_much {
                    stream
                        .set_write_timeout(Some(Duration::from_millis(100)))
                        .unwrap();
                    while stream.write_all(&vec![0; 65536]).is_ok() {}
                } else {
                    stream.write_all(b"hello").unwrap();
                }
                if is_half_closed {
                    stream.shutdown(Shutdown::Write).unwrap();
                }
                stream
            })
            .collect();
        assert!(threads() >= before + 8);
        drop(streams);
        let are_gone = || threads() <= before;
        assert!(
            testkit::wait_until(Duration::from_secs(20), are_gone),
            "{}",
            threads()
        );
    }
}

#[test]
fn a_client_learns_what_the_sandbox_has_carried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"12345").unwrap();
    });
    let place = Place::new();
    place.start("closed");
    let closed = place.registry.connect(&name("closed")).unwrap();
    assert_eq!(closed.network_stats().unwrap(), None);

    let mut spec = native();
    spec.jail.net = Net::Egress;
    spec.egress = Policy::new(&[format!("one.test:{port}=127.0.0.1")], &[]).unwrap();
    if let Err(fault) = place.registry.start(&spec, &name("open"), &supervisor()) {
        skip!("no native sandboxes here: {fault}");
    }
    let sandbox = place.registry.connect(&name("open")).unwrap();
    let script = format!(
        "import socket\ns = socket.create_connection(('one.test', {port}))\nassert s.recv(9) == b'12345'\n\
         try: socket.getaddrinfo('two.test', 80)\nexcept OSError: pass\n"
    );
    let ran = sandbox.exec(Exec::new(["python3", "-c", &script])).unwrap();
    assert_eq!(ran.report.exit, Exit::Code(0), "{ran:?}");
    answering.join().unwrap();
    let stats = sandbox.network_stats().unwrap().unwrap();
    assert_eq!(
        (stats.total.received_bytes, stats.total.connections),
        (5, 1)
    );
    assert_eq!(stats.hosts[0].0, "one.test");
    assert!(stats.refusals >= 1, "{stats:?}");
}
