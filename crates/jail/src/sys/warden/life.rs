//! Main loop of a warden, from its first instruction to its exit.

use super::raw::{self, Word};
use super::slot::{ENDED_EMPTY, ENDED_OTHERS_LEFT, LEFT, RawOutcome, Slot};
use super::{Stage, command};
use crate::identity::Separation;
use core::sync::atomic::Ordering;
use glovebox_spec::GUEST_UID;

/// Gives up the user id of commands, which only the child needs to change to. From now on commands
/// cannot signal this process either. It keeps its capability, with which the kernel checks the
/// signal that kills the command when its warden dies (prctl(2), `PR_SET_PDEATHSIG`).
fn settle(guest: i32) {
    let own = GUEST_UID as Word;
    let death = [
        libc::PR_SET_PDEATHSIG as Word,
        libc::SIGKILL as Word,
        0,
        0,
        0,
    ];
    // SAFETY: all arguments are integers. These ids are the ones this process has, so there is
    // nothing to refuse.
    let parent = unsafe {
        raw::syscall(libc::SYS_setresuid, [own, own, own, 0, 0]);
        // The kernel cleared the death signal when the ids changed.
        raw::syscall(libc::SYS_prctl, death);
        raw::syscall(libc::SYS_getppid, [0; 5])
    };
    if parent != guest as isize {
        raw::exit(1);
    }
}

/// Records that the warden's child could not be made, and why. Exits.
fn fail(slot: &Slot, stage: Stage, result: isize) -> ! {
    slot.failed_errno.store(-result as i32, Ordering::Relaxed);
    slot.failed_stage.store(stage as u32, Ordering::Relaxed);
    slot.inside.store(LEFT, Ordering::Release);
    raw::wake(&slot.inside);
    raw::exit(0);
}

/// Records that a signal has stopped the command. Returns true if the guest must be notified; false
/// if it has not yet seen the previous stop.
fn note_stop(slot: &Slot, command: i32, signal: i32) -> bool {
    // The command is in the background and wants to read or change its terminal. Put it in the
    // foreground before the guest continues it: only a process of this session may do that.
    if matches!(signal, libc::SIGTTIN | libc::SIGTTOU) && slot.terms.terminal >= 0 {
        command::put_in_front(slot.terms.terminal, command);
    }
    slot.stop.swap(signal, Ordering::AcqRel) == 0
}

/// Runs the warden until no process of its command is left, then exits.
///
/// # Safety
/// Only as the entry of [`raw::clone_onto`] with a slot written by [`super::ready`].
pub(super) unsafe extern "C" fn warden_main(slot: *const Slot) -> ! {
    // SAFETY: `ready` keeps the slot in place until this process has been reaped.
    let slot = unsafe { &*slot };
    let terms = slot.terms;
    let prctl = |option: i32, value: Word| {
        // SAFETY: only called below, with options that take integers and one with a literal.
        unsafe { raw::syscall(libc::SYS_prctl, [option as Word, value, 0, 0, 0]) }
    };
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as Word);
    prctl(libc::PR_SET_NAME, super::NAME.as_ptr() as Word);
    // SAFETY: getppid(2) takes nothing.
    if unsafe { raw::syscall(libc::SYS_getppid, [0; 5]) } != terms.guest as isize {
        // The guest died before the call above took effect.
        raw::exit(1);
    }
    // setsid comes before the clone, because the child has to be in this session. The command must
    // be in a session that it does not lead: the process group of a leader is orphaned here, and
    // the kernel does not stop an orphaned group at Ctrl-Z.
    // SAFETY: setsid(2) takes nothing.
    let result = unsafe { raw::syscall(libc::SYS_setsid, [0; 5]) };
    if result < 0 {
        fail(slot, Stage::Stdio, result);
    }
    if terms.terminal >= 0 {
        let args = [terms.terminal as Word, libc::TIOCSCTTY as Word, 0, 0, 0];
        // This comes before the clone: an existing child would not get the terminal.
        // SAFETY: all arguments are integers.
        let result = unsafe { raw::syscall(libc::SYS_ioctl, args) };
        if result < 0 {
            fail(slot, Stage::Stdio, result);
        }
    }
    // SAFETY: getpid(2) takes nothing.
    let own_pid = unsafe { raw::syscall(libc::SYS_getpid, [0; 5]) } as i32;
    slot.warden.store(own_pid, Ordering::Release);
    // The child shares the descriptor table as well, until it has its order.
    // SAFETY: the command's stack is the other part of our own mapping; `command_main` follows the
    // rules; slot and words stay until the kernel has cleared `inside`, see `Warden::retire`.
    let result = unsafe {
        raw::clone_onto(
            libc::CLONE_VM
                | libc::CLONE_FILES
                | libc::CLONE_PARENT_SETTID
                | libc::CLONE_CHILD_CLEARTID
                | libc::SIGCHLD,
            slot.command_stack_top,
            [&slot.command, &slot.inside],
            command::command_main,
            slot,
        )
    };
    if result < 0 {
        fail(slot, Stage::Fork, result);
    }
    if let Separation::UserId(_) = terms.separation {
        settle(terms.guest);
    }

    let mut status = 0_i32;
    // SAFETY: a C struct of integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    let mut wait = |options: i32| {
        // SAFETY: both pointers are to live local variables of the right type.
        let pid = unsafe {
            raw::syscall(
                libc::SYS_wait4,
                [
                    -1_isize as Word,
                    &raw mut status as Word,
                    (options | libc::__WALL) as Word,
                    &raw mut usage as Word,
                    0,
                ],
            )
        };
        (pid, status, usage)
    };
    let ring = || {
        // SAFETY: write(2) reads four bytes of a live local.
        unsafe {
            let pid = own_pid.to_ne_bytes();
            raw::syscall(
                libc::SYS_write,
                [terms.bell as Word, pid.as_ptr() as Word, 4, 0, 0],
            );
        }
    };
    loop {
        let mut end = None;
        // The first wait blocks. The following ones collect all further events without blocking.
        let mut options = libc::WUNTRACED;
        let is_empty = loop {
            let (pid, status, usage) = wait(options);
            options |= libc::WNOHANG;
            if pid == 0 {
                break false;
            }
            if pid == -(libc::ECHILD as isize) {
                break true;
            }
            // This covers processes that the command left behind too: this process is their parent
            // now, so they can make it their tracer, and no other process would continue them.
            if libc::WIFSTOPPED(status) && raw::release_tracee(pid as i32, libc::WSTOPSIG(status)) {
                continue;
            }
            if pid != result || slot.failed_stage.load(Ordering::Acquire) != 0 {
                continue;
            }
            if libc::WIFSTOPPED(status) {
                if note_stop(slot, result as i32, libc::WSTOPSIG(status)) {
                    ring();
                }
                continue;
            }
            // The command has ended. One message tells both that and whether any of its processes
            // is left, so that the usual case needs no second one.
            let mut ended = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: the pointer is to a live local of the right type.
            unsafe {
                let clock = libc::CLOCK_MONOTONIC as Word;
                raw::syscall(
                    libc::SYS_clock_gettime,
                    [clock, &raw mut ended as Word, 0, 0, 0],
                );
            }
            end = Some(RawOutcome {
                status,
                usage,
                ended,
            });
        };
        if let Some(end) = end {
            // SAFETY: the guest reads the cell only after `ended` is set, and it is written once.
            unsafe { *slot.outcome.get() = end };
            let word = if is_empty {
                ENDED_EMPTY
            } else {
                ENDED_OTHERS_LEFT
            };
            slot.ended.store(word, Ordering::Release);
            ring();
        }
        if is_empty {
            raw::exit(0);
        }
    }
}
