//! Detects paths that commits of a sandbox would revert although the sandbox never wrote them.
//!
//! The files of a sandbox are live: when the user switches branches, commits or edits, the changes
//! are visible inside, below the files that the sandbox wrote. `git commit -a` inside stores them
//! as well. After a switch of the branch on the host, such a commit changes the sandbox's own
//! branch to the content of the other one. This module compares the offered commit with the one
//! from which the sandbox started, with the commits at which the host's `HEAD` has been since, and
//! with the names in the layers. Nothing else in the layers is trusted.

use super::commits::{ObjectQuarantine, is_object_name};
use super::failed;
use super::repository::Repository;
use crate::RelPath;
use crate::base::CleanFiles;
use crate::beneath::Anchor;
use crate::git::{RepositoryRecord, read_seed_record};
use crate::pushed::PushedFiles;
use glovebox_proto::{Code, Fault, Setting};
use glovebox_spec::seed::HELD;
use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Maximum number of commits of the host's log that are compared.
const MAX_VISITED: usize = 20;
/// Maximum size of the end of the host's log that is read, in bytes.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Maximum number of paths that a message names.
const SHOWN: usize = 10;

/// Initial state of a sandbox's repository, and the layers that it has written since.
#[derive(Debug, Clone)]
pub struct CommitOrigin {
    /// Repository as it was when the sandbox got its copy.
    pub record: RepositoryRecord,
    /// Directory with the objects with which the sandbox started.
    pub objects: PathBuf,
    /// Layers of the workspace without the seed, newest first.
    pub layers: Vec<PathBuf>,
    /// Paths of the project that are hidden from the sandbox.
    pub hidden: Vec<PathBuf>,
    /// Base index of the sandbox; the record of pushed copies is beside it.
    pub base: PathBuf,
}

impl CommitOrigin {
    /// Returns the origin of commits in the project's own repository. `seed` is the directory of
    /// the seed, `base` the base index of the sandbox. `None` if the seed has no copy of that
    /// repository.
    pub fn of_seed(
        seed: &Path,
        layers: Vec<PathBuf>,
        hidden: Vec<PathBuf>,
        base: PathBuf,
    ) -> Option<Self> {
        let record = read_seed_record(seed)?;
        let record = record.own().filter(|own| own.problem.is_none())?.clone();
        Some(Self {
            record,
            // The project's own repository comes first.
            objects: seed.join(HELD).join("0"),
            layers,
            hidden,
            base,
        })
    }
}

/// Paths of offered commits that the sandbox never wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UnwrittenPaths {
    /// Paths that the commits would revert, or that are hidden from the sandbox.
    pub(super) held: BTreeSet<Vec<u8>>,
    /// Paths that are in the commits as the user has committed or edited them since.
    pub(super) told: BTreeSet<Vec<u8>>,
    /// Branch that is checked out on the host; `None` for a detached `HEAD`.
    host_branch: Option<String>,
}

impl UnwrittenPaths {
    /// Returns the fault that names the paths in `held`.
    pub(super) fn fault(&self, origin: &CommitOrigin) -> Fault {
        let count = self.held.len();
        let shown: Vec<_> = self
            .held
            .iter()
            .take(SHOWN)
            .map(|path| glovebox_proto::visible::line_of_text(&String::from_utf8_lossy(path)))
            .collect();
        let more = if count > SHOWN { ", ..." } else { "" };
        let paths = if count == 1 { "path" } else { "paths" };
        let own = origin.record.branch.as_deref();
        let why = match (self.host_branch.as_deref(), own) {
            (Some(host), Some(own)) if host != own => {
                format!(": you are on `{host}`, the sandbox is on `{own}`")
            }
            _ => String::new(),
        };
        let message = format!(
            "nothing taken: the commits also change {count} {paths} that the sandbox never wrote ({}{more}), because \
             your files changed under it or are hidden from it{why}",
            shown.join(", ")
        );
        let back = match own {
            Some(own) if !why.is_empty() => format!("go back to `{own}`, "),
            _ => String::new(),
        };
        // While the sandbox has a file in its caches, it sees the version before a replacement on
        // the host.
        Fault::refused(Code::Conflict, message).remedy([
            format!(
                "{back}stop and start the sandbox, and amend the commit inside, or take them as a branch of their \
                 own with "
            )
            .into(),
            Setting::Commits.of("--all"),
        ])
    }
}

/// Finds the paths of the commit `offered` that the sandbox never wrote. `incoming` has the
/// commit's objects.
///
/// # Errors
/// Any failure to run git or to read the layers.
pub(super) fn find_unwritten(
    incoming: &ObjectQuarantine<'_>,
    repository: &Repository,
    project: &Path,
    origin: &CommitOrigin,
    offered: &str,
) -> Result<UnwrittenPaths, Fault> {
    let mut found = UnwrittenPaths {
        host_branch: branch_name(&repository.head),
        ..UnwrittenPaths::default()
    };
    let host_head = incoming.object("HEAD^{commit}")?;
    let compare = Comparison { incoming, origin };
    let start = match (&origin.record.head, &host_head) {
        (Some(start), _) => start.clone(),
        // For some formats of references the seed does not know the commit.
        (None, Some(head)) => match compare.merge_base(head, offered)? {
            Some(base) => base,
            None => return Ok(found),
        },
        (None, None) => return Ok(found),
    };
    let changed = compare.paths(&start, offered)?;
    if changed.is_empty() {
        return Ok(found);
    }
    // A path that differs on another branch may have been copied up from there, so it is held
    // whoever wrote it.
    for visited in visited_commits(repository, origin, host_head.as_deref()) {
        if visited != start && compare.has(&visited)? && !compare.is_ancestor(&start, &visited)? {
            let theirs = compare.paths(&start, &visited)?;
            found.held.extend(changed.intersection(&theirs).cloned());
        }
    }
    let own_branch = origin.record.branch.as_deref();
    let reference = own_branch.map(|branch| format!("refs/heads/{branch}"));
    let moved = match reference {
        Some(reference) => incoming.object(&format!("{reference}^{{commit}}"))?,
        None => host_head,
    };
    let upstream = match moved {
        Some(moved) if compare.is_ancestor(&start, &moved)? => moved,
        _ => start.clone(),
    };
    let since = compare.paths(&upstream, offered)?;
    let layers = origin
        .layers
        .iter()
        .map(|layer| Anchor::open(layer))
        .collect::<Result<Vec<_>, _>>()?;
    let pushed = PushedFiles::read(&origin.base);
    let clean = CleanFiles::read(&repository.git_dir, project)?;
    for path in changed {
        let is_hidden = origin
            .hidden
            .iter()
            .any(|hidden| as_path(&path).starts_with(hidden));
        if is_hidden {
            found.held.insert(path);
            continue;
        }
        // Names that git compares are paths: others were left out.
        let is_written =
            RelPath::new(path.as_slice()).is_ok_and(|path| pushed.is_own(&layers, &path));
        if is_written || found.held.contains(&path) || clean.is_sparse(&path) {
            continue;
        }
        if since.contains(&path) && clean.is_clean(&path) {
            found.held.insert(path);
        } else {
            found.told.insert(path);
        }
    }
    Ok(found)
}

/// Git commands with the objects of the host, the offered ones, and those with which the sandbox
/// started.
struct Comparison<'a> {
    incoming: &'a ObjectQuarantine<'a>,
    origin: &'a CommitOrigin,
}

impl Comparison<'_> {
    /// Returns the paths that differ between two commits.
    fn paths(&self, from: &str, to: &str) -> Result<BTreeSet<Vec<u8>>, Fault> {
        let args = [
            "diff-tree",
            "-r",
            "-z",
            "--no-renames",
            "--name-only",
            from,
            to,
        ];
        let output = self.incoming.run_with(&args, b"", &self.origin.objects)?;
        if !output.status.success() {
            return Err(failed("git did not compare the commits", &output.stderr));
        }
        let names = output.stdout.split(|byte| *byte == 0);
        Ok(names
            .filter(|name| RelPath::new(*name).is_ok())
            .map(<[u8]>::to_vec)
            .collect())
    }

    fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, Fault> {
        let args = ["merge-base", "--is-ancestor", old, new];
        let output = self.incoming.run_with(&args, b"", &self.origin.objects)?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failed("git did not compare the branches", &output.stderr)),
        }
    }

    fn merge_base(&self, one: &str, other: &str) -> Result<Option<String>, Fault> {
        let args = ["merge-base", one, other];
        let output = self.incoming.run_with(&args, b"", &self.origin.objects)?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok((output.status.success() && is_object_name(&text)).then_some(text))
    }

    /// Returns true if a commit exists; one in the log may have been removed.
    fn has(&self, commit: &str) -> Result<bool, Fault> {
        let args = ["cat-file", "-e", &format!("{commit}^{{commit}}")];
        let output = self.incoming.run_with(&args, b"", &self.origin.objects)?;
        Ok(output.status.success())
    }
}

/// Returns the commits at which the host's `HEAD` has been since the seed was made, according to
/// its log, and `head`.
// TRUST: the log is untrusted; only the name of an object is read from each line.
fn visited_commits(
    repository: &Repository,
    origin: &CommitOrigin,
    head: Option<&str>,
) -> BTreeSet<String> {
    let mut commits: BTreeSet<String> = head.map(str::to_owned).into_iter().collect();
    let text = Anchor::open(&repository.git_dir).ok().and_then(|dir| {
        let (mut file, stat) = dir.file(b"logs/HEAD").ok()?;
        let begin = (stat.st_size as u64).saturating_sub(MAX_LOG_BYTES);
        file.seek(SeekFrom::Start(begin)).ok()?;
        let mut text = Vec::new();
        file.take(MAX_LOG_BYTES).read_to_end(&mut text).ok()?;
        Some(text)
    });
    let text = text.unwrap_or_default();
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let last = origin.record.last_log_line.as_deref().map(str::as_bytes);
    let begin = lines
        .iter()
        .rposition(|line| Some(*line) == last)
        .map_or(0, |at| at + 1);
    let new = lines[begin..].iter().rev().filter_map(|line| {
        let name = line.split(|byte| *byte == b' ').nth(1)?;
        let name = std::str::from_utf8(name).ok()?;
        is_object_name(name).then(|| name.to_owned())
    });
    commits.extend(new.take(MAX_VISITED));
    commits
}

/// Returns the branch that the content of a `HEAD` names; `None` if it is detached.
fn branch_name(head: &[u8]) -> Option<String> {
    let name = head.strip_prefix(b"ref: refs/heads/")?;
    Some(String::from_utf8_lossy(name).into_owned())
}

fn as_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
