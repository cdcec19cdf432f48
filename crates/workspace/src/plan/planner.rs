//! The planner. It decides removals first, then additions, then the parent directories that these
//! need.

use super::{Host, HostChange, HostNode, HostState, Options, Plan, Resolution, Step};
use crate::outcome::{
    AppliedChange, Conflict, ConflictReason, Effect, FlaggedChange, Outcome, UnplacedReason,
};
use crate::{Change, ChangeKind, ChangeSet, Node, RefusalReason, RefusedPath, RelPath};
use glovebox_proto::Fault;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Maximum total size of merged contents, in bytes. Once it is reached, further files become
/// conflicts.
const MAX_MERGED_BYTES: usize = 256 << 20;

pub(super) fn plan(set: &ChangeSet, host: &mut dyn Host, options: Options) -> Result<Plan, Fault> {
    let folds_case = host.folds_case();
    let mut planner = Planner {
        host,
        options,
        folds_case,
        vacated: HashSet::new(),
        taken: HashSet::new(),
        gone: HashSet::new(),
        made: BTreeSet::new(),
        beside: BTreeMap::new(),
        steps: Steps::default(),
        merged: BTreeMap::new(),
        merged_bytes: 0,
        bases: BTreeMap::new(),
        renamed: HashMap::new(),
        settled: Vec::new(),
        outcome: Outcome {
            refused: set.refused.clone(),
            ..Outcome::default()
        },
    };
    let mut halves = planner.halves(set);
    let carried = planner.carry_edits(set)?;
    halves.retain(|half| !carried.contains(half.path));
    let arriving = halves.iter().filter(|half| half.to.is_some());
    planner.taken = arriving.map(|half| half.path.clone()).collect();
    // Removals are decided first and from the bottom up, because they make room for additions.
    for half in halves.iter().rev().filter(|half| half.to.is_none()) {
        planner.remove(half)?;
    }
    for half in halves.iter().filter(|half| half.to.is_some()) {
        planner.put(half)?;
    }
    Ok(planner.finish(set))
}

/// Effect of a change on one path. A rename has two.
struct PathChange<'a> {
    path: &'a RelPath,
    from: Option<&'a Node>,
    to: Option<&'a Node>,
}

/// Steps by kind. The fields stand in the order in which the steps are taken.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) keeps: Vec<Step>,
    /// From the bottom up.
    pub(super) removes: Vec<Step>,
    /// From the bottom up.
    remove_dirs: Vec<Step>,
    make_dirs: BTreeSet<RelPath>,
    writes: Vec<Step>,
    pub(super) modes: Vec<Step>,
}

pub(super) struct Planner<'a> {
    pub(super) host: &'a mut dyn Host,
    pub(super) options: Options,
    /// True if the destination treats names that differ only in case as one.
    pub(super) folds_case: bool,
    /// If the destination folds case, the folded names of `gone`.
    vacated: HashSet<Vec<u8>>,
    /// Names that this plan writes.
    pub(super) taken: HashSet<RelPath>,
    /// Paths that this plan vacates.
    pub(super) gone: HashSet<RelPath>,
    /// Paths that become directories.
    pub(super) made: BTreeSet<RelPath>,
    /// Stand-ins of directories that cannot be made, by the directory.
    pub(super) beside: BTreeMap<RelPath, RelPath>,
    pub(super) steps: Steps,
    pub(super) merged: BTreeMap<RelPath, Vec<u8>>,
    pub(super) merged_bytes: usize,
    pub(super) bases: BTreeMap<RelPath, Vec<u8>>,
    /// Sources of renames whose edit on the host could not be carried over, with the paths of the
    /// sandbox's files.
    pub(super) renamed: HashMap<RelPath, RelPath>,
    settled: Vec<RelPath>,
    pub(super) outcome: Outcome,
}

impl Planner<'_> {
    /// Splits changes into their effects on single paths. Refuses changes whose names the
    /// destination could not tell apart.
    fn halves<'a>(&mut self, set: &'a ChangeSet) -> Vec<PathChange<'a>> {
        let mut halves = Vec::with_capacity(set.changes.len());
        let mut folded: HashMap<Vec<u8>, &RelPath> = HashMap::new();
        let mut collided: Option<&RelPath> = None;
        for Change { path, kind, .. } in &set.changes {
            let (from, to) = match kind {
                ChangeKind::Added { to } => (None, Some(to)),
                ChangeKind::Modified { from, to } => (Some(from), Some(to)),
                ChangeKind::Deleted { from } => (Some(from), None),
                ChangeKind::Renamed { source, from, to } => {
                    halves.push(PathChange {
                        path: source,
                        from: Some(from),
                        to: None,
                    });
                    (None, Some(to))
                }
            };
            if self.folds_case && to.is_some() {
                let is_below = collided.is_some_and(|other| path.starts_with(other));
                let first = *folded.entry(path.folded()).or_insert(path);
                if is_below || first != path {
                    if !is_below {
                        collided = Some(path);
                    }
                    self.outcome.refused.push(RefusedPath {
                        path: path.as_bytes().to_vec(),
                        reason: RefusalReason::CaseCollision,
                    });
                    continue;
                }
            }
            halves.push(PathChange { path, from, to });
        }
        halves.sort_by(|a, b| a.path.cmp(b.path));
        halves
    }

    fn remove(&mut self, half: &PathChange<'_>) -> Result<(), Fault> {
        let path = half.path;
        let state = self.host.state(path, half.from, None)?;
        let node = match state.node {
            HostNode::Absent | HostNode::Blocked(_) => {
                self.is_there(path);
                return Ok(());
            }
            HostNode::Special => {
                self.conflict(path, ConflictReason::SpecialOnHost, None);
                return Ok(());
            }
            HostNode::Present(node) => node,
        };
        if state.since == HostChange::Added {
            // The sandbox removed the directory around it, but never had this path.
            return Ok(());
        }
        match (half.from, node) {
            (Some(Node::Dir), Node::Dir) if state.since == HostChange::Same => {
                if self.will_be_empty(path)? {
                    self.steps
                        .remove_dirs
                        .push(Step::RemoveDir { path: path.clone() });
                    self.leaves(path);
                    self.apply(path, Effect::Deleted, None);
                } else {
                    self.conflict(path, ConflictReason::DirectoryNotEmpty, None);
                }
            }
            (_, Node::Dir) => self.conflict(path, ConflictReason::DeletedInSandbox, None),
            _ if state.since == HostChange::Same => {
                self.steps.removes.push(Step::Remove { path: path.clone() });
                self.leaves(path);
                self.apply(path, Effect::Deleted, None);
            }
            _ => {
                if let Some(kept) = self.keep(path)? {
                    self.apply(path, Effect::Deleted, Some(kept));
                } else if self.options.resolution(path) == Resolution::Ours {
                    self.outcome.declined.push(path.clone());
                } else if let Some(target) = self.renamed.get(path).cloned() {
                    self.conflict(path, ConflictReason::RenamedInSandbox, Some(target));
                } else {
                    self.conflict(path, ConflictReason::DeletedInSandbox, None);
                }
            }
        }
        Ok(())
    }

    /// Records that the plan vacates a path.
    pub(super) fn leaves(&mut self, path: &RelPath) {
        self.gone.insert(path.clone());
        if self.folds_case {
            self.vacated.insert(path.folded());
        }
    }

    /// Returns true if the object that the destination finds at `path` has a name in other case and
    /// is vacated by this plan.
    fn is_vacated(&self, path: &RelPath) -> bool {
        self.folds_case && !self.gone.contains(path) && self.vacated.contains(&path.folded())
    }

    fn put(&mut self, half: &PathChange<'_>) -> Result<(), Fault> {
        let (path, Some(to)) = (half.path, half.to) else {
            return Ok(());
        };
        let mut state = self.host.state(path, half.from, half.to)?;
        if self.is_vacated(path) {
            // Only the case of the name changes, and the object is removed first.
            state = HostState {
                node: HostNode::Absent,
                since: HostChange::Same,
            };
        }
        if let HostNode::Blocked(at) = &state.node {
            if !self.made.contains(at) {
                let at = at.clone();
                return self.put_below(path, to, &at);
            }
            state = HostState {
                node: HostNode::Absent,
                since: HostChange::Same,
            };
        }
        match state.node {
            HostNode::Blocked(_) | HostNode::Absent => self.put_new(half, to, state.since),
            HostNode::Special => self.put_beside(path, to, ConflictReason::SpecialOnHost),
            HostNode::Present(Node::Dir) if *to == Node::Dir => Ok(()),
            HostNode::Present(now) if now == *to => {
                self.is_there(path);
                Ok(())
            }
            HostNode::Present(Node::Dir) => {
                if state.since == HostChange::Added {
                    self.put_beside(path, to, ConflictReason::AddedOnHost)
                } else if state.since == HostChange::Same && self.will_be_empty(path)? {
                    self.steps
                        .remove_dirs
                        .push(Step::RemoveDir { path: path.clone() });
                    self.write(path, path, to, false);
                    self.apply(path, Effect::Modified, None);
                    Ok(())
                } else {
                    self.put_beside(path, to, ConflictReason::DirectoryNotEmpty)
                }
            }
            HostNode::Present(now) if state.since != HostChange::Same => {
                // The sandbox's version was settled by an earlier pull, but the user now asks for
                // it.
                let is_wanted = self.options.choices.get(path) == Some(&Resolution::Theirs);
                let merged = match (&now, to) {
                    (Node::File { .. }, Node::File { .. })
                        if self.merged_bytes < MAX_MERGED_BYTES =>
                    {
                        self.host.merge(path, to)?
                    }
                    _ => None,
                };
                let is_ours = self.options.resolution(path) == Resolution::Ours;
                if let Some(merged) = merged
                    && !(merged.is_base && is_wanted)
                    && self.merge(path, &now, merged)
                {
                    return Ok(());
                }
                if is_ours {
                    self.outcome.declined.push(path.clone());
                    return Ok(());
                }
                if let Some(kept) = self.keep(path)? {
                    self.make(path, path, to);
                    self.apply(path, Effect::Modified, Some(kept));
                    return Ok(());
                }
                let reason = match state.since {
                    HostChange::Added => ConflictReason::AddedOnHost,
                    _ => ConflictReason::ChangedOnHost,
                };
                self.put_beside(path, to, reason)
            }
            HostNode::Present(now) => {
                self.replace(path, &now, to);
                self.apply(path, Effect::Modified, None);
                Ok(())
            }
        }
    }

    /// Plans a path that does not exist on the host.
    fn put_new(
        &mut self,
        half: &PathChange<'_>,
        to: &Node,
        since: HostChange,
    ) -> Result<(), Fault> {
        let path = half.path;
        if since != HostChange::Same {
            // The host removed the path. A directory is restored only if something is written into
            // it.
            if *to == Node::Dir {
                return Ok(());
            }
            match self.options.resolution(path) {
                Resolution::Theirs => {}
                Resolution::Ours => {
                    self.outcome.declined.push(path.clone());
                    return Ok(());
                }
                // The host already had exactly this version and removed it.
                _ if self.host.is_pulled(path, to) => {
                    self.outcome.declined.push(path.clone());
                    return Ok(());
                }
                _ => return self.put_beside(path, to, ConflictReason::DeletedOnHost),
            }
        }
        self.make(path, path, to);
        let effect = if half.from.is_some() {
            Effect::Modified
        } else {
            Effect::Added
        };
        self.apply(path, effect, None);
        Ok(())
    }

    /// Records that the host has exactly the sandbox's version.
    fn is_there(&mut self, path: &RelPath) {
        self.outcome.already_there.push(path.clone());
        self.settled.push(path.clone());
    }

    /// Plans the replacement of a file or link that the host did not change.
    fn replace(&mut self, path: &RelPath, now: &Node, to: &Node) {
        match (now, to) {
            (
                Node::File {
                    digest: Some(now_digest),
                    ..
                },
                Node::File {
                    digest: Some(to_digest),
                    is_executable,
                    ..
                },
            ) if now_digest == to_digest => self.steps.modes.push(Step::SetExecutable {
                path: path.clone(),
                is_executable: *is_executable,
            }),
            (_, Node::Dir) => {
                self.steps.removes.push(Step::Remove { path: path.clone() });
                self.make(path, path, to);
            }
            _ => self.write(path, path, to, true),
        }
    }

    /// Plans a file, link or directory at a path that is free by then.
    pub(super) fn make(&mut self, path: &RelPath, source: &RelPath, to: &Node) {
        if *to == Node::Dir {
            self.steps.make_dirs.insert(path.clone());
            self.made.insert(path.clone());
        } else {
            self.write(path, source, to, false);
        }
    }

    pub(super) fn write(&mut self, path: &RelPath, source: &RelPath, to: &Node, replaces: bool) {
        self.taken.insert(path.clone());
        self.steps.writes.push(Step::Write {
            path: path.clone(),
            source: source.clone(),
            node: to.clone(),
            replaces,
        });
    }

    fn will_be_empty(&mut self, dir: &RelPath) -> Result<bool, Fault> {
        let names = self.host.names(dir)?;
        Ok(names.into_iter().all(|name| {
            let path = [dir.as_bytes(), b"/", &name].concat();
            RelPath::new(path).is_ok_and(|path| self.gone.contains(&path))
        }))
    }

    fn apply(&mut self, path: &RelPath, effect: Effect, kept: Option<RelPath>) {
        self.outcome.applied.push(AppliedChange {
            path: path.clone(),
            effect,
            kept,
            is_merged: false,
            part: None,
        });
    }

    pub(super) fn conflict(
        &mut self,
        path: &RelPath,
        reason: ConflictReason,
        theirs: Option<RelPath>,
    ) {
        self.outcome.conflicts.push(Conflict {
            path: path.clone(),
            reason,
            theirs,
            is_marked: false,
            unplaced: None,
        });
    }

    /// Records a conflict whose sandbox's version cannot be put on the host.
    pub(super) fn conflict_unplaced(
        &mut self,
        path: &RelPath,
        reason: ConflictReason,
        unplaced: UnplacedReason,
    ) {
        self.outcome.conflicts.push(Conflict {
            path: path.clone(),
            reason,
            theirs: None,
            is_marked: false,
            unplaced: Some(unplaced),
        });
    }

    fn finish(mut self, set: &ChangeSet) -> Plan {
        self.add_parents();
        self.remove_leftovers(set);
        let Self {
            steps,
            mut outcome,
            merged,
            bases,
            settled,
            ..
        } = self;
        outcome.declined.sort();
        outcome.resolved.sort();
        merge_renames(set, &mut outcome.applied);
        outcome.applied.sort_by(|a, b| a.path.cmp(&b.path));
        outcome.already_there.sort();
        outcome.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        let applied: HashSet<&RelPath> = outcome.applied.iter().map(|done| &done.path).collect();
        outcome.flagged = set
            .changes
            .iter()
            .filter(|change| !change.flags.is_empty() && applied.contains(&change.path))
            .map(|change| FlaggedChange {
                path: change.path.clone(),
                flags: change.flags.clone(),
            })
            .collect();
        let mut ordered = steps.keeps;
        ordered.extend(steps.removes);
        ordered.extend(steps.remove_dirs);
        ordered.extend(
            steps
                .make_dirs
                .into_iter()
                .map(|path| Step::MakeDir { path }),
        );
        ordered.extend(steps.writes);
        ordered.extend(steps.modes);
        Plan {
            steps: ordered,
            merged,
            bases,
            settled,
            outcome,
        }
    }
}

impl Planner<'_> {
    /// Plans the directories that writes need: those that the host removed, and stand-ins.
    fn add_parents(&mut self) {
        let mut needed = BTreeSet::new();
        for step in &self.steps.writes {
            let Step::Write { path, .. } = step else {
                continue;
            };
            let mut above = path.parent();
            while let Some(dir) = above {
                if self.steps.make_dirs.contains(&dir) || !needed.insert(dir.clone()) {
                    break;
                }
                above = dir.parent();
            }
        }
        for dir in &self.steps.make_dirs {
            let mut above = dir.parent();
            while let Some(parent) = above {
                if self.steps.make_dirs.contains(&parent) || !needed.insert(parent.clone()) {
                    break;
                }
                above = parent.parent();
            }
        }
        for dir in needed {
            let is_there = self
                .host
                .state(&dir, None, Some(&Node::Dir))
                .is_ok_and(|state| matches!(state.node, HostNode::Present(Node::Dir)));
            if !is_there || self.is_vacated(&dir) {
                self.steps.make_dirs.insert(dir);
            }
        }
    }
}

/// Merges the two effects of a rename into one, if both were applied.
fn merge_renames(set: &ChangeSet, applied: &mut Vec<AppliedChange>) {
    let sources: HashMap<&RelPath, &RelPath> = set
        .changes
        .iter()
        .filter_map(|change| match &change.kind {
            ChangeKind::Renamed { source, .. } => Some((&change.path, source)),
            _ => None,
        })
        .collect();
    if sources.is_empty() {
        return;
    }
    let deleted: HashSet<RelPath> = applied
        .iter()
        .filter(|done| done.effect == Effect::Deleted && done.kept.is_none())
        .map(|done| done.path.clone())
        .collect();
    let mut merged = HashSet::new();
    for done in applied.iter_mut() {
        if let Some(source) = sources.get(&done.path)
            && done.effect == Effect::Added
            && deleted.contains(*source)
            && merged.insert((*source).clone())
        {
            done.effect = Effect::Renamed {
                source: (*source).clone(),
            };
        }
    }
    applied.retain(|done| done.effect != Effect::Deleted || !merged.contains(&done.path));
}
