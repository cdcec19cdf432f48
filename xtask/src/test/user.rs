//! The ordinary user that tests are repeated as.
//!
//! Not `nobody`: that account may not log in, and the tests of a sandbox behind a real SSH server log in as whoever
//! runs them.

use crate::step::{output, say};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

const NAME: &str = "glovebox-test";
/// The user and group `nobody` of every Linux.
const NOBODY: u32 = 65534;

/// A user made for one run, and removed with it.
#[derive(Debug)]
pub(super) struct OrdinaryUser {
    id: u32,
    group: u32,
    is_made: bool,
}

impl OrdinaryUser {
    /// Makes it. Where that cannot be done it is `nobody`, and what has to log in is skipped.
    pub(super) fn new() -> Self {
        // The password is one that nobody can type. Without one sshd counts the account as locked.
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
        // It may be there already: of a run that was cut off, or of one that goes on now.
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

    /// A program that will run as this user, with an environment of its own.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            // The standard library also drops the supplementary groups when root changes its user.
            .gid(self.group)
            .uid(self.id);
        command
    }
}

/// The number of the user or of its group, as id(1) prints it for `flag`.
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
