//! Limits on what a network of listed hosts carries: what is met ends or waits, the command is told, and sums say how
//! much it was.

use crate::egress::Server;
use crate::without_network::has;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use testkit::{Person, Ran, skip};

const MIB: usize = 1 << 20;

/// Answers a request with so many bytes.
fn large(bytes: usize) -> Server {
    Server::start(move |mut stream: TcpStream, seen| {
        let mut part = [0; 4096];
        while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(length @ 1..) => seen.extend_from_slice(&part[..length]),
                _ => return,
            }
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&vec![b'x'; bytes]);
    })
}

/// Sends what it likes to whoever connects, and nothing that could be taken for HTTP.
fn flood(bytes: usize) -> Server {
    Server::start(move |mut stream: TcpStream, _| {
        let _ = stream.write_all(&vec![0; bytes]);
        let _ = stream.read(&mut [0; 1]);
    })
}

fn network(person: &Person, sandbox: &str) -> Value {
    let ran = person
        .line(&format!("stats {sandbox} --json"))
        .run()
        .expect_code(0);
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    answer["data"]["sandboxes"][0]["network"].clone()
}

fn exec(person: &Person, words: &[&str]) -> Ran {
    person
        .glovebox(["exec", "box", "--"].iter().chain(words).copied())
        .run()
}

#[test]
fn bytes_end_when_they_are_used_up_and_the_command_is_told() {
    if !has("curl") || !has("python3") {
        skip!("curl or python3 is not installed");
    }
    Person::each(|person| {
        let (web, raw) = (large(4 * MIB), flood(4 * MIB));
        let start = |limit: &str| {
            let line = format!(
                "start -q --net egress --allow {} --allow {} {limit} box",
                web.rule("web.test"),
                raw.rule("raw.test")
            );
            let _ = person.line(&line).run().expect_code(0);
        };
        let url = format!("http://web.test:{}/", web.port);
        let fetch = || exec(person, &["curl", "-sS", "-o", "/dev/null", &url]);

        // Below the limit nothing is noticed.
        start("--net-bytes 6MiB");
        fetch().expect_code(0);
        let sums = network(person, "box");
        let received = sums["received_bytes"].as_u64().unwrap();
        assert!(
            (4 * MIB as u64..5 * MIB as u64).contains(&received),
            "{sums}"
        );
        assert!(sums["sent_bytes"].as_u64().unwrap() > 50, "{sums}");
        assert_eq!(sums["hosts"][0]["host"], "web.test", "{sums}");
        assert_eq!(sums["limits"]["bytes"], 6 * MIB, "{sums}");
        let shown = person.line("stats box").run().expect_code(0);
        for words in ["SENT", "RECEIVED", "4.0 MiB", "1 (0 open)"] {
            assert!(shown.out().contains(words), "{words}: {shown}");
        }
        // The rest is not enough, whichever way it is carried.
        let ran = fetch();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(web.told(person, &ran), @"glovebox: the command used `web.test:[PORT]` when the limit on bytes to and from the network was reached: `--net-bytes` raises it");
        let sums = network(person, "box");
        let bytes = |key: &str| sums[key].as_u64().unwrap() as usize;
        assert_eq!(
            bytes("sent_bytes") + bytes("received_bytes"),
            6 * MIB + 1,
            "{sums}"
        );
        // Nothing more begins.
        let begun = Instant::now();
        let ran = fetch();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(web.told(person, &ran), @"glovebox: the command used `web.test:[PORT]` when the limit on bytes to and from the network was reached: `--net-bytes` raises it");
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(network(person, "box")["open_connections"], 0);
        let report = person.line("info box --json").run().expect_code(0);
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let limits = report["data"]["report"]["limits"].as_array().unwrap();
        let limit = limits.iter().find(|limit| limit["kind"] == "net-bytes");
        assert_eq!(limit.unwrap()["state"], "enforced");
        let _ = person.line("kill -q box").run().expect_code(0);

        start("--net-bytes 1MiB");
        let script = format!(
            "import socket, sys\ns = socket.create_connection(('raw.test', {}))\ngot = 0\n\
             try:\n while True:\n  part = s.recv(65536)\n  if not part: sys.exit('a whole end')\n  got += len(part)\n\
             except ConnectionResetError:\n print(got)\n sys.exit(1)\n",
            raw.port
        );
        let ran = exec(person, &["python3", "-c", &script]).expect_code(1);
        let got: usize = ran.out().trim().parse().unwrap();
        // What the program had not read yet when the connection broke is gone with it.
        assert!(got <= MIB && got > 0, "{ran}");
        insta::assert_snapshot!(raw.told(person, &ran), @"glovebox: the command used `raw.test:[PORT]` when the limit on bytes to and from the network was reached: `--net-bytes` raises it");
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn connections_beyond_the_limit_are_refused_until_others_end() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        let server = flood(1);
        let script = "import socket, sys\nat = ('raw.test', int(sys.argv[1]))\ndef get():\n \
                      s = socket.create_connection(at)\n try: return (s, s.recv(1))\n \
                      except ConnectionResetError: return (s, None)\n\
                      first, second, third = get(), get(), get()\nprint(first[1], second[1], third[1])\n\
                      first[0].close()\nfor n in range(100):\n again = get()\n if again[1]: break\n\
                      print(again[1])\nsys.exit(1)\n";
        let ran = person
            .glovebox(["run", "-q", "--net", "egress", "--net-connections", "2"])
            .args(["--allow", &server.rule("raw.test"), "--"])
            .args(["python3", "-c", script, &server.port.to_string()])
            .run()
            .expect_code(1);
        assert_eq!(ran.out(), "b'\\x00' b'\\x00' None\nb'\\x00'\n", "{ran}");
        insta::assert_snapshot!(server.told(person, &ran), @"glovebox: the command asked for `raw.test:[PORT]` when the limit on connections at once was reached: `--net-connections` raises it");
    });
}

#[test]
fn a_rate_slows_every_way_and_refuses_nothing() {
    if !has("curl") || !has("python3") {
        skip!("curl or python3 is not installed");
    }
    let person = Person::myself();
    let (web, raw) = (large(MIB), flood(MIB));
    let script = format!(
        "import socket\ns = socket.create_connection(('raw.test', {}))\ngot = 0\n\
         while got < 1048576: got += len(s.recv(65536))\n",
        raw.port
    );
    let url = format!("http://web.test:{}/", web.port);
    for command in [
        &["curl", "-sS", "-o", "/dev/null", &url][..],
        &["python3", "-c", &script],
    ] {
        let begun = Instant::now();
        person
            .glovebox(["run", "-q", "--net", "egress", "--net-rate", "512KiB"])
            .args(["--allow", &web.rule("web.test")])
            .args(["--allow", &raw.rule("raw.test"), "--"])
            .args(command.iter().copied())
            .run()
            .expect_code(0);
        let took = begun.elapsed();
        assert!(
            took > Duration::from_millis(1700) && took < Duration::from_secs(20),
            "{command:?}: {took:?}"
        );
    }
}

#[test]
fn limits_change_while_it_runs() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let web = large(MIB);
        let start = format!(
            "start -q --net egress --allow {} --net-bytes 64KiB box",
            web.rule("web.test")
        );
        let _ = person.line(&start).run().expect_code(0);
        let url = format!("http://web.test:{}/", web.port);
        let fetch = || exec(person, &["curl", "-sS", "-o", "/dev/null", &url]);
        let limit = |flags: &str| {
            let ran = person
                .line(&format!("net limit box --json {flags}"))
                .run()
                .expect_code(0);
            serde_json::from_slice::<Value>(&ran.stdout).unwrap()["data"].clone()
        };
        assert_ne!(fetch().code, 0);
        let shown = limit("");
        assert_eq!(shown["limits"]["bytes"], 64 << 10, "{shown}");
        assert!(shown["carried_bytes"].as_u64().unwrap() >= 64 << 10);
        let _ = limit("--bytes none");
        let _ = fetch().expect_code(0);
        let shown = limit("--bytes 1MiB --connections 7 --rate 1GiB");
        assert_eq!(shown["limits"]["connections"], 7, "{shown}");
        let refused = fetch();
        assert_ne!(refused.code, 0, "{refused}");
        insta::assert_snapshot!(web.told(person, &refused), @"glovebox: the command used `web.test:[PORT]` when the limit on bytes to and from the network was reached: `--net-bytes` raises it");
        // A change of its files keeps them.
        let _ = person.line("checkpoint box").run().expect_code(0);
        let _ = person.line("restore box v1").run().expect_code(0);
        let text = person.line("net limit box").run().expect_code(0);
        assert!(
            text.out().contains("1MiB") && text.out().contains("1GiB"),
            "{text}"
        );
        let said = ["net limit box --bytes 0", "net limit nobox --bytes 1MiB"].map(|line| {
            let ran = person.line(line).run();
            assert_ne!(ran.code, 0, "{line}: {ran}");
            ran.failure(person.place().root())
        });
        insta::assert_snapshot!(said.join("\n"), @"
        error: --bytes: `0` leaves no room at all
        hint: write a size like 512MiB, 1GiB, 64k or 1500000, or `none` for no limit
        error: there is no sandbox `nobox`
        hint: `glovebox list` shows what there is; `glovebox start NAME` makes one
        ");
        let _ = person.line("kill -q box").run().expect_code(0);
        let _ = person.line("start -q box").run().expect_code(0);
        let ran = person.line("net limit box").run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: this sandbox has no network of listed hosts
        hint: start one with `--net egress`
        ");
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn limits_without_such_a_network_are_told() {
    let person = Person::myself();
    let said = ["--net-bytes 1MiB", "--net-connections 1", "--net-rate 1MiB"].map(|flag| {
        let ran = person.line(&format!("run {flag} -- true")).run();
        ran.expect_code(125).failure(person.place().root())
    });
    insta::assert_snapshot!(said.join("\n"), @"
    error: `1MiB` is about a network of listed hosts, and the network is `none`
    hint: `--net egress` lets listed hosts through
    error: `1` is about a network of listed hosts, and the network is `none`
    hint: `--net egress` lets listed hosts through
    error: `1MiB` is about a network of listed hosts, and the network is `none`
    hint: `--net egress` lets listed hosts through
    ");
}
