//! Output of a job by offset: consecutive parts, and its two ends.

use crate::call::{Call, unexpected};
use glovebox_proto::limits::MAX_LOG_READ_BYTES;
use glovebox_proto::{Code, Fault, JobId, Reply, Request, visible};
use std::time::Duration;

/// Bytes that are fetched from each end of a long log.
const END_BYTES: usize = 64 << 10;

/// Returns the job whose output this path names (`job:ID`). `None` for the path of a file.
///
/// # Errors
/// `invalid-argument` if `job:` is not followed by a number.
pub(super) fn job_of(path: &str) -> Result<Option<JobId>, Fault> {
    let Some(id) = path.strip_prefix("job:") else {
        return Ok(None);
    };
    let id = id.parse().map_err(|_| {
        Fault::failed(
            Code::InvalidArgument,
            format!("`{}` names no job", visible::line_of_text(path)),
        )
        .remedy("a job's output is `job:` and its number; a file of that name is `./job:...`")
    })?;
    Ok(Some(JobId(id)))
}

/// Consecutive bytes of a log.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    /// Offset of the first byte. Greater than requested if the bytes in between are not kept.
    pub(crate) start: u64,
    /// Number of bytes written so far.
    pub(crate) total: u64,
    /// True if the job has ended and this is its last part.
    pub(crate) is_end: bool,
}

impl Part {
    /// Returns the offset after the last byte.
    pub(crate) fn next(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Reads at most `max_bytes` from `offset` on. Blocks up to `wait_ms` milliseconds for the first of
/// them.
pub(crate) fn part(
    call: &Call<'_>,
    job: JobId,
    offset: u64,
    max_bytes: usize,
    wait_ms: u64,
) -> Result<Part, Fault> {
    let mut part: Option<Part> = None;
    loop {
        let (offset, had) = part
            .as_ref()
            .map_or((offset, 0), |part| (part.next(), part.bytes.len()));
        let wait_ms = if part.is_none() { wait_ms } else { 0 };
        let request = Request::JobRead {
            job,
            offset,
            max_bytes: u32::try_from(max_bytes - had)
                .unwrap_or(MAX_LOG_READ_BYTES)
                .min(MAX_LOG_READ_BYTES),
            wait_ms,
        };
        let reply = call.ask_for(request, Duration::from_millis(wait_ms))?;
        let Reply::Log {
            start,
            chunks,
            total,
            is_end,
            ..
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let now = part.get_or_insert(Part {
            bytes: Vec::new(),
            start,
            total,
            is_end,
        });
        if now.next() != start {
            // A gap in the log follows; the next call begins after it.
            break;
        }
        for chunk in chunks {
            // TRUST: the guest may send more than was requested.
            let room = max_bytes - now.bytes.len();
            now.bytes
                .extend_from_slice(&chunk.bytes[..chunk.bytes.len().min(room)]);
        }
        now.total = total.max(now.next());
        now.is_end = is_end;
        if is_end || now.bytes.len() == had || now.bytes.len() >= max_bytes || now.next() >= total {
            break;
        }
    }
    part.ok_or_else(|| unexpected(&Reply::Done))
}

/// Both ends of a job's output, and the number of bytes between them.
#[derive(Debug, Default)]
pub(super) struct LogEnds {
    pub(super) head: Vec<u8>,
    pub(super) gap: u64,
    pub(super) tail: Vec<u8>,
}

impl LogEnds {
    /// Reads both ends of the output from `offset` on.
    pub(super) fn read(call: &Call<'_>, job: JobId, offset: u64) -> Result<Self, Fault> {
        let head = part(call, job, offset, 2 * END_BYTES, 0)?;
        let mut ends = Self::default();
        let (total, next) = (head.total, head.next());
        // A log may keep no beginning either.
        if head.start > offset {
            ends.gap = head.start - offset;
            ends.tail = head.bytes;
        } else {
            ends.head = head.bytes;
        }
        if next < total {
            let from = next.max(total.saturating_sub(END_BYTES as u64));
            let last = part(call, job, from, END_BYTES, 0)?;
            ends.gap += last.start - next + ends.tail.len() as u64;
            ends.tail = last.bytes;
        }
        Ok(ends)
    }

    pub(super) fn total(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64 + self.gap
    }

    /// Appends the next bytes, after `skipped` bytes that are unavailable.
    pub(super) fn take(&mut self, skipped: u64, bytes: &[u8]) {
        if self.gap == 0 && skipped == 0 && self.tail.is_empty() {
            let room = END_BYTES.saturating_sub(self.head.len());
            let (head, rest) = bytes.split_at(bytes.len().min(room));
            self.head.extend_from_slice(head);
            self.tail.extend_from_slice(rest);
        } else {
            if skipped > 0 {
                self.gap += self.tail.len() as u64 + skipped;
                self.tail.clear();
            }
            self.tail.extend_from_slice(bytes);
        }
        if self.tail.len() > 2 * END_BYTES {
            let old = self.tail.len() - END_BYTES;
            self.tail.drain(..old);
            self.gap += old as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ends_are_right_however_they_arrive(
            pieces in proptest::collection::vec((0_u64..3, 0_usize..60_000), 0..12),
        ) {
            let mut ends = LogEnds::default();
            let mut all = Vec::new();
            let mut seed = 0_u8;
            for (skipped, length) in pieces {
                let bytes: Vec<u8> = (0..length).map(|_| { seed = seed.wrapping_mul(31).wrapping_add(7); seed }).collect();
                all.extend(std::iter::repeat_n(0, skipped as usize));
                all.extend_from_slice(&bytes);
                ends.take(skipped, &bytes);
            }
            prop_assert_eq!(ends.total(), all.len() as u64);
            prop_assert!(all.starts_with(&ends.head) && all.ends_with(&ends.tail));
            prop_assert!(ends.head.len() <= END_BYTES && ends.tail.len() <= 2 * END_BYTES);
        }
    }
}
