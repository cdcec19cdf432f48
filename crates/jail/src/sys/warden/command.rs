//! The command before exec: restrictions, waiting for the order, and the last steps to execve(2),
//! all on shared memory.

use super::Stage;
use super::raw::{self, Word};
use super::slot::{RawOrder, Slot, TAKEN, WAITING, WardenSetup};
use crate::identity::Separation;
use crate::seccomp::{self, Profile};
use core::ffi::c_char;
use core::sync::atomic::Ordering;

/// A failed system call: the step it belongs to and the positive errno.
type Failure = (Stage, i32);

/// Maximum number of stale signals that are discarded. A process that sends more could kill the
/// command as well.
const MAX_STALE_SIGNALS: usize = 4096;

/// Becomes the command, or stores the reason for the failure in the slot and exits.
///
/// # Safety
/// Only as the entry of [`raw::clone_onto`] with a slot written by [`super::ready`], whose orders
/// are borrowed until this process has left the address space.
pub(super) unsafe extern "C" fn command_main(slot: *const Slot) -> ! {
    // SAFETY: the slot outlives our stay here.
    let slot = unsafe { &*slot };
    // SAFETY: as promised by the caller.
    let (stage, errno) = unsafe { become_command(slot) };
    slot.failed_errno.store(errno, Ordering::Relaxed);
    slot.failed_stage.store(stage as u32, Ordering::Release);
    raw::exit(127)
}

/// Becomes the command. Returns only on failure.
///
/// # Safety
/// As for [`command_main`].
unsafe fn become_command(slot: &Slot) -> Failure {
    let warden = slot.warden.load(Ordering::Acquire);
    if let Err(failure) = confine(&slot.terms, warden) {
        return failure;
    }
    while slot.phase.load(Ordering::Acquire) == WAITING {
        raw::wait(&slot.phase, WAITING);
    }
    slot.phase.store(TAKEN, Ordering::Release);
    // SAFETY: the order was written before the phase said so, and is not written again.
    let order = unsafe { &*slot.order.get() };
    if let Err(failure) = leave_guest(slot.terms.separation, warden) {
        return failure;
    }
    // From here on it could regain the guest's capability in a namespace that it makes itself. So
    // the filter that marks it as a command must be installed before it acts on its order.
    if slot.terms.is_nested
        && let Err(failure) = add_filter(Profile::Mark)
    {
        return failure;
    }
    // SAFETY: as promised by the caller.
    match unsafe { prepare(order) } {
        // SAFETY: likewise; this only returns when nothing could be executed.
        Ok(()) => (Stage::Exec, unsafe { execute(order) }),
        Err(failure) => failure,
    }
}

/// Makes a system call whose failure belongs to `stage`.
///
/// # Safety
/// As for [`raw::syscall`].
unsafe fn call(stage: Stage, number: i64, args: [Word; 5]) -> Result<isize, Failure> {
    // SAFETY: as promised by the caller.
    let result = unsafe { raw::syscall(number, args) };
    if result < 0 {
        Err((stage, -result as i32))
    } else {
        Ok(result)
    }
}

/// Puts a process group in the foreground of the session's terminal. Returns 0, or a negative
/// errno.
pub(super) fn put_in_front(terminal: i32, group: i32) -> isize {
    let request = libc::TIOCSPGRP as Word;
    let args = [terminal as Word, request, &raw const group as Word, 0, 0];
    // SAFETY: the kernel reads the id of a process group from a live local.
    unsafe { raw::syscall(libc::SYS_ioctl, args) }
}

/// Makes this process die with its warden, so that a killed warden frees no process.
fn tie_to(warden: i32) -> Result<(), Failure> {
    let death = [
        libc::PR_SET_PDEATHSIG as Word,
        libc::SIGKILL as Word,
        0,
        0,
        0,
    ];
    // SAFETY: all arguments are integers.
    unsafe {
        call(Stage::Stdio, libc::SYS_prctl, death)?;
        if call(Stage::Stdio, libc::SYS_getppid, [0; 5])? != warden as isize {
            // The warden died before the call above took effect, so no process would end this one's
            // wait.
            return Err((Stage::Interrupted, libc::EINTR));
        }
    }
    Ok(())
}

/// Applies the restrictions that do not depend on the order.
fn confine(terms: &WardenSetup, warden: i32) -> Result<(), Failure> {
    // A process group of its own in the warden's session: terminal signals and group kills reach
    // the command alone. Since its parent is in another group of that session, the kernel lets it
    // be stopped (job control).
    // SAFETY: setpgid(2) takes integers.
    unsafe { call(Stage::Stdio, libc::SYS_setpgid, [0; 5])? };
    if terms.terminal >= 0 && terms.is_foreground {
        // SIGTTOU is blocked, so a process in the background may do this.
        // SAFETY: getpid(2) takes nothing.
        let own = unsafe { raw::syscall(libc::SYS_getpid, [0; 5]) } as i32;
        let result = put_in_front(terms.terminal, own);
        if result < 0 {
            return Err((Stage::Stdio, -result as i32));
        }
    }
    tie_to(warden)?;
    if let Some(mask) = &terms.processors {
        let affinity = [0, size_of_val(mask), mask.as_ptr() as Word, 0, 0];
        // This comes before the filter, which may refuse it. It only tells programs how many
        // processors to use and enforces no limit. So if the machine no longer has these
        // processors, all of them remain.
        // SAFETY: this process alone, and a live mask of the length given, which the kernel only
        // reads.
        let _ = unsafe { raw::syscall(libc::SYS_sched_setaffinity, affinity) };
    }
    let no_new_privs = [libc::PR_SET_NO_NEW_PRIVS as Word, 1, 0, 0, 0];
    if terms.landlock >= 0 {
        let ruleset = [terms.landlock as Word, 0, 0, 0, 0];
        // SAFETY: all arguments are integers.
        unsafe {
            call(Stage::Confine, libc::SYS_prctl, no_new_privs)?;
            call(Stage::Confine, libc::SYS_landlock_restrict_self, ruleset)?;
        }
    }
    match (terms.separation, terms.is_nested) {
        (Separation::Filter, _) => add_filter(Profile::SameUser),
        // The pre-exec command then has the same number of filters with each kind of separation.
        (Separation::UserId(_) | Separation::None, true) => add_filter(Profile::Mark),
        (Separation::UserId(_) | Separation::None, false) => Ok(()),
    }
}

/// Installs a filter on this process, in addition to those it has.
fn add_filter(profile: Profile) -> Result<(), Failure> {
    let filter = seccomp::program(profile);
    let filter = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    let no_new_privs = [libc::PR_SET_NO_NEW_PRIVS as Word, 1, 0, 0, 0];
    let install = [
        libc::SECCOMP_SET_MODE_FILTER as Word,
        0,
        &raw const filter as Word,
        0,
        0,
    ];
    // SAFETY: integers, and a program that is a constant, which the kernel copies and never writes.
    // It is put on this process alone, which has one thread.
    unsafe {
        call(Stage::Confine, libc::SYS_prctl, no_new_privs)?;
        call(Stage::Confine, libc::SYS_seccomp, install)?;
    }
    Ok(())
}

/// Gives up the guest's capability and, where the guest has its own, the guest's user id. The child
/// keeps both while it waits, so that no command can signal or trace it, and so that the host can
/// tell waiting processes from running commands.
fn leave_guest(separation: Separation, warden: i32) -> Result<(), Failure> {
    /// `_LINUX_CAPABILITY_VERSION_3` of capget(2), and this process.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    if separation == Separation::None {
        return Ok(());
    }
    let (header, none) = (HEADER, [0_u32; 6]);
    let capabilities = [&raw const header as Word, &raw const none as Word, 0, 0, 0];
    // SAFETY: the kernel reads a header and three pairs of sets, all of them live locals.
    unsafe { call(Stage::Confine, libc::SYS_capset, capabilities)? };
    let Separation::UserId(uid) = separation else {
        return Ok(());
    };
    let uid = uid as Word;
    // SAFETY: all arguments are integers.
    unsafe { call(Stage::Confine, libc::SYS_setresuid, [uid, uid, uid, 0, 0])? };
    // The kernel cleared the death signal when the ids changed.
    tie_to(warden)
}

/// Discards signals that were sent to this process while it waited for its order.
fn drop_stale_signals() {
    let all = u64::MAX;
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let args = [
        &raw const all as Word,
        0,
        &raw const now as Word,
        size_of::<u64>(),
        0,
    ];
    for _ in 0..MAX_STALE_SIGNALS {
        // SAFETY: the kernel reads a mask and a time that live, and writes nothing.
        if unsafe { raw::syscall(libc::SYS_rt_sigtimedwait, args) } < 0 {
            return;
        }
    }
}

/// Unshares the descriptor table, so that changes no longer affect the guest.
fn own_descriptors() -> Result<(), Failure> {
    /// `CLOSE_RANGE_UNSHARE` of close_range(2).
    const UNSHARE: Word = 1 << 1;
    let none = u32::MAX as Word;
    // SAFETY: all arguments are integers. The range is empty in effect: there is no such number.
    unsafe {
        let args = [none, none, UNSHARE, 0, 0];
        match call(Stage::Stdio, libc::SYS_close_range, args) {
            // Before Linux 5.9; behind our own filter there is no unshare(2), but also no such
            // kernel.
            Err((_, libc::ENOSYS)) => {
                let args = [libc::CLONE_FILES as Word, 0, 0, 0, 0];
                call(Stage::Stdio, libc::SYS_unshare, args).map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }
}

/// Descriptor number of a program that is executed by its descriptor.
const PROGRAM: Word = 3;

/// Carries out the order up to exec: descriptors, working directory, mask, limits and signal mask.
///
/// # Safety
/// As for [`command_main`].
unsafe fn prepare(order: &RawOrder) -> Result<(), Failure> {
    // SAFETY for every call below: integers, or pointers that `give` keeps alive.
    let call = |stage: Stage, number: i64, args: [Word; 5]| {
        // SAFETY: see above.
        unsafe { call(stage, number, args) }
    };
    drop_stale_signals();
    own_descriptors()?;
    // All sources are 3 or above, so no step overwrites a later source.
    for (target, source) in order.stdio.iter().enumerate() {
        call(
            Stage::Stdio,
            libc::SYS_dup3,
            [*source as Word, target, 0, 0, 0],
        )?;
    }
    let mut first_unused = 3;
    if order.program >= 0 {
        first_unused = PROGRAM + 1;
        if order.program as Word != PROGRAM {
            // The sources of the standard streams are no longer needed, so this number is free.
            let args = [
                order.program as Word,
                PROGRAM,
                libc::O_CLOEXEC as Word,
                0,
                0,
            ];
            call(Stage::Stdio, libc::SYS_dup3, args)?;
        }
    }
    for index in 0..order.descriptor_count {
        // SAFETY: `descriptor_count` pairs are there, kept alive by `give`.
        let [source, number] = unsafe { *order.descriptors.add(index) };
        let args = [source as Word, number as Word, 0, 0, 0];
        call(Stage::Stdio, libc::SYS_dup3, args)?;
    }
    if !order.cwd.is_null() {
        call(Stage::Cwd, libc::SYS_chdir, [order.cwd as Word, 0, 0, 0, 0])?;
    }
    if order.umask >= 0 {
        call(
            Stage::Stdio,
            libc::SYS_umask,
            [order.umask as Word, 0, 0, 0, 0],
        )?;
    }
    for index in 0..order.limit_count {
        // SAFETY: `limit_count` entries are there; `soft` and `hard` are laid out as rlimit64.
        let (resource, limit) = unsafe {
            let entry = order.limits.add(index);
            ((*entry).resource, &raw const (*entry).soft)
        };
        call(
            Stage::Limit,
            libc::SYS_prlimit64,
            [0, resource as Word, limit as Word, 0, 0],
        )?;
    }
    // A second safeguard: all descriptors of the guest are close-on-exec already. Kernels before
    // 5.9 do not have the call.
    let close = |first: Word, last: Word| {
        if first <= last {
            let _ = call(Stage::Stdio, libc::SYS_close_range, [first, last, 0, 0, 0]);
        }
    };
    for index in 0..order.descriptor_count {
        // SAFETY: as above.
        let [_, number] = unsafe { *order.descriptors.add(index) };
        close(first_unused, number as Word - 1);
        first_unused = number as Word + 1;
    }
    close(first_unused, u32::MAX as Word);
    let empty_mask = 0_u64;
    let mask = [
        libc::SIG_SETMASK as Word,
        &raw const empty_mask as Word,
        0,
        8,
        0,
    ];
    call(Stage::Stdio, libc::SYS_rt_sigprocmask, mask)?;
    Ok(())
}

/// Tries the candidates in order by the rules of execvp(3). Returns the errno of the whole attempt.
///
/// # Safety
/// As for [`command_main`].
unsafe fn execute(order: &RawOrder) -> i32 {
    if order.program >= 0 {
        // SAFETY: the path is a string; argv and env are lists kept alive by `give`.
        let result = unsafe {
            raw::syscall(
                libc::SYS_execveat,
                [
                    PROGRAM,
                    c"".as_ptr() as Word,
                    order.argv as Word,
                    order.env as Word,
                    libc::AT_EMPTY_PATH as Word,
                ],
            )
        };
        return -result as i32;
    }
    let mut verdict = libc::ENOENT;
    let mut next = order.candidates;
    // SAFETY: the list has at least its null; the second entry is read only if the first is not it.
    let is_only = unsafe { (*next).is_null() || (*next.add(1)).is_null() };
    loop {
        // SAFETY: the list ends with a null, which stops the loop.
        let path = unsafe { *next };
        if path.is_null() {
            return verdict;
        }
        // SAFETY: path, argv and env are lists and strings kept alive by `give`.
        match unsafe { execve(path, order.argv, order.env) } {
            // A candidate in a directory of PATH that may not be searched counts as not found. A
            // file that is visible but refused is an error.
            // SAFETY: as above.
            libc::EACCES if is_only || unsafe { is_visible(path) } => verdict = libc::EACCES,
            libc::ENOENT
            | libc::ENOTDIR
            | libc::ESTALE
            | libc::ENODEV
            | libc::ETIMEDOUT
            | libc::EACCES => {}
            // SAFETY: as above.
            libc::ENOEXEC if unsafe { is_text(path) } => {
                // SAFETY: `shell_argv` is a list of at least `[sh, hole, null]` that only we use.
                return unsafe {
                    *order.shell_argv.add(1) = path;
                    match execve(c"/bin/sh".as_ptr(), order.shell_argv, order.env) {
                        libc::E2BIG => libc::E2BIG,
                        _ => libc::ENOEXEC,
                    }
                };
            }
            other => return other,
        }
        // SAFETY: not at the null yet.
        next = unsafe { next.add(1) };
    }
}

/// Executes the file at `path`. Returns the errno on failure.
///
/// # Safety
/// All pointers must be to null-terminated lists of NUL-terminated strings.
unsafe fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    let result = unsafe {
        raw::syscall(
            libc::SYS_execve,
            [path as Word, argv as Word, env as Word, 0, 0],
        )
    };
    -result as i32
}

/// Returns true if a file is visible at a path.
///
/// # Safety
/// `path` must be a NUL-terminated string.
unsafe fn is_visible(path: *const c_char) -> bool {
    let here = libc::AT_FDCWD as isize as Word;
    // SAFETY: as promised by the caller.
    let result = unsafe {
        raw::syscall(
            libc::SYS_faccessat,
            [here, path as Word, libc::F_OK as Word, 0, 0],
        )
    };
    result == 0
}

/// Returns true if the beginning of a file has no NUL byte, so that a shell may run it.
///
/// # Safety
/// `path` must be a NUL-terminated string.
unsafe fn is_text(path: *const c_char) -> bool {
    let mut head = [0_u8; 128];
    // SAFETY: `path` is a string and `head` a live buffer of the length given.
    let count = unsafe {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as Word;
        let here = libc::AT_FDCWD as isize as Word;
        let fd = raw::syscall(libc::SYS_openat, [here, path as Word, flags, 0, 0]);
        if fd < 0 {
            return false;
        }
        raw::syscall(
            libc::SYS_read,
            [fd as Word, head.as_mut_ptr() as Word, head.len(), 0, 0],
        )
    };
    usize::try_from(count).is_ok_and(|count| head.iter().take(count).all(|&byte| byte != 0))
}
