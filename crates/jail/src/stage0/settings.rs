//! Settings of the new user namespace, below `/proc/sys/user` (namespaces(7)).
//!
//! Precondition: the caller holds its capabilities in that namespace. Commands hold none, so they
//! cannot raise the values from inside.

use super::{Context as _, FailedStep};
use crate::bounds::{BOUNDS, CGROUP_NAMESPACE_SETTING, Mechanism, NAMESPACE_SETTINGS};
use crate::plan::NestedNamespaces;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// Sets the limits of the sandbox's user namespace: the number of namespaces below it, and the
/// bounds that are settings of it. Without `nested` that number is 0, even if the system-call
/// filter fails. Returns the names of the bounds that this kernel, or a container around us, does
/// not allow to be set.
pub(super) fn set_user_namespace(
    nested: Option<NestedNamespaces>,
) -> Result<Vec<String>, FailedStep> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The settings belong to the namespace of the writing process. So the host's own /proc works as
    // well as the new one, which is already read-only.
    let dir = match rustix::fs::openat(CWD, "/proc/sys/user", flags, Mode::empty()) {
        Err(Errno::NOENT) => None,
        other => Some(other.cannot("open the settings of the user namespace")?),
    };
    let set = |name: &str, value: u64| -> Result<bool, Errno> {
        let Some(dir) = &dir else {
            return Ok(false);
        };
        match rustix::fs::openat(dir, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => {
                rustix::io::write(&file, value.to_string().as_bytes())?;
                Ok(true)
            }
            Err(Errno::NOENT | Errno::ROFS) => Ok(false),
            Err(errno) => Err(errno),
        }
    };
    let mut unset = Vec::new();
    if let Some(nested) = nested {
        let step = "limit the namespaces that commands make";
        let mut is_bounded = true;
        for name in NAMESPACE_SETTINGS {
            is_bounded &= set(name, nested.namespaces).cannot(step)?;
        }
        let are_groups_set =
            set(CGROUP_NAMESPACE_SETTING, nested.cgroup_namespaces).cannot(step)?;
        if !are_groups_set && nested.cgroup_namespaces == 0 {
            // No other mechanism keeps commands from the groups that are writable there.
            let step = "forbid namespaces of control groups, in which commands could write";
            return Err(FailedStep::new(step, Errno::ROFS));
        }
        if !(is_bounded && are_groups_set) {
            unset.push("namespaces".to_owned());
        }
    } else {
        // If it cannot be set, seccomp still refuses, and the self-test reports the value.
        set("max_user_namespaces", 0).cannot("forbid further user namespaces")?;
    }
    for bound in &BOUNDS {
        let Mechanism::UserSetting(name) = bound.mechanism else {
            continue;
        };
        if !set(name, bound.max).cannot(&format!("limit {}", bound.name))? {
            unset.push(bound.name.to_owned());
        }
    }
    Ok(unset)
}
