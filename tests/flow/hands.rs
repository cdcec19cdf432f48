//! The agent's hands on the real binary: every tool, in a named sandbox.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::{Person, Process, marker};

/// Calls a tool and gives what it answered, and the exit code.
fn call(person: &Person, tool: &str, arguments: &Value) -> (Value, i32) {
    let ran = person
        .glovebox([
            "call",
            tool,
            &arguments.to_string(),
            "--sandbox",
            "box",
            "--json",
        ])
        .run();
    let answer: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    (answer, ran.code)
}

fn text(person: &Person, tool: &str, arguments: &Value) -> String {
    let (answer, code) = call(person, tool, arguments);
    assert_eq!(code, 0, "{answer}");
    answer["data"]["text"].as_str().unwrap().to_owned()
}

#[test]
fn every_tool_works_on_a_project_and_leaves_the_host_alone() {
    Person::each(|person| {
        person.write(
            "project/src/main.rs",
            "fn main() {\n    println!(\"one\");\n}\n",
        );
        person.write("project/notes.txt", "nothing\n");
        let _ = person.line("start box").run().expect_code(0);

        let read = text(person, "Read", &json!({ "path": "src/main.rs" }));
        assert_eq!(
            read,
            "     1\tfn main() {\n     2\t    println!(\"one\");\n     3\t}\n"
        );
        assert_eq!(
            text(person, "list_files", &json!({})),
            "notes.txt  8 bytes\nsrc/\n"
        );
        assert_eq!(
            text(person, "Glob", &json!({ "pattern": "*.rs" })),
            "src/main.rs\n"
        );
        assert_eq!(
            text(person, "ripgrep", &json!({ "pattern": "print.*one" })),
            "src/main.rs\n     2:     println!(\"one\");\n"
        );
        let edited = text(
            person,
            "Edit",
            &json!({ "file_path": "src/main.rs", "old_string": "println!(\"one\");", "new_string": "println!(\"two\");" }),
        );
        assert!(
            edited.contains("-    println!(\"one\");\n+    println!(\"two\");\n"),
            "{edited}"
        );
        let wrote = text(
            person,
            "Write",
            &json!({ "path": "new/file", "content": "a\n" }),
        );
        assert_eq!(wrote, "[new/file written anew: 1 lines, 2 bytes]");
        let (refused, code) = call(
            person,
            "Write",
            &json!({ "path": "notes.txt", "content": "b\n" }),
        );
        assert_eq!(
            (refused["error"]["code"].as_str(), code),
            (Some("unseen-content"), 3)
        );

        let out = text(
            person,
            "Bash",
            &json!({ "command": "cat new/file notes.txt; grep two src/main.rs; echo err >&2", "stdin": "" }),
        );
        assert!(
            out.starts_with("a\nnothing\n    println!(\"two\");\nerr\n[exit code 0, "),
            "{out}"
        );
        let (failed, code) = call(
            person,
            "Bash",
            &json!({ "command": "printf '\\033[2J'; exit 3" }),
        );
        assert_eq!(
            (failed["data"]["facts"]["exit_code"].as_i64(), code),
            (Some(3), 1)
        );
        assert!(
            failed["data"]["text"]
                .as_str()
                .unwrap()
                .starts_with("\\u{1b}[2J\n")
        );

        // Nothing of it is on the host.
        assert_eq!(
            std::fs::read_to_string(person.project().join("src/main.rs")).unwrap(),
            "fn main() {\n    println!(\"one\");\n}\n"
        );
        assert!(!person.project().join("new").exists());
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

#[test]
fn a_long_command_becomes_a_job() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let marker = marker();
        let begin = Instant::now();
        let (answer, code) = call(
            person,
            "Bash",
            &json!({ "command": format!("echo begun; read line; echo got $line; sleep {marker}"), "wait_ms": 300, "stdin": "word\n" }),
        );
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!(
            (&answer["data"]["facts"]["running"], code),
            (&json!(true), 0)
        );
        let id = &answer["data"]["facts"]["job"];
        let read = text(person, "Job", &json!({ "action": "read", "id": id }));
        assert!(
            read.starts_with("begun\ngot word\n[that is all of 15 bytes so far"),
            "{read}"
        );
        assert!(text(person, "Job", &json!({ "action": "list" })).contains("running"));
        assert!(!Process::mentioning(&marker).is_empty());
        let killed = text(person, "Job", &json!({ "action": "kill", "id": id }));
        assert!(killed.contains("ended by signal 15"), "{killed}");
        assert!(Process::mentioning(&marker).is_empty());
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

#[test]
fn floods_and_wrong_arguments_have_bounded_clear_outcomes() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let flood = text(
            person,
            "Bash",
            &json!({ "command": "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo end" }),
        );
        assert!(flood.len() < 40_000, "{}", flood.len());
        assert!(
            flood.contains("end\n[") && flood.contains("of 50000005 bytes left out"),
            "{flood}"
        );
        for (tool, arguments, part) in [
            ("Read", json!({}), "missing field `path`"),
            ("Read", json!({ "path": 1 }), "expected a string"),
            (
                "Read",
                json!({ "path": "x", "colour": 1 }),
                "unknown field `colour`",
            ),
            ("Read", json!({ "path": "nowhere" }), "nowhere"),
            ("Read", json!({ "path": "a\u{0}b" }), "NUL"),
            ("Grep", json!({ "pattern": "(" }), "pattern is not valid"),
            ("Nope", json!({}), "no tool `Nope`"),
        ] {
            let (answer, code) = call(person, tool, &arguments);
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(
                message.contains(part) && code != 0,
                "{tool} {arguments}: {answer}"
            );
        }
        for (path, kind) in [("/dev/zero", "special-file"), ("fifo", "special-file")] {
            let _ = person
                .script("exec box", "test -e fifo || mkfifo fifo")
                .run()
                .expect_code(0);
            let (answer, _) = call(person, "Read", &json!({ "path": path }));
            assert_eq!(answer["error"]["code"], kind, "{answer}");
        }
        let _ = person.line("kill box").run().expect_code(0);
    });
}
