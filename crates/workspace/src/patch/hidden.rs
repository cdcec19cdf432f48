//! Searches changes for characters that are invisible or misleading when displayed.

use super::{PatchError, Style, write_change};
use crate::{CollectedChanges, RelPath};
use glovebox_proto::visible::HiddenCharacters;
use std::io::{self, Write};

/// Maximum size of the part of a patch that is searched, in bytes.
const MAX_SEARCHED_BYTES: u64 = 64 << 20;

/// Files of a change set with hidden characters in their names or changed texts.
#[derive(Debug, Default)]
pub struct HiddenReport {
    /// Files with the characters found, in the order of the changes.
    pub files: Vec<(RelPath, HiddenCharacters)>,
    /// True if the patch was too long to be searched completely.
    pub is_partial: bool,
}

/// Searches the first 64 MiB of a change set's patch.
///
/// # Errors
/// [`PatchError`] if a version cannot be read.
pub fn find_hidden(collected: &CollectedChanges) -> Result<HiddenReport, PatchError> {
    let mut report = HiddenReport::default();
    let mut searched = 0;
    for change in &collected.set.changes {
        if searched > MAX_SEARCHED_BYTES {
            report.is_partial = true;
            break;
        }
        let mut search = HiddenSearch::default();
        search.found.add(change.path.as_bytes());
        write_change(collected, change, Style::Search, &mut search)?;
        searched += search.bytes;
        let found = search.finish();
        if !found.is_empty() {
            report.files.push((change.path.clone(), found));
        }
    }
    Ok(report)
}

/// Writer that searches lines written with [`Style::Search`].
#[derive(Debug, Default)]
pub struct HiddenSearch {
    found: HiddenCharacters,
    /// Beginning of a line that has not ended yet.
    pending: Vec<u8>,
    bytes: u64,
}

impl HiddenSearch {
    /// Returns the characters found.
    pub fn finish(mut self) -> HiddenCharacters {
        self.found.add(&self.pending);
        self.found
    }
}

impl Write for HiddenSearch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(end) => {
                    self.pending.extend_from_slice(end);
                    self.found.add_line(&self.pending);
                    self.pending.clear();
                }
                None => self.pending.extend_from_slice(part),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
