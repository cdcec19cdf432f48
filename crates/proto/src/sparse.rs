//! Holes in files: aligned blocks of zeros that are not written, so that the file system allocates
//! nothing for them.
//!
//! The wire carries content whole. The writer of a new file writes only the data and sets the
//! length at the end, because a hole at the end does not extend a file. Unwritten ranges read as
//! zeros, so pieces of a content need not end at block boundaries.

/// Alignment of holes, in bytes: the block size of common file systems.
const BLOCK_BYTES: u64 = 4096;

/// Iterator over the parts of a content that are not holes.
#[derive(Debug)]
pub struct DataRuns<'a> {
    at: u64,
    bytes: &'a [u8],
}

/// Returns the parts of `bytes` that must be written, each with its offset in the file. `bytes`
/// begin at offset `at`. All other bytes are zeros.
pub const fn data_runs(at: u64, bytes: &[u8]) -> DataRuns<'_> {
    DataRuns { at, bytes }
}

impl<'a> DataRuns<'a> {
    /// Returns the length of the block that begins at index `from`, and true if it is a hole. The
    /// length is 0 at the end.
    fn first_block(&self, from: usize) -> (usize, bool) {
        let to_boundary = BLOCK_BYTES - (self.at + from as u64) % BLOCK_BYTES;
        let rest = self.bytes.get(from..).unwrap_or_default();
        let block = rest.get(..to_boundary as usize).unwrap_or(rest);
        (block.len(), block.iter().all(|byte| *byte == 0))
    }

    fn split(&mut self, length: usize) -> (u64, &'a [u8]) {
        let (first, rest) = self.bytes.split_at(length);
        let at = self.at;
        self.at += first.len() as u64;
        self.bytes = rest;
        (at, first)
    }
}

impl<'a> Iterator for DataRuns<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let (length @ 1.., true) = self.first_block(0) {
            self.split(length);
        }
        let mut end = 0;
        while let (length @ 1.., false) = self.first_block(end) {
            end += length;
        }
        (end > 0).then(|| self.split(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_of_zeros_are_holes_wherever_a_piece_is_cut() {
        let mut bytes = vec![0; 5 * 4096];
        bytes[2 * 4096] = 1;
        let runs: Vec<_> = data_runs(0, &bytes).collect();
        assert_eq!(runs, [(8192, &bytes[8192..12288])]);
        assert_eq!(data_runs(0, &[0; 8192]).count(), 0);
        assert_eq!(data_runs(4095, &[0; 8192]).count(), 0);
        assert_eq!(data_runs(10, &[]).count(), 0);
    }

    proptest! {
        #[test]
        fn content_is_the_same_however_it_is_cut(
            runs in prop::collection::vec((0_u8..2, 1_usize..9000), 1..8),
            cuts in prop::collection::vec(1_usize..9000, 1..20),
        ) {
            let text: Vec<u8> = runs.iter().flat_map(|(byte, count)| vec![*byte; *count]).collect();
            let mut found = vec![0; text.len()];
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            while at < text.len() {
                let end = text.len().min(at + cuts.next().unwrap());
                for (offset, run) in data_runs(at as u64, &text[at..end]) {
                    let offset = offset as usize;
                    found[offset..offset + run.len()].copy_from_slice(run);
                }
                at = end;
            }
            prop_assert_eq!(found, text);
        }
    }
}
