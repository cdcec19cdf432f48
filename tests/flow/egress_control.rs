//! A network of listed hosts, seen and changed while the sandbox runs: what it asked for, what is opened for it, what
//! a host would come to.

use crate::egress::{Server, closed_port};
use crate::without_network::has;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};
use testkit::{Person, Ran, skip};

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
        let refused = fetch(person, "box", &url);
        assert!(
            refused.code == 6 && refused.err().contains("`--allow one.test`"),
            "{refused}"
        );

        let said = person
            .line(&format!("net allow box {rule}"))
            .run()
            .expect_code(0);
        assert!(said.err().contains("until it stops"), "{said}");
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
        let reached = test(&format!("http://WEB.test:{}/x?y", server.port)).expect_code(0);
        for words in [
            "is allowed by `web.test:",
            "127.0.0.1  private",
            "connected in ",
        ] {
            assert!(reached.out().contains(words), "{words}: {reached}");
        }
        for (url, words) in [
            ("https://other.test/", "refused: no rule names it"),
            ("web.test:1", "refused: no rule names this port of it"),
            ("https://x.bad.test", "refused: `*.bad.test` denies it"),
            (
                &format!("shut.test:{closed_port}"),
                "not reached: the connection was refused",
            ),
            (
                "http://gone.invalid/",
                "not reached: the name does not resolve",
            ),
            ("http://127.0.0.1/", "refused: "),
        ] {
            let ran = test(url).expect_code(1);
            assert!(ran.out().contains(words), "{url}: {ran}");
        }
        let ran = test("https://other.test/");
        assert!(
            ran.err().contains("`glovebox net allow box other.test`"),
            "{ran}"
        );
        for url in ["https://me@web.test/", "http://127.1/", "web.test:0", "x y"] {
            let ran = test(url).expect_code(2);
            assert!(ran.err().contains("cannot be tried"), "{url}: {ran}");
        }
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
        for (words, code, told) in [
            ("127.0.0.1:80", 3, "the sandbox itself"),
            ("localhost:8080=private", 3, "the sandbox itself"),
            ("bad.test", 3, "stays closed"),
            ("nmp", 3, "neither a host nor a preset"),
            ("169.254.169.254", 3, "never reached"),
            ("a.test --for 0s", 2, "no time"),
        ] {
            let ran = person.line(&format!("net allow box {words}")).run();
            assert!(
                ran.code == code && ran.err().contains(told),
                "{words}: {ran}"
            );
        }
        // As many ports as there are sockets for, and not one more; what does not fit opens nothing.
        let ports = |from: u16, to: u16| -> String {
            let rules: Vec<String> = (from..=to).map(|port| format!("p.test:{port}")).collect();
            rules.join(" ")
        };
        let ran = person
            .line(&format!("net allow box {}", ports(1001, 1040)))
            .run();
        assert!(ran.code != 0 && ran.err().contains("32"), "{ran}");
        let _ = person
            .line(&format!("net allow box {}", ports(1001, 1030)))
            .run()
            .expect_code(0);
        let ran = person
            .line(&format!("net allow box {}", ports(1031, 1033)))
            .run();
        assert!(ran.code != 0 && ran.err().contains("32"), "{ran}");
        let shown = person.line("net show box --json").run().expect_code(0);
        assert_eq!(data(&shown)["rules"].as_array().unwrap().len(), 31);

        let _ = person.line("start -q plain").run().expect_code(0);
        for words in [
            "show plain",
            "log plain",
            "allow plain a.test",
            "test plain a.test",
        ] {
            let ran = person.line(&format!("net {words}")).run();
            assert!(
                ran.code == 1 && ran.err().contains("--net egress"),
                "{words}: {ran}"
            );
        }
        let ran = person.line("net log absent").run();
        assert!(
            ran.code != 0 && ran.err().contains("there is no sandbox `absent`"),
            "{ran}"
        );
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
    assert!(ran.err().contains("`web.test:"), "{ran}");
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
