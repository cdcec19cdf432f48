//! What a command writes while a call waits for it, for people who watch.
//!
//! In: the job a call waits for. Out: the whole lines it has written since somebody looked last, bounded. Whoever
//! watches asks; nothing is sent to anybody who does not, and the outcome of the call does not depend on it.

use crate::call::Call;
use crate::tools::log;
use glovebox_proto::JobId;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Of one look.
const MAX_BYTES: usize = 8 << 10;

/// A command that is waited for, and how much of what it wrote was seen.
#[derive(Debug, Clone, Copy)]
struct WatchedJob {
    job: JobId,
    seen: u64,
}

/// The command that a call of this conversation waits for; the newest, where there are several.
#[derive(Debug, Default)]
pub(crate) struct LiveOutput(Mutex<Option<WatchedJob>>);

impl LiveOutput {
    fn watched(&self) -> MutexGuard<'_, Option<WatchedJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `wait` while `job` is the one that is waited for.
    pub(crate) fn during<T>(&self, job: JobId, wait: impl FnOnce() -> T) -> T {
        *self.watched() = Some(WatchedJob { job, seen: 0 });
        let waited = wait();
        self.watched().take_if(|watched| watched.job == job);
        waited
    }
}

/// The whole lines that were written since the last look; `None` when there are none.
// TRUST: a command wrote them: whoever shows them makes them harmless.
pub(crate) fn look(call: &Call<'_>) -> Option<Vec<u8>> {
    let WatchedJob { job, seen } = (*call.session.live.watched())?;
    let mut part = log::part(call, job, seen, MAX_BYTES, 0).ok()?;
    if part.total > part.next() {
        // Who watches a flood sees its newest lines.
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
        // A line without an end is shown in pieces.
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

/// Looks for nobody in particular: a look is not given up.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);
