//! Processes of this machine that may have to be ended, identified such that a reused process id is
//! never mistaken for the original process.

pub(crate) mod forced_end;
pub(crate) mod freeze;

use glovebox_jail::process::{Census, GuestMark, Member};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Process, identified by its id and start time. The pair is never used twice in one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRef {
    /// Process id.
    pub(crate) pid: u32,
    /// Start time in clock ticks since boot, field 22 of proc_pid_stat(5).
    pub(crate) start_ticks: u64,
}

impl ProcessRef {
    /// Returns a reference to the process that has this id now. `None` if there is none.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::of_member(&Member::read(raw(pid)?)?)
    }

    /// Returns a reference to a process of the census.
    pub(crate) fn of_member(member: &Member) -> Option<Self> {
        Some(Self {
            pid: u32::try_from(member.pid.as_raw_pid()).ok()?,
            start_ticks: member.start_ticks,
        })
    }

    /// Returns the id for system calls.
    pub(crate) fn raw_pid(self) -> Option<Pid> {
        raw(self.pid)
    }

    /// Returns the facts in `/proc` about the process. `None` if it has ended.
    pub(crate) fn member(self) -> Option<Member> {
        let member = Member::read(raw(self.pid)?)?;
        (member.start_ticks == self.start_ticks && member.is_alive).then_some(member)
    }

    /// Opens a pidfd of the process. `None` if it has ended, even if its parent has not reaped it
    /// yet.
    pub(crate) fn open(self) -> Option<OwnedFd> {
        let pidfd = open(self.pid)?;
        // The check comes after the open. If the id had been reused before, the start time differs;
        // if it is reused later, the pidfd still refers to the original process.
        let is_same = Member::read(raw(self.pid)?)?.start_ticks == self.start_ticks;
        (is_same && !has_ended(&pidfd)).then_some(pidfd)
    }
}

fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn has_ended(pidfd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

/// Opens a pidfd of the process that has this id now.
pub(crate) fn open(pid: u32) -> Option<OwnedFd> {
    pidfd_open(raw(pid)?, PidfdFlags::empty()).ok()
}

/// Sends a signal. Succeeds if the process is gone.
pub(crate) fn signal(pidfd: impl AsFd, signal: Signal) -> Result<(), Errno> {
    match pidfd_send_signal(pidfd, signal) {
        Err(Errno::SRCH) => Ok(()),
        other => other,
    }
}

/// Waits until the process has ended. Returns false after `wait`.
pub(crate) fn wait_gone(pidfd: impl AsFd, wait: Duration) -> bool {
    let deadline = Instant::now() + wait;
    loop {
        let Ok(left) = crate::link::until(Some(deadline)) else {
            return false;
        };
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Kills all descendants of a process and then the process itself.
///
/// The root is stopped first, so that it cannot start more processes. Its descendants are killed in
/// rounds until a round finds none. Processes that left the tree are not reached.
pub(crate) fn kill_tree(root: u32, pidfd: impl AsFd) {
    const ROUNDS: usize = 64;
    let _ = signal(&pidfd, Signal::STOP);
    for _ in 0..ROUNDS {
        let below = below(root);
        if below.is_empty() {
            break;
        }
        for kind in [Signal::STOP, Signal::KILL] {
            for member in &below {
                if let Some(pidfd) = ProcessRef::of_member(member).and_then(ProcessRef::open) {
                    let _ = signal(&pidfd, kind);
                }
            }
        }
    }
    let _ = signal(&pidfd, Signal::KILL);
}

/// Returns true if only command supervisors without a command live below a guest. Much cheaper than
/// a scan of all processes if the kernel keeps lists of children.
pub(crate) fn has_only_wardens(guest: u32) -> bool {
    /// More than a guest ever has without a command.
    const MAX_WARDENS: usize = 64;
    let Some(mark) = raw(guest).map(GuestMark::of) else {
        return false;
    };
    let mut found = vec![guest];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        let Some(children) = tasks(pid).children else {
            return below(guest).iter().all(|member| member.is_of_guest(mark));
        };
        for child in children {
            match raw(child).and_then(Member::read) {
                Some(member) if member.is_alive => {
                    if !member.is_of_guest(mark) || found.len() > MAX_WARDENS {
                        return false;
                    }
                    found.push(child);
                }
                _ => {}
            }
        }
    }
    true
}

/// Content of `/proc/PID/task`. Empty for a process that is gone.
pub(crate) struct Tasks {
    /// Ids of its threads.
    pub(crate) threads: Vec<u32>,
    /// Ids of its children, including dead ones. `None` if the kernel keeps no lists of children.
    pub(crate) children: Option<Vec<u32>>,
}

/// Returns the threads and children of a process.
pub(crate) fn tasks(pid: u32) -> Tasks {
    let (mut threads, mut children) = (Vec::new(), Some(Vec::new()));
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    for thread in entries.into_iter().flatten().flatten() {
        threads.extend(
            thread
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok()),
        );
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                let pids = list.split_ascii_whitespace();
                if let Some(children) = &mut children {
                    children.extend(pids.filter_map(|pid| pid.parse::<u32>().ok()));
                }
            }
            Err(_) if thread.path().exists() => children = None,
            // The thread has ended meanwhile.
            Err(_) => {}
        }
    }
    Tasks { threads, children }
}

/// Returns the live descendants of `root`, parents before their children, without zombies.
pub(crate) fn below(root: u32) -> Vec<Member> {
    // Without a usable `/proc` no process is known.
    let Some((root, census)) = raw(root).zip(Census::take().ok()) else {
        return Vec::new();
    };
    let mut below = census.descendants_of(root);
    below.retain(|member| member.is_alive);
    below
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_reference_means_one_process_only() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let reference = ProcessRef::of(child.id()).unwrap();
        assert!(reference.open().is_some());
        let other = ProcessRef {
            start_ticks: reference.start_ticks + 1,
            ..reference
        };
        assert!(other.open().is_none());
        let pidfd = reference.open().unwrap();
        signal(&pidfd, Signal::KILL).unwrap();
        assert!(wait_gone(&pidfd, Duration::from_secs(5)));
        child.wait().unwrap();
        assert!(reference.open().is_none());
        signal(&pidfd, Signal::KILL).unwrap();
    }

    #[test]
    fn a_tree_is_killed_whole() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 61 & sh -c 'sleep 62 & wait' & wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while below(child.id()).len() < 3 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let below = below(child.id());
        assert_eq!(below.len(), 3);
        kill_tree(child.id(), open(child.id()).unwrap());
        child.wait().unwrap();
        for member in below {
            // A killed process is gone only when its last thread is.
            let survivor = || ProcessRef::of_member(&member).and_then(ProcessRef::member);
            while survivor().is_some() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(survivor(), None);
        }
    }
}
