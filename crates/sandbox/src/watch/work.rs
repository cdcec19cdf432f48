//! Resource usage of a sandbox's processes, by the sums that the watch compares with limits.

use super::{census, memory};
use serde::Serialize;
use std::collections::HashSet;
use std::fs;

/// Resource usage of all processes of a sandbox, including the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResourceUsage {
    /// Number of processes.
    pub processes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Memory in bytes. Shared pages are divided among the processes that share them.
    pub memory_bytes: u64,
    /// Processor time so far in microseconds, including that of processes that have ended and been
    /// reaped.
    pub cpu_us: u64,
}

/// Returns the resource usage of the process `init` and all its descendants. `None` if there are
/// none or too many.
pub(crate) fn work_below(init: u32) -> Option<ResourceUsage> {
    let processes = census::processes_of(i32::try_from(init).ok()?)?;
    if processes.is_empty() {
        return None;
    }
    let memory_bytes = memory::proportional_bytes(&processes, &HashSet::new())
        .unwrap_or_else(|| memory::resident_bytes(&processes));
    Some(ResourceUsage {
        processes: processes.len() as u64,
        threads: processes
            .iter()
            .map(|process| process.threads.len() as u64)
            .sum(),
        memory_bytes,
        cpu_us: cpu_us(&processes),
    })
}

/// Returns the processor time of processes and of the children they have reaped, in microseconds.
pub(super) fn cpu_us(processes: &[census::Process]) -> u64 {
    let ticks: u64 = processes
        .iter()
        .filter_map(|process| {
            ticks_of(&fs::read_to_string(format!("/proc/{}/stat", process.pid)).ok()?)
        })
        .fold(0, u64::saturating_add);
    ticks.saturating_mul(1_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Returns the processor time of a process and of the children it has reaped, in clock ticks
/// (proc_pid_stat(5), fields 14 to 17).
fn ticks_of(stat: &str) -> Option<u64> {
    // The name in parentheses may contain any character, including parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_ascii_whitespace().skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 10 0 0 0 3 4 50 600 20 0 1 0 99 0 0";
        assert_eq!(ticks_of(stat), Some(657));
        assert_eq!(ticks_of("7 (a"), None);
    }

    #[test]
    fn work_grows_with_what_is_done() {
        let before = work_below(std::process::id()).unwrap();
        // Pages of the program file count only in part, because other processes share them.
        let held = std::hint::black_box(vec![1_u8; 4 << 20]);
        let begun = std::time::Instant::now();
        let mut sum = 0_u64;
        while begun.elapsed() < std::time::Duration::from_millis(100) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let after = work_below(std::process::id()).unwrap();
        drop(held);
        assert!(after.cpu_us > before.cpu_us, "{before:?} {after:?}");
        assert!(
            after.memory_bytes > 1 << 20 && after.threads >= after.processes,
            "{after:?}"
        );
    }
}
