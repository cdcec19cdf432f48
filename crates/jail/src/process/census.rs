//! Who descends from whom right now, according to /proc.
//!
//! A census is a snapshot and processes keep forking while it is taken; whoever needs all of them
//! stops what was found and looks again until nothing new turns up ([`TreeKill`]).

use super::member::{Member, open_dir};
use rustix::fd::AsFd;
use rustix::fs::{CWD, RawDir};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;

/// All processes of this pid namespace that /proc shows.
#[derive(Debug, Default)]
pub struct Census {
    children: HashMap<Pid, Vec<Member>>,
}

impl Census {
    /// Reads /proc.
    ///
    /// # Errors
    /// /proc is not mounted, cannot be read, or does not show this process and so is not ours. A process
    /// that vanishes meanwhile is left out.
    pub fn take() -> Result<Self, Errno> {
        let proc = open_dir(CWD, b"/proc")?;
        let mut census = Self::default();
        let own = rustix::process::getpid();
        let mut is_ours = false;
        let mut room = [MaybeUninit::uninit(); 8 << 10];
        let mut entries = RawDir::new(&proc, &mut room);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !name.first().is_some_and(u8::is_ascii_digit) {
                continue;
            }
            let Some(member) = Member::read_at(proc.as_fd(), name) else {
                continue;
            };
            is_ours |= member.pid == own;
            if let Some(parent) = member.parent {
                census.children.entry(parent).or_default().push(member);
            }
        }
        if is_ours {
            Ok(census)
        } else {
            Err(Errno::NOENT)
        }
    }

    /// Direct children of `pid`, dead ones included.
    pub fn children_of(&self, pid: Pid) -> impl Iterator<Item = &Member> {
        self.children.get(&pid).into_iter().flatten()
    }

    /// Everything that descends from `root`, without `root`, parents before their children.
    pub fn descendants_of(&self, root: Pid) -> Vec<Member> {
        let mut found: Vec<Member> = Vec::new();
        let mut seen = HashSet::from([root]);
        let mut next = 0;
        let mut parent = root;
        loop {
            for child in self.children_of(parent) {
                // A pid reused while the snapshot was taken could close a circle.
                if seen.insert(child.pid) {
                    found.push(*child);
                }
            }
            let Some(member) = found.get(next) else {
                return found;
            };
            parent = member.pid;
            next += 1;
        }
    }

    /// Sends `signal` to every living descendant of `root`; returns how many there were.
    pub fn signal_tree(&self, root: Pid, signal: Signal) -> usize {
        let mut living = self.descendants_of(root);
        living.retain(|member| member.is_alive);
        for member in &living {
            let _ = rustix::process::kill_process(member.pid, signal);
        }
        living.len()
    }
}

/// The state of killing everything below one warden.
///
/// Killing alone loses against a process that forks faster than we look: while its children die,
/// their slots under the process limit become free again. So after a first plain round everything
/// found is stopped first, which keeps the slots taken, until a look finds nothing new; then all
/// of it is killed. Repeat until the warden, which outlives its last descendant, is gone.
#[derive(Debug, Default)]
pub struct TreeKill {
    rounds: u32,
    stopped: HashSet<Pid>,
    killed: HashSet<Pid>,
}

/// Looks per round while freezing, so that a fast forker cannot keep us here for ever.
const LOOKS_PER_ROUND: u32 = 16;
/// Rounds after which a warden that reports nobody alive and does not leave is itself killed.
const PATIENT_ROUNDS: u32 = 50;
/// Most pids remembered as killed; only their number is reported.
const REMEMBERED: usize = 1 << 16;

impl TreeKill {
    /// A kill that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rounds done so far.
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Distinct processes killed so far, without `except`.
    pub fn killed(&self, except: Option<Pid>) -> usize {
        self.killed.len() - usize::from(except.is_some_and(|pid| self.killed.contains(&pid)))
    }

    /// One round against everything below `warden`, beginning from the given fresh census.
    ///
    /// # Errors
    /// /proc cannot be read; nothing more can be found then, and the caller has to kill the warden
    /// and what surfaces from it.
    pub fn round(&mut self, warden: Pid, first: &Census) -> Result<(), Errno> {
        // The warden itself may have been stopped, which would keep the dead from being reaped.
        let _ = rustix::process::kill_process(warden, Signal::CONT);
        let mut members = first.descendants_of(warden);
        if self.rounds > 0 && !members.is_empty() {
            self.stopped.clear();
            for _ in 0..LOOKS_PER_ROUND {
                let mut has_new = false;
                for member in members.iter().filter(|member| member.is_alive) {
                    if self.stopped.insert(member.pid) {
                        has_new = true;
                        let _ = rustix::process::kill_process(member.pid, Signal::STOP);
                    }
                }
                if !has_new {
                    break;
                }
                members = Census::take()?.descendants_of(warden);
            }
        }
        let mut is_any_alive = false;
        for member in members.iter().filter(|member| member.is_alive) {
            is_any_alive = true;
            let _ = rustix::process::kill_process(member.pid, Signal::KILL);
            if self.killed.len() < REMEMBERED {
                self.killed.insert(member.pid);
            }
        }
        self.rounds += 1;
        if !is_any_alive && self.rounds > PATIENT_ROUNDS {
            let _ = rustix::process::kill_process(warden, Signal::KILL);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_counted_with_its_child() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let census = Census::take().unwrap();
        let pid = Pid::from_child(&child);
        assert!(
            census
                .descendants_of(rustix::process::getpid())
                .iter()
                .any(|member| member.pid == pid)
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
