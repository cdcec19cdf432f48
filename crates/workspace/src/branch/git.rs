//! Runs the host's git without the configuration of any repository.
//!
//! A commit is made from a git directory of our own: `glovebox-commit-XXXX` in the real one or, if
//! nothing is written, beside the sandbox's files. Its configuration is written here; its
//! `objects`, `refs`, `packed-refs` and `logs` are links to the real ones. Nothing that a
//! repository configures is read by a git that acts, so no list of dangerous settings has to be
//! maintained. The user's own configuration applies only to identity and ignored files.

use super::layout;
use super::repository::{Repository, cannot_make};
use super::{complaint, failed};
use crate::threads;
use glovebox_proto::{Code, Fault, Setting};
use rustix::process::Signal;
use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Settings of a file, in order, with names in lower case.
pub(super) type Config = Vec<(String, String)>;

/// Prefix of the name of our own git directory.
const OWN_PREFIX: &str = "glovebox-commit-";
/// Variables that would lead git to another repository or another configuration.
const MISLEADING: [&str; 16] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DEFAULT_HASH",
    "GIT_DEFAULT_REF_FORMAT",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_TEMPLATE_DIR",
];
/// Variables that keep git from fetching anything and from prompting.
const OFFLINE: [(&str, &str); 7] = [
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("LC_ALL", "C"),
];
/// Settings that disable every program that a configuration could name.
const QUIET: [&str; 8] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "user.useConfigOnly=true",
    "credential.helper=",
];

/// Maximum time for one call of git. The longest is the check of a pack with a large history.
const DEADLINE: Duration = Duration::from_mins(5);

/// The host's git program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Git<'a> {
    pub(super) program: &'a Path,
}

impl Git<'_> {
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        for setting in QUIET {
            command.args(["-c", setting]);
        }
        command
            .args(args)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for variable in MISLEADING {
            command.env_remove(variable);
        }
        command.envs(OFFLINE);
        command
    }

    pub(super) fn spawn(&self, command: &mut Command) -> Result<Child, Fault> {
        command.spawn().map_err(|error| {
            Fault::failed(
                Code::CommandNotFound,
                format!("cannot run {}: {error}", self.program.display()),
            )
            .remedy([
                "install git, or pull without ".into(),
                Setting::Branch.into(),
            ])
        })
    }

    pub(super) fn run(&self, command: &mut Command, input: &[u8]) -> Result<Output, Fault> {
        // In a process group of its own, git's child processes can be killed together with it.
        let mut child = self.spawn(command.stdin(Stdio::piped()).process_group(0))?;
        let group = rustix::process::Pid::from_child(&child);
        let stdin = child.stdin.take();
        let (has_ended, ended) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // Git may exit without reading all of its input. If no thread can be started, the input
            // ends at once and git changes nothing.
            let fed = threads::start(scope, move || stdin.map(|mut stdin| stdin.write_all(input)));
            let watch = threads::start(scope, move || {
                let is_late = ended.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout);
                if is_late {
                    let _ = rustix::process::kill_process_group(group, Signal::KILL);
                }
                is_late
            });
            if watch.is_err() {
                let _ = child.kill();
            }
            let output = child.wait_with_output();
            drop(has_ended);
            fed?;
            if threads::end(watch?)? {
                return Err(late(command));
            }
            output.map_err(|error| failed("git did not answer", error.to_string().as_bytes()))
        })
    }

    /// Reads the settings of one file without applying them; none if the file does not exist.
    pub(super) fn list_file(&self, path: &Path) -> Result<Config, Fault> {
        if !fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
            return Ok(Config::new());
        }
        let mut command = self.command(&["config", "--no-includes", "--null", "--list", "--file"]);
        let output = self.run(without_configuration(command.arg(path)), b"")?;
        if !output.status.success() {
            let what = format!("git cannot read {}", path.display());
            return Err(failed(&what, &output.stderr));
        }
        Ok(settings(&output.stdout))
    }

    /// Returns the directories that the user's own configuration names as safe.
    pub(super) fn safe_directories(&self) -> Result<Vec<String>, Fault> {
        let args = ["config", "--type=path", "--null", "--get-all"];
        let mut command = self.command(&args);
        // No repository: a repository at `/` must not apply.
        command.arg("safe.directory").env("GIT_DIR", "/dev/null");
        let output = self.run(&mut command, b"")?;
        // An empty entry discards all entries before it.
        let Some(list) = output.stdout.strip_suffix(b"\0") else {
            return Ok(Vec::new());
        };
        Ok(list
            .split(|byte| *byte == 0)
            .filter_map(|entry| std::str::from_utf8(entry).ok())
            .map(str::to_owned)
            .collect())
    }
}

/// Returns the fault for a git that was killed at its deadline. The message names the command.
fn late(command: &Command) -> Fault {
    let mut words = command.get_args().map(|word| word.to_string_lossy());
    // Settings precede the name of the command.
    let step = words
        .find(|word| word != "-c" && !word.contains('='))
        .unwrap_or_default()
        .into_owned();
    let seconds = DEADLINE.as_secs();
    failed(
        &format!("`git {step}` was ended after {seconds} s"),
        b"it did not come to an end",
    )
}

/// Makes a command ignore the configurations of the user and of the machine.
pub(super) fn without_configuration(command: &mut Command) -> &mut Command {
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
}

fn settings(list: &[u8]) -> Config {
    list.split(|byte| *byte == 0)
        .filter_map(|setting| std::str::from_utf8(setting).ok())
        .filter(|setting| !setting.is_empty())
        .map(|setting| {
            // A setting without a value means true.
            let (key, value) = setting.split_once('\n').unwrap_or((setting, "true"));
            (key.to_ascii_lowercase(), value.to_owned())
        })
        .collect()
}

/// A git directory of our own with the repository's objects and branches. Dropping it removes the
/// directory.
#[derive(Debug)]
pub(super) struct OwnGitDir<'a> {
    git: Git<'a>,
    dir: PathBuf,
    top: PathBuf,
    project: &'a Path,
    identity: Vec<String>,
}

impl<'a> OwnGitDir<'a> {
    /// Creates the directory in `parent`.
    ///
    /// # Errors
    /// [`Code::Io`] if `parent` cannot be written to.
    pub(super) fn make(
        repository: &Repository,
        project: &'a Path,
        git: Git<'a>,
        parent: &Path,
    ) -> Result<Self, Fault> {
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| failed("no random name", errno.to_string().as_bytes()))?;
        let name = format!("{OWN_PREFIX}{:016x}", u64::from_ne_bytes(random));
        let dir = parent.join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|error| cannot_make(&dir, &error))?;
        let own = Self {
            git,
            dir,
            top: repository.top.clone(),
            project,
            identity: repository
                .identity
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
        };
        own.fill(repository)
            .map_err(|error| cannot_make(&own.dir, &error))?;
        Ok(own)
    }

    fn fill(&self, repository: &Repository) -> std::io::Result<()> {
        fs::write(
            self.dir.join("HEAD"),
            [&repository.head[..], b"\n"].concat(),
        )?;
        fs::write(self.dir.join("config"), repository.format.configuration())?;
        for name in [
            "objects",
            "refs",
            "packed-refs",
            "logs",
            "reftable",
            "shallow",
        ] {
            let real = repository.common_dir.join(name);
            // A link among the logs would make git append a line to a file outside the repository.
            if name == "logs" && !layout::has_plain_logs(&repository.common_dir) {
                continue;
            }
            if real.symlink_metadata().is_ok() {
                symlink(real, self.dir.join(name))?;
            }
        }
        let exclude = repository.common_dir.join("info/exclude");
        fs::create_dir(self.dir.join("info"))?;
        if fs::metadata(&exclude).is_ok_and(|meta| meta.is_file()) {
            symlink(exclude, self.dir.join("info/exclude"))?;
        }
        Ok(())
    }

    /// Returns a command in the project that reads no configuration but ours.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.user_command(args);
        without_configuration(&mut command);
        command
    }

    /// Returns a command in the project that reads the user's own configuration as well.
    fn user_command(&self, args: &[&str]) -> Command {
        let mut command = self.git.command(args);
        command
            .current_dir(self.project)
            .env("GIT_DIR", &self.dir)
            .env("GIT_WORK_TREE", &self.top);
        command
    }

    pub(super) fn spawn(&self, command: &mut Command) -> Result<Child, Fault> {
        self.git.spawn(command)
    }

    pub(super) fn run(&self, args: &[&str], input: &[u8]) -> Result<Output, Fault> {
        self.run_command(&mut self.command(args), input)
    }

    pub(super) fn run_command(&self, command: &mut Command, input: &[u8]) -> Result<Output, Fault> {
        self.git.run(command, input)
    }

    /// Returns the path of the directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs git and returns its output without the last line end. If git fails, returns `or` of its
    /// error output.
    pub(super) fn line(
        &self,
        args: &[&str],
        or: impl FnOnce(&[u8]) -> Fault,
    ) -> Result<Vec<u8>, Fault> {
        first_line(self.run(args, b"")?, or)
    }

    /// Returns true if a reference is symbolic: writing to it would change another one.
    pub(super) fn is_symbolic(&self, reference: &str) -> Result<bool, Fault> {
        let output = self.run(&["symbolic-ref", "--quiet", reference], b"")?;
        Ok(output.status.success())
    }

    /// Returns name, address and time in the form of a commit. The sources are git's variables, the
    /// repository's `user.name` and `user.email`, and the user's own, in this order.
    pub(super) fn identity(&self, which: &str) -> Result<Vec<u8>, Fault> {
        // Settings given with `-c` must precede the command.
        let mut args: Vec<&str> = Vec::new();
        for setting in &self.identity {
            args.extend(["-c", setting]);
        }
        args.extend(["var", which]);
        first_line(self.git.run(&mut self.user_command(&args), b"")?, |text| {
            Fault::failed(
                Code::NotFound,
                format!("git does not know who you are: {}", complaint(text)),
            )
            .remedy(
                "set `git config user.name \"Your Name\"` and `git config user.email you@example.org`",
            )
        })
    }

    /// Returns the paths of a list that the project's patterns, the repository's `info/exclude` or
    /// the user's own patterns ignore. Each path ends with a NUL byte.
    pub(super) fn ignored(&self, list: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut args = vec!["check-ignore", "-z", "--stdin", "--no-index"];
        let found = self.git.run(&mut self.user_command(&args), list)?.stdout;
        if found.is_empty() || !self.run(&["read-tree", "HEAD"], b"")?.status.success() {
            return Ok(found);
        }
        // Committed paths are not ignored, whatever the patterns say.
        args.pop();
        Ok(self.git.run(&mut self.user_command(&args), &found)?.stdout)
    }
}

impl Drop for OwnGitDir<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn first_line(output: Output, or: impl FnOnce(&[u8]) -> Fault) -> Result<Vec<u8>, Fault> {
    if !output.status.success() {
        return Err(or(&output.stderr));
    }
    let mut text = output.stdout;
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    Ok(text)
}
