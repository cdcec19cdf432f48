//! Compares two texts by lines, as hunks of a unified patch.

use super::{Line, Style};
use imara_diff::{Algorithm, Diff, InternedInput};
use std::io::{self, Write};
use std::ops::Range;

/// Number of unchanged lines around a change.
const CONTEXT_LINES: u32 = 3;
const NO_NEWLINE: &[u8] = b"\\ No newline at end of file";

/// Two texts and their differences.
pub(super) struct TextComparison<'a> {
    input: InternedInput<&'a [u8]>,
    diff: Diff,
}

/// Changes that are close enough to share their context.
#[derive(Debug, Clone)]
pub(super) struct Hunk {
    before: Range<u32>,
    after: Range<u32>,
    changes: Vec<(Range<u32>, Range<u32>)>,
}

impl Hunk {
    /// Returns pairs of replaced lines and their replacements.
    pub(super) fn changes(&self) -> &[(Range<u32>, Range<u32>)] {
        &self.changes
    }

    pub(super) fn can_split(&self) -> bool {
        self.changes.len() > 1
    }

    /// Returns one hunk per change; unchanged lines between two changes are context of both.
    pub(super) fn split(&self) -> Vec<Self> {
        let count = self.changes.len();
        let part = |(number, (before, after)): (usize, &(Range<u32>, Range<u32>))| {
            let mut part = self.clone();
            if number > 0 {
                let (previous, previous_after) = &self.changes[number - 1];
                (part.before.start, part.after.start) = (previous.end, previous_after.end);
            }
            if number + 1 < count {
                let (next, next_after) = &self.changes[number + 1];
                (part.before.end, part.after.end) = (next.start, next_after.start);
            }
            part.changes = vec![(before.clone(), after.clone())];
            part
        };
        self.changes.iter().enumerate().map(part).collect()
    }
}

impl<'a> TextComparison<'a> {
    pub(super) fn new(before: &'a [u8], after: &'a [u8]) -> Self {
        let mut input = InternedInput::default();
        // Lines keep their line break, so that a last line without one differs from the same line
        // with one.
        input.update_before(before.split_inclusive(|byte| *byte == b'\n'));
        input.update_after(after.split_inclusive(|byte| *byte == b'\n'));
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        Self { input, diff }
    }

    /// Returns the numbers of lines added and removed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (
            u64::from(self.diff.count_additions()),
            u64::from(self.diff.count_removals()),
        )
    }

    /// Returns the size of the common lines, in percent of the larger text.
    pub(super) fn similarity(&self) -> usize {
        let bytes = |range: &mut dyn Iterator<Item = u32>, tokens: &[imara_diff::Token]| {
            range
                .map(|index| self.input.interner[tokens[index as usize]].len())
                .sum::<usize>()
        };
        let before = bytes(&mut (0..self.lines_before()), &self.input.before);
        let after = bytes(&mut (0..self.lines_after()), &self.input.after);
        let mut kept = (0..self.lines_before()).filter(|index| !self.diff.is_removed(*index));
        let kept = bytes(&mut kept, &self.input.before);
        (kept * 100).checked_div(before.max(after)).unwrap_or(100)
    }

    fn lines_before(&self) -> u32 {
        self.input.before.len() as u32
    }

    fn lines_after(&self) -> u32 {
        self.input.after.len() as u32
    }

    /// Writes the hunks; nothing for equal texts.
    pub(super) fn write(&self, style: Style, out: &mut dyn Write) -> io::Result<()> {
        for hunk in self.hunks() {
            self.write_hunk(&hunk, style, out)?;
        }
        Ok(())
    }

    pub(super) fn write_hunk(
        &self,
        hunk: &Hunk,
        style: Style,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let range = format!("@@ -{} +{} @@", span(&hunk.before), span(&hunk.after));
        style.line(out, Line::Range, range.as_bytes())?;
        let mut at = hunk.before.start;
        for (before, after) in &hunk.changes {
            self.lines(style, out, Line::Same, at..before.start)?;
            self.lines(style, out, Line::Removed, before.clone())?;
            self.lines(style, out, Line::Added, after.clone())?;
            at = before.end;
        }
        self.lines(style, out, Line::Same, at..hunk.before.end)
    }

    pub(super) fn hunks(&self) -> Vec<Hunk> {
        let mut hunks: Vec<Hunk> = Vec::new();
        for change in self.diff.hunks() {
            let (before, after) = (change.before, change.after);
            let context = |range: &Range<u32>, count: u32| {
                range.start.saturating_sub(CONTEXT_LINES)..(range.end + CONTEXT_LINES).min(count)
            };
            let wide_before = context(&before, self.lines_before());
            let wide_after = context(&after, self.lines_after());
            match hunks.last_mut() {
                Some(last) if wide_before.start <= last.before.end => {
                    last.before.end = wide_before.end;
                    last.after.end = wide_after.end;
                    last.changes.push((before, after));
                }
                _ => hunks.push(Hunk {
                    before: wide_before,
                    after: wide_after,
                    changes: vec![(before, after)],
                }),
            }
        }
        hunks
    }

    fn lines(
        &self,
        style: Style,
        out: &mut dyn Write,
        kind: Line,
        range: Range<u32>,
    ) -> io::Result<()> {
        let (tokens, mark) = match kind {
            Line::Added => (&self.input.after, b'+'),
            Line::Removed => (&self.input.before, b'-'),
            _ => (&self.input.before, b' '),
        };
        for index in range {
            let text = self.input.interner[tokens[index as usize]];
            let (text, is_ended) = match text.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (text, false),
            };
            // A byte order mark at the beginning of a file is not a hidden character.
            let text = match text.strip_prefix("\u{feff}".as_bytes()) {
                Some(text) if index == 0 && matches!(style, Style::Search) => text,
                _ => text,
            };
            let mut line = Vec::with_capacity(text.len() + 1);
            line.push(mark);
            line.extend_from_slice(text);
            style.line(out, kind, &line)?;
            if !is_ended {
                style.line(out, Line::Same, NO_NEWLINE)?;
            }
        }
        Ok(())
    }
}

/// Returns a range as `start,count`. Lines are counted from 1; for an empty range, `start` is the
/// line before it.
fn span(range: &Range<u32>) -> String {
    match range.end - range.start {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(before: &str, after: &str) -> String {
        let mut out = Vec::new();
        TextComparison::new(before.as_bytes(), after.as_bytes())
            .write(Style::Exact, &mut out)
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_with_and_without_a_last_line_break() {
        assert_eq!(patch("", "a\n"), "@@ -0,0 +1 @@\n+a\n");
        assert_eq!(patch("a\nb\n", ""), "@@ -1,2 +0,0 @@\n-a\n-b\n");
        assert_eq!(
            patch("a\nb", "a\nb\n"),
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"
        );
        assert_eq!(
            patch("a\nb", "c\nb"),
            "@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n"
        );
        assert_eq!(patch("same", "same"), "");
    }

    #[test]
    fn near_changes_share_a_hunk_and_far_ones_do_not() {
        let lines = |changed: &[usize]| {
            (0..30)
                .map(|line| line.to_string() + if changed.contains(&line) { "!\n" } else { "\n" })
                .collect::<String>()
        };
        let hunks = |changed| patch(&lines(&[]), &lines(changed)).matches("@@ -").count();
        assert_eq!(hunks(&[3, 9]), 1);
        assert_eq!(hunks(&[3, 10]), 1);
        assert_eq!(hunks(&[3, 11]), 2);
        assert_eq!(hunks(&[0, 29]), 2);
    }

    #[test]
    fn similarity_is_the_share_of_what_stays() {
        let share = |a: &str, b: &str| TextComparison::new(a.as_bytes(), b.as_bytes()).similarity();
        assert_eq!(share("", ""), 100);
        assert_eq!(share("a\nb\n", "a\nc\n"), 50);
        assert_eq!(share("a\n", "b\n"), 0);
    }
}
