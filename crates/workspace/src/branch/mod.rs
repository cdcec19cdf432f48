//! A change set as one commit on a new branch of the host's own repository.
//!
//! In: what was collected, the project directory and the host's `git`. Out: the commit. The working
//! tree, the index and every other branch stay as they are: `git fast-import` writes objects and one
//! reference. Nothing that the repository configures is believed (see [`git`]). Files that the
//! repository ignores are left out, as `git add` would.

mod git;
mod repository;

use crate::contents::{changed, unreadable};
use crate::patch::name;
use crate::{ChangeKind, Collected, Node, RelPath};
use git::{Git, OwnGitDir};
use glovebox_proto::{Code, Fault};
use repository::{Format, Repository};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};

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
    let git = Git { program: git };
    let repository = Repository::find(project, &git)?;
    let own = OwnGitDir::make(&repository, project, git)?;
    let reference = new_branch(&own, branch)?;
    let head = head(&own, &repository.format)?;
    let author = own.identity("GIT_AUTHOR_IDENT")?;
    let committer = own.identity("GIT_COMMITTER_IDENT")?;
    let ignored = ignored(&own, collected)?;

    let mut import = Import::start(&own, &committer)?;
    let written = import.write(|out| {
        writeln!(out, "commit {reference}")?;
        out.write_all(b"author ")?;
        out.write_all(&author)?;
        out.write_all(b"\ncommitter ")?;
        out.write_all(&committer)?;
        write!(out, "\ndata {}\n{message}\nfrom {head}\n", message.len())?;
        let mut writer = Tree {
            collected,
            prefix: &repository.prefix,
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
            let complaint_text = import.abandon();
            return Err(match error {
                // It ended before it had read everything, and says why.
                ImportError::Pipe(_) if !complaint_text.is_empty() => {
                    refused(&repository.format, &complaint_text)
                }
                error => error.into_fault(),
            });
        }
    };
    import.finish(&repository.format)?;
    let commit = own.line(&["rev-parse", "--verify", "--quiet", &reference], |text| {
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

/// The full name of a new branch.
fn new_branch(own: &OwnGitDir<'_>, branch: &str) -> Result<String, Fault> {
    own.line(&["check-ref-format", "--branch", branch], |_| {
        Fault::failed(
            Code::InvalidArgument,
            format!("`{branch}` is not a name for a branch"),
        )
        .remedy("choose one like `sandbox/fix`")
    })?;
    let reference = format!("refs/heads/{branch}");
    let there = own.run(&["show-ref", "--verify", "--quiet", &reference], b"")?;
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

/// The commit that is checked out.
fn head(own: &OwnGitDir<'_>, format: &Format) -> Result<String, Fault> {
    let head = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
    let id = own.line(&head, |_| {
        if format.is_partial {
            return missing(b"it does not hold the commit of HEAD");
        }
        Fault::failed(Code::NotFound, "the repository has no commit yet")
            .remedy("commit something first, or pull without --branch")
    })?;
    Ok(String::from_utf8_lossy(&id).into_owned())
}

/// New paths that the repository ignores.
fn ignored(own: &OwnGitDir<'_>, collected: &Collected) -> Result<HashSet<RelPath>, Fault> {
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
    // It refuses paths below what is a link on the host; then nothing is left out.
    let found = own.ignored(&list)?;
    let names = found.split(|byte| *byte == 0);
    Ok(names.filter_map(|name| RelPath::new(name).ok()).collect())
}

/// What git complained of when it was to make the commit.
fn refused(format: &Format, complaint_text: &[u8]) -> Fault {
    if format.is_partial {
        missing(complaint_text)
    } else {
        failed("git refused the commit", complaint_text)
    }
}

/// `Name <address> time zone` without the time.
fn name_and_address(identity: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = identity.iter().position(|byte| *byte == b'<')?;
    let end = identity.iter().position(|byte| *byte == b'>')?;
    Some((
        identity[..start].trim_ascii(),
        identity.get(start + 1..end)?,
    ))
}

/// A partial clone lacks what a commit is made from, and nothing is fetched here.
fn missing(complaint_text: &[u8]) -> Fault {
    failed(
        "the repository is a partial clone, and nothing is fetched from its remote here",
        complaint_text,
    )
    .remedy("fetch what is missing with `git ls-tree -r -t HEAD`, or pull without --branch")
}

/// A running `git fast-import`.
struct Import {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
}

impl Import {
    /// Starts it; `committer` is who the log of the new branch names.
    fn start(own: &OwnGitDir<'_>, committer: &[u8]) -> Result<Self, Fault> {
        let mut command = own.command(&["fast-import", "--quiet", "--done"]);
        if let Some((name, address)) = name_and_address(committer) {
            command
                .env("GIT_COMMITTER_NAME", OsStr::from_bytes(name))
                .env("GIT_COMMITTER_EMAIL", OsStr::from_bytes(address));
        }
        let mut child = own.spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()))?;
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
    /// What it complained of until then.
    fn abandon(mut self) -> Vec<u8> {
        let _ = self.child.kill();
        self.child
            .wait_with_output()
            .map(|output| output.stderr)
            .unwrap_or_default()
    }

    fn finish(self, format: &Format) -> Result<(), Fault> {
        let output = self
            .child
            .wait_with_output()
            .map_err(|error| failed("git fast-import did not end", error.to_string().as_bytes()))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(refused(format, &output.stderr))
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
