//! Snapshot of the process tree, read from /proc.
//!
//! Processes keep forking while the snapshot is taken. To reach all of them, [`TreeKill`] stops the
//! ones that were found and takes another snapshot until no new one appears.

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
    /// /proc is not mounted, cannot be read, or does not show this process, so it is that of
    /// another pid namespace. A process that vanishes meanwhile is left out.
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

    /// Returns the direct children of `pid`, dead ones included.
    pub fn children_of(&self, pid: Pid) -> impl Iterator<Item = &Member> {
        self.children.get(&pid).into_iter().flatten()
    }

    /// Returns all descendants of `root`, without `root`, parents before their children.
    pub fn descendants_of(&self, root: Pid) -> Vec<Member> {
        let mut found: Vec<Member> = Vec::new();
        let mut seen = HashSet::from([root]);
        let mut next = 0;
        let mut parent = root;
        loop {
            for child in self.children_of(parent) {
                // A pid that was reused while the snapshot was taken could form a cycle.
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

    /// Sends `signal` to every living descendant of `root`. Returns their number.
    pub fn signal_tree(&self, root: Pid, signal: Signal) -> usize {
        let mut living = self.descendants_of(root);
        living.retain(|member| member.is_alive);
        for member in &living {
            let _ = rustix::process::kill_process(member.pid, signal);
        }
        living.len()
    }
}

/// State of killing all processes below one warden.
///
/// Killing alone loses against a process that forks faster than the census finds its children: as
/// they die, their places under the process limit become free again. So after a first plain round
/// all processes found are stopped first, which keeps the places occupied, until a census finds no
/// new one. Then all of them are killed. Rounds repeat until the warden, which outlives its last
/// descendant, has exited.
#[derive(Debug, Default)]
pub struct TreeKill {
    rounds: u32,
    stopped: HashSet<Pid>,
    killed: HashSet<Pid>,
}

/// Maximum number of censuses per round. It bounds the round against a fast forker.
const LOOKS_PER_ROUND: u32 = 16;
/// Number of rounds after which a warden that has no living descendant and does not exit is itself
/// killed.
const PATIENT_ROUNDS: u32 = 50;
/// Maximum number of pids remembered as killed. Only their number is reported.
const REMEMBERED: usize = 1 << 16;

impl TreeKill {
    /// Creates a kill that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of rounds done so far.
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns the number of distinct processes killed so far, not counting `except`.
    pub fn killed(&self, except: Option<Pid>) -> usize {
        self.killed.len() - usize::from(except.is_some_and(|pid| self.killed.contains(&pid)))
    }

    /// Does one round against all processes below `warden`, beginning with the fresh census
    /// `first`.
    ///
    /// # Errors
    /// /proc cannot be read, so no further process can be found. The caller then has to kill the
    /// warden and the strays that this frees.
    pub fn round(&mut self, warden: Pid, first: &Census) -> Result<(), Errno> {
        // A command may have stopped the warden. A stopped warden reaps no dead processes.
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
