//! Log of a job's output: one sequence of bytes over standard output and error, within limits.
//!
//! Bytes go to the head (in memory) until it is full, then to the spill file until that is full,
//! then to the tail ring, which drops its oldest bytes. Offsets count every byte ever written, so
//! they stay exact whichever bytes were dropped. Marks record where the stream changes between
//! standard output and error. Marks are bounded too: a job that alternates byte by byte loses bytes
//! from the middle early, but memory stays bounded.

mod text;

pub(crate) use text::LogText;

use crate::spill::Spill;
use glovebox_proto::LogCaps;
use std::collections::VecDeque;

/// Maximum number of stream changes recorded for head and spill together, and again for the tail.
const MAX_MARKS: usize = 4096;

/// Start of a run of bytes of one stream.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: u64,
    is_stderr: bool,
}

/// Bytes of one stream in order, and true if that is standard error.
pub(crate) type Chunk = (bool, Vec<u8>);

/// The log of one job.
#[derive(Debug)]
pub(crate) struct Log {
    caps: LogCaps,
    head: Vec<u8>,
    spill: Option<Spill>,
    /// Bytes in head and spill together: the kept beginning.
    prefix: u64,
    /// True if nothing is added to the beginning any more.
    is_prefix_closed: bool,
    prefix_marks: Vec<Mark>,
    tail: VecDeque<u8>,
    tail_marks: VecDeque<Mark>,
    total: u64,
}

impl Log {
    /// Creates an empty log; it allocates when something is written.
    pub(crate) fn new(caps: LogCaps) -> Self {
        Self {
            caps,
            head: Vec::new(),
            spill: None,
            prefix: 0,
            is_prefix_closed: false,
            prefix_marks: Vec::new(),
            tail: VecDeque::new(),
            tail_marks: VecDeque::new(),
            total: 0,
        }
    }

    /// Returns the number of bytes ever written.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the approximate memory in use, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.head.capacity()
            + self.tail.capacity()
            + (self.prefix_marks.capacity() + self.tail_marks.capacity()) * size_of::<Mark>()
    }

    /// Returns the size of the spill file, in bytes.
    pub(crate) fn spill_bytes(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::len)
    }

    /// Appends bytes. `open_spill` is called at most once in the life of a log: when the head is
    /// full and the limits allow a file.
    pub(crate) fn append(
        &mut self,
        is_stderr: bool,
        mut bytes: &[u8],
        open_spill: impl FnOnce() -> Option<Spill>,
    ) {
        if bytes.is_empty() {
            return;
        }
        if !self.is_prefix_closed && self.mark_prefix(is_stderr) {
            let room = (self.caps.head_bytes as usize).saturating_sub(self.head.len());
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.head.extend_from_slice(now);
            self.advance_prefix(now.len());
            bytes = rest;
            if !bytes.is_empty() {
                if self.spill.is_none() && self.caps.spill_bytes > 0 {
                    self.spill = open_spill();
                }
                let room = self.caps.spill_bytes.saturating_sub(self.spill_bytes());
                let (now, rest) = bytes.split_at((room.min(bytes.len() as u64)) as usize);
                let kept = self.spill.as_mut().map_or(0, |spill| spill.append(now));
                self.advance_prefix(kept);
                // A file that accepted fewer bytes than offered is full or broken: the beginning
                // ends there.
                self.is_prefix_closed = kept < now.len() || !rest.is_empty();
                bytes = &bytes[kept..];
            }
        }
        self.append_tail(is_stderr, bytes);
    }

    fn advance_prefix(&mut self, count: usize) {
        self.prefix += count as u64;
        self.total += count as u64;
    }

    /// Records the stream of the next bytes. Returns false if there is no room for another mark.
    fn mark_prefix(&mut self, is_stderr: bool) -> bool {
        if self
            .prefix_marks
            .last()
            .is_some_and(|mark| mark.is_stderr == is_stderr)
        {
            return true;
        }
        if self.prefix_marks.len() == MAX_MARKS {
            self.is_prefix_closed = true;
            return false;
        }
        self.prefix_marks.push(Mark {
            at: self.prefix,
            is_stderr,
        });
        true
    }

    fn append_tail(&mut self, is_stderr: bool, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let cap = self.caps.tail_bytes as usize;
        let skipped = bytes.len().saturating_sub(cap);
        let kept = &bytes[skipped..];
        let overflow = (self.tail.len() + kept.len()).saturating_sub(cap);
        self.tail.drain(..overflow.min(self.tail.len()));
        if self
            .tail_marks
            .back()
            .is_none_or(|mark| mark.is_stderr != is_stderr)
        {
            self.tail_marks.push_back(Mark {
                at: self.total,
                is_stderr,
            });
        }
        // Doubling could exceed a large limit by almost twice.
        if self.tail.capacity() - self.tail.len() < kept.len() {
            let wanted = (2 * self.tail.capacity()).clamp(self.tail.len() + kept.len(), cap);
            self.tail.reserve_exact(wanted - self.tail.len());
        }
        self.tail.extend(kept);
        self.total += bytes.len() as u64;
        if self.tail_marks.len() > MAX_MARKS
            && let Some(second) = self.tail_marks.get(1)
        {
            let excess = (second.at.saturating_sub(self.tail_start())) as usize;
            self.tail.drain(..excess.min(self.tail.len()));
        }
        let start = self.tail_start();
        while self.tail_marks.get(1).is_some_and(|mark| mark.at <= start) {
            self.tail_marks.pop_front();
        }
    }

    fn tail_start(&self) -> u64 {
        self.total - self.tail.len() as u64
    }

    /// Returns up to `max_bytes` from `offset` on, as at most `max_chunks` runs of one stream, and
    /// their start: `offset`, or a later one if the bytes between were dropped.
    pub(crate) fn read(
        &self,
        offset: u64,
        max_bytes: usize,
        max_chunks: usize,
    ) -> (u64, Vec<Chunk>) {
        let offset = offset.min(self.total);
        let start = if offset < self.prefix {
            offset
        } else {
            offset.max(self.tail_start())
        };
        let mut chunks: Vec<Chunk> = Vec::new();
        let (mut at, mut left) = (start, max_bytes);
        while left > 0 && chunks.len() < max_chunks && at < self.total {
            let in_prefix = at < self.prefix;
            if !in_prefix && at < self.tail_start() {
                break;
            }
            let (is_stderr, run_end) = self.run_at(at, in_prefix);
            let wanted = ((run_end - at).min(left as u64)) as usize;
            let bytes = if in_prefix {
                self.read_prefix(at, wanted)
            } else {
                self.read_tail(at, wanted)
            };
            if bytes.is_empty() {
                break;
            }
            at += bytes.len() as u64;
            left -= bytes.len();
            match chunks.last_mut() {
                Some((stream, last)) if *stream == is_stderr => last.extend_from_slice(&bytes),
                _ => chunks.push((is_stderr, bytes)),
            }
        }
        (start, chunks)
    }

    /// Returns true if the byte at `at` is of standard error, and the end of its run.
    fn run_at(&self, at: u64, in_prefix: bool) -> (bool, u64) {
        if in_prefix {
            let next = self.prefix_marks.partition_point(|mark| mark.at <= at);
            let is_stderr = next
                .checked_sub(1)
                .is_some_and(|index| self.prefix_marks[index].is_stderr);
            (
                is_stderr,
                self.prefix_marks
                    .get(next)
                    .map_or(self.prefix, |mark| mark.at),
            )
        } else {
            let next = self.tail_marks.partition_point(|mark| mark.at <= at);
            let is_stderr = next
                .checked_sub(1)
                .is_some_and(|index| self.tail_marks[index].is_stderr);
            (
                is_stderr,
                self.tail_marks.get(next).map_or(self.total, |mark| mark.at),
            )
        }
    }

    fn read_prefix(&self, at: u64, wanted: usize) -> Vec<u8> {
        let head = self.head.len() as u64;
        if at < head {
            let from = at as usize;
            let to = (from + wanted).min(self.head.len());
            return self.head[from..to].to_vec();
        }
        self.spill
            .as_ref()
            .map_or_else(Vec::new, |spill| spill.read(at - head, wanted))
    }

    fn read_tail(&self, at: u64, wanted: usize) -> Vec<u8> {
        let from = (at - self.tail_start()) as usize;
        let to = (from + wanted).min(self.tail.len());
        self.tail.range(from..to).copied().collect()
    }

    /// Returns a copy of the kept bytes as one text, which later writes do not change.
    pub(crate) fn text(&self) -> LogText {
        LogText::of(self)
    }

    /// Releases spare memory after the last write.
    pub(crate) fn finish(&mut self) {
        self.head.shrink_to_fit();
        self.tail.shrink_to_fit();
        self.prefix_marks.shrink_to_fit();
        self.tail_marks.shrink_to_fit();
    }

    /// Drops the bytes; offsets and total stay.
    pub(crate) fn discard(&mut self) {
        *self = Self {
            total: self.total,
            is_prefix_closed: true,
            ..Self::new(self.caps)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn open() -> Option<Spill> {
        Spill::create(b"/tmp")
    }

    proptest! {
        /// Whatever is read back equals what was written at that offset, stream by stream; the
        /// beginning and the end are always there.
        #[test]
        fn reads_are_exact(
            caps in (0_u32..200, 0_u32..200, 0_u64..300),
            writes in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..150)), 0..40),
            max in 1_usize..400,
        ) {
            let caps = LogCaps { head_bytes: caps.0, tail_bytes: caps.1, spill_bytes: caps.2 };
            let mut log = Log::new(caps);
            let mut model: Vec<(bool, u8)> = Vec::new();
            for (is_stderr, bytes) in &writes {
                log.append(*is_stderr, bytes, open);
                model.extend(bytes.iter().map(|byte| (*is_stderr, *byte)));
            }
            prop_assert_eq!(log.total(), model.len() as u64);
            for offset in 0..=model.len() {
                let (start, chunks) = log.read(offset as u64, max, 64);
                prop_assert!(start >= offset as u64);
                let flat: Vec<_> = chunks.iter()
                    .flat_map(|(stream, bytes)| bytes.iter().map(|byte| (*stream, *byte))).collect();
                prop_assert!(flat.len() <= max);
                let start = start as usize;
                prop_assert_eq!(&flat[..], &model[start..start + flat.len()]);
                let is_in_prefix = (offset as u64) < u64::from(caps.head_bytes) + caps.spill_bytes;
                let is_in_tail = model.len() - offset <= caps.tail_bytes as usize;
                if offset < model.len() && (is_in_prefix || is_in_tail) {
                    prop_assert_eq!(start, offset);
                    prop_assert!(!flat.is_empty());
                }
            }
        }
    }

    #[test]
    fn alternating_streams_stay_bounded() {
        let mut log = Log::new(LogCaps {
            head_bytes: 1 << 20,
            tail_bytes: 1 << 20,
            spill_bytes: 0,
        });
        for round in 0..200_000_u32 {
            log.append(round % 2 == 0, &[round as u8], open);
        }
        assert!(log.memory_bytes() < 512 << 10, "{}", log.memory_bytes());
        let (start, chunks) = log.read(199_990, 100, 100);
        assert_eq!((start, chunks.len()), (199_990, 10));
    }
}
