//! Threads for operations that may block: everything that touches files.
//!
//! Threads start when there is work, at most [`MAX_THREADS`], and exit when idle. Each applies the
//! Landlock ruleset of commands to itself first, so that a file request cannot reach what a command
//! could not. Results wait in a short queue. A thread whose result has no room waits, which bounds
//! the memory that a host can occupy by not reading.
//!
//! Work and results are announced by bytes in a socket and a pipe, not by a condition variable and
//! an eventfd: the kernel then knows that the caller is about to wait, and can run the called
//! thread on the caller's processor. Waking a sleeping processor takes longer than reading a small
//! file. For the same reason threads are called after the lock is released, or they would block on
//! it at once.

use glovebox_jail::process::restrict_this_thread;
use glovebox_proto::{Code, Fault, RequestId};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const MAX_THREADS: usize = 4;
const MAX_RESULTS: usize = 8;
const STACK_BYTES: usize = 128 << 10;
const IDLE: Duration = Duration::from_secs(10);

/// Work for a thread. `None` if there is no result to return because the work has sent the answer
/// itself.
pub(crate) type Work<T> = Box<dyn FnOnce(&mut DeferredCloses) -> Option<Result<T, Fault>> + Send>;

/// Descriptors that are closed after the result was passed on. Closing the last descriptor of a
/// removed file frees its blocks, which the request need not wait for.
#[derive(Debug, Default)]
pub(crate) struct DeferredCloses(Vec<OwnedFd>);

impl DeferredCloses {
    pub(crate) fn close(&mut self, fd: OwnedFd) {
        self.0.push(fd);
    }
}

struct WorkerQueue<T> {
    state: Mutex<State<T>>,
    /// Signals threads that there is room for a result.
    has_room: Condvar,
    /// After closing: signals [`Workers::close`] that a thread has become idle or exited.
    has_rest: Condvar,
    /// Readable when there are results.
    wake: OwnedFd,
    /// Writing end of `wake`.
    announce: OwnedFd,
}

struct State<T> {
    landlock: Option<Arc<OwnedFd>>,
    /// Generation of the ruleset. Threads of an earlier one are confined to directories that were
    /// replaced; they exit and are not counted.
    generation: u32,
    /// Created for the first thread: a sandbox without file requests needs none.
    calls: Option<Calls>,
    work: VecDeque<(RequestId, Work<T>)>,
    results: VecDeque<(RequestId, Result<T, Fault>)>,
    threads: usize,
    /// Threads that wait for a call while none is on its way to them.
    idle: usize,
    is_closed: bool,
}

/// Socket pair that calls the threads of a generation to work, one message each. Closing `caller`
/// makes them exit.
struct Calls {
    caller: Arc<OwnedFd>,
    called: Arc<OwnedFd>,
}

impl Calls {
    fn new() -> Result<Self, Errno> {
        let (called, caller) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        set_socket_timeout(&called, Timeout::Recv, Some(IDLE))?;
        Ok(Self {
            caller: Arc::new(caller),
            called: Arc::new(called),
        })
    }
}

impl<T> WorkerQueue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // A panic ends the process, so a poisoned lock is never seen.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a result for the event loop. Blocks until there is room.
    fn bring_back(&self, id: RequestId, result: Result<T, Fault>) {
        let mut state = self.state();
        while state.results.len() >= MAX_RESULTS && !state.is_closed {
            state = self
                .has_room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.results.push_back((id, result));
        let is_first = state.results.len() == 1;
        drop(state);
        if is_first {
            let _ = rustix::io::write(&self.announce, &[0]);
        }
    }
}

/// The threads and their queues.
pub(crate) struct Workers<T> {
    shared: Arc<WorkerQueue<T>>,
}

impl<T: Send + 'static> Workers<T> {
    /// Creates the queues; no thread is started yet.
    pub(crate) fn new(landlock: Option<OwnedFd>) -> Result<Self, Errno> {
        let (wake, announce) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let state = State {
            landlock: landlock.map(Arc::new),
            generation: 0,
            calls: None,
            work: VecDeque::new(),
            results: VecDeque::new(),
            threads: 0,
            idle: 0,
            is_closed: false,
        };
        let [has_room, has_rest] = [const { Condvar::new() }; 2];
        let shared = WorkerQueue {
            state: Mutex::new(state),
            has_room,
            has_rest,
            wake,
            announce,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Returns a descriptor that is readable when [`Workers::result`] may have a result.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Has a thread do `work`; its result, if any, is returned under `id`.
    ///
    /// # Errors
    /// `busy` if not even one thread can be started.
    pub(crate) fn submit(&self, id: RequestId, work: Work<T>) -> Result<(), Fault> {
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let cannot = |errno| Fault::failed(Code::Io, format!("cannot call threads: {errno}"));
        let calls = match &mut state.calls {
            Some(calls) => calls,
            none => none.insert(Calls::new().map_err(cannot)?),
        };
        let mut caller = None;
        if state.idle > 0 {
            // From here on a thread whose idle time ends keeps waiting for the call.
            state.idle -= 1;
            caller = Some(Arc::clone(&calls.caller));
        } else if state.threads < MAX_THREADS {
            let (shared, called) = (Arc::clone(&self.shared), Arc::clone(&calls.called));
            let generation = state.generation;
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            match thread.spawn(move || live(&shared, generation, &called)) {
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
        drop(guard);
        if let Some(caller) = caller
            && let Err(errno) = rustix::io::write(&caller, &[0])
        {
            let mut state = self.shared.state();
            state.idle += 1;
            // Unless a busy thread has taken the work already.
            let waiting = state.work.len();
            state.work.retain(|(other, _)| *other != id);
            if state.work.len() < waiting {
                return Err(cannot(errno));
            }
        }
        Ok(())
    }

    /// Confines later work by another ruleset. The present threads exit after their current work.
    pub(crate) fn renew(&self, landlock: Option<OwnedFd>) {
        let mut state = self.shared.state();
        state.landlock = landlock.map(Arc::new);
        state.generation = state.generation.wrapping_add(1);
        state.calls = None;
        (state.threads, state.idle) = (0, 0);
    }

    /// Accepts no more work, and waits for running work, for at most `wait`. Work that has not
    /// begun and results are dropped: a transfer that is dropped removes its temporary files.
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

    /// Takes the next result.
    pub(crate) fn result(&self) -> Option<(RequestId, Result<T, Fault>)> {
        let mut state = self.shared.state();
        let was_full = state.results.len() >= MAX_RESULTS;
        let result = state.results.pop_front();
        if result.is_none() {
            // Under the lock, so that a wake-up between the check and the reset is not lost.
            let _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 64]);
        }
        drop(state);
        if was_full {
            self.shared.has_room.notify_all();
        }
        result
    }
}

/// Main function of a thread that was started for `generation`.
fn live<T>(shared: &WorkerQueue<T>, generation: u32, called: &OwnedFd) {
    let mut state = shared.state();
    let landlock = state.landlock.clone();
    drop(state);
    let confined = match landlock {
        Some(ruleset) => restrict_this_thread(ruleset.as_fd()),
        None => Ok(()),
    };
    state = shared.state();
    let mut later = DeferredCloses::default();
    loop {
        if state.generation != generation {
            return;
        }
        let Some((id, work)) = state.work.pop_front() else {
            state.idle += 1;
            if state.is_closed {
                shared.has_rest.notify_all();
            }
            drop(state);
            while rustix::io::read(called, &mut [0_u8; 1]).is_err() {
                state = shared.state();
                // If no thread is counted as idle, a call for this thread is already in the socket.
                if state.generation == generation && state.idle > 0 {
                    state.idle -= 1;
                    state.threads -= 1;
                    shared.has_rest.notify_all();
                    return;
                }
                drop(state);
            }
            state = shared.state();
            continue;
        };
        drop(state);
        let result = match confined {
            Ok(()) => work(&mut later),
            Err(errno) => {
                let message = format!("file operations cannot be confined: {errno}");
                Some(Err(Fault::failed(Code::Unavailable, message)))
            }
        };
        if let Some(result) = result {
            shared.bring_back(id, result);
        }
        later.0.clear();
        state = shared.state();
    }
}
