//! Thread that samples all watched sandboxes of this process in turn.

use super::{DUTY, NextLook, SHORT_TICK, TICK, WatchedSandbox, lock};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Instant;

/// Puts a sandbox under watch until it is dropped, if one of its limits needs that.
pub(crate) fn add(watched: &Arc<WatchedSandbox>) {
    if !watched.needs_watching() {
        return;
    }
    let roster = roster();
    lock(&roster.entries).push(Entry {
        sandbox: Arc::downgrade(watched),
        next: Instant::now() + TICK,
    });
    roster.thread.unpark();
}

#[derive(Debug)]
struct Entry {
    sandbox: Weak<WatchedSandbox>,
    next: Instant,
}

#[derive(Debug)]
struct Roster {
    entries: Arc<Mutex<Vec<Entry>>>,
    thread: Thread,
}

fn roster() -> &'static Roster {
    static ROSTER: OnceLock<Roster> = OnceLock::new();
    ROSTER.get_or_init(|| {
        let entries = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&entries);
        let builder = thread::Builder::new()
            .name("limits".to_owned())
            .stack_size(128 << 10);
        // Without the thread no limit is watched, although the report says so. The current thread
        // stands in for the handle.
        let thread = match builder.spawn(move || watch(&seen)) {
            Ok(handle) => handle.thread().clone(),
            Err(_) => thread::current(),
        };
        Roster { entries, thread }
    })
}

fn watch(entries: &Mutex<Vec<Entry>>) {
    loop {
        let now = Instant::now();
        let due: Vec<Arc<WatchedSandbox>> = {
            let mut entries = lock(entries);
            entries.retain(|entry| entry.sandbox.strong_count() > 0);
            entries
                .iter()
                .filter(|entry| entry.next <= now)
                .filter_map(|entry| entry.sandbox.upgrade())
                .collect()
        };
        for sandbox in due {
            let began = Instant::now();
            let outcome = sandbox.exceeded();
            let pause = match outcome {
                Ok(NextLook::AtOnce) => SHORT_TICK,
                Ok(NextLook::After(pause)) => (began.elapsed() * DUTY).max(pause),
                Err(_) => TICK,
            };
            let next = Instant::now() + pause;
            let is_over = outcome.is_err();
            if let Err(breach) = outcome {
                *lock(&sandbox.breach) = Some(breach);
                // The owner learns of the end, or of its failure, by the link.
                let _ = sandbox.end();
            }
            let mut entries = lock(entries);
            if is_over {
                entries
                    .retain(|entry| !std::ptr::eq(entry.sandbox.as_ptr(), Arc::as_ptr(&sandbox)));
            } else if let Some(entry) = entries
                .iter_mut()
                .find(|entry| std::ptr::eq(entry.sandbox.as_ptr(), Arc::as_ptr(&sandbox)))
            {
                entry.next = next;
            }
        }
        let next = lock(entries).iter().map(|entry| entry.next).min();
        match next {
            Some(next) => thread::park_timeout(next.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}
