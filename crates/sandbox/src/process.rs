//! Processes of this machine that may have to be ended: named so that a recycled process id is
//! never mistaken for the process that was meant.

use glovebox_jail::process::WARDEN_NAME;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// A process, by its id and the moment it started: the pair is never used twice in one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessRef {
    pub(crate) pid: u32,
    /// Clock ticks from boot to its start, field 22 of proc_pid_stat(5).
    pub(crate) start_ticks: u64,
}

/// What proc_pid_stat(5) says about a process.
struct Stat {
    is_warden: bool,
    state: u8,
    parent: u32,
    start_ticks: u64,
}

/// A process found below another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Below {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) start_ticks: u64,
    /// In the kernel, where no signal reaches it yet.
    pub(crate) is_deaf: bool,
    /// Stopped by a signal or by whoever traces it.
    pub(crate) is_stopped: bool,
    /// It calls itself a warden. TRUST: so may any process; who takes its word for it loses nothing
    /// but that process.
    pub(crate) is_warden: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name is in parentheses and may hold any byte, parentheses included: the last one counts.
    let (start, rest) = text.rsplit_once(')')?;
    let (_, name) = start.split_once('(')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat {
        is_warden: name.as_bytes() == WARDEN_NAME.to_bytes(),
        state,
        parent,
        start_ticks,
    })
}

impl Below {
    fn new(pid: u32, stat: &Stat) -> Self {
        Self {
            pid,
            parent: stat.parent,
            start_ticks: stat.start_ticks,
            is_deaf: stat.state == b'D',
            is_stopped: matches!(stat.state, b'T' | b't'),
            is_warden: stat.is_warden,
        }
    }
}

impl Stat {
    fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

impl ProcessRef {
    /// The process that has this id now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            start_ticks: stat(pid)?.start_ticks,
        })
    }

    /// A stable handle, if that very process still runs. One that is dead and only waits for its
    /// parent to notice does not.
    pub(crate) fn open(self) -> Option<OwnedFd> {
        let pidfd = open(self.pid)?;
        // Checked after opening: if the id had been reused before, the start differs; if it is
        // reused later, the handle still means the old process.
        let is_same = stat(self.pid)?.start_ticks == self.start_ticks;
        (is_same && !has_ended(&pidfd)).then_some(pidfd)
    }
}

fn has_ended(pidfd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

/// A handle on whatever process has this id now.
pub(crate) fn open(pid: u32) -> Option<OwnedFd> {
    pidfd_open(
        Pid::from_raw(i32::try_from(pid).ok()?)?,
        PidfdFlags::empty(),
    )
    .ok()
}

/// Sends a signal; a process that is gone already is fine.
pub(crate) fn signal(pidfd: impl AsFd, signal: Signal) -> Result<(), Errno> {
    match pidfd_send_signal(pidfd, signal) {
        Err(Errno::SRCH) => Ok(()),
        other => other,
    }
}

/// Waits until the process has ended. False when `wait` passed first.
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

/// Kills everything below a process and then the process itself.
///
/// The root is stopped first, so that it cannot start more; what it started is killed round by
/// round until a round finds nothing. Descendants that left the tree are out of reach.
pub(crate) fn kill_tree(root: u32, pidfd: impl AsFd) {
    const ROUNDS: usize = 64;
    let _ = signal(&pidfd, Signal::STOP);
    for _ in 0..ROUNDS {
        let below = descendants(root);
        if below.is_empty() {
            break;
        }
        for pid in &below {
            if let Some(pidfd) = open(*pid) {
                let _ = signal(&pidfd, Signal::STOP);
            }
        }
        for pid in below {
            if let Some(pidfd) = open(pid) {
                let _ = signal(&pidfd, Signal::KILL);
            }
        }
    }
    let _ = signal(&pidfd, Signal::KILL);
}

/// The process itself, if it lives.
pub(crate) fn member(process: ProcessRef) -> Option<Below> {
    let stat = stat(process.pid)?;
    (stat.start_ticks == process.start_ticks && !stat.is_dead())
        .then(|| Below::new(process.pid, &stat))
}

/// Whether nothing lives below a guest but wardens without a command. Much cheaper than looking at all
/// processes, where the kernel keeps lists of children.
pub(crate) fn has_only_wardens(guest: u32) -> bool {
    /// More than a guest ever has without a command.
    const MAX_WARDENS: usize = 64;
    // A warden that has only just been made is still called as the guest is.
    let own_name = name(guest);
    let is_own = |child: u32, stat: &Stat| stat.is_warden || name(child) == own_name;
    let mut found = vec![guest];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        let Some(children) = children(pid) else {
            return below(guest).iter().all(|member| member.is_warden);
        };
        for child in children {
            match stat(child) {
                Some(stat) if !stat.is_dead() => {
                    if !is_own(child, &stat) || found.len() > MAX_WARDENS {
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

/// What the kernel shows as the name of a process.
fn name(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/comm")).ok()
}

/// Children of a process, dead ones included; none of one that is gone. `None` when the kernel keeps no
/// lists of them.
fn children(pid: u32) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Some(all);
    };
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => all.extend(
                list.split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            ),
            Err(_) if thread.path().exists() => return None,
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    Some(all)
}

/// Live processes below `root`, parents before their children, zombies left out.
pub(crate) fn below(root: u32) -> Vec<Below> {
    let mut children: HashMap<u32, Vec<Below>> = HashMap::new();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Some(stat) = stat(pid)
            && !stat.is_dead()
        {
            let member = Below::new(pid, &stat);
            children.entry(stat.parent).or_default().push(member);
        }
    }
    let mut found: Vec<Below> = Vec::new();
    let mut next = 0;
    let mut parent = root;
    loop {
        found.extend(children.remove(&parent).unwrap_or_default());
        let Some(member) = found.get(next) else {
            return found;
        };
        parent = member.pid;
        next += 1;
    }
}

fn descendants(root: u32) -> Vec<u32> {
    below(root).iter().map(|member| member.pid).collect()
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
        while descendants(child.id()).len() < 3 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let below = descendants(child.id());
        assert_eq!(below.len(), 3);
        kill_tree(child.id(), open(child.id()).unwrap());
        child.wait().unwrap();
        for pid in below {
            assert!(
                stat(pid).is_none_or(|stat| stat.is_dead()),
                "{pid} survived"
            );
        }
    }
}
