//! Decides paths that both sides changed: merges them, puts the sandbox's version beside the
//! host's, keeps one or takes the other, as [`Resolution`] says.

use super::planner::Planner;
use super::{HostNode, MergedFile, Resolution, Step};
use crate::outcome::{AppliedChange, Conflict, ConflictReason, Effect, UnplacedReason};
use crate::{ChangeSet, Node, RelPath};
use glovebox_proto::Fault;
use std::collections::HashSet;

/// Longest name of one component, in bytes (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;
/// Number of names that are tried for a version that is put beside a path.
const MAX_NAMES: usize = 100;

impl Planner<'_> {
    /// Plans the merge of a file that both sides changed; `now` is the host's version. Returns
    /// false if the path remains a conflict.
    pub(super) fn merge(&mut self, path: &RelPath, now: &Node, merged: MergedFile) -> bool {
        let Node::File { is_executable, .. } = now else {
            return false;
        };
        let resolution = self.options.resolution(path);
        let conflicts = match merged.conflicts {
            Some(0) => 0,
            Some(count) if resolution == Resolution::Markers => count,
            _ => {
                // Recording the sandbox's version as the base keeps later pulls from offering it
                // again.
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
            // The directory is made only when something is put into it.
            self.beside.insert(path.clone(), theirs.clone());
        } else if !is_there {
            self.make(&theirs, path, to);
        }
        self.conflict(path, reason, Some(theirs));
        Ok(())
    }

    /// Puts a path of the sandbox below a stand-in directory, because the host has something other
    /// than a directory at `at`.
    pub(super) fn put_below(
        &mut self,
        path: &RelPath,
        to: &Node,
        at: &RelPath,
    ) -> Result<(), Fault> {
        if *to == Node::Dir {
            // The directory is made only when something is put into it.
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

    /// Puts a file or link into the stand-in of the directory `at`. Chooses the name of the
    /// stand-in on the first call for `at`.
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
        // The stand-in's name is longer than that of the directory, so the path can exceed the
        // limit.
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

    /// Returns `path` with the nearest directory above it replaced by its stand-in. `None` if none
    /// has one, or if the result is not a valid path.
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

    /// Plans the move of the host's version to `PATH.orig` if the resolution is
    /// [`Resolution::Theirs`]. Returns the new name; `None` if the version stays, also when no name
    /// is free.
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

    /// Finds a name beside `path`: `path` with `suffix`, then numbered. The name is free (false) or
    /// already holds `same` (true). It counts as taken from now on.
    fn free_name(
        &mut self,
        path: &RelPath,
        suffix: &[u8],
        same: Option<&Node>,
    ) -> Result<Result<(RelPath, bool), UnplacedReason>, Fault> {
        // All candidates lie in one directory. If that is a mount point, none of them can be used.
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
                // The obstacle is replaced by a directory before this name is written.
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

    /// Plans the removal of versions that earlier pulls put beside paths and whose conflict is
    /// resolved.
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
