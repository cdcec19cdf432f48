//! Standard streams as a shell's user expects them: input that a command did not read is there for the next reader,
//! and output to one place arrives in the order in which it was written.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use testkit::{Person, has_program};

/// A shell script by this person; `$RUN` is `glovebox run`, `$EXEC` is `glovebox exec --stdin box --`, and both are
/// unquoted words. Outside they are empty.
pub(crate) fn script(person: &Person, shell: &str, script: &str, is_inside: bool) -> Command {
    let binary = person.binary().to_str().unwrap();
    let (run, exec) = if is_inside {
        (
            format!("{binary} run -q --apply never --"),
            format!("{binary} exec -q --stdin box --"),
        )
    } else {
        (String::new(), String::new())
    };
    let mut command = person.program(shell);
    let args: &[&str] = if shell == "zsh" {
        &["-o", "shwordsplit"]
    } else {
        &[]
    };
    command
        .args(args)
        .args(["-c", script])
        .env("RUN", run)
        .env("EXEC", exec)
        .stdin(Stdio::null());
    command
}

pub(crate) fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs a script without Glovebox and with it, in each shell; what they print must be `expected`.
fn compare(person: &Person, text_of_script: &str, expected: &str) {
    for shell in ["bash", "dash", "zsh"] {
        if !has_program(shell) {
            continue;
        }
        for is_inside in [false, true] {
            let output = script(person, shell, text_of_script, is_inside)
                .output()
                .unwrap();
            let place = if is_inside { "inside" } else { "outside" };
            assert_eq!(
                text(&output),
                expected,
                "as {}, {shell}, {place}: {text_of_script}",
                person.name()
            );
        }
    }
}

#[test]
fn input_that_a_command_does_not_read_is_left() {
    Person::each(|person| {
        person.write("project/list", "one\ntwo\nthree\n");
        person.write("project/steps", "$RUN true\necho second step\n");
        let _ = person.line("start box").run().expect_code(0);
        for (text_of_script, expected) in [
            (
                "while read -r x; do $RUN echo \"$x\"; done <list",
                "one\ntwo\nthree\n",
            ),
            (
                "cat list | while read -r x; do $RUN echo \"$x\"; done",
                "one\ntwo\nthree\n",
            ),
            (
                "while read -r x; do $EXEC echo \"$x\"; done <list",
                "one\ntwo\nthree\n",
            ),
            ("bash -s <steps", "second step\n"),
            (
                "cat list | { $RUN head -c 4; echo; cat; }",
                "one\n\ntwo\nthree\n",
            ),
            (
                "{ $RUN head -c 5; echo; cat; } <list",
                "one\nt\nwo\nthree\n",
            ),
            // What it leaves to a child is the child's, and a killed reader has read what it has read.
            (
                "cat list | { $RUN sh -c 'head -c 4; cat'; cat; }",
                "one\ntwo\nthree\n",
            ),
            (
                "{ $RUN sh -c 'head -c 4 >/dev/null; kill -9 $$' || :; cat; } <list",
                "two\nthree\n",
            ),
            (
                "cat list | { $EXEC sh -c 'head -c 4 >/dev/null; kill -9 $$' || :; cat; }",
                "two\nthree\n",
            ),
            // A command that ends its input reads no further, and the writer goes on.
            (
                "(sleep 0.1; echo late) | { $RUN sh -c 'exec <&-; echo done'; cat; }",
                "done\nlate\n",
            ),
        ] {
            compare(person, text_of_script, expected);
        }
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn programs_that_start_commands_start_them_inside() {
    if !has_program("make") {
        testkit::skip!("needs make");
    }
    Person::each(|person| {
        person.write(
            "project/Makefile",
            "all: one two\none two:\n\t@$(RUN) echo made $@\nfails:\n\t@$(RUN) sh -c 'exit 3'\n",
        );
        for name in ["a", "b"] {
            person.write(format!("project/found/{name}"), "");
        }
        let _ = person.line("start box").run().expect_code(0);
        for (text_of_script, expected) in [
            ("make -s RUN=\"$RUN\"", "made one\nmade two\n"),
            ("make -s RUN=\"$RUN\" -j2 | sort", "made one\nmade two\n"),
            (
                "make -s RUN=\"$RUN\" fails 2>/dev/null || echo failed $?",
                "failed 2\n",
            ),
            (
                "printf '%s\\n' 1 2 3 4 | xargs -P4 -n1 $RUN echo | sort",
                "1\n2\n3\n4\n",
            ),
            (
                "find found -type f -exec $EXEC basename {} \\; | sort",
                "a\nb\n",
            ),
        ] {
            compare(person, text_of_script, expected);
        }
        let _ = person.line("kill -q box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn input_taken_and_left_are_what_was_sent() {
    let person = Person::myself();
    let _ = person.line("start box").run().expect_code(0);
    let binary = person.binary().to_owned();
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(if std::env::var_os("GLOVEBOX_TEST_WHOLE").is_some() {
            400
        } else {
            16
        })
    };
    let pieces = prop::collection::vec(1..30_000_usize, 1..6);
    let outcome = TestRunner::new(config).run(&(pieces, 0..120_000_usize, 0..3_u8), |case| {
        let (pieces, wanted, kind) = case;
        let sent: Vec<u8> = (0..pieces.iter().sum::<usize>())
            .map(|at| (at % 251) as u8)
            .collect();
        let mut command = person.program("sh");
        let reader = format!(
            "{} exec -q --stdin box -- head -c {wanted} | cat >taken; cat >left",
            binary.display()
        );
        command.args(["-c", &reader]).stdout(Stdio::null());
        let feed = |mut to: Box<dyn std::io::Write + Send>| {
            let (pieces, sent) = (pieces.clone(), sent.clone());
            thread::spawn(move || {
                let mut at = 0;
                for piece in pieces {
                    to.write_all(&sent[at..at + piece]).unwrap();
                    at += piece;
                    thread::sleep(Duration::from_millis(1));
                }
            })
        };
        let status = match kind {
            0 => {
                let file = person.write("project/sent", &sent);
                command.stdin(std::fs::File::open(file).unwrap());
                command.status().unwrap()
            }
            1 => {
                let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
                let feeding = feed(Box::new(child.stdin.take().unwrap()));
                let status = child.wait().unwrap();
                feeding.join().unwrap();
                status
            }
            _ => {
                let (ours, theirs) = UnixStream::pair().unwrap();
                let mut child = command
                    .stdin(std::os::fd::OwnedFd::from(theirs))
                    .spawn()
                    .unwrap();
                drop(command);
                let feeding = feed(Box::new(ours));
                let status = child.wait().unwrap();
                feeding.join().unwrap();
                status
            }
        };
        prop_assert!(status.success());
        let read = |name: &str| std::fs::read(person.project().join(name)).unwrap();
        let (taken, left) = (read("taken"), read("left"));
        let split = wanted.min(sent.len());
        prop_assert!(taken == sent[..split], "{} taken", taken.len());
        prop_assert!(left == sent[split..], "{} left", left.len());
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let _ = person.line("kill -q box").run().expect_code(0);
}

#[test]
fn prompt_and_answer_over_a_pipe_take_turns() {
    Person::each(|person| {
        let mut child = script(
            person,
            "sh",
            "$RUN sh -c 'while read -r x; do echo \"got $x\"; done'; cat",
            true,
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        for word in ["one", "two"] {
            writeln!(to, "{word}").unwrap();
            let expected = format!("got {word}\n");
            let mut got = vec![0; expected.len()];
            from.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8(got).unwrap(), expected);
        }
        drop(to);
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn output_to_one_place_keeps_its_order() {
    const STEPS: &str =
        "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let expected = (0..200)
        .flat_map(|i| [format!("out {i}\n"), format!("err {i}\n")])
        .collect::<Vec<_>>()
        .concat();
    Person::each(|person| {
        person.write("project/steps.sh", STEPS);
        let _ = person.line("start box").run().expect_code(0);
        for text_of_script in [
            "$RUN sh steps.sh >log 2>&1; cat log; rm log",
            "$RUN sh steps.sh 2>&1 | cat",
            "$EXEC sh steps.sh 2>&1 | cat",
        ] {
            compare(person, text_of_script, &expected);
        }
        let json = person
            .script("run --json --apply never", "echo out; echo err >&2")
            .run()
            .expect_code(0);
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(
            (&json["data"]["stdout"], &json["data"]["stderr"]),
            (&"out\n".into(), &"err\n".into())
        );
        let bash = r#"{"command": "for i in 1 2 3; do echo out $i; echo err $i >&2; done"}"#;
        let called = person
            .glovebox(["call", "--sandbox", "box", "Bash", bash])
            .run();
        let called = called.expect_code(0).out();
        assert!(
            called.contains("out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"),
            "{called}"
        );
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}
