//! The wanted lines of a text, gathered while it goes by.

use crate::cut::OUTPUT_BYTES;
use glovebox_proto::visible;
use std::fmt::Write as _;

/// Bytes of a line that are shown.
const LINE_BYTES: usize = 2000;

/// Some lines of a text that arrives in pieces of any size.
#[derive(Debug)]
pub(super) struct Page {
    first: u64,
    limit: u64,
    /// Number of the line that is being gathered.
    line: u64,
    current: Vec<u8>,
    /// Bytes of the current line that were left out.
    dropped: u64,
    text: String,
    shown: u64,
    /// There is more after what was shown.
    has_more: bool,
    bytes: u64,
}

impl Page {
    /// At most `limit` lines from line `first` on, which is counted from 1.
    pub(super) fn new(first: u64, limit: u64) -> Self {
        Self {
            first,
            limit,
            line: 1,
            current: Vec::new(),
            dropped: 0,
            text: String::new(),
            shown: 0,
            has_more: false,
            bytes: 0,
        }
    }

    /// Number of the line that what is taken next belongs to.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// What follows is not wanted.
    pub(super) fn is_full(&self) -> bool {
        self.has_more
    }

    /// Whether all of the text was shown, if what was taken is all of it.
    pub(super) fn is_whole(&self) -> bool {
        !self.has_more && self.first == 1
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() && !self.has_more {
            let end = memchr::memchr(b'\n', rest);
            let (line, after) = match end {
                Some(end) => (&rest[..end], Some(&rest[end + 1..])),
                None => (rest, None),
            };
            if self.line >= self.first {
                // A line begins after the page is full: that is how "more" is known.
                if self.shown >= self.limit || self.text.len() >= OUTPUT_BYTES {
                    self.has_more = true;
                    return;
                }
                if let (Some(after), true) = (after, self.is_at_start() && line.len() <= LINE_BYTES)
                {
                    // Most lines are short and arrive whole.
                    push_number(&mut self.text, self.line);
                    visible::push_lines(&mut self.text, &rest[..=line.len()]);
                    self.shown += 1;
                    self.line += 1;
                    rest = after;
                    continue;
                }
                let room = LINE_BYTES - self.current.len();
                self.current
                    .extend_from_slice(&line[..line.len().min(room)]);
                self.dropped += line.len().saturating_sub(room) as u64;
            }
            let Some(after) = after else { return };
            self.end_line();
            rest = after;
        }
    }

    /// Whether nothing of the current line has arrived yet.
    fn is_at_start(&self) -> bool {
        self.current.is_empty() && self.dropped == 0
    }

    fn end_line(&mut self) {
        if self.line >= self.first {
            // The line feed tells a carriage return before it from one inside.
            self.current.push(b'\n');
            push_number(&mut self.text, self.line);
            visible::push_lines(&mut self.text, &self.current);
            self.text.pop();
            if self.dropped > 0 {
                let _ = write!(
                    self.text,
                    "[... {} bytes of this line left out]",
                    self.dropped
                );
            }
            self.text.push('\n');
            self.shown += 1;
        }
        self.current.clear();
        self.dropped = 0;
        self.line += 1;
    }

    /// The lines, and what to say about what is not among them.
    pub(super) fn finish(mut self) -> ShownPage {
        if !self.current.is_empty() && !self.has_more {
            self.end_line();
        }
        let next = self.first + self.shown;
        if self.has_more {
            let _ = write!(self.text, "[more follows: offset {next}]");
        } else if self.shown == 0 && self.bytes == 0 {
            self.text.push_str("[the file is empty]");
        } else if self.shown == 0 {
            let _ = write!(self.text, "[the file ends at line {}]", self.line - 1);
        }
        ShownPage {
            text: self.text,
            first: self.first,
            shown: self.shown,
            next: self.has_more.then_some(next),
        }
    }
}

/// Adds the number of a line, in six columns or more. For every line of every file that is read: the
/// formatting of the standard library takes longer than the rest of it.
fn push_number(text: &mut String, mut number: u64) {
    let mut digits = [b' '; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let shown = &digits[at.min(digits.len() - 6)..];
    text.push_str(std::str::from_utf8(shown).unwrap_or_default());
    text.push('\t');
}

/// A page as it is shown.
#[derive(Debug)]
pub(super) struct ShownPage {
    pub(super) text: String,
    pub(super) first: u64,
    pub(super) shown: u64,
    /// The line to ask for next.
    pub(super) next: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(content: &[u8], pieces: usize, first: u64, limit: u64) -> ShownPage {
        let mut page = Page::new(first, limit);
        for piece in content.chunks(pieces) {
            if !page.is_full() {
                page.take(piece);
            }
        }
        page.finish()
    }

    #[test]
    fn lines_are_counted_from_one() {
        let page = page(b"a\r\nb\r\nc\r\n", 100, 2, 1);
        assert_eq!(page.text, "     2\tb\n[more follows: offset 3]");
        assert_eq!(page.next, Some(3));
    }

    #[test]
    fn numbers_stand_in_six_columns_or_more() {
        for number in [0, 1, 9, 10, 99_999, 999_999, 1_000_000, u64::MAX] {
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, format!("{number:>6}\t"));
        }
    }

    #[test]
    fn the_last_line_is_not_more() {
        let page = page(b"a\nb\n", 100, 1, 2);
        assert_eq!((page.shown, page.next), (2, None));
    }

    #[test]
    fn endless_lines_are_cut() {
        let page = page(&[b'x'; 10_000], 300, 1, 10);
        assert!(page.text.contains("8000 bytes of this line left out"));
    }

    proptest! {
        #[test]
        fn how_a_file_arrives_does_not_matter(
            content in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..300),
            pieces in 1_usize..50, first in 1_u64..10, limit in 1_u64..10,
        ) {
            let (whole, parts) = (page(&content, 1000, first, limit), page(&content, pieces, first, limit));
            prop_assert_eq!(whole.text, parts.text);
            prop_assert_eq!(whole.next, parts.next);
        }
    }
}
