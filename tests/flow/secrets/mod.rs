//! Secrets that commands use and do not have: they work at their hosts, and are nowhere inside and on no disk.
//!
//! The servers are the tests' own, behind TLS with an authority that the user's `SSL_CERT_FILE` names. They say back
//! what they were told.

mod elsewhere;
mod http2;
mod mistakes;
mod server;
mod tunnel;

use crate::without_network::has;
use crate::workspace::told;
use server::{Authority, Server};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use testkit::{Glovebox, Person, Ran, skip};

/// With characters that other forms write differently.
const VALUE: &str = "s3cr3t/value+1234567890=";
/// The same as an expression that does not match itself, so that looking for it inside does not find the search.
const NEEDLE: &str = "s3cr3t/valu[e]";
static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

/// What the tests of one person have in common.
struct Place<'a> {
    person: &'a Person,
    trusted: PathBuf,
    api: Server,
    other: Server,
}

impl<'a> Place<'a> {
    fn new(person: &'a Person) -> Self {
        Self {
            person,
            trusted: person.write("home/trusted.pem", AUTHORITY.pem()),
            api: Server::https(&AUTHORITY, VALUE),
            other: Server::https(&AUTHORITY, VALUE),
        }
    }

    /// Flags that open both hosts, and give a secret to the first.
    fn flags(&self) -> Vec<String> {
        let (api, other) = (self.api.port, self.other.port);
        [
            "--net",
            "egress",
            "--allow",
            &format!("api.test:{api}=127.0.0.1"),
            "--allow",
            &format!("other.test:{other}=127.0.0.1"),
            "--secret",
            &format!("API_TOKEN=env:MY_TOKEN@api.test:{api}"),
        ]
        .map(str::to_owned)
        .into()
    }

    fn call<'b>(&self, command: impl IntoIterator<Item = &'b str>) -> Glovebox {
        let mut words: Vec<String> = command.into_iter().map(str::to_owned).collect();
        let at = words.iter().position(|word| word == "--");
        let rest = at.map_or_else(Vec::new, |at| words.split_off(at));
        words.extend(self.flags());
        words.extend(rest);
        self.adjusted(self.person.glovebox(words))
    }

    fn adjusted(&self, call: Glovebox) -> Glovebox {
        call.env("MY_TOKEN", VALUE)
            .env("SSL_CERT_FILE", &self.trusted)
    }

    /// Runs a script in a new sandbox.
    fn run(&self, script: &str) -> Ran {
        self.call(["run", "-q", "--", "sh", "-c", script]).run()
    }

    /// What Glovebox has said, as a snapshot shows it.
    fn told(&self, ran: &Ran) -> String {
        self.without_ports(&told(self.person, ran))
    }

    /// The text with the ports of the servers replaced.
    fn without_ports(&self, text: &str) -> String {
        text.replace(&self.api.port.to_string(), "[API PORT]")
            .replace(&self.other.port.to_string(), "[OTHER PORT]")
    }

    fn url(&self, path: &str) -> String {
        format!("https://api.test:{}{path}", self.api.port)
    }

    fn other_url(&self, path: &str) -> String {
        format!("https://other.test:{}{path}", self.other.port)
    }
}

/// Fails if the value, or what programs make of it, stands in a text.
fn assert_hidden(text: &str, where_: &str) {
    // The second is what base64 has of it behind `me:`.
    for form in [VALUE, "czNjcjN0L3ZhbHVlKzEyMzQ1Njc4OTA9", "s3cr3t%2Fvalue"] {
        assert!(!text.contains(form), "the value is in {where_}: {text}");
    }
}

fn all_of(ran: &Ran) -> String {
    format!("{}{}", ran.out(), ran.err())
}

/// Fails if a process of this person could be looked into by another one, or its secrets be written to swap.
fn assert_out_of_reach(person: &Person, process: &Path) {
    let status = fs::read_to_string(process.join("status")).unwrap();
    let locked = status.lines().find(|line| line.starts_with("VmLck:"));
    assert!(!locked.unwrap().ends_with(" 0 kB"), "{status}");
    if !person.is_root() {
        let look = person
            .program("cat")
            .arg(process.join("environ"))
            .stderr(Stdio::null())
            .output();
        assert!(!look.unwrap().status.success(), "{}", process.display());
    }
}

/// Every file below a directory that holds the value.
fn files_with_value(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            files_with_value(&path, found);
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(&path)
            && bytes
                .windows(VALUE.len())
                .any(|part| part == VALUE.as_bytes())
        {
            found.push(path);
        }
    }
}

#[test]
fn a_secret_works_at_its_host_and_is_nowhere_inside() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let place = Place::new(person);
        let ran = place
            .run(&format!(
                "set -e; echo placeholder $API_TOKEN; \
                 curl -sSi -H \"Authorization: Bearer $API_TOKEN\" -H \"X-Key: $API_TOKEN\" {echo}; \
                 curl -sSi -u \"me:$API_TOKEN\" {echo}; \
                 env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; \
                 if grep -rlsa '{NEEDLE}' / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr; then exit 7; fi",
                echo = place.url("/echo"),
            ))
            .expect_code(0);
        let placeholder = ran.out().lines().next().unwrap().to_owned();
        let placeholder = placeholder.strip_prefix("placeholder ").unwrap();
        let token = placeholder
            .strip_prefix("glovebox-secret-API_TOKEN-")
            .unwrap();
        assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_hidden(&all_of(&ran), "what was seen inside");

        // The server got the value, in both ways, and what it said of that came back as it was sent.
        let seen = place.api.take_seen();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(
            seen[0].contains(&format!("Authorization: Bearer {VALUE}\r\n")),
            "{seen:?}"
        );
        assert!(seen[0].contains(&format!("X-Key: {VALUE}\r\n")), "{seen:?}");
        assert!(
            seen[1].contains("Basic bWU6czNjcjN0L3ZhbHVlKzEyMzQ1Njc4OTA9"),
            "{seen:?}"
        );
        assert!(seen.iter().all(|head| {
            head.to_lowercase()
                .contains("accept-encoding: identity\r\n")
        }));
        // The value is shorter than its placeholder, so nothing can be said of the length before.
        assert!(
            !ran.out().to_lowercase().contains("content-length"),
            "{ran}"
        );
        for told in ["X-Told", "Authorization"] {
            assert!(
                ran.out()
                    .contains(&format!("{told}: Bearer {placeholder}\r\n")),
                "{ran}"
            );
        }
        // Where nothing is asked of a secret, TLS is that of the host itself.
        let subject = format!(
            "curl -sSv {} {} 2>&1 | grep -i issuer: ; cat $SSL_CERT_FILE | grep -c BEGIN",
            place.url("/"),
            place.other_url("/")
        );
        let ran = place.run(&subject).expect_code(0);
        assert!(
            ran.out().contains("Glovebox sandbox authority")
                && ran.out().contains("authority of the tests"),
            "{ran}"
        );
        person.assert_nothing_left();
    });
}

#[test]
fn a_secret_goes_nowhere_else() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let place = Place::new(person);
        let third = Server::https(&AUTHORITY, VALUE);
        let open = Server::http();
        let run = |script: &str| {
            let (third, open) = (third.port, open.port);
            let more = [
                "--allow".to_owned(),
                format!("third.test:{third}=127.0.0.1"),
                "--allow".to_owned(),
                format!("open.test:{open}=127.0.0.1"),
                "--secret".to_owned(),
                format!("OTHER=env:OTHER_TOKEN@third.test:{third}"),
            ];
            let words = ["run", "-q"].map(str::to_owned).into_iter();
            let words = words.chain(place.flags()).chain(more);
            let words = words.chain(["--", "sh", "-c", script].map(str::to_owned));
            place
                .adjusted(person.glovebox(words))
                .env("OTHER_TOKEN", "quite-another-value")
                .run()
        };
        // A host without secrets sees the placeholder: nobody looks into what is sent there.
        let ran = run(&format!(
            "curl -sS -H \"X-Key: $API_TOKEN\" {}",
            place.other_url("/echo")
        ))
        .expect_code(0);
        assert!(
            ran.out().contains("X-Key: glovebox-secret-API_TOKEN-"),
            "{ran}"
        );
        assert_hidden(&place.other.take_seen().concat(), "what another host got");

        // One with another secret, and one without TLS, get nothing at all.
        let refused = |url: &str, header: &str| {
            let ran = run(&format!(
                "curl -sS -w '%{{http_code}}' -H \"{header}\" {url}; exit 1"
            ));
            assert!(ran.out().ends_with("403"), "{url}: {ran}");
            assert_hidden(&all_of(&ran), "a refusal");
            format!("{}\n{}", ran.out(), told(person, &ran))
                .replace(&third.port.to_string(), "[PORT]")
                .replace(&open.port.to_string(), "[PORT]")
        };
        let url = format!("https://third.test:{}/echo", third.port);
        insta::assert_snapshot!(refused(&url, "X-Key: $API_TOKEN"), @"
        glovebox: this request carries the placeholder of the secret API_TOKEN, which is not for third.test:[PORT]
        403
        glovebox: the command sent the secret `API_TOKEN` to `third.test:[PORT]`, which it is not for: whoever starts the sandbox can add `third.test` to the hosts of `--secret`
        ");
        let basic = "Authorization: Basic $(printf me:$API_TOKEN | base64 -w0)";
        insta::assert_snapshot!(refused(&url, basic), @"
        glovebox: this request carries the placeholder of the secret API_TOKEN, which is not for third.test:[PORT]
        403
        glovebox: the command sent the secret `API_TOKEN` to `third.test:[PORT]`, which it is not for: whoever starts the sandbox can add `third.test` to the hosts of `--secret`
        ");
        let url = format!("http://open.test:{}/echo", open.port);
        insta::assert_snapshot!(refused(&url, "X-Key: $API_TOKEN"), @"
        glovebox: this request carries the placeholder of the secret API_TOKEN without TLS; secrets go through TLS only
        403
        glovebox: the command sent the secret `API_TOKEN` to `open.test:[PORT]` without TLS: use https: secrets go through TLS only
        ");
        assert!(third.take_seen().is_empty() && open.take_seen().is_empty());

        // Outside of headers it stays as it is.
        let ran = run(&format!(
            "curl -sS --data \"$API_TOKEN\" \"{}?key=$API_TOKEN\"",
            place.url("/echo")
        ))
        .expect_code(0);
        assert!(
            ran.out().contains("/echo?key=glovebox-secret-API_TOKEN-"),
            "{ran}"
        );
        assert_hidden(&place.api.take_seen().concat(), "an address");
    });
}

#[test]
fn answers_stream_by_without_the_value() {
    if !has("curl") || !has("python3") {
        skip!("curl and python3 are not both installed");
    }
    Person::each(|person| {
        let place = Place::new(person);
        let ran = place.run(&format!("curl -sS {}", place.url("/cut")));
        assert!(
            ran.out().starts_with("glovebox-secret-API_TOKEN-") && ran.out().ends_with("end\n"),
            "{ran}"
        );
        assert_hidden(&ran.out(), "an answer that was cut");

        // Large both ways.
        let ran = place
            .run(&format!(
                "head -c 20000000 /dev/zero > big; \
                 curl -sS --data-binary @big -o got {url}; wc -c < got; tail -1 got; \
                 grep -o glovebox-secret-API_TOKEN- got | wc -l; if grep -qa '{NEEDLE}' got; then exit 7; fi",
                url = place.url("/big")
            ))
            .expect_code(0);
        let x = (0..200).map(|number| 16_000 + 37 * number).sum::<usize>();
        let placeholder = "glovebox-secret-API_TOKEN-".len() + 32;
        let length = x + 200 * placeholder + "\n20000000 bytes\n".len();
        assert_eq!(
            ran.out(),
            format!("{length}\n20000000 bytes\n200\n"),
            "{ran}"
        );

        // Events arrive one by one: half a second lies between them.
        let script = "import sys, time, urllib.request\nbegun = time.time()\n\
             for line in urllib.request.urlopen(sys.argv[1]):\n if line.strip(): print(round((time.time() - begun) * 2), line)\n";
        let ran = place
            .call([
                "run",
                "-q",
                "--",
                "python3",
                "-c",
                script,
                &place.url("/events"),
            ])
            .run()
            .expect_code(0);
        let halves: Vec<u32> = ran
            .out()
            .lines()
            .map(|line| line.split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert!(
            halves.len() == 3 && halves[2] > halves[1] && halves[1] > halves[0],
            "{ran}"
        );
        assert_hidden(&ran.out(), "an event");

        // What is compressed cannot be looked through: with a secret it stays out, without one it is passed on.
        let said = ["/gzip-on-the-way", "/gzip"].map(|path| {
            let ran = place.run(&format!(
                "curl -sS -w '%{{http_code}}' -H \"X-Key: $API_TOKEN\" {}; exit 1",
                place.url(path)
            ));
            assert!(ran.out().ends_with("502"), "{path}: {ran}");
            place.told(&ran)
        });
        insta::assert_snapshot!(said.join("\n"), @"
        glovebox: `api.test:[API PORT]` answered in a compressed form that was not asked for, and it could not be looked through for the secret `API_TOKEN`: ask the host for an answer that is not compressed
        glovebox: `api.test:[API PORT]` answered in a compressed form that was not asked for, and it could not be looked through for the secret `API_TOKEN`: ask the host for an answer that is not compressed
        ");
        let url = place.url("/gzip");
        let ran = place
            .run(&format!("curl -sS {url} | tail -c 8"))
            .expect_code(0);
        assert_eq!(ran.out(), "not that", "{ran}");

        // An upgraded connection keeps every length, as frames have told it.
        let script = "import os, socket, ssl, sys\nport = int(sys.argv[1])\n\
             s = ssl.create_default_context().wrap_socket(socket.create_connection(('api.test', port)), server_hostname='api.test')\n\
             s.sendall(b'GET /upgrade HTTP/1.1\\r\\nHost: api.test:%d\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\nX-Key: %s\\r\\n\\r\\n' % (port, os.environb[b'API_TOKEN']))\n\
             head = b''\nwhile not head.endswith(b'\\r\\n\\r\\n'): head += s.recv(1)\n\
             s.sendall(b'\\x00\\xffhi')\nrest = b''\nwhile True:\n got = s.recv(100)\n if not got: break\n rest += got\nprint(rest)\n";
        let ran = place
            .call([
                "run",
                "-q",
                "--",
                "python3",
                "-c",
                script,
                &place.api.port.to_string(),
            ])
            .run()
            .expect_code(0);
        let stars = "*".repeat(VALUE.len());
        assert_eq!(ran.out(), format!("b'\\x00\\xffhi{stars}'\n"), "{ran}");
        assert!(
            place
                .api
                .take_seen()
                .concat()
                .contains(&format!("X-Key: {VALUE}"))
        );
    });
}

#[test]
fn programs_of_all_kinds_use_it() {
    Person::each(|person| {
        let place = Place::new(person);
        let echo = place.url("/echo");
        let python = "import os, sys, urllib.request\n\
             r = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + os.environ['API_TOKEN']})\n\
             print(urllib.request.urlopen(r).read().decode())\n";
        let node = "fetch(process.argv[1], { headers: { authorization: 'Bearer ' + process.env.API_TOKEN } })\
             .then(r => r.text()).then(console.log)";
        let java = "mkdir /tmp/j; cd /tmp/j; printf 'import java.net.*; public class Get { public static void main(String[] a) \
             throws Exception { URLConnection c = new URL(a[0]).openConnection(); \
             c.setRequestProperty(\"Authorization\", \"Bearer \" + System.getenv(\"API_TOKEN\")); \
             System.out.print(new String(c.getInputStream().readAllBytes())); } }' > Get.java; java -Xmx64m Get.java $1";
        let git = format!(
            "git -c http.extraHeader=\"Authorization: Bearer $API_TOKEN\" ls-remote {}; true",
            place.url("/repo.git")
        );
        let mut used = 0;
        for (program, command) in [
            ("python3", vec!["python3", "-c", python, &echo]),
            ("node", vec!["node", "-e", node, &echo]),
            ("git", vec!["sh", "-c", &git]),
            ("javac", vec!["sh", "-c", java, "sh", &echo]),
        ] {
            if !has(program) {
                continue;
            }
            used += 1;
            let command = ["run", "-q", "--"].into_iter().chain(command);
            let ran = place.call(command).run().expect_code(0);
            assert_hidden(&all_of(&ran), program);
            let seen = place.api.take_seen().concat();
            let is_told = seen.contains(VALUE) || seen.contains("Basic bWU6czNjcjN0L3");
            assert!(is_told, "{program}: {seen} {ran}");
        }
        if used == 0 {
            skip!("none of the programs is installed");
        }
    });
}

#[test]
fn a_client_with_certificates_of_its_own_takes_those_of_the_variable() {
    // The HTTP client that most programs in Python use.
    let Some(module) = testkit::installed("requests/requests/__init__.py") else {
        skip!("requests (Python) is not installed");
    };
    let packages = module.ancestors().nth(2).unwrap();
    let script = "import os, sys\nsys.path.insert(0, 'packages')\nimport requests\n\
         print(requests.get(sys.argv[1], auth=('me', os.environ['API_TOKEN'])).text)\n\
         try: print(requests.get(sys.argv[2], headers={'X-Key': 'none'}).status_code)\n\
         except requests.exceptions.ConnectionError: print('no way there')\n";
    Person::each(|person| {
        let copied = Command::new("cp")
            .arg("-r")
            .arg(packages)
            .arg(person.project().join("packages"))
            .status()
            .unwrap();
        assert!(copied.success());
        let place = Place::new(person);
        let echo = place.url("/echo");
        let command = ["run", "-q", "--", "python3", "-c", script, &echo];
        let ran = place
            .call(command.into_iter().chain(["https://unlisted.test/"]))
            .run()
            .expect_code(0);
        assert!(ran.out().ends_with("no way there\n"), "{ran}");
        assert_hidden(&all_of(&ran), "requests");
        let seen = place.api.take_seen().concat();
        assert!(seen.contains("Basic bWU6czNjcjN0L3"), "{seen} {ran}");
    });
}

#[test]
fn who_trusts_the_wrong_ones_is_told() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let place = Place::new(person);
        // A program that trusts only what it brings along.
        let own = person.write("project/own.pem", Authority::new().pem());
        let ran = place.run(&format!(
            "curl -sS --cacert own.pem -H \"X-Key: $API_TOKEN\" {}",
            place.url("/echo")
        ));
        insta::assert_snapshot!(place.told(&ran.expect_code(60)), @"glovebox: the command did not trust the certificate that stands in for that of `api.test:[API PORT]`, where the secret `API_TOKEN` is filled in: let the program trust the certificates in the file that SSL_CERT_FILE names");
        assert!(place.api.take_seen().is_empty());
        // A server whose certificate this machine does not trust gets nothing.
        let ran = place
            .call([
                "run",
                "-q",
                "--",
                "sh",
                "-c",
                &format!(
                    "curl -sS -w '%{{http_code}}' -H \"X-Key: $API_TOKEN\" {}; exit 1",
                    place.url("/echo")
                ),
            ])
            .env("SSL_CERT_FILE", &own)
            .run();
        assert!(
            ran.out().ends_with("502") && ran.out().contains("is not trusted on this machine"),
            "{ran}"
        );
        insta::assert_snapshot!(place.told(&ran), @"glovebox: the command asked for `api.test:[API PORT]`, whose certificate this machine does not trust, so the secret `API_TOKEN` was not sent there: whoever starts the sandbox can name a file with the right authorities in SSL_CERT_FILE");
        assert!(place.api.take_seen().is_empty());
    });
}

#[test]
fn a_named_sandbox_keeps_its_placeholder_and_never_the_value() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    Person::each(|person| {
        let place = Place::new(person);
        let _ = person.write("project/own.pem", Authority::new().pem());
        let start = || place.call(["start", "box", "-q"]).run();
        let use_it = |name: &str, token: &str| {
            let script = format!(
                "echo $API_TOKEN; curl -sS -H \"X-Key: {token}\" {}",
                place.url("/echo")
            );
            let ran = person
                .glovebox(["exec", name, "--", "sh", "-c", &script])
                .run()
                .expect_code(0);
            assert_hidden(&all_of(&ran), "what was seen inside");
            let seen = place.api.take_seen().concat();
            assert!(
                seen.contains(&format!("X-Key: {VALUE}\r\n")),
                "{name}: {seen}"
            );
            ran.out().lines().next().unwrap().to_owned()
        };
        let _ = start().expect_code(0);
        let placeholder = use_it("box", "$API_TOKEN");
        let _ = start().expect_code(0);

        // Nothing of the user's or the machine's shows it: files, processes, what is said about the sandbox.
        let mut found = Vec::new();
        files_with_value(person.place().root(), &mut found);
        assert!(found.is_empty(), "{found:?}");
        let mut processes = 0;
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let said = |file| {
                let bytes = fs::read(process.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let words = said("cmdline");
            if words.contains(person.place().root().to_str().unwrap()) {
                processes += 1;
                assert_out_of_reach(person, &process.path());
                assert_hidden(&words, "the words of a process");
                assert_hidden(&said("environ"), "the environment of a process");
            }
        }
        assert!(processes > 0);
        let report = person.line("info box --json").run().expect_code(0);
        assert!(
            report.out().contains("API_TOKEN for api.test") && report.out().contains("\"secrets\""),
            "{report}"
        );
        let said = [
            report,
            person.line("list --json").run(),
            person.line("logs box").run(),
            place.call(["config", "explain"]).run(),
            place.call(["run", "--explain", "--", "true"]).run(),
        ];
        for ran in &said {
            assert_hidden(&all_of(ran), "what is said about it");
        }
        assert!(
            said[4]
                .out()
                .contains("API_TOKEN from env:MY_TOKEN for api.test"),
            "{}",
            said[4]
        );

        // The log of the network tells of what was not filled in.
        let url = place.url("/echo");
        let words = [
            "exec", "box", "--", "curl", "-sS", "--cacert", "own.pem", &url,
        ];
        assert_eq!(person.glovebox(words).run().code, 60);
        let log = person.line("net log box --json").run().expect_code(0);
        assert!(
            log.out().contains("\"distrusted-inside\"") && log.out().contains("\"API_TOKEN\""),
            "{log}"
        );
        assert_hidden(&log.out(), "the log");

        // Through a checkpoint, and through a stop: then the value is read again.
        let _ = person.line("checkpoint -q box").run().expect_code(0);
        let _ = person.line("restore -q box v1").run().expect_code(0);
        assert_eq!(use_it("box", "$API_TOKEN"), placeholder);
        let fork = place
            .adjusted(person.line("fork -q box other"))
            .run()
            .expect_code(0);
        assert_hidden(&all_of(&fork), "a fork");
        assert_ne!(use_it("other", "$API_TOKEN"), placeholder);
        let _ = person.line("kill -q other").run().expect_code(0);
        let unset = person.line("fork -q box third").run();
        assert_ne!(unset.code, 0, "{unset}");
        let failure = |ran: &Ran| place.without_ports(&ran.failure(person.place().root()));
        insta::assert_snapshot!(failure(&unset), @"
        error: the secret `API_TOKEN` comes from the variable `MY_TOKEN`, which is not set
        hint: set it where glovebox is called, or leave the secret out
        ");
        let _ = person.line("stop -q box").run().expect_code(0);
        let unset = place
            .call(["start", "box", "-q"])
            .env("MY_TOKEN", "short")
            .run();
        assert_ne!(unset.code, 0, "{unset}");
        insta::assert_snapshot!(failure(&unset), @"
        error: the secret `API_TOKEN` from env:MY_TOKEN cannot be used: it is shorter than 8 bytes, so it could not be told from other text in answers
        hint: check what is there
        ");
        let _ = start().expect_code(0);
        // What commands may have written to a file goes on working.
        assert_eq!(use_it("box", &placeholder), placeholder);
        let other = place
            .call([
                "start",
                "box",
                "-q",
                "--secret",
                "MORE=env:MY_TOKEN@other.test",
            ])
            .run();
        assert!(other.code != 0, "{other}");
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn memory_that_cannot_be_locked_is_said() {
    Person::each(|person| {
        // Nothing limits what root may lock.
        if person.is_root() {
            return;
        }
        let place = Place::new(person);
        let report = |limit: &str| {
            let mut command = person.program("sh");
            command
                .args(["-c", &format!("ulimit -l {limit}; exec \"$@\""), "sh"])
                .arg(person.binary())
                .args(["run", "-q", "--report", "report.json"])
                .args(place.flags())
                .args(["--", "true"])
                .env("MY_TOKEN", VALUE)
                .env("SSL_CERT_FILE", &place.trusted);
            assert!(command.status().unwrap().success());
            fs::read_to_string(person.project().join("report.json")).unwrap()
        };
        assert!(report("0").contains("may be written to swap"));
        assert!(!report("64").contains("may be written to swap"));
    });
}
