//! Signal dispositions, masks and signalfd(2), which rustix leaves to the C library.

use super::raw;
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Sets every disposition to its default and blocks every signal in the calling thread (threads
/// and children started from it inherit both).
///
/// With handlers gone and everything blocked, nothing can interrupt code that shares our memory,
/// and commands start with clean dispositions after only their mask is emptied.
pub(crate) fn reset_and_block() -> Result<(), Errno> {
    // Straight to the kernel: the C library refuses to change the two signals that it reserves for
    // itself, and its own posix_spawn(3) leaves one of them ignored in the programs it starts.
    let default = [0_usize; 4];
    for signal in 1..=64_usize {
        // SAFETY: the kernel reads one `struct kernel_sigaction` (handler, flags, restorer, mask:
        // at most four words, all zero meaning SIG_DFL) that outlives the call. SIGKILL and
        // SIGSTOP are refused with EINVAL. No handler is left that could run on our memory.
        unsafe {
            let action = default.as_ptr() as usize;
            raw::syscall(libc::SYS_rt_sigaction, [signal, action, 0, 8, 0]);
        }
    }
    // SAFETY: `sigset_t` is a C struct for which all zeroes is a value; it outlives the calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) {
            0 => Ok(()),
            error => Err(Errno::from_raw_os_error(error)),
        }
    }
}

/// Sends a signal by number, real-time signals included, to a process or to a process group.
pub(crate) fn send(target: Pid, is_group: bool, number: i32) -> Result<(), Errno> {
    let pid = target.as_raw_pid();
    // SAFETY: kill(2) takes two integers. The pid is positive, so only the intended sign reaches
    // the kernel, and a number that is no signal is refused with EINVAL.
    let result = unsafe { libc::kill(if is_group { -pid } else { pid }, number) };
    if result == 0 { Ok(()) } else { Err(last()) }
}

/// Stops this process by `number`, one of the signals that stop by default, even if a handler is
/// installed. Returns when the process is continued, or at once if the kernel stops nothing, as in
/// an orphaned process group.
pub(crate) fn stop_caller(number: i32) -> Result<(), Errno> {
    // The signal goes to this thread, so the kernel has acted on it when the call returns.
    // SAFETY: raise(3) takes an integer.
    with_default_action(number, || unsafe { libc::raise(number) })
}

/// Does the same as [`stop_caller`] for the whole process group. The first thread must call: the
/// kernel prefers it for a signal to the process, so the signal has been acted on when the call
/// returns.
pub(crate) fn stop_group_of_caller(number: i32) -> Result<(), Errno> {
    // SAFETY: kill(2) takes two integers; 0 is the caller's process group.
    with_default_action(number, || unsafe { libc::kill(0, number) })
}

/// Sends a signal while its action in this process is the default one. Restores the action
/// afterwards.
fn with_default_action(number: i32, send: impl FnOnce() -> i32) -> Result<(), Errno> {
    // SAFETY: `sigaction` is a C struct for which all zeroes is a value (SIG_DFL, no flags, an
    // empty mask); both outlive the calls. SIGSTOP, whose action cannot be changed, is refused with
    // EINVAL, which changes nothing.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        let is_changed = libc::sigaction(number, &raw const default, &raw mut before) == 0;
        let result = if send() == 0 { Ok(()) } else { Err(last()) };
        if is_changed {
            libc::sigaction(number, &raw const before, std::ptr::null_mut());
        }
        result
    }
}

/// Returns a descriptor that becomes readable when a child ends or stops.
///
/// Preconditions: SIGCHLD is blocked in every thread.
pub(crate) fn child_signal_fd() -> Result<OwnedFd, Errno> {
    // SAFETY: the set is initialised by sigemptyset before use and outlives the calls; the
    // descriptor is new, so nothing else owns it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(last()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Limits the memory that the allocator retains: one arena, and large blocks are returned at once.
pub(crate) fn keep_heap_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes two integers and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
    }
}
