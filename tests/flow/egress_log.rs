//! The log of a network of listed hosts, followed while it grows: what is decided, how connections end, and why some
//! could not be made.

use crate::egress::{Server, closed_port};
use crate::without_network::has;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;
use testkit::{Person, skip};

/// `glovebox net log --follow`, running; it ends with this.
struct Follower {
    process: Child,
    lines: BufReader<ChildStdout>,
}

/// True if bytes, or the end, can be read within half a minute.
fn is_readable_soon(output: &ChildStdout) -> bool {
    let limit = Timespec::try_from(Duration::from_secs(30)).unwrap();
    poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&limit)).unwrap() > 0
}

impl Follower {
    fn start(person: &Person, words: &str) -> Self {
        let mut command = person.line(&format!("net log {words}")).command;
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Reads lines up to the first that is looked for. When the follower ends there is none.
    fn find(&mut self, is_it: impl Fn(&str) -> bool) -> String {
        let mut read = String::new();
        loop {
            let mut line = String::new();
            // Without a bound, a line that never comes would be waited for for ever.
            let is_there =
                !self.lines.buffer().is_empty() || is_readable_soon(self.lines.get_ref());
            assert!(is_there, "nothing more came after: {read}");
            let length = self.lines.read_line(&mut line).unwrap();
            assert!(length > 0, "the follower ended after: {read}");
            if is_it(&line) {
                return line;
            }
            read.push_str(&line);
        }
    }

    /// The next object about this host that has this in it.
    fn find_json(&mut self, host: &str, key: &str, value: &Value) -> Value {
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let line = self.find(|line| {
            let entry = parse(line);
            entry["host"] == host && entry[key] == *value
        });
        parse(&line)
    }

    /// What it said besides, and how it ended.
    fn end(mut self) -> (String, std::process::ExitStatus) {
        let mut said = String::new();
        let mut stderr = self.process.stderr.take().unwrap();
        let _ = stderr.read_to_string(&mut said).unwrap();
        (said, self.process.wait().unwrap())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_log_is_followed_until_somebody_interrupts_or_the_sandbox_ends() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let closed_port = closed_port();
        let start = format!(
            "start -q --net egress --allow {} --allow shut.test:{closed_port}=127.0.0.1 --allow gone.invalid box",
            server.rule("web.test")
        );
        let _ = person.line(&start).run().expect_code(0);
        let fetch = |url: &str| {
            person
                .glovebox(["exec", "box", "--", "curl", "-sS", "-m", "20", url])
                .run()
        };
        let (listed, port) = (format!("http://web.test:{}/", server.port), server.port);
        // What was there before is told first.
        let _ = fetch(&listed).expect_code(0);
        let mut lines = Follower::start(person, "box --follow --json");
        let mut text = Follower::start(person, "box -f");
        let before = lines.find_json("web.test", "decision", &"allowed".into());
        assert_eq!(before["port"], port, "{before}");

        assert_ne!(fetch("http://other.test/").code, 0);
        let refused = lines.find_json("other.test", "decision", &"refused".into());
        assert_eq!(refused["reason"], "unlisted", "{refused}");
        assert_ne!(fetch(&format!("http://shut.test:{closed_port}/")).code, 0);
        let failed = lines.find_json("shut.test", "failure", &"refused".into());
        assert_eq!(failed["decision"], "allowed", "{failed}");
        assert!(failed["duration_ms"].is_u64(), "{failed}");
        let unknown = fetch("http://gone.invalid/");
        assert_eq!(unknown.code, 6, "{unknown}");
        let failed = lines.find_json("gone.invalid", "failure", &"unknown-name".into());
        assert_eq!(failed["port"], Value::Null, "{failed}");
        let _ = fetch(&listed).expect_code(0);
        // Each connection comes twice: when it is made, and with what it carried when it has ended.
        let opened = lines.find_json("web.test", "duration_ms", &Value::Null);
        let closed = lines.find_json("web.test", "number", &opened["number"]);
        assert!(closed["received_bytes"].as_u64().unwrap() > 6, "{closed}");

        for (host, words) in [
            ("other.test", "  refused  other.test  no rule names it"),
            ("shut.test", "the connection was refused"),
            (
                "gone.invalid",
                "  failed   gone.invalid  the name does not resolve",
            ),
            ("web.test", " received in "),
        ] {
            let line = text.find(|line| line.contains(host) && !line.contains("opened"));
            assert!(line.contains(words), "{words}: {line}");
        }
        let table = person.line("net log box").run().expect_code(0);
        assert!(
            table.out().contains(", but the connection was refused"),
            "{table}"
        );

        let id = rustix::process::Pid::from_raw(text.process.id() as i32).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let (said, status) = text.end();
        assert_eq!((said.as_str(), status.signal()), ("", Some(2)));
        let _ = person.line("stop -q box").run().expect_code(0);
        let (said, status) = lines.end();
        assert_eq!(status.code(), Some(0), "{said}");
        insta::assert_snapshot!(said, @"glovebox: sandbox `box` has ended");
        let ran = person.line("net log box --follow").run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `box` is not running: it was stopped with `glovebox stop`
        hint: `glovebox start box` brings it back, `glovebox kill box` removes it
        ");
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_program_that_asks_the_proxy_is_told_why_a_listed_host_was_not_reached() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let closed_port = closed_port();
        let shut = format!("shut.test:{closed_port}");
        let ask = |proxy: &str, url: &str| {
            person
                .glovebox(["run", "-q", "--net", "egress", "--allow"])
                .args([&format!("{shut}=127.0.0.1"), "--allow", "gone.invalid"])
                .args(["--", "curl", "-sS", "-m", "20", "-v", "-x", proxy, url])
                .run()
        };
        let (http, socks) = ("http://198.18.0.1:808", "socks5h://198.18.0.1:808");
        for (proxy, url, words) in [
            (http, format!("https://{shut}/"), "502 Bad Gateway"),
            (http, "https://gone.invalid/".to_owned(), "502 Bad Gateway"),
            // curl says the number of the answer (RFC 1928, 6).
            (socks, format!("http://{shut}/"), "(5)"),
            (socks, "http://gone.invalid/".to_owned(), "(4)"),
            (socks, "http://other.test/".to_owned(), "(2)"),
        ] {
            let ran = ask(proxy, &url);
            assert!(ran.code != 0 && ran.err().contains(words), "{words}: {ran}");
        }
    });
}
