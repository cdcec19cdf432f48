//! Three-way merge of texts, line by line.
//!
//! Input: the base, the host's text and the sandbox's. Output: one text with the changes of both.
//! Changes that overlap or touch are a conflict unless they are the same; lines of the host are
//! never dropped. Lines are bytes with their line break, so that every encoding and every kind of
//! line end is kept.

use crate::contents::{changed, unreadable};
use crate::plan::MergedFile;
use crate::{CollectedChanges, Node, RelPath};
use glovebox_proto::Fault;
use imara_diff::{Algorithm, Diff, InternedInput};
use std::io::{self, Read};
use std::ops::Range;

/// Maximum length of a text that is merged, in bytes.
pub(crate) const MAX_TEXT_BYTES: u64 = 4 << 20;
/// Maximum number of lines of a text that is merged.
const MAX_TEXT_LINES: usize = 400_000;

/// Names of the two sides in markers, as `git merge` writes them.
const OURS: &[u8] = b"<<<<<<< yours\n";
const MIDDLE: &[u8] = b"=======\n";
const THEIRS: &[u8] = b">>>>>>> sandbox\n";

/// Result of merging two texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergedText {
    /// Merged text. It contains both versions of each conflict, between markers.
    pub(crate) text: Vec<u8>,
    /// Number of conflicts.
    pub(crate) conflicts: usize,
}

/// A change between two texts, in lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineChange {
    /// Lines of the first text that are replaced.
    pub(crate) before: Range<usize>,
    /// Lines of the second text that replace them.
    pub(crate) after: Range<usize>,
}

/// Three versions of a regular file.
#[derive(Debug)]
pub(crate) struct Versions {
    /// Common ancestor of both sides; `None` if it is not known.
    pub(crate) base: Option<Vec<u8>>,
    /// The host's version.
    pub(crate) ours: Vec<u8>,
    /// The sandbox's version.
    pub(crate) theirs: Vec<u8>,
}

impl Versions {
    /// Merges the contents and the execute permissions. `modes` are those of base, host and
    /// sandbox.
    pub(crate) fn merge(self, modes: (Option<bool>, bool, bool)) -> MergedFile {
        let Self { base, ours, theirs } = self;
        let is_executable = match modes {
            (Some(base), ours, theirs) if ours == base => theirs,
            (_, ours, _) => ours,
        };
        let is_base = base.as_ref() == Some(&theirs);
        let (content, conflicts) = if is_base || ours == theirs {
            (ours.clone(), Some(0))
        } else if base.as_ref() == Some(&ours) {
            (theirs.clone(), Some(0))
        } else if [&ours, &theirs]
            .into_iter()
            .chain(&base)
            .all(|text| is_comparable(text))
        {
            // Without a base, everything between a common beginning and a common end conflicts.
            let merged = match &base {
                Some(base) => merge(base, &ours, &theirs),
                None => merge_without_base(&ours, &theirs),
            };
            (merged.text, Some(merged.conflicts))
        } else {
            (Vec::new(), None)
        };
        MergedFile {
            is_ours: content == ours,
            content,
            conflicts,
            is_executable,
            theirs,
            is_base,
        }
    }
}

/// Reads a version of a file; `None` if it is too large to be merged.
pub(crate) fn read_text(source: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    source.take(MAX_TEXT_BYTES + 1).read_to_end(&mut text)?;
    Ok((text.len() as u64 <= MAX_TEXT_BYTES).then_some(text))
}

/// Reads the sandbox's version of a file. `None` if it is not a regular file, or is too large to be
/// merged.
///
/// Fails if the content is not the one that was collected.
// TRUST: a sandbox that writes on while we read must not bring in what was never collected.
pub(crate) fn read_theirs(
    collected: &CollectedChanges,
    path: &RelPath,
    to: &Node,
) -> Result<Option<Vec<u8>>, Fault> {
    let Node::File { size, digest, .. } = to else {
        return Ok(None);
    };
    if *size > MAX_TEXT_BYTES {
        return Ok(None);
    }
    let text = read_text(collected.open(path)?).map_err(|error| unreadable(path, &error))?;
    match text {
        Some(text) if digest.is_none_or(|sum| sum == *blake3::hash(&text).as_bytes()) => {
            Ok(Some(text))
        }
        _ => Err(changed(path)),
    }
}

/// Returns true if the node is a regular file that its owner may execute.
pub(crate) const fn is_executable(node: &Node) -> bool {
    matches!(
        node,
        Node::File {
            is_executable: true,
            ..
        }
    )
}

/// Returns true if a text can be compared by lines: it has no NUL bytes and not too many lines.
pub(crate) fn is_comparable(text: &[u8]) -> bool {
    !text.contains(&0) && text.split(|byte| *byte == b'\n').count() <= MAX_TEXT_LINES
}

/// Splits a text into lines, each with its line break.
pub(crate) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns the changes that lead from one text to another, in order.
pub(crate) fn changes(before: &[&[u8]], after: &[&[u8]]) -> Vec<LineChange> {
    let mut input = InternedInput::default();
    input.update_before(before.iter().copied());
    input.update_after(after.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let wide = |range: Range<u32>| range.start as usize..range.end as usize;
    diff.hunks()
        .map(|hunk| LineChange {
            before: wide(hunk.before),
            after: wide(hunk.after),
        })
        .collect()
}

/// Merges the host's and the sandbox's changes of `base`.
pub(crate) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> MergedText {
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    let mut ours_side = MergeSide::new(&base, &ours);
    let mut theirs_side = MergeSide::new(&base, &theirs);
    let mut merged = MergedText {
        text: Vec::with_capacity(ours.iter().map(|line| line.len()).sum()),
        conflicts: 0,
    };
    let mut at = 0;
    while let Some(group) = next_group(&mut ours_side, &mut theirs_side) {
        merged.put(&base[at..group.base.start]);
        at = group.base.end;
        let (mine, other) = (&ours[group.ours], &theirs[group.theirs]);
        match (group.is_ours, group.is_theirs) {
            (_, false) => merged.put(mine),
            (false, true) => merged.put(other),
            (true, true) if mine == other => merged.put(mine),
            // Both sides only inserted, and one of them continued the other's lines: an append
            // after an append that was seen. Nothing of the shorter one is lost.
            (true, true) if group.base.is_empty() && is_part(mine, other) => merged.put(other),
            (true, true) if group.base.is_empty() && is_part(other, mine) => merged.put(mine),
            (true, true) => merged.conflict(mine, other),
        }
    }
    merged.put(&base[at..]);
    merged
}

/// Merges two texts without a base. Everything between a common beginning and a common end is a
/// conflict.
fn merge_without_base(ours: &[u8], theirs: &[u8]) -> MergedText {
    let mut merged = MergedText {
        text: Vec::with_capacity(ours.len()),
        conflicts: 0,
    };
    merged.conflict(&lines(ours), &lines(theirs));
    merged
}

/// True if `long` begins or ends with `short`, which is not empty.
fn is_part(short: &[&[u8]], long: &[&[u8]]) -> bool {
    !short.is_empty() && (long.starts_with(short) || long.ends_with(short))
}

impl MergedText {
    fn put(&mut self, lines: &[&[u8]]) {
        for line in lines {
            self.text.extend_from_slice(line);
        }
    }

    fn conflict(&mut self, mine: &[&[u8]], other: &[&[u8]]) {
        // The common beginning and end need no decision.
        let same = |(a, b): &(&&[u8], &&[u8])| a == b;
        let start = mine.iter().zip(other).take_while(same).count();
        let (rest, other_rest) = (&mine[start..], &other[start..]);
        let end = rest
            .iter()
            .rev()
            .zip(other_rest.iter().rev())
            .take_while(same)
            .count();
        self.put(&mine[..start]);
        self.conflicts += 1;
        self.text.extend_from_slice(OURS);
        self.block(&rest[..rest.len() - end]);
        self.text.extend_from_slice(MIDDLE);
        self.block(&other_rest[..other_rest.len() - end]);
        self.text.extend_from_slice(THEIRS);
        self.put(&rest[rest.len() - end..]);
    }

    /// Writes lines before a marker. Adds a line break if the last line has none, because a marker
    /// must begin a line.
    fn block(&mut self, lines: &[&[u8]]) {
        self.put(lines);
        if self.text.last().is_some_and(|byte| *byte != b'\n') {
            self.text.push(b'\n');
        }
    }
}

/// Changes of one side, and the position up to which they are merged.
struct MergeSide {
    changes: std::iter::Peekable<std::vec::IntoIter<LineChange>>,
    /// Ends of the last change taken, in lines of the base and of this side. Between changes both
    /// advance alike.
    base_end: usize,
    side_end: usize,
}

impl MergeSide {
    fn new(base: &[&[u8]], side: &[&[u8]]) -> Self {
        Self {
            changes: changes(base, side).into_iter().peekable(),
            base_end: 0,
            side_end: 0,
        }
    }

    fn next_start(&mut self) -> Option<usize> {
        self.changes.peek().map(|change| change.before.start)
    }

    /// Takes all changes that begin at or before `end`, and those that touch a change taken.
    /// Returns the new end; `None` if no change was taken.
    fn take_until(&mut self, end: usize) -> Option<usize> {
        let mut reached = None;
        while let Some(change) = self
            .changes
            .next_if(|change| change.before.start <= reached.unwrap_or(end))
        {
            reached = Some(change.before.end.max(reached.unwrap_or(end)));
            self.base_end = change.before.end;
            self.side_end = change.after.end;
        }
        reached
    }

    /// Returns the line of this side that corresponds to a line of the base outside all changes.
    fn line_at(&self, base_line: usize) -> usize {
        self.side_end + base_line - self.base_end
    }
}

/// Changes of both sides that overlap or touch.
struct Group {
    base: Range<usize>,
    ours: Range<usize>,
    theirs: Range<usize>,
    is_ours: bool,
    is_theirs: bool,
}

fn next_group(ours: &mut MergeSide, theirs: &mut MergeSide) -> Option<Group> {
    let start = match (ours.next_start(), theirs.next_start()) {
        (Some(a), Some(b)) => a.min(b),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => return None,
    };
    let starts = (ours.line_at(start), theirs.line_at(start));
    let mut end = start;
    let (mut is_ours, mut is_theirs) = (false, false);
    loop {
        let by_ours = ours.take_until(end);
        is_ours |= by_ours.is_some();
        end = by_ours.unwrap_or(end);
        let by_theirs = theirs.take_until(end);
        is_theirs |= by_theirs.is_some();
        end = by_theirs.unwrap_or(end);
        if by_ours.is_none() && by_theirs.is_none() {
            break;
        }
    }
    Some(Group {
        base: start..end,
        ours: starts.0..ours.line_at(end),
        theirs: starts.1..theirs.line_at(end),
        is_ours,
        is_theirs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> (String, usize) {
        let merged = merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        (String::from_utf8(merged.text).unwrap(), merged.conflicts)
    }

    #[test]
    fn distant_changes_come_together() {
        let done = merged("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nuser\n", "box\n2\n3\n4\n5\n");
        assert_eq!(done, ("box\n2\n3\n4\nuser\n".to_owned(), 0));
        let done = merged("1\n2\n3\n", "0\n1\n2\n3\n", "1\n2\n3\n4\n");
        assert_eq!(done, ("0\n1\n2\n3\n4\n".to_owned(), 0));
        let done = merged("1\n2\n3\n4\n5\n", "1\n3\n4\n5\n", "1\n2\n3\n4\n");
        assert_eq!(done, ("1\n3\n4\n".to_owned(), 0));
    }

    #[test]
    fn the_same_change_on_both_sides_is_one() {
        assert_eq!(merged("1\n", "2\n", "2\n"), ("2\n".to_owned(), 0));
        assert_eq!(merged("", "2\n", "2\n"), ("2\n".to_owned(), 0));
    }

    #[test]
    fn an_insertion_that_goes_on_from_the_others_is_taken_whole() {
        let done = merged("1\n", "1\nuser\n", "1\nuser\nbox\n");
        assert_eq!(done, ("1\nuser\nbox\n".to_owned(), 0));
        let done = merged("1\n", "0\nuser\n1\n", "user\n1\n");
        assert_eq!(done, ("0\nuser\n1\n".to_owned(), 0));
        // Other lines of the user in the middle, and replaced lines, need a decision.
        assert_eq!(merged("1\n", "1\nuser\n", "1\nbox\nuser\nx\n").1, 1);
        assert_eq!(merged("1\n", "2\n", "2\n3\n").1, 1);
        assert_eq!(merged("1", "1\nuser\n", "1\nuser\nbox\n").1, 1);
    }

    #[test]
    fn changes_that_touch_conflict_and_both_are_shown() {
        let done = merged("1\n2\n3\n", "1\nmine\n3\n", "1\ntheirs\n3\n");
        let text = "1\n<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> sandbox\n3\n";
        assert_eq!(done, (text.to_owned(), 1));
        assert_eq!(merged("1\n2\n", "mine\n2\n", "1\ntheirs\n").1, 1);
        let done = merged("", "same\nmine", "same\ntheirs");
        let text = "same\n<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> sandbox\n";
        assert_eq!(done, (text.to_owned(), 1));
    }

    #[test]
    fn every_byte_is_kept() {
        let done = merge(
            b"a\r\n\xff\r\nc\r\nd",
            b"A\r\n\xff\r\nc\r\nd",
            b"a\r\n\xff\r\nc\r\n\xfe",
        );
        assert_eq!(done.text, b"A\r\n\xff\r\nc\r\n\xfe");
        assert_eq!(done.conflicts, 0);
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop::sample::select(vec!["a\n", "b\n", "c\n", "}\n", "d"]),
            0..12,
        )
        .prop_map(|lines| lines.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn a_side_that_did_nothing_gives_way(base in text(), other in text()) {
            prop_assert_eq!(&merge(&base, &base, &other).text, &other);
            prop_assert_eq!(&merge(&base, &other, &base).text, &other);
            prop_assert_eq!(&merge(&base, &other, &other).text, &other);
        }

        #[test]
        fn no_side_is_favoured(base in text(), ours in text(), theirs in text()) {
            let (one, two) = (merge(&base, &ours, &theirs), merge(&base, &theirs, &ours));
            prop_assert_eq!(one.conflicts, two.conflicts);
            if one.conflicts == 0 {
                prop_assert_eq!(one.text, two.text);
            }
        }

        #[test]
        fn what_a_side_added_is_in_the_result(
            base in text(),
            theirs in text(),
            at in prop::collection::vec(0_usize..13, 1..4),
        ) {
            let mut ours: Vec<Vec<u8>> = lines(&base).into_iter().map(<[u8]>::to_vec).collect();
            for (number, at) in at.iter().enumerate() {
                let at = (*at).min(ours.len());
                ours.insert(at, format!("user {number}\n").into_bytes());
            }
            let merged = merge(&base, &ours.concat(), &theirs);
            let text = String::from_utf8(merged.text).unwrap();
            for number in 0..at.len() {
                let line = format!("user {number}\n");
                prop_assert!(text.contains(&line), "{:?}", text);
            }
        }
    }
}
