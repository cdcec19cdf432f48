//! Sets the skip-worktree bit in the index of a seed for tracked files that are hidden from the
//! sandbox. Git then treats them as unchanged, so the tree is clean and `git commit -a` does not
//! delete them.

use super::source::as_path;
use crate::git::index::{Entry, read};
use sha1::{Digest as _, Sha1};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Flag of an entry that has two more bytes of flags, since version 3.
const EXTENDED: u16 = 0x4000;
/// Extended flag of a file that git does not expect in the working tree.
const SKIP_WORKTREE: u16 = 0x4000;

/// Returns the index with the bit set for each entry at or below one of the `hidden` paths, which
/// are relative to the top of its working tree. `None` if no entry is, or if the index is split or
/// damaged.
pub(super) fn skip_hidden(bytes: &[u8], hidden: &BTreeSet<PathBuf>) -> Option<Vec<u8>> {
    if hidden.is_empty() {
        return None;
    }
    let is_hidden = |name: &[u8]| {
        let mut above = as_path(name).ancestors();
        above.any(|path: &Path| hidden.contains(path))
    };
    let rewritten = read(bytes, |all: &mut Rewritten, entry| {
        all.add(entry, is_hidden(entry.name));
    })?;
    rewritten.has_hidden.then(|| rewritten.finish())
}

/// An index of version 3 without extensions, which git can recompute.
#[derive(Default)]
struct Rewritten {
    entries: Vec<u8>,
    count: u32,
    id_bytes: usize,
    has_hidden: bool,
}

impl Rewritten {
    fn add(&mut self, entry: &Entry<'_>, is_hidden: bool) {
        let start = self.entries.len();
        self.id_bytes = entry.id.len();
        self.entries.extend_from_slice(entry.fixed);
        self.entries.extend_from_slice(entry.id);
        let mut further = entry.further_flags;
        // Entries for the sides of a conflict are not files in the working tree.
        if is_hidden && entry.stage() == 0 {
            further |= SKIP_WORKTREE;
            self.has_hidden = true;
        }
        let flags = entry.flags() & !EXTENDED;
        if further == 0 {
            self.entries.extend(flags.to_be_bytes());
        } else {
            self.entries.extend((flags | EXTENDED).to_be_bytes());
            self.entries.extend(further.to_be_bytes());
        }
        self.entries.extend_from_slice(entry.name);
        let used = self.entries.len() - start;
        self.entries.resize(start + (used / 8 + 1) * 8, 0);
        self.count += 1;
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = b"DIRC\0\0\0\x03".to_vec();
        bytes.extend(self.count.to_be_bytes());
        bytes.extend(self.entries);
        if self.id_bytes == 20 {
            let digest = Sha1::digest(&bytes);
            bytes.extend_from_slice(&digest);
        } else {
            // A null checksum is valid, as with `index.skipHash`.
            bytes.resize(bytes.len() + self.id_bytes, 0);
        }
        bytes
    }
}
