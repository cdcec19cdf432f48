//! Carries the host's edits of files that the sandbox renamed over to the new names.

use super::planner::Planner;
use super::{HostChange, HostNode, Resolution, Step};
use crate::outcome::{AppliedChange, Conflict, ConflictReason, Effect};
use crate::{ChangeKind, ChangeSet, Node, RelPath};
use glovebox_proto::Fault;
use std::collections::HashSet;

impl Planner<'_> {
    /// Plans renames whose source the host edited, if the contents of both sides can be merged.
    /// Returns the paths that are decided by that; the two effects of any other rename are planned
    /// separately.
    pub(super) fn carry_edits(&mut self, set: &ChangeSet) -> Result<HashSet<RelPath>, Fault> {
        let mut carried = HashSet::new();
        // On a destination that folds case, source and target may be one file.
        if self.folds_case {
            return Ok(carried);
        }
        for change in &set.changes {
            if let ChangeKind::Renamed { source, from, to } = &change.kind
                && self.carry_edit(source, &change.path, from, to)?
            {
                carried.extend([source.clone(), change.path.clone()]);
            }
        }
        Ok(carried)
    }

    /// Plans the merge of the host's `source` and the sandbox's file at `path`, and the removal of
    /// `source`. Returns false if the host did not edit `source`, or if the result would be a
    /// conflict that belongs to no single file.
    fn carry_edit(
        &mut self,
        source: &RelPath,
        path: &RelPath,
        from: &Node,
        to: &Node,
    ) -> Result<bool, Fault> {
        let resolution = self.options.resolution(source);
        if matches!(resolution, Resolution::Theirs | Resolution::Ours) {
            return Ok(false);
        }
        let before = self.host.state(source, Some(from), None)?;
        let is_edited = matches!(before.node, HostNode::Present(Node::File { .. }))
            && before.since == HostChange::Changed;
        if !is_edited || !matches!(to, Node::File { .. }) {
            return Ok(false);
        }
        let target = self.host.state(path, None, Some(to))?;
        if target.node != HostNode::Absent || target.since != HostChange::Same {
            return Ok(false);
        }
        self.renamed.insert(source.clone(), path.clone());
        let Some(merged) = self.host.merge_renamed(source, path, to)? else {
            return Ok(false);
        };
        let is_marked = match merged.conflicts {
            Some(0) => false,
            Some(_) if resolution == Resolution::Markers => true,
            _ => return Ok(false),
        };
        let node = Node::File {
            size: merged.content.len() as u64,
            is_executable: merged.is_executable,
            digest: Some(*blake3::hash(&merged.content).as_bytes()),
        };
        // The new path has no base yet. Without this, the next pull would report a conflict.
        self.bases.insert(path.clone(), merged.theirs);
        self.merged_bytes += merged.content.len();
        self.merged.insert(path.clone(), merged.content);
        self.steps.removes.push(Step::Remove {
            path: source.clone(),
        });
        self.leaves(source);
        self.write(path, path, &node, false);
        self.outcome.applied.push(AppliedChange {
            path: path.clone(),
            effect: Effect::Renamed {
                source: source.clone(),
            },
            kept: None,
            is_merged: true,
            part: None,
        });
        if is_marked {
            self.outcome.conflicts.push(Conflict {
                path: path.clone(),
                reason: ConflictReason::ChangedOnHost,
                theirs: None,
                is_marked: true,
                unplaced: None,
            });
        }
        Ok(true)
    }
}
