//! What a server counts and writes down: calls of tools and decisions about hosts, whichever way they come.

use crate::mcp;
use crate::server::{Client, Server, recording, token};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use testkit::Person;

/// How many bytes a host answers with.
const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nhello\n";

/// A host at a port of this machine.
fn host() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(ANSWER.as_bytes());
        }
    });
    port
}

/// A command that asks that host for something.
fn ask(port: u16) -> String {
    format!(
        "exec 3<>/dev/tcp/web.test/{port}; printf 'GET / HTTP/1.1\\r\\nHost: web.test:{port}\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    )
}

fn audit(person: &Person) -> Vec<Value> {
    let path = person.place().state().join("server/audit.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Entries of one kind about a user.
fn of<'a>(entries: &'a [Value], kind: &str, user: &str) -> Vec<&'a Value> {
    let mine = |entry: &&Value| entry["kind"] == kind && entry["user"] == user;
    entries.iter().filter(mine).collect()
}

fn egress(admin: &Client, verdict: &str, reason: &str) -> u64 {
    let labels = format!(r#"verdict="{verdict}",reason="{reason}""#);
    admin.metric(&format!("glovebox_egress_connections_total{{{labels}}}"))
}

fn start_sandbox(client: &Client) -> String {
    let started = client.post("/api/sandboxes", &json!({})).expect(201);
    let id = started.json()["id"].as_str().unwrap().to_owned();
    format!("/api/sandboxes/{id}")
}

fn call(client: &Client, sandbox: &str, tool: &str, arguments: &Value) -> Value {
    let body = json!({ "tool": tool, "arguments": arguments });
    client.post(&format!("{sandbox}/call"), &body).json()
}

fn run(client: &Client, sandbox: &str, command: &str) -> Value {
    call(client, sandbox, "Bash", &json!({ "command": command }))
}

#[test]
fn hosts_are_counted_and_each_decision_is_written_down() {
    let person = Person::myself();
    let port = host();
    let model = recording(
        &person,
        "asks",
        &[
            ("Bash", json!({ "command": ask(port) })),
            ("Bash", json!({ "command": "getent hosts evil.test" })),
        ],
    );
    let server = Server::start(
        &person,
        &format!(
            "--project . --model {model} --net egress --allow web.test:{port}=127.0.0.1 \
             --allow gone.test:1=127.0.0.1 --allow *.wide.test:{port} --deny bad.wide.test"
        ),
    );
    let admin = server.admin();
    let ann = server.client(&token(&person, "ann --scope run"));
    let bea = server.client(&token(&person, "bea --scope run"));
    let cleo = server.client(&token(&person, "cleo --scope run"));

    // A session.
    let session = ann.submit(&json!({ "task": "t" }));
    let events = ann.follow_to_end(&session);
    let finished: Vec<&Value> = events
        .iter()
        .filter(|event| event.kind == "call_finished")
        .map(|event| &event.data)
        .collect();
    assert!(
        finished[0]["text"].as_str().unwrap().contains("hello"),
        "{finished:?}"
    );
    // A sandbox by itself.
    let sandbox = start_sandbox(&bea);
    for command in [
        ask(port),
        "for n in $(seq 150); do getent hosts evil.test; done; exit 1".to_owned(),
        "exec 3<>/dev/tcp/gone.test/1; cat <&3".to_owned(),
        "getent hosts bad.wide.test".to_owned(),
    ] {
        run(&bea, &sandbox, &command);
    }
    // A client of MCP.
    let client = mcp::introduce(&cleo);
    let answer = mcp::bash(&cleo, &client, &ask(port));
    assert!(answer.contains("hello"), "{answer}");

    assert_eq!(egress(&admin, "allowed", ""), 3);
    assert_eq!(egress(&admin, "failed", ""), 1);
    // A look-up may ask for both versions of addresses.
    assert!((1..=2).contains(&egress(&admin, "refused", "denied")));
    let refused = egress(&admin, "refused", "unlisted");
    assert!((151..=400).contains(&refused), "{refused}");
    let bytes = |direction: &str| {
        admin.metric(&format!(
            r#"glovebox_egress_bytes_total{{direction="{direction}"}}"#
        ))
    };
    assert_eq!(bytes("received"), 3 * ANSWER.len() as u64);
    assert!(bytes("sent") >= 3 * 20, "{}", bytes("sent"));
    assert_eq!(admin.metric("glovebox_egress_connections_open"), 0);
    let text = admin.get("/metrics").text();
    assert!(!text.contains(".test") && !text.contains("ann"), "{text}");

    bea.delete(&sandbox).expect(204);
    let entries = audit(&person);
    let tools: Vec<&Value> = of(&entries, "tool", "bea");
    let hosts = of(&entries, "egress", "bea");
    let about = |host: &str| -> Vec<&Value> {
        let mine = hosts.iter().copied().filter(|entry| entry["host"] == host);
        mine.collect()
    };
    let web = about("web.test");
    assert_eq!(web.len(), 1, "{hosts:?}");
    assert_eq!(web[0]["verdict"], "allowed");
    assert_eq!(web[0]["rule"], format!("web.test:{port}=127.0.0.1"));
    assert_eq!(
        (&web[0]["port"], &web[0]["count"]),
        (&json!(port), &json!(1))
    );
    assert_eq!(web[0]["session"], Value::Null);
    assert!(sandbox.ends_with(web[0]["sandbox"].as_str().unwrap()));
    // The call that ran then has an entry of its own, with its command's number.
    assert_eq!(web[0]["calls"], json!([tools[0]["call"]]), "{web:?}");
    assert!(tools[0]["job"].is_u64(), "{tools:?}");
    // A loop is one entry, or a second one for what came after the first was told.
    let evil = about("evil.test");
    assert!((1..=2).contains(&evil.len()), "{evil:?}");
    let count: u64 = evil
        .iter()
        .map(|entry| entry["count"].as_u64().unwrap())
        .sum();
    assert_eq!(
        (count, &evil[0]["verdict"], &evil[0]["reason"]),
        (
            refused - of_session(&entries),
            &json!("refused"),
            &json!("unlisted")
        )
    );
    let gone = about("gone.test");
    assert_eq!(
        (&gone[0]["verdict"], &gone[0]["reason"]),
        (&json!("failed"), &json!("refused"))
    );
    let bad = about("bad.wide.test");
    assert_eq!(
        (&bad[0]["reason"], &bad[0]["rule"]),
        (&json!("denied"), &json!("bad.wide.test"))
    );
    // The session's say which.
    let hosts = of(&entries, "egress", "ann");
    let seen: BTreeSet<&str> = hosts
        .iter()
        .filter_map(|one| one["host"].as_str())
        .collect();
    assert_eq!(seen, ["evil.test", "web.test"].into(), "{hosts:?}");
    assert!(hosts.iter().all(|one| one["session"] == json!(session)));
    let calls = of(&entries, "tool", "ann");
    let ids: Vec<&Value> = calls.iter().map(|entry| &entry["call"]).collect();
    assert_eq!(ids, [&json!("c0"), &json!("c1")]);
    assert!(
        hosts.iter().any(|one| one["calls"] == json!(["c0"])),
        "{hosts:?}"
    );
    assert_eq!(of(&entries, "egress", "cleo").len(), 1);
}

/// How often the session was refused `evil.test`.
fn of_session(entries: &[Value]) -> u64 {
    let evil = of(entries, "egress", "ann");
    let evil = evil.iter().filter(|entry| entry["host"] == "evil.test");
    evil.map(|entry| entry["count"].as_u64().unwrap()).sum()
}

#[test]
fn a_flood_of_names_fills_no_log_and_hides_nothing() {
    let person = Person::myself();
    let port = host();
    let server = Server::start(
        &person,
        &format!("--net egress --allow web.test:{port}=127.0.0.1"),
    );
    let admin = server.admin();
    let sandbox = start_sandbox(&admin);
    let names =
        "for n in $(seq 1500); do echo n$n.secret.test; done | xargs -n 50 getent ahostsv4; exit 1";
    run(&admin, &sandbox, names);
    run(&admin, &sandbox, &ask(port));
    let refused = egress(&admin, "refused", "unlisted");
    admin.delete(&sandbox).expect(204);
    assert!(refused >= 30, "{refused}");
    let entries = audit(&person);
    let hosts = of(&entries, "egress", "admin");
    let (kept, others): (Vec<&Value>, Vec<&Value>) = hosts
        .into_iter()
        .filter(|entry| entry["verdict"] == "refused")
        .partition(|entry| entry["host"].is_string());
    assert!(kept.len() <= 100, "{}", kept.len());
    assert!(others.len() <= 3, "{others:?}");
    let count = |of: &[&Value]| -> u64 {
        of.iter()
            .map(|entry| entry["count"].as_u64().unwrap())
            .sum()
    };
    assert_eq!(count(&kept) + count(&others), refused);
    assert!(
        entries
            .iter()
            .any(|entry| entry["host"] == "web.test" && entry["verdict"] == "allowed")
    );
}

#[test]
fn what_is_decided_while_no_server_runs_is_written_down_by_the_next() {
    let person = Person::myself();
    let args = "--net egress --allow web.test";
    let server = Server::start(&person, args);
    let sandbox = start_sandbox(&server.admin());
    run(&server.admin(), &sandbox, "getent hosts before.test");
    assert_eq!(server.end(), Some(0));
    let name = sandbox.strip_prefix("/api/sandboxes/").unwrap();
    let _ = person
        .glovebox(["exec", name, "--", "getent", "hosts", "between.test"])
        .run();
    let server = Server::start(&person, args);
    let admin = server.admin();
    // What was told before is not counted again.
    assert!((1..=2).contains(&egress(&admin, "refused", "unlisted")));
    admin.delete(&sandbox).expect(204);
    let entries = audit(&person);
    for host in ["before.test", "between.test"] {
        let about = entries.iter().filter(|entry| entry["host"] == host);
        assert_eq!(about.count(), 1, "{host}: {entries:?}");
    }
}

/// A script that calls tools, and a sandbox that is made beside another one: each decision is the user's and names the
/// call, whichever way it came.
#[test]
fn what_scripts_and_sandboxes_beside_others_ask_for_is_written_down_with_the_call() {
    let person = Person::myself();
    let port = host();
    person.write(
        "home/.config/glovebox/glovebox.toml",
        "toolset = \"full\"\n",
    );
    let nested = format!(
        "const it = await tools.Bash({{ command: {} }}); console.log(JSON.stringify(it));",
        json!("getent hosts script.test; exit 0")
    );
    let model = recording(
        &person,
        "scripts",
        &[("RunJS", json!({ "source": nested }))],
    );
    let args =
        format!("--project . --model {model} --net egress --allow web.test:{port}=127.0.0.1");
    let server = Server::start(&person, &args);
    let admin = server.admin();
    let ann_token = token(&person, "ann --scope run");
    let ann = server.client(&ann_token);
    let session = ann.submit(&json!({ "task": "t" }));
    ann.follow_to_end(&session);
    let sandbox = start_sandbox(&ann);
    let spawned = |client: &Client| -> String {
        let made = call(client, &sandbox, "Spawn", &json!({}));
        made["facts"]["sandbox"]
            .as_str()
            .unwrap_or_else(|| panic!("{made}"))
            .to_owned()
    };
    let exec = |client: &Client, name: &str, command: &str| {
        let arguments = json!({ "name": name, "command": command });
        call(client, &sandbox, "SandboxExec", &arguments)
    };
    let child = spawned(&ann);
    let told = exec(&ann, &child, &ask(port));
    assert!(told["text"].as_str().unwrap().contains("hello"), "{told}");
    exec(&ann, &child, "getent hosts child.test");
    assert_eq!(egress(&admin, "allowed", ""), 1);
    assert!(egress(&admin, "refused", "unlisted") >= 2);
    let entries = audit(&person);
    let hosts = of(&entries, "egress", "ann");
    let about = |host: &str| -> &Value {
        let found = hosts.iter().find(|entry| entry["host"] == host);
        found.unwrap_or_else(|| panic!("{host}: {hosts:?}"))
    };
    let calls = of(&entries, "tool", "ann");
    let ids = |tool: &str| -> Vec<&Value> {
        let mine = calls.iter().filter(|entry| entry["tool"] == tool);
        mine.map(|entry| &entry["call"]).collect()
    };
    let script = about("script.test");
    assert_eq!(script["session"], json!(session));
    assert_eq!(script["calls"], json!(["c0"]), "{script}");
    let web = about("web.test");
    assert_eq!(web["sandbox"], json!(child));
    assert_eq!(web["verdict"], "allowed");
    let executed = ids("SandboxExec");
    assert_eq!(web["calls"], json!([executed[0]]), "{web}");
    assert_eq!(about("child.test")["calls"], json!([executed[1]]));

    // What was told a moment ago is told again when its sandbox ends: by a call...
    exec(&ann, &child, "getent hosts child.test");
    exec(&ann, &child, "getent hosts last.test");
    call(&ann, &sandbox, "SandboxKill", &json!({ "name": child }));
    // ... or with the one from which it was made, also under the next server.
    let child = spawned(&ann);
    exec(&ann, &child, "getent hosts again.test");
    assert_eq!(server.end(), Some(0));
    let server = Server::start(&person, &args);
    let ann = server.client(&ann_token);
    exec(&ann, &child, "getent hosts later.test");
    ann.delete(&sandbox).expect(204);
    let entries = audit(&person);
    let count = |host: &str| {
        let about = entries.iter().filter(|entry| entry["host"] == host);
        about.filter(|entry| entry["user"] == "ann").count()
    };
    for (host, lines) in [
        ("child.test", 2),
        ("last.test", 1),
        ("again.test", 1),
        ("later.test", 1),
    ] {
        assert_eq!(count(host), lines, "{host}: {entries:?}");
    }
}

#[test]
fn every_call_of_a_tool_is_counted_and_written_down_without_its_content() {
    let person = Person::myself();
    let missing = json!({ "path": "secret-name-of-nothing" });
    let model = recording(
        &person,
        "reads",
        &[
            ("Read", missing.clone()),
            (
                "Write",
                json!({ "path": "a", "content": "words of a file" }),
            ),
        ],
    );
    person.write(
        "home/.config/glovebox/glovebox.toml",
        "[policy]\ndeny = [\"Write\"]\n",
    );
    let server = Server::start(&person, &format!("--project . --model {model}"));
    let admin = server.admin();
    let ann = server.client(&token(&person, "ann --scope run"));
    let session = ann.submit(&json!({ "task": "t" }));
    ann.follow_to_end(&session);
    let sandbox = start_sandbox(&ann);
    call(&ann, &sandbox, "Read", &missing);
    call(&ann, &sandbox, "Read", &missing);
    call(&ann, &sandbox, "Read", &json!({ "path": "another" }));
    call(
        &ann,
        &sandbox,
        "Write",
        &json!({ "path": "a", "content": "words of a file" }),
    );
    call(&ann, &sandbox, "No\"such\n", &json!({}));
    let client = mcp::introduce(&ann);
    mcp::bash(&ann, &client, "echo words of a command");
    mcp::bash(&ann, &client, "exit 3");

    let tool = |tool: &str, outcome: &str| {
        let labels = format!(r#"placement="sandbox",tool="{tool}",outcome="{outcome}""#);
        admin.metric(&format!("glovebox_tool_executions_total{{{labels}}}"))
    };
    assert_eq!((tool("Read", "error"), tool("Read", "ok")), (4, 0));
    assert_eq!((tool("Write", "error"), tool("Write", "ok")), (2, 0));
    assert_eq!((tool("Bash", "error"), tool("Bash", "ok")), (1, 1));
    assert_eq!(tool("other", "error"), 1);
    let failed = |code: &str, tool: &str| {
        let labels = format!(r#"code="{code}",tool="{tool}""#);
        admin.metric(&format!("glovebox_sandbox_errors_total{{{labels}}}"))
    };
    assert_eq!(failed("not-found", "Read"), 4);
    assert_eq!(failed("policy-refused", "Write"), 2);
    assert_eq!(failed("not-found", "other"), 1);

    let path = person.place().state().join("server/audit.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        !text.contains("words of") && !text.contains("secret-name"),
        "{text}"
    );
    let entries = audit(&person);
    let calls = of(&entries, "tool", "ann");
    assert_eq!(calls.len(), 9, "{calls:?}");
    let of_session: Vec<&&Value> = calls
        .iter()
        .filter(|entry| entry["session"] == json!(session))
        .collect();
    assert_eq!(of_session.len(), 2);
    assert!(of_session.iter().all(|entry| entry["sandbox"].is_string()));
    let is_refused = |entry: &&&Value| entry["decision"] == "refused";
    assert_eq!(calls.iter().filter(is_refused).count(), 2, "{calls:?}");
    for entry in &calls {
        assert_eq!(entry["placement"], "sandbox");
        for digest in ["digest", "output_digest"] {
            assert_eq!(entry[digest].as_str().unwrap().len(), 64);
        }
        let is_write = entry["tool"] == "Write";
        assert_eq!(entry["decision"] == "refused", is_write, "{entry}");
        assert_eq!(entry["outcome"] == "policy-refused", is_write, "{entry}");
    }
    // Equal arguments have one digest, and others another.
    let reads = calls.iter().filter(|entry| entry["tool"] == "Read");
    let digests: Vec<&Value> = reads.map(|entry| &entry["digest"]).collect();
    assert_eq!(digests.len(), 4);
    assert!(digests[0] == digests[1] && digests[1] == digests[2]);
    assert_ne!(digests[2], digests[3]);
    let outcomes: Vec<&Value> = calls
        .iter()
        .filter(|entry| entry["tool"] == "Bash")
        .map(|entry| &entry["outcome"])
        .collect();
    assert_eq!(outcomes, [&json!("ok"), &json!("error")]);
    // What `glovebox why` explains.
    let why = calls
        .iter()
        .find_map(|entry| entry["why"].as_str())
        .unwrap();
    let _ = person.line(&format!("why {why}")).run().expect_code(0);
}
