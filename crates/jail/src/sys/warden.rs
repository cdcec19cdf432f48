//! The warden: a supervisor process for each command, to which all descendants of the command are
//! reparented.
//!
//! A warden shares the guest's address space and descriptor table (`CLONE_VM | CLONE_FILES`), so
//! making one costs no page tables and no duplicate descriptors. It makes itself a child subreaper,
//! starts one child on the same memory, publishes how that ended, and stays until no process it
//! started is left, double forks and new sessions included. The processes that a command started
//! are therefore always the descendants of its warden.
//!
//! The child applies its restrictions (process group, Landlock) and waits for an [`Order`]. With
//! the order, it rearranges its descriptors, gives up the guest's rights, and executes the command.
//! So warden and child can be made ready before there is a command to run ([`ready`]), and a
//! command then costs one wake-up ([`give`]). No state of one command reaches another: a child
//! serves one order, and signals sent to it while it waited are discarded.
//!
//! "Pre-exec command" means that child until execve(2). It is sound that several processes run on
//! our memory, because:
//! - Warden and pre-exec command run on stacks of their own and touch only their [`Slot`] and the
//!   memory that its order points to. They allocate nothing, take no lock, and make system calls as
//!   bare instructions ([`raw`]), so neither `errno` nor any other thread-local state is touched.
//! - A stack is reused or unmapped only when the warden has been reaped *and* the kernel has
//!   cleared the command's `child_tid` word, which it does when the command leaves our address
//!   space by exec or death. Killing a warden between the two therefore frees nothing early.
//! - The memory that an order points to is borrowed by [`give`], which returns only when the
//!   command has left the address space.
//! - The pre-exec command shares our descriptor table until it has its order, and takes a copy
//!   before it changes the table.
//! - The kernel drops rseq registration, robust futex list and child_tid of `CLONE_VM` children.
#![expect(
    unsafe_code,
    reason = "processes on shared memory need clone(2) and bare system calls"
)]

mod command;
mod life;
pub(in crate::sys) mod raw;
mod signals;
mod slot;

pub(crate) use signals::{
    child_signal_fd, keep_heap_small, reset_and_block, send, stop_caller, stop_group_of_caller,
};
pub(crate) use slot::Stack;

use crate::identity::Separation;
use crate::processors::Mask;
use core::ffi::{CStr, c_char};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use rustix::thread::futex;
use rustix::time::Timespec;
use slot::{ENDED_EMPTY, LEFT, NOT_ENDED, ORDERED, RawOrder, Slot, TAKEN, WardenSetup};

/// Process name of wardens and pre-exec commands. It is for people only: any process may set the
/// same name.
pub(crate) const NAME: &CStr = c"glovebox-warden";

/// Time after which a warden that has not started its command is killed, in milliseconds. Only a
/// hostile process that keeps stopping it can make a start take longer than an exec.
const START_LIMIT_MS: u32 = 10_000;
const LOOK_EVERY_MS: u32 = 20;

/// Step between clone and exec that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stage {
    /// Creating a process.
    Fork = 1,
    /// Session, terminal or standard descriptors.
    Stdio = 2,
    /// Entering the working directory.
    Cwd = 3,
    /// Lowering a resource limit.
    Limit = 4,
    /// Applying the Landlock ruleset, the second system-call filter, or the user id of commands.
    Confine = 5,
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
            5 => Self::Confine,
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

/// Command to run. Each list of pointers ends with a null. Every pointer is to a NUL-terminated
/// string that outlives the call of [`give`].
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) argv: &'a [*const c_char],
    pub(crate) env: &'a [*const c_char],
    /// Paths to try in order.
    pub(crate) candidates: &'a [*const c_char],
    /// Program that is executed instead of the candidates.
    pub(crate) program: Option<BorrowedFd<'a>>,
    pub(crate) cwd: Option<&'a CStr>,
    /// Sources of the descriptors 0, 1 and 2, each at least 3.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Further descriptors of this process and their numbers in the command, sorted by number. No
    /// source has one of the numbers.
    pub(crate) descriptors: &'a [[i32; 2]],
    pub(crate) limits: &'a [LimitEntry],
    /// File mode creation mask; `None` for that of the guest.
    pub(crate) umask: Option<Mode>,
}

/// Result of a command that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Status as wait(2) reports it.
    pub(crate) status: i32,
    /// CPU time in user mode, in microseconds.
    pub(crate) user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub(crate) system_us: u64,
    /// Largest resident set, in KiB.
    pub(crate) max_rss_kib: u64,
    /// Time of the end on the monotonic clock, in nanoseconds.
    pub(crate) ended_ns: u64,
    /// True if no process that the command started was left at that moment.
    pub(crate) is_empty: bool,
}

/// Proof that a child of this process has been waited for.
#[derive(Debug)]
pub(crate) struct ReapedProcess {
    pid: Pid,
    status: WaitStatus,
}

impl ReapedProcess {
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) const fn status(&self) -> WaitStatus {
        self.status
    }
}

/// Waits for one dead child of this process, whichever it is, without blocking. A stopped child is
/// continued: only a hostile process stops wardens, and a stopped warden would not report the end
/// of its command. A child that made this process its tracer is detached.
pub(crate) fn reap_any() -> Option<ReapedProcess> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if status.stopped() => {
                let signal = status.stopping_signal().unwrap_or_default();
                if raw::release_tracee(pid.as_raw_pid(), signal) {
                    continue;
                }
                let _ = rustix::process::kill_process(pid, Signal::CONT);
            }
            Ok(Some((pid, status))) => return Some(ReapedProcess { pid, status }),
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// A warden. Dropping it leaks its memory, because the processes may still be using it;
/// [`Warden::retire`] returns that memory.
#[derive(Debug)]
pub(crate) struct Warden {
    pid: Pid,
    is_reaped: bool,
    stack: ManuallyDrop<Stack>,
}

impl Warden {
    fn slot(&self) -> &Slot {
        // SAFETY: `ready` initialised the slot, and the mapping lives as long as `self`. Fields
        // that other processes write are atomics, or the cells read and written under them.
        unsafe { &*self.stack.slot() }
    }

    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the pid of the command, which is also its process group. `None` if it was never
    /// made.
    pub(crate) fn command(&self) -> Option<Pid> {
        Pid::from_raw(self.slot().command.load(Ordering::Acquire) as i32)
    }

    /// Returns the command's pid while it runs on our memory.
    fn unborn(&self) -> Option<Pid> {
        let is_inside = self.slot().inside.load(Ordering::Acquire) != LEFT;
        self.command().filter(|_| is_inside)
    }

    /// Returns the result of the command. `None` while it runs.
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

    /// Returns and clears the signal that has stopped the command since the last call.
    pub(crate) fn take_stop(&self) -> Option<i32> {
        let signal = self.slot().stop.swap(0, Ordering::AcqRel);
        (signal != 0).then_some(signal)
    }

    /// Records that this warden is gone, if `proof` is of its pid.
    pub(crate) fn reaped(&mut self, proof: &ReapedProcess) {
        self.is_reaped |= proof.pid == self.pid;
    }

    /// Returns the memory if warden and command have both left it. Otherwise returns the warden
    /// unchanged.
    pub(crate) fn retire(self) -> Result<Stack, Self> {
        // The kernel writes the command's pid before the command runs. So a warden that is gone
        // without having a command pid never had a command.
        if self.is_reaped && self.unborn().is_none() {
            Ok(ManuallyDrop::into_inner(self.stack))
        } else {
            Err(self)
        }
    }
}

/// A terminal for a command.
#[derive(Debug, Clone, Copy)]
pub struct ControllingTerminal<'a> {
    /// The end of the terminal that commands use. It must stay open while any process of the
    /// command runs.
    pub fd: BorrowedFd<'a>,
    /// True if the command's process group is in the terminal's foreground from the start.
    /// Otherwise it is put there when it is stopped for reading or changing the terminal (SIGTTIN,
    /// SIGTTOU).
    pub is_foreground: bool,
}

/// Restrictions of a command beyond those of the guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confinement<'a> {
    /// Landlock ruleset.
    pub(crate) landlock: Option<BorrowedFd<'a>>,
    /// The terminal of warden and command, in this process's descriptor table, which the warden
    /// shares.
    pub(crate) terminal: Option<ControllingTerminal<'a>>,
    /// Mechanism that keeps the command from signalling or tracing the guest.
    pub(crate) separation: Separation,
    /// True if the command may make namespaces. It then gets a further filter, whose count marks it
    /// as a command.
    pub(crate) is_nested: bool,
    /// Processors that the command starts on. `None` for all.
    pub(crate) processors: Option<Mask>,
}

/// Error of starting a command.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) stage: Stage,
    pub(crate) errno: Errno,
    /// The warden that was made for it and is still to be reaped.
    pub(crate) remains: Option<Warden>,
    /// True if no step of the order was done because the warden or its child was killed before.
    /// Another warden may then carry it out.
    pub(crate) is_untouched: bool,
}

/// Starts a warden and its child, which then wait for an order.
///
/// Preconditions: every signal is blocked in the calling thread and no handler is installed
/// ([`reset_and_block`]); `bell` stays open while the warden lives. The child applies the parts of
/// `confinement` that do not depend on the order before it waits.
pub(crate) fn ready(
    stack: Stack,
    bell: BorrowedFd<'_>,
    confinement: Confinement<'_>,
) -> Result<Warden, Errno> {
    let terms = WardenSetup {
        guest: rustix::process::getpid().as_raw_pid(),
        bell: bell.as_raw_fd(),
        landlock: confinement.landlock.map_or(-1, |fd| fd.as_raw_fd()),
        terminal: confinement
            .terminal
            .map_or(-1, |terminal| terminal.fd.as_raw_fd()),
        is_foreground: confinement
            .terminal
            .is_some_and(|terminal| terminal.is_foreground),
        separation: confinement.separation,
        is_nested: confinement.is_nested,
        processors: confinement.processors,
    };
    let slot = stack.slot();
    // The warden is started without *_SETTID flags, so the kernel ignores these two arguments.
    let unused = AtomicU32::new(0);
    // SAFETY: a `Stack` that is not part of a `Warden` is not in use, so the slot may be written
    // and the stack handed over. It stays mapped until the warden has been reaped: it is in a
    // `Warden` from here on. The slot is 16-byte aligned.
    let result = unsafe {
        slot.write(Slot::new(terms, stack.command_stack_top()));
        raw::clone_onto(
            libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD,
            slot.cast(),
            [&unused, &unused],
            life::warden_main,
            slot,
        )
    };
    let pid = i32::try_from(result).ok().filter(|pid| *pid > 0);
    let pid = pid
        .and_then(Pid::from_raw)
        .ok_or_else(|| Errno::from_raw_os_error(-result as i32))?;
    Ok(Warden {
        pid,
        is_reaped: false,
        stack: ManuallyDrop::new(stack),
    })
}

/// Runs the command of `order` under a warden that has had none. Blocks until the command has been
/// executed or has failed to be.
pub(crate) fn give(warden: Warden, order: &Order<'_>) -> Result<Warden, Refusal> {
    let lists = [order.argv, order.env, order.candidates];
    let is_whole = order.argv.len() >= 2
        && lists
            .iter()
            .all(|list| list.last().is_some_and(|end| end.is_null()));
    let slot = warden.slot();
    if !is_whole || slot.phase.load(Ordering::Acquire) != slot::WAITING {
        return Err(Refusal {
            stage: Stage::Exec,
            errno: Errno::INVAL,
            remains: Some(warden),
            is_untouched: false,
        });
    }
    // A script without `#!` is run as `/bin/sh PATH ARGS...`; the path is filled in when known.
    let mut shell_argv = Vec::with_capacity(order.argv.len() + 1);
    shell_argv.extend([c"/bin/sh".as_ptr(), core::ptr::null()]);
    shell_argv.extend_from_slice(&order.argv[1..]);
    let raw = RawOrder {
        argv: order.argv.as_ptr(),
        env: order.env.as_ptr(),
        candidates: order.candidates.as_ptr(),
        program: order.program.map_or(-1, |file| file.as_raw_fd()),
        shell_argv: shell_argv.as_mut_ptr(),
        cwd: order.cwd.map_or(core::ptr::null(), CStr::as_ptr),
        stdio: order.stdio.map(|fd| fd.as_raw_fd()),
        descriptors: order.descriptors.as_ptr(),
        descriptor_count: order.descriptors.len(),
        limits: order.limits.as_ptr(),
        limit_count: order.limits.len(),
        umask: order.umask.map_or(-1, |umask| umask.as_raw_mode() as i32),
    };
    // SAFETY: the command reads the cell only once `phase` says so, which only happens here, and
    // once: the warden was waiting, and stops waiting now.
    unsafe { *slot.order.get() = raw };
    slot.phase.store(ORDERED, Ordering::Release);
    // Wake-up fails only for a bad address. A child that does not wait yet will read the new phase.
    let _ = futex::wake(&slot.phase, futex::Flags::PRIVATE, 1);
    let was_given_up = await_departure(&warden);
    // The command borrowed `order` and `shell_argv` until here.
    drop(shell_argv);
    let slot = warden.slot();
    let failed = slot.failed_stage.load(Ordering::Acquire);
    let is_taken = slot.phase.load(Ordering::Acquire) == TAKEN;
    let (stage, errno) = if failed != 0 {
        let errno = slot.failed_errno.load(Ordering::Acquire);
        (Stage::from_word(failed), Errno::from_raw_os_error(errno))
    } else if was_given_up || !is_taken {
        (Stage::Interrupted, Errno::INTR)
    } else {
        return Ok(warden);
    };
    Err(Refusal {
        stage,
        errno,
        remains: Some(warden),
        is_untouched: stage == Stage::Interrupted && !is_taken && !was_given_up,
    })
}

/// Blocks until the command has left our memory, because it was executed, failed or was killed.
/// Returns true if it took too long and was killed for that.
fn await_departure(warden: &Warden) -> bool {
    let slot = warden.slot();
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(LOOK_EVERY_MS) * 1_000_000,
    };
    let mut waited_ms = 0;
    let mut is_given_up = false;
    loop {
        let inside = slot.inside.load(Ordering::Acquire);
        if inside == LEFT {
            return is_given_up;
        }
        match futex::wait(&slot.inside, futex::Flags::empty(), inside, Some(&pause)) {
            Err(Errno::TIMEDOUT) => {}
            _ => continue,
        }
        // This happens only if the machine is very busy, or if a process of our user id stops or
        // kills the warden or the command.
        waited_ms += LOOK_EVERY_MS;
        if !is_dead(warden.pid) {
            let signal = if waited_ms < START_LIMIT_MS {
                Signal::CONT
            } else {
                is_given_up = true;
                Signal::KILL
            };
            let _ = rustix::process::kill_process(warden.pid, signal);
            if let Some(command) = warden.unborn() {
                let _ = rustix::process::kill_process(command, signal);
            }
            continue;
        }
        // With the warden dead, the command is our own child, so its pid cannot have been reused.
        match warden.unborn() {
            Some(command) => {
                let _ = rustix::process::kill_process(command, Signal::KILL);
            }
            None => return is_given_up,
        }
    }
}

fn is_dead(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(
        rustix::process::waitid(WaitId::Pid(pid), options),
        Ok(None) | Err(Errno::INTR)
    )
}
