//! Removes what lies in the trash beside the work of others.
//!
//! A sandbox that ends is renamed into the trash, and with that it is gone for everybody; taking
//! its tree apart only costs time. A process that makes and ends many sandboxes leaves that to one
//! thread. The last owner of the janitor waits until all is removed; what a process that dies before
//! leaves is removed by the next sweep.

use crate::layout::Layout;
use crate::trash;
use glovebox_proto::Fault;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

/// Trees that may wait; with more, whoever makes them helps.
const QUEUE: usize = 32;
/// Stack of the thread: the walk has a bounded depth, and keeps a buffer per level on the heap.
const STACK_BYTES: usize = 256 << 10;

/// One per registry, shared with its sandboxes. Dropping it waits until everything is removed.
#[derive(Debug)]
pub(crate) struct Janitor {
    layout: Layout,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nothing was left to it yet.
    Unused,
    /// One tree was: for that it did not pay to start a thread.
    UsedOnce,
    /// The thread that takes trees from this queue.
    Working(SyncSender<PathBuf>, JoinHandle<()>),
    /// There can be no thread.
    Alone,
}

impl Janitor {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            state: Mutex::new(State::Unused),
        }
    }

    /// Has a tree in the trash removed, now or soon.
    ///
    /// # Errors
    /// What could not be removed, if that is known now.
    pub(crate) fn remove(&self, place: PathBuf) -> Result<(), Fault> {
        match self.hand_over(place) {
            None => Ok(()),
            Some(place) => trash::remove_at_once(&self.layout, &place),
        }
    }

    /// Waits until everything it was given is removed.
    pub(crate) fn settle(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Working(queue, thread) = std::mem::replace(&mut *state, State::UsedOnce) {
            drop(queue);
            // A janitor that panicked has nothing more to do either.
            let _ = thread.join();
        }
    }

    /// Gives the place back when nobody takes it.
    fn hand_over(&self, place: PathBuf) -> Option<PathBuf> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Unused) {
            *state = State::UsedOnce;
            return Some(place);
        }
        if matches!(*state, State::UsedOnce) {
            *state = start(self.layout.clone());
        }
        let State::Working(queue, _) = &*state else {
            return Some(place);
        };
        match queue.try_send(place) {
            Ok(()) => None,
            Err(TrySendError::Full(place) | TrySendError::Disconnected(place)) => Some(place),
        }
    }
}

fn start(layout: Layout) -> State {
    let (queue, places) = sync_channel::<PathBuf>(QUEUE);
    let thread = std::thread::Builder::new()
        .name("janitor".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            for place in places {
                // What cannot be removed now is found by the next sweep and by `doctor`.
                let _ = trash::remove(&layout, &place);
            }
        });
    thread.map_or(State::Alone, |thread| State::Working(queue, thread))
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn everything_is_removed_before_the_janitor_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let janitor = Janitor::new(layout.clone());
        for turn in 0..200 {
            let tree = temp.path().join("tree");
            fs::create_dir_all(tree.join("a/b/c")).unwrap();
            fs::write(tree.join("a/file"), "x").unwrap();
            let place = trash::discard(&layout, &tree).unwrap().unwrap();
            janitor.remove(place.clone()).unwrap();
            assert!(turn > 0 || !place.exists(), "the first is removed at once");
        }
        drop(janitor);
        assert_eq!(fs::read_dir(layout.trash()).unwrap().count(), 0);
    }
}
