//! One test program: run, its failures noted, and each of them tried once more by itself.
//!
//! A machine that others use at the same time makes tests of real processes fail now and then. What
//! passes by itself does not fail the run, but it is named at the end: an unsteady test is a defect
//! to be looked at, in the test or in what it tests.

use super::timing::Timing;
use crate::step::{self, say};
use anyhow::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Failures beyond which nothing is tried again: that is no coincidence.
const MAX_REPEATED: usize = 5;
/// What is told again, at the end of a run, of what a test program said of its failures.
const MAX_SAID_BYTES: usize = 6 << 10;

/// A test program as cargo built it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// What cargo calls the target.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Directory of its package, in which it expects to run.
    pub(super) package: PathBuf,
    /// Whether it is an integration test, rather than the tests within a library or binary.
    pub(super) is_suite: bool,
}

/// What became of all the programs that were run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Failed, with the command line to repeat it.
    pub(super) failed: Vec<String>,
    /// Failed among others, passed by itself.
    pub(super) unsteady: Vec<String>,
    /// How long everything took.
    pub(super) timing: Timing,
}

/// Test programs named in cargo's JSON messages, one message per line.
pub(super) fn programs(messages: &str) -> Vec<Program> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["profile"]["test"] == true)
        .filter_map(|message| {
            let kind = message["target"]["kind"].as_array()?;
            Some(Program {
                name: message["target"]["name"].as_str()?.to_owned(),
                path: message["executable"].as_str()?.into(),
                package: Path::new(message["manifest_path"].as_str()?)
                    .parent()?
                    .to_owned(),
                is_suite: kind.iter().any(|kind| kind == "test"),
            })
        })
        .collect()
}

impl Tally {
    /// Runs a test program as `command` starts it, with the arguments `args`.
    ///
    /// # Errors
    /// When it cannot be started at all.
    pub(super) fn run(
        &mut self,
        title: &str,
        command: impl Fn() -> Command,
        args: &[String],
    ) -> Result<()> {
        say(&format!("==> {title}"));
        let first = self.timing.of(title, || run_once(command().args(args)))?;
        if first.is_success {
            return Ok(());
        }
        if first.failures.is_empty() || first.failures.len() > MAX_REPEATED {
            let line = step::shown(command().args(args));
            self.failed.push(told(title, &line, &first.said));
            return Ok(());
        }
        for name in first.failures {
            say(&format!("==> once more, by itself: {name}"));
            let alone = [name.as_str(), "--exact", "--test-threads=1"];
            let again = run_once(command().args(alone))?;
            if again.is_success {
                self.unsteady
                    .push(told(title, &name, said_by(&name, &first.said)));
            } else {
                let line = step::shown(command().args(alone));
                self.failed
                    .push(told(title, &line, said_by(&name, &again.said)));
            }
        }
        Ok(())
    }
}

/// One run of a test program.
struct Attempt {
    is_success: bool,
    /// The tests that failed.
    failures: Vec<String>,
    /// What it said of them, within [`MAX_SAID_BYTES`].
    said: String,
}

/// A failure for the end of the run, with the words of the tests that failed.
fn told(title: &str, what: &str, said: &str) -> String {
    let said = step::indented(said);
    format!("{title}: {what}\n{said}").trim_end().to_owned()
}

/// What one test printed before it failed.
fn said_by<'a>(test: &str, said: &'a str) -> &'a str {
    let Some((_, own)) = said.split_once(&format!("---- {test} stdout ----\n")) else {
        return "";
    };
    let end = own.find("\n---- ").or_else(|| own.find("\nfailures:\n"));
    own.get(..end.unwrap_or(own.len()))
        .unwrap_or(own)
        .trim_end()
}

/// Runs it, showing what it prints.
fn run_once(command: &mut Command) -> Result<Attempt> {
    let mut failures = Vec::new();
    let mut said = String::new();
    let status = step::run_heard(command, |line| {
        failures.extend(failed_test(line));
        // Everything after the first of these lines is about failures.
        let is_about_failures = !said.is_empty() || line == "failures:";
        if is_about_failures && said.len() + line.len() < MAX_SAID_BYTES {
            said.push_str(line);
            said.push('\n');
        }
    })?;
    Ok(Attempt {
        is_success: status.success(),
        failures,
        said,
    })
}

/// The test that a line of output says has failed.
fn failed_test(line: &str) -> Option<String> {
    let name = line
        .strip_prefix("test ")?
        .trim_end()
        .strip_suffix(" ... FAILED")?;
    // A test that must panic is printed with a remark.
    let name = name.split(" - should panic").next()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/p/a/Cargo.toml","target":{"kind":["lib"],"name":"x"},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/p/a/Cargo.toml","target":{"kind":["bin"],"name":"actor"},"profile":{"test":false},"executable":"/t/debug/actor"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/p/t/Cargo.toml","target":{"kind":["test"],"name":"escape"},"profile":{"test":true},"executable":"/t/debug/deps/escape-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(
            programs(messages),
            [Program {
                name: "escape".to_owned(),
                path: "/t/debug/deps/escape-1".into(),
                package: "/p/t".into(),
                is_suite: true,
            }]
        );
    }

    #[test]
    fn failures_are_read_off_the_output() {
        assert_eq!(
            failed_test("test a::b ... FAILED\n").as_deref(),
            Some("a::b")
        );
        assert_eq!(
            failed_test("test a - should panic ... FAILED\n").as_deref(),
            Some("a")
        );
        assert_eq!(failed_test("test a::b ... ok\n"), None);
        assert_eq!(
            failed_test("test result: FAILED. 1 passed; 1 failed\n"),
            None
        );
    }

    /// A shell in the place of a test program: the test it fails is named in its arguments.
    fn tally(script: &'static str) -> Tally {
        let mut tally = Tally::default();
        let shell = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]);
            shell
        };
        tally.run("it", shell, &[]).unwrap();
        tally
    }

    #[test]
    fn the_words_of_a_failed_test_are_told_with_it() {
        let script = "[ \"$1\" = a ] && exit 0; printf '%s\\n' 'test a ... FAILED' 'test b ... FAILED' '' failures: '' \
             '---- a stdout ----' 'left: 1' '' '---- b stdout ----' 'right: 2' '' '' failures: '    a' '    b'; exit 1";
        let tally = tally(script);
        assert_eq!(tally.unsteady, ["it: a\n    left: 1"]);
        assert_eq!(tally.failed.len(), 1);
        let failed = &tally.failed[0];
        assert!(
            failed.starts_with("it: sh -c ") && failed.ends_with("\n    right: 2"),
            "{failed}"
        );
    }

    #[test]
    fn what_fails_twice_fails_and_what_fails_once_is_named() {
        let steady = tally("echo 'test a ... FAILED'; exit 1");
        assert_eq!((steady.failed.len(), steady.unsteady.len()), (1, 0));
        let unsteady = tally("[ \"$1\" = a ] || { echo 'test a ... FAILED'; exit 1; }");
        assert_eq!(unsteady.unsteady, ["it: a"]);
        assert!(unsteady.failed.is_empty());
        let crash = tally("kill -ABRT $$");
        assert_eq!((crash.failed.len(), crash.unsteady.len()), (1, 0));
        let wreck = tally(
            "for i in 1 2 3 4 5 6; do echo \"test $i ... FAILED\"; done; [ \"$1\" ] || exit 1",
        );
        assert_eq!((wreck.failed.len(), wreck.unsteady.len()), (1, 0));
    }
}
