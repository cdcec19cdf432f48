//! A small unified diff of two contents, for showing what an edit did. It is for reading, so bytes
//! that are not UTF-8 are replaced; a patch to apply is made elsewhere.

use glovebox_proto::limits::MAX_DIFF_BYTES;
use similar::TextDiff;
use std::io::{self, Write};
use std::time::Duration;

/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// After this long the diff gets coarser.
const PATIENCE: Duration = Duration::from_millis(100);

/// The hunks, without file names, and whether they were cut.
pub(super) fn unified(old: &[u8], new: &[u8]) -> (Vec<u8>, bool) {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let diff = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(old.as_ref(), new.as_ref());
    let mut hunks = diff.unified_diff();
    let mut text = Bounded(Vec::new());
    let is_cut = hunks
        .context_radius(CONTEXT_LINES)
        .to_writer(&mut text)
        .is_err();
    let mut text = text.0;
    if is_cut {
        let end = text.iter().rposition(|byte| *byte == b'\n');
        text.truncate(end.map_or(0, |at| at + 1));
    }
    (text, is_cut)
}

/// Takes as much as may be answered.
struct Bounded(Vec<u8>);

impl Write for Bounded {
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

    #[test]
    fn a_large_diff_is_cut_at_a_line() {
        let new: Vec<u8> = (0..20_000)
            .flat_map(|n| format!("{n}\n").into_bytes())
            .collect();
        let (diff, is_cut) = unified(b"", &new);
        assert!(is_cut && diff.len() <= MAX_DIFF_BYTES && diff.ends_with(b"\n"));
    }
}
