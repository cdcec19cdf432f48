//! Setting of another process's scheduling policy.
#![expect(unsafe_code, reason = "sched_setscheduler(2) has no safe wrapper")]

use rustix::process::Pid;
use rustix::thread::CpuSet;

/// Gives a process the ordinary policy, nice value 0 and every processor. Failures are ignored.
pub(crate) fn make_normal(pid: Pid) {
    // SAFETY: a C struct of integers, for which all zeroes is a value; it outlives the call, which
    // only reads it.
    unsafe {
        let ordinary: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(pid.as_raw_pid(), libc::SCHED_OTHER, &raw const ordinary);
    }
    let _ = rustix::process::setpriority_process(Some(pid), 0);
    let mut all = CpuSet::new();
    for processor in 0..CpuSet::MAX_CPU {
        all.set(processor);
    }
    let _ = rustix::thread::sched_setaffinity(Some(pid), &all);
}
