//! The warden: a process per command that everything the command starts falls back to.
//!
//! A warden shares the guest's address space and descriptor table (`CLONE_VM | CLONE_FILES`), so
//! making one costs no page tables and no duplicate descriptors. It makes itself a child
//! subreaper, starts the command as a vfork-like child, publishes how the command ended, and stays
//! until nothing the command started is left, double forks and new sessions included. "Everything
//! this command started" is therefore always "the descendants of this warden".
//!
//! Why this is sound although two processes run on our memory:
//! - Warden and unborn command run on stacks of their own and touch only their [`Slot`] and what
//!   its order points to. They allocate nothing, take no lock, and make system calls as bare
//!   instructions ([`raw`]), so neither `errno` nor any other thread-local state is touched.
//! - A stack is reused or unmapped only when the warden has been reaped *and* the kernel has
//!   cleared the command's `child_tid` word, which it does when the command leaves our address
//!   space by exec or death. Killing a warden between the two therefore frees nothing early.
//! - What an order points to is borrowed by [`start`], which returns only when the command has
//!   left the address space.
//! - The kernel drops rseq registration, robust futex list and child_tid of `CLONE_VM` children.
#![expect(
    unsafe_code,
    reason = "processes on shared memory need clone(2) and bare system calls"
)]

mod command;
mod life;
pub(in crate::sys) mod raw;
mod signals;

pub(crate) use signals::{child_signal_fd, keep_heap_small, reset_and_block, send};

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use rustix::thread::futex;
use rustix::time::Timespec;

/// Room for the code between vfork and exec; a few KiB are used, more in debug builds.
const COMMAND_STACK_BYTES: usize = 32 << 10;
/// Room for the warden's loop and the slot.
const WARDEN_STACK_BYTES: usize = 32 << 10;

const STARTING: u32 = 0;
const RUNNING: u32 = 1;
const FAILED: u32 = 2;

/// `child_tid` word before there is a child; no pid has this value.
const NOT_STARTED: u32 = u32::MAX;

const NOT_ENDED: u32 = 0;
const ENDED_OTHERS_LEFT: u32 = 1;
const ENDED_EMPTY: u32 = 2;

/// How long a start may take before the warden is given up; only a hostile process that keeps
/// stopping it can make it take longer than an exec.
const START_LIMIT_MS: u32 = 10_000;
const LOOK_EVERY_MS: u32 = 20;

/// Which step between clone and exec failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stage {
    /// Making a process.
    Fork = 1,
    /// Session, terminal or standard descriptors.
    Stdio = 2,
    /// Entering the working directory.
    Cwd = 3,
    /// Lowering a resource limit.
    Limit = 4,
    /// Applying the Landlock ruleset.
    Landlock = 5,
    /// Executing the command.
    Exec = 6,
    /// The warden was killed or kept stopped before the command ran.
    Interrupted = 7,
}

impl Stage {
    const fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Fork,
            2 => Self::Stdio,
            3 => Self::Cwd,
            4 => Self::Limit,
            5 => Self::Landlock,
            6 => Self::Exec,
            _ => Self::Interrupted,
        }
    }
}

/// One resource limit as prlimit64(2) takes it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct LimitEntry {
    /// `RLIMIT_*`.
    pub(crate) resource: u64,
    /// Soft limit.
    pub(crate) soft: u64,
    /// Hard limit.
    pub(crate) hard: u64,
}

/// What to run. Each list of pointers ends with a null; every pointer is to a NUL-terminated
/// string that outlives the call of [`start`].
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) argv: &'a [*const c_char],
    pub(crate) env: &'a [*const c_char],
    /// Paths to try in order.
    pub(crate) candidates: &'a [*const c_char],
    pub(crate) cwd: Option<&'a CStr>,
    /// Descriptors for 0, 1 and 2, each at least 3.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    pub(crate) has_terminal: bool,
    pub(crate) landlock: Option<BorrowedFd<'a>>,
    pub(crate) limits: &'a [LimitEntry],
    /// Where the warden writes its own pid, four bytes, when the command has ended.
    pub(crate) bell: BorrowedFd<'a>,
}

/// An [`Order`] without lifetimes, readable from the other processes.
struct RawOrder {
    guest: i32,
    bell: i32,
    argv: *const *const c_char,
    env: *const *const c_char,
    candidates: *const *const c_char,
    shell_argv: *mut *const c_char,
    cwd: *const c_char,
    stdio: [i32; 3],
    has_terminal: bool,
    landlock: i32,
    limits: *const LimitEntry,
    limit_count: usize,
}

/// Memory shared with one warden and its command until that has left.
struct Slot {
    order: RawOrder,
    command_stack_top: *mut u8,
    /// [`STARTING`], [`RUNNING`] or [`FAILED`]; the guest waits on it.
    phase: AtomicU32,
    /// Kernel-written: [`NOT_STARTED`], the command's pid while it is in our memory, then 0.
    inside: AtomicU32,
    command: AtomicI32,
    failed_stage: AtomicU32,
    failed_errno: AtomicI32,
    /// [`NOT_ENDED`], [`ENDED_OTHERS_LEFT`] or [`ENDED_EMPTY`]; `outcome` is readable after the
    /// latter two.
    ended: AtomicU32,
    outcome: UnsafeCell<RawOutcome>,
}

#[derive(Clone, Copy)]
struct RawOutcome {
    status: i32,
    usage: libc::rusage,
    ended: libc::timespec,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// As wait(2) reports it.
    pub(crate) status: i32,
    /// CPU time in user mode.
    pub(crate) user_us: u64,
    /// CPU time in the kernel.
    pub(crate) system_us: u64,
    /// Largest resident set.
    pub(crate) max_rss_kib: u64,
    /// Moment of the end on the monotonic clock.
    pub(crate) ended_ns: u64,
    /// Nothing the command started was left at that moment.
    pub(crate) is_empty: bool,
}

/// Memory for one warden at a time: a guard page, the command's stack, the warden's stack, the slot.
#[derive(Debug)]
pub(crate) struct Stack {
    base: NonNull<u8>,
    bytes: usize,
}

impl Stack {
    pub(crate) fn new() -> Result<Self, Errno> {
        let guard = rustix::param::page_size();
        let bytes = guard + COMMAND_STACK_BYTES + WARDEN_STACK_BYTES;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice disturbs nothing,
        // and the guard page is its own first page.
        let base = unsafe {
            let base = rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK,
            )?;
            rustix::mm::mprotect(base, guard, MprotectFlags::empty())?;
            base
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, bytes })
    }

    /// The slot at the upper end; the warden's stack grows down from it.
    fn slot(&self) -> *mut Slot {
        let end = self.bytes - size_of::<Slot>();
        let offset = end & !(align_of::<Slot>().max(16) - 1);
        // SAFETY: the offset is inside the mapping, and aligned as the base is page-aligned.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }

    fn command_stack_top(&self) -> *mut u8 {
        // SAFETY: inside the mapping: the warden's part lies above.
        unsafe { self.base.as_ptr().add(self.bytes - WARDEN_STACK_BYTES) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: a `Stack` that is dropped is not in use (`Warden` never drops its own), and
        // nothing else refers to the mapping. An error would leave it mapped, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Proof that a child of this process has been waited for.
#[derive(Debug)]
pub(crate) struct Reaped {
    pid: Pid,
    status: WaitStatus,
}

impl Reaped {
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) const fn status(&self) -> WaitStatus {
        self.status
    }
}

/// Waits for one dead child of this process, whichever it is, without blocking. A child that was
/// stopped is told to go on: only something hostile stops wardens, and one that is stopped would
/// keep the end of its command to itself.
pub(crate) fn reap_any() -> Option<Reaped> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if status.stopped() => {
                let _ = rustix::process::kill_process(pid, Signal::CONT);
            }
            Ok(Some((pid, status))) => return Some(Reaped { pid, status }),
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// A started warden. Dropping it leaks its memory, for the processes may still be using it;
/// [`Warden::retire`] is the way to get that back.
#[derive(Debug)]
pub(crate) struct Warden {
    pid: Pid,
    is_reaped: bool,
    stack: ManuallyDrop<Stack>,
}

impl Warden {
    fn slot(&self) -> &Slot {
        // SAFETY: `start` initialised the slot, and the mapping lives as long as `self`. Fields
        // that other processes write are atomics, or the cell read under `ended`.
        unsafe { &*self.stack.slot() }
    }

    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Pid of the command, which is also its process group and session.
    pub(crate) fn command(&self) -> Option<Pid> {
        Pid::from_raw(self.slot().command.load(Ordering::Acquire))
    }

    /// How the command ended, once it has.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let slot = self.slot();
        let ended = slot.ended.load(Ordering::Acquire);
        if ended == NOT_ENDED {
            return None;
        }
        // SAFETY: the warden wrote the cell before its release store of `ended` and never again.
        let raw = unsafe { *slot.outcome.get() };
        let micros = |time: libc::timeval| {
            (time.tv_sec as u64)
                .saturating_mul(1_000_000)
                .saturating_add(time.tv_usec as u64)
        };
        Some(Outcome {
            status: raw.status,
            user_us: micros(raw.usage.ru_utime),
            system_us: micros(raw.usage.ru_stime),
            max_rss_kib: raw.usage.ru_maxrss as u64,
            ended_ns: (raw.ended.tv_sec as u64)
                .saturating_mul(1_000_000_000)
                .saturating_add(raw.ended.tv_nsec as u64),
            is_empty: ended == ENDED_EMPTY,
        })
    }

    /// Books that this warden is gone.
    pub(crate) fn reaped(&mut self, proof: &Reaped) {
        self.is_reaped |= proof.pid == self.pid;
    }

    /// Takes the memory back, if warden and command have both left it.
    pub(crate) fn retire(self) -> Result<Stack, Self> {
        let inside = self.slot().inside.load(Ordering::Acquire);
        if self.is_reaped && (inside == 0 || inside == NOT_STARTED) {
            Ok(ManuallyDrop::into_inner(self.stack))
        } else {
            Err(self)
        }
    }
}

/// A start that did not work.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) stage: Stage,
    pub(crate) errno: Errno,
    /// The warden that was made for it and has yet to be reaped.
    pub(crate) remains: Option<Warden>,
}

/// Starts a warden and, under it, the command of `order`. Returns when the command has been
/// executed or has failed to.
///
/// Preconditions: every signal is blocked in the calling thread and no handler is installed
/// ([`reset_and_block`]); `order.bell` stays open while the warden lives.
pub(crate) fn start(stack: Stack, order: &Order<'_>) -> Result<Warden, Refusal> {
    let refuse = |stage, errno, remains| Refusal {
        stage,
        errno,
        remains,
    };
    let lists = [order.argv, order.env, order.candidates];
    if order.argv.len() < 2
        || lists
            .iter()
            .any(|list| list.last().is_none_or(|end| !end.is_null()))
    {
        return Err(refuse(Stage::Exec, Errno::INVAL, None));
    }
    // A script without `#!` is run as `/bin/sh PATH ARGS...`; the path is filled in when known.
    let mut shell_argv = Vec::with_capacity(order.argv.len() + 1);
    shell_argv.extend([c"/bin/sh".as_ptr(), core::ptr::null()]);
    shell_argv.extend_from_slice(&order.argv[1..]);

    let slot = stack.slot();
    let fresh = Slot {
        order: RawOrder {
            guest: rustix::process::getpid().as_raw_pid(),
            bell: order.bell.as_raw_fd(),
            argv: order.argv.as_ptr(),
            env: order.env.as_ptr(),
            candidates: order.candidates.as_ptr(),
            shell_argv: shell_argv.as_mut_ptr(),
            cwd: order.cwd.map_or(core::ptr::null(), CStr::as_ptr),
            stdio: order.stdio.map(|fd| fd.as_raw_fd()),
            has_terminal: order.has_terminal,
            landlock: order.landlock.map_or(-1, |fd| fd.as_raw_fd()),
            limits: order.limits.as_ptr(),
            limit_count: order.limits.len(),
        },
        command_stack_top: stack.command_stack_top(),
        phase: AtomicU32::new(STARTING),
        inside: AtomicU32::new(NOT_STARTED),
        command: AtomicI32::new(0),
        failed_stage: AtomicU32::new(0),
        failed_errno: AtomicI32::new(0),
        ended: AtomicU32::new(NOT_ENDED),
        outcome: UnsafeCell::new(RawOutcome {
            status: 0,
            // SAFETY: a C struct of integers, for which all zeroes is a value.
            usage: unsafe { core::mem::zeroed() },
            ended: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
        }),
    };
    // Not passed to the kernel for the warden itself (no *_SETTID flag), only to fill the argument.
    let unused = AtomicU32::new(0);
    // SAFETY: a `Stack` that is not part of a `Warden` is used by nobody, so the slot may be
    // written and the stack handed over. It stays mapped until the warden has been reaped: every
    // path below keeps it in a `Warden`. The slot is 16-byte aligned.
    let result = unsafe {
        slot.write(fresh);
        raw::clone_onto(
            libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD,
            slot.cast(),
            &unused,
            life::warden_main,
            slot,
        )
    };
    let Some(pid) = i32::try_from(result)
        .ok()
        .and_then(Pid::from_raw)
        .filter(|_| result > 0)
    else {
        return Err(refuse(
            Stage::Fork,
            Errno::from_raw_os_error(-result as i32),
            None,
        ));
    };
    let warden = Warden {
        pid,
        is_reaped: false,
        stack: ManuallyDrop::new(stack),
    };
    let has_answered = wait_for_start(&warden);
    // The command borrowed `order` and `shell_argv` until here.
    drop(shell_argv);
    let slot = warden.slot();
    if !has_answered {
        return Err(refuse(Stage::Interrupted, Errno::INTR, Some(warden)));
    }
    if slot.phase.load(Ordering::Acquire) == FAILED {
        let stage = Stage::from_word(slot.failed_stage.load(Ordering::Acquire));
        let errno = Errno::from_raw_os_error(slot.failed_errno.load(Ordering::Acquire));
        return Err(refuse(stage, errno, Some(warden)));
    }
    Ok(warden)
}

/// Waits until the warden has an answer; `false` when it has died or been given up, and its
/// command with it.
fn wait_for_start(warden: &Warden) -> bool {
    let slot = warden.slot();
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(LOOK_EVERY_MS) * 1_000_000,
    };
    let mut waited_ms = 0;
    loop {
        if slot.phase.load(Ordering::Acquire) != STARTING {
            return true;
        }
        match futex::wait(&slot.phase, futex::Flags::PRIVATE, STARTING, Some(&pause)) {
            Err(Errno::TIMEDOUT) => {}
            _ => continue,
        }
        // Not the ordinary course of things: the machine is very busy, or something with our user
        // id stops or kills what it finds.
        waited_ms += LOOK_EVERY_MS;
        let is_dead = is_dead(warden.pid);
        if !is_dead && waited_ms < START_LIMIT_MS {
            let _ = rustix::process::kill_process(warden.pid, Signal::CONT);
            if let Some(command) = pid_inside(slot) {
                let _ = rustix::process::kill_process(command, Signal::CONT);
            }
            continue;
        }
        if !is_dead {
            let _ = rustix::process::kill_process(warden.pid, Signal::KILL);
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(
                rustix::process::waitid(WaitId::Pid(warden.pid), options),
                Err(Errno::INTR)
            ) {}
        }
        // With the warden dead its command is our own child, so the pid cannot be another's.
        while let Some(command) = pid_inside(slot) {
            let _ = rustix::process::kill_process(command, Signal::KILL);
            let seen = command.as_raw_pid() as u32;
            let _ = futex::wait(&slot.inside, futex::Flags::empty(), seen, Some(&pause));
        }
        return slot.phase.load(Ordering::Acquire) != STARTING;
    }
}

fn is_dead(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(
        rustix::process::waitid(WaitId::Pid(pid), options),
        Ok(None) | Err(Errno::INTR)
    )
}

fn pid_inside(slot: &Slot) -> Option<Pid> {
    match slot.inside.load(Ordering::Acquire) {
        NOT_STARTED => None,
        word => Pid::from_raw(word as i32),
    }
}
