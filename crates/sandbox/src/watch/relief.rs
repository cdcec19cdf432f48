//! Making room when a sandbox without a memory controller uses too much memory: the command that holds most of it
//! is ended, with all it started. The others and the sandbox go on.
//!
//! A command and its descendants are what lives below one warden, however they forked. The warden itself is left
//! alone: it tells the guest how the command ended.

use super::census::Process;
use super::memory;
use crate::process::{self, ProcessRef};
use glovebox_jail::process::{GuestMark, Member};
use rustix::process::{Pid, Signal};
use std::time::{Duration, Instant};

/// How often processes are looked for that were started while others were ended.
const ROUNDS: usize = 64;
/// How long the kernel may take to give their memory back.
const END_WAIT: Duration = Duration::from_secs(2);

/// A command with all it started.
#[derive(Debug)]
pub(super) struct Command {
    warden: u32,
    /// Of the guest that the warden belongs to.
    mark: GuestMark,
    resident_bytes: u64,
}

/// The command of the sandbox with the first process `init` whose processes hold most memory.
pub(super) fn largest_command(init: i32) -> Option<Command> {
    let mark = GuestMark::of(Pid::from_raw(init)?);
    let children = process::tasks(u32::try_from(init).ok()?).children;
    let wardens = match children {
        Some(children) => children,
        // A kernel that keeps no lists of children.
        None => process::below(u32::try_from(init).ok()?)
            .iter()
            .filter(|member| {
                member
                    .parent
                    .is_some_and(|parent| parent.as_raw_pid() == init)
            })
            .filter_map(|member| u32::try_from(member.pid.as_raw_pid()).ok())
            .collect(),
    };
    wardens
        .into_iter()
        .filter(|warden| read(*warden).is_some_and(|member| member.is_of_guest(mark)))
        .filter_map(|warden| {
            let members = commands_below(warden, mark);
            let processes: Vec<Process> = members.iter().filter_map(as_process).collect();
            (!members.is_empty()).then(|| Command {
                warden,
                mark,
                resident_bytes: memory::resident_bytes(&processes),
            })
        })
        .max_by_key(|command| command.resident_bytes)
}

impl Command {
    /// Ends it, and waits a moment for its memory.
    pub(super) fn end(&self) {
        let deadline = Instant::now() + END_WAIT;
        let mut ended = Vec::new();
        for _ in 0..ROUNDS {
            let members = commands_below(self.warden, self.mark);
            if members.is_empty() {
                break;
            }
            // Stopped first, so that none of them starts more meanwhile. But the command itself is killed at once: its
            // caller hears of its stops, and would stop with it.
            for signal in [Signal::STOP, Signal::KILL] {
                for member in &members {
                    let is_command = u32::try_from(member.parent.map_or(0, Pid::as_raw_pid))
                        .is_ok_and(|parent| parent == self.warden);
                    let signal = if is_command { Signal::KILL } else { signal };
                    // The handle means the process that was found, or it is left alone.
                    if let Some(handle) = ProcessRef::of_member(member).and_then(ProcessRef::open) {
                        // One that is gone already is what is wanted.
                        let _ = process::signal(&handle, signal);
                        if signal == Signal::KILL {
                            ended.push(handle);
                        }
                    }
                }
            }
            if let Some(last) = ended.last() {
                process::wait_gone(last, Duration::from_millis(5));
            }
        }
        for handle in &ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if !process::wait_gone(handle, left) {
                break;
            }
        }
    }
}

fn read(pid: u32) -> Option<Member> {
    Member::read(Pid::from_raw(i32::try_from(pid).ok()?)?)
}

/// What lives below a warden and is not the guest's own.
fn commands_below(warden: u32, mark: GuestMark) -> Vec<Member> {
    let mut members = process::below(warden);
    members.retain(|member| !member.is_of_guest(mark));
    members
}

fn as_process(member: &Member) -> Option<Process> {
    let pid = member.pid.as_raw_pid();
    let threads = process::tasks(u32::try_from(pid).ok()?).threads;
    Some(Process {
        pid,
        threads: threads
            .into_iter()
            .filter_map(|thread| i32::try_from(thread).ok())
            .collect(),
    })
}
