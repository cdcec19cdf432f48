//! A command that fails says which wall it met and what the user can do, from facts; one that met none says nothing.

use crate::tool_calls::call;
use crate::workspace::told;
use serde_json::{Value, json};
use testkit::Person;

/// The records of one `run --json` with these flags.
fn records(person: &Person, flags: &str, script: &str) -> Vec<Value> {
    let ran = person.script(&format!("run --json {flags}"), script).run();
    let answer: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    answer["data"]["denials"].as_array().unwrap().clone()
}

/// Kinds of the records.
fn kinds(person: &Person, flags: &str, script: &str) -> Vec<String> {
    let records = records(person, flags, script);
    let kind = |record: &Value| record["kind"].as_str().unwrap().to_owned();
    records.iter().map(kind).collect()
}

/// A connection to an address of this kind; bash makes it by itself.
fn connect(address: &str) -> String {
    format!("exec bash -c 'exec 3<>/dev/tcp/{address}/80'")
}

#[test]
fn a_name_that_was_looked_up_is_named() {
    let script = "getent hosts registry.example.org";
    Person::each(|person| {
        let ran = person.script("run -q", script).run().expect_code(2);
        let want = "glovebox: the command looked up the name `registry.example.org`, and this sandbox has no \
                    network: `--net egress` with `--allow registry.example.org` opens it\n";
        assert_eq!(ran.err(), want, "as {}", person.name());
        let records = records(person, "", script);
        assert_eq!(records.len(), 1, "{records:?}");
        assert_eq!(records[0]["kind"], "name-lookup");
        insta::assert_snapshot!(records[0]["what"].as_str().unwrap(), @"the command looked up the name `registry.example.org`, and this sandbox has no network");
        insta::assert_snapshot!(records[0]["remedy"].as_str().unwrap(), @"`--net egress` with `--allow registry.example.org` opens it");
        let ran = person
            .script("run", "getent hosts a.example; getent hosts b.example")
            .run()
            .expect_code(2);
        insta::assert_snapshot!(told(person, &ran), @"glovebox: the command looked up 2 names (the last was `b.example`), and this sandbox has no network: `--net egress` with `--allow b.example` opens it");
    });
}

#[test]
fn an_address_that_was_tried_is_seen() {
    Person::each(|person| {
        for (address, remedy) in [
            ("192.0.2.1", "`--allow 192.0.2.1` opens it"),
            ("2001:db8::1", "`--allow ADDRESS:PORT` opens an address"),
        ] {
            let ran = person.script("run", &connect(address)).run().expect_code(1);
            assert!(
                ran.err()
                    .contains("the command tried to reach an address outside"),
                "as {}: {address}: {ran}",
                person.name()
            );
            let remedy = format!("`--net egress` with {remedy}");
            assert!(ran.err().contains(&remedy), "{ran}");
        }
        // What is refused by the sandbox's own machine met no wall.
        assert!(kinds(person, "", &connect("127.0.0.1")).is_empty());
        assert!(kinds(person, "--net host", &connect("127.0.0.1")).is_empty());
    });
}

#[test]
fn a_read_only_place_is_named() {
    Person::each(|person| {
        person.write("project/a.txt", "a\n");
        let said = ["touch /usr/new", "mkdir /usr/new", "echo x > /usr/new"].map(|script| {
            let ran = person.script("run", script).run();
            assert!(ran.code != 0, "{ran}");
            told(person, &ran)
        });
        insta::assert_snapshot!(said.join("\n"), @"
        glovebox: `/usr/new` is below `/usr`, which is read-only in this sandbox: commands can write below /workspace, /tmp and their home directory
        glovebox: `/usr/new` is below `/usr`, which is read-only in this sandbox: commands can write below /workspace, /tmp and their home directory
        glovebox: `/usr/new` is below `/usr`, which is read-only in this sandbox: commands can write below /workspace, /tmp and their home directory
        ");
        let ran = person
            .script("run --workspace read-only", "echo x > a.txt")
            .run();
        insta::assert_snapshot!(told(person, &ran), @"glovebox: `/workspace` is read-only in this sandbox: `--workspace overlay` lets commands write there");
        // The words alone are no fact.
        let lie = "echo \"touch: cannot touch '/workspace/x': Read-only file system\" >&2; exit 1";
        assert!(kinds(person, "", lie).is_empty());
    });
}

#[test]
fn a_hidden_file_is_named_once() {
    Person::each(|person| {
        person.write("project/.env", "A=b\n");
        person.write("project/sub/.envrc", "A=b\n");
        let ran = person.script("run", "cat .env").run().expect_code(1);
        insta::assert_snapshot!(told(person, &ran), @"
        glovebox: hidden from the sandbox: 2 by a name like that of a secret (.env, sub/.envrc); --include PATTERN shows them
        glovebox: `.env` is hidden from this sandbox: `--include .env` shows it
        ");
        let records = records(person, "", "cat /workspace/sub/.envrc");
        assert_eq!(records.len(), 1, "{records:?}");
        assert_eq!(records[0]["kind"], "hidden");
        assert_eq!(records[0]["remedy"], "`--include sub/.envrc` shows it");
        // What it says helps.
        let _ = person
            .script("run --include .env", "cat .env")
            .run()
            .expect_code(0);
        // Where the output names none, all are said as before.
        let ran = person.line("run -- false").run().expect_code(1);
        insta::assert_snapshot!(told(person, &ran), @"
        glovebox: hidden from the sandbox: 2 by a name like that of a secret (.env, sub/.envrc); --include PATTERN shows them
        glovebox: the command failed without .env, sub/.envrc; if it needs them: `--include .env`, one for each
        ");
    });
}

#[test]
fn limits_are_records_too() {
    Person::each(|person| {
        let large = "head -c 3M /dev/zero > large";
        assert_eq!(kinds(person, "--file-size 1MiB", large), ["file-size"]);
        let many = "for n in $(seq 60); do sleep 20 & done; wait";
        let found = records(person, "--pids 20", many);
        assert!(
            found.iter().any(|record| record["kind"] == "processes"
                && record["what"].as_str().unwrap().contains("20 processes")
                && record["remedy"].as_str().unwrap().contains("--pids")),
            "as {}: {found:?}",
            person.name()
        );
        let late = records(person, "--timeout 300ms", "sleep 60");
        assert_eq!(late.len(), 1, "{late:?}");
        assert_eq!(late[0]["kind"], "timeout");
    });
}

#[test]
fn a_command_that_met_no_wall_says_nothing() {
    Person::each(|person| {
        let ran = person.line("run -q -- false").run().expect_code(1);
        assert_eq!(ran.err(), "", "as {}", person.name());
        let script = "touch /usr/x; cat /var/nonexistent; exit 0";
        let ran = person.script("run -q", script).run().expect_code(0);
        assert!(!ran.err().contains("glovebox:"), "{ran}");
        assert!(kinds(person, "", script).is_empty());
        // What another command met is not this one's.
        let _ = person.line("start -q box").run().expect_code(0);
        let ran = person
            .script("exec box", "getent hosts a.example")
            .run()
            .expect_code(2);
        insta::assert_snapshot!(told(person, &ran), @"glovebox: the command looked up the name `a.example`, and this sandbox has no network: `--net egress` with `--allow a.example` opens it");
        let _ = person.script("exec box", &connect("192.0.2.1")).run();
        let ran = person.line("exec box -- false").run().expect_code(1);
        assert_eq!(ran.err(), "", "as {}", person.name());
        // Asked for again, it is this one's too.
        let ran = person
            .script("exec --json box", "getent hosts a.example")
            .run()
            .expect_code(2);
        assert!(ran.out().contains(r#""kind":"name-lookup""#), "{ran}");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn network_and_limits_are_told_whatever_the_exit_code_is() {
    Person::each(|person| {
        let script = "getent hosts a.example | cat";
        let ran = person.script("run", script).run().expect_code(0);
        insta::assert_snapshot!(told(person, &ran), @"glovebox: the command looked up the name `a.example`, and this sandbox has no network: `--net egress` with `--allow a.example` opens it");
        assert_eq!(kinds(person, "", script), ["name-lookup"]);
        // The command has done what it was to do, so silence was asked for.
        let ran = person.script("run -q", script).run().expect_code(0);
        assert_eq!(ran.err(), "");
        let many = "for n in $(seq 60); do sleep 1 & done; wait; exit 0";
        let found = kinds(person, "--pids 20", many);
        assert!(found.iter().all(|kind| kind == "processes"), "{found:?}");
    });
}

#[test]
fn what_commands_beside_each_other_tried_is_said_of_both() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        // Asks again and again until the other one has ended.
        let asks = "(until test -e /tmp/end; do getent hosts a.example; sleep .05; done) >/dev/null 2>&1 &";
        let _ = person
            .script("exec --keep-background box", asks)
            .run()
            .expect_code(0);
        let ran = person
            .script("exec box", "sleep 1; touch /tmp/end; exit 3")
            .run()
            .expect_code(3);
        insta::assert_snapshot!(told(person, &ran), @"glovebox: while the command ran, it or another one of this sandbox looked up the name `a.example`, and this sandbox has no network: `--net egress` with `--allow a.example` opens it");
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn the_model_is_told_what_the_user_can_do() {
    Person::each(|person| {
        person.write("project/.env", "A=b\n");
        let _ = person.line("start -q box").run().expect_code(0);
        let run = |command: &str| call(person, "Bash", &json!({ "command": command })).0;
        let answer = run("getent hosts a.example");
        let text = answer["data"]["text"].as_str().unwrap();
        assert!(
            text.ends_with(
                "[the command looked up the name `a.example`, and this sandbox has no network; only the user can \
                 change that: `net = \"egress\"` with `allow = \"a.example\"` opens it]"
            ),
            "as {}: {answer}",
            person.name()
        );
        let last_line = |command: &str| {
            let answer = run(command);
            let text = answer["data"]["text"].as_str().unwrap();
            text.lines().next_back().unwrap().to_owned()
        };
        insta::assert_snapshot!(last_line("cat .env"), @r#"[`.env` is hidden from this sandbox; only the user can change that: `include = ".env"` shows it]"#);
        insta::assert_snapshot!(last_line("touch /usr/x"), @"[`/usr/x` is below `/usr`, which is read-only in this sandbox; commands can write below /workspace, /tmp and their home directory]");
        let answer = run("false");
        assert!(!answer.to_string().contains("denials"), "{answer}");
        let _ = person.line("kill box").run().expect_code(0);
    });
}
