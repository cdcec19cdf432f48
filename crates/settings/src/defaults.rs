//! Limits of a sandbox that nobody set any for: enough for builds and tests of real projects, and less than what
//! would take the machine along. `docs/guides/limits.md` has the reasons.

use crate::machine;
use glovebox_spec::LimitKind;

const MIB: u64 = 1 << 20;
/// Least memory: linkers and test suites of ordinary projects need more than one.
const LEAST_MEMORY_BYTES: u64 = 2 << 30;
/// Processes and threads: parallel builds and servers stay below, and the machine's own table is far larger.
const PIDS: u64 = 4096;
/// Bytes written: build directories and package caches fit, a full disk stays unlikely.
const DISK_BYTES: u64 = 10 << 30;

/// The value of a limit that nobody has set.
pub(super) fn limit(kind: LimitKind) -> Option<u64> {
    match kind {
        LimitKind::Memory => Some(memory_of(machine::memory_bytes())),
        LimitKind::Pids => Some(PIDS),
        LimitKind::Disk => Some(DISK_BYTES),
        _ => None,
    }
}

/// Half of the machine's memory, in whole MiB, so that the machine goes on when all of it is used.
fn memory_of(machine_bytes: u64) -> u64 {
    let half = machine_bytes / 2;
    (half - half % MIB).max(LEAST_MEMORY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_machine_and_at_least_two_gib() {
        assert_eq!(memory_of(16 << 30), 8 << 30);
        assert_eq!(memory_of((16 << 30) + 4097), 8 << 30);
        assert_eq!(memory_of(3 << 30), 2 << 30);
    }
}
