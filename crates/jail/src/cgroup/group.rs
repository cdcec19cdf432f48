//! Group of one sandbox, in all of its hierarchies: created, filled, read, frozen, killed and
//! removed together.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::freezer::GroupFreezer;
use super::hierarchy::{self, Hierarchy, Version};
use super::keyed_count::KeyedCount;
use super::{Controller, Controllers, Error, LimitState, LimitStates, Limits, PARENT, check_name};

/// Directory of a group: the index of the hierarchy, and the descriptor of the group's directory in
/// it.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) index: usize,
    pub(super) fd: OwnedFd,
}

/// The control group of one sandbox, in every hierarchy that serves it.
///
/// Dropping it does not remove it: [`Cgroup::remove`] does, once its processes are gone.
#[derive(Debug)]
pub struct Cgroup {
    controllers: Controllers,
    name: String,
    dirs: Vec<Dir>,
    applied: LimitStates,
    memory_events: KeyedCount,
    pids_events: KeyedCount,
    cpu_stat: KeyedCount,
}

impl Cgroup {
    /// Creates the value for a group that has `dirs` already. The states of its limits are unknown.
    pub(super) fn of(controllers: &Controllers, name: &str, dirs: Vec<Dir>) -> Self {
        Self {
            controllers: controllers.clone(),
            name: name.to_owned(),
            dirs,
            applied: LimitStates::default(),
            memory_events: KeyedCount::default(),
            pids_events: KeyedCount::default(),
            cpu_stat: KeyedCount::default(),
        }
    }

    /// Creates the group `name` with `limits`.
    ///
    /// A limit that cannot be set is not an error but a state ([`Cgroup::applied`]), so that the
    /// caller decides. Fails on an invalid or existing name, and then leaves no directory behind.
    pub fn create(controllers: &Controllers, name: &str, limits: &Limits) -> Result<Self, Error> {
        check_name(name)?;
        if let Some(cpus) = limits.cpus
            && !(cpus.is_finite() && cpus > 0.0)
        {
            return Err(Error::Cpus(cpus));
        }
        let mut group = Self::of(controllers, name, Vec::new());
        let mut refusals = Vec::new();
        for (index, hierarchy) in controllers.shared.hierarchies.iter().enumerate() {
            if !limits.need(hierarchy) {
                continue;
            }
            match hierarchy.create_child(name) {
                Ok(fd) => group.dirs.push(Dir { index, fd }),
                Err(Errno::EXIST) => {
                    group.unmake();
                    return Err(Error::Exists(name.to_owned()));
                }
                Err(errno) => refusals.push((index, errno)),
            }
        }
        let state = |controller: Controller, asked: bool| {
            if !asked {
                return LimitState::Unlimited;
            }
            let Some(index) = controllers.serving(controller) else {
                let why = controllers.why_absent(controller).unwrap_or_default();
                return LimitState::Absent(why.to_owned());
            };
            let hierarchy = &controllers.shared.hierarchies[index];
            if let Some((_, errno)) = refusals.iter().find(|(i, _)| *i == index) {
                return LimitState::Absent(format!(
                    "cannot make a directory in {}: {}",
                    hierarchy.path.display(),
                    io::Error::from(*errno)
                ));
            }
            let Some(dir) = group.dirs.iter().find(|dir| dir.index == index) else {
                return LimitState::Absent("the group has no directory for it".to_owned());
            };
            match hierarchy.set_limit(dir.fd.as_fd(), controller, limits) {
                Ok(()) => LimitState::Enforced,
                Err((file, errno)) => LimitState::Absent(format!(
                    "cannot write {file} in {}: {}",
                    hierarchy.path.display(),
                    io::Error::from(errno)
                )),
            }
        };
        group.applied = LimitStates {
            memory: state(Controller::Memory, limits.memory_bytes.is_some()),
            cpu: state(Controller::Cpu, limits.cpus.is_some()),
            pids: state(Controller::Pids, limits.pids.is_some()),
        };
        Ok(group)
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the state of each limit.
    pub fn applied(&self) -> &LimitStates {
        &self.applied
    }

    /// Returns the directory in the version 2 hierarchy, in which a process can be created; see
    /// [`crate::launch::Stage0::place`]. `None` if the group is not in that hierarchy.
    pub fn unified_dir(&self) -> Option<BorrowedFd<'_>> {
        let dir = self
            .dirs
            .iter()
            .find(|d| self.hierarchy(d).version.number() == 2)?;
        Some(dir.fd.as_fd())
    }

    /// Returns the freezer of this group. `None` unless the group is in the version 2 hierarchy.
    pub fn freezer_of_version_2(&self) -> Option<GroupFreezer> {
        let dir = self.unified_dir()?.try_clone_to_owned().ok()?;
        Some(GroupFreezer::new(dir))
    }

    /// Opens the files through which a process with a single thread joins the version 1 parts of
    /// the group: it writes `0` to each.
    ///
    /// Moving another process takes milliseconds: it takes a lock that every fork and exit on the
    /// machine shares, and waits for a grace period of the kernel. A thread that moves itself
    /// through `tasks` takes no lock.
    pub fn entrances(&self) -> Result<Vec<OwnedFd>, Error> {
        self.dirs
            .iter()
            .filter(|dir| self.hierarchy(dir).version == Version::V1)
            .map(|dir| {
                hierarchy::open_for_writing(dir.fd.as_fd(), "tasks")
                    .map_err(|errno| self.refused("opening `tasks`", self.hierarchy(dir), errno))
            })
            .collect()
    }

    /// Moves a process into the version 2 part of the group, if there is one.
    pub fn attach_unified(&self, pid: Pid) -> Result<(), Error> {
        let Some(dir) = self
            .dirs
            .iter()
            .find(|dir| self.hierarchy(dir).version == Version::V2)
        else {
            return Ok(());
        };
        let text = pid.as_raw_nonzero().to_string();
        hierarchy::write_file(dir.fd.as_fd(), "cgroup.procs", &text)
            .map_err(|errno| self.refused("adding a process", self.hierarchy(dir), errno))
    }

    /// Moves the process `pid` with all of its threads into the group. Its later children are in
    /// the group as well.
    ///
    /// Version 1 refuses real-time tasks in its `cpu` hierarchy. Then only that limit is given up,
    /// and [`Cgroup::applied`] says so.
    pub fn attach(&mut self, pid: Pid) -> Result<(), Error> {
        let text = pid.as_raw_nonzero().to_string();
        let mut cpu_refused = None;
        for dir in &self.dirs {
            let hierarchy = self.hierarchy(dir);
            match hierarchy::write_file(dir.fd.as_fd(), "cgroup.procs", &text) {
                Ok(()) => {}
                Err(Errno::INVAL)
                    if hierarchy.serves.contains(&Controller::Cpu)
                        && !hierarchy.serves.contains(&Controller::Memory) =>
                {
                    cpu_refused = Some(hierarchy.path.clone());
                }
                Err(errno) => {
                    return Err(Error::Refused {
                        step: "adding a process",
                        path: hierarchy.path.join(PARENT).join(&self.name),
                        source: errno.into(),
                    });
                }
            }
        }
        if let Some(path) = cpu_refused
            && self.applied.cpu == LimitState::Enforced
        {
            self.applied.cpu = LimitState::Absent(format!(
                "{} refused the process; version 1 takes no real-time tasks, so start with normal scheduling",
                path.display()
            ));
        }
        Ok(())
    }

    /// Returns the number of processes that the kernel killed because the memory limit was reached.
    pub fn oom_kills(&self) -> u64 {
        self.read(Controller::Memory, |hierarchy, dir| {
            let events = hierarchy.memory_events();
            self.memory_events.read(dir, events, "oom_kill")
        })
        .unwrap_or(0)
    }

    /// Returns the bytes that are charged now. `None` if no controller counts them.
    pub fn memory_current(&self) -> Option<u64> {
        self.read(Controller::Memory, Hierarchy::memory_current)
    }

    /// Returns the maximum of charged bytes so far. `None` if the kernel does not record it
    /// (version 2 before Linux 5.19).
    pub fn memory_peak(&self) -> Option<u64> {
        self.read(Controller::Memory, Hierarchy::memory_peak)
    }

    /// Returns the current number of processes and threads. `None` if no controller counts them.
    pub fn pids_current(&self) -> Option<u64> {
        self.read(Controller::Pids, |_, dir| {
            hierarchy::read_number(dir, "pids.current")
        })
    }

    /// Returns the number of forks that were refused because of the limit.
    pub fn forks_refused(&self) -> u64 {
        self.read(Controller::Pids, |_, dir| {
            self.pids_events.read(dir, "pids.events", "max")
        })
        .unwrap_or(0)
    }

    /// Returns the processor time of all its processes so far, in microseconds. `None` without a
    /// version 2 group.
    ///
    /// Version 2 counts in every group, with any controllers (cgroup-v2.rst, `cpu.stat`). The
    /// time that a process has used since the last tick of its processor may be missing.
    pub fn cpu_us(&self) -> Option<u64> {
        self.cpu_stat
            .read(self.unified_dir()?, "cpu.stat", "usage_usec")
    }

    /// Freezes every process in the group. Blocks until all of them are frozen. After a timeout the
    /// kernel may still freeze them, until [`Cgroup::thaw`].
    pub fn freeze(&self, timeout: Duration) -> Result<(), Error> {
        let (hierarchy, dir) = self.freezer()?;
        let begun = Instant::now();
        loop {
            // Version 1 needs the write again while tasks are still being frozen.
            hierarchy
                .set_frozen(dir, true)
                .map_err(|errno| self.refused("freezing", hierarchy, errno))?;
            if hierarchy.is_frozen(dir) {
                return Ok(());
            }
            if begun.elapsed() >= timeout {
                return Err(self.timeout("freeze", timeout));
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Lets the processes of the group run again.
    pub fn thaw(&self) -> Result<(), Error> {
        let (hierarchy, dir) = self.freezer()?;
        hierarchy
            .set_frozen(dir, false)
            .map_err(|errno| self.refused("thawing", hierarchy, errno))
    }

    /// Kills every process in the group, forks in progress included. Does not wait for their end.
    ///
    /// With `cgroup.kill` this is one write. Without it the group is frozen, each process is sent
    /// SIGKILL, and the group is thawed; without a freezer the list is read again until it stays
    /// empty.
    pub fn kill_all(&self) -> Result<(), Error> {
        if let Some(dir) = self.unified_dir()
            && hierarchy::write_file(dir, "cgroup.kill", "1").is_ok()
        {
            return Ok(());
        }
        const ROUNDS: u32 = 50;
        for _ in 0..ROUNDS {
            // A group that does not freeze in time is killed all the same; the next round finds
            // processes that were forked meanwhile.
            let frozen = self.freeze(Duration::from_millis(100)).is_ok();
            let pids = self.processes();
            for pid in &pids {
                // ESRCH: it ended by itself.
                let _ = kill_process(*pid, Signal::KILL);
            }
            if frozen || self.freezer().is_ok() {
                self.thaw()?;
            }
            if pids.is_empty() || frozen {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(self.timeout(
            "empty itself of processes that keep forking",
            Duration::from_millis(u64::from(ROUNDS)),
        ))
    }

    /// Returns the processes in the group, as seen from our pid namespace.
    pub fn processes(&self) -> Vec<Pid> {
        let dir = self.freezer().ok().map(|(_, dir)| dir);
        let dir = dir.or_else(|| self.dirs.first().map(|d| d.fd.as_fd()));
        let Some(text) = dir.and_then(|dir| hierarchy::read_file(dir, "cgroup.procs").ok()) else {
            return Vec::new();
        };
        // A 0 stands for a process of a pid namespace that is not visible here.
        text.lines()
            .filter_map(|line| Pid::from_raw(line.parse().ok()?))
            .collect()
    }

    /// Removes the group from every hierarchy. Blocks up to `timeout` until its last processes have
    /// been reaped.
    ///
    /// After a failure it can be called again; directories that were removed stay removed.
    pub fn remove(&mut self, timeout: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        let mut pause = Duration::from_micros(100);
        let shared = Arc::clone(&self.controllers.shared);
        loop {
            let mut failure = None;
            let name = self.name.as_str();
            self.dirs.retain(
                |dir| match shared.hierarchies[dir.index].remove_child(name) {
                    Ok(()) | Err(Errno::NOENT) => false,
                    Err(errno) => {
                        failure = Some((dir.index, errno));
                        true
                    }
                },
            );
            // EBUSY: a zombie counts as a member until its parent has reaped it.
            match failure {
                None => return Ok(()),
                Some((index, errno)) if errno != Errno::BUSY => {
                    return Err(self.refused("removing", &shared.hierarchies[index], errno));
                }
                Some(_) if begun.elapsed() >= timeout => {
                    return Err(self.timeout("become empty", timeout));
                }
                Some(_) => {}
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Removes a partly created group.
    fn unmake(&mut self) {
        for dir in self.dirs.drain(..) {
            // It holds no process yet, so this cannot be busy. The next sweep finds a directory
            // that remains.
            let _ = self.controllers.shared.hierarchies[dir.index].remove_child(&self.name);
        }
    }

    fn hierarchy(&self, dir: &Dir) -> &Hierarchy {
        &self.controllers.shared.hierarchies[dir.index]
    }

    fn read<T>(
        &self,
        controller: Controller,
        ask: impl Fn(&Hierarchy, BorrowedFd<'_>) -> Option<T>,
    ) -> Option<T> {
        let index = self.controllers.serving(controller)?;
        let dir = self.dirs.iter().find(|dir| dir.index == index)?;
        ask(self.hierarchy(dir), dir.fd.as_fd())
    }

    fn freezer(&self) -> Result<(&Hierarchy, BorrowedFd<'_>), Error> {
        let found = self
            .controllers
            .serving(Controller::Freezer)
            .and_then(|index| {
                let dir = self.dirs.iter().find(|dir| dir.index == index)?;
                Some((self.hierarchy(dir), dir.fd.as_fd()))
            });
        found.ok_or_else(|| Error::Refused {
            step: "freezing",
            path: PathBuf::from(&self.name),
            source: io::Error::from(io::ErrorKind::Unsupported),
        })
    }

    fn refused(&self, step: &'static str, hierarchy: &Hierarchy, errno: Errno) -> Error {
        Error::Refused {
            step,
            path: hierarchy.path.join(PARENT).join(&self.name),
            source: errno.into(),
        }
    }

    fn timeout(&self, what: &'static str, waited: Duration) -> Error {
        Error::Timeout {
            name: self.name.clone(),
            what,
            waited_ms: waited.as_millis() as u64,
        }
    }
}
