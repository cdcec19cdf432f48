//! Bounds on kernel objects of one sandbox that no limit of a spec counts.
//!
//! Of some objects the machine has a fixed number (terminals, asynchronous I/O contexts), some are
//! shared among all programs of a user (inotify instances), and each takes memory. One table holds
//! each bound and its mechanism. Stage 0 applies it; `--explain` and the report print it.

use glovebox_spec::OPEN_FILES;
use rustix::process::Resource;
use std::fmt;

/// Bound on one kind of kernel object.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Name of the objects, in the plural.
    pub name: &'static str,
    /// Maximum number, or maximum size in bytes.
    pub max: u64,
    /// Mechanism that enforces the bound.
    pub(crate) mechanism: Mechanism,
}

/// Mechanism that enforces a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mechanism {
    /// A resource limit of each process (getrlimit(2)), soft and hard. Pending signals, message
    /// queues and locked memory are counted for all processes of the sandbox together.
    Rlimit(Resource),
    /// The hard limit alone. Commands start with a lower soft limit and may raise it up to the hard
    /// one.
    HardRlimit(Resource),
    /// A file below `/proc/sys/user`, which belongs to the sandbox's own user namespace
    /// (namespaces(7)).
    UserSetting(&'static str),
    /// An option of a mount.
    MountOption,
    /// Refused by the system-call filter.
    Filter,
}

/// Maximum number of pseudo-terminals. The whole machine has 4096, and a mount may use all of them
/// by default.
pub(crate) const TERMINALS: u64 = 256;

/// Maximum number of namespaces of each kind, if commands may make any. A program that sandboxes a
/// part of itself uses one of each kind; a browser uses a few dozen.
pub const NESTED_NAMESPACES: u64 = 256;

/// Settings of the sandbox's user namespace that enforce [`NESTED_NAMESPACES`], except the one for
/// control groups.
pub(crate) const NAMESPACE_SETTINGS: [&str; 6] = [
    "max_user_namespaces",
    "max_mnt_namespaces",
    "max_pid_namespaces",
    "max_net_namespaces",
    "max_ipc_namespaces",
    "max_uts_namespaces",
];

/// Setting that limits control-group namespaces.
pub(crate) const CGROUP_NAMESPACE_SETTING: &str = "max_cgroup_namespaces";

/// All bounds, in the order of reports.
pub const BOUNDS: [Bound; 9] = [
    Bound {
        name: "terminals",
        max: TERMINALS,
        mechanism: Mechanism::MountOption,
    },
    // A user of the host has 128 of them for all programs, and the sandbox counts as its owner.
    Bound {
        name: "inotify instances",
        max: 64,
        mechanism: Mechanism::UserSetting("max_inotify_instances"),
    },
    // Enough for a watched tree with all its dependencies; each takes about 1 KiB of kernel memory.
    Bound {
        name: "inotify watches",
        max: 65_536,
        mechanism: Mechanism::UserSetting("max_inotify_watches"),
    },
    Bound {
        name: "open files per process",
        max: OPEN_FILES as u64,
        mechanism: Mechanism::HardRlimit(Resource::Nofile),
    },
    // Each POSIX timer counts as one.
    Bound {
        name: "pending signals",
        max: 4096,
        mechanism: Mechanism::Rlimit(Resource::Sigpending),
    },
    // The kernel's own default.
    Bound {
        name: "bytes in POSIX message queues",
        max: 819_200,
        mechanism: Mechanism::Rlimit(Resource::Msgqueue),
    },
    Bound {
        name: "bytes of locked memory",
        max: 64 << 10,
        mechanism: Mechanism::Rlimit(Resource::Memlock),
    },
    // The machine has 65,536 for all users. Databases fall back to threads.
    Bound {
        name: "asynchronous I/O contexts",
        max: 0,
        mechanism: Mechanism::Filter,
    },
    Bound {
        name: "keys",
        max: 0,
        mechanism: Mechanism::Filter,
    },
];

/// Soft limit on open files that commands start with. Programs that close every possible descriptor
/// become slow with a higher one.
pub(crate) const SOFT_OPEN_FILES: u64 = 4096;

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max {
            0 => write!(f, "no {}", self.name),
            max => write!(f, "{max} {}", self.name),
        }
    }
}

impl Bound {
    /// Describes the mechanism in a few words.
    pub fn mechanism(&self) -> String {
        match self.mechanism {
            Mechanism::Rlimit(resource) | Mechanism::HardRlimit(resource) => {
                format!("RLIMIT_{}", format!("{resource:?}").to_uppercase())
            }
            Mechanism::UserSetting(name) => format!("user.{name}"),
            Mechanism::MountOption => "option of the mount".to_owned(),
            Mechanism::Filter => "system-call filter".to_owned(),
        }
    }
}

/// Returns the table with `open_files` as the limit of each command; `None` leaves it unchanged.
pub fn in_force(open_files: Option<u32>) -> [Bound; BOUNDS.len()] {
    BOUNDS.map(|bound| match (bound.mechanism, open_files) {
        (Mechanism::HardRlimit(Resource::Nofile), Some(count)) => Bound {
            max: count.into(),
            ..bound
        },
        _ => bound,
    })
}

/// Returns all bounds in one line.
pub fn summary(open_files: Option<u32>) -> String {
    format!(
        "at most {}",
        in_force(open_files)
            .map(|bound| bound.to_string())
            .join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::{Verdict, table};

    #[test]
    fn bounds_are_told_with_what_holds_them() {
        let told: Vec<String> = BOUNDS
            .iter()
            .map(|bound| format!("{bound} ({})", bound.mechanism()))
            .collect();
        for line in [
            "256 terminals (option of the mount)",
            "64 inotify instances (user.max_inotify_instances)",
            "16384 open files per process (RLIMIT_NOFILE)",
            "4096 pending signals (RLIMIT_SIGPENDING)",
            "no asynchronous I/O contexts (system-call filter)",
        ] {
            assert!(told.iter().any(|one| one == line), "{line}: {told:?}");
        }
        let line = summary(None);
        assert!(
            line.starts_with("at most 256 terminals, 64 inotify"),
            "{line}"
        );
        assert!(line.contains("16384 open files per process"), "{line}");
        assert!(line.ends_with("no keys"), "{line}");
        let line = summary(Some(100));
        assert!(line.contains(", 100 open files per process"), "{line}");
    }

    /// Bounds whose mechanism is the filter are in the filter.
    #[test]
    fn the_filter_refuses_what_it_is_said_to() {
        for name in ["io_setup", "io_submit", "add_key", "keyctl", "request_key"] {
            let entry = table().iter().find(|entry| entry.name == name).unwrap();
            assert!(
                matches!(entry.verdict, Verdict::Refused | Verdict::Unsupported),
                "{name}: {:?}",
                entry.verdict
            );
        }
    }
}
