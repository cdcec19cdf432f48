//! Forced end of a sandbox from outside. The end of its first process ends every process in it; if
//! the first process does not get to run, all are ended one by one.
//!
//! A killed process must run once more to end. The first process of a sandbox may be starved by its
//! others, and those by the rest of the machine. So obstacles are removed: the control group is
//! killed or thawed, the processes' scheduling is reset to normal, and this thread raises its own
//! priority if it may. The pidfd of the first process becomes readable when nothing of its pid
//! namespace is left.

use crate::process::{self, ProcessRef};
use glovebox_jail::cgroup::Cgroup;
use glovebox_jail::process::{Member, restore_scheduling};
use glovebox_proto::{Code, Fault};
use rustix::fd::AsFd;
use rustix::process::{Signal, getpriority_process, setpriority_process};
use std::fs;
use std::time::{Duration, Instant};

/// Time for the first process to end all others by itself.
const PROMPT_WAIT: Duration = Duration::from_millis(300);
/// Maximum time for all processes to end.
const END_WAIT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Nice value of a thread that ends others (setpriority(2)).
const RAISED_NICE: i32 = -15;
/// Maximum number of processes to name in a message.
const MAX_NAMED: usize = 8;

/// Ends the sandbox whose first process is behind `pidfd`, and returns when no process of it is
/// left. `kill_group` kills its control group, if it has one; it is called only if the first
/// process does not end at once.
///
/// # Errors
/// Names the processes that are left.
pub(crate) fn end_all(
    pidfd: impl AsFd,
    init: Option<ProcessRef>,
    kill_group: &dyn Fn(),
) -> Result<(), Fault> {
    process::signal(&pidfd, Signal::KILL)
        .map_err(|errno| crate::fault::plain_io("cannot end the sandbox", errno))?;
    if process::wait_gone(&pidfd, PROMPT_WAIT) {
        return Ok(());
    }
    let _raised = RaisedPriority::begin();
    let deadline = Instant::now() + END_WAIT;
    loop {
        kill_group();
        let left = init.map(everything).unwrap_or_default();
        for member in &left {
            // The handle refers to the process that was found, or the process is skipped.
            if let Some(handle) = ProcessRef::of_member(member).and_then(ProcessRef::open) {
                restore_scheduling(member.pid);
                let _ = process::signal(&handle, Signal::KILL);
            }
        }
        if process::wait_gone(&pidfd, LOOK_AGAIN) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(name_left(&left));
        }
    }
}

/// Kills all processes in a control group.
pub(crate) fn kill_group(group: Option<&Cgroup>) {
    if let Some(group) = group {
        // Processes that survive are found by the caller in the process list.
        let _ = group.kill_all();
    }
}

/// Returns the first process of a sandbox and all others in it. All are its descendants, because it
/// adopts those whose parents have ended.
fn everything(init: ProcessRef) -> Vec<Member> {
    let mut all: Vec<Member> = init.member().into_iter().collect();
    if !all.is_empty() {
        all.extend(process::below(init.pid));
    }
    all
}

fn name_left(left: &[Member]) -> Fault {
    let names: Vec<String> = left
        .iter()
        .take(MAX_NAMED)
        .map(|member| {
            let pid = member.pid.as_raw_pid();
            let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            // TRUST: a process chooses its own name.
            let name = String::from_utf8_lossy(&name)
                .trim()
                .escape_debug()
                .to_string();
            format!("{pid} ({name})")
        })
        .collect();
    let more = match left.len().saturating_sub(names.len()) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Fault::failed(
        Code::Io,
        format!(
            "the sandbox was killed and has not ended within {} s; still there: {}{more}",
            END_WAIT.as_secs(),
            if names.is_empty() {
                "its first process".to_owned()
            } else {
                names.join(", ")
            }
        ),
    )
    .remedy("`glovebox list` shows whether it is gone by now; `glovebox kill NAME` tries again")
    .retryable()
}

/// Raised priority of this thread while this lives, if the caller may raise it.
struct RaisedPriority {
    before: Option<i32>,
}

impl RaisedPriority {
    fn begin() -> Self {
        let before = getpriority_process(None).ok();
        let is_raised = before.is_some_and(|nice| nice > RAISED_NICE)
            && setpriority_process(None, RAISED_NICE).is_ok();
        Self {
            before: before.filter(|_| is_raised),
        }
    }
}

impl Drop for RaisedPriority {
    fn drop(&mut self) {
        if let Some(nice) = self.before {
            // Lowering the priority is always allowed.
            let _ = setpriority_process(None, nice);
        }
    }
}
