//! Finds out which sockets the processes of the sandbox still have open.

use crate::process::Census;
use rustix::fs::CWD;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs;

/// Number of times that the processes are looked through. A process whose parent ends meanwhile can
/// be missed once.
const LOOKS: usize = 2;

/// Descriptor by which a thread named a socket in its last call about it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Holder {
    /// Id of the thread.
    pub(super) thread: i32,
    /// Number of the descriptor.
    pub(super) descriptor: i32,
}

impl Holder {
    /// Returns true if the descriptor still leads to the socket.
    fn holds(self, inode: u64) -> bool {
        find_socket(self.thread, self.descriptor) == Ok(inode)
    }
}

/// Returns the inode number of the socket that a thread's descriptor leads to.
///
/// # Errors
/// `BADF` if there is no such descriptor; `NOTSOCK` if it is no socket.
pub(super) fn find_socket(thread: i32, descriptor: i32) -> Result<u64, Errno> {
    if descriptor < 0 {
        return Err(Errno::BADF);
    }
    let path = format!("/proc/{thread}/fd/{descriptor}");
    match rustix::fs::readlink(path, Vec::new()) {
        Ok(target) => parse_link(target.as_bytes()).ok_or(Errno::NOTSOCK),
        Err(Errno::NOENT) => Err(Errno::BADF),
        Err(errno) => Err(errno),
    }
}

/// Returns those of `sockets` that no process below this one has open. A process that hides its
/// descriptors counts as having none.
pub(super) fn find_unheld(sockets: impl Iterator<Item = (u64, Holder)>) -> Vec<u64> {
    let mut unheld: Vec<u64> = sockets
        .filter(|(inode, holder)| !holder.holds(*inode))
        .map(|(inode, _)| inode)
        .collect();
    for _ in 0..LOOKS {
        if unheld.is_empty() {
            break;
        }
        // Without a list of processes nothing is known, so everything is kept.
        let Ok(held) = list_held() else {
            return Vec::new();
        };
        unheld.retain(|inode| !held.contains(inode));
    }
    unheld
}

/// Lists the inode numbers of all sockets that processes below this one have open.
fn list_held() -> Result<HashSet<u64>, Errno> {
    let members = Census::take()?.descendants_of(rustix::process::getpid());
    let mut held = HashSet::new();
    for member in members {
        let dir = format!("/proc/{}/fd", member.pid.as_raw_pid());
        let Ok(entries) = fs::read_dir(dir) else {
            continue;
        };
        held.extend(entries.flatten().filter_map(|entry| {
            let target = rustix::fs::readlinkat(CWD, entry.path(), Vec::new()).ok()?;
            parse_link(target.as_bytes())
        }));
    }
    Ok(held)
}

/// Parses the link of a socket in /proc/PID/fd. No file can have such a path, which does not begin
/// with a slash.
fn parse_link(target: &[u8]) -> Option<u64> {
    let digits = target.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
