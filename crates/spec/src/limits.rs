//! Table of limits: name, unit, setting and value of each.
//!
//! Reports, the comparison with a running sandbox, `--require` and completion read it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Default limit on open files of one process. Servers and language runtimes raise their own limit
/// to a few thousand at most.
pub const OPEN_FILES: u32 = 16_384;

/// Bytes of the disk limit per permitted file.
const BYTES_OF_A_FILE: u64 = 4 << 10;
/// Fewest files that any disk limit permits.
const FEWEST_FILES: u64 = 1024;
/// Most files that any disk limit permits.
pub const MOST_FILES: u64 = 2_000_000;

/// Returns the number of files, directories and links that a disk limit of `bytes` permits.
pub const fn files_within(bytes: u64) -> u64 {
    match bytes / BYTES_OF_A_FILE {
        files @ FEWEST_FILES..=MOST_FILES => files,
        files if files < FEWEST_FILES => FEWEST_FILES,
        _ => MOST_FILES,
    }
}

/// Unit of a limit's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitUnit {
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Thousandths of a CPU.
    CpuMillis,
    /// Plain number.
    Count,
    /// Milliseconds.
    Milliseconds,
}

macro_rules! limits {
    ($(
        $(#[doc = $doc:literal])+
        $kind:ident = $name:literal {
            value: $field:ident: $type:ty,
            unit: $unit:ident,
            setting: $setting:literal,
            noun: $noun:literal,
        }
    )+) => {
        /// Resource limits; `None` means no limit.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $field: Option<$type>,)+
        }

        /// Identifies a limit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum LimitKind {
            $(#[doc = concat!("[`Limits::", stringify!($field), "`].")] $kind,)+
        }

        impl Limits {
            /// Sets the value of a limit. A value beyond the range of its field becomes the largest
            /// one.
            pub fn set_value(&mut self, kind: LimitKind, value: Option<u64>) {
                match kind {
                    $(LimitKind::$kind => {
                        self.$field = value.map(|value| <$type>::try_from(value).unwrap_or(<$type>::MAX));
                    })+
                }
            }
        }

        impl LimitKind {
            /// Every limit, in report order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            /// Names of all limits, in the same order.
            pub const NAMES: [&'static str; Self::ALL.len()] = [$($name),+];

            /// Returns the name used in reports and by `--require`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// Returns the unit of the value.
            pub const fn unit(self) -> LimitUnit {
                match self { $(Self::$kind => LimitUnit::$unit,)+ }
            }

            /// Returns the configuration key that sets the limit.
            pub const fn setting(self) -> &'static str {
                match self { $(Self::$kind => $setting,)+ }
            }

            /// Returns the words that precede "limit" in a sentence.
            pub const fn noun(self) -> &'static str {
                match self { $(Self::$kind => $noun,)+ }
            }

            /// Returns the value, or `None` if the limit is not set.
            pub fn value(self, limits: &Limits) -> Option<u64> {
                match self { $(Self::$kind => limits.$field.map(u64::from),)+ }
            }
        }
    };
}

limits! {
    /// Memory of all processes together, in bytes.
    Memory = "memory" {
        value: memory_bytes: u64,
        unit: Bytes,
        setting: "memory",
        noun: "memory",
    }
    /// CPU time per second of wall time, in thousandths of one CPU.
    Cpu = "cpu" {
        value: cpu_millis: u32,
        unit: CpuMillis,
        setting: "cpus",
        noun: "CPU",
    }
    /// CPU time of all processes together, in milliseconds.
    CpuTime = "cpu-time" {
        value: cpu_time_ms: u64,
        unit: Milliseconds,
        setting: "cpu_time",
        noun: "CPU time",
    }
    /// Processes and threads.
    Pids = "pids" {
        value: pids: u32,
        unit: Count,
        setting: "pids",
        noun: "process",
    }
    /// Bytes written to all layers together.
    Disk = "disk" {
        value: disk_bytes: u64,
        unit: Bytes,
        setting: "disk",
        noun: "disk",
    }
    /// Size of one file in bytes.
    FileSize = "file-size" {
        value: file_bytes: u64,
        unit: Bytes,
        setting: "file_size",
        noun: "file size",
    }
    /// Open files of one process. If `None`, [`OPEN_FILES`] is the limit.
    OpenFiles = "open-files" {
        value: open_files: u32,
        unit: Count,
        setting: "open_files",
        noun: "open file",
    }
    /// Lifetime of the sandbox in milliseconds.
    Wall = "wall" {
        value: wall_ms: u64,
        unit: Milliseconds,
        setting: "timeout",
        noun: "time",
    }
    /// Bytes to and from the network together, if that is [`super::Net::Egress`].
    NetBytes = "net-bytes" {
        value: net_bytes: u64,
        unit: Bytes,
        setting: "net_bytes",
        noun: "network traffic",
    }
    /// Simultaneous connections to the network.
    NetConnections = "net-connections" {
        value: net_connections: u32,
        unit: Count,
        setting: "net_connections",
        noun: "connection",
    }
    /// Bytes to and from the network per second.
    NetRate = "net-rate" {
        value: net_rate: u64,
        unit: BytesPerSecond,
        setting: "net_rate",
        noun: "network rate",
    }
}

impl LimitKind {
    /// Limits that have an effect only with [`super::Net::Egress`].
    pub const OF_NETWORK: [Self; 3] = [Self::NetBytes, Self::NetConnections, Self::NetRate];
}

impl Limits {
    /// Returns the number of files, directories and links in all layers together that the disk
    /// limit permits; `None` without a disk limit.
    pub fn files(&self) -> Option<u64> {
        self.disk_bytes.map(files_within)
    }

    /// Returns the limits that are set with their values, in report order.
    pub fn set(&self) -> impl Iterator<Item = (LimitKind, u64)> {
        LimitKind::ALL
            .into_iter()
            .filter_map(|kind| Some((kind, kind.value(self)?)))
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IntoDeserializer as _;
    use serde::de::value::{Error, StrDeserializer};

    #[test]
    fn a_limit_is_serialised_as_it_is_named() {
        for (kind, name) in LimitKind::ALL.into_iter().zip(LimitKind::NAMES) {
            let text: StrDeserializer<'_, Error> = name.into_deserializer();
            assert_eq!(LimitKind::deserialize(text), Ok(kind));
        }
    }

    #[test]
    fn disk_limit_allows_a_file_for_each_4_kib() {
        let files = |disk_bytes| {
            let limits = Limits {
                disk_bytes,
                ..Limits::default()
            };
            limits.files()
        };
        assert_eq!(files(None), None);
        assert_eq!(files(Some(1)), Some(1024));
        assert_eq!(files(Some(10 << 20)), Some(2560));
        assert_eq!(files(Some(10 << 30)), Some(2_000_000));
    }

    #[test]
    fn only_limits_that_are_set_have_a_value() {
        let limits = Limits {
            pids: Some(7),
            net_rate: Some(9),
            ..Limits::default()
        };
        let set: Vec<_> = limits.set().collect();
        assert_eq!(set, [(LimitKind::Pids, 7), (LimitKind::NetRate, 9)]);
    }
}
