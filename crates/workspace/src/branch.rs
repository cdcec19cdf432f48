//! A change set as one commit on a new branch of the host's own repository.
//!
//! In: what was collected, the project directory and the host's `git`. Out: the commit. The working
//! tree, the index and every other branch stay as they are: `git fast-import` writes objects and one
//! reference, and no hook runs. Files that the repository ignores are left out, as `git add` would.

use crate::contents::{changed, unreadable};
use crate::patch::name;
use crate::threads;
use crate::{ChangeKind, Collected, Node, RelPath};
use glovebox_proto::{Code, Fault};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// The new commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its name.
    pub commit: String,
    /// Files and links it adds, changes or removes.
    pub paths: u64,
    /// New paths left out because the repository ignores them.
    pub ignored: Vec<RelPath>,
}

/// Variables that would lead git to another repository than the project's.
const MISLEADING: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
];

/// Commits the change set to the new branch `branch`, on top of what `HEAD` is.
///
/// # Errors
/// [`Code::AlreadyExists`] when there is such a branch, [`Code::InvalidArgument`] for a name git
/// does not take, [`Code::NotFound`] without a repository, a commit or an identity, and whatever
/// keeps contents from being read or git from working.
pub fn commit(
    collected: &Collected,
    project: &Path,
    git: &Path,
    branch: &str,
    message: &str,
) -> Result<Committed, Fault> {
    let repository = Repository { project, git };
    let prefix = repository.prefix()?;
    let reference = repository.new_branch(branch)?;
    let head = repository.head()?;
    let author = repository.identity("GIT_AUTHOR_IDENT")?;
    let committer = repository.identity("GIT_COMMITTER_IDENT")?;
    let ignored = repository.ignored(collected)?;

    let mut import = Import::start(&repository)?;
    let written = import.write(|out| {
        writeln!(out, "commit {reference}")?;
        out.write_all(b"author ")?;
        out.write_all(&author)?;
        out.write_all(b"\ncommitter ")?;
        out.write_all(&committer)?;
        write!(out, "\ndata {}\n{message}\nfrom {head}\n", message.len())?;
        let mut writer = Tree {
            collected,
            prefix: &prefix,
            ignored: &ignored,
            paths: 0,
        };
        writer.write(out)?;
        out.write_all(b"\ndone\n")?;
        Ok(writer.paths)
    });
    let paths = match written {
        Ok(paths) => paths,
        Err(error) => {
            import.abandon();
            return Err(error.into_fault());
        }
    };
    import.finish()?;
    let commit = repository.line(&["rev-parse", "--verify", "--quiet", &reference], |text| {
        failed(&format!("git did not make the branch `{branch}`"), text)
    })?;
    let mut ignored: Vec<RelPath> = ignored.into_iter().collect();
    ignored.sort();
    Ok(Committed {
        commit: String::from_utf8_lossy(&commit).into_owned(),
        paths,
        ignored,
    })
}

struct Repository<'a> {
    project: &'a Path,
    git: &'a Path,
}

impl Repository<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.git);
        command
            .args([
                "-c",
                "core.hooksPath=/dev/null",
                "-c",
                "core.fsmonitor=false",
            ])
            .args(["-c", "user.useConfigOnly=true"])
            .args(args)
            .current_dir(self.project)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for variable in MISLEADING {
            command.env_remove(variable);
        }
        command
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, Fault> {
        command.spawn().map_err(|error| {
            Fault::failed(
                Code::CommandNotFound,
                format!("cannot run {}: {error}", self.git.display()),
            )
            .remedy("install git, or pull without --branch")
        })
    }

    fn run(&self, args: &[&str], input: &[u8]) -> Result<Output, Fault> {
        let mut child = self.spawn(self.command(args).stdin(Stdio::piped()))?;
        let stdin = child.stdin.take();
        std::thread::scope(|scope| {
            // One that answers without reading everything is free to. One whose input ends at once,
            // because there can be no thread for it, changes nothing.
            let fed = threads::start(scope, move || stdin.map(|mut stdin| stdin.write_all(input)));
            let output = child.wait_with_output();
            fed?;
            output.map_err(|error| failed("git did not answer", error.to_string().as_bytes()))
        })
    }

    /// The first line of what git says, or `or` of what it complains.
    fn line(&self, args: &[&str], or: impl FnOnce(&[u8]) -> Fault) -> Result<Vec<u8>, Fault> {
        let output = self.run(args, b"")?;
        if !output.status.success() {
            return Err(or(&output.stderr));
        }
        let mut text = output.stdout;
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        Ok(text)
    }

    /// Where the project lies in its repository: empty, or ends in a slash.
    fn prefix(&self) -> Result<Vec<u8>, Fault> {
        self.line(&["rev-parse", "--show-prefix"], |text| {
            let fault = Fault::failed(
                Code::NotFound,
                format!(
                    "{} is in no git repository that can be used: {}",
                    self.project.display(),
                    complaint(text)
                ),
            );
            fault.remedy("run `git init` and commit first, or pull without --branch")
        })
    }

    fn new_branch(&self, branch: &str) -> Result<String, Fault> {
        self.line(&["check-ref-format", "--branch", branch], |_| {
            Fault::failed(
                Code::InvalidArgument,
                format!("`{branch}` is not a name for a branch"),
            )
            .remedy("choose one like `sandbox/fix`")
        })?;
        let reference = format!("refs/heads/{branch}");
        let there = self.run(&["show-ref", "--verify", "--quiet", &reference], b"")?;
        if there.status.success() {
            return Err(Fault::failed(
                Code::AlreadyExists,
                format!("there is a branch `{branch}` already"),
            )
            .remedy(format!(
                "choose another name, or remove it with `git branch -D {branch}`"
            )));
        }
        Ok(reference)
    }

    fn head(&self) -> Result<String, Fault> {
        let head = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
        let id = self.line(&head, |_| {
            Fault::failed(Code::NotFound, "the repository has no commit yet")
                .remedy("commit something first, or pull without --branch")
        })?;
        Ok(String::from_utf8_lossy(&id).into_owned())
    }

    /// Name, address and time, as a commit holds them.
    fn identity(&self, which: &str) -> Result<Vec<u8>, Fault> {
        self.line(&["var", which], |text| {
            Fault::failed(
                Code::NotFound,
                format!("git does not know who you are: {}", complaint(text)),
            )
            .remedy(
                "set `git config user.name \"Your Name\"` and `git config user.email you@example.org`",
            )
        })
    }

    /// New paths that the repository ignores.
    fn ignored(&self, collected: &Collected) -> Result<HashSet<RelPath>, Fault> {
        let mut list = Vec::new();
        for change in &collected.set.changes {
            if matches!(
                change.kind,
                ChangeKind::Added { .. } | ChangeKind::Renamed { .. }
            ) {
                list.extend_from_slice(change.path.as_bytes());
                list.push(0);
            }
        }
        if list.is_empty() {
            return Ok(HashSet::new());
        }
        let output = self.run(&["check-ignore", "-z", "--stdin"], &list)?;
        // It refuses paths below what is a link on the host; then nothing is left out.
        let names = output.stdout.split(|byte| *byte == 0);
        Ok(names.filter_map(|name| RelPath::new(name).ok()).collect())
    }
}

/// A running `git fast-import`.
struct Import {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
}

impl Import {
    fn start(repository: &Repository<'_>) -> Result<Self, Fault> {
        let mut command = repository.command(&["fast-import", "--quiet", "--done"]);
        let mut child = repository.spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()))?;
        let input = child.stdin.take().map(BufWriter::new);
        Ok(Self { child, input })
    }

    fn write<T>(
        &mut self,
        fill: impl FnOnce(&mut dyn Write) -> Result<T, ImportError>,
    ) -> Result<T, ImportError> {
        let Some(mut input) = self.input.take() else {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        };
        let done = fill(&mut input)?;
        input.flush()?;
        Ok(done)
    }

    /// Ends it before it has changed a reference: it does that last, when it has seen `done`.
    fn abandon(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn finish(self) -> Result<(), Fault> {
        let output = self
            .child
            .wait_with_output()
            .map_err(|error| failed("git fast-import did not end", error.to_string().as_bytes()))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(failed("git refused the commit", &output.stderr))
        }
    }
}

/// Why the stream could not be written.
enum ImportError {
    Content(Fault),
    Pipe(io::Error),
}

impl ImportError {
    fn into_fault(self) -> Fault {
        match self {
            Self::Content(fault) => fault,
            Self::Pipe(error) => {
                failed("git did not take the commit", error.to_string().as_bytes())
            }
        }
    }
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::Pipe(error)
    }
}

/// Writes the changed paths.
struct Tree<'a> {
    collected: &'a Collected,
    prefix: &'a [u8],
    ignored: &'a HashSet<RelPath>,
    paths: u64,
}

impl Tree<'_> {
    fn write(&mut self, out: &mut dyn Write) -> Result<(), ImportError> {
        let changes = &self.collected.set.changes;
        // First what goes: it may be in the way of what comes.
        for change in changes {
            let gone = match &change.kind {
                ChangeKind::Deleted { from } if *from != Node::Dir => Some(&change.path),
                ChangeKind::Renamed { source, from, .. } if *from != Node::Dir => Some(source),
                ChangeKind::Modified {
                    from,
                    to: Node::Dir,
                } if *from != Node::Dir => Some(&change.path),
                _ => None,
            };
            if let Some(path) = gone {
                out.write_all(b"D ")?;
                out.write_all(&self.quoted(path))?;
                out.write_all(b"\n")?;
                if !matches!(change.kind, ChangeKind::Renamed { .. }) {
                    self.paths += 1;
                }
            }
        }
        for change in changes {
            if let Some(node) = change.to()
                && !self.ignored.contains(&change.path)
            {
                self.put(&change.path, node, out)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &RelPath, node: &Node, out: &mut dyn Write) -> Result<(), ImportError> {
        let mode = match node {
            Node::Dir => return Ok(()),
            Node::Link { .. } => "120000",
            Node::File {
                is_executable: true,
                ..
            } => "100755",
            Node::File { .. } => "100644",
        };
        write!(out, "M {mode} inline ")?;
        out.write_all(&self.quoted(path))?;
        match node {
            Node::Dir => {}
            Node::Link { target } => {
                writeln!(out, "\ndata {}", target.len())?;
                out.write_all(target)?;
            }
            Node::File { size, digest, .. } => {
                writeln!(out, "\ndata {size}")?;
                let reader = self.collected.open(path).map_err(ImportError::Content)?;
                // TRUST: exactly as many bytes as announced reach git, and they are the collected ones.
                let mut reader = reader.take(*size);
                let mut hasher = blake3::Hasher::new();
                let mut left = *size;
                let mut buffer = vec![0; 64 << 10];
                loop {
                    let count = reader
                        .read(&mut buffer)
                        .map_err(|error| ImportError::Content(unreadable(path, &error)))?;
                    if count == 0 {
                        break;
                    }
                    left -= count as u64;
                    hasher.update(&buffer[..count]);
                    out.write_all(&buffer[..count])?;
                }
                let is_same = digest.is_none_or(|digest| digest == *hasher.finalize().as_bytes());
                if left > 0 || !is_same {
                    return Err(ImportError::Content(changed(path)));
                }
            }
        }
        out.write_all(b"\n")?;
        self.paths += 1;
        Ok(())
    }

    fn quoted(&self, path: &RelPath) -> Vec<u8> {
        let mut whole = self.prefix.to_vec();
        whole.extend_from_slice(path.as_bytes());
        name::quote("", &whole)
    }
}

fn failed(what: &str, complaint_text: &[u8]) -> Fault {
    Fault::failed(Code::Io, format!("{what}: {}", complaint(complaint_text)))
}

/// The last line that git wrote, which is the one that says why.
fn complaint(text: &[u8]) -> String {
    let line = text
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty())
        .unwrap_or(b"it says nothing");
    let text = OsStr::from_bytes(line).to_string_lossy();
    text.trim_start_matches("fatal: ").to_owned()
}

#[cfg(test)]
mod tests;
