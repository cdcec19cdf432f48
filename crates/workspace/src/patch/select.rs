//! Selects changes hunk by hunk, as `git add --patch` does for a working tree.
//!
//! Input: changes as a plan makes them (see [`crate::apply::Destination::view`]) and the user's
//! picks. Output: a [`Selection`], to which [`Plan::select`] reduces the plan. The next pull offers
//! the rest again: the base of a file that is taken in part stays unchanged.

use super::content::{Content, VersionSide};
use super::hunks::{Hunk, TextComparison};
use super::part::Part;
use super::{PatchError, Style};
use crate::{Change, ChangeKind, CollectedChanges, Effect, Node, Plan, RelPath, Step, TakenPart};
use glovebox_proto::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// Hunks of one changed text.
#[derive(Debug)]
pub struct Hunks {
    before: Vec<u8>,
    after: Vec<u8>,
    hunks: Vec<Hunk>,
}

impl Hunks {
    /// Returns the hunks of a change; `None` if it can only be taken as a whole.
    ///
    /// # Errors
    /// When a version cannot be read, or differs from what was collected.
    pub fn of(collected: &CollectedChanges, change: &Change) -> Result<Option<Self>, Fault> {
        let ChangeKind::Modified {
            from: from @ Node::File { .. },
            to: to @ Node::File { .. },
        } = &change.kind
        else {
            return Ok(None);
        };
        let before = Content::read(collected, VersionSide::Before, &change.path, from)?;
        let after = Content::read(collected, VersionSide::After, &change.path, to)?;
        let (Some(before), Some(after)) = (before.text, after.text) else {
            return Ok(None);
        };
        let hunks = TextComparison::new(&before, &after).hunks();
        Ok((!hunks.is_empty()).then_some(Self {
            before,
            after,
            hunks,
        }))
    }

    /// Returns the number of hunks.
    pub fn count(&self) -> usize {
        self.hunks.len()
    }

    /// Returns true if a hunk has several changes with unchanged lines between them.
    pub fn can_split(&self, number: usize) -> bool {
        self.hunks.get(number).is_some_and(Hunk::can_split)
    }

    /// Replaces a hunk by one for each of its changes.
    pub fn split(&mut self, number: usize) {
        if self.can_split(number) {
            let whole = self.hunks.remove(number);
            self.hunks.splice(number..number, whole.split());
        }
    }

    /// Writes one hunk.
    ///
    /// # Errors
    /// When the output cannot be written to.
    pub fn write(&self, number: usize, style: Style, out: &mut dyn Write) -> std::io::Result<()> {
        match self.hunks.get(number) {
            Some(hunk) => {
                TextComparison::new(&self.before, &self.after).write_hunk(hunk, style, out)
            }
            None => Ok(()),
        }
    }

    /// Returns the text with the picked hunks only.
    fn picked(&self, picks: &[bool]) -> Vec<u8> {
        let (before, after) = (
            crate::merge::lines(&self.before),
            crate::merge::lines(&self.after),
        );
        let mut lines: Vec<&[u8]> = Vec::new();
        let mut at = 0;
        let picked = self.hunks.iter().zip(picks).filter(|(_, pick)| **pick);
        for (old, new) in picked.flat_map(|(hunk, _)| hunk.changes()) {
            lines.extend(&before[at..old.start as usize]);
            lines.extend(&after[new.start as usize..new.end as usize]);
            at = old.end as usize;
        }
        lines.extend(&before[at..]);
        lines.concat()
    }
}

/// Content of a file that is taken in part, and its content before.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PartialContent {
    content: Vec<u8>,
    before: Vec<u8>,
    part: TakenPart,
}

/// Selection from the changes of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    left_out: BTreeSet<RelPath>,
    partial: BTreeMap<RelPath, PartialContent>,
}

impl Selection {
    /// Returns true if all changes are selected.
    pub fn is_everything(&self) -> bool {
        self.left_out.is_empty() && self.partial.is_empty()
    }

    /// Removes a change from the selection.
    pub fn leave(&mut self, change: &Change) {
        self.left_out.insert(change.path.clone());
        if let ChangeKind::Renamed { source, .. } = &change.kind {
            self.left_out.insert(source.clone());
        }
    }

    /// Selects the hunks of a change for which `picks` is true.
    pub fn pick(&mut self, change: &Change, hunks: &Hunks, picks: &[bool]) {
        if picks.iter().all(|pick| !pick) {
            self.leave(change);
        } else if !picks.iter().all(|pick| *pick) || picks.len() < hunks.count() {
            let partial = PartialContent {
                content: hunks.picked(picks),
                before: hunks.before.clone(),
                part: TakenPart {
                    taken: picks.iter().filter(|pick| **pick).count(),
                    total: hunks.count(),
                },
            };
            self.partial.insert(change.path.clone(), partial);
        }
    }
}

/// Writes the patch of a change that is taken as a whole.
///
/// # Errors
/// [`PatchError`].
pub fn write_change(
    collected: &CollectedChanges,
    change: &Change,
    style: Style,
    out: &mut dyn Write,
) -> Result<(), PatchError> {
    for part in Part::of(change) {
        part.write(collected, style, out)?;
    }
    Ok(())
}

impl Plan {
    /// Reduces the plan to the selection.
    pub fn select(&mut self, selection: &Selection) {
        let is_left = |path: &RelPath| selection.left_out.contains(path);
        let is_left_below =
            |dir: &RelPath| selection.left_out.iter().any(|path| path.starts_with(dir));
        // A directory is created only if something in it is written, and removed only if nothing in
        // it stays.
        let written: BTreeSet<RelPath> = self
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Write { path, .. } if !is_left(path) => Some(path.clone()),
                _ => None,
            })
            .collect();
        let is_needed =
            |dir: &RelPath| !is_left_below(dir) || written.iter().any(|path| path.starts_with(dir));
        self.steps.retain(|step| match step {
            Step::MakeDir { path } => is_needed(path),
            Step::RemoveDir { path } => !is_left_below(path),
            Step::Keep { path, .. }
            | Step::Remove { path }
            | Step::Write { path, .. }
            | Step::SetExecutable { path, .. } => !is_left(path),
        });
        let made: BTreeSet<RelPath> = self
            .steps
            .iter()
            .map(|step| match step {
                Step::Keep { path, .. }
                | Step::Remove { path }
                | Step::RemoveDir { path }
                | Step::MakeDir { path }
                | Step::Write { path, .. }
                | Step::SetExecutable { path, .. } => path.clone(),
            })
            .collect();
        self.outcome
            .applied
            .retain(|done| made.contains(&done.path));
        for done in &mut self.outcome.applied {
            if let Effect::Renamed { source } = &done.effect
                && is_left(source)
            {
                done.effect = Effect::Added;
            }
        }
        self.outcome
            .flagged
            .retain(|flagged| made.contains(&flagged.path));
        self.bases.retain(|path, _| !is_left(path));
        for (path, partial) in &selection.partial {
            self.take_part(path, partial);
        }
    }

    fn take_part(&mut self, path: &RelPath, partial: &PartialContent) {
        for step in &mut self.steps {
            if let Step::Write {
                path: written,
                node: Node::File { size, digest, .. },
                ..
            } = step
                && written == path
            {
                *size = partial.content.len() as u64;
                *digest = Some(*blake3::hash(&partial.content).as_bytes());
            }
        }
        self.merged.insert(path.clone(), partial.content.clone());
        let mut applied = self.outcome.applied.iter_mut();
        let done = applied.find(|done| done.path == *path);
        // The former content stays the base, so that the next pull offers the rest again.
        let was_merged = done.as_ref().is_some_and(|done| done.is_merged);
        if was_merged {
            self.bases.remove(path);
        } else {
            self.bases.insert(path.clone(), partial.before.clone());
        }
        if let Some(done) = done {
            done.part = Some(partial.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunks(before: &str, after: &str) -> Hunks {
        Hunks {
            before: before.into(),
            after: after.into(),
            hunks: TextComparison::new(before.as_bytes(), after.as_bytes()).hunks(),
        }
    }

    #[test]
    fn what_is_picked_is_in_the_text_and_the_rest_is_not() {
        let mut text = hunks("1\n2\n3\n4\n", "one\n2\n3\nfour");
        assert_eq!(text.count(), 1);
        assert_eq!(text.picked(&[false]), b"1\n2\n3\n4\n");
        assert_eq!(text.picked(&[true]), b"one\n2\n3\nfour");
        text.split(0);
        assert_eq!(text.count(), 2);
        assert!(!text.can_split(0));
        assert_eq!(text.picked(&[true, false]), b"one\n2\n3\n4\n");
        assert_eq!(text.picked(&[false, true]), b"1\n2\n3\nfour");
        let mut shown = Vec::new();
        text.write(1, Style::Exact, &mut shown).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.contains("-4\n+four\n"), "{shown}");
        assert!(!shown.contains("one"), "{shown}");
    }
}
