//! Toolsets and rules on the real binary, and what becomes of a call's own sandbox.

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};
use testkit::{Person, Process, filters, marker, wait_until};

/// `glovebox call ... --json`: its answer and exit code.
fn call(person: &Person, tool: &str, arguments: &Value, flags: &str) -> (Value, i32) {
    let arguments = arguments.to_string();
    let words = ["call", tool, &arguments, "--json"];
    let ran = person
        .glovebox(words.into_iter().chain(flags.split_whitespace()))
        .run();
    let answer = serde_json::from_slice(&ran.stdout);
    (
        answer.unwrap_or_else(|error| panic!("{error}: {ran}")),
        ran.code,
    )
}

fn bash(person: &Person, line: &str, flags: &str) -> (Value, i32) {
    call(person, "Bash", &json!({ "command": line }), flags)
}

#[test]
fn what_a_call_changed_in_its_own_sandbox_is_kept_and_nothing_else_is() {
    Person::each(|person| {
        person.write("project/a.txt", "one\n");
        let (read, code) = call(person, "Read", &json!({ "path": "a.txt" }), "");
        assert_eq!(
            (read["data"]["text"].as_str(), code),
            (Some("     1\tone\n"), 0)
        );
        assert_eq!(read["data"]["state"], Value::Null);
        person.assert_nothing_left();

        let write = json!({ "path": "b.txt", "content": "two\n" });
        let (wrote, code) = call(person, "Write", &write, "");
        assert_eq!(
            (wrote["data"]["state"].as_str(), code),
            (Some("stopped"), 0),
            "{wrote}"
        );
        assert!(!person.project().join("b.txt").exists());
        let name = wrote["data"]["sandbox"].as_str().unwrap();
        let list = person.line("list").run().expect_code(0).out();
        assert!(list.contains(name) && list.contains("stopped"), "{list}");
        let _ = person.line(&format!("pull {name}")).run().expect_code(0);
        assert_eq!(
            fs::read_to_string(person.project().join("b.txt")).unwrap(),
            "two\n"
        );
        let _ = person.line(&format!("kill {name}")).run().expect_code(0);

        // A command that still runs keeps its sandbox alive.
        let marker = marker();
        let long = json!({ "command": format!("sleep {marker}"), "wait_ms": 200 });
        let (started, _) = call(person, "Bash", &long, "");
        assert_eq!(started["data"]["state"], "ready", "{started}");
        assert_eq!(Process::mentioning(&format!("sleep {marker}")).len(), 1);
        let flags = format!("--sandbox {}", started["data"]["sandbox"].as_str().unwrap());
        let kill = json!({ "action": "kill", "id": started["data"]["facts"]["job"] });
        assert_eq!(call(person, "Job", &kill, &flags).1, 0);
        assert!(Process::mentioning(&format!("sleep {marker}")).is_empty());
        let name = flags.trim_start_matches("--sandbox ");
        let _ = person.line(&format!("kill {name}")).run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn local_calls_work_on_the_project_itself_and_say_so() {
    Person::each(|person| {
        let write = json!({ "path": "new", "content": "x\n" }).to_string();
        let ran = person
            .glovebox(["call", "Write", &write, "--local"])
            .run()
            .expect_code(0);
        insta::assert_snapshot!(ran.said("no walls", person.place().root()), @"warning: --local has no walls: the tool works as you, on your own files, with your network");
        assert_eq!(
            fs::read_to_string(person.project().join("new")).unwrap(),
            "x\n"
        );
        person.assert_nothing_left();
    });
}

#[test]
fn local_calls_have_no_commands_under_a_toolset_that_only_reads() {
    Person::each(|person| {
        person.write("project/a.txt", "one\n");
        let (refused, code) = bash(person, "touch made", "--local --toolset plan");
        assert_eq!(
            (refused["error"]["code"].as_str(), code),
            (Some("policy-refused"), 3),
            "{refused}"
        );
        assert!(!person.project().join("made").exists());
        let read = json!({ "path": "a.txt" });
        let (read, code) = call(person, "Read", &read, "--local --toolset plan");
        assert_eq!(code, 0, "{read}");
        person.assert_nothing_left();
    });
}

#[test]
fn local_calls_follow_the_settings_of_sandboxes() {
    Person::each(|person| {
        let config = "env = [\"COLOUR=teal\"]\nmemory = \"1GiB\"\ntimeout = \"3s\"\n";
        person.write("own.toml", config);
        let own = person.place().root().join("own.toml");
        let own = own.to_str().unwrap();
        let local = |line: &str| {
            let arguments = json!({ "command": line }).to_string();
            let words = ["--config", own, "call", "Bash", &arguments, "--local"];
            person.glovebox(words).run()
        };
        let ran = local("echo $COLOUR").expect_code(0);
        assert!(ran.out().contains("teal"), "{ran}");
        insta::assert_snapshot!(ran.said("does not hold", person.place().root()), @"warning: the memory limit of 1 GiB does not hold here: the host backend has no walls");
        let begun = Instant::now();
        let ran = local("sleep 60");
        assert_ne!(ran.code, 0, "{ran}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{ran}");
        person.assert_nothing_left();
    });
}

#[test]
fn toolsets_decide_which_tools_there_are_and_read_only_ones_have_a_read_only_workspace() {
    Person::each(|person| {
        person.write("project/a.txt", "one\n");
        let (refused, code) = bash(person, "ls", "--toolset research");
        assert_eq!(
            (refused["error"]["code"].as_str(), code),
            (Some("policy-refused"), 3)
        );
        assert_eq!(refused["error"]["class"], "refused");
        let hint = refused["error"]["remedy"].as_str().unwrap().to_owned();
        let id = hint.split("glovebox why ").nth(1).unwrap();
        let id = id.split('`').next().unwrap().split(' ').next().unwrap();
        let why = person.line(&format!("why {id}")).run().expect_code(0).out();
        assert!(
            why.contains("rule     toolset research\nfrom     shipped\n"),
            "{why}"
        );

        let (tried, code) = bash(
            person,
            "cat a.txt; echo x > b.txt; touch ~/own",
            "--toolset review",
        );
        let text = tried["data"]["text"].as_str().unwrap();
        assert!(
            code == 0 && text.starts_with("one\n") && text.contains("Read-only file system"),
            "{text}"
        );
        let write = json!({ "path": "b", "content": "x" });
        let (refused, code) = call(person, "Write", &write, "--toolset plan");
        assert_eq!(
            (refused["error"]["code"].as_str(), code),
            (Some("policy-refused"), 3)
        );
        person.assert_nothing_left();

        let ran = person
            .line("call Read --toolset reserch")
            .run()
            .expect_code(2);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: there is no toolset `reserch`; did you mean `research`?
        hint: `glovebox tools` shows the toolsets
        ");
        let tools = person
            .line("tools --toolset safe")
            .run()
            .expect_code(0)
            .out();
        assert!(tools.contains("Edit") && !tools.contains("Bash"), "{tools}");
    });
}

#[test]
fn rules_come_from_configuration_and_every_decision_is_explained() {
    Person::each(|person| {
        person.write(
            "project/glovebox.toml",
            "toolset = \"docs\"\n[policy]\nask = [\"Bash(git push *)\"]\ndeny = [\"Bash(rm *)\", \"Read(**/key)\"]\n\
             [toolsets]\ndocs = [\"Bash\", \"Code\", \"Read\"]\n",
        );
        person.write("project/key", "secret\n");
        let (made, code) = bash(person, "TOKEN=hunter2 true", "");
        assert_eq!(code, 0, "{made}");
        let id = made["data"]["facts"]["call"].as_str().unwrap();
        let why = person
            .line(&format!("why {id} --json"))
            .run()
            .expect_code(0);
        let why: Value = serde_json::from_slice(&why.stdout).unwrap();
        assert_eq!(why["data"]["rule"], "default");
        assert_eq!(why["data"]["summary"], "TOKEN=[hidden] true");
        let root = person.place().root();
        let mut told = String::new();
        for (tool, arguments) in [
            ("Bash", json!({ "cmd": "true; rm -rf x" })),
            ("Bash", json!({ "command": "git push origin" })),
            (
                "Code",
                json!({ "language": "sh", "script": "cd src\nrm -rf x" }),
            ),
            (
                "Code",
                json!({ "language": "bash", "source": "git push", "session": "s" }),
            ),
            ("file_read", json!({ "file_path": "./key" })),
        ] {
            let (refused, code) = call(person, tool, &arguments, "");
            assert_eq!(code, 3, "{refused}");
            told.push_str(refused["error"]["message"].as_str().unwrap());
            told.push('\n');
        }
        insta::assert_snapshot!(filters(&told, root), @"
        Bash is refused by the rule `deny Bash(rm *)` ([ROOT]/project/glovebox.toml)
        Bash needs somebody's word by the rule `ask Bash(git push *)` ([ROOT]/project/glovebox.toml), and there is nobody to ask
        Code is refused by the rule `deny Bash(rm *)` ([ROOT]/project/glovebox.toml)
        Code needs somebody's word by the rule `ask Bash(git push *)` ([ROOT]/project/glovebox.toml), and there is nobody to ask
        Read is refused by the rule `deny Read(**/key)` ([ROOT]/project/glovebox.toml)
        ");
        assert_eq!(call(person, "Edit", &json!({ "path": "key" }), "").1, 3);
        let journal = person.place().state().join("decisions.jsonl");
        let mode = fs::metadata(&journal).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!fs::read_to_string(&journal).unwrap().contains("hunter2"));
        let why = person.line("why").run().expect_code(0).out();
        assert!(why.contains("deny Read(**/key)"), "{why}");
        let is_code = |line: &str| line.contains("Code") && line.contains("deny Bash(rm *)");
        assert!(why.lines().any(is_code), "{why}");
        let _ = person.line("why call-none").run().expect_code(6);
        person.assert_nothing_left();

        let said = [
            "policy.deny = [\"Bsah(x)\"]",
            "toolset = \"pln\"",
            "toolsets.x = [\"Nothing\"]",
            "toolsets.safe = [\"Read\"]",
            "toolsets = [\"Read\"]",
            "policy.alow = [\"Read\"]",
        ]
        .map(|text| {
            person.write("project/glovebox.toml", format!("{text}\n"));
            let ran = person.line("call List").run().expect_code(2);
            ran.failure(root)
        });
        insta::assert_snapshot!(said.join("\n"), @r#"
        error: [ROOT]/project/glovebox.toml:1: `policy.deny`: there is no tool `Bsah`; did you mean `Bash`?
        hint: correct the file, or pass `--no-config` to go without it
        error: [ROOT]/project/glovebox.toml:1: `toolset`: there is no toolset `pln`; did you mean `plan`?
        hint: correct the file, or pass `--no-config` to go without it
        error: [ROOT]/project/glovebox.toml:1: `toolsets`: there is no tool `Nothing`; the tools are Bash, Job, Read, Write, Edit, Delete, Move, List, Glob, Grep, Code, RunJS, Spawn, Sandboxes, SandboxExec, SandboxKill
        hint: correct the file, or pass `--no-config` to go without it
        error: [ROOT]/project/glovebox.toml:1: `toolsets`: the toolset `safe` is a shipped one; choose another name
        hint: correct the file, or pass `--no-config` to go without it
        error: [ROOT]/project/glovebox.toml:1: `toolsets` cannot be that
        hint: write a table: `[toolsets]`, and below it `docs = ["Read", "Grep"]`
        error: [ROOT]/project/glovebox.toml:1: unknown key `policy.alow`
        hint: did you mean `policy.allow`?
        "#);
        // A project may forbid and not permit.
        for text in ["policy.allow = [\"Bash\"]", "toolset = \"full\"\n"] {
            person.write("project/glovebox.toml", text);
            let code = person.line("call List").run().code;
            let _ = person.line("--trust-config call List").run().expect_code(0);
            assert!(code == 3 || text.contains("full"), "{text}: {code}");
        }
        person.assert_nothing_left();
    });
}

#[test]
fn a_sandbox_beside_a_session_lacks_its_secrets_and_what_was_opened_for_it_since() {
    Person::each(|person| {
        let start = "start -q work --net egress --allow a.test=127.0.0.1 --secret API_TOKEN=env:MY_TOKEN@a.test";
        let _ = person
            .line(start)
            .env("MY_TOKEN", "value-of-the-token")
            .run()
            .expect_code(0);
        let full = "--sandbox work --toolset full";
        let spawn = || {
            let (made, code) = call(person, "Spawn", &json!({}), full);
            assert_eq!(code, 0, "{made}");
            made["data"].clone()
        };
        let made = spawn();
        let facts = &made["facts"];
        assert_eq!(facts["secrets_left_out"], json!(["API_TOKEN"]), "{made}");
        assert_eq!(facts["hosts_left_out"], json!([]), "{made}");
        let _ = person
            .line("net allow -q work b.test:81=127.0.0.1")
            .run()
            .expect_code(0);
        let made = spawn();
        assert_eq!(
            made["facts"]["hosts_left_out"],
            json!(["b.test:81=127.0.0.1"]),
            "{made}"
        );
        let text = made["text"].as_str().unwrap();
        insta::assert_snapshot!(filters(text, person.place().root()), @"
        [sandbox spawn-[RANDOM] is ready; it ends with this session]
        [this session's secrets are not in it: API_TOKEN]
        [hosts that were opened for this session since its start are closed there: b.test:81=127.0.0.1]
        ");
        // It is as it was told: what the session had at its start is there, and nothing else is.
        let line =
            "getent hosts a.test > /dev/null && ! getent hosts b.test && test -z \"$API_TOKEN\"";
        let arguments = json!({ "name": made["facts"]["sandbox"], "command": line });
        let (ran, code) = call(person, "SandboxExec", &arguments, full);
        assert_eq!(code, 0, "{ran}");
        let own = "getent hosts a.test && getent hosts b.test && test -n \"$API_TOKEN\"";
        assert_eq!(bash(person, own, full).1, 0);
        let _ = person.line("kill -q work").run().expect_code(0);
    });
}

#[test]
fn sandboxes_are_made_beside_a_session_only_where_allowed_never_wider_and_end_with_it() {
    Person::each(|person| {
        person.write("project/a.txt", "one\n");
        let _ = person
            .line("start work --memory 512MiB")
            .run()
            .expect_code(0);
        let _ = person.line("start other").run().expect_code(0);
        let full = "--sandbox work --toolset full";
        let refusal = |arguments: Value, flags: &str, exit: i32| {
            let (refused, code) = call(person, "Spawn", &arguments, flags);
            assert_eq!(
                (&refused["error"]["class"], code),
                (&json!("refused"), exit)
            );
            refused["error"]["message"].as_str().unwrap().to_owned()
        };
        refusal(json!({}), "--sandbox work", 3);
        insta::assert_snapshot!(refusal(json!({ "network": true }), full, 3), @"`network` would be more than this session has: this session has none");
        insta::assert_snapshot!(refusal(json!({ "memory_mib": 513 }), full, 3), @"`memory_mib` would be more than this session has: this session has 512");

        let spawn = |arguments: Value| {
            let (made, code) = call(person, "Spawn", &arguments, full);
            assert_eq!(code, 0, "{made}");
            made["data"]["facts"]["sandbox"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let child = spawn(json!({ "memory_mib": 256 }));
        let run = |name: &str, line: &str| {
            let arguments = json!({ "name": name, "command": line });
            call(person, "SandboxExec", &arguments, full)
        };
        let (ran, code) = run(&child, "cat a.txt; echo two > b.txt; ls");
        assert_eq!(code, 0, "{ran}");
        let text = ran["data"]["text"].as_str().unwrap();
        assert!(text.starts_with("one\na.txt\nb.txt\n"), "{text}");
        assert!(!person.project().join("b.txt").exists());
        assert_eq!(bash(person, "test ! -e b.txt", full).1, 0);

        // Nothing but its own children: not itself, not the user's.
        for name in ["work", "other", "../other", "nobody"] {
            assert_eq!(run(name, "true").1, 6, "{name}");
            let kill = json!({ "name": name });
            assert_eq!(call(person, "SandboxKill", &kill, full).1, 6, "{name}");
        }
        let list = call(person, "Sandboxes", &json!({}), full).0;
        let listed = list["data"]["facts"]["sandboxes"].as_array().unwrap();
        assert_eq!(listed.len(), 1, "{list}");
        assert_eq!(listed[0]["sandbox"], json!(child));

        // Four at a time; killing one makes room.
        let more: Vec<String> = (0..3)
            .map(|_| spawn(json!({ "workspace": "empty" })))
            .collect();
        insta::assert_snapshot!(refusal(json!({}), full, 5), @"this session has 4 sandboxes beside its own already");
        let kill = json!({ "name": more[0] });
        assert_eq!(call(person, "SandboxKill", &kill, full).1, 0);
        let kept = spawn(json!({ "keep": true, "workspace": "read-only" }));
        assert_eq!(run(&kept, "echo x > a.txt").1, 1);

        // With the session all of them end, except what is to be kept.
        let _ = person.line("kill work").run().expect_code(0);
        let names = || {
            let list = person.line("list").run().expect_code(0).out();
            let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
            list.lines().skip(1).map(first).collect::<Vec<_>>()
        };
        let have_ended = wait_until(Duration::from_secs(10), || names().len() == 2);
        assert!(have_ended, "{:?}", names());
        assert!(names().contains(&kept), "{:?}", names());
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_toolset_has_a_network_of_its_own() {
    let text = "[toolsets.fetch]\ntools = [\"Bash\"]\nnet = \"egress\"\nallow = [\"web.test:81=127.0.0.1\"]\n\
                [toolsets.full]\nnet = \"egress\"\n";
    Person::each(|person| {
        person.write("home/.config/glovebox/glovebox.toml", text);
        // Of any family: where there is nothing but loopback, one for IPv4 alone asks nobody
        // (AI_ADDRCONFIG of getaddrinfo(3)).
        let look_up = |flags: &str| bash(person, "getent ahosts web.test", flags);
        let (found, _) = look_up("--toolset fetch");
        let said = found["data"]["text"].as_str().unwrap();
        assert!(said.contains("198.18."), "as {}: {found}", person.name());
        // Another has it not.
        for (flags, told) in [
            ("", "has no network"),
            ("--toolset full", "is not among what this sandbox may reach"),
        ] {
            let (refused, _) = look_up(flags);
            let said = refused["data"]["text"].as_str().unwrap_or_default();
            assert!(said.contains(told), "{flags}: {refused}");
        }
        // A project's file opens nothing by itself.
        person.write(
            "project/glovebox.toml",
            "[toolsets.plan]\nnet = \"egress\"\nallow = [\"npm\"]\n",
        );
        let (refused, code) = look_up("--toolset plan");
        assert!(
            code != 0 && refused.to_string().contains("network"),
            "{refused}"
        );
        fs::remove_file(person.project().join("glovebox.toml")).unwrap();
    });
}
