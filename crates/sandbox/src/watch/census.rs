//! The processes of a sandbox as the host sees them: the first one and all its descendants.

use std::fs;

/// Most processes that are looked at.
const MAX_PROCESSES: usize = 65_536;

/// One process and its threads, which may each have open files of their own.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) threads: Vec<i32>,
}

/// All processes from `init` on. `None` when there are too many to look at.
pub(super) fn processes_of(init: i32) -> Option<Vec<Process>> {
    let mut found = Vec::new();
    let mut pending = vec![init];
    while let Some(pid) = pending.pop() {
        if found.len() >= MAX_PROCESSES {
            return None;
        }
        // It may have ended meanwhile; what it had is then gone, or with another one.
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        let threads: Vec<i32> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        for thread in &threads {
            let path = format!("/proc/{pid}/task/{thread}/children");
            if let Ok(children) = fs::read_to_string(path) {
                let pids = children.split_ascii_whitespace();
                pending.extend(pids.filter_map(|pid| pid.parse::<i32>().ok()));
            }
        }
        found.push(Process { pid, threads });
    }
    Some(found)
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
        let found = processes_of(own).unwrap();
        let pids: Vec<i32> = found.iter().map(|process| process.pid).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            pids.contains(&own) && pids.contains(&(child.id() as i32)),
            "{pids:?}"
        );
        assert!(found.iter().all(|process| !process.threads.is_empty()));
    }
}
