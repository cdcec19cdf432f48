//! View of a plan as a change set, from which a patch is made.
//!
//! A collected change set compares the sandbox with the current host, so it contains the host's own
//! edits in reverse. The view contains what the plan applies: clean changes, merged texts in place
//! of the sandbox's, and the sandbox's versions of conflicts beside the host's.

use crate::base::Signature;
use crate::beneath::{Anchor, io};
use crate::contents::changed;
use crate::merge::is_executable;
use crate::{
    AppliedChange, Change, ChangeKind, ChangeSet, CollectedChanges, Contents, Effect, Node, Plan,
    RelPath, Step,
};
use glovebox_proto::Fault;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

pub(super) fn view(
    destination: &Path,
    seen: &HashMap<RelPath, Signature>,
    plan: &Plan,
    collected: &CollectedChanges,
) -> Result<CollectedChanges, Fault> {
    let contents = ViewContents {
        inner: Arc::clone(collected.contents()),
        merged: plan.merged.clone().into_iter().collect(),
        sources: sources(plan),
        hosts: hosts(plan),
        host: Anchor::open_canonical(destination)?,
        seen: seen.clone(),
    };
    let set = ChangeSet {
        changes: changes(plan, &collected.set),
        refused: plan.outcome.refused.clone(),
    };
    let mut view = CollectedChanges::new(set, Box::new(contents));
    view.unheld.clone_from(&collected.unheld);
    Ok(view)
}

/// Returns the paths that get the content of another path of the change set.
fn sources(plan: &Plan) -> HashMap<RelPath, RelPath> {
    let pairs = plan.steps.iter().filter_map(|step| match step {
        Step::Write { path, source, .. } if path != source => Some((path.clone(), source.clone())),
        _ => None,
    });
    pairs.collect()
}

/// Returns the paths that keep the host's content.
fn hosts(plan: &Plan) -> HashSet<RelPath> {
    let merged = plan.outcome.applied.iter().filter(|done| done.is_merged);
    merged
        .filter(|done| !plan.merged.contains_key(&done.path))
        .map(|done| done.path.clone())
        .collect()
}

/// Returns the changes that a plan makes, sorted by path.
fn changes(plan: &Plan, set: &ChangeSet) -> Vec<Change> {
    let applied: HashMap<&RelPath, &AppliedChange> = plan
        .outcome
        .applied
        .iter()
        .map(|done| (&done.path, done))
        .collect();
    let writes: HashMap<&RelPath, &Node> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Write { path, node, .. } => Some((path, node)),
            _ => None,
        })
        .collect();
    let mut changes = Vec::new();
    for change in &set.changes {
        if let Some(done) = applied.get(&change.path) {
            changes.push(taken(change, done, writes.get(&change.path).copied()));
        }
        if let ChangeKind::Renamed { source, from, .. } = &change.kind
            && applied
                .get(source)
                .is_some_and(|done| done.effect == Effect::Deleted)
        {
            changes.push(Change {
                path: source.clone(),
                kind: ChangeKind::Deleted { from: from.clone() },
                flags: Vec::new(),
            });
        }
    }
    let flags: HashMap<&RelPath, &Change> = set
        .changes
        .iter()
        .map(|change| (&change.path, change))
        .collect();
    for conflict in &plan.outcome.conflicts {
        if let Some(theirs) = &conflict.theirs
            && !applied.contains_key(theirs)
            && let Some(node) = writes.get(theirs)
        {
            changes.push(Change {
                path: theirs.clone(),
                kind: ChangeKind::Added {
                    to: (*node).clone(),
                },
                flags: flags
                    .get(&conflict.path)
                    .map(|change| change.flags.clone())
                    .unwrap_or_default(),
            });
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// Returns the part of a change that is applied: if the source of a rename stays, only the
/// addition.
fn taken(change: &Change, done: &AppliedChange, written: Option<&Node>) -> Change {
    let mut change = change.clone();
    let is_half = matches!(change.kind, ChangeKind::Renamed { .. })
        && !matches!(done.effect, Effect::Renamed { .. });
    match &mut change.kind {
        ChangeKind::Renamed { to, .. } if is_half => {
            change.kind = ChangeKind::Added { to: to.clone() };
        }
        ChangeKind::Modified { from, to } | ChangeKind::Renamed { from, to, .. }
            if done.is_merged =>
        {
            *to = match (written, from) {
                (Some(written), _) => written.clone(),
                // Only the permission changes.
                (None, Node::File { size, .. }) => Node::File {
                    size: *size,
                    is_executable: is_executable(to),
                    digest: None,
                },
                (None, _) => return change,
            };
        }
        _ => {}
    }
    change
}

/// Contents of the results of a plan, and of the destination when the plan was made.
struct ViewContents {
    inner: Arc<dyn Contents>,
    merged: HashMap<RelPath, Vec<u8>>,
    sources: HashMap<RelPath, RelPath>,
    hosts: HashSet<RelPath>,
    host: Anchor,
    seen: HashMap<RelPath, Signature>,
}

impl Contents for ViewContents {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        if self.hosts.contains(path) {
            return self.open_base(path);
        }
        match self.merged.get(path) {
            Some(content) => Ok(Box::new(content.as_slice())),
            None => self.inner.open(self.sources.get(path).unwrap_or(path)),
        }
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        match self.host.file(path.as_bytes()) {
            // An edit of the host after the plan must not appear as a change of the sandbox.
            Ok((_, stat))
                if self
                    .seen
                    .get(path)
                    .is_some_and(|seen| *seen != Signature::from(&stat)) =>
            {
                Err(changed(path))
            }
            Ok((file, _)) => Ok(Box::new(file)),
            Err(Errno::NOENT | Errno::NOTDIR) => self.inner.open_base(path),
            Err(errno) => Err(io("read the host's version of", path.as_path(), errno)),
        }
    }
}
