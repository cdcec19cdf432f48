//! The loopback of a sandbox with a network of its own: ports below 1024, multicast and broadcast, none of which
//! lead out.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use testkit::{Person, has_program, skip};

const BIND: &str = "import socket, sys\nfor port in map(int, sys.argv[1:]):\n s = socket.socket()\n \
                    s.bind((ADDRESS, port))\n s.listen()\n print(port)";

/// Where the proxy of a sandbox with listed hosts listens.
const PROXY: &str = "198.18.0.1";

fn bind_at(address: &str) -> String {
    BIND.replace("ADDRESS", &format!("'{address}'"))
}

#[test]
fn low_port_is_free_inside_and_leads_nowhere_outside() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        // Root may have the port outside too; an ordinary user only where the machine says so.
        let setting = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let may_bind = person.is_root() || setting.unwrap().trim().parse::<u16>().unwrap() <= 987;
        let outside = person
            .program("python3")
            .args(["-c", &bind_at("127.0.0.1"), "987"])
            .output();
        assert_eq!(outside.unwrap().status.success(), may_bind);
        let run = |flags: &str, address: &str, ports: &[&str]| {
            person
                .glovebox(["run", "-q", "--apply", "never"])
                .args(flags.split_whitespace())
                .args(["--", "python3", "-c", &bind_at(address)])
                .args(ports)
                .run()
        };
        let bound = run("", "127.0.0.1", &["25", "53", "80", "443", "808", "987"]).expect_code(0);
        assert_eq!(bound.out(), "25\n53\n80\n443\n808\n987\n");
        // With listed hosts the ports of rules and of the proxy are those of the way out.
        let listed = "--net egress --allow a.example:443";
        let _ = run(listed, "0.0.0.0", &["80", "987"]).expect_code(0);
        for (address, taken) in [
            ("127.0.0.1", "443"),
            ("0.0.0.0", "443"),
            ("0.0.0.0", "808"),
            (PROXY, "808"),
        ] {
            let refused = run(listed, address, &[taken]).expect_code(1);
            assert!(
                refused.err().contains("Address already in use"),
                "{refused}"
            );
        }
        // The machine's own ports are under the machine's rule.
        if !may_bind {
            let refused = run("--net host", "127.0.0.1", &["987"]).expect_code(1);
            assert!(refused.err().contains("Permission denied"), "{refused}");
        }
        // A server inside is not one of the machine, and one of the machine is not reached from inside.
        let _ = person.line("start -q box").run().expect_code(0);
        let mut server = person
            .glovebox(["exec", "box", "--", "python3", "-c"])
            .args([
                &format!("{}\nsys.stdout.flush()\ns.accept()", bind_at("127.0.0.1")),
                "987",
            ])
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = server.stdout.take().unwrap();
        let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        assert_eq!(line, "987\n");
        assert!(TcpStream::connect("127.0.0.1:987").is_err());
        let connect = "import socket; socket.create_connection(('127.0.0.1', int(PORT)), 5)";
        let reach = |port: u16| {
            let script = connect.replace("PORT", &port.to_string());
            person
                .glovebox(["exec", "box", "--", "python3", "-c", &script])
                .run()
        };
        let _ = reach(987).expect_code(0);
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        let _ = reach(own.local_addr().unwrap().port()).expect_code(1);
        server.wait().unwrap();
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}

/// Joins the group, or listens for broadcasts, and prints what comes.
const LISTEN: &str = "import socket, sys\ngroup, port = sys.argv[1], int(sys.argv[2])\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.setsockopt(1, 2, 1)\ns.bind(('', port))\n\
    if group.startswith('224.'):\n s.setsockopt(0, 35, socket.inet_aton(group) + socket.inet_aton(sys.argv[3]))\n\
    s.settimeout(10)\nprint('ready', flush=True)\ndata, sender = s.recvfrom(99)\nprint(data.decode(), sender[0])";
const SEND: &str = "import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
    s.setsockopt(1, 6, 1)\ns.sendto(b'hello', (sys.argv[1], int(sys.argv[2])))";

#[test]
fn multicast_and_broadcast_reach_the_sandbox_and_nobody_else() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        for net in ["", "--net egress --allow a.example:443"] {
            let _ = person
                .line(&format!("start -q {net} box"))
                .run()
                .expect_code(0);
            for group in ["224.0.0.251", "255.255.255.255"] {
                // Bound to the same port outside: nothing may come here.
                let outside = UdpSocket::bind("0.0.0.0:0").unwrap();
                outside.set_nonblocking(true).unwrap();
                if group.starts_with("224.") {
                    let group = group.parse().unwrap();
                    let _ = outside.join_multicast_v4(&group, &[127, 0, 0, 1].into());
                }
                let port = outside.local_addr().unwrap().port().to_string();
                let mut listener = person
                    .glovebox(["exec", "box", "--", "python3", "-c", LISTEN])
                    .args([group, &port, "0.0.0.0"])
                    .command
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut lines = std::io::BufReader::new(listener.stdout.take().unwrap());
                let mut next = || {
                    let mut line = String::new();
                    let _ = std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
                    line
                };
                assert_eq!(next(), "ready\n");
                let _ = person
                    .glovebox(["exec", "box", "--", "python3", "-c", SEND])
                    .args([group, &port])
                    .run()
                    .expect_code(0);
                assert_eq!(next(), "hello 127.0.0.1\n", "{group} {net}");
                assert!(listener.wait().unwrap().success());
                assert!(outside.recv(&mut [0; 9]).is_err(), "{group} came out");
            }
            let _ = person.line("kill -q box").run().expect_code(0);
        }
    });
}

/// What ping(8) asks the kernel for: a socket for echo requests, and to keep capabilities that it has not.
const ECHO: &str = r"import ctypes, socket, sys
assert ctypes.CDLL(None).prctl(8, 1, 0, 0, 0) == 0, 'keep capabilities'
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
echo.settimeout(5)
echo.sendto(bytes([8, 0, 0, 0, 0, 0, 0, 1]), (sys.argv[1], 0))
print(echo.recv(100)[0])";

#[test]
fn ping_is_answered_by_the_own_loopback_and_leads_nowhere() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        let ask = |address: &str| {
            person
                .glovebox([
                    "run", "-q", "--apply", "discard", "--", "python3", "-c", ECHO,
                ])
                .args([address])
                .run()
        };
        assert_eq!(
            ask("127.0.0.1").expect_code(0).out(),
            "0\n",
            "as {}",
            person.name()
        );
        let beyond = ask("192.0.2.1").expect_code(1);
        assert!(beyond.err().contains("unreachable"), "{}", beyond.err());
        if has_program("ping") {
            let _ = person
                .line("run -q --apply discard -- ping -c 1 127.0.0.1")
                .run()
                .expect_code(0);
        }
    });
}
