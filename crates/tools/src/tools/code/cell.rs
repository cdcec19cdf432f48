//! Output and end of a cell, extracted from everything that a session writes.

use crate::tools::log::{LogEnds, Part};

/// Maximum length of a mark: a record separator, a token, a space, a word and a line feed.
const MAX_MARK_BYTES: usize = 64;

/// End of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellStatus {
    Ok,
    Failed,
    /// The session ended before the cell.
    Lost,
}

/// Cell, and its output so far.
#[derive(Debug)]
pub(super) struct Cell {
    token: String,
    /// Offset in the log of its first byte of output. `None` before its first mark.
    base: Option<u64>,
    ends: LogEnds,
    word: Option<CellStatus>,
    /// Bytes at the end that may be the beginning of a mark.
    pending: Vec<u8>,
}

impl Cell {
    pub(super) fn new() -> Self {
        Self::with_token(crate::tools::token())
    }

    fn with_token(token: String) -> Self {
        Self {
            token,
            base: None,
            ends: LogEnds::default(),
            word: None,
            pending: Vec::new(),
        }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn word(&self) -> Option<CellStatus> {
        self.word
    }

    pub(super) fn ends(&self) -> &LogEnds {
        &self.ends
    }

    pub(super) fn has_begun(&self) -> bool {
        self.base.is_some()
    }

    pub(super) fn base(&self) -> u64 {
        self.base.unwrap_or_default()
    }

    /// Records that the session has ended.
    pub(super) fn lose(&mut self) {
        if self.word.is_none() {
            let rest = std::mem::take(&mut self.pending);
            self.ends.take(0, &rest);
            self.word = Some(CellStatus::Lost);
        }
    }

    /// Takes a part of the log. `offset` is where it should begin; the bytes up to its real start
    /// are lost.
    pub(super) fn take(&mut self, offset: u64, part: &Part) {
        let skipped = part.start.saturating_sub(offset);
        if skipped > 0 {
            // The held bytes cannot be a mark, because the bytes that would complete it are lost.
            let held = std::mem::take(&mut self.pending);
            if self.base.is_none() {
                // The lost bytes contained the first mark, so the cell begins here.
                self.base = Some(offset.saturating_sub(held.len() as u64));
            }
            self.ends.take(0, &held);
            self.ends.take(skipped, &[]);
        }
        let begin = part.start - self.pending.len() as u64;
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(&part.bytes);
        self.scan(begin, &bytes);
    }

    /// Searches `bytes`, which begin at `offset` of the log, for marks of this cell.
    fn scan(&mut self, offset: u64, bytes: &[u8]) {
        let mark = format!("\x1e{} ", self.token);
        let mut from = 0;
        while self.word.is_none() {
            let Some(at) = position(&bytes[from..], mark.as_bytes()).map(|at| from + at) else {
                break;
            };
            let word = &bytes[at + mark.len()..];
            let Some(end) = word.iter().position(|byte| *byte == b'\n') else {
                // The rest of the mark has not arrived yet, unless the line is too long for one.
                if bytes.len() - at < MAX_MARK_BYTES {
                    self.hold(bytes, from, at);
                    return;
                }
                break;
            };
            let (word, after) = (&word[..end], at + mark.len() + end + 1);
            if word == b"begin" {
                self.base = Some(offset + after as u64);
                self.ends = LogEnds::default();
            } else {
                self.keep(&bytes[from..at]);
                self.word = Some(if word == b"ok" {
                    CellStatus::Ok
                } else {
                    CellStatus::Failed
                });
            }
            from = after;
        }
        if self.word.is_some() {
            return;
        }
        // A mark may begin in the last bytes.
        let tail = from.max(bytes.len().saturating_sub(mark.len()));
        let at = bytes[tail..].iter().position(|byte| *byte == 0x1e);
        self.hold(bytes, from, at.map_or(bytes.len(), |at| tail + at));
    }

    fn hold(&mut self, bytes: &[u8], from: usize, at: usize) {
        self.keep(&bytes[from..at]);
        self.pending = bytes[at..].to_vec();
    }

    /// Keeps output of the cell. Output before the first mark belongs to an earlier cell.
    fn keep(&mut self, bytes: &[u8]) {
        if self.base.is_some() {
            self.ends.take(0, bytes);
        }
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(start: u64, bytes: &[u8]) -> Part {
        Part {
            bytes: bytes.to_vec(),
            start,
            total: start + bytes.len() as u64,
            is_end: false,
        }
    }

    proptest! {
        #[test]
        fn a_cell_is_found_however_its_output_arrives(
            before in "[a-z\x1e ]{0,80}", output in "[a-z\x1e\n ]{0,200}", step in 1_usize..90, is_ok: bool,
        ) {
            let mut cell = Cell::with_token("0123456789abcdef0123456789abcdef".to_owned());
            let word = if is_ok { "ok" } else { "failed" };
            let token = cell.token();
            let log = format!("{before}\x1e{token} begin\n{output}\x1e{token} {word}\nlater");
            let mut offset = 0;
            for bytes in log.as_bytes().chunks(step) {
                cell.take(offset, &part(offset, bytes));
                offset += bytes.len() as u64;
            }
            prop_assert_eq!(cell.word(), Some(if is_ok { CellStatus::Ok } else { CellStatus::Failed }));
            prop_assert_eq!(&cell.ends().head[..], output.as_bytes());
            let base = cell.base() as usize;
            prop_assert_eq!(&log.as_bytes()[base..base + output.len()], output.as_bytes());
        }
    }

    #[test]
    fn what_the_log_has_lost_is_counted() {
        let mut cell = Cell::with_token("t".to_owned());
        cell.take(0, &part(0, b"\x1et begin\nab"));
        cell.take(11, &part(100, b"yz\x1et ok\n"));
        let ends = cell.ends();
        assert_eq!(
            (&ends.head[..], ends.gap, &ends.tail[..]),
            (&b"ab"[..], 89, &b"yz"[..])
        );
        assert_eq!(cell.word(), Some(CellStatus::Ok));
    }
}
