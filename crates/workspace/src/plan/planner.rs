//! How a plan is made: what goes away is decided first, then what comes, then what that needs.

use super::{Host, HostNode, HostState, MergedFile, Options, Plan, Resolution, Since, Step};
use crate::outcome::{Applied, Conflict, ConflictReason, Effect, Flagged, Outcome};
use crate::{Change, ChangeKind, ChangeSet, Node, Refusal, RefusalReason, RelPath};
use glovebox_proto::Fault;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Longest name of one component, in bytes (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;
/// How many names are tried for what is put beside a path.
const MAX_NAMES: usize = 100;
/// Most bytes of merged contents: those of further files are conflicts.
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
        settled: Vec::new(),
        outcome: Outcome {
            refused: set.refused.clone(),
            ..Outcome::default()
        },
    };
    let halves = planner.halves(set);
    let arriving = halves.iter().filter(|half| half.to.is_some());
    planner.taken = arriving.map(|half| half.path.clone()).collect();
    // What goes away is decided first and from the bottom up: it makes room for what comes.
    for half in halves.iter().rev().filter(|half| half.to.is_none()) {
        planner.remove(half)?;
    }
    for half in halves.iter().filter(|half| half.to.is_some()) {
        planner.put(half)?;
    }
    Ok(planner.finish(set))
}

/// What a change means for one path; a rename is two of them.
struct Half<'a> {
    path: &'a RelPath,
    from: Option<&'a Node>,
    to: Option<&'a Node>,
}

/// Steps by kind; the order of the kinds is the order in which they are taken.
#[derive(Default)]
struct Steps {
    keeps: Vec<Step>,
    /// From the bottom up.
    removes: Vec<Step>,
    /// From the bottom up.
    remove_dirs: Vec<Step>,
    make_dirs: BTreeSet<RelPath>,
    writes: Vec<Step>,
    modes: Vec<Step>,
}

struct Planner<'a> {
    host: &'a mut dyn Host,
    options: Options,
    /// Whether the destination takes names that differ only in case for one.
    folds_case: bool,
    /// Where it does, what is `gone`, as it sees it.
    vacated: HashSet<Vec<u8>>,
    /// Names that this plan gives to something.
    taken: HashSet<RelPath>,
    /// What is no longer where it is.
    gone: HashSet<RelPath>,
    /// What becomes a directory.
    made: BTreeSet<RelPath>,
    /// Directories that cannot be made, and what stands for them.
    beside: BTreeMap<RelPath, RelPath>,
    steps: Steps,
    merged: BTreeMap<RelPath, Vec<u8>>,
    merged_bytes: usize,
    bases: BTreeMap<RelPath, Vec<u8>>,
    settled: Vec<RelPath>,
    outcome: Outcome,
}

impl Planner<'_> {
    /// Splits changes into what happens to each path, leaving out those that the file system of the
    /// destination could not tell apart.
    fn halves<'a>(&mut self, set: &'a ChangeSet) -> Vec<Half<'a>> {
        let mut halves = Vec::with_capacity(set.changes.len());
        let mut folded: HashMap<Vec<u8>, &RelPath> = HashMap::new();
        let mut collided: Option<&RelPath> = None;
        for Change { path, kind, .. } in &set.changes {
            let (from, to) = match kind {
                ChangeKind::Added { to } => (None, Some(to)),
                ChangeKind::Modified { from, to } => (Some(from), Some(to)),
                ChangeKind::Deleted { from } => (Some(from), None),
                ChangeKind::Renamed { source, from, to } => {
                    halves.push(Half {
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
                    self.outcome.refused.push(Refusal {
                        path: path.as_bytes().to_vec(),
                        reason: RefusalReason::CaseCollision,
                    });
                    continue;
                }
            }
            halves.push(Half { path, from, to });
        }
        halves.sort_by(|a, b| a.path.cmp(b.path));
        halves
    }

    fn remove(&mut self, half: &Half<'_>) -> Result<(), Fault> {
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
        if state.since == Since::Added {
            // The sandbox removed the directory around it, and did not mean this.
            return Ok(());
        }
        match (half.from, node) {
            (Some(Node::Dir), Node::Dir) if state.since == Since::Same => {
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
            _ if state.since == Since::Same => {
                self.steps.removes.push(Step::Remove { path: path.clone() });
                self.leaves(path);
                self.apply(path, Effect::Deleted, None);
            }
            _ => {
                if let Some(kept) = self.keep(path)? {
                    self.apply(path, Effect::Deleted, Some(kept));
                } else if self.options.resolution(path) == Resolution::Ours {
                    self.outcome.declined.push(path.clone());
                } else {
                    self.conflict(path, ConflictReason::DeletedInSandbox, None);
                }
            }
        }
        Ok(())
    }

    /// Notes that what is at a path will not be there any more.
    fn leaves(&mut self, path: &RelPath) {
        self.gone.insert(path.clone());
        if self.folds_case {
            self.vacated.insert(path.folded());
        }
    }

    /// Whether what the destination finds at a path is something with another name that goes away.
    fn is_vacated(&self, path: &RelPath) -> bool {
        self.folds_case && !self.gone.contains(path) && self.vacated.contains(&path.folded())
    }

    fn put(&mut self, half: &Half<'_>) -> Result<(), Fault> {
        let (path, Some(to)) = (half.path, half.to) else {
            return Ok(());
        };
        let mut state = self.host.state(path, half.from, half.to)?;
        if self.is_vacated(path) {
            // Only the case of its name changes: what is there now goes away first.
            state = HostState {
                node: HostNode::Absent,
                since: Since::Same,
            };
        }
        if let HostNode::Blocked(at) = &state.node {
            if !self.made.contains(at) {
                let at = at.clone();
                return self.put_below(path, to, &at);
            }
            state = HostState {
                node: HostNode::Absent,
                since: Since::Same,
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
                if state.since == Since::Added {
                    self.put_beside(path, to, ConflictReason::AddedOnHost)
                } else if state.since == Since::Same && self.will_be_empty(path)? {
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
            HostNode::Present(now) if state.since != Since::Same => {
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
                    Since::Added => ConflictReason::AddedOnHost,
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

    /// There is nothing at the path.
    fn put_new(&mut self, half: &Half<'_>, to: &Node, since: Since) -> Result<(), Fault> {
        let path = half.path;
        if since != Since::Same {
            // The host removed it. A directory comes back only for what is to lie in it.
            if *to == Node::Dir {
                return Ok(());
            }
            match self.options.resolution(path) {
                Resolution::Theirs => {}
                Resolution::Ours => {
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

    /// There is a file at the path that both sides changed. False when that remains a conflict.
    fn merge(&mut self, path: &RelPath, now: &Node, merged: MergedFile) -> bool {
        let Node::File { is_executable, .. } = now else {
            return false;
        };
        let resolution = self.options.resolution(path);
        let conflicts = match merged.conflicts {
            Some(0) => 0,
            Some(count) if resolution == Resolution::Markers => count,
            _ => {
                // The sandbox's version is known from now on, and not offered again.
                if resolution == Resolution::Ours {
                    self.bases.insert(path.clone(), merged.theirs);
                }
                return false;
            }
        };
        let node = Node::File {
            size: merged.content.len() as u64,
            is_executable: merged.is_executable,
            digest: Some(*blake3::hash(&merged.content).as_bytes()),
        };
        if !merged.is_base {
            self.bases.insert(path.clone(), merged.theirs);
        }
        if merged.is_ours && merged.is_executable == *is_executable {
            self.outcome.already_there.push(path.clone());
            return true;
        }
        if merged.is_ours {
            self.steps.modes.push(Step::SetExecutable {
                path: path.clone(),
                is_executable: merged.is_executable,
            });
        } else {
            self.merged_bytes += merged.content.len();
            self.merged.insert(path.clone(), merged.content);
            self.write(path, path, &node, true);
        }
        self.outcome.applied.push(Applied {
            path: path.clone(),
            effect: Effect::Modified,
            kept: None,
            is_merged: true,
        });
        if conflicts > 0 {
            self.outcome.conflicts.push(Conflict {
                path: path.clone(),
                reason: ConflictReason::ChangedOnHost,
                theirs: None,
                is_marked: true,
            });
        }
        true
    }

    /// Notes that the host has exactly what the sandbox has.
    fn is_there(&mut self, path: &RelPath) {
        self.outcome.already_there.push(path.clone());
        self.settled.push(path.clone());
    }

    /// There is a file or link at the path that the host did not change.
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

    /// Puts the sandbox's version beside a path whose host version stays.
    fn put_beside(
        &mut self,
        path: &RelPath,
        to: &Node,
        reason: ConflictReason,
    ) -> Result<(), Fault> {
        let (theirs, is_there) = self.free_name(path, b".theirs", Some(to))?;
        if let Some(theirs) = &theirs {
            if *to == Node::Dir {
                // Made when something is put into it.
                self.beside.insert(path.clone(), theirs.clone());
            } else if !is_there {
                self.make(theirs, path, to);
            }
        }
        self.conflict(path, reason, theirs);
        Ok(())
    }

    /// Puts what lies in a directory that cannot be made, since `at` is none, into one that stands
    /// for it.
    fn put_below(&mut self, path: &RelPath, to: &Node, at: &RelPath) -> Result<(), Fault> {
        if *to == Node::Dir {
            // Made when something is put into it.
            return Ok(());
        }
        if !self.beside.contains_key(at)
            && let (Some(stand_in), _) = self.free_name(at, b".theirs", Some(&Node::Dir))?
        {
            self.beside.insert(at.clone(), stand_in);
        }
        let mut theirs = None;
        if let Some(wanted) = self.beside_of(path) {
            let (name, is_there) = self.free_name(&wanted, b"", Some(to))?;
            if let Some(name) = &name
                && !is_there
            {
                self.make(name, path, to);
            }
            theirs = name;
        }
        self.conflict(path, ConflictReason::NotADirectoryOnHost, theirs);
        Ok(())
    }

    /// Where a path lies when a directory above it has a stand-in.
    fn beside_of(&self, path: &RelPath) -> Option<RelPath> {
        let mut above = path.parent();
        while let Some(dir) = above {
            if let Some(stand_in) = self.beside.get(&dir) {
                let rest = &path.as_bytes()[dir.as_bytes().len()..];
                return RelPath::new([stand_in.as_bytes(), rest].concat()).ok();
            }
            above = dir.parent();
        }
        None
    }

    /// Moves the host's version aside, if the sandbox's is to be taken.
    fn keep(&mut self, path: &RelPath) -> Result<Option<RelPath>, Fault> {
        if self.options.resolution(path) != Resolution::Theirs {
            return Ok(None);
        }
        let (kept, _) = self.free_name(path, b".orig", None)?;
        if let Some(kept) = &kept {
            self.steps.keeps.push(Step::Keep {
                path: path.clone(),
                kept: kept.clone(),
            });
        }
        Ok(kept)
    }

    /// A name beside `path` that nothing has; or one that has `same` already, and whether it does.
    fn free_name(
        &mut self,
        path: &RelPath,
        suffix: &[u8],
        same: Option<&Node>,
    ) -> Result<(Option<RelPath>, bool), Fault> {
        for number in 0..MAX_NAMES {
            let mut bytes = [path.as_bytes(), suffix].concat();
            if number > 0 {
                bytes.extend_from_slice(format!(".{number}").as_bytes());
            }
            let Ok(candidate) = RelPath::new(bytes) else {
                break;
            };
            if candidate.name().len() > MAX_NAME_BYTES {
                break;
            }
            if self.taken.contains(&candidate) {
                continue;
            }
            let state = self.host.state(&candidate, None, same)?;
            let is_free = match &state.node {
                HostNode::Absent | HostNode::Blocked(_) => true,
                HostNode::Present(now) if Some(now) == same => {
                    self.taken.insert(candidate.clone());
                    return Ok((Some(candidate), true));
                }
                _ => false,
            };
            if is_free {
                self.taken.insert(candidate.clone());
                return Ok((Some(candidate), false));
            }
        }
        Ok((None, false))
    }

    /// Makes something where nothing is by then.
    fn make(&mut self, path: &RelPath, source: &RelPath, to: &Node) {
        if *to == Node::Dir {
            self.steps.make_dirs.insert(path.clone());
            self.made.insert(path.clone());
        } else {
            self.write(path, source, to, false);
        }
    }

    fn write(&mut self, path: &RelPath, source: &RelPath, to: &Node, replaces: bool) {
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
        self.outcome.applied.push(Applied {
            path: path.clone(),
            effect,
            kept,
            is_merged: false,
        });
    }

    fn conflict(&mut self, path: &RelPath, reason: ConflictReason, theirs: Option<RelPath>) {
        self.outcome.conflicts.push(Conflict {
            path: path.clone(),
            reason,
            theirs,
            is_marked: false,
        });
    }

    /// Versions of the sandbox that were put beside paths go when their conflict is no more.
    fn remove_leftovers(&mut self, set: &ChangeSet) {
        let decided: HashSet<&RelPath> = set.changes.iter().map(|change| &change.path).collect();
        for leftover in self.host.leftovers() {
            let is_open = |conflict: &Conflict| {
                conflict.path == leftover.path
                    && (conflict.theirs.as_ref() == Some(&leftover.theirs)
                        || conflict.theirs.is_none() && !conflict.is_marked)
            };
            let is_resolved = leftover.is_taken
                || decided.contains(&leftover.path) && !self.outcome.conflicts.iter().any(is_open);
            let is_used = self.made.contains(&leftover.theirs)
                || self.gone.contains(&leftover.theirs)
                || decided.contains(&leftover.theirs);
            if is_resolved && !is_used {
                self.steps.removes.push(Step::Remove {
                    path: leftover.theirs.clone(),
                });
                self.outcome.resolved.push(leftover.theirs);
            }
        }
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
            .map(|change| Flagged {
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
    /// A directory that the host removed, and stand-ins of directories, come into being when
    /// something is written into them.
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

/// Two halves of a rename that were both applied are one effect.
fn merge_renames(set: &ChangeSet, applied: &mut Vec<Applied>) {
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
