//! Freezing of all processes of a group by the kernel's freezer of version 2 (`cgroup.freeze`).
//!
//! No process inside can undo it, and a frozen process can still be killed. The freezer of version
//! 1 is not used: a process frozen by it does not die before it is thawed, so it would stay for
//! ever if its owner were killed.

use super::hierarchy::{read_file, read_keyed, write_file};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the kernel is asked whether all processes are frozen.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// The freezer of one group. It does not keep the group from being removed.
#[derive(Debug)]
pub struct GroupFreezer {
    dir: OwnedFd,
}

impl GroupFreezer {
    /// Creates the freezer. Precondition: `dir` is the directory of a group in the version 2
    /// hierarchy.
    pub(super) const fn new(dir: OwnedFd) -> Self {
        Self { dir }
    }

    /// Freezes every process in the group. Blocks until all of them are frozen.
    ///
    /// # Errors
    /// ETIMEDOUT if that took longer than `wait`; the group is thawed again.
    pub fn freeze(&self, wait: Duration) -> Result<(), Errno> {
        write_file(self.dir.as_fd(), "cgroup.freeze", "1")?;
        let deadline = Instant::now() + wait;
        while !self.is_frozen() {
            if Instant::now() >= deadline {
                self.thaw()?;
                return Err(Errno::TIMEDOUT);
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Returns true if every process in the group is frozen.
    pub fn is_frozen(&self) -> bool {
        read_keyed(self.dir.as_fd(), "cgroup.events", "frozen") == Some(1)
    }

    /// Returns true if the process is in the group, so that freezing the group freezes it and all
    /// its descendants.
    pub fn contains(&self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero().to_string();
        read_file(self.dir.as_fd(), "cgroup.procs")
            .is_ok_and(|list| list.lines().any(|line| line == pid))
    }

    /// Lets the processes run again.
    pub fn thaw(&self) -> Result<(), Errno> {
        write_file(self.dir.as_fd(), "cgroup.freeze", "0")
    }
}
