//! Comparison of what the first process of a sandbox observed with the plan. Any difference ends
//! the start, so that a report never names a wall that was not observed.

use glovebox_jail::cgroup::GROUPS;
use glovebox_jail::plan::{MapWriter, Plan, Step};
use glovebox_jail::stage0::SelfTest;
use glovebox_jail::stage0::observation::{self, MountEntry, NamespaceId, Observation};
use glovebox_spec::{GUEST_UID, Isolation, Net};
use rustix::io::Errno;
use rustix::process::Resource;
use std::path::{Path, PathBuf};

/// Returns the namespaces of this process, for the comparison. `Err` describes why they are
/// unknown.
pub(super) fn own_namespaces() -> Result<Vec<NamespaceId>, String> {
    observation::own_namespaces().map_err(|error| {
        format!("the namespaces cannot be compared with those of the host ({error})")
    })
}

/// Returns all differences between a sandbox and its plan, one sentence each. `own` is the result
/// of [`own_namespaces`].
pub(super) fn differences(
    spec: &Isolation,
    plan: &Plan,
    found: &SelfTest,
    own: Result<&[NamespaceId], &String>,
) -> Vec<String> {
    match own {
        Ok(own) => compare(spec, plan, found, own),
        Err(wrong) => vec![wrong.clone()],
    }
}

fn compare(spec: &Isolation, plan: &Plan, found: &SelfTest, own: &[NamespaceId]) -> Vec<String> {
    let seen = &found.observed;
    let mut wrong = Vec::new();
    compare_identity(plan, seen, &mut wrong);
    compare_namespaces(spec, plan, seen, own, &mut wrong);
    compare_mounts(plan, &seen.mounts, &mut wrong);
    for (place, errno) in &seen.write_trials {
        // ENOENT means that this kernel lacks the directory.
        let is_refused = [Errno::ROFS, Errno::NOENT]
            .map(Errno::raw_os_error)
            .contains(errno);
        if !is_refused {
            wrong.push(format!("{place} is not read-only"));
        }
    }
    compare_limits(plan, seen, &mut wrong);
    if !seen.unfiltered.is_empty() {
        wrong.push(format!(
            "the system-call filter does not filter: {}",
            seen.unfiltered.join(", ")
        ));
    }
    compare_landlock(spec, found, &mut wrong);
    wrong
}

/// Returns true if the guest has a user id that no command can have.
pub(super) fn has_own_user_id(plan: &Plan, user_ids: [u32; 4]) -> bool {
    let commands = plan.seal.uid;
    plan.identity.writer != MapWriter::Single
        && user_ids == [GUEST_UID, GUEST_UID, commands, commands]
}

fn compare_identity(plan: &Plan, seen: &Observation, wrong: &mut Vec<String>) {
    let [real, effective, saved] = seen.uids;
    // Otherwise all ids are those of commands, which then get a filter of their own.
    let is_guest = seen.uids == [plan.seal.uid; 3]
        || has_own_user_id(plan, [real, effective, saved, plan.seal.uid]);
    if !is_guest || seen.gids != [plan.seal.gid; 3] {
        wrong.push(format!(
            "the guest has the user ids {:?} and the group ids {:?}",
            seen.uids, seen.gids
        ));
    }
    // With a single id the kernel keeps the caller's groups.
    if plan.identity.writer != MapWriter::Single && !seen.groups.is_empty() {
        wrong.push(format!("the guest is in the groups {:?}", seen.groups));
    }
    if seen.cap_inheritable != 0 {
        wrong.push("capabilities can be inherited".to_owned());
    }
    if !seen.is_root_powerless {
        wrong.push("programs executed by root would gain capabilities".to_owned());
    }
    if seen.is_dumpable {
        wrong.push("the guest can be traced by commands".to_owned());
    }
    if !seen.are_streams_null {
        wrong.push("the guest has standard streams of the host".to_owned());
    }
}

fn compare_namespaces(
    spec: &Isolation,
    plan: &Plan,
    seen: &Observation,
    own: &[NamespaceId],
    wrong: &mut Vec<String>,
) {
    for name in observation::NAMESPACES {
        let of = |list: &[NamespaceId]| list.iter().find(|found| found.name == name).cloned();
        let (inside, outside) = (of(&seen.namespaces), of(own));
        let is_shared = inside == outside;
        let may_be_shared = name == "net" && spec.net == Net::Host;
        if inside.is_none() || outside.is_none() {
            wrong.push(format!("the {name} namespace is not known"));
        } else if is_shared && !may_be_shared {
            wrong.push(format!("the {name} namespace is the host's"));
        } else if may_be_shared && !is_shared {
            wrong.push(format!("the {name} namespace is not the host's"));
        }
    }
    if seen.hostname != plan.hostname {
        wrong.push("the host name is not the sandbox's own".to_owned());
    }
    if spec.net.is_own() {
        if seen.interfaces != ["lo"] {
            wrong.push(format!(
                "there are network interfaces besides loopback: {}",
                seen.interfaces.join(", ")
            ));
        }
        if !seen.routes.is_empty() {
            wrong.push(format!(
                "there is a way to other machines: {}",
                seen.routes.join(", ")
            ));
        }
    }
}

fn compare_mounts(plan: &Plan, mounts: &[MountEntry], wrong: &mut Vec<String>) {
    let planned = planned_mounts(plan);
    for wanted in planned.iter().filter(|wanted| wanted.is_required) {
        let found = mounts
            .iter()
            .rev()
            .find(|mount| mount.target.as_path() == wanted.target);
        let is_right = found.is_some_and(|mount| {
            wanted.kind.is_none_or(|kind| mount.kind == kind)
                && (mount.is_read_only || !wanted.is_read_only)
        });
        if !is_right {
            wrong.push(format!(
                "{} is not mounted as planned",
                wanted.target.display()
            ));
        }
    }
    for mount in mounts {
        let target = mount.target.as_path();
        // The planned mount of this target, or the recursive mount that brought it along.
        let nearest = planned
            .iter()
            .filter(|wanted| {
                target == wanted.target
                    || (wanted.is_recursive && target.starts_with(&wanted.target))
            })
            .max_by_key(|wanted| wanted.target.components().count());
        let shown = target.display();
        match nearest {
            None => wrong.push(format!("{shown} is mounted, which was not planned")),
            Some(wanted) if wanted.is_read_only && !mount.is_read_only => {
                wrong.push(format!("{shown} can be written to"));
            }
            Some(_) => {}
        }
        if !mount.is_without_set_user_id {
            wrong.push(format!("set-user-id programs work in {shown}"));
        }
        if !mount.is_without_devices && !target.starts_with("/dev") {
            wrong.push(format!("device nodes work in {shown}"));
        }
        if !mount.is_private {
            wrong.push(format!("{shown} shares mounts with the host"));
        }
    }
}

/// Mount point of [`glovebox_jail::plan::WHOLE_PROC`] below a directory that no command can enter.
const WHOLE_PROC_COVER: &str = "/dev/.proc";
const WHOLE_PROC_MOUNT: &str = "/dev/.proc/proc";

/// Mount of a plan.
struct PlannedMount {
    target: PathBuf,
    /// Type of the file system. `None` for a bind mount, whose type the host decides.
    kind: Option<&'static str>,
    /// True if it must exist. A path that is made read-only or covered may be missing on a machine.
    is_required: bool,
    is_read_only: bool,
    /// True if mounts of the host below the source come along.
    is_recursive: bool,
}

fn planned_mounts(plan: &Plan) -> Vec<PlannedMount> {
    let mount = |target: &Path| PlannedMount {
        target: target.to_owned(),
        kind: None,
        is_required: true,
        is_read_only: false,
        is_recursive: false,
    };
    let mut planned = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Overlay {
                target,
                is_read_only,
                ..
            } => planned.push(PlannedMount {
                kind: Some("overlay"),
                is_read_only: *is_read_only,
                ..mount(target.as_path())
            }),
            Step::Bind { source, target } => {
                let source = plan.sources.get(*source);
                planned.push(PlannedMount {
                    is_read_only: source.is_none_or(|source| source.is_read_only),
                    is_recursive: source.is_some_and(|source| source.is_recursive),
                    ..mount(target.as_path())
                });
            }
            // Mounts that make parts of it read-only or cover them belong to it.
            Step::Proc { .. } => planned.push(PlannedMount {
                kind: Some("proc"),
                is_recursive: true,
                ..mount(Path::new("/proc"))
            }),
            Step::Dev { has_whole_proc, .. } => {
                planned.push(PlannedMount {
                    kind: Some("tmpfs"),
                    is_read_only: true,
                    ..mount(Path::new("/dev"))
                });
                planned.extend(
                    [
                        "/dev/null",
                        "/dev/zero",
                        "/dev/full",
                        "/dev/random",
                        "/dev/urandom",
                        "/dev/tty",
                        "/dev/pts",
                        "/dev/shm",
                    ]
                    .map(|node| mount(Path::new(node))),
                );
                if *has_whole_proc {
                    planned.push(PlannedMount {
                        kind: Some("proc"),
                        ..mount(Path::new(WHOLE_PROC_MOUNT))
                    });
                    planned.push(PlannedMount {
                        is_read_only: true,
                        ..mount(Path::new(WHOLE_PROC_COVER))
                    });
                }
            }
            // A directory is missing if the kernel has no limit for it.
            Step::Groups { views } => {
                let group = |target: &Path| PlannedMount {
                    is_required: false,
                    is_read_only: true,
                    ..mount(target)
                };
                planned.push(group(Path::new(GROUPS)));
                planned.extend(
                    views
                        .iter()
                        .filter(|view| !view.name.is_empty())
                        .map(|view| group(&Path::new(GROUPS).join(&view.name))),
                );
            }
            Step::Cover { target } => planned.push(PlannedMount {
                is_required: false,
                is_read_only: true,
                ..mount(target.as_path())
            }),
        }
    }
    planned
}

fn compare_limits(plan: &Plan, seen: &Observation, wrong: &mut Vec<String>) {
    let wanted = [
        (Resource::Core, Some(1)),
        (Resource::Memlock, Some(64 << 10)),
        (Resource::Fsize, plan.seal.file_bytes),
        (Resource::Nproc, plan.seal.processes),
    ];
    for (resource, most) in wanted {
        let Some(most) = most else { continue };
        let found = seen
            .limits
            .iter()
            .find(|limit| limit.resource == resource as u32);
        let holds = found.is_some_and(|limit| {
            let values = [limit.soft, limit.hard];
            values
                .iter()
                .all(|value| value.is_some_and(|value| value <= most))
        });
        if !holds {
            wrong.push(format!(
                "the limit {resource:?} of the guest's own is not set"
            ));
        }
    }
}

fn compare_landlock(spec: &Isolation, found: &SelfTest, wrong: &mut Vec<String>) {
    let Some(trial) = found.observed.landlock else {
        if found.landlock_abi != 0 {
            wrong.push("the Landlock rules were not tried".to_owned());
        }
        return;
    };
    if !trial.is_refused {
        wrong.push("the Landlock rules refuse nothing".to_owned());
    }
    if !trial.is_granted {
        wrong.push("the Landlock rules refuse what they grant".to_owned());
    }
    let is_scoped = spec.net == Net::Host && found.landlock_abi >= 6;
    if is_scoped && !trial.is_abstract_socket_refused {
        wrong.push("the Landlock rules do not refuse abstract sockets of the host".to_owned());
    }
    if !trial.has_own_descriptors {
        wrong.push("commands share descriptors with the guest".to_owned());
    }
}

#[cfg(test)]
mod tests;
