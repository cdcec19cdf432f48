//! Selection of the requested lines from a text that arrives in pieces.

use crate::cut::OUTPUT_BYTES;
use glovebox_proto::visible;
use std::fmt::Write as _;

/// Maximum number of bytes shown of one line.
const LINE_BYTES: usize = 2000;

/// Requested lines of a text that arrives in pieces of any size.
#[derive(Debug)]
pub(super) struct Page {
    first: u64,
    limit: u64,
    /// Number of the line that is being collected.
    line: u64,
    current: Vec<u8>,
    /// Omitted bytes of the current line.
    dropped: u64,
    text: String,
    shown: u64,
    /// True if the text goes on after the shown lines.
    has_more: bool,
    bytes: u64,
}

impl Page {
    /// Collects at most `limit` lines from line `first` on. Lines are counted from 1.
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

    /// Returns the number of the line to which the next bytes belong.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Returns true if the page needs no further bytes.
    pub(super) fn is_full(&self) -> bool {
        self.has_more
    }

    /// Returns true if every line was shown, given that all bytes of the text were taken.
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
                // A line begins after the page is full, so more follows.
                if self.shown >= self.limit || self.text.len() >= OUTPUT_BYTES {
                    self.has_more = true;
                    return;
                }
                if let (Some(after), true) = (after, self.is_at_start() && line.len() <= LINE_BYTES)
                {
                    // Fast path: most lines are short and arrive whole.
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

    /// Returns true if nothing of the current line has arrived yet.
    fn is_at_start(&self) -> bool {
        self.current.is_empty() && self.dropped == 0
    }

    fn end_line(&mut self) {
        if self.line >= self.first {
            // The line feed marks a carriage return before it as part of a line end, not of the
            // line.
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

    /// Returns the lines, with a note if lines follow or none were shown.
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

/// Appends the number of a line, right-aligned in six columns. Written by hand, because the
/// standard library's formatting would take longer than the rest of a read.
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

/// Rendered page.
#[derive(Debug)]
pub(super) struct ShownPage {
    pub(super) text: String,
    pub(super) first: u64,
    pub(super) shown: u64,
    /// Number of the first line after the page. `None` at the end of the text.
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
