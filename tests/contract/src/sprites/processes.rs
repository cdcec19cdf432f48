//! Processes of a Sprite, found in `/proc`: they are ordinary processes of this machine, and some
//! leave their session.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};

/// A process: its number and the time of its start, so that a number that is used again is another
/// one.
pub(super) type Id = (u32, u64);

/// Returns the processes below `roots` and `known` that live, with these themselves.
pub(super) fn below(roots: &[u32], known: &[Id]) -> BTreeSet<Id> {
    let mut parents = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Some((parent, start)) = read_stat(pid) {
            parents.insert(pid, (parent, start));
        }
    }
    let mut found: BTreeSet<Id> = known
        .iter()
        .filter(|(pid, start)| parents.get(pid).is_some_and(|(_, now)| now == start))
        .copied()
        .collect();
    found.extend(
        roots
            .iter()
            .filter_map(|pid| parents.get(pid).map(|(_, start)| (*pid, *start))),
    );
    loop {
        let pids: BTreeSet<u32> = found.iter().map(|(pid, _)| *pid).collect();
        let before = found.len();
        found.extend(
            parents
                .iter()
                .filter(|(_, (parent, _))| pids.contains(parent))
                .map(|(pid, (_, start))| (*pid, *start)),
        );
        if found.len() == before {
            return found;
        }
    }
}

/// Parent and start time of a process that is no zombie (proc(5), fields 3, 4 and 22).
fn read_stat(pid: u32) -> Option<(u32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so fields are counted from its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// Kills processes.
pub(super) fn kill(found: &BTreeSet<Id>) {
    for (pid, _) in found {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            // It may have ended in between.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
