//! Freezing of all processes in a sandbox while its files are read or its layers changed.
//!
//! If the sandbox has a control group of version 2, the kernel's freezer is used. Otherwise every
//! process is stopped by a signal, the guest first, because the guest would wake its command
//! supervisors, start commands and write files for clients, whose requests now wait. A process can
//! have itself continued, so the caller verifies afterwards that none ran. Either way the sandbox
//! can still be ended, and nothing is spent before the first freeze. Signals are not invisible: a
//! process can learn that it was stopped.
//!
//! Parents are stopped before their children and continued after them, so that no shell sees a
//! stopped child. A process that was stopped before stays stopped.

use crate::process::{self, ProcessRef, below};
use crate::{Backend, fault};
use glovebox_jail::cgroup::GroupFreezer;
use glovebox_jail::process::Member;
use glovebox_proto::{Code, Fault};
use rustix::process::{Pid, Signal};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time to stop all processes.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// Maximum time that a change of the layers waits for those that hold the sandbox frozen.
const FREE_WAIT: Duration = Duration::from_secs(30);
/// Interval of checks: the kernel stops a process some time after the signal.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// Frozen processes; dropping this continues them.
#[derive(Debug)]
#[must_use = "they go on when this is dropped"]
pub(crate) struct FrozenProcesses {
    /// Handles of the stopped processes, parents before their children. Empty if `group` is set.
    held: Vec<OwnedFd>,
    init: ProcessRef,
    /// Freezer of the control group, if it froze the processes.
    group: Option<Arc<GroupFreezer>>,
    /// Context switches of each process when all had stopped, by process id and start time.
    switches: HashMap<(Pid, u64), u64>,
}

impl FrozenProcesses {
    fn everything(init: ProcessRef, group: Option<&Arc<GroupFreezer>>) -> Result<Self, Fault> {
        let mut stopped = Self {
            held: Vec::new(),
            init,
            group: None,
            switches: HashMap::new(),
        };
        let group = group.filter(|group| init.raw_pid().is_some_and(|pid| group.contains(pid)));
        if let Some(group) = group
            && group.freeze(STOP_WAIT).is_ok()
        {
            stopped.group = Some(Arc::clone(group));
            return Ok(stopped);
        }
        let deadline = Instant::now() + STOP_WAIT;
        let mut seen = HashSet::new();
        loop {
            let living = everything(init);
            let mut is_still = true;
            for member in &living {
                if member.is_stopped {
                    seen.insert((member.pid, member.start_ticks));
                    continue;
                }
                // After vfork(2) a parent sleeps uninterruptibly in the kernel until its child
                // calls execve(2). While that child is stopped the parent cannot run, and its own
                // signal is pending.
                let waits = member.is_uninterruptible
                    && living
                        .iter()
                        .any(|child| child.parent == Some(member.pid) && child.is_stopped);
                let is_new = seen.insert((member.pid, member.start_ticks));
                is_still &= waits && !is_new;
                if waits && !is_new {
                    continue;
                }
                // The handle refers to the process that was found, or nothing is signalled. A
                // process seen before is signalled again, because its tracer may have suppressed
                // the first signal.
                if let Some(handle) = ProcessRef::of_member(member).and_then(ProcessRef::open)
                    && process::signal(&handle, Signal::STOP).is_ok()
                    && is_new
                {
                    stopped.held.push(handle);
                }
            }
            if is_still {
                let note = |member: &Member| {
                    let switches = member.switches()?;
                    Some(((member.pid, member.start_ticks), switches))
                };
                let switches = living.iter().filter_map(note).collect();
                let before = std::mem::replace(&mut stopped.switches, switches);
                // A tracer that was stopped during this pass may before have continued a process
                // that the pass had already seen stopped. Two passes with equal counts of context
                // switches exclude that.
                let is_traced = living.iter().any(|member| member.is_held_by_tracer);
                if !is_traced || before == stopped.switches {
                    return Ok(stopped);
                }
            }
            if Instant::now() >= deadline {
                let running = living.iter().find(|member| !member.is_stopped);
                return Err(not_still(running.map(|member| member.pid)));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Checks that nothing has run since the processes were frozen. A process can have itself
    /// continued, for example by a timer, and be stopped again unnoticed.
    ///
    /// # Errors
    /// `busy` if a process has run.
    pub(crate) fn verify(&self) -> Result<(), Fault> {
        if let Some(group) = &self.group {
            return if group.is_frozen() {
                Ok(())
            } else {
                Err(not_still(None))
            };
        }
        let has_moved = |member: &Member| {
            let before = self.switches.get(&(member.pid, member.start_ticks));
            before.is_none() || before != member.switches().as_ref()
        };
        let moved: Vec<Member> = everything(self.init)
            .into_iter()
            .filter(has_moved)
            .collect();
        // A process that has ended since has not changed anything.
        match moved.iter().find(|member| member.switches().is_some()) {
            None => Ok(()),
            Some(member) => Err(not_still(Some(member.pid))),
        }
    }
}

/// Returns the first process of a sandbox and all its descendants, parents before their children.
fn everything(init: ProcessRef) -> Vec<Member> {
    let mut all: Vec<Member> = init.member().into_iter().collect();
    all.extend(below(init.pid));
    all
}

fn not_still(pid: Option<Pid>) -> Fault {
    let which = pid.map_or(String::new(), |pid| {
        format!(
            ": process {} goes on although it was stopped",
            pid.as_raw_pid()
        )
    });
    let message = format!("the processes in the sandbox could not be held still{which}");
    Fault::failed(Code::Busy, message)
        .remedy("end what runs in it (`glovebox list`, `glovebox logs`), then try again")
        .retryable()
}

impl Drop for FrozenProcesses {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            // Fails if the group was removed, which leaves nothing to continue.
            let _ = group.thaw();
        }
        for handle in self.held.iter().rev() {
            // Fails if the process has died meanwhile.
            let _ = process::signal(handle, Signal::CONT);
        }
    }
}

#[derive(Debug, Default)]
struct FreezeState {
    init: Option<ProcessRef>,
    group: Option<Arc<GroupFreezer>>,
    stopped: Option<FrozenProcesses>,
    holders: u32,
    is_changing: bool,
}

/// Coordinator of freezes of one sandbox. The first holder freezes it, the last one continues it. A
/// change of its layers excludes all holders.
#[derive(Debug, Default)]
pub(crate) struct Freezer {
    gate: Mutex<FreezeState>,
    is_free: Condvar,
}

impl Freezer {
    /// Creates the freezer of a sandbox with this first process and control group.
    pub(crate) fn new(init: Option<ProcessRef>, group: Option<GroupFreezer>) -> Arc<Self> {
        let freezer = Self::default();
        freezer.set_init(init, group);
        Arc::new(freezer)
    }

    /// Sets the first process and control group after the guest was restarted.
    pub(crate) fn set_init(&self, init: Option<ProcessRef>, group: Option<GroupFreezer>) {
        let mut gate = self.gate();
        gate.init = init;
        gate.group = group.map(Arc::new);
    }

    fn gate(&self) -> MutexGuard<'_, FreezeState> {
        // No critical section leaves the state half changed.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(
        &self,
        wait: Duration,
        condition: impl Fn(&FreezeState) -> bool,
    ) -> Result<MutexGuard<'_, FreezeState>, Fault> {
        let (gate, timeout) = self
            .is_free
            .wait_timeout_while(self.gate(), wait, |gate| condition(gate))
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(Fault::failed(
                Code::Busy,
                "another command holds the sandbox's files, for collecting or changing them",
            )
            .remedy("try again when it has ended")
            .retryable());
        }
        Ok(gate)
    }

    /// Freezes the sandbox until the result is dropped. Waits for a change of the layers to end;
    /// fails with `busy` after [`FREE_WAIT`].
    pub(crate) fn freeze(self: &Arc<Self>) -> Result<FreezeGuard, Fault> {
        let mut gate = self.wait_while(FREE_WAIT, |gate| gate.is_changing)?;
        if gate.stopped.is_none() {
            let init = gate.init.ok_or_else(|| unsupported("this backend"))?;
            gate.stopped = Some(FrozenProcesses::everything(init, gate.group.as_ref())?);
        }
        gate.holders += 1;
        Ok(FreezeGuard {
            freezer: Arc::clone(self),
        })
    }

    /// Excludes all freezes and other changes of the layers until the result is dropped. Fails with
    /// `busy` after [`FREE_WAIT`].
    pub(crate) fn change(self: &Arc<Self>) -> Result<LayerChangeGuard, Fault> {
        let mut gate = self.wait_while(FREE_WAIT, |gate| gate.is_changing || gate.holders > 0)?;
        gate.is_changing = true;
        Ok(LayerChangeGuard {
            freezer: Arc::clone(self),
        })
    }
}

/// Share in a freeze of the sandbox.
#[derive(Debug)]
pub(crate) struct FreezeGuard {
    freezer: Arc<Freezer>,
}

impl FreezeGuard {
    /// Checks that nothing has run since the freeze; see [`FrozenProcesses::verify`].
    pub(crate) fn verify(&self) -> Result<(), Fault> {
        self.freezer
            .gate()
            .stopped
            .as_ref()
            .map_or(Ok(()), FrozenProcesses::verify)
    }
}

impl Drop for FreezeGuard {
    fn drop(&mut self) {
        let mut gate = self.freezer.gate();
        gate.holders -= 1;
        if gate.holders == 0 {
            gate.stopped = None;
        }
        drop(gate);
        self.freezer.is_free.notify_all();
    }
}

/// Exclusive right to change the layers.
#[derive(Debug)]
pub(crate) struct LayerChangeGuard {
    freezer: Arc<Freezer>,
}

impl LayerChangeGuard {
    /// Freezes the sandbox until the result is dropped.
    pub(crate) fn freeze(&self) -> Result<FrozenProcesses, Fault> {
        let (init, group) = {
            let gate = self.freezer.gate();
            (gate.init, gate.group.clone())
        };
        let init = init.ok_or_else(|| unsupported("this backend"))?;
        FrozenProcesses::everything(init, group.as_ref())
    }
}

impl Drop for LayerChangeGuard {
    fn drop(&mut self) {
        self.freezer.gate().is_changing = false;
        self.freezer.is_free.notify_all();
    }
}

fn unsupported(what: &str) -> Fault {
    Fault::failed(
        Code::Unsupported,
        format!("{what} cannot hold the processes of a sandbox still"),
    )
    .remedy(format!("use the backend `{}`", Backend::NATIVE))
}

/// Returns true if only the guest and its command supervisors that wait for the next command live
/// in the sandbox.
pub(crate) fn is_idle(init: ProcessRef) -> Result<bool, Fault> {
    if init.open().is_none() {
        return Err(fault::internal("the first process of the sandbox is gone"));
    }
    Ok(process::has_only_wardens(init.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn count(init: u32) -> usize {
        below(init)
            .iter()
            .filter(|member| member.is_stopped)
            .count()
    }

    #[test]
    fn everything_below_is_held_and_let_go_and_what_was_stopped_stays_so() {
        let mut shell = Command::new("sh")
            .args([
                "-c",
                "sleep 63 & kill -STOP $!; sleep 64 & sh -c 'sleep 65; true' & wait",
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let init = shell.id();
        let deadline = Instant::now() + Duration::from_secs(5);
        while (below(init).len() < 4 || count(init) < 1) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let freezer = Freezer::new(ProcessRef::of(init), None);
        let first = freezer.freeze().unwrap();
        let second = freezer.freeze().unwrap();
        let all = below(init).len();
        assert_eq!((count(init), all), (4, 4));
        assert!(ProcessRef::of(init).unwrap().member().unwrap().is_stopped);
        drop(first);
        assert_eq!(count(init), 4);
        drop(second);
        let deadline = Instant::now() + Duration::from_secs(5);
        while count(init) > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(count(init), 1);
        process::kill_tree(init, process::open(init).unwrap());
        shell.wait().unwrap();
    }
}
