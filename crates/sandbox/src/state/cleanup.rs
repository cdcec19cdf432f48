//! Removal of trees in the trash in the background.
//!
//! A sandbox that ends is renamed into the trash and is then gone for all processes; removing its
//! mounts and its tree only takes time. A process that makes and ends many sandboxes leaves that to
//! one thread. Dropping the last reference to the worker waits until everything is removed. The
//! next sweep removes what a process left when it died.

use crate::state::layout::Layout;
use crate::state::trash;
use glovebox_proto::Fault;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Maximum number of waiting tasks. If there are more, the caller does the work itself.
const QUEUE: usize = 64;
/// Stack size of the thread. The walk has a bounded depth and keeps a buffer for each level on the
/// heap.
const STACK_BYTES: usize = 256 << 10;

/// Worker that a registry shares with its sandboxes. Dropping it waits until everything is removed.
#[derive(Debug)]
pub(crate) struct CleanupWorker {
    layout: Layout,
    state: Mutex<CleanupState>,
}

/// Resource that no process uses any longer.
#[derive(Debug)]
enum CleanupTask {
    /// Descriptor that keeps the mounts of an ended sandbox. Closing it removes them.
    Mounts(OwnedFd),
    /// Tree in the trash.
    Tree(PathBuf),
}

#[derive(Debug)]
struct CleanupState {
    /// True after the first tree, which is removed at once because a thread would not pay off.
    has_had_a_tree: bool,
    worker: Worker,
}

#[derive(Debug)]
enum Worker {
    /// No task has needed a thread yet.
    None,
    /// Thread that takes tasks from this queue.
    Working(SyncSender<CleanupTask>, JoinHandle<()>),
    /// No thread could be started.
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

    /// Removes a tree in the trash, now or in the background.
    ///
    /// # Errors
    /// The errors of removing the tree now.
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

    /// Removes the mounts of an ended sandbox, now or in the background.
    pub(crate) fn close_in_background(&self, mounts: OwnedFd) {
        let left = self.hand_over(&mut self.lock(), CleanupTask::Mounts(mounts));
        // A descriptor that the worker did not take is closed here.
        drop(left);
    }

    /// Waits until all tasks are done.
    pub(crate) fn settle(&self) {
        let mut state = self.lock();
        if let Worker::Working(queue, thread) = std::mem::replace(&mut state.worker, Worker::None) {
            drop(queue);
            // A worker that panicked has no more tasks either.
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, CleanupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a task to the worker. Returns the task if the worker cannot take it.
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
                        // The next sweep and `doctor` find trees that stay.
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
