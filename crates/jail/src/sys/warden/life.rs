//! What a warden does from its first instruction to its last.

use super::raw::{self, Word};
use super::slot::{ENDED_EMPTY, ENDED_OTHERS_LEFT, LEFT, RawOutcome, Slot};
use super::{Stage, command};
use crate::identity::Separation;
use crate::spec::GUEST_UID;
use core::sync::atomic::Ordering;

/// Gives up the way to the user id of commands, which only the child needs: from now on they cannot signal
/// this process either. It keeps its capability, with which the kernel checks the signal that ends the
/// command when its warden dies (prctl(2), `PR_SET_PDEATHSIG`).
fn settle(guest: i32) {
    let own = GUEST_UID as Word;
    let death = [
        libc::PR_SET_PDEATHSIG as Word,
        libc::SIGKILL as Word,
        0,
        0,
        0,
    ];
    // SAFETY: all arguments are integers. These ids are the ones this process has, so there is nothing to
    // refuse.
    let parent = unsafe {
        raw::syscall(libc::SYS_setresuid, [own, own, own, 0, 0]);
        // The kernel has forgotten this with the change of ids.
        raw::syscall(libc::SYS_prctl, death);
        raw::syscall(libc::SYS_getppid, [0; 5])
    };
    if parent != guest as isize {
        raw::exit(1);
    }
}

/// The warden's whole life.
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
        // The guest died before the line above could tie us to it.
        raw::exit(1);
    }
    // SAFETY: getpid(2) takes nothing.
    let own_pid = unsafe { raw::syscall(libc::SYS_getpid, [0; 5]) } as i32;
    slot.warden.store(own_pid, Ordering::Release);
    // The descriptor table is shared with the child as well, until it has its order.
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
        slot.failed_errno.store(-result as i32, Ordering::Relaxed);
        slot.failed_stage
            .store(Stage::Fork as u32, Ordering::Relaxed);
        slot.inside.store(LEFT, Ordering::Release);
        raw::wake(&slot.inside);
        raw::exit(0);
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
    loop {
        let (pid, status, usage) = wait(0);
        if pid == -(libc::ECHILD as isize) {
            raw::exit(0);
        }
        if pid != result || slot.failed_stage.load(Ordering::Acquire) != 0 {
            continue;
        }
        // The command has ended. Say in the same breath whether it left anything behind, so that
        // the usual case needs no second message.
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
        let is_empty = loop {
            let (pid, _, _) = wait(libc::WNOHANG);
            if pid == 0 {
                break false;
            }
            if pid == -(libc::ECHILD as isize) {
                break true;
            }
        };
        // SAFETY: nobody reads the cell before `ended` is set, and this is written once.
        unsafe {
            *slot.outcome.get() = RawOutcome {
                status,
                usage,
                ended,
            }
        };
        let word = if is_empty {
            ENDED_EMPTY
        } else {
            ENDED_OTHERS_LEFT
        };
        slot.ended.store(word, Ordering::Release);
        // SAFETY: write(2) reads four bytes of a live local.
        unsafe {
            let pid = own_pid.to_ne_bytes();
            raw::syscall(
                libc::SYS_write,
                [terms.bell as Word, pid.as_ptr() as Word, 4, 0, 0],
            );
        }
        if is_empty {
            raw::exit(0);
        }
    }
}
