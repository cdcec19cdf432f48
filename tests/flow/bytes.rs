//! Bytes go through unchanged: arguments, variables, input, output.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use testkit::Person;

/// Calls of the binary per person. Each is a whole sandbox.
const CASES: u32 = 24;

/// Everything that can be an argument.
fn argument() -> impl Strategy<Value = Vec<u8>> {
    let odd = prop::sample::select(vec![
        &b""[..],
        b"--",
        b"-",
        b"--json",
        b"-x",
        b"a b",
        b"\n",
        b"'\"$HOME`id`\\",
        b"\xff\xfe",
        b"*",
        b"\x1b[31m",
        b"=",
    ]);
    prop_oneof![
        odd.prop_map(<[u8]>::to_vec),
        vec(1..=255_u8, 0..40),
        vec(1..=255_u8, 4000..5000)
    ]
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(any::<u8>(), 0..300),
        1 => vec(any::<u8>(), 60_000..140_000),
        1 => Just(vec![0; 70_000]),
    ]
}

/// The command line as the kernel has it.
fn command_line(words: &[&[u8]]) -> Vec<u8> {
    words
        .iter()
        .flat_map(|word| word.iter().copied().chain([0]))
        .collect()
}

#[test]
fn arguments_variables_and_input_arrive_unchanged() {
    // Nothing is interpreted on the way: the kernel's own records are what is printed.
    const SCRIPT: &[u8] = b"cat /proc/$$/cmdline; echo @@@; cat /proc/$$/environ; echo @@@; cat";
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let config = Config {
            cases: CASES,
            max_shrink_iters: 20,
            failure_persistence: None,
            ..Config::default()
        };
        let case = (
            vec(argument(), 0..8),
            vec(1..=255_u8, 0..60),
            input(),
            any::<bool>(),
        );
        let outcome = TestRunner::new(config).run(&case, |(arguments, value, input, is_run)| {
            let mut variable = b"GB_VALUE=".to_vec();
            variable.extend(&value);
            let verb: &[&str] = if is_run {
                &["run", "--env"]
            } else {
                &["exec", "--stdin", "--env"]
            };
            let mut words: Vec<OsString> = verb.iter().map(OsString::from).collect();
            words.push(OsString::from_vec(variable.clone()));
            if !is_run {
                words.push("box".into());
            }
            let command: Vec<&[u8]> = [b"sh", &b"-c"[..], SCRIPT, b"sh"]
                .into_iter()
                .chain(arguments.iter().map(Vec::as_slice))
                .collect();
            words.push("--".into());
            words.extend(
                command
                    .iter()
                    .map(|word| OsStr::from_bytes(word).to_owned()),
            );
            let ran = person.glovebox(&words).input(input.clone()).run();
            prop_assert_eq!(ran.code, 0, "{}", ran);

            let mut expected = command_line(&command);
            expected.extend(b"@@@\n");
            prop_assert!(
                ran.stdout.starts_with(&expected),
                "arguments: {:?} in {:?}",
                arguments,
                ran.out()
            );
            let rest = &ran.stdout[expected.len()..];
            let mut tail = b"@@@\n".to_vec();
            tail.extend(&input);
            prop_assert!(
                rest.ends_with(&tail),
                "input of {} bytes, output ends {:?}",
                input.len(),
                rest.len()
            );
            let environment = &rest[..rest.len() - tail.len()];
            let has_it = environment
                .split(|byte| *byte == 0)
                .any(|entry| entry == variable);
            prop_assert!(
                has_it,
                "variable {:?} in {:?}",
                value,
                String::from_utf8_lossy(environment)
            );
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("as {}: {error}", person.name());
        }
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn both_outputs_are_kept_apart_and_carry_nothing_of_ours() {
    Person::each(|person| {
        let script = "i=0; while [ $i -lt 200 ]; do echo out; echo err >&2; i=$((i+1)); done; printf '\\0\\377'; printf '\\376' >&2";
        let ran = person.script("run --quiet", script).run().expect_code(0);
        let (mut out, mut err) = (b"out\n".repeat(200), b"err\n".repeat(200));
        out.extend(b"\0\xff");
        err.extend(b"\xfe");
        assert!(ran.stdout == out, "{ran}");
        assert!(ran.stderr == err, "{ran}");
    });
}

#[test]
fn a_command_that_reads_nothing_does_not_wait_for_input() {
    Person::each(|person| {
        let ran = person
            .line("run -- echo done")
            .input(vec![b'x'; 4 << 20])
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "done\n");
        // Half of the input, then it has enough.
        let ran = person
            .line("run -- head -c 5")
            .input("helloworld")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "hello");
    });
}

#[test]
fn exec_gives_no_input_unless_asked() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let ran = person
            .line("exec box -- wc -c")
            .input("four")
            .run()
            .expect_code(0);
        assert_eq!(ran.out().trim(), "0");
        let ran = person
            .line("exec --stdin box -- wc -c")
            .input("four")
            .run()
            .expect_code(0);
        assert_eq!(ran.out().trim(), "4");
        let _ = person.line("kill box").run().expect_code(0);
    });
}
