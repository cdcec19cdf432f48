//! Removes what lies in the trash beside the work of others.
//!
//! A sandbox that ends is renamed into the trash, and with that it is gone for everybody; taking
//! its mounts and its tree apart only costs time. A process that makes and ends many sandboxes leaves that to one
//! thread. The last owner of the worker waits until all is removed; what a process that dies before
//! leaves is removed by the next sweep.

use crate::state::layout::Layout;
use crate::state::trash;
use glovebox_proto::Fault;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Pieces that may wait; with more, whoever makes them helps.
const QUEUE: usize = 64;
/// Stack of the thread: the walk has a bounded depth, and keeps a buffer per level on the heap.
const STACK_BYTES: usize = 256 << 10;

/// One per registry, shared with its sandboxes. Dropping it waits until everything is removed.
#[derive(Debug)]
pub(crate) struct CleanupWorker {
    layout: Layout,
    state: Mutex<CleanupState>,
}

/// Something that is of no use to anybody any more.
#[derive(Debug)]
enum CleanupTask {
    /// Keeps the mounts of a sandbox that has ended: whoever closes it takes them apart.
    Mounts(OwnedFd),
    /// A tree in the trash.
    Tree(PathBuf),
}

#[derive(Debug)]
struct CleanupState {
    /// Whether a tree was left to it: the first is not worth handing over.
    has_had_a_tree: bool,
    worker: Worker,
}

#[derive(Debug)]
enum Worker {
    /// There was no need of it yet.
    None,
    /// The thread that takes from this queue.
    Working(SyncSender<CleanupTask>, JoinHandle<()>),
    /// There can be none.
    Impossible,
}

impl CleanupWorker {
    pub(crate) fn new(layout: Layout) -> Self {
        let state = CleanupState {
            has_had_a_tree: false,
            worker: Worker::None,
        };
        Self {
            layout,
            state: Mutex::new(state),
        }
    }

    /// Has a tree in the trash removed, now or soon.
    ///
    /// # Errors
    /// What could not be removed, if that is known now.
    pub(crate) fn remove(&self, place: PathBuf) -> Result<(), Fault> {
        let mut state = self.lock();
        let is_first = !std::mem::replace(&mut state.has_had_a_tree, true);
        let left = if is_first {
            Some(CleanupTask::Tree(place))
        } else {
            self.hand_over(&mut state, CleanupTask::Tree(place))
        };
        drop(state);
        match left {
            Some(CleanupTask::Tree(place)) => trash::remove_at_once(&self.layout, &place),
            _ => Ok(()),
        }
    }

    /// Has the mounts of a sandbox that has ended taken apart, now or soon.
    pub(crate) fn close_in_background(&self, mounts: OwnedFd) {
        let left = self.hand_over(&mut self.lock(), CleanupTask::Mounts(mounts));
        // What nobody takes is closed here.
        drop(left);
    }

    /// Waits until everything it was given is removed.
    pub(crate) fn settle(&self) {
        let mut state = self.lock();
        if let Worker::Working(queue, thread) = std::mem::replace(&mut state.worker, Worker::None) {
            drop(queue);
            // A worker that panicked has nothing more to do either.
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, CleanupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what the worker does not take.
    fn hand_over(&self, state: &mut CleanupState, task: CleanupTask) -> Option<CleanupTask> {
        if matches!(state.worker, Worker::None) {
            state.worker = start(self.layout.clone());
        }
        let Worker::Working(queue, _) = &state.worker else {
            return Some(task);
        };
        match queue.try_send(task) {
            Ok(()) => None,
            Err(TrySendError::Full(task) | TrySendError::Disconnected(task)) => Some(task),
        }
    }
}

fn start(layout: Layout) -> Worker {
    let (queue, tasks) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new()
        .name("cleanup".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            for task in tasks {
                match task {
                    CleanupTask::Mounts(mounts) => drop(mounts),
                    CleanupTask::Tree(place) => {
                        // What cannot be removed now is found by the next sweep and by `doctor`.
                        let _ = trash::remove(&layout, &place);
                    }
                }
            }
        });
    thread.map_or(Worker::Impossible, |thread| Worker::Working(queue, thread))
}

impl Drop for CleanupWorker {
    fn drop(&mut self) {
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;

    #[test]
    fn what_keeps_mounts_is_closed_before_the_worker_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let cleanup = CleanupWorker::new(layout);
        let mut kept: Vec<_> = (0..2 * QUEUE)
            .map(|_| {
                let (seen, mounts) = std::io::pipe().unwrap();
                cleanup.close_in_background(OwnedFd::from(mounts));
                seen
            })
            .collect();
        drop(cleanup);
        for seen in &mut kept {
            assert_eq!(seen.read(&mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn everything_is_removed_before_the_worker_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let cleanup = CleanupWorker::new(layout.clone());
        for turn in 0..200 {
            let tree = temp.path().join("tree");
            fs::create_dir_all(tree.join("a/b/c")).unwrap();
            fs::write(tree.join("a/file"), "x").unwrap();
            let place = trash::discard(&layout, &tree).unwrap().unwrap();
            cleanup.remove(place.clone()).unwrap();
            assert!(turn > 0 || !place.exists(), "the first is removed at once");
        }
        drop(cleanup);
        assert_eq!(fs::read_dir(layout.trash()).unwrap().count(), 0);
    }
}
