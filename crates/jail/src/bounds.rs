//! What one sandbox may have of the kernel objects that no limit of a spec counts.
//!
//! The machine has a fixed number of some (terminals, asynchronous I/O contexts), shares others among
//! all programs of a user (inotify instances), and keeps memory for each. One table says how many a
//! sandbox gets and by what that holds; stage 0 applies it, `--explain` and the report print it.

use glovebox_spec::OPEN_FILES;
use rustix::process::Resource;
use std::fmt;

/// One kind of kernel object.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// What is counted, in the plural.
    pub name: &'static str,
    /// How many, or how many bytes.
    pub max: u64,
    /// What holds it.
    pub(crate) mechanism: Mechanism,
}

/// What holds a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mechanism {
    /// A limit of each process (getrlimit(2)), soft and hard. Pending signals, message queues and locked
    /// memory are counted for all processes of the sandbox together.
    Rlimit(Resource),
    /// The hard limit alone: commands start with a lower one and may raise theirs up to it.
    HardRlimit(Resource),
    /// A file below `/proc/sys/user`, which belongs to the sandbox's own user namespace (namespaces(7)).
    UserSetting(&'static str),
    /// An option of a mount.
    MountOption,
    /// Refused by the system-call filter.
    Filter,
}

/// Pseudo-terminals. The whole machine has 4096, of which every mount gets any number by default.
pub(crate) const TERMINALS: u64 = 256;

/// Namespaces of each kind that commands may make where they may make any. One sandbox of a program inside takes one
/// of each; a browser takes a few dozen.
pub const NESTED_NAMESPACES: u64 = 256;

/// Settings of the sandbox's user namespace by which that holds, but the one for control groups.
pub(crate) const NAMESPACE_SETTINGS: [&str; 6] = [
    "max_user_namespaces",
    "max_mnt_namespaces",
    "max_pid_namespaces",
    "max_net_namespaces",
    "max_ipc_namespaces",
    "max_uts_namespaces",
];

/// The one for control groups.
pub(crate) const CGROUP_NAMESPACE_SETTING: &str = "max_cgroup_namespaces";

/// All of them, in the order of reports.
pub const BOUNDS: [Bound; 9] = [
    Bound {
        name: "terminals",
        max: TERMINALS,
        mechanism: Mechanism::MountOption,
    },
    // A user of the host has 128 of them for all programs, and a sandbox counts as its owner.
    Bound {
        name: "inotify instances",
        max: 64,
        mechanism: Mechanism::UserSetting("max_inotify_instances"),
    },
    // Enough for a watched tree with all its dependencies; each costs about 1 KiB of kernel memory.
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

/// Commands start with this many open files allowed; programs that close all they may have get slow
/// with more.
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
    /// What holds it, in a few words.
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

/// The table where commands may have `open_files` open files each; `None` leaves it as it is.
pub fn in_force(open_files: Option<u32>) -> [Bound; BOUNDS.len()] {
    BOUNDS.map(|bound| match (bound.mechanism, open_files) {
        (Mechanism::HardRlimit(Resource::Nofile), Some(count)) => Bound {
            max: count.into(),
            ..bound
        },
        _ => bound,
    })
}

/// All bounds in one line.
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

    /// What the table says the filter holds is in the filter.
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
