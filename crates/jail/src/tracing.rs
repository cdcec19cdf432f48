//! Decision whether commands may trace their own children (ptrace(2)), as debuggers, strace and
//! LeakSanitizer do.
//!
//! The facts of the kernel give one answer for the filter of a start, its report and `doctor`.
//! Landlock is the barrier: each command is in a domain of its own, and the kernel lets no process
//! trace beyond its domain. Without Landlock domains the filter refuses the calls.

use serde::{Deserialize, Serialize};

/// Value of `kernel.yama.ptrace_scope` from which on tracing needs a capability that no command
/// has.
const SCOPE_ADMIN_ONLY: u64 = 2;

/// State of tracing in a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tracing {
    /// A command can trace its own children.
    #[default]
    Works,
    /// The kernel has no Landlock.
    WithoutLandlock,
    /// Commands may make namespaces, so they are in no Landlock domain.
    Nested,
    /// Yama refuses it. Holds the value of `kernel.yama.ptrace_scope`.
    Yama(u64),
}

impl Tracing {
    /// Judges by the ABI version of Landlock (0 for none) and by `kernel.yama.ptrace_scope`, if
    /// there is such a setting.
    pub fn judge(landlock_abi: u32, is_nested: bool, ptrace_scope: Option<u64>) -> Self {
        match ptrace_scope {
            _ if landlock_abi == 0 => Self::WithoutLandlock,
            _ if is_nested => Self::Nested,
            Some(scope) if scope >= SCOPE_ADMIN_ONLY => Self::Yama(scope),
            _ => Self::Works,
        }
    }

    /// Returns true if the filter has to refuse tracing, because the kernel would not.
    pub(crate) fn needs_filter(self) -> bool {
        matches!(self, Self::WithoutLandlock | Self::Nested)
    }

    /// Returns the reason why tracing is off; `None` if it works.
    pub fn why_off(self) -> Option<String> {
        match self {
            Self::Works => None,
            Self::WithoutLandlock => Some(
                "without Landlock nothing keeps one command from tracing another, so ptrace is refused"
                    .to_owned(),
            ),
            Self::Nested => Some(
                "commands that may make namespaces are in no Landlock domain, so ptrace is refused".to_owned(),
            ),
            Self::Yama(scope) => Some(format!(
                "kernel.yama.ptrace_scope is {scope}, with which only root may use ptrace"
            )),
        }
    }

    /// Returns advice; `None` if nothing can be changed.
    pub fn remedy(self) -> Option<String> {
        match self {
            Self::Works => None,
            Self::WithoutLandlock => {
                Some("use Linux 5.13 or later with `landlock` in its `lsm=` list".to_owned())
            }
            Self::Nested => Some("debug in a sandbox that holds no others".to_owned()),
            // This value stays until the next start of the machine
            // (Documentation/admin-guide/LSM/Yama.rst).
            Self::Yama(3) => {
                Some("set it to 1 where it is set at boot (/etc/sysctl.d), and restart".to_owned())
            }
            Self::Yama(_) => Some("sudo sysctl kernel.yama.ptrace_scope=1".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracing_takes_a_domain_and_the_consent_of_yama() {
        for (abi, is_nested, scope, expected) in [
            (1, false, None, Tracing::Works),
            (7, false, Some(0), Tracing::Works),
            (7, false, Some(1), Tracing::Works),
            (7, false, Some(2), Tracing::Yama(2)),
            (7, false, Some(3), Tracing::Yama(3)),
            (7, true, Some(0), Tracing::Nested),
            (0, false, Some(0), Tracing::WithoutLandlock),
            (0, true, Some(3), Tracing::WithoutLandlock),
        ] {
            let found = Tracing::judge(abi, is_nested, scope);
            assert_eq!(found, expected);
            assert_eq!(found.why_off().is_none(), found == Tracing::Works);
            assert_eq!(found.remedy().is_none(), found == Tracing::Works);
            assert_eq!(found.needs_filter(), abi == 0 || is_nested);
        }
    }
}
