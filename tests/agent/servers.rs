//! MCP servers of others, used by an agent: where they work, what is asked, how they fail.

use super::endings::{signal, spawn};
use super::{agent, last_results, lines_of, until, with};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Glovebox, ModelServer, Person, Step, Wanted, filters, installed};

macro_rules! python {
    () => {
        match installed("python/bin/python3") {
            Some(program) => program,
            None => testkit::skip!("needs python/bin/python3 in GLOVEBOX_TEST_CLIENTS"),
        }
    };
}

/// A person with the servers' sources in the project, and `[mcp.desk]` with these lines.
fn person_with(python: &Path, lines: &str) -> Person {
    let person = Person::myself();
    equip(&person, python, lines);
    person
}

fn equip(person: &Person, python: &Path, lines: &str) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("agent");
    for name in ["server.py", "hostile.py"] {
        person.write(
            Path::new("project").join(name),
            fs::read(tests.join(name)).unwrap(),
        );
    }
    // An interpreter and its packages may lie outside of what sandboxes show.
    let own = python.parent().unwrap().parent().unwrap();
    let real = fs::canonicalize(python).unwrap();
    let grants: Vec<String> = [own, real.parent().unwrap().parent().unwrap()]
        .iter()
        .filter(|dir| !dir.starts_with("/usr"))
        .map(|dir| format!("'{}'", dir.display()))
        .collect();
    person.write(
        "home/.config/glovebox/glovebox.toml",
        format!("grants = [{}]\n\n[mcp.desk]\n{lines}\n", grants.join(", ")),
    );
}

/// `command` and `args` of the server in the project.
fn program(python: &Path, args: &[&str]) -> String {
    format!("command = '{}'\nargs = {args:?}", python.display())
}

fn calls(list: &[(&str, Value)]) -> Vec<Step> {
    list.iter()
        .map(|(tool, arguments)| Step::call(tool, &arguments.to_string()))
        .chain([Step::text("Done.")])
        .collect()
}

/// `glovebox agent ...` against the calls; what they came to.
fn run(person: &Person, flags: &[&str], list: &[(&str, Value)]) -> (Vec<String>, String) {
    let server = ModelServer::start(calls(list));
    let ran = start(person, &server, flags).run().expect_code(0);
    person.assert_nothing_lives();
    (last_results(&server), ran.err())
}

fn start(person: &Person, server: &ModelServer, flags: &[&str]) -> Glovebox {
    agent(person, server, flags.iter().copied(), "use the desk")
}

const INSIDE: [&str; 4] = ["--sandbox", "--yes", "--apply", "never"];

fn own_namespace() -> String {
    fs::read_link("/proc/self/ns/pid")
        .unwrap()
        .display()
        .to_string()
}

#[test]
fn a_server_works_inside_the_sandbox_and_reaches_nothing_of_the_host() {
    let python = python!();
    let person = person_with(&python, &program(&python, &["server.py"]));
    let outside = person.write("outside.txt", "of the host");
    let list = [
        ("desk__look", json!({ "path": outside })),
        (
            "desk__write",
            json!({ "path": "/workspace/new.txt", "content": "of the desk" }),
        ),
        ("Read", json!({ "path": "new.txt" })),
        ("desk__fail", json!({})),
    ];
    let (results, said) = run(&person, &INSIDE, &list);
    assert!(results[0].contains("No such file"), "{results:?}");
    assert!(results[0].starts_with("pid "), "{results:?}");
    assert!(!results[0].contains(&own_namespace()), "{results:?}");
    assert_eq!(results[1], "written");
    assert!(results[2].contains("of the desk"), "{results:?}");
    assert!(
        results[3].contains("Error executing tool fail"),
        "{results:?}"
    );
    assert!(!person.project().join("new.txt").exists());
    let told = lines_of(&said, |line| line.contains("MCP server"));
    insta::assert_snapshot!(told, @"glovebox: MCP server desk works in the sandbox");
}

#[test]
fn a_server_on_the_host_is_labelled_everywhere() {
    let python = python!();
    let lines = format!(
        "{}\nplacement = \"host\"\nenv = [\"PASSED_TOKEN\", \"GIVEN_KEY=planted-value-3\", \"MODE=x\"]",
        program(&python, &["server.py"])
    );
    let person = person_with(&python, &lines);
    let outside = person.write("outside.txt", "of the host");
    let server = ModelServer::start(calls(&[
        ("desk__look", json!({ "path": outside })),
        ("desk__variables", json!({})),
    ]));
    let ran = start(&person, &server, &[&INSIDE[..], &["--json"]].concat())
        .env("PASSED_TOKEN", "planted-value-1")
        .env("OTHER", "planted-value-2")
        .run()
        .expect_code(0);
    person.assert_nothing_lives();
    let results = last_results(&server);
    assert!(results[0].contains("of the host"), "{results:?}");
    assert!(results[0].contains(&own_namespace()), "{results:?}");
    let told = ran.said("MCP server", person.place().root());
    insta::assert_snapshot!(told, @"glovebox: MCP server desk works on this machine, outside any sandbox");
    let events: Vec<Value> = ran
        .out()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let label = json!({ "name": "desk", "place": "host" });
    assert!(
        of("call_started").all(|event| event["server"] == label),
        "{ran}"
    );
    assert!(of("call_finished").all(|event| event["facts"]["placement"] == "host"));
    let system = of("started").next().unwrap()["system"]
        .as_str()
        .unwrap()
        .to_owned();
    let told = lines_of(&system, |line| line.contains("MCP server"));
    insta::assert_snapshot!(told, @"- Tools whose names begin with desk__ are those of the MCP server desk, which works on the user's machine, outside the sandbox: it has other files than you.");
    let tools = &of("started").next().unwrap()["tools"];
    assert!(
        tools.as_array().unwrap().contains(&json!("desk__look")),
        "{tools}"
    );
    // What a server is given is its alone: not even what it says about it is told.
    assert!(results[1].contains("PASSED_TOKEN=[secret]") && results[1].contains("MODE=x"));
    assert!(!results[1].contains("OTHER=") && !results[1].contains("planted"));
    let call = of("call_finished").next().unwrap()["facts"]["call"].clone();
    let why = person
        .glovebox(["why", call.as_str().unwrap()])
        .run()
        .expect_code(0);
    assert!(why.out().contains("desk__look"), "{why}");
}

#[test]
fn calls_are_asked_about_unless_the_server_is_trusted_not_to_change_anything() {
    let python = python!();
    let plain = program(&python, &["server.py"]);
    let list = [
        ("desk__look", json!({ "path": "/etc/hostname" })),
        (
            "desk__write",
            json!({ "path": "/workspace/a", "content": "x" }),
        ),
    ];
    let flags = &["--sandbox", "--apply", "never"][..];
    let person = person_with(&python, &plain);
    let (results, _) = run(&person, flags, &list);
    let root = person.place().root();
    insta::assert_snapshot!(filters(&results.join("\n"), root), @"
    [refused: policy-refused] desk__look needs somebody's word by the rule `default` (no rule fits, and it is a server's), and there is nobody to ask
    [hint] do it another way; the user can write an allow rule for it (`glovebox why call-[RANDOM]` explains)
    [refused: policy-refused] desk__write needs somebody's word by the rule `default` (no rule fits, and it is a server's), and there is nobody to ask
    [hint] do it another way; the user can write an allow rule for it (`glovebox why call-[RANDOM]` explains)
    ");
    let person = person_with(&python, &format!("{plain}\ntrust_annotations = true"));
    let (results, _) = run(&person, flags, &list);
    assert!(results[0].starts_with("pid "), "{results:?}");
    let root = person.place().root();
    insta::assert_snapshot!(filters(&results[1], root), @"
    [refused: policy-refused] desk__write needs somebody's word by the rule `default` (no rule fits, and it is a server's), and there is nobody to ask
    [hint] do it another way; the user can write an allow rule for it (`glovebox why call-[RANDOM]` explains)
    ");
    // A phase that changes nothing has only what is trusted to.
    let (results, _) = run(&person, &[flags, &["--phase", "research"]].concat(), &list);
    assert!(results[0].starts_with("pid "), "{results:?}");
    insta::assert_snapshot!(filters(&results[1], root), @"
    [refused: policy-refused] the toolset `research` does not have the tool desk__write
    [hint] use another tool; the user can choose another toolset (`glovebox tools` shows them, `glovebox why call-[RANDOM]` explains)
    ");
    // Rules are about servers' tools too.
    let ruled = format!("{plain}\n[policy]\nallow = [\"desk__*\"]\ndeny = [\"desk__write\"]");
    let person = person_with(&python, &ruled);
    let (results, _) = run(&person, flags, &list);
    assert!(results[0].starts_with("pid "), "{results:?}");
    let root = person.place().root();
    insta::assert_snapshot!(filters(&results[1], root), @"
    [refused: policy-refused] desk__write is refused by the rule `deny desk__write` ([ROOT]/home/.config/glovebox/glovebox.toml)
    [hint] do it another way; the user can change the rule (`glovebox why call-[RANDOM]` explains)
    ");
}

#[test]
fn servers_that_die_hang_or_say_too_much_harm_only_their_call() {
    let python = python!();
    let lines = format!(
        "{}\ntimeout = \"8s\"\nmax_output = \"4KiB\"",
        program(&python, &["server.py"])
    );
    let person = person_with(&python, &lines);
    let server = ModelServer::start([
        Step::call("desk__die", "{}"),
        Step::call("desk__look", r#"{"path":"/nowhere"}"#),
        Step::call("desk__flood", "{}"),
        Step::Calls(
            String::new(),
            vec![
                Wanted::new("desk__sleep", "{}"),
                Wanted::new("desk__look", r#"{"path":"/nowhere"}"#),
            ],
        ),
        Step::text("Done."),
    ]);
    let ran = start(&person, &server, &[&INSIDE[..], &["--json"]].concat())
        .run()
        .expect_code(0);
    person.assert_nothing_lives();
    let results = last_results(&server);
    insta::assert_snapshot!(results[0], @"
    [failed: unavailable] the MCP server `desk` was lost during this call: it exited with 3: out of paper
    [hint] whether the call had an effect is not known: look before you make it again; the next call starts the server anew
    ");
    assert!(results[1].starts_with("pid "), "{results:?}");
    assert!(
        results[2].starts_with("first\n") && results[2].ends_with("last"),
        "{}",
        results[2]
    );
    assert!(results[2].len() < 5000 && results[2].contains("bytes left out"));
    assert!(
        ran.out().contains("\"left_out_bytes\":10"),
        "{}",
        ran.out().len()
    );
    insta::assert_snapshot!(results[3], @"
    [failed: timed-out] the MCP server `desk` was called and did not answer in 8 s
    [hint] if it needs longer, the user can raise `timeout` in [mcp.desk]
    ");
    assert!(results[4].starts_with("pid "), "{results:?}");
}

#[test]
fn what_a_hostile_server_offers_and_says_is_harmless() {
    // It needs no packages, so that an ordinary user's sandbox can run it wherever those are.
    let python = Path::new("/usr/bin/python3");
    if !python.is_file() {
        testkit::skip!("needs /usr/bin/python3");
    }
    Person::each(|person| {
        equip(person, python, &program(python, &["hostile.py"]));
        hostile(person);
    });
}

fn hostile(person: &Person) {
    let server = ModelServer::start(calls(&[
        ("desk__good", json!({})),
        ("desk__Bash", json!({})),
        ("Bash", json!({ "command": "echo mine" })),
        ("desk__many0", json!({})),
        ("desk__good", json!({})),
    ]));
    let ran = start(person, &server, &INSIDE).run().expect_code(0);
    let results = last_results(&server);
    assert_eq!(results[0], "red\\x07");
    assert!(results[2].contains("mine"), "{results:?}");
    insta::assert_snapshot!(results[3], @"
    [failed: unavailable] the MCP server `desk` was lost during this call: it made more than 100 requests of its own in a minute
    [hint] whether the call had an effect is not known: look before you make it again; the next call starts the server anew
    ");
    assert_eq!(results[4], results[0]);
    assert!(!ran.err().contains('\u{1b}') && !ran.out().contains('\u{1b}'));
    assert!(ran.err().contains("cannot be used"), "{ran}");
    let asked = server.asked();
    let body: Value = serde_json::from_str(&asked[0].body).unwrap();
    let tools = body["tools"].as_array().unwrap();
    let served: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .filter(|name| name.starts_with("desk__"))
        .collect();
    assert!(
        served.contains(&"desk__good") && served.len() <= 128,
        "{}",
        served.len()
    );
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    assert!(
        served
            .iter()
            .all(|name| name.len() <= 64 && name.chars().all(is_plain))
    );
    assert!(
        !["desk__deep", "desk__wide"]
            .iter()
            .any(|name| served.contains(name))
    );
    assert!(asked[0].body.len() < 400_000 && !asked[0].body.contains("\\u001b"));
    // The same tools with every request, whatever the server would say by now.
    let again: Value = serde_json::from_str(&asked[4].body).unwrap();
    assert_eq!(again["tools"], body["tools"]);
    person.assert_nothing_lives();
}

#[test]
fn a_broken_server_is_a_warning_or_an_error_as_the_user_says() {
    let python = python!();
    for (lines, part) in [
        (
            program(&python, &["server.py", "broken"]),
            "the desk is on fire",
        ),
        (
            program(&python, &["hostile.py", "flood"]),
            "more than 32 MiB in one message",
        ),
        (
            "command = \"no-such-program\"".to_owned(),
            "no-such-program",
        ),
        (
            "command = \"sleep\"\nargs = [\"1000\"]\ntimeout = \"1s\"".to_owned(),
            "did not answer in 1 s",
        ),
        (
            "url = \"https://127.0.0.1:1/mcp\"\nbearer_env = \"NOT_THERE\"".to_owned(),
            "header `Authorization` comes from is not set",
        ),
        (
            "url = \"http://127.0.0.1:1/mcp\"".to_owned(),
            "is not to be had",
        ),
    ] {
        let person = person_with(&python, &format!("{lines}\nrequired = true"));
        let server = ModelServer::start([]);
        let ran = start(&person, &server, &INSIDE).run();
        assert_ne!(ran.code, 0, "{ran}");
        assert!(
            ran.err().contains("desk") && ran.err().contains(part),
            "{ran}"
        );
        assert!(server.asked().is_empty());
        person.assert_nothing_lives();

        // One that nobody requires is left out, and is no tool of the model's.
        let person = person_with(&python, &lines);
        let server = ModelServer::start([Step::text("Done.")]);
        let ran = start(&person, &server, &INSIDE).run().expect_code(0);
        assert!(
            ran.err().contains("warning") && ran.err().contains(part),
            "{ran}"
        );
        assert!(
            ran.err().contains("goes on without the tools of desk"),
            "{ran}"
        );
        assert!(!server.asked()[0].body.contains("desk__"), "{ran}");
        person.assert_nothing_lives();
    }
}

/// The server over HTTP; it ends when dropped.
struct Site {
    child: Child,
    port: u16,
}

impl Site {
    fn open(python: &Path, token: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("agent/server.py");
        let mut child = Command::new(python)
            .arg(script)
            .args(["http", token])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self { child, port }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TOKEN: &str = "planted-token-0123456789";

#[test]
fn a_server_over_http_is_used_and_its_token_is_nowhere() {
    let python = python!();
    let site = Site::open(&python, TOKEN);
    let lines = format!(
        "url = \"{}\"\nbearer_env = \"DESK\"\ntools = [\"look\", \"flood\", \"gone\"]",
        site.url()
    );
    let person = person_with(&python, &lines);
    let list = [
        ("desk__look", json!({ "path": "/nowhere" })),
        ("desk__write", json!({ "path": "/tmp/x", "content": "" })),
        ("desk__flood", json!({})),
    ];
    let server = ModelServer::start(calls(&list));
    let ran = start(&person, &server, &[&INSIDE[..], &["--json"]].concat())
        .env("DESK", TOKEN)
        .run()
        .expect_code(0);
    person.assert_nothing_lives();
    let results = last_results(&server);
    assert!(results[0].contains(&own_namespace()), "{results:?}");
    insta::assert_snapshot!(results[1], @"
    [failed: not-found] there is no tool `desk__write`
    [hint] the tools are Bash, Job, Read, Write, Edit, Delete, Move, List, Glob, Grep, Code, RunJS, desk__flood, desk__look
    ");
    assert!(results[2].len() < 40_000 && results[2].ends_with("last"));
    let told = ran.said("MCP server", person.place().root());
    insta::assert_snapshot!(told, @"
    warning: the MCP server `desk` has no tool gone
    glovebox: MCP server desk works elsewhere, over the network
    ");
    assert!(
        ran.out().contains("\"place\":\"remote\""),
        "{}",
        ran.out().len()
    );
    // A wrong token is said to be the reason, and shown no more than a right one.
    let server = ModelServer::start([Step::text("Done.")]);
    let wrong = start(&person, &server, &INSIDE)
        .env("DESK", "planted-token-wrong")
        .run()
        .expect_code(0);
    assert!(wrong.err().contains("401"), "{wrong}");
    for text in [ran.out(), ran.err(), wrong.err(), wrong.out()] {
        assert!(!text.contains("planted-token"), "{text}");
    }
    let shown = person.line("config explain").run().expect_code(0).out();
    assert!(shown.contains("desk: http://127.0.0.1"), "{shown}");
    let mut files = vec![person.place().state()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(entries(&path));
        } else if let Ok(content) = fs::read(&path) {
            let found = content.windows(13).any(|part| part == b"planted-token");
            assert!(!found, "{}", path.display());
        }
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten();
    found
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
        .map(|entry| entry.path())
        .collect()
}

#[test]
fn a_call_that_is_interrupted_ends_and_the_session_goes_on_with_its_servers() {
    let python = python!();
    let person = person_with(&python, &program(&python, &["server.py"]));
    let server = ModelServer::start([
        Step::call("desk__sleep", "{}"),
        Step::call("desk__look", r#"{"path":"/nowhere"}"#),
        Step::text("Done."),
    ]);
    let child = spawn(start(&person, &server, &INSIDE));
    until("the call", || server.asked().len() == 1);
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(begin.elapsed() < Duration::from_secs(20));
    let line = ["sessions", "resume", "last", "go on", "--yes"];
    let ran = with(
        &person,
        &server,
        line.into_iter().chain(["--apply", "never"]),
    )
    .run()
    .expect_code(0);
    assert!(last_results(&server)[1].starts_with("pid "), "{ran}");
    person.assert_nothing_lives();
}

#[test]
fn a_server_on_the_host_ends_with_an_agent_that_is_killed() {
    let marker = testkit::marker();
    let person = Person::myself();
    // It never says anything, so the agent waits for its start.
    let lines = format!("command = \"sleep\"\nargs = [\"{marker}\"]\nplacement = \"host\"");
    person.write(
        "home/.config/glovebox/glovebox.toml",
        format!("[mcp.desk]\n{lines}\n"),
    );
    let server = ModelServer::start([]);
    let mut child = spawn(start(&person, &server, &INSIDE));
    testkit::await_sleepers(&marker, 1);
    child.kill().unwrap();
    let _ = child.wait();
    until("the end of the server", || {
        testkit::Process::mentioning(&marker).is_empty()
    });
    let _ = person.line("kill --all --quiet").run();
}

#[test]
fn without_a_sandbox_servers_work_on_the_host() {
    let python = python!();
    let person = person_with(&python, &program(&python, &["server.py"]));
    let list = [("desk__look", json!({ "path": "/nowhere" }))];
    let (results, said) = run(&person, &["--local", "--yes"], &list);
    assert!(results[0].contains(&own_namespace()), "{results:?}");
    let called = lines_of(&said, |line| line.starts_with('>'));
    insta::assert_snapshot!(called, @"> desk__look (on this machine) /nowhere");
}
