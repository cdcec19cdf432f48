//! Small unified diff of two contents that shows the effect of an edit. It is for reading and not a
//! patch to apply: bytes that are not UTF-8 are replaced.

use glovebox_proto::limits::MAX_DIFF_BYTES;
use similar::udiff::UnifiedHunkHeader;
use similar::{DiffOp, TextDiff};
use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// Lines compared on each side of the changed range: among equal lines, the diff may choose another
/// one as the changed line.
const COMPARED_LINES: usize = 16;
/// Time after which the diff gets coarser.
const PATIENCE: Duration = Duration::from_millis(100);

/// Returns the hunks without file names, and true if they were truncated.
pub(super) fn unified(old: &[u8], new: &[u8]) -> (Vec<u8>, bool) {
    let (first, old, new) = around_the_change(old, new);
    let (old, new) = (text(old), text(new));
    let diff = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(old.as_ref(), new.as_ref());
    let mut text = DiffBuffer(Vec::new());
    let is_cut = write_hunks(&diff, first, &mut text).is_err();
    let mut text = text.0;
    if is_cut {
        let end = text.iter().rposition(|byte| *byte == b'\n');
        text.truncate(end.map_or(0, |at| at + 1));
    }
    (text, is_cut)
}

fn write_hunks(
    diff: &TextDiff<'_, '_, str>,
    first: usize,
    text: &mut impl Write,
) -> io::Result<()> {
    let mut hunks = diff.unified_diff();
    for hunk in hunks.context_radius(CONTEXT_LINES).iter_hunks() {
        if let (Some(begin), Some(end)) = (hunk.ops().first(), hunk.ops().last()) {
            let (old, new) = (begin.old_range().start, begin.new_range().start);
            let whole = DiffOp::Replace {
                old_index: first + old,
                old_len: end.old_range().end - old,
                new_index: first + new,
                new_len: end.new_range().end - new,
            };
            writeln!(text, "{}", UnifiedHunkHeader::new(&[whole]))?;
        }
        for change in hunk.iter_changes() {
            write!(text, "{}{}", change.tag(), change.to_string_lossy())?;
            if change.missing_newline() {
                write!(text, "\n\\ No newline at end of file\n")?;
            }
        }
    }
    Ok(())
}

/// Returns the number of lines before the changed range, and both contents around it. Most of a
/// file does not change in an edit and need not be split into lines.
fn around_the_change<'a>(old: &'a [u8], new: &'a [u8]) -> (usize, &'a [u8], &'a [u8]) {
    let same = same_at_start(old, new);
    let mut start = line_start(old, same);
    for _ in 0..COMPARED_LINES {
        start = line_start(old, start.saturating_sub(1));
    }
    let most = old.len().min(new.len()) - same;
    let mut end = same_at_end(&old[old.len() - most..], &new[new.len() - most..]);
    // The whole line in which the common end begins, and the context after it.
    for _ in 0..=COMPARED_LINES {
        let line = old[old.len() - end..]
            .iter()
            .position(|byte| *byte == b'\n');
        end -= line.map_or(end, |at| at + 1);
    }
    let before = memchr::memchr_iter(b'\n', &old[..start]).count();
    (
        before,
        &old[start..old.len() - end],
        &new[start..new.len() - end],
    )
}

/// Returns the start of the line that contains offset `at`.
fn line_start(text: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &text[..at]).map_or(0, |at| at + 1)
}

fn same_at_start(old: &[u8], new: &[u8]) -> usize {
    old.iter()
        .zip(new)
        .take_while(|(old, new)| old == new)
        .count()
}

fn same_at_end(old: &[u8], new: &[u8]) -> usize {
    old.iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(old, new)| old == new)
        .count()
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    // Checking is much faster than searching for bytes to replace.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Buffer that fails once it holds `MAX_DIFF_BYTES`.
struct DiffBuffer(Vec<u8>);

impl Write for DiffBuffer {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() + piece.len() > MAX_DIFF_BYTES {
            return Err(io::Error::other("the diff is long enough"));
        }
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_change_is_shown_with_its_surroundings() {
        let old = b"1\n2\n3\n4\n5\n6\n7\n8\n9";
        let new = b"1\n2\n3\n4\nfive\n6\n7\n8\n9";
        let (diff, is_cut) = unified(old, new);
        assert_eq!(
            String::from_utf8(diff).unwrap(),
            "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        );
        assert!(!is_cut);
    }

    fn of_the_whole(old: &str, new: &str) -> String {
        let diff = TextDiff::configure().diff_lines(old, new);
        let mut diff = diff.unified_diff();
        diff.context_radius(CONTEXT_LINES).to_string()
    }

    proptest! {
        #[test]
        fn lines_that_stay_make_no_difference(
            before in 0..40_usize, old in "[ab\n]{0,8}", new in "[ab\n]{0,8}", after in 0..40_usize, end in "[ab]{0,2}",
        ) {
            // No two of them are equal: otherwise either could be shown as the new one.
            let lines = |count, word: &str| (0..count).fold(String::new(), |text, n| format!("{text}{word}{n}\n"));
            let whole = |middle: &str| format!("{}{middle}\n{}{end}", lines(before, "x"), lines(after, "y"));
            let (old, new) = (whole(&old), whole(&new));
            let (diff, is_cut) = unified(old.as_bytes(), new.as_bytes());
            prop_assert_eq!(String::from_utf8(diff).unwrap(), of_the_whole(&old, &new));
            prop_assert!(!is_cut);
        }
    }

    #[test]
    fn a_large_diff_is_cut_at_a_line() {
        let new: Vec<u8> = (0..20_000)
            .flat_map(|n| format!("{n}\n").into_bytes())
            .collect();
        let (diff, is_cut) = unified(b"", &new);
        assert!(is_cut && diff.len() <= MAX_DIFF_BYTES && diff.ends_with(b"\n"));
    }
}
