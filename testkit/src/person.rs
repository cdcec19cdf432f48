//! Somebody who uses glovebox, with a home, a project and a state directory of their own.
//!
//! Root and ordinary users meet different walls, so what the product promises is tried as both:
//! tests run by root run once more as an ordinary user.

use crate::home::{Glovebox, Home, binary};
use crate::skip::is_root;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// The user and group `nobody` of every Linux.
pub const UNPRIVILEGED_ID: u32 = 65534;

/// A user of glovebox in a place of their own; everything is removed when dropped.
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
    /// Whoever runs the test.
    pub fn myself() -> Self {
        Self {
            place: Home::new(),
            binary: binary(),
            is_other: false,
        }
    }

    /// An ordinary user; `None` when the test is not run by root, who alone can become one.
    ///
    /// # Panics
    /// When the user's place cannot be prepared.
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

    /// Runs a test as whoever runs it and, when that is root, as an ordinary user too. An inline snapshot
    /// has one text for both, and is not taken in a thread that the test starts.
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
                // Shown when the test fails.
                println!("as {}", person.name());
                test(&person);
            }
        };
        // Without, an inline snapshot that is looked at twice is an error.
        insta::allow_duplicates!(as_everybody());
    }

    /// A word for messages.
    pub fn name(&self) -> &'static str {
        if self.is_root() {
            "root"
        } else {
            "an ordinary user"
        }
    }

    /// Whether this is root.
    pub fn is_root(&self) -> bool {
        !self.is_other && is_root()
    }

    /// Where everything of theirs is.
    pub fn place(&self) -> &Home {
        &self.place
    }

    /// The project directory.
    pub fn project(&self) -> PathBuf {
        self.place.project()
    }

    /// The program they use.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Writes a file of theirs below their root, with its directories.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let written = self.place.write(path.as_ref(), content);
        if let Some(top) = path.as_ref().components().next() {
            self.own(&self.place.root().join(top));
        }
        written
    }

    /// Gives a tree to this person.
    ///
    /// # Panics
    /// When that is not possible, and for a directory at the top of the machine, which no test made:
    /// root would give all of it away.
    pub fn own(&self, tree: &Path) {
        if self.is_other {
            give(tree);
        }
    }

    /// `glovebox ARGS` by this person, in the project.
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

    /// `glovebox ARGS` written as one line; words are split at spaces.
    pub fn line(&self, line: &str) -> Glovebox {
        self.glovebox(line.split_whitespace())
    }

    /// `glovebox ARGS -- sh -c SCRIPT`.
    pub fn script(&self, args: &str, script: &str) -> Glovebox {
        self.glovebox(args.split_whitespace().chain(["--", "sh", "-c", script]))
    }

    /// Another program by this person in the project, with the same environment as glovebox.
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
            // Supplementary groups go as well: the standard library drops them when root changes its user.
            command.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID);
        }
        command
    }

    /// The sandboxes there are, dead or alive.
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

    /// Checks that neither the state directory nor `doctor` know of anything left over.
    ///
    /// # Panics
    /// When there is something.
    pub fn assert_nothing_left(&self) {
        let left = self.rooms(&["sandboxes", "staging", "trash"]);
        assert!(left.is_empty(), "as {}: left behind: {left:?}", self.name());
        self.assert_nothing_lives();
    }

    /// Checks that there is no sandbox, dead or alive. What a call was putting together or removing
    /// when it died may stay for a minute: nobody can know yet that it is dead.
    ///
    /// # Panics
    /// When there is one.
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
        // The place itself only ends what belongs to whoever runs the test.
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

/// Whether everybody can reach and run a program.
fn is_open_to_all(program: &Path) -> bool {
    program
        .ancestors()
        .all(|path| path.metadata().is_ok_and(|found| found.mode() & 0o001 != 0))
}
