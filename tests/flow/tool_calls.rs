//! Every tool on the real binary, in a named sandbox.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use testkit::{Person, Process, marker};

/// Calls a tool and gives what it answered, and the exit code.
pub(crate) fn call(person: &Person, tool: &str, arguments: &Value) -> (Value, i32) {
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
        insta::assert_snapshot!(edited, @r#"
        @@ -1,3 +1,3 @@
         fn main() {
        -    println!("one");
        +    println!("two");
         }
        "#);
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
                .starts_with("\\x1b[2J\n")
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
fn what_nobody_can_read_is_not_written_to_a_job() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let start = |arguments| call(person, "Bash", &arguments).0["data"]["facts"]["job"].clone();
        let write = |id: &Value, eof: bool| {
            let arguments = json!({ "action": "write", "id": id, "input": "word\n", "eof": eof });
            call(person, "Job", &arguments)
        };
        let deaf = start(json!({ "command": "sleep 60", "background": true }));
        let open = start(json!({ "command": "cat; sleep 60", "background": true, "stdin": "" }));
        let mut said = String::new();
        for (id, code) in [(&deaf, 2), (&open, 0), (&open, 2)] {
            let (answer, found) = write(id, true);
            assert_eq!(found, code, "{answer}");
            if code == 0 {
                continue;
            }
            assert_eq!(answer["error"]["code"], "invalid-argument", "{answer}");
            assert_eq!(answer["error"]["class"], "failed", "{answer}");
            for key in ["message", "remedy"] {
                let _ = writeln!(said, "{}", answer["error"][key].as_str().unwrap());
            }
        }
        insta::assert_snapshot!(said, @"
        job 1 has no open standard input: nothing was written
        start it again with Bash's `stdin` and `background`, or with `pty`
        job 2 has no open standard input: nothing was written
        start it again with Bash's `stdin` and `background`, or with `pty`
        ");
        let wait = json!({ "action": "read", "id": open, "wait_ms": 10_000 });
        assert!(text(person, "Job", &wait).starts_with("word\n"));
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
        let said = [
            ("Read", json!({})),
            ("Read", json!({ "path": 1 })),
            ("Read", json!({ "path": "x", "colour": 1 })),
            ("Read", json!({ "path": "nowhere" })),
            ("Read", json!({ "path": "a\u{0}b" })),
            ("Grep", json!({ "pattern": "(" })),
            ("Nope", json!({})),
        ]
        .map(|(tool, arguments)| {
            let (answer, code) = call(person, tool, &arguments);
            assert_ne!(code, 0, "{tool} {arguments}: {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            format!("{tool} {arguments}: {message}")
        });
        insta::assert_snapshot!(said.join("\n"), @r#"
        Read {}: the arguments of Read do not fit: missing field `path`
        Read {"path":1}: the arguments of Read do not fit: invalid type: integer `1`, expected a string
        Read {"path":"x","colour":1}: the arguments of Read do not fit: unknown field `colour`, expected one of `file`, `file_path`, `filename`, `path`, `offset`, `limit`
        Read {"path":"nowhere"}: cannot read `/workspace/nowhere`: it does not exist
        Read {"path":"a\u0000b"}: the path contains a NUL byte
        Grep {"pattern":"("}: the pattern is not valid: regex parse error:
            (?:()
            ^
        error: unclosed group
        Nope {}: there is no tool `Nope`
        "#);
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

#[test]
fn sessions_keep_their_state_between_calls_and_terminals_are_real() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let bash = |command: &str| {
            let arguments = json!({ "command": command, "session": "s" });
            let (answer, _) = call(person, "Bash", &arguments);
            let text = answer["data"]["text"].as_str().unwrap().to_owned();
            text.rsplit_once('[').unwrap().0.to_owned()
        };
        assert_eq!(
            bash("mkdir deep; cd deep; export X='a b'; f() { echo \"$X!\"; }"),
            ""
        );
        assert_eq!(bash("pwd; f; exit 3"), "/workspace/deep\na b!\n");
        // Variables of every kind, also those that programs do not get, and the name of a loop of our own.
        let made = "plain='q\" u'; list=(1 'b c'); declare -A map=([k]=v); declare -i n=4; name=mine; IFS=,";
        assert_eq!(bash(made), "");
        let show = "echo \"$plain ${list[1]} ${#list[@]} ${map[k]} $((n += 1)) $name [$IFS]\"; sh -c 'echo \"<$plain$X>\"'";
        assert_eq!(bash(show), "q\" u b c 2 v 5 mine [,]\n<a b>\n");
        assert_eq!(bash("unset list IFS; readonly fixed=1"), "");
        assert_eq!(bash("echo \"${#list[@]}\" $fixed"), "0 1\n");
        // Whatever a command does to its shell, the next one finds the state of the last that could tell.
        assert!(bash("if then").contains("syntax error"));
        assert_eq!(bash("set -eu; cd /tmp; false; echo never"), "");
        assert_eq!(bash("cd /; kill -9 $$"), "");
        assert_eq!(bash("pwd; f; echo $# $-"), "/tmp\na b!\n0 hBc\n");
        assert_eq!(bash("cd /; trap 'echo end' EXIT; echo x"), "x\nend\n");
        assert_eq!(bash("pwd"), "/\n");
        let other = json!({ "command": "pwd; f", "session": "t" });
        assert_eq!(
            call(person, "Bash", &other).0["data"]["facts"]["exit_code"],
            127
        );
        for name in ["", "../x", "a b"] {
            let (refused, _) = call(
                person,
                "Bash",
                &json!({ "command": "pwd", "session": name }),
            );
            assert_eq!(refused["error"]["code"], "invalid-argument", "{refused}");
        }
        let terminal = json!({ "command": "test -t 0 && test -t 1 && stty size", "pty": true });
        assert!(text(person, "Bash", &terminal).starts_with("40 120\n"));
        let asks = json!({ "command": "read -p 'name? ' name; echo hello $name", "pty": true, "wait_ms": 300 });
        let (answer, _) = call(person, "Bash", &asks);
        let id = &answer["data"]["facts"]["job"];
        assert!(
            answer["data"]["text"]
                .as_str()
                .unwrap()
                .starts_with("name? ")
        );
        let write = json!({ "action": "write", "id": id, "input": "you\n" });
        let _ = text(person, "Job", &write);
        let _ = text(
            person,
            "Job",
            &json!({ "action": "wait", "id": id, "wait_ms": 5000 }),
        );
        let log = text(person, "Read", &json!({ "path": format!("job:{id}") }));
        assert!(log.contains("hello you"), "{log}");
        let (late, _) = call(person, "Job", &write);
        assert_eq!(late["error"]["code"], "job-ended");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

#[test]
fn programs_run_in_the_languages_there_are_and_keep_their_state() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let code = |language: &str, source: &str, session: Option<&str>| {
            let arguments = json!({ "language": language, "source": source, "session": session, "wait_ms": 20_000 });
            let (answer, _) = call(person, "Code", &arguments);
            let text = answer["data"]["text"]
                .as_str()
                .unwrap_or_else(|| panic!("{answer}"));
            text.rsplit_once('[').unwrap().0.to_owned()
        };
        for (language, first, again) in [
            (
                "python",
                "import sys\nx = 41\nprint('out')",
                "print(x, file=sys.stderr)\nx + 1",
            ),
            (
                "javascript",
                "let x = 41; console.log('out')",
                "console.error(x); Promise.resolve(x + 1)",
            ),
        ] {
            assert_eq!(code(language, first, Some("one")), "out\n", "{language}");
            assert_eq!(code(language, again, Some("one")), "41\n42\n", "{language}");
            assert!(
                code(language, "x", Some("two")).contains("x is not defined")
                    || language == "python"
            );
            assert!(
                code(language, "(((", Some("one")).contains("SyntaxError"),
                "{language}"
            );
            assert_eq!(code(language, "x", Some("one")), "41\n", "{language}");
            assert_eq!(code(language, first, None), "out\n", "{language}");
        }
        assert_eq!(code("bash", "y=1; export Y=2; cd /tmp", Some("one")), "");
        assert_eq!(code("bash", "echo $y$Y; pwd", Some("one")), "12\n/tmp\n");
        // What is awaited at the top of a cell, and what is declared with it, is there for the next one.
        let waits = "const { readFile } = require('fs/promises'); const w = await Promise.resolve(20); \
            await new Promise((go) => setTimeout(go, 20)); ({ w })";
        assert_eq!(code("javascript", waits, Some("one")), "{ w: 20 }\n");
        let again = "typeof readFile + (w + 1) + (await Promise.resolve('!'))";
        assert_eq!(code("javascript", again, Some("one")), "'function21!'\n");
        let fails = "await Promise.reject(new Error('no ink'))";
        assert!(code("javascript", fails, Some("one")).contains("no ink"));
        assert!(code("javascript", "(((", Some("one")).contains("SyntaxError"));
        assert_eq!(code("javascript", "w", Some("one")), "20\n");
        // A cell that takes too long goes on; one that ends its session says so.
        let slow = json!({ "language": "python", "source": "import time; time.sleep(60)", "session": "one", "wait_ms": 300 });
        let (answer, _) = call(person, "Code", &slow);
        assert_eq!(answer["data"]["facts"]["running"], true, "{answer}");
        let id = &answer["data"]["facts"]["job"];
        let _ = text(
            person,
            "Job",
            &json!({ "action": "signal", "id": id, "signal": 2 }),
        );
        assert_eq!(code("python", "x", Some("one")), "41\n");
        let end =
            json!({ "language": "python", "source": "import os; os._exit(7)", "session": "one" });
        let (answer, exit) = call(person, "Code", &end);
        assert_eq!(
            (&answer["data"]["facts"]["session_ended"], exit),
            (&json!(true), 1)
        );
        let (fresh, _) = call(
            person,
            "Code",
            &json!({ "language": "python", "source": "1", "session": "one" }),
        );
        assert_eq!(fresh["data"]["facts"]["is_new_session"], true);
        let (unknown, _) = call(
            person,
            "Code",
            &json!({ "language": "cobol", "source": "x" }),
        );
        let message = unknown["error"]["message"].as_str().unwrap();
        insta::assert_snapshot!(message, @"the arguments of Code do not fit: unknown variant `cobol`, expected one of `py`, `python`, `python3`, `javascript`, `js`, `node`, `bash`, `sh`, `shell`");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

#[test]
fn files_are_shown_for_what_they_are() {
    Person::each(|person| {
        let _ = person
            // No file is larger than the disk limit, and some here pretend to be large.
            .line("start --disk 64GiB box")
            .run()
            .expect_code(0);
        let png = "\\211PNG\\r\\n\\032\\n\\0\\0\\0\\rIHDR\\0\\0\\1\\0\\0\\0\\0\\200";
        let notebook = r#"{"cells":[{"cell_type":"code","source":["1+1"],"outputs":[{"data":{"text/plain":["2"]}}]}]}"#;
        let make = format!(
            "printf '{png}' > small.dat; cp small.dat large.png; truncate -s 5M large.png; printf '%s' '{notebook}' > n.ipynb; \
             printf '%%PDF-1.4' > d.pdf; printf 'a\\xffb\\342\\200\\256c\\n' > odd.txt; truncate -s 20G sparse; \
             printf text > tail; truncate -s 20G tail; ln -s loop loop; printf 'a\\rb\\r\\n' > cr"
        );
        let _ = person.script("exec box", &make).run().expect_code(0);
        let (answer, _) = call(person, "Read", &json!({ "path": "small.dat" }));
        assert_eq!(answer["data"]["facts"]["kind"], "image/png", "{answer}");
        assert_eq!(answer["data"]["facts"]["width"], 256);
        let (answer, _) = call(person, "Read", &json!({ "path": "large.png" }));
        let message = answer["error"]["message"].as_str().unwrap();
        insta::assert_snapshot!(message, @"large.png is a picture (image/png, 256 x 128, 5242880 bytes) too large to be shown");
        let shown = ["n.ipynb", "d.pdf", "odd.txt", "sparse", "tail", "cr"].map(|path| {
            let shown = text(person, "Read", &json!({ "path": path }));
            format!("{path}:\n{shown}")
        });
        insta::assert_snapshot!(shown.join("\n"), @r"
        n.ipynb:
             1	# --- cell 1 (code) ---
             2	1+1
             3	# output:
             4	2

        d.pdf:
        [d.pdf is not text: a PDF document, 8 bytes]
        [`pdftotext FILE -` in Bash shows its text, if the sandbox has it]
        odd.txt:
             1	a\xffb\u{202e}c

        sparse:
        [sparse is not text: binary data, 21474836480 bytes]
        tail:
        [tail is not text: binary data, 21474836480 bytes]
        cr:
             1	a\rb
        ");
        let (answer, _) = call(person, "Read", &json!({ "path": "loop" }));
        insta::assert_snapshot!(answer["error"]["message"].as_str().unwrap(), @"cannot read `/workspace/loop`: too many levels of symbolic links");
        let (answer, _) = call(person, "Read", &json!({ "path": "od.txt" }));
        insta::assert_snapshot!(answer["error"]["remedy"].as_str().unwrap(), @"beside it there is `odd.txt`");
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn a_file_written_again_and_again_is_one_change() {
    Person::each(|person| {
        person.write("project/old", "0\n");
        let _ = person.line("start -q box").run().expect_code(0);
        let write = |path: &str, content: &str| {
            let wanted = json!({ "path": path, "content": content, "overwrite": true });
            text(person, "Write", &wanted);
        };
        let inside = |script: &str| {
            let ran = person.script("exec box", script).run().expect_code(0);
            String::from_utf8(ran.stdout).unwrap()
        };
        let change = |from: &str, to: &str| {
            let wanted = json!({ "path": "old", "old_string": from, "new_string": to });
            text(person, "Edit", &wanted);
        };
        // From the project, from the layer it is written to, and from a layer that was frozen.
        for round in ["1", "2", "3"] {
            write("old", &format!("{round}a\n"));
            inside("chmod 640 old; exec 3< old; printf kept > kept; cat <&3 >> kept");
            write("old", &format!("{round}b\n"));
            change("b", "c");
            change("c", "d");
            write("new", &format!("{round}\n"));
            write("new", &format!("{round}!\n"));
            assert_eq!(
                inside("cat kept old new; stat -c %a old; ls -A"),
                format!("kept{round}a\n{round}d\n{round}!\n640\nkept\nnew\nold\n")
            );
            person.line("checkpoint -q box").run().expect_code(0);
        }
        inside("rm kept");
        person.line("pull -q box").run().expect_code(0);
        let names = || {
            let entries = std::fs::read_dir(person.project()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["new", "old"]);
        let read = |name| std::fs::read_to_string(person.project().join(name)).unwrap();
        assert_eq!((read("old"), read("new")), ("3d\n".into(), "3!\n".into()));
        // Nothing of the project shines through where the file is removed.
        inside("rm old");
        person.line("pull -q box").run().expect_code(0);
        assert_eq!(names(), ["new"]);
        person.line("kill -q box").run().expect_code(0);
    });
}
