//! Holding every process of a group still by the kernel's own freezer, version 2 (`cgroup.freeze`).
//!
//! Nothing inside can undo it, and a frozen process can still be killed. Version 1 has a freezer as well, but
//! a process that it holds does not die before it is thawed: one whose owner is killed would stay for ever.

use super::hierarchy::{read_file, read_keyed, write_file};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;
use std::thread;
use std::time::{Duration, Instant};

/// How often the kernel is asked whether all of them stand still.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// The freezer of one group. It does not keep the group from being removed.
#[derive(Debug)]
pub struct GroupFreezer {
    dir: OwnedFd,
}

impl GroupFreezer {
    /// Precondition: `dir` is the directory of a group in the version 2 hierarchy.
    pub(super) const fn new(dir: OwnedFd) -> Self {
        Self { dir }
    }

    /// Stops every process in the group and waits until all of them stand still.
    ///
    /// # Errors
    /// ETIMEDOUT when that took longer than `wait`; the group runs on then.
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

    /// Whether every process in the group stands still.
    pub fn is_frozen(&self) -> bool {
        read_keyed(self.dir.as_fd(), "cgroup.events", "frozen") == Some(1)
    }

    /// Whether the process is in the group, so that holding the group holds it and all it has started.
    pub fn contains(&self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero().to_string();
        read_file(self.dir.as_fd(), "cgroup.procs")
            .is_ok_and(|list| list.lines().any(|line| line == pid))
    }

    /// Lets them run again.
    pub fn thaw(&self) -> Result<(), Errno> {
        write_file(self.dir.as_fd(), "cgroup.freeze", "0")
    }
}
