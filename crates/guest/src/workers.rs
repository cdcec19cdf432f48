//! A few threads for operations that may block: everything that touches files.
//!
//! Threads start when there is work, at most [`MAX_THREADS`], and leave when idle. Each applies the
//! Landlock ruleset of commands to itself before it does anything, so that a file request cannot
//! reach what a command could not. Results wait in a short queue; a thread with a result and no
//! room waits, which bounds what a host that does not read can make us hold.

use glovebox_jail::process::restrict_this_thread;
use glovebox_proto::{Code, Fault, RequestId};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const MAX_THREADS: usize = 4;
const MAX_RESULTS: usize = 8;
const STACK_BYTES: usize = 128 << 10;
const IDLE: Duration = Duration::from_secs(10);

/// Something to do elsewhere.
pub(crate) type Work<T> = Box<dyn FnOnce() -> Result<T, Fault> + Send>;

struct Shared<T> {
    state: Mutex<State<T>>,
    /// There is work, or the end has come. Waited on by threads.
    has_work: Condvar,
    /// There is room for a result. Waited on by threads.
    has_room: Condvar,
    /// After closing: somebody has brought something back or left. Waited on by who closes.
    has_rest: Condvar,
    /// Readable when there are results.
    wake: OwnedFd,
}

struct State<T> {
    landlock: Option<Arc<OwnedFd>>,
    /// Threads of an earlier one are confined to what was there then, and leave. They are not counted.
    generation: u32,
    work: VecDeque<(RequestId, Work<T>)>,
    results: VecDeque<(RequestId, Result<T, Fault>)>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // A panic ends the process, so a poisoned lock is never seen.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads and their queues.
pub(crate) struct Workers<T> {
    shared: Arc<Shared<T>>,
}

impl<T: Send + 'static> Workers<T> {
    /// No thread is started yet.
    pub(crate) fn new(landlock: Option<OwnedFd>) -> Result<Self, Errno> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = State {
            landlock: landlock.map(Arc::new),
            generation: 0,
            work: VecDeque::new(),
            results: VecDeque::new(),
            threads: 0,
            idle: 0,
            is_closed: false,
        };
        let [has_work, has_room, has_rest] = [const { Condvar::new() }; 3];
        let shared = Shared {
            state: Mutex::new(state),
            has_work,
            has_room,
            has_rest,
            wake,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Readable when [`Workers::result`] has something.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Does `work` on some thread; its result comes back under `id`.
    ///
    /// # Errors
    /// `busy` when not even one thread can be started.
    pub(crate) fn submit(&self, id: RequestId, work: Work<T>) -> Result<(), Fault> {
        let mut state = self.shared.state();
        if state.idle <= state.work.len() && state.threads < MAX_THREADS {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            match thread.spawn(move || live(&shared)) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    let message =
                        format!("no thread can be started for the file operation: {error}");
                    return Err(Fault::failed(Code::Busy, message).retryable());
                }
                Err(_) => {}
            }
        }
        state.work.push_back((id, work));
        drop(state);
        self.shared.has_work.notify_one();
        Ok(())
    }

    /// Confines what is done from now on with another ruleset.
    pub(crate) fn renew(&self, landlock: Option<OwnedFd>) {
        let mut state = self.shared.state();
        state.landlock = landlock.map(Arc::new);
        state.generation = state.generation.wrapping_add(1);
        (state.threads, state.idle) = (0, 0);
        drop(state);
        self.shared.has_work.notify_all();
    }

    /// Takes no more work, and waits until what is being done has been brought back. Work that has
    /// not begun and results are dropped: a transfer that is dropped removes its traces.
    pub(crate) fn close(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut state = self.shared.state();
        state.is_closed = true;
        while state.idle < state.threads {
            state.work.clear();
            state.results.clear();
            self.shared.has_room.notify_all();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let (again, _) = self
                .shared
                .has_rest
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = again;
        }
        state.work.clear();
        state.results.clear();
    }

    /// The next result.
    pub(crate) fn result(&self) -> Option<(RequestId, Result<T, Fault>)> {
        let mut state = self.shared.state();
        let result = state.results.pop_front();
        if result.is_none() {
            // Under the lock, so that a wake-up between the look and the reset is not lost.
            let _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 8]);
        }
        drop(state);
        if result.is_some() {
            self.shared.has_room.notify_one();
        }
        result
    }
}

/// A thread's life.
fn live<T>(shared: &Shared<T>) {
    let mut state = shared.state();
    let generation = state.generation;
    let landlock = state.landlock.clone();
    drop(state);
    let confined = match landlock {
        Some(ruleset) => restrict_this_thread(ruleset.as_fd()),
        None => Ok(()),
    };
    state = shared.state();
    loop {
        if state.generation != generation {
            return;
        }
        let Some((id, work)) = state.work.pop_front() else {
            state.idle += 1;
            if state.is_closed {
                shared.has_rest.notify_all();
            }
            let (again, wait) = shared
                .has_work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = again;
            if state.generation != generation {
                return;
            }
            state.idle -= 1;
            if wait.timed_out() && state.work.is_empty() {
                state.threads -= 1;
                shared.has_rest.notify_all();
                return;
            }
            continue;
        };
        drop(state);
        let result = match confined {
            Ok(()) => work(),
            Err(errno) => {
                let message = format!("file operations cannot be confined: {errno}");
                Err(Fault::failed(Code::Unavailable, message))
            }
        };
        state = shared.state();
        while state.results.len() >= MAX_RESULTS && !state.is_closed {
            state = shared
                .has_room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.results.push_back((id, result));
        if state.results.len() == 1 {
            let _ = rustix::io::write(&shared.wake, &1_u64.to_ne_bytes());
        }
    }
}
