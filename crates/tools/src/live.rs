//! Output of a command while a call waits for it, for people who watch.
//!
//! In: the job that a call waits for. Out: the whole lines that it has written since the previous
//! look, bounded. Watchers poll. Nothing is sent without a request, and the outcome of the call
//! does not depend on it.

use crate::call::Call;
use crate::tools::log;
use glovebox_proto::JobId;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum size of one look, in bytes.
const MAX_BYTES: usize = 8 << 10;

/// Job that a call waits for, and the offset up to which watchers have seen its output.
#[derive(Debug, Clone, Copy)]
struct WatchedJob {
    job: JobId,
    seen: u64,
}

/// Job that a call of this conversation waits for. The newest, if there are several.
#[derive(Debug, Default)]
pub(crate) struct LiveOutput(Mutex<Option<WatchedJob>>);

impl LiveOutput {
    fn watched(&self) -> MutexGuard<'_, Option<WatchedJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `wait` while `job` is registered as the awaited one.
    pub(crate) fn during<T>(&self, job: JobId, wait: impl FnOnce() -> T) -> T {
        *self.watched() = Some(WatchedJob { job, seen: 0 });
        let waited = wait();
        self.watched().take_if(|watched| watched.job == job);
        waited
    }
}

/// Returns the whole lines that were written since the previous look. `None` if there are none.
// TRUST: a command wrote the bytes. The caller must escape them before it shows them.
pub(crate) fn look(call: &Call<'_>) -> Option<Vec<u8>> {
    let WatchedJob { job, seen } = (*call.session.live.watched())?;
    let mut part = log::part(call, job, seen, MAX_BYTES, 0).ok()?;
    if part.total > part.next() {
        // If more was written than fits, skip to the newest lines.
        let newest = part.total.saturating_sub(MAX_BYTES as u64);
        part = log::part(call, job, newest, MAX_BYTES, 0).ok()?;
        let begun = part.bytes.iter().position(|&byte| byte == b'\n');
        if let Some(end) = begun {
            part.bytes.drain(..=end);
            part.start += end as u64 + 1;
        }
    }
    let mut bytes = part.bytes;
    let lines = bytes.iter().rposition(|&byte| byte == b'\n');
    let whole = match lines {
        Some(end) => end + 1,
        // A line longer than the bound is returned in pieces.
        None if bytes.len() >= MAX_BYTES => bytes.len(),
        None => return None,
    };
    bytes.truncate(whole);
    let mut watched = call.session.live.watched();
    if let Some(watched) = watched.as_mut().filter(|watched| watched.job == job) {
        watched.seen = part.start + whole as u64;
    }
    Some(bytes)
}

/// Flag that is never set: a look cannot be cancelled.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);
