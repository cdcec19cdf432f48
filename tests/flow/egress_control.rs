//! A network of listed hosts, seen and changed while the sandbox runs: what it asked for, what is opened for it, what
//! a host would come to.

use crate::egress::{Server, closed_port};
use crate::without_network::has;
use crate::workspace::told;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};
use testkit::{Person, Ran, filters, skip};

/// The `data` of an answer in JSON.
fn data(ran: &Ran) -> Value {
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    answer["data"].clone()
}

fn fetch(person: &Person, sandbox: &str, url: &str) -> Ran {
    person
        .glovebox(["exec", sandbox, "--", "curl", "-sS", "-m", "20", url])
        .run()
}

#[test]
fn what_is_opened_while_it_runs_is_open_at_once_and_for_as_long_as_was_said() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let (first, second) = (Server::http(), Server::http());
        let (rule, short) = (first.rule("one.test"), second.rule("two.test"));
        let url = format!("http://one.test:{}/", first.port);
        let short_url = format!("http://two.test:{}/", second.port);
        let start = "start -q --net egress --allow zero.test --deny shut.test box";
        let _ = person.line(start).run().expect_code(0);
        let refused = fetch(person, "box", &url).expect_code(6);
        insta::assert_snapshot!(first.told(person, &refused), @"glovebox: the command asked for `one.test`, which is not among what this sandbox may reach: `--allow one.test` opens it");

        let said = person
            .line(&format!("net allow box {rule}"))
            .run()
            .expect_code(0);
        insta::assert_snapshot!(first.told(person, &said), @"glovebox: sandbox `box` may reach one.test:[PORT]=127.0.0.1 until it stops");
        assert_eq!(fetch(person, "box", &url).expect_code(0).out(), "hello\n");
        let for_short = person
            .line(&format!("net allow box {short} --for 4s --json"))
            .run()
            .expect_code(0);
        let opened = Instant::now();
        let rules = &data(&for_short)["rules"];
        assert!(
            rules[0]["rule"] == short && rules[0]["remaining_ms"].as_u64().unwrap() <= 4000,
            "{for_short}"
        );
        assert_eq!(
            fetch(person, "box", &short_url).expect_code(0).out(),
            "hello\n"
        );
        let shown = person.line("net show box").run().expect_code(0);
        for line in [
            "zero.test",
            "shut.test",
            "deny",
            "the sandbox stops",
            "from now",
        ] {
            assert!(shown.out().contains(line), "{line}: {shown}");
        }

        // It ends by itself, and only that one does.
        std::thread::sleep(Duration::from_secs(4).saturating_sub(opened.elapsed()));
        assert_ne!(fetch(person, "box", &short_url).code, 0);
        assert_eq!(fetch(person, "box", &url).expect_code(0).out(), "hello\n");

        let log = person.line("net log box --json").run().expect_code(0);
        let log = data(&log);
        let entries = log["entries"].as_array().unwrap();
        let of = |host: &str, decision: &str| -> Vec<&Value> {
            let is_it = |entry: &&Value| entry["host"] == host && entry["decision"] == decision;
            entries.iter().filter(is_it).collect()
        };
        assert_eq!(of("one.test", "refused")[0]["reason"], "unlisted");
        let allowed = of("one.test", "allowed");
        assert_eq!(allowed.len(), 2, "{log}");
        for entry in allowed {
            assert_eq!(entry["rule"], rule, "{entry}");
            assert_eq!(entry["port"], first.port, "{entry}");
            assert!(entry["received_bytes"].as_u64().unwrap() > 6, "{entry}");
            assert!(entry["sent_bytes"].as_u64().unwrap() > 20, "{entry}");
            assert!(entry["duration_ms"].is_u64(), "{entry}");
        }
        assert_eq!(of("two.test", "allowed").len(), 1, "{log}");
        assert!(!of("two.test", "refused").is_empty(), "{log}");
        let numbers: Vec<u64> = entries
            .iter()
            .map(|entry| entry["number"].as_u64().unwrap())
            .collect();
        assert!(numbers.is_sorted(), "{log}");
        let log = person.line("net log box").run().expect_code(0);
        assert!(
            log.out().contains("no rule names it") && log.out().contains(&rule),
            "{log}"
        );

        // A change of its files keeps what was opened; its end does not.
        let _ = person.line("checkpoint box").run().expect_code(0);
        let _ = person.line("restore box v1").run().expect_code(0);
        assert_eq!(fetch(person, "box", &url).expect_code(0).out(), "hello\n");
        // With something that runs its guest is started anew, and its network with it.
        let _ = person
            .glovebox(["exec", "--keep-background", "box", "--"])
            .args(["sh", "-c", "sleep 1000 > /dev/null 2>&1 &"])
            .run()
            .expect_code(0);
        let _ = person.line("restore box v1").run().expect_code(0);
        assert_eq!(fetch(person, "box", &url).expect_code(0).out(), "hello\n");
        let _ = person.line("stop -q box").run().expect_code(0);
        let _ = person.line(start).run().expect_code(0);
        assert_ne!(fetch(person, "box", &url).code, 0);
        let shown = person.line("net show box").run().expect_code(0);
        assert!(!shown.out().contains("one.test"), "{shown}");
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_host_is_tried_as_the_sandbox_would_reach_it() {
    Person::each(|person| {
        let server = Server::http();
        let closed_port = closed_port();
        let start = format!(
            "start -q --net egress --allow {} --allow shut.test:{closed_port}=127.0.0.1 --allow gone.invalid \
             --deny *.bad.test box",
            server.rule("web.test")
        );
        let _ = person.line(&start).run().expect_code(0);
        let test = |url: &str| person.glovebox(["net", "test", "box", url]).run();
        let shown = |ran: &Ran| {
            let text = server.without_port(&ran.out());
            let text = text.replace(&closed_port.to_string(), "[CLOSED PORT]");
            filters(&text, person.place().root())
        };
        let reached = test(&format!("http://WEB.test:{}/x?y", server.port)).expect_code(0);
        insta::assert_snapshot!(shown(&reached), @"
        web.test:[PORT] is allowed by `web.test:[PORT]=127.0.0.1`
          127.0.0.1  private
        connected in [TIME]
        ");
        let said = [
            "https://other.test/",
            "web.test:1",
            "https://x.bad.test",
            &format!("shut.test:{closed_port}"),
            "http://gone.invalid/",
            "http://127.0.0.1/",
        ]
        .map(|url| shown(&test(url).expect_code(1)));
        insta::assert_snapshot!(said.concat(), @"
        other.test:443 is refused: no rule names it
        web.test:1 is refused: no rule names this port of it
        x.bad.test:443 is refused: `*.bad.test` denies it
        shut.test:[CLOSED PORT] is allowed by `shut.test:[CLOSED PORT]=127.0.0.1`
          127.0.0.1  private
        not reached: the connection was refused
        gone.invalid:80 is allowed by `gone.invalid`
        not reached: the name does not resolve
        127.0.0.1:80 is refused: no rule names it
        ");
        let ran = test("https://other.test/");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: `glovebox net allow box other.test` opens it while the sandbox runs");
        let said = ["https://me@web.test/", "http://127.1/", "web.test:0", "x y"].map(|url| {
            let ran = test(url).expect_code(2);
            ran.failure(person.place().root())
        });
        insta::assert_snapshot!(said.join("\n"), @"
        error: `https://me@web.test/` cannot be tried: it names a user; leave out what stands before the `@`
        hint: write a URL such as `https://example.com/`, or HOST or HOST:PORT
        error: `http://127.1/` cannot be tried: `127.1` is no host: it reads like an address; write addresses as 192.0.2.1 or [2001:db8::1]
        hint: write a URL such as `https://example.com/`, or HOST or HOST:PORT
        error: `web.test:0` cannot be tried: `0` is no port; ports are numbers from 1 to 65535
        hint: write a URL such as `https://example.com/`, or HOST or HOST:PORT
        error: `x y` cannot be tried: `x y` is no host: names consist of letters, digits, `-`, `_` and dots
        hint: write a URL such as `https://example.com/`, or HOST or HOST:PORT
        ");
        let ran = person
            .line(&format!("net test box web.test:{} --json", server.port))
            .run()
            .expect_code(0);
        let probe = &data(&ran)["probe"];
        assert_eq!(probe["decision"], "allowed", "{ran}");
        assert_eq!(probe["addresses"][0]["kind"], "private", "{ran}");
        assert!(probe["connect_us"].is_u64(), "{ran}");
        // The sandbox itself has asked for nothing.
        let log = person.line("net log box --json").run().expect_code(0);
        assert_eq!(data(&log)["entries"], Value::Array(Vec::new()));
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn what_cannot_be_opened_or_asked_is_told() {
    Person::each(|person| {
        let _ = person
            .line("start -q --net egress --deny bad.test box")
            .run()
            .expect_code(0);
        let failure = |line: &str, code: i32| {
            let ran = person.line(line).run().expect_code(code);
            format!("$ glovebox {line}\n{}", ran.failure(person.place().root()))
        };
        let said = [
            ("127.0.0.1:80", 3),
            ("localhost:8080=private", 3),
            ("bad.test", 3),
            ("nmp", 3),
            ("169.254.169.254", 3),
            ("a.test --for 0s", 2),
        ]
        .map(|(words, code)| failure(&format!("net allow box {words}"), code));
        insta::assert_snapshot!(said.join("\n"), @"
        $ glovebox net allow box 127.0.0.1:80
        error: 127.0.0.1 is an address of the sandbox itself; give what is meant a name: `NAME:PORT=127.0.0.1`
        $ glovebox net allow box localhost:8080=private
        error: `localhost` is the sandbox itself, whatever the rules say; choose another name
        $ glovebox net allow box bad.test
        error: `bad.test` stays closed: the sandbox was started with `bad.test` denied, and that goes first
        $ glovebox net allow box nmp
        error: `nmp` is neither a host nor a preset (crates, debian, github, gitlab, go, maven, npm, pypi, rubygems, ubuntu)
        $ glovebox net allow box 169.254.169.254
        error: 169.254.169.254 is never reached: it is no single machine, or hands out credentials
        $ glovebox net allow box a.test --for 0s
        error: --for: `0s` leaves no time to run
        hint: write a time like 300s, 5m, 1h, 500ms or 1h30m, or `none` for no limit
        ");
        // As many ports as there are sockets for, and not one more; what does not fit opens nothing.
        let ports = |from: u16, to: u16| -> String {
            let rules: Vec<String> = (from..=to).map(|port| format!("p.test:{port}")).collect();
            rules.join(" ")
        };
        let ran = person
            .line(&format!("net allow box {}", ports(1001, 1040)))
            .run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(ran.failure(person.place().root()), @"error: the rules name more than 32 different ports");
        let _ = person
            .line(&format!("net allow box {}", ports(1001, 1030)))
            .run()
            .expect_code(0);
        let ran = person
            .line(&format!("net allow box {}", ports(1031, 1033)))
            .run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(ran.failure(person.place().root()), @"error: the rules name more than 32 different ports");
        let shown = person.line("net show box --json").run().expect_code(0);
        assert_eq!(data(&shown)["rules"].as_array().unwrap().len(), 31);

        let _ = person.line("start -q plain").run().expect_code(0);
        let said = [
            "net show plain",
            "net log plain",
            "net allow plain a.test",
            "net test plain a.test",
        ]
        .map(|line| failure(line, 1));
        insta::assert_snapshot!(said.join("\n"), @"
        $ glovebox net show plain
        error: this sandbox has no network of listed hosts
        hint: start one with `--net egress`
        $ glovebox net log plain
        error: this sandbox has no network of listed hosts
        hint: start one with `--net egress`
        $ glovebox net allow plain a.test
        error: this sandbox has no network of listed hosts
        hint: start one with `--net egress`
        $ glovebox net test plain a.test
        error: this sandbox has no network of listed hosts
        hint: start one with `--net egress`
        ");
        let ran = person.line("net log absent").run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: there is no sandbox `absent`
        hint: `glovebox list` shows what there is; `glovebox start NAME` makes one
        ");
        let _ = person.line("stop -q box").run().expect_code(0);
        let ran = person.line("net allow box a.test --json").run();
        assert!(ran.code != 0, "{ran}");
        let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(answer["error"]["code"], "sandbox-not-running", "{ran}");
        let _ = person.line("kill -q box plain").run().expect_code(0);
    });
}

#[test]
fn a_connection_outlasts_the_rule_that_let_it_through() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let person = Person::myself();
    let echo = Server::start(|mut stream, bytes| {
        let mut part = [0; 16];
        while let Ok(length @ 1..) = stream.read(&mut part) {
            bytes.extend_from_slice(&part[..length]);
            let _ = stream.write_all(&part[..length]);
        }
    });
    let _ = person
        .line("start -q --net egress box")
        .run()
        .expect_code(0);
    let rule = echo.rule("echo.test");
    let _ = person
        .line(&format!("net allow box {rule} --for 3s"))
        .run()
        .expect_code(0);
    let script = "import socket, sys, time\nat = ('echo.test', int(sys.argv[1]))\n\
                  s = socket.create_connection(at)\ndef say(): s.sendall(b'x'); return s.recv(1)\n\
                  print(say())\ntime.sleep(3.5)\nprint(say())\n\
                  try: socket.create_connection(at)\nexcept OSError: print('closed')\n";
    let ran = person
        .glovebox(["exec", "box", "--", "python3", "-c", script])
        .args([&echo.port.to_string()])
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "b'x'\nb'x'\nclosed\n", "{ran}");
    let _ = person.line("kill -q box").run().expect_code(0);
}

#[test]
fn no_connection_is_made_anew_for_a_rule_that_has_ended() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let person = Person::myself();
    // It answers one request of a connection, so that the proxy needs another for the next.
    let server = Server::http();
    let _ = person
        .line("start -q --net egress box")
        .run()
        .expect_code(0);
    let rule = server.rule("web.test");
    let _ = person
        .line(&format!("net allow box {rule} --for 3s"))
        .run()
        .expect_code(0);
    let script = "import http.client, sys, time\nc = http.client.HTTPConnection('web.test', int(sys.argv[1]))\n\
                  def get(): c.request('GET', '/'); a = c.getresponse(); a.read(); return a.status\n\
                  print(get(), get())\ntime.sleep(3.5)\nprint(get())\nsys.exit(1)\n";
    let ran = person
        .glovebox(["exec", "box", "--", "python3", "-c", script])
        .args([&server.port.to_string()])
        .run();
    assert_eq!(ran.out(), "200 200\n502\n", "{ran}");
    insta::assert_snapshot!(server.told(&person, &ran), @"glovebox: the command asked for `web.test:[PORT]`, which is not among what this sandbox may reach: `--allow web.test:[PORT]` opens it");
    assert_eq!(server.brought(2).len(), 2);
    let _ = person.line("kill -q box").run().expect_code(0);
}

#[test]
fn two_at_once_are_counted_apart_and_open_apart() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    let person = Person::myself();
    let server = Server::http();
    let url = format!("http://web.test:{}/", server.port);
    for name in ["left", "right"] {
        let _ = person
            .line(&format!("start -q --net egress {name}"))
            .run()
            .expect_code(0);
    }
    let rule = server.rule("web.test");
    // Several at the same moment change the same rules.
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (person, rule) = (&person, &rule);
            scope.spawn(move || {
                let line = format!("net allow left {rule} n{number}.test:443");
                person.line(&line).run().expect_code(0);
            });
        }
    });
    assert_eq!(fetch(&person, "left", &url).expect_code(0).out(), "hello\n");
    assert_ne!(fetch(&person, "right", &url).code, 0);
    let shown = person.line("net show left --json").run().expect_code(0);
    assert_eq!(
        data(&shown)["rules"].as_array().unwrap().len(),
        9,
        "{shown}"
    );
    let shown = person.line("net show right --json").run().expect_code(0);
    assert_eq!(
        data(&shown)["rules"].as_array().unwrap().len(),
        0,
        "{shown}"
    );
    let _ = person.line("kill -q left right").run().expect_code(0);
}
