//! A home, a project and a state directory of a test's own, and `glovebox` run in them.

use crate::bases;
use crate::ran::Ran;
use crate::skip::current_user;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};

/// Directories of one test; removed when dropped.
#[derive(Debug)]
pub struct Home {
    root: tempfile::TempDir,
}

impl Home {
    /// Makes the directories `home`, `project` and `state`, empty but for what tests share in the last one.
    ///
    /// # Panics
    /// When the temporary directory cannot be written.
    #[expect(
        clippy::new_without_default,
        reason = "makes directories; a test cannot go on without"
    )]
    pub fn new() -> Self {
        Self::of(current_user(), |_| {})
    }

    /// The same for the user `uid`, to whom `give` gives the directories.
    #[expect(
        clippy::expect_used,
        reason = "makes directories; a test cannot go on without"
    )]
    pub(crate) fn of(uid: u32, give: impl FnOnce(&Path)) -> Self {
        let root = tempfile::Builder::new()
            .prefix("glovebox-test-")
            .tempdir()
            .expect("a temporary directory");
        for name in ["home", "project", "state"] {
            // The state directory must be its owner's alone.
            let mode = if name == "state" { 0o700 } else { 0o755 };
            fs::DirBuilder::new()
                .mode(mode)
                .create(root.path().join(name))
                .expect("a directory in the temporary directory");
        }
        give(root.path());
        bases::lend_to(&root.path().join("state"), uid);
        Self { root }
    }

    /// The directory that holds all others.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// `$HOME`.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The project: current directory of [`Self::glovebox`].
    pub fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    /// `$GLOVEBOX_STATE`.
    pub fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    /// Makes the state directory empty, as the first command of a user finds it.
    ///
    /// # Panics
    /// When something is in it that cannot be removed.
    #[expect(clippy::expect_used, reason = "a test cannot go on with another state")]
    pub fn empty_state(&self) {
        bases::remove(&self.state()).expect("a state directory that can be emptied");
    }

    /// Writes a file below the root, with its directories, and gives its path.
    ///
    /// # Panics
    /// When that is not possible.
    #[expect(clippy::expect_used, reason = "a test cannot go on without its files")]
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        assert!(
            path.as_ref()
                .components()
                .all(|part| matches!(part, Component::Normal(_))),
            "a test's file is named by a path below the test's own directory, not {}",
            path.as_ref().display()
        );
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap_or(self.root()))
            .expect("a directory for a test's file");
        fs::write(&path, content).expect("a test's file");
        path
    }

    /// `glovebox ARGS` in the project, with nothing of the surroundings but `PATH`.
    pub fn glovebox<I, S>(&self, args: I) -> Glovebox
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.program(binary(), args)
    }

    /// `PROGRAM ARGS`, a program that is used as `glovebox` is, in the same surroundings.
    pub fn program<I, S>(&self, program: impl AsRef<OsStr>, args: I) -> Glovebox
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        heed_signals();
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.home())
            .env("GLOVEBOX_STATE", self.state())
            .env("LANG", "C.UTF-8")
            .current_dir(self.project());
        Glovebox {
            command,
            input: None,
        }
    }

    /// `glovebox ARGS` written as one line; words are split at spaces.
    pub fn line(&self, line: &str) -> Glovebox {
        self.glovebox(line.split_whitespace())
    }
}

/// Tests that run in the background of a shell are born ignoring SIGINT and SIGQUIT, and so would be
/// every program they start. A handler is forgotten when a program is executed; "ignore" is not.
fn heed_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [SIGHUP, SIGINT, SIGQUIT] {
            let always = Arc::new(AtomicBool::new(true));
            // What cannot be arranged here shows in the tests that send signals.
            let _ = signal_hook::flag::register_conditional_default(signal, always);
        }
    });
}

impl Drop for Home {
    fn drop(&mut self) {
        // A failing test must not leave sandboxes behind.
        let state = self.state();
        if state
            .join("sandboxes")
            .read_dir()
            .is_ok_and(|mut entries| entries.next().is_some())
        {
            let _ = self
                .line("kill --all --quiet")
                .command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        if !std::thread::panicking() {
            bases::hand_on(&state);
        }
    }
}

/// One call of the binary, to be adjusted and run.
#[derive(Debug)]
pub struct Glovebox {
    /// The call, for what the methods do not cover.
    pub command: Command,
    input: Option<Vec<u8>>,
}

impl Glovebox {
    /// Adds arguments.
    #[must_use]
    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command.args(args);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts in another directory.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Gives bytes on standard input; without, it is `/dev/null`.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Runs it to its end and captures what it writes.
    ///
    /// # Panics
    /// When the binary cannot be started.
    #[expect(clippy::expect_used, reason = "a test cannot go on without the binary")]
    pub fn run(mut self) -> Ran {
        let input = self.input.take();
        self.command
            .stdin(if input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("glovebox starts");
        // A thread, because the child may write more than a pipe holds before it reads all of its input.
        let writer = child.stdin.take().zip(input).map(|(mut stdin, bytes)| {
            std::thread::spawn(move || {
                let _ = stdin.write_all(&bytes);
            })
        });
        let output = child.wait_with_output().expect("glovebox ends");
        if let Some(writer) = writer {
            let _ = writer.join();
        }
        Ran::new(output)
    }
}

/// The binary under test: `GLOVEBOX_TEST_BIN`, else the one beside the test's own.
///
/// # Panics
/// When it has not been built.
pub fn binary() -> PathBuf {
    if let Some(path) =
        std::env::var_os("GLOVEBOX_TEST_BIN").filter(|path: &OsString| !path.is_empty())
    {
        return path.into();
    }
    let own = std::env::current_exe().unwrap_or_default();
    let found = own
        .ancestors()
        .skip(1)
        .take(3)
        .map(|dir| dir.join("glovebox"))
        .find(|path| path.is_file());
    assert!(
        found.is_some(),
        "there is no glovebox beside {}: build it first (`cargo build --package glovebox`), or name it in GLOVEBOX_TEST_BIN",
        own.display()
    );
    found.unwrap_or_default()
}
