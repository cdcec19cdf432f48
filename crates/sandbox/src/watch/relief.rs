//! Relief of memory pressure in a sandbox without a memory controller: ends the command that uses
//! most memory, with all processes it started. Other commands and the sandbox continue.
//!
//! A command is the set of processes below one command supervisor (warden), however they were
//! forked. The supervisor itself is not ended, because it reports the end of the command to the
//! guest.

use super::census::Process;
use super::memory;
use crate::process::{self, ProcessRef};
use glovebox_jail::process::{GuestMark, Member};
use rustix::process::{Pid, Signal};
use std::time::{Duration, Instant};

/// Maximum number of searches for processes that were started while others were ended.
const ROUNDS: usize = 64;
/// Maximum time for the kernel to release their memory.
const END_WAIT: Duration = Duration::from_secs(2);

/// Command with all processes it started.
#[derive(Debug)]
pub(super) struct Command {
    warden: u32,
    /// Mark of the guest that the command supervisor belongs to.
    mark: GuestMark,
    resident_bytes: u64,
}

/// Returns the command that uses most memory in the sandbox with the first process `init`.
pub(super) fn largest_command(init: i32) -> Option<Command> {
    let mark = GuestMark::of(Pid::from_raw(init)?);
    let children = process::tasks(u32::try_from(init).ok()?).children;
    let wardens = match children {
        Some(children) => children,
        // This kernel keeps no lists of children.
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
    /// Ends the command and waits briefly until its memory is released.
    pub(super) fn end(&self) {
        let deadline = Instant::now() + END_WAIT;
        let mut ended = Vec::new();
        for _ in 0..ROUNDS {
            let members = commands_below(self.warden, self.mark);
            if members.is_empty() {
                break;
            }
            // Stopped first, so that none of them starts more meanwhile. The command itself is
            // killed at once: its parent sees its stops and would stop as well.
            for signal in [Signal::STOP, Signal::KILL] {
                for member in &members {
                    let is_command = u32::try_from(member.parent.map_or(0, Pid::as_raw_pid))
                        .is_ok_and(|parent| parent == self.warden);
                    let signal = if is_command { Signal::KILL } else { signal };
                    // The handle refers to the process that was found, or the process is skipped.
                    if let Some(handle) = ProcessRef::of_member(member).and_then(ProcessRef::open) {
                        // Fails if the process is gone, which is the aim.
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

/// Returns the processes below a command supervisor that are not the guest's own.
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
