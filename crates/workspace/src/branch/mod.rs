//! Makes one commit of a change set, on a new branch of the host's repository.
//!
//! Input: collected changes, the host's repository and a git that may run its filters
//! ([`CommitBuilder`]). Output: a commit on top of `HEAD` with the sandbox's changes only. They are
//! planned onto the tree of `HEAD` as a pull plans them onto the project, so the user's commits and
//! edits since stay. Files are compared in the form of the working tree, and stored as `git add`
//! does. The working tree, the index and all other branches stay unchanged. On the host, the
//! repository's configuration is not applied (see [`git`]). Files that the repository ignores are
//! left out, as with `git add`.

mod builder;
mod changed;
mod commits;
mod git;
mod held;
mod large_files;
mod layout;
mod objects;
mod repository;
mod sent;
mod tree;

pub use builder::{CommitBuilder, CommitDraft};
pub use changed::{changed_repositories, find_layer_tips};
pub use commits::{HostRepository, OfferedCommit, TakenCommits, is_object_name};
pub use held::CommitOrigin;
pub use large_files::NewLargeFile;
pub(crate) use objects::Blobs;
pub use sent::{SentRepositories, build_sent};

use crate::base::BaseFile;
use crate::contents::{changed, unreadable};
use crate::{
    AppliedChange, Change, ChangeKind, ChangeSet, CollectedChanges, Conflict, Digest, Effect, Node,
    Options, Plan, RelPath, Step, plan,
};
use git::OwnGitDir;
use glovebox_proto::{Code, Fault, Setting};
use repository::Format;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use tree::CommitTree;

/// Result of making the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOutcome {
    /// Name of the commit; `None` if there was nothing to commit, and no branch was created.
    pub commit: Option<String>,
    /// Number of files and links that it adds, changes or removes.
    pub paths: u64,
    /// Paths where the sandbox's changes conflict with the committed version: the commit leaves
    /// those unchanged, and has the sandbox's version beside them.
    pub conflicts: Vec<Conflict>,
    /// Paths with changes of both sides.
    pub merged: Vec<AppliedChange>,
    /// New paths that were left out because the repository ignores them.
    pub ignored: Vec<RelPath>,
}

/// Commits the change set to the new branch `branch`, on top of `HEAD`. `base` is given if the
/// project is the one from which the sandbox started; `builder` stores the files.
///
/// # Errors
/// [`Code::AlreadyExists`] if the branch exists; [`Code::InvalidArgument`] for a name that git does
/// not accept; [`Code::NotFound`] without a repository, a commit or an identity; and any failure to
/// read contents or to run git.
pub fn commit(
    collected: &CollectedChanges,
    base: Option<&BaseFile>,
    host: &HostRepository<'_>,
    builder: &mut dyn CommitBuilder,
    branch: &str,
    message: &str,
) -> Result<CommitOutcome, Fault> {
    let repository = &host.repository;
    let own = host.make_git_dir()?;
    require_new(&own, branch)?;
    let head = head(&own, &repository.format)?;
    let author = own.identity("GIT_AUTHOR_IDENT")?;
    let committer = own.identity("GIT_COMMITTER_IDENT")?;
    let ignored = ignored(&own, collected)?;
    let set = without(&collected.set, &ignored);
    let listing = own.run(&["ls-tree", "-r", "-z", "--full-tree", &head], b"")?;
    if !listing.status.success() {
        return Err(refused(&repository.format, &listing.stderr));
    }
    let blobs = Blobs::start(&own, repository)?;
    let mut tree = CommitTree::new(
        &listing.stdout,
        &repository.prefix,
        blobs,
        host.project,
        base,
        collected,
        &set,
    )?;
    // The sandbox's files have the form of a working tree, so they are compared with that form.
    let wanted = tree.files_of(&set, &repository.prefix);
    tree.show_as(builder.check_out(&head, &wanted)?, &repository.prefix);
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

    let mut draft = CommitDraft {
        parent: &head,
        removed: Vec::new(),
        kept: Vec::new(),
        links: Vec::new(),
        written: Vec::new(),
        author: &author,
        committer: &committer,
        message,
        known: vec![head.clone()],
    };
    let writer = PlanWriter {
        collected,
        prefix: &host.repository.prefix,
        tree: &tree,
        plan: &plan,
    };
    writer.write(builder, &mut draft)?;
    let Some(offer) = builder.commit(&draft)? else {
        return Ok(committed);
    };
    // Filters ran in a sandbox, so the objects are checked before they are taken.
    let taken = host.take_commits(&offer, std::slice::from_ref(&branch.to_owned()), None)?;
    committed.commit = Some(taken.commit);
    committed.paths = count(&plan);
    Ok(committed)
}

/// Returns the change set without new paths that are ignored.
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

/// Returns true if a step changes a path that a commit stores, which is not the case for
/// directories.
const fn is_committed(step: &Step) -> bool {
    !matches!(step, Step::MakeDir { .. } | Step::RemoveDir { .. })
}

/// Returns the number of files and links that a plan adds, changes or removes. A rename counts
/// once.
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

/// Refuses a name that git does not accept for a branch.
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

/// Refuses an existing branch, or an invalid name.
fn require_new(own: &OwnGitDir<'_>, branch: &str) -> Result<(), Fault> {
    check_branch_name(own, branch)?;
    let reference = format!("refs/heads/{branch}");
    let there = own.run(&["show-ref", "--verify", "--quiet", &reference], b"")?;
    // `show-ref` does not report a dangling symbolic reference, and writing to it would create its
    // target.
    if there.status.success() || own.is_symbolic(&reference)? {
        return Err(Fault::failed(
            Code::AlreadyExists,
            format!("there is a branch `{branch}` already"),
        )
        .remedy(format!(
            "choose another name, or remove it with `git branch -D {branch}`"
        )));
    }
    Ok(())
}

/// Returns the commit that is checked out.
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

/// Returns the new paths that the repository ignores.
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
    // Git refuses paths below a link of the host; then nothing is left out.
    let found = own.ignored(&list)?;
    let names = found.split(|byte| *byte == 0);
    Ok(names.filter_map(|name| RelPath::new(name).ok()).collect())
}

/// Returns the fault for an error of git while making the commit.
fn refused(format: &Format, complaint_text: &[u8]) -> Fault {
    if format.is_partial {
        missing(complaint_text)
    } else {
        failed("git refused the commit", complaint_text)
    }
}

/// Splits `Name <address> time zone` into name and address.
fn name_and_address(identity: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = identity.iter().position(|byte| *byte == b'<')?;
    let end = identity.iter().position(|byte| *byte == b'>')?;
    Some((
        identity[..start].trim_ascii(),
        identity.get(start + 1..end)?,
    ))
}

/// Returns the fault for objects that a partial clone lacks; nothing is fetched here.
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

/// Writes the files of a plan into the new working tree, and collects the other parts of the
/// commit.
struct PlanWriter<'a> {
    collected: &'a CollectedChanges,
    prefix: &'a [u8],
    tree: &'a CommitTree<'a>,
    plan: &'a Plan,
}

impl PlanWriter<'_> {
    fn write(
        &self,
        builder: &mut dyn CommitBuilder,
        draft: &mut CommitDraft<'_>,
    ) -> Result<(), Fault> {
        for step in &self.plan.steps {
            match step {
                Step::Remove { path } => draft.removed.push(self.whole(path)),
                Step::Write {
                    path, source, node, ..
                } => self.put(path, source, node, builder, draft)?,
                Step::SetExecutable {
                    path,
                    is_executable,
                } => {
                    let mode = if *is_executable { "100755" } else { "100644" };
                    if let Some(entry) = self.tree.entry(path) {
                        let kept = (mode, entry.id.clone(), self.whole(path));
                        draft.kept.push(kept);
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
        builder: &mut dyn CommitBuilder,
        draft: &mut CommitDraft<'_>,
    ) -> Result<(), Fault> {
        let whole = self.whole(path);
        match node {
            Node::Dir => Ok(()),
            Node::Link { target } => {
                draft.links.push((whole, target.clone()));
                Ok(())
            }
            Node::File {
                size,
                is_executable,
                digest,
            } => {
                let content: Box<dyn Read> = match self.plan.merged.get(path) {
                    Some(content) => Box::new(content.as_slice()),
                    None => self.collected.open(source)?,
                };
                // TRUST: exactly the announced number of bytes is committed, and the digest must
                // match the collected one.
                let mut content = ExactContent::new(content, *size);
                let written = builder.write(&whole, *is_executable, &mut content);
                if let Some(error) = &content.error {
                    return Err(unreadable(path, error));
                }
                written?;
                if !content.is_whole(*digest) {
                    return Err(changed(path));
                }
                draft.written.push(whole);
                Ok(())
            }
        }
    }

    /// Returns a path relative to the top of the working tree.
    fn whole(&self, path: &RelPath) -> Vec<u8> {
        [self.prefix, path.as_bytes()].concat()
    }
}

/// Reader of a content of known length that computes its digest.
struct ExactContent<'a> {
    content: std::io::Take<Box<dyn Read + 'a>>,
    hasher: blake3::Hasher,
    /// First error of reading; `None` if there was none.
    error: Option<io::Error>,
}

impl<'a> ExactContent<'a> {
    fn new(content: Box<dyn Read + 'a>, size: u64) -> Self {
        Self {
            content: content.take(size),
            hasher: blake3::Hasher::new(),
            error: None,
        }
    }

    /// Returns true if the whole content was read and matches what was collected.
    fn is_whole(&self, digest: Option<Digest>) -> bool {
        let is_same = digest.is_none_or(|digest| digest == *self.hasher.finalize().as_bytes());
        self.content.limit() == 0 && is_same
    }
}

impl Read for ExactContent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.content.read(buffer) {
            Ok(count) => {
                self.hasher.update(&buffer[..count]);
                Ok(count)
            }
            Err(error) => {
                let kind = error.kind();
                self.error = Some(error);
                Err(kind.into())
            }
        }
    }
}

fn failed(what: &str, complaint_text: &[u8]) -> Fault {
    Fault::failed(Code::Io, format!("{what}: {}", complaint(complaint_text)))
}

/// Returns the last line of git's error output, which has the reason.
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
