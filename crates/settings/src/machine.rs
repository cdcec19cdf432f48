//! Resources of this machine.

/// Memory assumed if the machine does not report it, in bytes.
const USUAL_MEMORY_BYTES: u64 = 4 << 30;

/// Returns the machine's memory in bytes (`MemTotal`, proc_meminfo(5)).
pub(crate) fn memory_bytes() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .as_deref()
        .and_then(total_in)
        .unwrap_or(USUAL_MEMORY_BYTES)
}

fn total_in(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        let text = "MemTotal:       24689764 kB\nMemFree:        123 kB\n";
        assert_eq!(total_in(text), Some(24_689_764 << 10));
        assert_eq!(total_in("MemFree: 1 kB\n"), None);
        assert!(memory_bytes() > 1 << 20);
    }
}
