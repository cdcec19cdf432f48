//! What an agent does, and where.

use super::{agent, last_results, with};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use testkit::{ModelServer, Person, Step, Wanted, filters};

fn hello() -> Vec<Step> {
    vec![
        Step::Calls(
            "I will write it.".to_owned(),
            vec![Wanted::new(
                "Write",
                r#"{"path":"hello.txt","content":"hello world\n"}"#,
            )],
        ),
        Step::call("Read", r#"{"path":"hello.txt"}"#),
        Step::text("hello.txt says hello world."),
    ]
}

/// Tool definitions as the model got them, byte for byte.
fn tools(server: &ModelServer) -> String {
    let asked = server.asked();
    let texts: BTreeSet<&str> = asked.iter().map(|asked| tools_of(&asked.body)).collect();
    assert_eq!(texts.len(), 1, "not the same with every request: {texts:?}");
    let text = tools_of(&asked[0].body);
    let tools: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(tools.len() >= 8);
    text.to_owned()
}

/// The `tools` of a request as they were written.
fn tools_of(body: &str) -> &str {
    let (_, rest) = body.split_once("\"tools\":").unwrap();
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let _ = values.next().unwrap().unwrap();
    &rest[..values.byte_offset()]
}

#[test]
fn a_file_made_in_the_sandbox_is_nowhere_else_until_it_is_taken_over() {
    Person::each(|person| {
        let server = ModelServer::start(hello());
        let ran = agent(
            person,
            &server,
            ["--sandbox", "--apply", "never"],
            "say hello",
        )
        .run()
        .expect_code(0);
        assert_eq!(
            ran.out(),
            "I will write it.\nhello.txt says hello world.\n",
            "{ran}"
        );
        assert!(ran.err().contains("/workspace"), "{ran}");
        assert!(!person.project().join("hello.txt").exists());
        assert!(last_results(&server)[1].contains("hello world"));
        let in_sandbox = tools(&server);
        person.assert_nothing_lives();

        // The same, taken over.
        let server = ModelServer::start(hello());
        let _ = agent(
            person,
            &server,
            ["--sandbox", "--apply", "auto"],
            "say hello",
        )
        .run()
        .expect_code(0);
        let path = person.project().join("hello.txt");
        assert_eq!(fs::read_to_string(&path).unwrap(), "hello world\n");
        fs::remove_file(&path).unwrap();
        person.assert_nothing_lives();

        // The same without a sandbox, on the host itself, and with the same tools.
        let server = ModelServer::start(hello());
        let ran = agent(person, &server, ["--local", "--yes"], "say hello")
            .run()
            .expect_code(0);
        let told = ran.said("local: the tools", person.place().root());
        insta::assert_snapshot!(told, @"glovebox: local: the tools work on your files in [ROOT]/project, without asking");
        assert_eq!(fs::read_to_string(&path).unwrap(), "hello world\n");
        assert_eq!(tools(&server), in_sandbox);
        person.assert_nothing_lives();
    });
}

#[test]
fn without_a_terminal_nobody_can_be_asked_about_changes() {
    let person = Person::myself();
    let server = ModelServer::start([]);
    let ran = agent(&person, &server, [], "say hello")
        .run()
        .expect_code(2);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: there is no terminal to ask on before each change
    hint: let the agent work in a sandbox with --sandbox, or pass --yes
    ");
    assert!(server.asked().is_empty());
}

#[test]
fn destruction_stays_inside() {
    Person::each(|person| {
        person.write("project/keep.txt", "mine\n");
        let server = ModelServer::start([
            Step::call(
                "Bash",
                r#"{"command":"rm -rf /* 2>/dev/null; rm -rf /workspace/*; ls /workspace | wc -l"}"#,
            ),
            Step::text("Everything is gone."),
        ]);
        let _ = agent(
            person,
            &server,
            ["--sandbox", "--apply", "never"],
            "clean up",
        )
        .run()
        .expect_code(0);
        assert_eq!(
            fs::read_to_string(person.project().join("keep.txt")).unwrap(),
            "mine\n"
        );
        person.assert_nothing_lives();
    });
}

#[test]
fn every_provider_can_do_the_work() {
    let person = Person::myself();
    for (model, variable) in [
        ("anthropic/scripted", "ANTHROPIC_BASE_URL"),
        ("gemini/scripted", "GEMINI_BASE_URL"),
        ("openai-responses/scripted", "OPENAI_BASE_URL"),
        ("openai/scripted", "OPENAI_BASE_URL"),
    ] {
        let server = ModelServer::start(hello());
        // With and without what may stand at the end of an address.
        let url = format!("{}/", server.url());
        let ran = person
            .glovebox([
                "agent",
                "--sandbox",
                "--apply",
                "auto",
                "--model",
                model,
                "hello",
            ])
            .env(variable, url)
            .env("GLOVEBOX_TOOLCHAINS", "false")
            .run()
            .expect_code(0);
        assert!(
            ran.out().ends_with("hello.txt says hello world.\n"),
            "{model}: {ran}"
        );
        fs::remove_file(person.project().join("hello.txt")).unwrap();
    }
}

#[test]
fn wrong_calls_are_told_and_do_not_end_the_work() {
    let person = Person::myself();
    let server = ModelServer::start([
        Step::Status(429, Some(1)),
        Step::Cut("Half a sent".to_owned()),
        Step::Calls(
            String::new(),
            vec![
                Wanted::new("Telepathy", "{}"),
                Wanted::new("Read", "{\"path\": oops"),
                Wanted::new("Read", r#"{"colour":1}"#),
            ],
        ),
        Step::Calls(
            String::new(),
            vec![
                Wanted::new(
                    "Bash",
                    r#"{"command":"echo one > order; sleep 0.2; echo two >> order"}"#,
                ),
                Wanted::new("Bash", r#"{"command":"cat order; exit 3"}"#),
            ],
        ),
        Step::text("Done."),
    ]);
    let ran = agent(
        &person,
        &server,
        ["--sandbox", "--apply", "never", "--json"],
        "try",
    )
    .run()
    .expect_code(0);
    let results = last_results(&server);
    insta::assert_snapshot!(results[..3].join("\n"), @"
    [failed: not-found] there is no tool `Telepathy`
    [hint] the tools are Bash, Job, Read, Write, Edit, Delete, Move, List, Glob, Grep, Code, RunJS
    [failed: invalid-argument] the arguments of Read are not a JSON object
    [hint] make the call again, with all of its arguments as one JSON object
    [failed: invalid-argument] the arguments of Read do not fit: unknown field `colour`, expected one of `file`, `file_path`, `filename`, `path`, `offset`, `limit`
    [hint] its arguments are `path` (needed), `limit`, `offset`
    ");
    assert!(
        results[4].starts_with("one\ntwo\n[exit code 3"),
        "{results:?}"
    );
    let events: Vec<Value> = ran
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let retries = events
        .iter()
        .filter(|event| event["type"] == "retrying")
        .count();
    assert_eq!(retries, 2, "{ran}");
    assert_eq!(events.last().unwrap()["data"]["ending"], "completed");
    assert_eq!(server.steps_left(), 0);
}

#[test]
fn the_model_is_told_where_it_is_and_a_phase_narrows_what_it_may() {
    let person = Person::myself();
    person.write("project/notes.txt", "here\n");
    let server = ModelServer::start([
        Step::Calls(
            String::new(),
            vec![
                Wanted::new(
                    "bash",
                    r#"{"command":"cat notes.txt; echo more >> notes.txt"}"#,
                ),
                Wanted::new("write_file", r#"{"path":"x","content":"x"}"#),
            ],
        ),
        Step::text("Here is the plan."),
    ]);
    let _ = agent(
        &person,
        &server,
        ["--sandbox", "--phase", "plan", "--memory", "300MiB"],
        "plan it",
    )
    .run()
    .expect_code(0);
    let asked = server.asked();
    let body: Value = serde_json::from_str(&asked[0].body).unwrap();
    let system = body["messages"][0]["content"].as_str().unwrap();
    for words in [
        "/workspace",
        "There is no network",
        "memory 300MiB",
        "# Phase: plan",
    ] {
        assert!(system.contains(words), "{system}");
    }
    assert!(
        !system.contains(&person.project().display().to_string()),
        "{system}"
    );
    let names: Vec<&str> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"Bash") && !names.contains(&"Write"),
        "{names:?}"
    );
    let results = last_results(&server);
    assert!(
        results[0].starts_with("here\n") && results[0].contains("Read-only"),
        "{results:?}"
    );
    insta::assert_snapshot!(filters(&results[1], person.place().root()), @"
    [refused: policy-refused] the toolset `plan` does not have the tool Write
    [hint] use another tool; the user can choose another toolset (`glovebox tools` shows them, `glovebox why call-[RANDOM]` explains)
    ");
    person.assert_nothing_lives();

    // Without a wall that keeps commands from writing, there are no commands in such a phase.
    let server = ModelServer::start([
        Step::call("bash", r#"{"command":"echo more >> notes.txt"}"#),
        Step::text("Here is the plan."),
    ]);
    let _ = agent(
        &person,
        &server,
        ["--local", "--yes", "--phase", "plan"],
        "plan it",
    )
    .run()
    .expect_code(0);
    insta::assert_snapshot!(last_results(&server)[0], @"
    [refused: permission-denied] Bash may change things, which the phase `plan` does not
    [hint] say what would have to be done; commands can run in this phase with `sandbox`
    ");
    assert_eq!(
        fs::read_to_string(person.project().join("notes.txt")).unwrap(),
        "here\n"
    );
    let ran = agent(&person, &server, ["--sandbox", "--phase", "plam"], "x")
        .run()
        .expect_code(2);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: there is no toolset `plam`; did you mean `plan`?
    hint: `glovebox tools` shows the toolsets
    ");
}

#[test]
fn commits_in_the_sandbox_are_the_users() {
    let person = Person::myself();
    person.write(
        "home/.gitconfig",
        "[user]\n\tname = Ada L\n\temail = ada@example.com\n",
    );
    let server = ModelServer::start([
        Step::call(
            "Bash",
            r#"{"command":"echo $(git config user.name), $(git config user.email)"}"#,
        ),
        Step::text("Yes."),
    ]);
    let _ = agent(&person, &server, ["--sandbox"], "who")
        .run()
        .expect_code(0);
    if testkit::has_program("git") {
        assert!(last_results(&server)[0].starts_with("Ada L, ada@example.com"));
    } else {
        testkit::skip_loudly("whose commits they are", "git is not installed");
    }
}

#[test]
fn a_person_is_asked_before_each_change_of_their_own_files() {
    let person = Person::myself();
    let server = ModelServer::start([
        Step::call("Write", r#"{"path":"no.txt","content":"x"}"#),
        Step::call("Write", r#"{"path":"yes.txt","content":"x"}"#),
        Step::call("Read", r#"{"path":"yes.txt"}"#),
        Step::text("Done."),
    ]);
    let answers = [
        ("path: no.txt", "n\nnot this one\n"),
        ("path: yes.txt", "y\n"),
    ];
    let Some(shown) = super::at_terminal(&person, &server, "write two files", &answers) else {
        return;
    };
    assert!(shown.contains("allow?"), "{shown}");
    assert!(!person.project().join("no.txt").exists(), "{shown}");
    assert!(person.project().join("yes.txt").exists(), "{shown}");
    insta::assert_snapshot!(last_results(&server)[0], @"[refused: permission-denied] the user refused this call: not this one");
}

#[test]
fn a_dry_run_touches_nothing() {
    let person = Person::myself();
    let server = ModelServer::start([]);
    let ran = agent(&person, &server, ["--sandbox", "--dry-run", "--json"], "x")
        .run()
        .expect_code(0);
    let told: Value = serde_json::from_str(&ran.out()).unwrap();
    assert_eq!(told["data"]["placement"], "sandbox");
    assert_eq!(told["data"]["model"], "openai/scripted");
    assert!(server.asked().is_empty());
    assert!(!person.place().state().join("sessions").exists());
    assert!(person.sandboxes().is_empty());
}

#[test]
fn a_file_of_context_is_brought_along() {
    let person = Person::myself();
    let file = person.write("home/big.txt", "needle in here\n");
    let server = ModelServer::start([
        Step::call("Grep", r#"{"pattern":"needle","path":"/tmp/context"}"#),
        Step::text("Found."),
    ]);
    let file = file.display().to_string();
    let _ = agent(
        &person,
        &server,
        ["--sandbox", "--context", &file],
        "find it",
    )
    .run()
    .expect_code(0);
    insta::assert_snapshot!(last_results(&server)[0], @"
    /tmp/context
         1: needle in here
    ");
}

#[test]
fn a_recording_needs_no_server() {
    let person = Person::myself();
    person.write(
        "project/session.jsonl",
        r#"{"type":"answered","turn":1,"parts":[{"kind":"text","text":"Recorded."}]}"#,
    );
    let ran = person
        .glovebox(["agent", "--sandbox", "--model", "replay:session.jsonl", "x"])
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "Recorded.\n");
    let server = ModelServer::start([]);
    let _ = with(&person, &server, ["sessions", "delete", "last"])
        .run()
        .expect_code(0);
    person.assert_nothing_lives();
}

#[test]
fn the_demo_fixes_the_sample_and_leaves_everything_else_alone() {
    Person::each(|person| {
        let begin = std::time::Instant::now();
        let ran = person.line("demo").run().expect_code(0);
        assert!(begin.elapsed() < std::time::Duration::from_mins(1));
        let out = ran.out();
        for part in [
            "3 passed, 2 failed",
            "5 passed, 0 failed",
            "+tr -cs '[:alpha:]' '\\n' | tr '[:upper:]' '[:lower:]'",
            "1 modified",
            "the workspace holds 0 files now",
            "unchanged",
        ] {
            assert!(out.contains(part), "{part}: {ran}");
        }
        assert!(!out.contains("CHANGED"), "{ran}");
        person.assert_nothing_left();
    });
}

/// What the demonstration's own recording answered, as a server says it.
fn recorded_fix() -> Vec<Step> {
    let recording = include_str!("../../crates/glovebox/demo/fix.jsonl");
    let answers = recording.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let (mut said, mut calls) = (String::new(), Vec::new());
        for part in event["parts"].as_array().unwrap() {
            match part["kind"].as_str().unwrap() {
                "text" => said.push_str(part["text"].as_str().unwrap()),
                _ => calls.push(Wanted::new(
                    part["name"].as_str().unwrap(),
                    &part["arguments"].to_string(),
                )),
            }
        }
        if calls.is_empty() {
            Step::Text(said)
        } else {
            Step::Calls(said, calls)
        }
    });
    answers.collect()
}

#[test]
fn the_demo_asks_the_users_own_model_when_told_to() {
    let person = Person::myself();
    let server = ModelServer::start(recorded_fix());
    let ran = with(&person, &server, ["demo", "--live"])
        .env("OPENAI_API_KEY", "sk-not-a-real-key-at-all")
        .run()
        .expect_code(0);
    let out = ran.out();
    for part in [
        "its model: openai/",
        "3 passed, 2 failed",
        "5 passed, 0 failed",
        "1 modified",
        "unchanged",
    ] {
        assert!(out.contains(part), "{part}: {ran}");
    }
    assert!(!out.contains("CHANGED"), "{ran}");
    let asked = server.asked();
    assert_eq!((asked.len(), server.steps_left()), (5, 0));
    assert!(asked[0].body.contains("The tests fail"));
    let key = "authorization: bearer sk-not-a-real-key-at-all";
    assert!(
        asked[0]
            .headers
            .iter()
            .any(|line| line.eq_ignore_ascii_case(key))
    );
    person.assert_nothing_left();

    // Without any model there is a word about what to set.
    let ran = person.line("demo --live").run().expect_code(2);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: there is no model: none is named, and there is no key in the environment
    hint: set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, or OPENAI_BASE_URL for a server of your own; or name a model with `--model PROVIDER/NAME`
    ");
    person.assert_nothing_left();
}

#[test]
fn init_writes_a_file_that_fits_and_is_read() {
    let person = Person::myself();
    person.write("project/Cargo.toml", "[package]\nname = \"x\"\n");
    let _ = person.line("init").run().expect_code(0);
    let text = fs::read_to_string(person.project().join("glovebox.toml")).unwrap();
    assert!(
        text.contains("Found here: Rust") && text.contains("\"/target/\""),
        "{text}"
    );
    let ran = person.line("init").run().expect_code(3);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: there is a [ROOT]/project/glovebox.toml already
    hint: look at what would be written with --print, or replace it with --force
    ");
    // It is accepted without trust, and makes the sandbox the default.
    let server = ModelServer::start([Step::text("Hello.")]);
    let ran = agent(&person, &server, [], "say hello")
        .run()
        .expect_code(0);
    assert!(ran.err().contains("sandbox agent-"), "{ran}");
}

#[test]
fn a_running_command_is_seen_while_it_runs() {
    let person = Person::myself();
    let command =
        r#"{"command":"printf 'early \\033[2J\\n'; sleep 2; seq 100000; sleep 1; echo late"}"#;
    let server = ModelServer::start([Step::call("Bash", command), Step::text("Done.")]);
    let args = ["--sandbox", "--apply", "never", "--json"];
    let ran = agent(&person, &server, args, "x").run().expect_code(0);
    let out = ran.out();
    let events: Vec<Value> = out
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let at = |kind: &str| events.iter().position(|event| event["type"] == kind);
    let (first, end) = (at("tool_output").unwrap(), at("call_finished").unwrap());
    assert!(first < end, "{out}");
    assert_eq!(
        events[first]["text"], "early \\x1b[2J\n",
        "{}",
        events[first]
    );
    assert_eq!(events[first]["id"], events[end]["id"]);
    let pieces: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "tool_output")
        .map(|event| event["text"].as_str().unwrap())
        .collect();
    assert!(
        pieces
            .iter()
            .all(|text| text.len() <= 8 << 10 && text.ends_with('\n'))
    );
    assert!(pieces.len() < 30, "{}", pieces.len());
    let kept = person.line("sessions export last").run().expect_code(0);
    assert!(!kept.out().contains("tool_output"));
    person.assert_nothing_lives();
}
