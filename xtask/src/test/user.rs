//! Ordinary user as which tests are repeated.
//!
//! Not `nobody`: that account may not log in, and tests of a sandbox behind a real SSH server log
//! in as the user that runs them.

use crate::step::{output, say};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

const NAME: &str = "glovebox-test";
/// User and group `nobody` of every Linux.
const NOBODY: u32 = 65534;

/// User that is made for one run. Dropping it removes the user.
#[derive(Debug)]
pub(super) struct OrdinaryUser {
    id: u32,
    group: u32,
    is_made: bool,
}

impl OrdinaryUser {
    /// Makes the user. If that fails, uses `nobody` instead, and tests that log in are skipped.
    pub(super) fn new() -> Self {
        // `*` matches no password. Without an entry sshd counts the account as locked.
        let made = output(Command::new("useradd").args([
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/bin/sh",
            "--password",
            "*",
            NAME,
        ]));
        // The user may exist already: from a run that was interrupted, or from one in progress.
        if let (Some(id), Some(group)) = (number("-u"), number("-g")) {
            return Self {
                id,
                group,
                is_made: made.is_ok(),
            };
        }
        say("no user can be made for the tests; they are repeated as nobody, who cannot log in");
        Self {
            id: NOBODY,
            group: NOBODY,
            is_made: false,
        }
    }

    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    pub(super) const fn group(&self) -> u32 {
        self.group
    }

    /// Returns a command that runs a program as this user, with an environment of its own.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            // The standard library also drops the supplementary groups when root changes the user.
            .gid(self.group)
            .uid(self.id);
        command
    }
}

/// Returns the number of the user or its group, as id(1) prints it for `flag`. `None` if there is
/// no such user.
fn number(flag: &str) -> Option<u32> {
    let mut id = Command::new("id");
    let said = id.args([flag, NAME]).output().ok()?;
    String::from_utf8_lossy(&said.stdout).trim().parse().ok()
}

impl Drop for OrdinaryUser {
    fn drop(&mut self) {
        if self.is_made
            && let Err(error) = output(Command::new("userdel").arg(NAME))
        {
            say(&format!("the user {NAME} is left behind: {error:#}"));
        }
    }
}
