//! Walk over the layers of a sandbox. Inspects every name once, and records the differences from
//! the host as changes.
//!
//! The layers are untrusted: depth, number and size are bounded by the quota, and directories are
//! kept on an explicit stack.

mod files;
mod ignored;

use super::layers::{LayerPaths, RESERVED_PREFIX, Trees};
use super::merge::{Base, Entry, HostEntry, LayerId, Listing, TopEntry, list};
use super::too_many::too_many_changes;
use crate::filter::{Filter, Verdict};
use crate::git::ignored::NewRules;
use crate::progress::{Progress, Watch, report};
use crate::{
    Change, ChangeKind, ChangeSet, Flag, IgnoredChanges, Node, Quota, RefusalReason, RefusedPath,
    RelPath,
};
use glovebox_proto::Fault;
use rustix::fs::FileType;
use std::collections::HashSet;

/// Number of names beyond the maximum number of changes that may be held at a time.
const SPARE_NAMES: usize = 10_000;
/// Number of paths between reports of progress.
const REPORT_EVERY: u64 = 64;

/// State of the walk over the layers.
pub(super) struct Walk<'a, 'w> {
    trees: &'a Trees,
    hidden: HashSet<Vec<u8>>,
    filter: &'a Filter,
    quota: &'a Quota,
    watch: &'a mut Watch<'w>,
    /// Changes in order; `None` for one that was withdrawn.
    changes: Vec<Option<Change>>,
    refused: Vec<RefusedPath>,
    ignored: IgnoredChanges,
    /// Ignore rules that the sandbox added, for paths below the directories visited so far.
    new_rules: NewRules,
    paths: u64,
    bytes: u64,
    /// Number of names in all directories on the stack.
    held_names: usize,
}

impl<'a, 'w> Walk<'a, 'w> {
    pub(super) fn new(
        trees: &'a Trees,
        source: &LayerPaths<'_>,
        filter: &'a Filter,
        quota: &'a Quota,
        watch: &'a mut Watch<'w>,
    ) -> Self {
        Self {
            trees,
            hidden: source
                .hidden
                .iter()
                .map(|path| std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec())
                .collect(),
            filter,
            quota,
            watch,
            changes: Vec::new(),
            refused: Vec::new(),
            ignored: IgnoredChanges::default(),
            new_rules: NewRules::default(),
            paths: 0,
            bytes: 0,
            held_names: 0,
        }
    }

    /// Walks over all layers.
    pub(super) fn run(mut self) -> Result<(ChangeSet, IgnoredChanges), Fault> {
        let base = match self.trees.project {
            Some(_) => Base::Shows,
            None => Base::Absent,
        };
        self.tree(PendingDirectory {
            path: Vec::new(),
            layers: (0..).take(self.trees.layers.len()).collect(),
            base,
            is_excluded: false,
            deletion: None,
            addition: None,
            stays_anyway: false,
        })?;
        let set = ChangeSet {
            changes: self.changes.into_iter().flatten().collect(),
            refused: self.refused,
        };
        Ok((set, self.ignored))
    }
}

/// A directory to be visited.
struct PendingDirectory {
    path: Vec<u8>,
    /// Layers that have the directory.
    layers: Vec<LayerId>,
    base: Base,
    /// True if the directory is excluded, so that only included paths below it are taken.
    is_excluded: bool,
    /// Index of the change that deletes the directory, if the sandbox removed it. The change is
    /// withdrawn if a path in the directory stays.
    deletion: Option<usize>,
    /// Index of the change that adds the directory, if the sandbox created it, and the number of
    /// paths left out before. The change is withdrawn if everything in the directory is left out.
    addition: Option<(usize, u64)>,
    /// True if the directory stays on the host whatever its content.
    stays_anyway: bool,
}

impl PendingDirectory {
    fn new(path: &RelPath, layers: Vec<LayerId>, base: Base, is_excluded: bool) -> Self {
        Self {
            path: path.as_bytes().to_vec(),
            layers,
            base,
            is_excluded,
            deletion: None,
            addition: None,
            stays_anyway: false,
        }
    }
}

/// Result of inspecting a name.
enum LookOutcome {
    /// The name is complete. True if an object of the host stays at the name.
    Done(bool),
    /// The name is a directory to be visited.
    Below(PendingDirectory),
}

/// A directory that is being visited.
struct Level {
    descent: PendingDirectory,
    entries: std::vec::IntoIter<Entry>,
    /// Number of names in the directory.
    held: usize,
    /// True if an object of the host in the directory stays.
    stays: bool,
}

impl Walk<'_, '_> {
    /// Visits all directories. Uses an explicit stack, because the sandbox controls the depth.
    fn tree(&mut self, top: PendingDirectory) -> Result<(), Fault> {
        let mut levels: Vec<Level> = Vec::new();
        let mut next = Some(top);
        loop {
            let mut settled = None;
            if let Some(descent) = next.take() {
                match self.list(&descent, levels.len())? {
                    Ok(entries) => {
                        self.read_new_rules(&descent.path, &entries);
                        self.held_names += entries.len();
                        levels.push(Level {
                            held: entries.len(),
                            entries: entries.into_iter(),
                            stays: false,
                            descent,
                        });
                    }
                    Err(stays) => settled = Some(self.settle(&descent, stays)),
                }
            } else if let Some(level) = levels.pop() {
                self.held_names -= level.held;
                settled = Some(self.settle(&level.descent, level.stays));
            }
            let Some(level) = levels.last_mut() else {
                return Ok(());
            };
            level.stays |= settled.unwrap_or(false);
            let depth = levels.len() - 1;
            while let Some(level) = levels.last_mut()
                && let Some(entry) = level.entries.next()
            {
                self.paths += 1;
                if self.paths.is_multiple_of(REPORT_EVERY) {
                    self.report()?;
                }
                let PendingDirectory {
                    path,
                    base,
                    is_excluded,
                    ..
                } = &level.descent;
                let child = join(path, &entry.name);
                match self.entry(&child, entry, *base, depth, *is_excluded)? {
                    LookOutcome::Done(stays) => level.stays |= stays,
                    LookOutcome::Below(descent) => {
                        next = Some(descent);
                        break;
                    }
                }
            }
        }
    }

    /// Lists a directory. If it cannot be visited, the inner error is true if an object of the host
    /// stays there.
    // TRUST: the sandbox controls names, depth and number; all are bounded by the quota.
    fn list(
        &mut self,
        descent: &PendingDirectory,
        depth: usize,
    ) -> Result<Result<Vec<Entry>, bool>, Fault> {
        let PendingDirectory {
            path, layers, base, ..
        } = descent;
        let is_on_host = *base != Base::Absent;
        if depth >= self.quota.max_depth {
            self.refuse(path, RefusalReason::TooDeep);
            return Ok(Err(is_on_host));
        }
        let trees = self.trees;
        // Unchanged copies may be among the names, so there may be more names than changes.
        let max_names = (self.quota.max_changes + SPARE_NAMES).saturating_sub(self.held_names);
        let project = trees.project.as_ref();
        match list(&trees.layers, layers, project, *base, path, max_names)? {
            Listing::Entries(entries) => Ok(Ok(entries)),
            Listing::Unreadable => {
                self.refuse(path, RefusalReason::Unreadable);
                Ok(Err(is_on_host))
            }
        }
    }

    /// Completes a directory. Returns true if an object of the host stays there.
    fn settle(&mut self, descent: &PendingDirectory, stays: bool) -> bool {
        if stays && let Some(at) = descent.deletion {
            self.changes[at] = None;
        }
        if let Some((at, ignored_before)) = descent.addition
            && self.ignored.paths > ignored_before
            && self.changes[at + 1..].iter().all(Option::is_none)
        {
            self.changes[at] = None;
        }
        stays || descent.stays_anyway
    }

    fn entry(
        &mut self,
        path: &[u8],
        entry: Entry,
        base: Base,
        depth: usize,
        is_excluded: bool,
    ) -> Result<LookOutcome, Fault> {
        let exists_below = entry.base.is_some();
        let is_in_layers = !matches!(entry.top, TopEntry::Nothing);
        let Ok(checked) = RelPath::new(path) else {
            self.refuse(path, RefusalReason::BadName);
            return Ok(LookOutcome::Done(exists_below));
        };
        if depth == 0 && entry.name.starts_with(RESERVED_PREFIX) {
            if is_in_layers {
                self.refuse(path, RefusalReason::Reserved);
            }
            return Ok(LookOutcome::Done(exists_below));
        }
        if super::is_git_name(&entry.name) {
            self.refuse(path, RefusalReason::Git);
            return Ok(LookOutcome::Done(exists_below));
        }
        if self.hidden.contains(path) {
            // A whiteout at a hidden path means that the sandbox created a file there and removed
            // it.
            if matches!(entry.top, TopEntry::Dir { .. } | TopEntry::Other { .. })
                || matches!(base, Base::Hidden)
            {
                self.refuse(path, RefusalReason::Excluded);
            }
            return Ok(LookOutcome::Done(exists_below));
        }
        let base_kind = entry.base.map(|look| look.kind);
        let is_dir = match &entry.top {
            TopEntry::Dir { .. } => true,
            TopEntry::Other { .. } => false,
            TopEntry::Whiteout | TopEntry::Nothing => base_kind == Some(FileType::Directory),
        };
        let verdict = self.filter.verdict(&checked, is_dir);
        let is_out = verdict != Verdict::Takes;
        if is_out {
            let is_known =
                is_excluded || (!exists_below && matches!(entry.top, TopEntry::Whiteout));
            if verdict == Verdict::Excluded && !is_known {
                self.refuse(path, RefusalReason::Excluded);
            }
            if !(is_dir && self.filter.may_take_below(&checked, verdict)) {
                if verdict == Verdict::Ignored {
                    self.leave_out(&checked, &entry);
                }
                return Ok(LookOutcome::Done(exists_below));
            }
        }
        let is_new = !exists_below && is_dir_or_other(&entry.top);
        if is_new
            && !is_out
            && self
                .filter
                .leaves_out_new(&checked, is_dir, &self.new_rules)
        {
            self.leave_out(&checked, &entry);
            self.ignored.has_new_rules = true;
            return Ok(LookOutcome::Done(false));
        }
        self.take(&checked, entry, base, is_out)
    }

    /// Reads the `.gitignore` that the layers have in a directory, unless it is hidden or left out
    /// itself.
    fn read_new_rules(&mut self, dir: &[u8], entries: &[Entry]) {
        let own = entries.iter().find(|entry| *entry.name == *b".gitignore");
        if let Some(entry) = own
            && let TopEntry::Other {
                layer,
                kind: FileType::RegularFile,
            } = entry.top
            && let Ok(path) = RelPath::new(join(dir, &entry.name))
            && !self.hidden.contains(path.as_bytes())
            && self.filter.takes(&path, false)
            && let Ok((file, _)) = self.trees.layers[usize::from(layer)].file(path.as_bytes())
        {
            self.new_rules.add(&path, file);
        }
    }

    /// Collects a path that is taken. With `is_out`, only paths below it are.
    fn take(
        &mut self,
        path: &RelPath,
        entry: Entry,
        base: Base,
        is_out: bool,
    ) -> Result<LookOutcome, Fault> {
        let below = entry.base.map(|look| look.kind);
        match entry.top {
            TopEntry::Whiteout | TopEntry::Nothing => {
                self.deleted(path, entry.base.as_ref(), is_out)
            }
            TopEntry::Dir { layers, is_opaque } => {
                let child_base = match below {
                    Some(FileType::Directory) if is_opaque || base == Base::Hidden => Base::Hidden,
                    Some(FileType::Directory) => Base::Shows,
                    _ => Base::Absent,
                };
                let mut addition = None;
                if !is_out && child_base == Base::Absent {
                    let from = self.base_node(path, entry.base.as_ref())?;
                    addition = from
                        .is_none()
                        .then_some((self.changes.len(), self.ignored.paths));
                    self.change(path, from, Some(Node::Dir), Vec::new())?;
                }
                let below = PendingDirectory::new(path, layers, child_base, is_out);
                Ok(LookOutcome::Below(PendingDirectory { addition, ..below }))
            }
            TopEntry::Other { layer, kind } => {
                let was_dir = below == Some(FileType::Directory);
                let is_taken = self.other(path, layer, kind, entry.base.as_ref())? && !is_out;
                if was_dir && is_taken {
                    let below = PendingDirectory::new(path, Vec::new(), Base::Hidden, is_out);
                    Ok(LookOutcome::Below(below))
                } else {
                    Ok(LookOutcome::Done(below.is_some() && !is_taken))
                }
            }
        }
    }

    fn deleted(
        &mut self,
        path: &RelPath,
        base: Option<&HostEntry>,
        is_out: bool,
    ) -> Result<LookOutcome, Fault> {
        let Some(look) = base else {
            // The host has removed it as well, or never had it.
            return Ok(LookOutcome::Done(false));
        };
        match self.base_node(path, Some(look))? {
            None => {
                self.refuse(path.as_bytes(), RefusalReason::Special);
                Ok(LookOutcome::Done(true))
            }
            Some(Node::Dir) => {
                let at = self.changes.len();
                if !is_out {
                    self.change(path, Some(Node::Dir), None, Vec::new())?;
                }
                let below = PendingDirectory::new(path, Vec::new(), Base::Hidden, is_out);
                Ok(LookOutcome::Below(PendingDirectory {
                    deletion: (!is_out).then_some(at),
                    stays_anyway: is_out,
                    ..below
                }))
            }
            Some(from) => {
                self.change(path, Some(from), None, Vec::new())?;
                Ok(LookOutcome::Done(false))
            }
        }
    }

    fn change(
        &mut self,
        path: &RelPath,
        from: Option<Node>,
        to: Option<Node>,
        flags: Vec<Flag>,
    ) -> Result<(), Fault> {
        let kind = match (from, to) {
            (Some(from), Some(to)) => ChangeKind::Modified { from, to },
            (Some(from), None) => ChangeKind::Deleted { from },
            (None, Some(to)) => ChangeKind::Added { to },
            (None, None) => return Ok(()),
        };
        if self.changes.len() >= self.quota.max_changes {
            let changed = self.changes.iter().flatten().map(|change| &change.path);
            return Err(too_many_changes(self.quota, changed));
        }
        let path = path.clone();
        self.changes.push(Some(Change { path, kind, flags }));
        Ok(())
    }

    fn refuse(&mut self, path: &[u8], reason: RefusalReason) {
        // The list is bounded; the first paths stand for the rest.
        if self.refused.len() < self.quota.max_changes {
            let path = path.to_vec();
            self.refused.push(RefusedPath { path, reason });
        }
    }

    fn report(&mut self) -> Result<(), Fault> {
        let (paths, bytes) = (self.paths, self.bytes);
        report(self.watch, Progress::Collecting { paths, bytes })
    }
}

const fn is_dir_or_other(top: &TopEntry) -> bool {
    matches!(top, TopEntry::Dir { .. } | TopEntry::Other { .. })
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}
