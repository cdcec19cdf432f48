//! A change set as one commit on a new branch of the host's own repository.
//!
//! In: what was collected, the project directory and the host's `git`. Out: the commit, on top of `HEAD`,
//! with the sandbox's changes and nothing else: they are planned onto the tree of `HEAD` as a pull plans
//! them onto the project, so what the user has committed or edited since stays. The working
//! tree, the index and every other branch stay as they are: `git fast-import` writes objects and one
//! reference. Nothing that the repository configures is believed (see [`git`]). Files that the
//! repository ignores are left out, as `git add` would.

mod changed;
mod commits;
mod git;
mod held;
mod layout;
mod objects;
mod repository;
mod tree;

pub use changed::changed_repositories;
pub use commits::{HostRepository, OfferedCommit, TakenCommits, is_object_name};
pub use held::CommitOrigin;
pub(crate) use objects::Blobs;

use crate::base::BaseFile;
use crate::contents::{changed, unreadable};
use crate::patch::name;
use crate::{
    AppliedChange, Change, ChangeKind, ChangeSet, CollectedChanges, Conflict, Effect, Node,
    Options, Plan, RelPath, Step, plan,
};
use git::{Git, OwnGitDir};
use glovebox_proto::{Code, Fault, Setting};
use repository::{Format, Repository};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use tree::CommitTree;

/// The new commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOutcome {
    /// Its name; `None` when there is nothing to commit, and no branch was made.
    pub commit: Option<String>,
    /// Files and links it adds, changes or removes.
    pub paths: u64,
    /// Paths where the sandbox's changes do not fit what is committed: the commit leaves those as they are,
    /// and has the sandbox's version beside.
    pub conflicts: Vec<Conflict>,
    /// Paths with changes of both sides.
    pub merged: Vec<AppliedChange>,
    /// New paths left out because the repository ignores them.
    pub ignored: Vec<RelPath>,
}

/// Commits the change set to the new branch `branch`, on top of what `HEAD` is. `base` is given when the
/// project is the one that the sandbox started from.
///
/// # Errors
/// [`Code::AlreadyExists`] when there is such a branch, [`Code::InvalidArgument`] for a name git
/// does not take, [`Code::NotFound`] without a repository, a commit or an identity, and whatever
/// keeps contents from being read or git from working.
pub fn commit(
    collected: &CollectedChanges,
    project: &Path,
    base: Option<&BaseFile>,
    git: &Path,
    branch: &str,
    message: &str,
) -> Result<CommitOutcome, Fault> {
    let git = Git { program: git };
    let repository = Repository::find(project, &git)?;
    let own = OwnGitDir::make(&repository, project, git, &repository.git_dir)?;
    let reference = new_branch(&own, branch)?;
    let head = head(&own, &repository.format)?;
    let author = own.identity("GIT_AUTHOR_IDENT")?;
    let committer = own.identity("GIT_COMMITTER_IDENT")?;
    let ignored = ignored(&own, collected)?;
    let set = without(&collected.set, &ignored);
    let listing = own.run(&["ls-tree", "-r", "-z", "--full-tree", &head], b"")?;
    if !listing.status.success() {
        return Err(refused(&repository.format, &listing.stderr));
    }
    let blobs = Blobs::start(&own, &repository)?;
    let mut tree = CommitTree::new(
        &listing.stdout,
        &repository.prefix,
        blobs,
        project,
        base,
        collected,
        &set,
    )?;
    let plan = plan(&set, &mut tree, Options::default())?;
    let mut committed = CommitOutcome {
        commit: None,
        paths: 0,
        merged: merged(&plan),
        conflicts: plan.outcome.conflicts.clone(),
        ignored: ignored.into_iter().collect(),
    };
    committed.ignored.sort();
    if !plan.steps.iter().any(is_committed) {
        return Ok(committed);
    }

    let mut import = Import::start(&own, &committer)?;
    let written = import.write(|out| {
        writeln!(out, "commit {reference}")?;
        out.write_all(b"author ")?;
        out.write_all(&author)?;
        out.write_all(b"\ncommitter ")?;
        out.write_all(&committer)?;
        write!(out, "\ndata {}\n{message}\nfrom {head}\n", message.len())?;
        let writer = PlanWriter {
            collected,
            prefix: &repository.prefix,
            tree: &tree,
            plan: &plan,
        };
        writer.write(out)?;
        out.write_all(b"\ndone\n")?;
        Ok(())
    });
    if let Err(error) = written {
        let complaint_text = import.abandon();
        return Err(match error {
            // It ended before it had read everything, and says why.
            ImportError::Pipe(_) if !complaint_text.is_empty() => {
                refused(&repository.format, &complaint_text)
            }
            error => error.into_fault(),
        });
    }
    import.finish(&repository.format)?;
    let commit = own.line(&["rev-parse", "--verify", "--quiet", &reference], |text| {
        failed(&format!("git did not make the branch `{branch}`"), text)
    })?;
    committed.commit = Some(String::from_utf8_lossy(&commit).into_owned());
    committed.paths = count(&plan);
    Ok(committed)
}

/// A change set without new paths that are ignored.
fn without(set: &ChangeSet, ignored: &HashSet<RelPath>) -> ChangeSet {
    let mut changes: Vec<Change> = Vec::with_capacity(set.changes.len());
    for change in &set.changes {
        match &change.kind {
            _ if !ignored.contains(&change.path) => changes.push(change.clone()),
            ChangeKind::Renamed { source, from, .. } => changes.push(Change {
                path: source.clone(),
                kind: ChangeKind::Deleted { from: from.clone() },
                flags: Vec::new(),
            }),
            _ => {}
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    ChangeSet {
        changes,
        refused: set.refused.clone(),
    }
}

fn merged(plan: &Plan) -> Vec<AppliedChange> {
    let merged = plan.outcome.applied.iter().filter(|done| done.is_merged);
    merged.cloned().collect()
}

/// Whether a step changes something that a commit holds: it knows no directories.
const fn is_committed(step: &Step) -> bool {
    !matches!(step, Step::MakeDir { .. } | Step::RemoveDir { .. })
}

/// Files and links that a plan adds, changes or removes.
fn count(plan: &Plan) -> u64 {
    let paths: HashSet<&RelPath> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Remove { path } | Step::Write { path, .. } | Step::SetExecutable { path, .. } => {
                Some(path)
            }
            _ => None,
        })
        .collect();
    let applied = plan.outcome.applied.iter();
    let renamed = applied.filter(
        |done| matches!(&done.effect, Effect::Renamed { source } if paths.contains(source)),
    );
    (paths.len() - renamed.count()) as u64
}

/// Refuses what git takes for no name of a branch.
fn check_branch_name(own: &OwnGitDir<'_>, branch: &str) -> Result<(), Fault> {
    own.line(&["check-ref-format", "--branch", branch], |_| {
        Fault::failed(
            Code::InvalidArgument,
            format!("`{branch}` is not a name for a branch"),
        )
        .remedy("choose one like `sandbox/fix`")
    })
    .map(drop)
}

/// The full name of a new branch.
fn new_branch(own: &OwnGitDir<'_>, branch: &str) -> Result<String, Fault> {
    check_branch_name(own, branch)?;
    let reference = format!("refs/heads/{branch}");
    let there = own.run(&["show-ref", "--verify", "--quiet", &reference], b"")?;
    // A symbolic reference that leads nowhere is not shown, and would be written through.
    if there.status.success() || own.is_symbolic(&reference)? {
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
        Fault::failed(Code::NotFound, "the repository has no commit yet").remedy([
            "commit something first, or pull without ".into(),
            Setting::Branch.into(),
        ])
    })?;
    Ok(String::from_utf8_lossy(&id).into_owned())
}

/// New paths that the repository ignores.
fn ignored(own: &OwnGitDir<'_>, collected: &CollectedChanges) -> Result<HashSet<RelPath>, Fault> {
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
    .remedy([
        "fetch what is missing with `git ls-tree -r -t HEAD`, or pull without ".into(),
        Setting::Branch.into(),
    ])
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

/// Writes the steps of a plan.
struct PlanWriter<'a> {
    collected: &'a CollectedChanges,
    prefix: &'a [u8],
    tree: &'a CommitTree<'a>,
    plan: &'a Plan,
}

impl PlanWriter<'_> {
    fn write(&self, out: &mut dyn Write) -> Result<(), ImportError> {
        // In the order of the plan: what goes may be in the way of what comes.
        for step in &self.plan.steps {
            match step {
                Step::Remove { path } => {
                    out.write_all(b"D ")?;
                    out.write_all(&self.quoted(path))?;
                    out.write_all(b"\n")?;
                }
                Step::Write {
                    path, source, node, ..
                } => self.put(path, source, node, out)?,
                Step::SetExecutable {
                    path,
                    is_executable,
                } => {
                    let mode = if *is_executable { "100755" } else { "100644" };
                    if let Some(entry) = self.tree.entry(path) {
                        write!(out, "M {mode} {} ", entry.id)?;
                        out.write_all(&self.quoted(path))?;
                        out.write_all(b"\n")?;
                    }
                }
                Step::Keep { .. } | Step::MakeDir { .. } | Step::RemoveDir { .. } => {}
            }
        }
        Ok(())
    }

    fn put(
        &self,
        path: &RelPath,
        source: &RelPath,
        node: &Node,
        out: &mut dyn Write,
    ) -> Result<(), ImportError> {
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
                let reader = match self.plan.merged.get(path) {
                    Some(content) => Box::new(content.as_slice()),
                    None => self.collected.open(source).map_err(ImportError::Content)?,
                };
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
