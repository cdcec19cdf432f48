//! Collects the changes of a copied sandbox through its guest. The change set follows the same
//! rules as one from the layers of a native sandbox.

use super::SandboxRoot;
use super::entry::{Row, Rows, SeenEntry, SeenKind};
use super::fetch::{FetchedFile, Spool, WantedFile, fetch};
use super::manifest::{FileSide, Line, Lines, Sameness};
use super::scan::{SandboxList, list};
use super::spool::Reader;
use crate::beneath::{Anchor, io};
use crate::collect::{
    BaseTree, RESERVED_PREFIX, complete, is_git_name, named_by_file, too_many_changes,
};
use crate::filter::Verdict;
use crate::git::ignored::NewRules;
use crate::progress::{Progress, Watch, report};
use crate::{
    Change, ChangeKind, ChangeSet, CollectedChanges, Contents, Digest, Filter, Flag,
    IgnoredChanges, Node, Quota, RefusalReason, RefusedPath, RelPath, Stage, SyncError,
};
use glovebox_proto::{Class, Code, Fault};
use glovebox_sandbox::FrozenCommands;
use rustix::fs::FileType;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of entries of a sandbox's directory that are listed.
const MAX_ENTRIES: u64 = 4_000_000;
/// Number of paths beyond the maximum number of changes that may be inspected, because they may
/// turn out to be unchanged.
const SPARE_PATHS: usize = 100_000;

/// States with which a sandbox's directory is compared.
#[derive(Debug, Clone, Copy)]
pub struct CopyInputs<'a> {
    /// Manifest of the last push; `None` if nothing was ever pushed there.
    pub manifest: Option<&'a Path>,
    /// The host's directory from which the sandbox was pushed, or to which the changes go; `None`
    /// if there is none.
    pub project: Option<&'a Path>,
    /// Relative paths that were hidden from the sandbox.
    pub hidden: &'a [PathBuf],
    /// Relative paths of git directories that were sent apart from the project. They are never
    /// collected as files.
    pub git_dirs: &'a [PathBuf],
    /// Private directory for fetched contents.
    pub spool_dir: &'a Path,
}

/// Collects and fetches the changes of a sandbox. The processes of its commands are frozen
/// meanwhile; if they cannot be, the result has the reason.
///
/// # Errors
/// [`Code::TooLarge`] if the changes exceed `quota`, [`Code::Cancelled`] if `watch` stops the
/// operation, faults of the guest, and any error of reading the project.
pub fn collect(
    place: &SandboxRoot<'_>,
    source: &CopyInputs<'_>,
    filter: &Filter,
    quota: &Quota,
    watch: &mut Watch<'_>,
) -> Result<CollectedChanges, SyncError> {
    let failed = |fault| SyncError::pull(Stage::Collect, fault);
    // Without a freeze before the listing, files that belong together could be collected from
    // different moments.
    let (held, mut unheld) = match place.sandbox.freeze_commands() {
        Ok(held) => (Some(held), None),
        Err(fault) if fault.class == Class::Lost => return Err(failed(fault)),
        Err(fault) => (None, Some(fault)),
    };
    let inside = list(
        place,
        MAX_ENTRIES,
        quota.max_depth,
        source.spool_dir,
        &mut |paths| report(watch, Progress::Collecting { paths, bytes: 0 }),
    )
    .map_err(failed)?;
    let mut compared = compare(source, filter, quota, inside).map_err(failed)?;
    let spool = Spool::create(source.spool_dir).map_err(failed)?;
    let transfer = |fault| SyncError::pull(Stage::Transfer, fault);
    leave_out_new(place, source, filter, quota, &spool, &mut compared).map_err(transfer)?;
    let wanted: Vec<WantedFile<'_>> = compared
        .touched
        .iter()
        .filter(|touched| touched.inside.as_ref().is_some_and(SeenEntry::is_file))
        .map(|touched| WantedFile {
            path: &touched.path,
            known: touched.base.as_ref().and_then(Line::digest),
        })
        .collect();
    let paths = compared.touched.len() as u64;
    let fetched = fetch(place, &wanted, &spool, quota.max_bytes, &mut |bytes| {
        report(watch, Progress::Collecting { paths, bytes })
    })
    .map_err(transfer)?;
    // All contents are on the host now, so the commands continue while they are compared.
    if let Some(Err(fault)) = held.map(FrozenCommands::release) {
        if fault.class == Class::Lost {
            return Err(transfer(fault));
        }
        unheld = Some(fault);
    }
    let anchor = source
        .project
        .map(Anchor::open)
        .transpose()
        .map_err(failed)?;
    let mut contents = CopyContents {
        spool,
        digests: HashMap::new(),
        links: compared.links,
        git_dir: anchor.as_ref().and_then(named_by_file),
        project: anchor,
    };
    let mut builder = Builder {
        contents: &mut contents,
        stays: &compared.stays,
        set: ChangeSet {
            changes: Vec::new(),
            refused: compared.refused,
        },
        quota,
    };
    let mut fetched = fetched.into_iter();
    for touched in compared.touched {
        let is_file = touched.inside.as_ref().is_some_and(SeenEntry::is_file);
        let fetched = if is_file { fetched.next() } else { None };
        builder.add(touched, fetched).map_err(failed)?;
    }
    let mut set = builder.set;
    set.refused.sort_by(|a, b| a.path.cmp(&b.path));
    complete(&mut set, &contents, &contents);
    let mut collected = CollectedChanges::new(set, Box::new(contents));
    collected.unheld = unheld;
    collected.ignored = compared.ignored;
    Ok(collected)
}

/// A path that differs from the last push, or may differ.
#[derive(Debug)]
struct TouchedPath {
    path: RelPath,
    base: Option<Line>,
    inside: Option<SeenEntry>,
}

/// Result of comparing the lists.
struct ListComparison {
    touched: Vec<TouchedPath>,
    refused: Vec<RefusedPath>,
    ignored: IgnoredChanges,
    /// Paths that stay, and with them the directories above.
    stays: BTreeSet<RelPath>,
    /// Links that are unchanged since the push.
    links: BTreeMap<RelPath, Vec<u8>>,
}

/// A part of the tree that is not compared in detail.
struct SkippedTree {
    path: RelPath,
    /// Reason for refusing the part, taken when the first change in it is found.
    reason: Option<RefusalReason>,
}

/// Removes paths that the host does not have and that a `.gitignore` of the change set covers.
fn leave_out_new(
    place: &SandboxRoot<'_>,
    source: &CopyInputs<'_>,
    filter: &Filter,
    quota: &Quota,
    spool: &Spool,
    compared: &mut ListComparison,
) -> Result<(), Fault> {
    let is_rules = |touched: &&TouchedPath| {
        let is_file = touched.inside.as_ref().is_some_and(SeenEntry::is_file);
        is_file && NewRules::is_name(&touched.path)
    };
    let wanted: Vec<WantedFile<'_>> = compared
        .touched
        .iter()
        .filter(is_rules)
        .map(|touched| WantedFile {
            path: &touched.path,
            known: None,
        })
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let fetched = fetch(place, &wanted, spool, quota.max_bytes, &mut |_| Ok(()))?;
    let mut new = NewRules::default();
    for (wanted, found) in wanted.iter().zip(fetched) {
        if let FetchedFile::File { digest, .. } = found {
            new.add(wanted.path, spool.open(&digest)?);
        }
    }
    let project = source.project.map(Anchor::open).transpose()?;
    let is_on_host = |path: &RelPath| {
        let stat = |project: &Anchor| project.stat(path.as_bytes()).is_ok();
        project.as_ref().is_some_and(stat)
    };
    let mut top: Option<RelPath> = None;
    let ListComparison {
        touched, ignored, ..
    } = compared;
    let mut emptied: BTreeSet<RelPath> = BTreeSet::new();
    touched.retain(|touched| {
        let Some(inside) = touched.inside.as_ref().filter(|_| touched.base.is_none()) else {
            return true;
        };
        let path = &touched.path;
        if !filter.leaves_out_new(path, inside.is_dir(), &new) || is_on_host(path) {
            return true;
        }
        if top.as_ref().is_none_or(|top| !path.starts_with(top)) {
            top = Some(path.clone());
        }
        if !inside.is_dir() {
            let bytes = if inside.is_file() {
                inside.signature.size
            } else {
                0
            };
            ignored.add(top.as_ref().unwrap_or(path), 1, bytes);
        }
        ignored.has_new_rules = true;
        emptied.extend(path.parent());
        false
    });
    // A new directory that has no other content is no change, and neither is one that has only such
    // directories. Paths come in the order of a walk, so the content of a directory follows it.
    let mut kept: Vec<TouchedPath> = Vec::with_capacity(touched.len());
    for next in std::mem::take(touched).into_iter().rev() {
        let is_new_dir = next.base.is_none() && next.inside.as_ref().is_some_and(SeenEntry::is_dir);
        let holds_kept = kept
            .last()
            .is_some_and(|last| last.path.starts_with(&next.path));
        if is_new_dir && emptied.contains(&next.path) && !holds_kept {
            emptied.extend(next.path.parent());
        } else {
            kept.push(next);
        }
    }
    kept.reverse();
    *touched = kept;
    Ok(())
}

struct Comparison<'a> {
    filter: &'a Filter,
    quota: &'a Quota,
    hidden: HashSet<&'a [u8]>,
    git_dirs: HashSet<&'a [u8]>,
    has_project: bool,
    apart: Option<SkippedTree>,
    /// Topmost excluded directory, and whether its refusal has been recorded.
    excluded: Option<(RelPath, bool)>,
    /// Topmost directory that the project ignores.
    ignored: Option<RelPath>,
    found: ListComparison,
}

fn compare(
    source: &CopyInputs<'_>,
    filter: &Filter,
    quota: &Quota,
    inside: SandboxList,
) -> Result<ListComparison, Fault> {
    let mut rows = Rows {
        base: match source.manifest {
            Some(manifest) => Lines::open(manifest)?,
            None => Lines::none(),
        },
        host: Reader::empty(),
        inside: inside.seen.read(),
    };
    let hidden = source.hidden.iter().map(|path| path.as_os_str().as_bytes());
    let stays = source
        .hidden
        .iter()
        .filter_map(|path| RelPath::new(path.as_os_str().as_bytes()).ok());
    let git_dirs = source.git_dirs.iter();
    let mut comparison = Comparison {
        filter,
        quota,
        hidden: hidden.collect(),
        git_dirs: git_dirs.map(|path| path.as_os_str().as_bytes()).collect(),
        has_project: source.project.is_some(),
        apart: None,
        excluded: None,
        ignored: None,
        found: ListComparison {
            touched: Vec::new(),
            refused: inside.refused,
            ignored: IgnoredChanges::default(),
            stays: stays.collect(),
            links: BTreeMap::new(),
        },
    };
    while let Some(row) = rows.next()? {
        comparison.row(row)?;
    }
    Ok(comparison.found)
}

impl Comparison<'_> {
    fn row(&mut self, row: Row) -> Result<(), Fault> {
        let Row {
            path, base, inside, ..
        } = row;
        let same = match (&base, &inside) {
            (Some(line), Some(seen)) => line.compare(seen, FileSide::Inside),
            (None, None) => Sameness::Yes,
            _ => Sameness::No,
        };
        if self
            .apart
            .as_ref()
            .is_some_and(|apart| path.starts_with(&apart.path))
        {
            self.note_apart(same);
            return Ok(());
        }
        self.apart = None;
        if self.git_dirs.contains(path.as_bytes()) {
            self.found.stays.insert(path.clone());
            self.apart = Some(SkippedTree { path, reason: None });
            return Ok(());
        }
        if let Some(reason) = self.reason_apart(&path, inside.as_ref()) {
            let is_hidden = self.hidden.contains(path.as_bytes());
            // In a directory that was never pushed, every object is the sandbox's own.
            let is_said = is_hidden || reason == RefusalReason::Reserved;
            self.found.stays.insert(path.clone());
            self.apart = Some(SkippedTree {
                path,
                reason: Some(reason),
            });
            let is_odd = inside
                .as_ref()
                .is_some_and(|seen| matches!(seen.kind, SeenKind::Special | SeenKind::Missed(_)));
            self.note_apart(if is_odd || (is_said && inside.is_some()) {
                Sameness::No
            } else {
                same
            });
            return Ok(());
        }
        if let (Some(line), false) = (&base, self.has_project)
            && let Node::Link { target } = line.node()
        {
            self.found.links.insert(path.clone(), target);
        }
        let is_dir = match (&inside, &base) {
            (Some(seen), _) => seen.is_dir(),
            (None, Some(line)) => line.node() == Node::Dir,
            (None, None) => false,
        };
        match self.filter.verdict(&path, is_dir) {
            Verdict::Takes => {}
            Verdict::Excluded => {
                self.exclude(path, same != Sameness::Yes);
                return Ok(());
            }
            Verdict::Ignored => {
                let bytes = inside.as_ref().filter(|seen| seen.is_file());
                let bytes = bytes.map_or(0, |seen| seen.signature.size);
                self.leave_out(path, is_dir, same != Sameness::Yes, bytes);
                return Ok(());
            }
        }
        if same != Sameness::Yes {
            if self.found.touched.len() >= self.quota.max_changes + SPARE_PATHS {
                let changed = self.found.touched.iter().map(|touched| &touched.path);
                return Err(too_many_changes(self.quota, changed));
            }
            self.found.touched.push(TouchedPath { path, base, inside });
        }
        Ok(())
    }

    /// Returns the reason for which a part of the tree is not taken at all; `None` if it may be.
    fn reason_apart(&self, path: &RelPath, inside: Option<&SeenEntry>) -> Option<RefusalReason> {
        if path.parent().is_none() && path.name().starts_with(RESERVED_PREFIX) {
            return Some(RefusalReason::Reserved);
        }
        if is_git_name(path.name()) {
            return Some(RefusalReason::Git);
        }
        if self.hidden.contains(path.as_bytes()) {
            return Some(RefusalReason::Excluded);
        }
        match inside?.kind {
            SeenKind::Special => Some(RefusalReason::Special),
            SeenKind::Missed(Code::TooLarge) => Some(RefusalReason::TooDeep),
            SeenKind::Missed(_) => Some(RefusalReason::Unreadable),
            _ => None,
        }
    }

    /// Refuses the part that is not compared, once, if a path in it certainly changed.
    fn note_apart(&mut self, same: Sameness) {
        if same != Sameness::No {
            return;
        }
        if let Some(apart) = &mut self.apart
            && let Some(reason) = apart.reason.take()
        {
            let path = apart.path.clone();
            self.refuse(&path, reason);
        }
    }

    fn exclude(&mut self, path: RelPath, is_changed: bool) {
        let is_below = self
            .excluded
            .as_ref()
            .is_some_and(|(top, _)| path.starts_with(top));
        self.found.stays.insert(path.clone());
        if !is_below {
            self.excluded = Some((path, false));
        }
        if is_changed
            && let Some((top, is_said)) = &mut self.excluded
            && !std::mem::replace(is_said, true)
        {
            let top = top.clone();
            self.refuse(&top, RefusalReason::Excluded);
        }
    }

    /// Counts a path that the project ignores.
    fn leave_out(&mut self, path: RelPath, is_dir: bool, is_changed: bool, bytes: u64) {
        let is_below = self
            .ignored
            .as_ref()
            .is_some_and(|top| path.starts_with(top));
        if !is_below {
            self.ignored = Some(path.clone());
        }
        if is_changed
            && !is_dir
            && let Some(top) = &self.ignored
        {
            self.found.ignored.add(top, 1, bytes);
        }
        self.found.stays.insert(path);
    }

    fn refuse(&mut self, path: &RelPath, reason: RefusalReason) {
        // The list is bounded; the first paths stand for the rest.
        if self.found.refused.len() < self.quota.max_changes {
            self.found.refused.push(RefusedPath {
                path: path.as_bytes().to_vec(),
                reason,
            });
        }
    }
}

struct Builder<'a> {
    contents: &'a mut CopyContents,
    stays: &'a BTreeSet<RelPath>,
    set: ChangeSet,
    quota: &'a Quota,
}

impl Builder<'_> {
    fn add(&mut self, touched: TouchedPath, fetched: Option<FetchedFile>) -> Result<(), Fault> {
        let TouchedPath { path, base, inside } = touched;
        let mut flags = Vec::new();
        let to = match (&inside, fetched) {
            (None, _) => None,
            (Some(seen), Some(fetched)) => {
                let is_executable = seen.signature.is_executable();
                if seen.signature.permissions & 0o7000 != 0 {
                    flags.push(Flag::SpecialMode);
                }
                if seen.kind == (SeenKind::File { is_linked: true }) {
                    flags.push(Flag::HardLink);
                }
                match fetched {
                    FetchedFile::Same => base.as_ref().map(Line::node).map(|node| match node {
                        Node::File { size, digest, .. } => Node::File {
                            size,
                            is_executable,
                            digest,
                        },
                        other => other,
                    }),
                    FetchedFile::File { size, digest } => {
                        self.contents.digests.insert(path.clone(), digest);
                        Some(Node::File {
                            size,
                            is_executable,
                            digest: Some(digest),
                        })
                    }
                    // The file was removed during the collection: the next pull sees the deletion.
                    // A torn file has been refused before this is called.
                    FetchedFile::Gone | FetchedFile::Torn => return Ok(()),
                    FetchedFile::Refused(reason) => {
                        self.set.refused.push(RefusedPath {
                            path: path.as_bytes().to_vec(),
                            reason,
                        });
                        return Ok(());
                    }
                }
            }
            (Some(seen), None) => match &seen.kind {
                SeenKind::Link { target } => Some(Node::Link {
                    target: target.to_vec(),
                }),
                _ => Some(Node::Dir),
            },
        };
        let pushed = base.as_ref().map(Line::node);
        if to == pushed {
            return Ok(());
        }
        let mut from = self.contents.before(&path, pushed, to.as_ref())?;
        if from == to {
            return Ok(());
        }
        if to.is_none() && from == Some(Node::Dir) && self.something_stays_in(&path) {
            return Ok(());
        }
        if let (Some(Node::File { digest: was, .. }), Some(Node::File { digest: is, .. })) =
            (&mut from, &to)
            && was != is
            && self.contents.project.is_some()
        {
            // The contents are known to differ, so they need not be compared again.
            *was = None;
        }
        let kind = match (from, to) {
            (Some(from), Some(to)) => ChangeKind::Modified { from, to },
            (Some(from), None) => ChangeKind::Deleted { from },
            (None, Some(to)) => ChangeKind::Added { to },
            (None, None) => return Ok(()),
        };
        if self.set.changes.len() >= self.quota.max_changes {
            let changed = self.set.changes.iter().map(|change| &change.path);
            return Err(too_many_changes(self.quota, changed));
        }
        self.set.changes.push(Change { path, kind, flags });
        Ok(())
    }

    fn something_stays_in(&self, dir: &RelPath) -> bool {
        let next = self.stays.range(dir.clone()..).next();
        next.is_some_and(|path| path.starts_with(dir))
    }
}

/// Fetched contents, and those of the host.
struct CopyContents {
    spool: Spool,
    digests: HashMap<RelPath, Digest>,
    links: BTreeMap<RelPath, Vec<u8>>,
    project: Option<Anchor>,
    git_dir: Option<RelPath>,
}

impl CopyContents {
    /// Returns the host's node at a path; without a project, the pushed one.
    fn before(
        &self,
        path: &RelPath,
        pushed: Option<Node>,
        to: Option<&Node>,
    ) -> Result<Option<Node>, Fault> {
        let Some(project) = &self.project else {
            return Ok(pushed);
        };
        let Ok(stat) = project.stat(path.as_bytes()) else {
            return Ok(None);
        };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Some(Node::Dir),
            FileType::Symlink => project
                .link(path.as_bytes())
                .ok()
                .map(|target| Node::Link { target }),
            FileType::RegularFile => {
                let size = stat.st_size as u64;
                let is_as_long =
                    matches!(to, Some(Node::File { size: theirs, .. }) if *theirs == size);
                Some(Node::File {
                    size,
                    is_executable: stat.st_mode & 0o100 != 0,
                    digest: if is_as_long {
                        project.digest(path.as_bytes(), size)?
                    } else {
                        None
                    },
                })
            }
            _ => None,
        })
    }
}

impl Contents for CopyContents {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        match self.digests.get(path) {
            Some(digest) => Ok(Box::new(self.spool.open(digest)?)),
            // Only the mode changed, so the content is the host's.
            None => self.open_base(path),
        }
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        let opened = match &self.project {
            Some(project) => project.file(path.as_bytes()),
            None => Err(rustix::io::Errno::NOENT),
        };
        match opened {
            Ok((file, _)) => Ok(Box::new(file)),
            Err(errno) => Err(io("read the host's version of", path.as_path(), errno)),
        }
    }
}

impl BaseTree for CopyContents {
    fn link(&self, path: &RelPath) -> Option<Vec<u8>> {
        match &self.project {
            Some(project) => project.link(path.as_bytes()).ok(),
            None => self.links.get(path).cloned(),
        }
    }

    fn holds(&self, path: &RelPath) -> bool {
        let project = self.project.as_ref();
        project.is_some_and(|project| project.stat(path.as_bytes()).is_ok())
    }

    fn git_dir(&self) -> Option<&RelPath> {
        self.git_dir.as_ref()
    }
}
