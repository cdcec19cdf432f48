//! The caller's umask is that of commands, and nothing of ours depends on it.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::{Person, Ran};

const MASKS: [&str; 6] = ["000", "022", "026", "027", "077", "777"];

/// `sh` under a umask, with a state directory in which nothing has been built yet.
struct MaskedShell<'a> {
    person: &'a Person,
    mask: &'a str,
    state: PathBuf,
}

impl<'a> MaskedShell<'a> {
    fn new(person: &'a Person, mask: &'a str) -> Self {
        let state = person.place().root().join(format!("state-{mask}"));
        Self {
            person,
            mask,
            state,
        }
    }

    fn command(&self, argv: &[&str]) -> Command {
        let mut command = self.person.program("sh");
        command
            .args(["-c", &format!("umask {}; exec \"$@\"", self.mask), "sh"])
            .args(argv)
            .env("GLOVEBOX_STATE", &self.state)
            .stdin(Stdio::null());
        command
    }

    fn glovebox(&self, line: &str, more: &[&str]) -> Ran {
        let binary = self.person.binary().to_str().unwrap();
        let mut argv = vec![binary];
        argv.extend(line.split_whitespace());
        argv.extend(more);
        let ran = Ran::new(self.command(&argv).output().unwrap());
        assert_eq!(ran.code, 0, "umask {}: {line}: {ran}", self.mask);
        ran
    }
}

impl Drop for MaskedShell<'_> {
    fn drop(&mut self) {
        let binary = self.person.binary().to_str().unwrap();
        let _ = self.command(&[binary, "kill", "--all", "-q"]).output();
    }
}

#[test]
fn command_has_the_umask_of_its_caller() {
    const SCRIPT: &str = "umask; rm -rf made; mkdir made; touch made/file 2>/dev/null; : >plain; \
                          stat -c %a made plain; rm -rf made plain";
    Person::each(|person| {
        person.write("project/file", "");
        for mask in MASKS {
            let shell = MaskedShell::new(person, mask);
            let outside = shell.command(&["sh", "-c", SCRIPT]).output().unwrap();
            let outside = String::from_utf8(outside.stdout).unwrap();
            assert!(outside.starts_with(&format!("0{mask}\n")), "{outside}");
            let run = shell.glovebox("run -q --apply never -- sh -c", &[SCRIPT]);
            assert_eq!(run.out(), outside, "run under umask {mask}");
        }
    });
}

#[test]
fn sandbox_that_stays_works_under_every_umask() {
    Person::each(|person| {
        person.write("project/file", "before\n");
        for mask in ["027", "077", "777"] {
            let shell = MaskedShell::new(person, mask);
            let _ = shell.glovebox("start box", &[]);
            let exec = shell.glovebox("exec box -- sh -c", &["umask; cat file"]);
            assert_eq!(exec.out(), format!("0{mask}\nbefore\n"));
            let made = shell.glovebox("checkpoint box --json", &[]);
            let made: Value = serde_json::from_slice(&made.stdout).unwrap();
            let _ = shell.glovebox("exec box -- sh -c", &["rm file; echo made >new"]);
            let _ = shell.glovebox(
                "restore box",
                &[made["data"]["checkpoint"]["id"].as_str().unwrap()],
            );
            let exec = shell.glovebox("exec box -- sh -c", &["cat file; ls"]);
            assert_eq!(exec.out(), "before\nfile\n");
            let write = r#"{"path": "written", "content": "text\n"}"#;
            let _ = shell.glovebox("call --sandbox box Write", &[write]);
            // A tool's file can be read by its owner under any mask that a person can work with.
            let seen = shell.glovebox("exec box -- cat written", &[]);
            assert_eq!(seen.out(), "text\n");
            let called = shell.glovebox("call Bash", &[r#"{"command": "cat file"}"#]);
            assert!(called.out().contains("before"), "{called}");
        }
    });
}
