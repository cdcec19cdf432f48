//! Run of one test program. Each failed test is repeated by itself.
//!
//! On a machine that others use at the same time, tests of real processes fail now and then. A test
//! that passes by itself does not fail the run, but is listed at the end: an unsteady test is a
//! defect, of the test or of the tested code.

use super::timing::Timing;
use crate::heard;
use crate::step::{self, say};
use anyhow::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Maximum number of failures that are repeated. More are no coincidence.
const MAX_REPEATED: usize = 5;
/// Maximum size of the output about failures that is repeated at the end of a run, in bytes.
const MAX_SAID_BYTES: usize = 6 << 10;

/// Test program as cargo built it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Name of the target in cargo.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Directory of its package, which is its working directory.
    pub(super) package: PathBuf,
    /// True for an integration test, false for the unit tests of a library or binary.
    pub(super) is_suite: bool,
}

/// Results of all programs.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Failed programs and tests, with the command line to repeat each.
    pub(super) failed: Vec<String>,
    /// Tests that failed beside others and passed by themselves.
    pub(super) unsteady: Vec<String>,
    /// Time of each stage.
    pub(super) timing: Timing,
}

/// Returns the test programs in cargo's JSON messages, which have one message per line.
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
    /// Runs a test program that `command` starts, with the arguments `args`. Failures are recorded.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn run(
        &mut self,
        title: &str,
        command: impl Fn() -> Command,
        args: &[String],
    ) -> Result<()> {
        self.run_within(title, command, args, heard::SILENCE)
    }

    /// Same as [`Self::run`], for a program that is killed after a silence of `limit`.
    fn run_within(
        &mut self,
        title: &str,
        command: impl Fn() -> Command,
        args: &[String],
        limit: Duration,
    ) -> Result<()> {
        let run_once = |command: &mut Command| run_once(command, limit);
        say(&format!("==> {title}"));
        let first = self.timing.of(title, || run_once(command().args(args)))?;
        if first.is_success {
            return Ok(());
        }
        if let Some(silent) = &first.silent {
            return self.finish_silent(title, &command, args, &first, silent, limit);
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

    /// Handles a program that fell silent: repeats the tests that had not ended or had failed, one
    /// at a time. Tests that pass then are unsteady.
    fn finish_silent(
        &mut self,
        title: &str,
        command: &impl Fn() -> Command,
        args: &[String],
        first: &Attempt,
        silent: &str,
        limit: Duration,
    ) -> Result<()> {
        let listed = step::output(command().args(args).args(["--list", "--format", "terse"]))?;
        let mut left = unfinished(&listed, &first.ended);
        left.extend(first.failures.iter().cloned());
        say(&format!(
            "==> once more, one after the other: {}",
            left.join(" ")
        ));
        let mut alone = left;
        alone.extend(["--exact", "--test-threads=1"].map(str::to_owned));
        let again = run_once(command().args(&alone), limit)?;
        let line = step::shown(command().args(&alone));
        let said = format!(
            "it printed nothing any more and was killed; then ran\n{silent}\n{}",
            again.said
        );
        let told = told(title, &line, &said);
        if again.is_success {
            self.unsteady.push(told);
        } else {
            self.failed.push(told);
        }
        Ok(())
    }
}

/// Returns the listed tests that did not end.
fn unfinished(listed: &str, ended: &[String]) -> Vec<String> {
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    names
        .filter(|name| !ended.iter().any(|other| other == name))
        .map(str::to_owned)
        .collect()
}

/// Result of one run of a test program.
struct Attempt {
    is_success: bool,
    /// Processes that were running when the program was killed after a silence. `None` if it was
    /// not killed.
    silent: Option<String>,
    /// Tests that ended, with any result.
    ended: Vec<String>,
    /// Failed tests.
    failures: Vec<String>,
    /// Output about the failures, within [`MAX_SAID_BYTES`].
    said: String,
}

/// Describes a failure for the end of the run, with the output of the failed test.
fn told(title: &str, what: &str, said: &str) -> String {
    let said = step::indented(said);
    format!("{title}: {what}\n{said}").trim_end().to_owned()
}

/// Returns the output of one test before it failed.
fn said_by<'a>(test: &str, said: &'a str) -> &'a str {
    let Some((_, own)) = said.split_once(&format!("---- {test} stdout ----\n")) else {
        return "";
    };
    let end = own.find("\n---- ").or_else(|| own.find("\nfailures:\n"));
    own.get(..end.unwrap_or(own.len()))
        .unwrap_or(own)
        .trim_end()
}

/// Runs a program and shows its output.
fn run_once(command: &mut Command, limit: Duration) -> Result<Attempt> {
    let mut failures = Vec::new();
    let mut ended = Vec::new();
    let mut said = String::new();
    let heard = heard::run(command, limit, |line| {
        if let Some((name, outcome)) = ended_test(line) {
            ended.push(name.to_owned());
            if outcome == "FAILED" {
                failures.push(name.to_owned());
            }
        }
        // All lines after the first of these are about failures.
        let is_about_failures = !said.is_empty() || line == "failures:";
        if is_about_failures && said.len() + line.len() < MAX_SAID_BYTES {
            said.push_str(line);
            said.push('\n');
        }
    })?;
    Ok(Attempt {
        is_success: heard.status.success(),
        silent: heard.silent,
        ended,
        failures,
        said,
    })
}

/// Returns the test that a line of output is about, and its result. `None` for other lines.
fn ended_test(line: &str) -> Option<(&str, &str)> {
    let (name, outcome) = line
        .trim_end()
        .strip_prefix("test ")?
        .rsplit_once(" ... ")?;
    // The harness adds a remark to the name of a test that must panic.
    Some((name.split(" - should panic").next()?, outcome))
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
    fn ends_of_tests_are_read_off_the_output() {
        for (line, want) in [
            ("test a::b ... FAILED\n", Some(("a::b", "FAILED"))),
            ("test a - should panic ... ok", Some(("a", "ok"))),
            ("test a::b ... ignored, why", Some(("a::b", "ignored, why"))),
            ("test a::b has been running for over 60 seconds", None),
            ("test result: FAILED. 1 passed; 1 failed\n", None),
        ] {
            assert_eq!(ended_test(line), want, "{line}");
        }
    }

    #[test]
    fn what_did_not_end_is_found_in_the_list() {
        let listed = "a::b: test\nc: test\nd: bench\n";
        assert_eq!(unfinished(listed, &["c".to_owned()]), ["a::b"]);
    }

    /// Shell script in place of a test program. Its arguments name the test that it fails. What it
    /// prints stands in the output of the whole run: readers must see that the names are made up.
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
        let script = "[ \"$1\" = made_up_a ] && exit 0; printf '%s\\n' 'test made_up_a ... FAILED' 'test made_up_b ... FAILED' '' failures: '' \
             '---- made_up_a stdout ----' 'left: 1' '' '---- made_up_b stdout ----' 'right: 2' '' '' failures: '    made_up_a' '    made_up_b'; exit 1";
        let tally = tally(script);
        assert_eq!(tally.unsteady, ["it: made_up_a\n    left: 1"]);
        assert_eq!(tally.failed.len(), 1);
        let failed = &tally.failed[0];
        assert!(
            failed.starts_with("it: sh -c ") && failed.ends_with("\n    right: 2"),
            "{failed}"
        );
    }

    #[test]
    fn what_waits_for_ever_is_named_and_tried_again() {
        let script = "case \"$*\" in *--list*) printf '%s: test\\n' a b;; '') echo 'test a ... ok'; sleep 4712;; \
            'b --exact '*) :;; *) exit 1;; esac";
        let mut tally = Tally::default();
        let shell = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]);
            shell
        };
        let limit = Duration::from_millis(500);
        tally.run_within("it", shell, &[], limit).unwrap();
        assert!(tally.failed.is_empty(), "{tally:?}");
        assert!(tally.unsteady[0].contains("sleep 4712"), "{tally:?}");
    }

    #[test]
    fn what_fails_twice_fails_and_what_fails_once_is_named() {
        let steady = tally("echo 'test made_up_a ... FAILED'; exit 1");
        assert_eq!((steady.failed.len(), steady.unsteady.len()), (1, 0));
        let unsteady =
            tally("[ \"$1\" = made_up_a ] || { echo 'test made_up_a ... FAILED'; exit 1; }");
        assert_eq!(unsteady.unsteady, ["it: made_up_a"]);
        assert!(unsteady.failed.is_empty());
        let crash = tally("kill -ABRT $$");
        assert_eq!((crash.failed.len(), crash.unsteady.len()), (1, 0));
        let wreck = tally(
            "for i in 1 2 3 4 5 6; do echo \"test made_up_$i ... FAILED\"; done; [ \"$1\" ] || exit 1",
        );
        assert_eq!((wreck.failed.len(), wreck.unsteady.len()), (1, 0));
    }
}
