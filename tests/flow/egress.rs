//! A network of listed hosts: they are reached, as programs do it; nothing else is, and the command is told what.
//!
//! The servers are the tests' own, on an address of this machine's loopback that a rule pins a name to. What they are
//! asked for is written down, so that "was not reached" is something they say.

use crate::without_network::{AT_ONCE, has};
use crate::workspace::told;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::{Glovebox, Person, Ran, skip};

/// A port that nobody listens on: one that was just given back.
pub(crate) fn closed_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A server on loopback; it keeps the first bytes that each connection brought.
pub(crate) struct Server {
    pub(crate) port: u16,
    address: IpAddr,
    pub(crate) seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    /// Answers each connection in a thread of its own.
    pub(crate) fn start(answer: impl Fn(TcpStream, &mut Vec<u8>) + Send + Sync + 'static) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), answer)
    }

    /// As [`Self::start`], at another address of this machine.
    pub(crate) fn start_at(
        address: IpAddr,
        answer: impl Fn(TcpStream, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    answer(stream, &mut bytes);
                    log.lock().unwrap().push(bytes);
                });
            }
        });
        Self {
            port,
            address,
            seen,
        }
    }

    /// One request, one answer, one end.
    pub(crate) fn http() -> Self {
        Self::start(answer_hello)
    }

    /// The rule that lets `name` lead here.
    pub(crate) fn rule(&self, name: &str) -> String {
        format!("{name}:{}={}", self.port, self.address)
    }

    /// What Glovebox has said, as a snapshot shows it, with the port of this server replaced.
    pub(crate) fn told(&self, person: &Person, ran: &Ran) -> String {
        self.without_port(&told(person, ran))
    }

    /// The text with the port of this server replaced.
    pub(crate) fn without_port(&self, text: &str) -> String {
        text.replace(&self.port.to_string(), "[PORT]")
    }

    /// Waits until so many connections that brought something are over, and gives what they brought. To a host that
    /// is listed the proxy may connect before it knows whether anything will be passed on.
    pub(crate) fn brought(&self, connections: usize) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let seen = self.seen.lock().unwrap();
            let full = seen.iter().filter(|bytes| !bytes.is_empty());
            if full.clone().count() >= connections || begun.elapsed() > AT_ONCE {
                return full
                    .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                    .collect();
            }
            drop(seen);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Answers one request.
pub(crate) fn answer_hello(mut stream: TcpStream, bytes: &mut Vec<u8>) {
    let mut part = [0; 4096];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(length @ 1..) => bytes.extend_from_slice(&part[..length]),
            _ => return,
        }
    }
    let _ = stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
}

/// A program in Python in a sandbox that reaches the server by this name; it is given the port.
pub(crate) fn python(person: &Person, server: &Server, name: &str, script: &str) -> Glovebox {
    let rule = server.rule(name);
    person
        .glovebox(["run", "-q", "--net", "egress", "--allow", &rule, "--"])
        .args(["python3", "-c", script, &server.port.to_string()])
}

#[test]
fn a_listed_host_is_reached_and_no_other() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let rule = server.rule("web.test");
        let url = format!("http://web.test:{}/path?q=1", server.port);
        let ran = person
            .script(
                &format!("run -q --net egress --allow {rule}"),
                &format!("curl -sS {url}"),
            )
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "hello\n", "as {}: {ran}", person.name());
        let brought = server.brought(1);
        assert!(
            brought[0].starts_with("GET /path?q=1 HTTP/1.1\r\n"),
            "{brought:?}"
        );
        assert!(
            brought[0]
                .to_lowercase()
                .contains(&format!("host: web.test:{}", server.port)),
            "{brought:?}"
        );

        // Its neighbours, by name, port and address; nothing hangs, and nothing arrives.
        let begun = Instant::now();
        let said = [
            format!("http://web.test.evil.test:{}/", server.port),
            format!("http://evilweb.test:{}/", server.port),
            format!("http://sub.web.test:{}/", server.port),
            "http://secret.data.example/".to_owned(),
            "http://198.51.100.1/".to_owned(),
        ]
        .map(|url| {
            let ran = person
                .script(
                    &format!("run -q --net egress --allow {rule}"),
                    &format!("curl -sS {url}"),
                )
                .run();
            assert_ne!(ran.code, 0, "{url}: {ran}");
            server.told(person, &ran)
        });
        insta::assert_snapshot!(said.join("\n"), @"
        glovebox: the command asked for `web.test.evil.test`, which is not among what this sandbox may reach: `--allow web.test.evil.test` opens it
        glovebox: the command asked for `evilweb.test`, which is not among what this sandbox may reach: `--allow evilweb.test` opens it
        glovebox: the command asked for `sub.web.test`, which is not among what this sandbox may reach: `--allow sub.web.test` opens it
        glovebox: the command asked for `secret.data.example`, which is not among what this sandbox may reach: `--allow secret.data.example` opens it
        glovebox: the command asked for `198.51.100.1:80`, which is not among what this sandbox may reach: `--allow 198.51.100.1` opens it
        ");
        for closed in [
            "curl -sS http://web.test:1/".to_owned(),
            // The host's own loopback is not the sandbox's.
            format!("curl -sS http://127.0.0.1:{}/", server.port),
            format!("curl -sS -6 http://[::1]:{}/", server.port),
        ] {
            let ran = person
                .script(&format!("run -q --net egress --allow {rule}"), &closed)
                .run();
            assert!(ran.code != 0 && ran.out().is_empty(), "{closed}: {ran}");
        }
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        assert_eq!(server.brought(1).len(), 1);
        person.assert_nothing_left();
    });
}

#[test]
fn a_request_or_greeting_for_another_name_is_refused() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let at = format!("web.test:{}", server.port);
        let run = |script: &str| {
            person
                .script(
                    &format!("run -q --net egress --allow {}", server.rule("web.test")),
                    script,
                )
                .run()
        };
        for request in [
            "GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n".to_owned(),
            format!("GET / HTTP/1.1\\r\\nHost: {at}\\r\\nHost: other.test\\r\\n\\r\\n"),
            format!("GET http://other.test/ HTTP/1.1\\r\\nHost: {at}\\r\\n\\r\\n"),
            format!("GET / HTTP/1.1\\r\\nHost: {at}@other.test\\r\\n\\r\\n"),
            format!("GET / HTTP/1.1\\r\\nHost : other.test\\r\\nHost: {at}\\r\\n\\r\\n"),
            "GET / HTTP/1.1\\r\\n\\r\\n".to_owned(),
        ] {
            let script = format!(
                "exec 3<>/dev/tcp/web.test/{}; printf '{request}' >&3; timeout 10 head -c 12 <&3; echo; exit 1",
                server.port
            );
            let ran = run(&format!("bash -c \"{}\"", script.replace('"', "\\\"")));
            assert!(
                ["HTTP/1.1 403", "HTTP/1.1 400"].contains(&ran.out().trim()),
                "{request}: {ran}"
            );
        }
        // The second request of a connection is judged like the first.
        let script = format!(
            "bash -c \"exec 3<>/dev/tcp/web.test/{}; \
             printf 'GET /one HTTP/1.1\\r\\nHost: {at}\\r\\n\\r\\nGET /two HTTP/1.1\\r\\nHost: other.test\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
             timeout 10 cat <&3; exit 1\"",
            server.port
        );
        let ran = run(&script);
        assert!(
            ran.out().contains("hello") && ran.out().contains("403"),
            "{ran}"
        );
        insta::assert_snapshot!(server.told(person, &ran), @"glovebox: the command asked for `other.test:[PORT]` on a connection that was made to another name: connect to each host by its own name, without a name for one and a request for another");
        let brought = server.brought(1);
        assert!(
            brought.len() == 1 && brought[0].starts_with("GET /one"),
            "{brought:?}"
        );

        // What is no HTTP is passed on as it is, on a port that is neither 80 nor 443.
        let tls = Server::start(|mut stream, bytes| {
            let mut part = [0; 4096];
            if let Ok(length) = stream.read(&mut part) {
                bytes.extend_from_slice(&part[..length]);
            }
            let _ = stream.shutdown(Shutdown::Both);
        });
        let run = |script: String| {
            person
                .script(
                    &format!("run -q --net egress --allow {}", tls.rule("tls.test")),
                    &script,
                )
                .run()
        };
        let ran = run(format!("curl -skS https://tls.test:{}/", tls.port));
        assert!(ran.code != 0, "{ran}");
        assert!(
            tls.brought(1)[0].contains("tls.test"),
            "{:?}",
            tls.brought(1)
        );
        // The same address, and another name in the greeting; or none.
        let said = ["https://other.test", "https://198.18.0.2"].map(|url| {
            let ran = run(format!(
                "getent hosts tls.test > /dev/null; curl -skS --noproxy '*' --resolve other.test:{port}:198.18.0.2 {url}:{port}/",
                port = tls.port
            ));
            tls.told(person, &ran.expect_code(35))
        });
        insta::assert_snapshot!(said.join("\n"), @"
        glovebox: the command asked for `other.test:[PORT]` on a connection that was made to another name: connect to each host by its own name, without a name for one and a request for another
        glovebox: the command asked for `tls.test:[PORT]` on a connection that was made to another name: connect to each host by its own name, without a name for one and a request for another
        ");
        assert_eq!(tls.brought(1).len(), 1);
    });
}

#[test]
fn who_speaks_first_does_not_matter_and_ends_are_passed_on() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let greeting = Server::start(|mut stream, bytes| {
        let _ = stream.write_all(b"220 ready\r\n");
        let _ = stream.read_to_end(bytes);
        // What the program has half closed it still reads from.
        let _ = stream.write_all(format!("{} bytes\n", bytes.len()).as_bytes());
    });
    let script = "import socket, sys\ns = socket.create_connection(('mail.test', int(sys.argv[1])))\n\
                  print(s.recv(100))\nfor n in range(100): s.sendall(b'x' * 65536)\n\
                  s.shutdown(socket.SHUT_WR)\nprint(s.recv(100))\n";
    Person::each(|person| {
        let ran = python(person, &greeting, "mail.test", script)
            .run()
            .expect_code(0);
        assert_eq!(
            ran.out(),
            "b'220 ready\\r\\n'\nb'6553600 bytes\\n'\n",
            "{ran}"
        );
    });
}

#[test]
fn an_upgraded_connection_carries_what_it_likes() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let socket = Server::start(|mut stream, bytes| {
        let mut part = [0; 4096];
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(length @ 1..) => bytes.extend_from_slice(&part[..length]),
                _ => return,
            }
        }
        let _ = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
        );
        let length = stream.read(&mut part).unwrap_or(0);
        let _ = stream.write_all(&part[..length]);
    });
    let script = "import socket, sys\ns = socket.create_connection(('ws.test', int(sys.argv[1])))\n\
                  s.sendall(b'GET / HTTP/1.1\\r\\nHost: ws.test:%d\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n' % int(sys.argv[1]))\n\
                  head = b''\nwhile not head.endswith(b'\\r\\n\\r\\n'): head += s.recv(1)\n\
                  print(head.split(b'\\r\\n')[0])\ns.sendall(b'\\x00not http\\xff')\nprint(s.recv(100))\n";
    Person::each(|person| {
        let ran = python(person, &socket, "ws.test", script)
            .run()
            .expect_code(0);
        let said = "b'HTTP/1.1 101 Switching Protocols'\nb'\\x00not http\\xff'\n";
        assert_eq!(ran.out(), said, "{ran}");
    });
}

#[test]
fn no_upgrade_hides_which_host_is_meant() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let rule = server.rule("web.test");
        let url = format!("http://web.test:{}/", server.port);
        let ran = person
            .script(
                &format!("run -q --net egress --allow {rule}"),
                &format!(
                    "curl -sS {url} -H 'Connection: Upgrade, HTTP2-Settings' -H 'Upgrade: h2c' \
                     -H 'HTTP2-Settings: AAMAAABkAAQAAP__'"
                ),
            )
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "hello\n", "{ran}");
        let brought = server.brought(1)[0].to_lowercase();
        assert!(
            !brought.contains("upgrade") && !brought.contains("http2-settings"),
            "{brought}"
        );
    });
}

#[test]
fn a_thousand_connections_at_once() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let echo = Server::start(|mut stream, bytes| {
        let mut part = [0; 16];
        let length = stream.read(&mut part).unwrap_or(0);
        bytes.extend_from_slice(&part[..length]);
        let _ = stream.write_all(&part[..length]);
    });
    let script = "import asyncio, sys\nasync def one(n):\n r, w = await asyncio.open_connection('echo.test', int(sys.argv[1]))\n \
                  w.write(b'%08d' % n)\n got = await r.read(8)\n w.close()\n return got == b'%08d' % n\n\
                  async def main():\n print(sum(await asyncio.gather(*[one(n) for n in range(1000)])))\n\
                  asyncio.run(main())\n";
    let me = Person::myself();
    let ran = python(&me, &echo, "echo.test", script).run().expect_code(0);
    assert_eq!(ran.out(), "1000\n", "{ran}");
}

#[test]
fn datagrams_are_refused_at_once_and_names_carry_nothing_out() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let server = Server::http();
    let script = "import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                  for at in (('web.test', 443), ('192.0.2.1', 53), ('198.18.7.7', 53)):\n s.settimeout(5)\n \
                  try:\n  s.connect(at); s.send(b'x'); s.recv(1)\n except OSError as e: print(e.errno)\n\
                  for name in ('aGVsbG8.web.test', 'x' * 63 + '.example', 'a.b.c.d.e.example.com'):\n \
                  try: socket.getaddrinfo(name, 80)\n except socket.gaierror as e: print(e.errno == socket.EAI_NONAME)\n\
                  sys.exit(1)\n";
    Person::each(|person| {
        let ran = python(person, &server, "web.test", script)
            .run()
            .expect_code(1);
        assert_eq!(ran.out(), "111\n101\n111\nTrue\nTrue\nTrue\n", "{ran}");
        insta::assert_snapshot!(server.told(person, &ran), @"
        glovebox: the command asked for `192.0.2.1:53`, which is not among what this sandbox may reach: `--allow 192.0.2.1:53` opens it
        glovebox: the command asked for `agvsbg8.web.test`, which is not among what this sandbox may reach: `--allow agvsbg8.web.test` opens it
        glovebox: the command asked for `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.example`, which is not among what this sandbox may reach: `--allow xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.example` opens it
        glovebox: the command asked for `a.b.c.d.e.example.com`, which is not among what this sandbox may reach: `--allow a.b.c.d.e.example.com` opens it
        ");
    });
}

#[test]
fn clients_that_prefer_ipv6_get_the_address_there_is_at_once() {
    if !has("python3") || !has("curl") {
        skip!("python3 or curl is not installed");
    }
    let server = Server::http();
    // What programs look up: any version, the sixth alone, the sixth or mapped ones.
    let script = "import socket, sys\nport = int(sys.argv[1])\n\
                  for family, flags in ((0, 0), (socket.AF_INET6, 0), (socket.AF_INET6, socket.AI_V4MAPPED)):\n \
                  try: print(sorted({a[0].name + ' ' + a[4][0].split('.')[0] for a in socket.getaddrinfo('web.test', port, family, socket.SOCK_STREAM, 0, flags)}))\n \
                  except socket.gaierror as e: print(e.errno in (socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY))\n\
                  for at in ('::1', '2001:db8::1'):\n s = socket.socket(socket.AF_INET6); s.settimeout(5)\n \
                  try: s.connect((at, port))\n except TimeoutError: print('hangs')\n except OSError: print('refused')\n";
    Person::each(|person| {
        let ran = python(person, &server, "web.test", script)
            .run()
            .expect_code(0);
        let expected = "['AF_INET 198']\nTrue\n['AF_INET6 ::ffff:198']\nrefused\nrefused\n";
        assert_eq!(ran.out(), expected, "{ran}");
        let url = format!("http://web.test:{}/", server.port);
        let curl = |flag: &str| {
            let rule = server.rule("web.test");
            person
                .glovebox(["run", "-q", "--net", "egress", "--allow", &rule, "--"])
                .args(["curl", "-sS", "-m", "5", flag, &url])
                .run()
        };
        assert_eq!(curl("--ipv4").expect_code(0).out(), "hello\n");
        // No such name, or no way there, as curl was built; 28 would be one that waited in vain.
        let ran = curl("--ipv6");
        assert!([6, 7].contains(&ran.code), "{ran}");
    });
}

#[test]
fn a_named_sandbox_reaches_what_it_was_started_with() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let server = Server::http();
        let url = format!("http://web.test:{}/", server.port);
        let start = format!(
            "start -q --net egress --allow {} --deny *.bad.test box",
            server.rule("web.test")
        );
        let _ = person.line(&start).run().expect_code(0);
        let fetch = |url: &str| {
            person
                .glovebox(["exec", "box", "--", "curl", "-sS", url])
                .run()
        };
        assert_eq!(fetch(&url).expect_code(0).out(), "hello\n");
        let ran = fetch("http://other.test/");
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: the command asked for `other.test`, which is not among what this sandbox may reach: `--allow other.test` opens it");
        // A command that asks for nothing is not told of what another one was refused.
        let ran = person.line("exec box -- false").run();
        assert!(ran.code == 1 && !ran.err().contains("other.test"), "{ran}");
        let report = person.line("info box --json").run().expect_code(0);
        assert!(report.out().contains("to listed hosts only"), "{report}");
        // Another wish is told apart, and after a stop it is as it was.
        let other = person.line("start --net egress --allow npm box").run();
        assert_ne!(other.code, 0, "{other}");
        let failure = other.failure(person.place().root());
        insta::assert_snapshot!(server.without_port(&failure), @"
        error: the sandbox `box` runs with other settings: allow is web.test:[PORT]=127.0.0.1, asked for registry.npmjs.org:443, registry.yarnpkg.com:443; deny is *.bad.test, asked for nothing
        hint: use it as it is with `glovebox exec box -- COMMAND`, or bring its changes back with `glovebox pull box` and end it with `glovebox kill box` first
        ");
        let _ = person.line("stop -q box").run().expect_code(0);
        let _ = person.line(&start).run().expect_code(0);
        assert_eq!(fetch(&url).expect_code(0).out(), "hello\n");
        let _ = person.line("checkpoint box").run().expect_code(0);
        let _ = person.line("restore box v1").run().expect_code(0);
        assert_eq!(fetch(&url).expect_code(0).out(), "hello\n");
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn wrong_words_are_told() {
    Person::each(|person| {
        let said = [
            "--net egress --allow nmp",
            "--net egress --allow 127.1",
            "--net egress --allow a.example:0",
            "--net egress --allow 169.254.169.254",
            "--allow npm",
            "--net host --allow npm",
            "--net wifi",
        ]
        .map(|flags| {
            let ran = person.line(&format!("run {flags} -- true")).run();
            let failure = ran.expect_code(125).failure(person.place().root());
            format!("$ glovebox run {flags} -- true\n{failure}")
        });
        insta::assert_snapshot!(said.join("\n"), @"
        $ glovebox run --net egress --allow nmp -- true
        error: --allow: `nmp` is neither a host nor a preset (crates, debian, github, gitlab, go, maven, npm, pypi, rubygems, ubuntu)
        hint: `glovebox run --help` shows the flags and examples
        $ glovebox run --net egress --allow 127.1 -- true
        error: --allow: `127.1` is no host: it reads like an address
        hint: write addresses as 192.0.2.1 or [2001:db8::1]
        $ glovebox run --net egress --allow a.example:0 -- true
        error: --allow: `0` is no port
        hint: ports are numbers from 1 to 65535
        $ glovebox run --net egress --allow 169.254.169.254 -- true
        error: --allow: 169.254.169.254 is never reached: it is no single machine, or hands out credentials
        hint: `glovebox run --help` shows the flags and examples
        $ glovebox run --allow npm -- true
        error: `npm` is about a network of listed hosts, and the network is `none`
        hint: `--net egress` lets listed hosts through
        $ glovebox run --net host --allow npm -- true
        error: `npm` is about a network of listed hosts, and the network is `host`
        hint: `--net egress` lets listed hosts through
        $ glovebox run --net wifi -- true
        error: --net: `wifi` is not a network mode
        hint: use `none`, `egress` or `host`
        ");
        let ran = person.line("run --backend host --net egress -- true").run();
        assert!(ran.code != 0 && !ran.err().is_empty(), "{ran}");
        let listed = person.line("net presets --json").run().expect_code(0);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert!(
            listed["data"]["presets"].as_array().unwrap().len() > 5,
            "{listed}"
        );
        // Nothing listed is nothing reached, and allowed to be wanted.
        let ran = person
            .line("run -q --net egress -- getent hosts deb.debian.org")
            .run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: the command asked for `deb.debian.org`, which is not among what this sandbox may reach: `--allow deb.debian.org` opens it");
        let plan = person
            .line("run --net egress --allow a.example --deny b.example --explain -- true")
            .run()
            .expect_code(0);
        assert!(
            plan.out().contains("  a.example\n  but not b.example\n"),
            "{plan}"
        );
    });
}
