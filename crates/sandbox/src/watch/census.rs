//! Processes of a sandbox as the host sees them: the first one and all its descendants.

use crate::process;

/// Maximum number of processes to examine.
const MAX_PROCESSES: usize = 65_536;

/// Process and its threads, each of which may have open files of its own.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) threads: Vec<i32>,
}

/// Returns `init` and all its descendants. `None` if there are too many to examine.
pub(super) fn processes_of(init: i32) -> Option<Vec<Process>> {
    let mut found = Vec::new();
    let mut pending = vec![u32::try_from(init).ok()?];
    while let Some(pid) = pending.pop() {
        if found.len() >= MAX_PROCESSES {
            return None;
        }
        let tasks = process::tasks(pid);
        let Some(children) = tasks.children else {
            return all_below(init);
        };
        pending.extend(children);
        // A process without threads has ended meanwhile. Its resources are released or held by
        // another process.
        if !tasks.threads.is_empty() {
            found.push(Process::new(pid, &tasks.threads)?);
        }
    }
    Some(found)
}

/// As [`processes_of`], on a kernel that keeps no lists of children.
fn all_below(init: i32) -> Option<Vec<Process>> {
    let init = u32::try_from(init).ok()?;
    let below = process::below(init);
    if below.len() >= MAX_PROCESSES {
        return None;
    }
    let below = below
        .iter()
        .filter_map(|member| u32::try_from(member.pid.as_raw_pid()).ok());
    std::iter::once(init)
        .chain(below)
        .map(|pid| Process::new(pid, &process::tasks(pid).threads))
        .collect()
}

impl Process {
    /// Returns `None` for ids that the kernel never assigns.
    fn new(pid: u32, threads: &[u32]) -> Option<Self> {
        let threads = threads.iter().map(|thread| i32::try_from(*thread).ok());
        Some(Self {
            pid: i32::try_from(pid).ok()?,
            threads: threads.collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("5")
            .spawn()
            .unwrap();
        let own = std::process::id() as i32;
        let both = [processes_of(own).unwrap(), all_below(own).unwrap()];
        child.kill().unwrap();
        child.wait().unwrap();
        for found in both {
            let pids: Vec<i32> = found.iter().map(|process| process.pid).collect();
            assert!(
                pids.contains(&own) && pids.contains(&(child.id() as i32)),
                "{pids:?}"
            );
            let alive = found.iter().filter(|process| !process.threads.is_empty());
            assert!(alive.count() >= 2);
        }
    }
}
