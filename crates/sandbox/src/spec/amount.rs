//! Limits as people write them: `2 GiB`, `1.5 cpus`, `90 s`.
//!
//! For sentences and tables only. Output for programs has plain numbers in the smallest unit.

use glovebox_spec::{LimitKind, LimitUnit};

const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Returns the value of a limit with its unit, rounded if the exact one is long.
pub fn limit_in_words(kind: LimitKind, value: u64) -> String {
    match kind.unit() {
        LimitUnit::Bytes => size(value),
        LimitUnit::BytesPerSecond => format!("{} per second", size(value)),
        LimitUnit::CpuMillis => match value {
            1000 => "1 cpu".to_owned(),
            millis => format!("{} cpus", millis as f64 / 1000.0),
        },
        LimitUnit::Count => value.to_string(),
        LimitUnit::Milliseconds => format!("{} s", value as f64 / 1000.0),
    }
}

/// Formats a number of bytes: exactly if a unit divides it, otherwise with one decimal.
pub(crate) fn size(bytes: u64) -> String {
    let is_exact = |factor: u64| bytes >= factor && bytes.is_multiple_of(factor);
    if let Some((name, factor)) = UNITS.iter().find(|(_, factor)| is_exact(*factor)) {
        return format!("{} {name}", bytes / factor);
    }
    match UNITS.iter().find(|(_, factor)| bytes >= *factor) {
        Some((name, factor)) => format!("{:.1} {name}", bytes as f64 / *factor as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_as_people_write_them() {
        for (kind, value, words) in [
            (LimitKind::Memory, 2 << 30, "2 GiB"),
            (LimitKind::Disk, 3 << 29, "1536 MiB"),
            (LimitKind::FileSize, 1_500_000_000, "1.4 GiB"),
            (LimitKind::Memory, 1 << 10, "1 KiB"),
            (LimitKind::Memory, 7, "7 bytes"),
            (LimitKind::Cpu, 1000, "1 cpu"),
            (LimitKind::Cpu, 1500, "1.5 cpus"),
            (LimitKind::Pids, 1024, "1024"),
            (LimitKind::Wall, 1500, "1.5 s"),
            (LimitKind::NetRate, 1 << 20, "1 MiB per second"),
        ] {
            assert_eq!(limit_in_words(kind, value), words);
        }
    }
}
