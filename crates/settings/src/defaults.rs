//! Default limits of a sandbox: enough for builds and tests of real projects, and less than would
//! take the machine down. `docs/guides/limits.md` has the reasons.

use crate::machine;
use glovebox_spec::LimitKind;

const MIB: u64 = 1 << 20;
/// Least memory: linkers and test suites of ordinary projects need more than 1 GiB.
const LEAST_MEMORY_BYTES: u64 = 2 << 30;
/// Processes and threads: parallel builds and servers stay below this, and the machine's own
/// process table is far larger.
const PIDS: u64 = 4096;
/// Written bytes: build directories and package caches fit, and the host's disk is unlikely to fill
/// up.
const DISK_BYTES: u64 = 10 << 30;

/// Returns the default of a limit; `None` for no limit.
pub(super) fn limit(kind: LimitKind) -> Option<u64> {
    match kind {
        LimitKind::Memory => Some(memory_of(machine::memory_bytes())),
        LimitKind::Pids => Some(PIDS),
        LimitKind::Disk => Some(DISK_BYTES),
        _ => None,
    }
}

/// Returns half of the machine's memory, in whole MiB, but at least 2 GiB. The machine keeps
/// running when a sandbox uses all of it.
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
