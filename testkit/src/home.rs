//! Home, project and state directory of one test, and `glovebox` run in them.

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
    /// Creates the directories `home`, `project` and `state`, empty except for the shared part of
    /// the last.
    ///
    /// # Panics
    /// The temporary directory cannot be written.
    #[expect(
        clippy::new_without_default,
        reason = "makes directories; a test cannot go on without"
    )]
    pub fn new() -> Self {
        Self::of(current_user(), |_| {})
    }

    /// Creates the directories for the user `uid`; `give` changes their owner.
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
            // Glovebox refuses a state directory that other users can access.
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

    /// Returns the directory that holds all others.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns `$HOME`.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// Returns the project: the current directory of [`Self::glovebox`].
    pub fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    /// Returns `$GLOVEBOX_STATE`.
    pub fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    /// Empties the state directory, as the first command of a user finds it.
    ///
    /// # Panics
    /// It has content that cannot be removed.
    #[expect(clippy::expect_used, reason = "a test cannot go on with another state")]
    pub fn empty_state(&self) {
        bases::remove(&self.state()).expect("a state directory that can be emptied");
    }

    /// Writes a file below the root, creates its directories, and returns its path.
    ///
    /// # Panics
    /// The file cannot be written.
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

    /// Returns the call `glovebox ARGS` in the project, with no variable of the environment but
    /// `PATH`.
    pub fn glovebox<I, S>(&self, args: I) -> Glovebox
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.program(binary(), args)
    }

    /// Returns the call `PROGRAM ARGS` in the same environment, for a program that is used like
    /// `glovebox`.
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

    /// Returns the call `glovebox ARGS` from one line; words are split at spaces.
    pub fn line(&self, line: &str) -> Glovebox {
        self.glovebox(line.split_whitespace())
    }
}

/// Installs handlers for SIGHUP, SIGINT and SIGQUIT. Tests that run in the background of a shell
/// inherit "ignore" for some of them, and so would every program they start: execve(2) resets a
/// handler to the default, but keeps "ignore".
fn heed_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [SIGHUP, SIGINT, SIGQUIT] {
            let always = Arc::new(AtomicBool::new(true));
            // A failure here shows in the tests that send signals.
            let _ = signal_hook::flag::register_conditional_default(signal, always);
        }
    });
}

impl Drop for Home {
    fn drop(&mut self) {
        // Sandboxes of a failing test must not outlive it.
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

/// Call of the binary, to be adjusted and run.
#[derive(Debug)]
pub struct Glovebox {
    /// Underlying command, for adjustments without a method here.
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

    /// Sets the current directory.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the bytes on standard input; the default is `/dev/null`.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Runs the call to its end and captures its output.
    ///
    /// # Panics
    /// The binary cannot be started.
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
        // In a thread: the child may block on a full output pipe before it has read all of its
        // input.
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

/// Returns the binary under test: `GLOVEBOX_TEST_BIN`, else the one next to the test's own.
///
/// # Panics
/// It has not been built.
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
