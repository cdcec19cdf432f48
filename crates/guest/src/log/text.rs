//! Kept part of a log as one text, for a search while the job keeps writing.

use crate::log::Log;
use crate::spill::Spill;
use glovebox_proto::log_gap;
use std::io::{self, Read};

/// Snapshot of a log: beginning, a text in place of the dropped bytes, end.
#[derive(Debug)]
pub(crate) struct LogText {
    head: Vec<u8>,
    spill: Option<Spill>,
    tail: Vec<u8>,
    /// Bytes already read.
    at: u64,
}

impl LogText {
    /// Copies the bytes in memory (bounded by [`glovebox_proto::LogCaps::MAX`]) and shares the
    /// file.
    pub(super) fn of(log: &Log) -> Self {
        let spill = log.spill.as_ref().map(Spill::share);
        // If the file cannot be shared, its bytes are reported as part of the gap.
        let lost = match &spill {
            Some(None) => log.spill_bytes(),
            Some(Some(_)) | None => 0,
        };
        let gap = log.tail_start() - log.prefix + lost;
        let mut tail = if gap > 0 {
            log_gap(gap).into_bytes()
        } else {
            Vec::new()
        };
        tail.extend(&log.tail);
        Self {
            head: log.head.clone(),
            spill: spill.flatten(),
            tail,
            at: 0,
        }
    }
}

impl Read for LogText {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let head = self.head.len() as u64;
        let prefix = head + self.spill.as_ref().map_or(0, Spill::len);
        let count = if self.at < head {
            (&self.head[self.at as usize..]).read(out)?
        } else if let (true, Some(spill)) = (self.at < prefix, &self.spill) {
            let wanted = (prefix - self.at).min(out.len() as u64) as usize;
            let bytes = spill.read(self.at - head, wanted);
            if bytes.is_empty() && wanted > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        } else {
            (&self.tail[(self.at - prefix) as usize..]).read(out)?
        };
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_proto::LogCaps;
    use proptest::prelude::*;

    proptest! {
        /// The text is what was written, with one gap where bytes are missing, whatever pieces it
        /// is read in.
        #[test]
        fn the_text_is_what_was_written(
            caps in (0_u32..200, 0_u32..200, 0_u64..300),
            writes in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..150)), 0..20),
            piece in 1_usize..300,
        ) {
            let mut log = Log::new(LogCaps { head_bytes: caps.0, tail_bytes: caps.1, spill_bytes: caps.2 });
            let mut all = Vec::new();
            for (is_stderr, bytes) in &writes {
                log.append(*is_stderr, bytes, || Spill::create(b"/tmp"));
                all.extend_from_slice(bytes);
            }
            let mut text = log.text();
            // What comes later is not part of it.
            log.append(false, &[0; 500], || Spill::create(b"/tmp"));
            let (mut read, mut buffer) = (Vec::new(), vec![0; piece]);
            loop {
                let count = text.read(&mut buffer).unwrap();
                if count == 0 { break; }
                read.extend_from_slice(&buffer[..count]);
            }
            let kept = caps.0 as usize + caps.1 as usize + caps.2 as usize;
            if read != all {
                let missing = (0..=all.len()).find_map(|start| {
                    let gap = (all.len() + log_gap(1).len()).checked_sub(read.len())?;
                    (gap.saturating_sub(8)..=gap + 8).find(|gap| {
                        all.get(start + gap..).is_some_and(|tail| {
                            read == [&all[..start], log_gap(*gap as u64).as_bytes(), tail].concat()
                        })
                    })
                });
                prop_assert!(missing.is_some_and(|gap| gap > 0), "{read:?} of {all:?}");
                prop_assert!(all.len() > kept.min(all.len() - 1));
            }
        }
    }
}
