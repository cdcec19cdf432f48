//! Reads contents from the object database of the host's repository, through one running git.

use super::git::{Git, OwnGitDir};
use super::repository::Repository;
use glovebox_proto::Fault;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Maximum length of the line before a content: a name, a type and a length.
const MAX_HEAD_BYTES: u64 = 200;

/// A running `git cat-file --batch`.
pub(crate) struct Blobs<'a> {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Git directory of the process, if this owns it. Dropped, and removed, after the process has
    /// ended.
    _own: Option<OwnGitDir<'a>>,
}

impl<'a> Blobs<'a> {
    /// Opens the repository that contains a project. Our own files are written to `scratch`.
    pub(crate) fn open(project: &'a Path, git: &'a Path, scratch: &Path) -> Result<Self, Fault> {
        let git = Git { program: git };
        let repository = Repository::find(project, &git)?;
        let own = OwnGitDir::make(&repository, project, git, scratch)?;
        let child = launch(&own, &repository)?;
        Self::of(child, Some(own))
    }

    /// Starts the process in a git directory that must exist until this is dropped.
    pub(super) fn start(own: &OwnGitDir<'_>, repository: &Repository) -> Result<Self, Fault> {
        Self::of(launch(own, repository)?, None)
    }

    fn of(mut child: Child, own: Option<OwnGitDir<'a>>) -> Result<Self, Fault> {
        let input = child.stdin.take();
        let Some(output) = child.stdout.take() else {
            return Err(super::failed("git gave no output", b""));
        };
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
            _own: own,
        })
    }

    /// Returns the content with that name; `None` if there is none or it is longer than
    /// `max_bytes`.
    pub(crate) fn read(&mut self, id: &str, max_bytes: u64) -> Option<Vec<u8>> {
        self.with(id, |size, content| {
            let mut bytes = Vec::new();
            (size <= max_bytes && content.read_to_end(&mut bytes).is_ok()).then_some(bytes)
        })?
    }

    /// Calls `each` with length and content of the object with that name; `None` if there is none
    /// or it cannot be read.
    pub(super) fn with<T>(
        &mut self,
        id: &str,
        each: impl FnOnce(u64, &mut dyn Read) -> T,
    ) -> Option<T> {
        let found = self.try_with(id, each);
        if found.is_err() {
            // The position in the stream is unknown after an error, so no further objects are read.
            self.input = None;
        }
        found.ok().flatten()
    }

    fn try_with<T>(
        &mut self,
        id: &str,
        each: impl FnOnce(u64, &mut dyn Read) -> T,
    ) -> io::Result<Option<T>> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(format!("{id}\n").as_bytes())?;
        input.flush()?;
        let mut head = Vec::new();
        (&mut self.output)
            .take(MAX_HEAD_BYTES)
            .read_until(b'\n', &mut head)?;
        let head = std::str::from_utf8(&head).map_err(|_| io::ErrorKind::InvalidData)?;
        let words: Vec<&str> = head.split_ascii_whitespace().collect();
        let &[_, kind, size] = words.as_slice() else {
            // `NAME missing`; any other reply is an error.
            let is_missing = head.ends_with(" missing\n");
            return if is_missing {
                Ok(None)
            } else {
                Err(io::ErrorKind::InvalidData.into())
            };
        };
        let size: u64 = size.parse().map_err(|_| io::ErrorKind::InvalidData)?;
        let mut content = (&mut self.output).take(size);
        let done = (kind == "blob").then(|| each(size, &mut content));
        io::copy(&mut content, &mut io::sink())?;
        let mut end = [0];
        self.output.read_exact(&mut end)?;
        Ok(done)
    }
}

fn launch(own: &OwnGitDir<'_>, repository: &Repository) -> Result<Child, Fault> {
    let mut command = own.command(&["cat-file", "--batch"]);
    command
        // Alternates may be relative to the real directory.
        .env(
            "GIT_OBJECT_DIRECTORY",
            repository.common_dir.join("objects"),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    own.spawn(&mut command)
}

impl Drop for Blobs<'_> {
    fn drop(&mut self) {
        // Git exits when its input ends.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
