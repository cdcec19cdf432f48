//! The warden: a process per command that everything the command starts falls back to.
//!
//! A warden shares the guest's address space and descriptor table (`CLONE_VM | CLONE_FILES`), so
//! making one costs no page tables and no duplicate descriptors. It makes itself a child
//! subreaper, starts one child on the same memory, publishes how that ended, and stays until nothing
//! it started is left, double forks and new sessions included. "Everything this command started" is
//! therefore always "the descendants of this warden".
//!
//! The child puts up its walls (process group, Landlock) and waits for an [`Order`]; with it, it rearranges
//! its descriptors, gives up what it has of the guest's rights, and becomes the command. So warden and child can be made ready before there is
//! anything to run ([`ready`]), and a command then costs one wake-up ([`give`]). Nothing of one
//! command is left to another: a child serves one order, and what reached it while it waited
//! (signals) is thrown away.
//!
//! Why this is sound although several processes run on our memory:
//! - Warden and unborn command run on stacks of their own and touch only their [`Slot`] and what
//!   its order points to. They allocate nothing, take no lock, and make system calls as bare
//!   instructions ([`raw`]), so neither `errno` nor any other thread-local state is touched.
//! - A stack is reused or unmapped only when the warden has been reaped *and* the kernel has
//!   cleared the command's `child_tid` word, which it does when the command leaves our address
//!   space by exec or death. Killing a warden between the two therefore frees nothing early.
//! - What an order points to is borrowed by [`give`], which returns only when the command has
//!   left the address space.
//! - The unborn command shares our descriptor table until it has its order, and takes a copy before
//!   it changes anything.
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

/// Name of wardens and unborn commands, as the kernel shows it. For people: any process may have it.
pub(crate) const NAME: &CStr = c"glovebox-warden";

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

/// What to run. Each list of pointers ends with a null; every pointer is to a NUL-terminated
/// string that outlives the call of [`give`].
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) argv: &'a [*const c_char],
    pub(crate) env: &'a [*const c_char],
    /// Paths to try in order.
    pub(crate) candidates: &'a [*const c_char],
    /// What is executed instead of them.
    pub(crate) program: Option<BorrowedFd<'a>>,
    pub(crate) cwd: Option<&'a CStr>,
    /// Descriptors for 0, 1 and 2, each at least 3.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Further descriptors of this process and the numbers that they get, by number; no source is one of the numbers.
    pub(crate) descriptors: &'a [[i32; 2]],
    pub(crate) limits: &'a [LimitEntry],
    /// File mode creation mask; `None` for that of the guest.
    pub(crate) umask: Option<Mode>,
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

/// Waits for one dead child of this process, whichever it is, without blocking. A child that was
/// stopped is told to go on: only something hostile stops wardens, and one that is stopped would
/// keep the end of its command to itself. A child that made this process its tracer is let go.
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

/// A warden. Dropping it leaks its memory, for the processes may still be using it;
/// [`Warden::retire`] is the way to get that back.
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

    /// Pid of the command, which is also its process group.
    pub(crate) fn command(&self) -> Option<Pid> {
        Pid::from_raw(self.slot().command.load(Ordering::Acquire) as i32)
    }

    /// The command's pid while it is on our memory.
    fn unborn(&self) -> Option<Pid> {
        let is_inside = self.slot().inside.load(Ordering::Acquire) != LEFT;
        self.command().filter(|_| is_inside)
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

    /// Takes the signal that has stopped the command since the last look.
    pub(crate) fn take_stop(&self) -> Option<i32> {
        let signal = self.slot().stop.swap(0, Ordering::AcqRel);
        (signal != 0).then_some(signal)
    }

    /// Books that this warden is gone.
    pub(crate) fn reaped(&mut self, proof: &ReapedProcess) {
        self.is_reaped |= proof.pid == self.pid;
    }

    /// Takes the memory back, if warden and command have both left it.
    pub(crate) fn retire(self) -> Result<Stack, Self> {
        // The kernel writes the command's pid before it lets it run, so a warden that is gone
        // without one never had one.
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
    /// The end that commands use. It must stay open for as long as something of the command runs.
    pub fd: BorrowedFd<'a>,
    /// True if the command's process group is in its foreground from the start. Otherwise it is put there when it is
    /// stopped for reading or changing the terminal (SIGTTIN, SIGTTOU).
    pub is_foreground: bool,
}

/// What a command is confined by beyond what the guest is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confinement<'a> {
    /// Landlock ruleset.
    pub(crate) landlock: Option<BorrowedFd<'a>>,
    /// The terminal of warden and command, in the table of this process, which the warden shares.
    pub(crate) terminal: Option<ControllingTerminal<'a>>,
    /// What keeps it from steering the guest.
    pub(crate) separation: Separation,
    /// It may make namespaces, so it is marked by its number of filters.
    pub(crate) is_nested: bool,
    /// The processors that it starts on, unless those are all.
    pub(crate) processors: Option<Mask>,
}

/// A start that did not work.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) stage: Stage,
    pub(crate) errno: Errno,
    /// The warden that was made for it and has yet to be reaped.
    pub(crate) remains: Option<Warden>,
    /// Nothing of the order was done, for the warden or its child was killed before: another may
    /// do it.
    pub(crate) is_untouched: bool,
}

/// Starts a warden and its child, which then wait for an order.
///
/// Preconditions: every signal is blocked in the calling thread and no handler is installed
/// ([`reset_and_block`]); `bell` stays open while the warden lives. The child confines itself by
/// `confinement` now, as far as that does not wait for its order.
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
    // Not passed to the kernel for the warden itself (no *_SETTID flag), only to fill the arguments.
    let unused = AtomicU32::new(0);
    // SAFETY: a `Stack` that is not part of a `Warden` is used by nobody, so the slot may be
    // written and the stack handed over. It stays mapped until the warden has been reaped: it is
    // in a `Warden` from here on. The slot is 16-byte aligned.
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

/// Has the command of `order` run under a warden that has had none. Returns when the command has
/// been executed or has failed to.
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
    // once: the warden was waiting, and is no more.
    unsafe { *slot.order.get() = raw };
    slot.phase.store(ORDERED, Ordering::Release);
    // Fails only for a bad address. Whoever does not wait yet will see the word.
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

/// Waits until the command has left our memory: by exec, or because it failed or was killed. `true`
/// when it took too long and was killed for that.
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
        // Not the ordinary course of things: the machine is very busy, or something with our user
        // id stops or kills what it finds.
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
        // With the warden dead its child is our own, so the pid cannot be another's.
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
