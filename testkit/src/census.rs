//! Processes of the machine, read from `/proc`.
//!
//! A test that checks if processes survive gives its commands a [`marker`] and looks for it on the
//! whole machine, or looks at all descendants of its commands.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Process of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub id: u32,
    /// Id of its parent.
    pub parent: u32,
    /// Start time in clock ticks since boot; together with the id it identifies the process.
    pub started: u64,
    /// State as in proc_pid_stat(5); `Z` is a zombie.
    pub state: char,
    /// Command line, with words joined by spaces.
    pub line: String,
}

impl Process {
    /// Looks up a process. None if it does not exist.
    pub fn find(id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name in parentheses may contain any character, so count fields from the last
        // parenthesis.
        let rest = &stat[stat.rfind(')')? + 2..];
        let mut fields = rest.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&words)
            .trim_end_matches('\0')
            .replace('\0', " ");
        Some(Self {
            id,
            parent,
            started,
            state,
            line,
        })
    }

    /// Returns all processes of the machine except zombies.
    pub fn all() -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| Self::find(entry.file_name().to_str()?.parse().ok()?))
            .filter(Self::is_alive)
            .collect()
    }

    /// Returns the processes whose command line contains `text`.
    pub fn mentioning(text: &str) -> Vec<Self> {
        Self::all()
            .into_iter()
            .filter(|process| process.line.contains(text))
            .collect()
    }

    /// Returns all descendants of `ancestor`, at any depth.
    pub fn descendants(ancestor: u32) -> Vec<Self> {
        let mut rest = Self::all();
        let mut family = vec![ancestor];
        let mut found = Vec::new();
        loop {
            let (children, others): (Vec<_>, Vec<_>) = rest
                .into_iter()
                .partition(|process| family.contains(&process.parent));
            if children.is_empty() {
                return found;
            }
            family = children.iter().map(|process| process.id).collect();
            found.extend(children);
            rest = others;
        }
    }

    /// Returns true if the process is the guest, the program that runs inside sandboxes.
    pub fn is_guest(&self) -> bool {
        let mut words = self.line.split(' ');
        words
            .next()
            .is_some_and(|program| program.starts_with("/proc/self/fd/"))
            && words.next() == Some("stage0")
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// Waits until `count` processes sleep for `marker` seconds, so that the commands of a test are
/// running. A process that has the marker among other arguments does not count.
///
/// # Panics
/// After 20 seconds.
pub fn await_sleepers(marker: &str, count: usize) {
    let line = format!("sleep {marker}");
    let is_there = wait_until(Duration::from_secs(20), || {
        Process::mentioning(marker)
            .iter()
            .filter(|process| process.line == line)
            .count()
            >= count
    });
    assert!(
        is_there,
        "nothing sleeps for {marker} s: {:?}",
        Process::mentioning(marker)
    );
}

/// Returns a number of seconds for sleep(1) that no other process on this machine uses.
pub fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "98765.{:07}{:05}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Polls until `condition` holds. Returns false if it does not within `limit`.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_found_until_it_is_gone() {
        let marker = marker();
        let mut child = Command::new("sleep").arg(&marker).spawn().unwrap();
        assert!(wait_until(Duration::from_secs(5), || Process::mentioning(
            &marker
        )
        .len()
            == 1));
        let found = Process::mentioning(&marker).remove(0);
        assert_eq!((found.id, found.parent), (child.id(), std::process::id()));
        assert!(Process::descendants(std::process::id()).contains(&found));
        child.kill().unwrap();
        assert!(wait_until(Duration::from_secs(5), || Process::mentioning(
            &marker
        )
        .is_empty()));
        child.wait().unwrap();
    }
}
