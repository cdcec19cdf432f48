//! User of glovebox, with a separate home, project and state directory.
//!
//! Root and ordinary users meet different walls, so tests that run as root run a second time as an
//! ordinary user.

use crate::home::{Glovebox, Home, binary};
use crate::skip::is_root;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// User and group `nobody` of Linux distributions.
pub const UNPRIVILEGED_ID: u32 = 65534;

/// User of glovebox with their own directories; everything is removed when dropped.
#[derive(Debug)]
pub struct Person {
    place: Home,
    binary: PathBuf,
    is_other: bool,
}

/// Gives a tree to the ordinary user.
#[expect(
    clippy::expect_used,
    reason = "a test cannot go on with files of the wrong owner"
)]
fn give(tree: &Path) {
    assert!(
        tree.is_absolute()
            && tree.components().count() > 2
            && tree
                .components()
                .skip(1)
                .all(|part| matches!(part, Component::Normal(_))),
        "{} is no directory of a test's own",
        tree.display()
    );
    let mut pending = vec![tree.to_owned()];
    while let Some(path) = pending.pop() {
        lchown(&path, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).expect("a new owner");
        if path.is_dir() && !path.is_symlink() {
            pending.extend(
                fs::read_dir(&path)
                    .expect("a directory")
                    .flatten()
                    .map(|entry| entry.path()),
            );
        }
    }
}

impl Person {
    /// Creates a user with the identity of the test process.
    pub fn myself() -> Self {
        Self {
            place: Home::new(),
            binary: binary(),
            is_other: false,
        }
    }

    /// Creates an ordinary user. None if the test does not run as root: only root can change its
    /// user.
    ///
    /// # Panics
    /// The user's directories cannot be prepared.
    #[expect(clippy::expect_used, reason = "a test cannot go on without its user")]
    pub fn ordinary() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let place = Home::of(UNPRIVILEGED_ID, |root| {
            fs::set_permissions(root, fs::Permissions::from_mode(0o755))
                .expect("an open directory");
            give(root);
        });
        let mut program = binary();
        if !is_open_to_all(&program) {
            let copy = place.root().join("glovebox");
            fs::copy(&program, &copy).expect("a copy of glovebox");
            program = copy;
        }
        Some(Self {
            place,
            binary: program,
            is_other: true,
        })
    }

    /// Runs a test as the present user and, if that is root, as an ordinary user too. An inline
    /// snapshot has one text for both, and must not be taken in a thread that the test starts.
    #[expect(
        clippy::print_stdout,
        reason = "test output, shown when the test fails"
    )]
    pub fn each(mut test: impl FnMut(&Self)) {
        let mut as_everybody = || {
            for person in [Some(Self::myself()), Self::ordinary()]
                .into_iter()
                .flatten()
            {
                // Displayed if the test fails.
                println!("as {}", person.name());
                test(&person);
            }
        };
        // Without this, insta refuses an inline snapshot that is evaluated twice.
        insta::allow_duplicates!(as_everybody());
    }

    /// Returns a name for messages.
    pub fn name(&self) -> &'static str {
        if self.is_root() {
            "root"
        } else {
            "an ordinary user"
        }
    }

    /// Returns true if the user is root.
    pub fn is_root(&self) -> bool {
        !self.is_other && is_root()
    }

    /// Returns the user's directories.
    pub fn place(&self) -> &Home {
        &self.place
    }

    /// Returns the project directory.
    pub fn project(&self) -> PathBuf {
        self.place.project()
    }

    /// Returns the program that the user runs.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Writes a file of the user's below their root, with its directories.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let written = self.place.write(path.as_ref(), content);
        if let Some(top) = path.as_ref().components().next() {
            self.own(&self.place.root().join(top));
        }
        written
    }

    /// Gives a tree to this user.
    ///
    /// # Panics
    /// The owner cannot be changed, or the tree is at the top of the file system: no test created
    /// that, and root could give all of it away.
    pub fn own(&self, tree: &Path) {
        if self.is_other {
            give(tree);
        }
    }

    /// Returns the call `glovebox ARGS` by this user, in the project.
    pub fn glovebox<I, S>(&self, args: I) -> Glovebox
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut call = self.place.glovebox(args);
        let mut command = self.become_user(&self.binary);
        command
            .args(call.command.get_args())
            .current_dir(self.project());
        for (name, value) in call.command.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        call.command = command;
        call
    }

    /// Returns the call `glovebox ARGS` from one line; words are split at spaces.
    pub fn line(&self, line: &str) -> Glovebox {
        self.glovebox(line.split_whitespace())
    }

    /// Returns the call `glovebox ARGS -- sh -c SCRIPT`.
    pub fn script(&self, args: &str, script: &str) -> Glovebox {
        self.glovebox(args.split_whitespace().chain(["--", "sh", "-c", script]))
    }

    /// Returns another program by this user in the project, with the same environment as glovebox.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.become_user(program);
        command
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.place.home())
            .env("GLOVEBOX_STATE", self.place.state())
            .env("LANG", "C.UTF-8")
            .current_dir(self.project());
        command
    }

    fn become_user(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear();
        if self.is_other {
            // The standard library also drops the supplementary groups when root changes its user.
            command.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID);
        }
        command
    }

    /// Returns the directories of all sandboxes, dead or alive.
    pub fn sandboxes(&self) -> Vec<PathBuf> {
        self.rooms(&["sandboxes"])
    }

    fn rooms(&self, names: &[&str]) -> Vec<PathBuf> {
        names
            .iter()
            .filter_map(|room| fs::read_dir(self.place.state().join(room)).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .collect()
    }

    /// Checks that neither the state directory nor `doctor` has any leftover.
    ///
    /// # Panics
    /// There is a leftover.
    pub fn assert_nothing_left(&self) {
        let left = self.rooms(&["sandboxes", "staging", "trash"]);
        assert!(left.is_empty(), "as {}: left behind: {left:?}", self.name());
        self.assert_nothing_lives();
    }

    /// Checks that there is no sandbox, dead or alive. Objects that a killed call was creating or
    /// removing may stay for a minute: until then it cannot be known that the call is dead.
    ///
    /// # Panics
    /// There is a sandbox.
    pub fn assert_nothing_lives(&self) {
        let left = self.sandboxes();
        assert!(left.is_empty(), "as {}: left behind: {left:?}", self.name());
        let doctor = self.line("doctor --json").run();
        assert!(
            doctor.out().contains(r#""orphans":[]"#),
            "as {}: {doctor}",
            self.name()
        );
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // `Home` ends only the sandboxes of the test's own user.
        if self.is_other && !self.sandboxes().is_empty() {
            let mut kill = self.line("kill --all --quiet").command;
            let _ = kill
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Returns true if every user can reach and run a program.
fn is_open_to_all(program: &Path) -> bool {
    program
        .ancestors()
        .all(|path| path.metadata().is_ok_and(|found| found.mode() & 0o001 != 0))
}
