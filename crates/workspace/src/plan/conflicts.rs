//! Paths that both sides changed: merged, put beside, kept, or taken, as [`Resolution`] says.

use super::planner::Planner;
use super::{HostNode, MergedFile, Resolution, Step};
use crate::outcome::{AppliedChange, Conflict, ConflictReason, Effect, UnplacedReason};
use crate::{ChangeSet, Node, RelPath};
use glovebox_proto::Fault;
use std::collections::HashSet;

/// Longest name of one component, in bytes (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;
/// How many names are tried for what is put beside a path.
const MAX_NAMES: usize = 100;

impl Planner<'_> {
    /// There is a file at the path that both sides changed. False when that remains a conflict.
    pub(super) fn merge(&mut self, path: &RelPath, now: &Node, merged: MergedFile) -> bool {
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
        self.outcome.applied.push(AppliedChange {
            path: path.clone(),
            effect: Effect::Modified,
            kept: None,
            is_merged: true,
            part: None,
        });
        if conflicts > 0 {
            self.outcome.conflicts.push(Conflict {
                path: path.clone(),
                reason: ConflictReason::ChangedOnHost,
                theirs: None,
                is_marked: true,
                unplaced: None,
            });
        }
        true
    }

    /// Puts the sandbox's version beside a path whose host version stays.
    pub(super) fn put_beside(
        &mut self,
        path: &RelPath,
        to: &Node,
        reason: ConflictReason,
    ) -> Result<(), Fault> {
        let (theirs, is_there) = match self.free_name(path, b".theirs", Some(to))? {
            Ok(found) => found,
            Err(unplaced) => {
                self.conflict_unplaced(path, reason, unplaced);
                return Ok(());
            }
        };
        if *to == Node::Dir {
            // Made when something is put into it.
            self.beside.insert(path.clone(), theirs.clone());
        } else if !is_there {
            self.make(&theirs, path, to);
        }
        self.conflict(path, reason, Some(theirs));
        Ok(())
    }

    /// Puts what lies in a directory that cannot be made, since `at` is none, into one that stands
    /// for it.
    pub(super) fn put_below(
        &mut self,
        path: &RelPath,
        to: &Node,
        at: &RelPath,
    ) -> Result<(), Fault> {
        if *to == Node::Dir {
            // Made when something is put into it.
            return Ok(());
        }
        match self.place_below(path, to, at)? {
            Ok(theirs) => self.conflict(path, ConflictReason::NotADirectoryOnHost, Some(theirs)),
            Err(unplaced) => {
                self.conflict_unplaced(path, ConflictReason::NotADirectoryOnHost, unplaced);
            }
        }
        Ok(())
    }

    /// Puts a file or link into the stand-in of the directory `at`, which is made if there is none.
    fn place_below(
        &mut self,
        path: &RelPath,
        to: &Node,
        at: &RelPath,
    ) -> Result<Result<RelPath, UnplacedReason>, Fault> {
        if !self.beside.contains_key(at) {
            match self.free_name(at, b".theirs", Some(&Node::Dir))? {
                Ok((stand_in, _)) => self.beside.insert(at.clone(), stand_in),
                Err(unplaced) => return Ok(Err(unplaced)),
            };
        }
        // With its stand-in for a directory above it, a path can become longer than paths may be.
        let Some(wanted) = self.beside_of(path) else {
            return Ok(Err(UnplacedReason::NameTooLong));
        };
        let (name, is_there) = match self.free_name(&wanted, b"", Some(to))? {
            Ok(found) => found,
            Err(unplaced) => return Ok(Err(unplaced)),
        };
        if !is_there {
            self.make(&name, path, to);
        }
        Ok(Ok(name))
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
    pub(super) fn keep(&mut self, path: &RelPath) -> Result<Option<RelPath>, Fault> {
        if self.options.resolution(path) != Resolution::Theirs {
            return Ok(None);
        }
        let Ok((kept, _)) = self.free_name(path, b".orig", None)? else {
            return Ok(None);
        };
        self.steps.keeps.push(Step::Keep {
            path: path.clone(),
            kept: kept.clone(),
        });
        Ok(Some(kept))
    }

    /// Finds a name beside `path` that nothing has, or one that has `same` already; true then.
    fn free_name(
        &mut self,
        path: &RelPath,
        suffix: &[u8],
        same: Option<&Node>,
    ) -> Result<Result<(RelPath, bool), UnplacedReason>, Fault> {
        // All names lie in one directory; below a mount point none of them can be had.
        if let Some(parent) = path.parent()
            && self.host.state(&parent, None, Some(&Node::Dir))?.node == HostNode::Special
        {
            return Ok(Err(UnplacedReason::BelowMount));
        }
        for number in 0..MAX_NAMES {
            let mut bytes = [path.as_bytes(), suffix].concat();
            if number > 0 {
                bytes.extend_from_slice(format!(".{number}").as_bytes());
            }
            let Ok(candidate) = RelPath::new(bytes) else {
                return Ok(Err(UnplacedReason::NameTooLong));
            };
            if candidate.name().len() > MAX_NAME_BYTES {
                return Ok(Err(UnplacedReason::NameTooLong));
            }
            if self.taken.contains(&candidate) {
                continue;
            }
            let state = self.host.state(&candidate, None, same)?;
            let is_free = match &state.node {
                HostNode::Absent => true,
                // What is in the way becomes a directory before this name is written.
                HostNode::Blocked(at) if self.made.contains(at) => true,
                HostNode::Blocked(_) => return Ok(Err(UnplacedReason::NotADirectory)),
                HostNode::Present(now) if Some(now) == same => {
                    self.taken.insert(candidate.clone());
                    return Ok(Ok((candidate, true)));
                }
                _ => false,
            };
            if is_free {
                self.taken.insert(candidate.clone());
                return Ok(Ok((candidate, false)));
            }
        }
        Ok(Err(UnplacedReason::NamesTaken))
    }

    /// Versions of the sandbox that were put beside paths go when their conflict is no more.
    pub(super) fn remove_leftovers(&mut self, set: &ChangeSet) {
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
}
