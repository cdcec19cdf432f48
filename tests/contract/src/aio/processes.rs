//! Processes that commands leave behind. The server adopts them, as the first process of a
//! container does.

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};
use std::fs;
use std::time::Duration;

/// Makes processes whose parent ends children of this one.
pub(super) fn adopt_orphans() -> anyhow::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    Ok(())
}

/// Ends every process below this one, however deep.
pub(super) fn kill_descendants() {
    // A process that is ended hands its children to this one, so it is looked again until none is
    // left.
    for _ in 0..1000 {
        let alive: Vec<Pid> = descendants(getpid())
            .into_iter()
            .filter(|pid| !is_zombie(*pid))
            .collect();
        if alive.is_empty() {
            break;
        }
        for pid in alive {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reaps adopted processes that have ended, until the program ends.
///
/// The runtime reaps its own children at once, so one that is still there a second later was
/// adopted.
pub(super) async fn reap_adopted() {
    let mut seen: Vec<Pid> = Vec::new();
    loop {
        let ended: Vec<Pid> = children(getpid())
            .into_iter()
            .filter(|pid| is_zombie(*pid))
            .collect();
        for pid in ended.iter().filter(|pid| seen.contains(pid)) {
            // Nothing is to be done if it is gone.
            let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
        }
        seen = ended;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn descendants(pid: Pid) -> Vec<Pid> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children(*pid));
        next += 1;
    }
    found
}

fn children(pid: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    for thread in threads.into_iter().flatten().flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|pid| Pid::from_raw(pid.parse().ok()?)),
        );
    }
    found
}

fn is_zombie(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).is_ok_and(|text| {
        text.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    })
}
