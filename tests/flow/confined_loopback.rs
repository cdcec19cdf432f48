//! The loopback of the backend `confined`: what works with servers of a sandbox's own, and ways to
//! reach those of the machine. Each attack says how often a server of the sandbox was reached in
//! the same way.

use crate::confined::{RUN, each};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::{Person, Process, has_program, marker, skip, wait_until};

const ATTACKS: &str = include_str!("confined_loopback/attacks.py");
const COOKIE_CLIENT: &str = include_str!("confined_loopback/cookie_client.py");
const COOKIE_SERVER: &str = include_str!("confined_loopback/cookie_server.py");
const SERVERS: &str = include_str!("confined_loopback/servers.py");

/// A server of the machine on all addresses, which answers `outside`. It allows reuse of its
/// address.
struct Outside {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Outside {
    /// Starts a server. With `is_late` it gives its port up at once, and takes it again and again
    /// whenever it can.
    fn start(is_late: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut current = (!is_late).then_some(listener);
        let thread = std::thread::spawn(move || {
            let mut turns = 0_u32;
            while !stopped.load(Ordering::Relaxed) {
                if current.is_none() {
                    current = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok();
                }
                if let Some(listener) = &current {
                    listener.set_nonblocking(true).unwrap();
                    while let Ok((mut peer, _)) = listener.accept() {
                        let _ = peer.write_all(b"outside");
                    }
                }
                turns += 1;
                if is_late && turns.is_multiple_of(8) {
                    current = None;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self {
            port,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts a server in a sandbox, which goes on after its command.
fn serve_in(person: &Person, name: &str, server: &str) {
    let script = format!("{server} > /dev/null 2>&1 &");
    let _ = person
        .glovebox(["exec", "--keep-background", name, "--", "sh", "-c"])
        .args([&script])
        .run()
        .expect_code(0);
}

/// Runs an attack against a server of the machine.
fn attack(name: &str, is_late: bool) {
    if !has_program("python3") {
        skip!("needs python3");
    }
    each(|person| {
        person.write("project/attacks.py", ATTACKS);
        let outside = Outside::start(is_late);
        let script = format!(
            "ulimit -n 4000; exec python3 attacks.py {name} {}",
            outside.port
        );
        let ran = person.script(RUN, &script).run().expect_code(0);
        let out = ran.out();
        let (own, attacks) = {
            let mut lines: Vec<&str> = out.lines().collect();
            (lines.pop().unwrap().to_owned(), lines)
        };
        assert!(attacks.is_empty(), "{ran}");
        let own: u32 = own.strip_prefix("own ").unwrap().parse().unwrap();
        assert!(own > 0, "no server of its own was reached: {ran}");
    });
}

#[test]
fn an_address_that_changes_in_memory_leads_nowhere_else() {
    attack("exchanged_address", false);
}

#[test]
fn a_descriptor_that_is_exchanged_leads_nowhere_else() {
    attack("exchanged_descriptor", false);
}

#[test]
fn a_port_that_the_machine_takes_over_is_not_reached() {
    attack("lost_listener", true);
}

#[test]
fn a_packet_that_is_sent_again_does_not_reach_the_next_listener() {
    attack("late_packets", true);
}

/// The client of a connection that only a SYN cookie stands for, which is valid at any listener of
/// the port, writes after a server of the machine has taken the port.
#[test]
fn a_connection_whose_server_is_gone_does_not_reach_the_next_one() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    each(|person| {
        person.write("project/cookie.py", COOKIE_CLIENT);
        let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0));
        let port = port.unwrap().local_addr().unwrap().port().to_string();
        let script = format!("exec python3 cookie.py {port}");
        let mut inside = person
            .script(RUN, &script)
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(inside.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "own");
        // The server of the machine comes after that of the sandbox.
        let mut outside = std::process::Command::new("python3")
            .args(["-c", COOKIE_SERVER, &port])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "sent");
        assert!(inside.wait().unwrap().success());
        let _ = outside.kill();
        let heard = outside.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&heard.stdout), "listens\n");
    });
}

#[test]
fn no_other_call_connects_or_listens() {
    attack("other_ways", false);
}

#[test]
fn sockets_are_counted_and_those_that_were_closed_are_not() {
    attack("many_sockets", false);
}

#[test]
fn servers_inside_work_as_programs_use_them() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    each(|person| {
        person.write("project/servers.py", SERVERS);
        let outside = Outside::start(false);
        let script = format!("PORT={} exec python3 servers.py", outside.port);
        let ran = person.script(RUN, &script).run().expect_code(0);
        let expected = [
            "a port that the machine has in use",
            "a port of its own twice is in use",
            "both loopbacks",
            "a server on all addresses",
            "a server that is started again",
            "workers",
            "without blocking",
            "a full queue",
            "signals",
            "asyncio and http",
        ];
        assert_eq!(ran.out().lines().collect::<Vec<_>>(), expected, "{ran}");
    });
}

#[test]
fn two_sandboxes_have_the_same_port_and_do_not_meet() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    each(|person| {
        let serve = "import socket; s = socket.create_server((\"127.0.0.1\", 7070))\n\
            while True:\n c = s.accept()[0]; c.sendall(b\"NAME\"); c.close()\n";
        let ask = "import socket,time\nfor _ in range(40):\n try:\n  print(socket.create_connection((\"127.0.0.1\", 7070)).recv(9).decode()); break\n except OSError: time.sleep(0.05)\n";
        for name in ["one", "two", "none"] {
            person.write(format!("project/{name}.py"), serve.replace("NAME", name));
            person.write("project/ask.py", ask);
            let start = format!("--quiet start --backend confined --no-toolchains {name}");
            let _ = person.line(&start).run().expect_code(0);
        }
        for name in ["one", "two"] {
            serve_in(person, name, &format!("python3 {name}.py"));
        }
        for (name, said) in [("one", "one\n"), ("two", "two\n"), ("none", "")] {
            let asked = person.line(&format!("exec {name} -- python3 ask.py")).run();
            assert_eq!(asked.out(), said, "{asked}");
        }
        // By the address at which each of them listens on this machine.
        for name in ["one", "two"] {
            let ports = person
                .line(&format!("ports {name} --json"))
                .run()
                .expect_code(0);
            let ports: serde_json::Value = serde_json::from_slice(&ports.stdout).unwrap();
            let address = ports["data"]["ports"][0]["address"]
                .as_str()
                .unwrap()
                .to_owned();
            assert!(address.starts_with("127.64."), "{address}");
            // Packets of others are not signed.
            let at = (address.as_str(), 7070).to_socket_addrs().unwrap().next();
            let outside = TcpStream::connect_timeout(&at.unwrap(), Duration::from_secs(1));
            assert!(outside.is_err(), "a process outside reached {address}");
            let ask = ask.replace("127.0.0.1", &address);
            let asked = person.script("exec none", &format!("python3 -c '{ask}'"));
            assert_eq!(asked.run().out(), "");
        }
        for name in ["one", "two", "none"] {
            let _ = person.line(&format!("kill {name}")).run().expect_code(0);
        }
        person.assert_nothing_left();
    });
}

#[test]
fn a_server_inside_is_exposed_and_listed_and_those_of_the_machine_are_not() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    each(|person| {
        let outside = Outside::start(false);
        let start = "--quiet start --backend confined --no-toolchains box";
        let _ = person.line(start).run().expect_code(0);
        serve_in(
            person,
            "box",
            "python3 -m http.server --bind 127.0.0.1 7071",
        );
        let is_listed = || {
            let listed = person.line("ports box").run().expect_code(0).out();
            assert!(!listed.contains(&outside.port.to_string()), "{listed}");
            listed.contains("7071")
        };
        assert!(wait_until(Duration::from_secs(10), is_listed));
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn nothing_inside_outlives_the_monitor_or_gets_a_socket_without_it() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    each(|person| {
        let left = marker();
        let script = format!(
            "setsid python3 -c 'import socket,time\n\
             while True:\n\
             \x20 time.sleep(0.01)\n\
             \x20 try: socket.socket().close()\n\
             \x20 except OSError as e: open(\"errors\", \"a\").write(str(e))\n\
             # {left}' < /dev/null > /dev/null 2>&1 & exec sleep 600"
        );
        let mut owner = person
            .script(RUN, &script)
            .command
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let lives = || {
            let found = Process::mentioning(&left);
            found
                .iter()
                .any(|process| process.line.starts_with("python3"))
        };
        assert!(wait_until(Duration::from_secs(20), lives));
        let monitor = Process::descendants(owner.id())
            .into_iter()
            .find(|process| is_monitor(process.id))
            .unwrap();
        let killed = std::process::Command::new("kill")
            .args(["-KILL", &monitor.id.to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        assert!(wait_until(Duration::from_secs(5), || !lives()));
        let _ = owner.wait().unwrap();
    });
}

fn is_monitor(id: u32) -> bool {
    let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| word == b"confine")
}

/// Not a test of the product: the server of the machine that the attacks are tried on answers.
#[test]
fn the_server_of_the_machine_answers() {
    let outside = Outside::start(false);
    let mut said = String::new();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, outside.port)).unwrap();
    std::io::Read::read_to_string(&mut stream, &mut said).unwrap();
    assert_eq!(said, "outside");
    let _ = Person::myself();
}
