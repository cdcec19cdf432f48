//! Account of a start: walls and limits for the report, and the verdict on the guest's
//! observations.

use super::disk_quota::DiskLimit;
use super::{controllers, verification, walls};
use crate::report::Identity;
use crate::{CacheFact, CacheKeeping, LimitFact, Name, Report};
use glovebox_jail::bounds;
use glovebox_jail::cgroup::{self, Cgroup, Controller};
use glovebox_jail::launch::LaunchedSandbox;
use glovebox_jail::plan::{MapWriter, Plan};
use glovebox_jail::stage0::SelfTest;
use glovebox_proto::{Code, Fault};
use glovebox_spec::{
    Isolation, Layers, LimitKind, LimitState, RootFs, WORKSPACE, WorkspaceAccess, files_within,
};
use std::path::{Path, PathBuf};

/// Description of sampled memory, if no controller counts it.
const SAMPLED_MEMORY: &str =
    "memory of processes, memory files, shared segments, pipes and sockets is sampled";
/// The same if commands can mount file systems.
const SAMPLED_MEMORY_NESTED: &str = "memory of processes, memory files, shared segments, pipes and sockets is sampled, and not what \
     commands write to file systems in memory that they mount";

/// Returns the package caches, with the treatment of files written to them.
pub(super) fn caches(spec: &Isolation, keeping: CacheKeeping) -> Vec<CacheFact> {
    spec.caches
        .iter()
        .map(|cache| CacheFact {
            name: cache.name.clone(),
            target: cache.target.clone(),
            shows_host: cache.source.is_some(),
            keeping,
        })
        .collect()
}

/// Returns how far each limit of the spec is enforced. `group` is the control group or the reason
/// for having none; `disk` is the mechanism of the disk limit.
pub(super) fn limits(
    spec: &Isolation,
    group: Result<&Cgroup, &str>,
    disk: &DiskLimit,
) -> Vec<LimitFact> {
    use LimitState::{Absent, Approximate, Enforced};
    let from_cgroup = |controller: Controller| -> (LimitState, String) {
        let applied = match group {
            Ok(group) => group.applied(),
            Err(why) => return (Absent, why.to_owned()),
        };
        let state = match controller {
            Controller::Memory => &applied.memory,
            Controller::Cpu => &applied.cpu,
            _ => &applied.pids,
        };
        let version = controllers()
            .place(controller)
            .map_or(0, |(_, version)| version);
        match state {
            cgroup::LimitState::Enforced | cgroup::LimitState::Unlimited => (
                Enforced,
                format!("cgroup v{version}, {}", controller.name()),
            ),
            cgroup::LimitState::Approximate(why) => (Approximate, why.clone()),
            cgroup::LimitState::Absent(why) => (Absent, why.clone()),
        }
    };
    let or_else = |found: (LimitState, String), substitute: &str| match found {
        (Absent, why) => (Approximate, format!("{substitute}; no controller: {why}")),
        held => held,
    };
    spec.limits
        .set()
        .map(|(kind, value)| {
            let (state, mechanism) = match kind {
                LimitKind::Memory => or_else(
                    from_cgroup(Controller::Memory),
                    if spec.is_nested {
                        SAMPLED_MEMORY_NESTED
                    } else {
                        SAMPLED_MEMORY
                    },
                ),
                LimitKind::Cpu => from_cgroup(Controller::Cpu),
                LimitKind::CpuTime => match group {
                    Ok(group) if group.cpu_us().is_some() => {
                        (Enforced, "counted by cgroup v2, looked at five times a second".to_owned())
                    }
                    _ => (
                        Approximate,
                        "times of processes, looked at five times a second, without those of children that \
                         nobody waited for"
                            .to_owned(),
                    ),
                },
                LimitKind::Pids => or_else(
                    from_cgroup(Controller::Pids),
                    "RLIMIT_NPROC of the user namespace",
                ),
                LimitKind::Disk => match spec.layers {
                    Layers::Memory => (
                        Enforced,
                        format!("size of the tmpfs; at most {} files", files_within(value)),
                    ),
                    Layers::Disk => match disk.mechanism() {
                        Ok(mechanism) => (Enforced, mechanism),
                        Err(why) => (
                            Approximate,
                            format!(
                                "RLIMIT_FSIZE for each file; all files, and those without a name that \
                                 are open or mapped, are sampled{why}"
                            ),
                        ),
                    },
                },
                LimitKind::FileSize => (Enforced, "RLIMIT_FSIZE".to_owned()),
                LimitKind::OpenFiles => (Enforced, "RLIMIT_NOFILE of each command".to_owned()),
                LimitKind::Wall => (Enforced, "timer of the owner".to_owned()),
                LimitKind::NetBytes | LimitKind::NetConnections | LimitKind::NetRate => {
                    (Enforced, "proxy of the owner, the only way out".to_owned())
                }
            };
            LimitFact {
                kind,
                value,
                state,
                mechanism,
            }
        })
        .collect()
}

/// Capabilities of the guest, which commands do not inherit: `CAP_KILL` (capabilities(7)).
const CAP_KILL: u64 = 1 << 5;

/// Compares the guest's self-test with the plan. Any difference fails the start; `wrong` holds the
/// differences that were found before.
pub(super) fn judge(found: &SelfTest, plan: &Plan, mut wrong: Vec<String>) -> Result<(), Fault> {
    let mut check = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    check(
        found.pid == 1,
        "the guest is not the first process of its namespace",
    );
    check(
        found.uid == plan.seal.uid && found.gid == plan.seal.gid,
        "commands would run as somebody else",
    );
    check(
        found.user_ids == [plan.seal.uid; 4] || verification::has_own_user_id(plan, found.user_ids),
        "the guest runs as somebody else",
    );
    check(
        found.cap_effective == CAP_KILL && found.cap_permitted == CAP_KILL,
        "the guest has other capabilities than the one to signal commands",
    );
    check(found.cap_bounding == 0, "capabilities can be gained");
    check(found.no_new_privs, "no_new_privs is not set");
    check(
        found.seccomp_mode == 2,
        "no system-call filter is installed",
    );
    check(found.mount_denied, "mounting is possible");
    check(found.vsock_denied, "VSOCK sockets are possible");
    check(
        found.userns_denied || plan.seal.nested.is_some(),
        "user namespaces can be made",
    );
    check(
        found.cwd == WORKSPACE,
        "the working directory is not the workspace",
    );
    // The command supervisor's pidfd and the Landlock ruleset. The two sockets are not counted.
    check(
        found.open_fds.len() <= 2,
        "descriptors of the host are open",
    );
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Fault::failed(
        Code::SelfTestFailed,
        format!(
            "the sandbox did not pass its own checks: {}",
            wrong.join("; ")
        ),
    )
    .remedy("`glovebox doctor` shows what this machine offers; please report this"))
}

/// Adds the wall between commands and the project on the host.
fn workspace_wall(report: &mut Report, spec: &Isolation, plan: &Plan) {
    let hidden = match spec.hidden.len() {
        0 => String::new(),
        count => format!("; {count} names hidden"),
    };
    let Some(project) = &spec.workspace else {
        report.wall(
            "workspace",
            LimitState::Enforced,
            "empty; no host directory",
        );
        return;
    };
    let project_shown = project.display();
    if spec.workspace_access == WorkspaceAccess::ReadOnly {
        let detail = format!("read-only view of {project_shown}; nothing can write there{hidden}");
        report.wall("workspace", LimitState::Enforced, detail);
        return;
    }
    if spec.workspace_access == WorkspaceAccess::Overlay {
        let detail = format!("overlay over {project_shown}; the host is never written{hidden}");
        report.wall("workspace", LimitState::Enforced, detail);
        return;
    }
    let is_held = |path: &Path| {
        plan.sources.iter().any(|source| {
            source.is_read_only && project.join(path).starts_with(source.path.as_path())
        })
    };
    let (held, open): (Vec<_>, Vec<_>) = spec.protected.iter().partition(|path| is_held(path));
    let list = |paths: &[&PathBuf]| {
        let names: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        }
    };
    report.wall(
        "workspace",
        LimitState::Absent,
        format!(
            "LIVE: commands write {project_shown} on the host; read-only in it: {}{hidden}",
            list(&held)
        ),
    );
    if !open.is_empty() {
        report.degraded.push(format!(
            "the live workspace has no {} to protect, so commands can create it and the host may \
             run or obey it",
            list(&open)
        ));
    }
}

/// Returns the isolation report, without the limits.
pub(super) fn report(
    name: &Name,
    spec: &Isolation,
    plan: &Plan,
    launched: &LaunchedSandbox,
    prepared_us: u64,
) -> Report {
    use LimitState::{Approximate, Enforced};
    let found = &launched.self_test;
    let mut report = Report::new("native", name.as_str());
    report.kernel = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    report.identity = Identity {
        mode: match plan.identity.writer {
            MapWriter::Privileged => "leased id range",
            MapWriter::Single => "one id",
            MapWriter::Newuidmap => "subordinate ids",
        }
        .to_owned(),
        inside_uid: Some(found.uid),
        outside_uid: plan.host_uid(found.uid),
        range: plan
            .identity
            .uids
            .first()
            .filter(|_| plan.identity.writer == MapWriter::Privileged)
            .map(|extent| (extent.outside, extent.count)),
    };
    match &spec.rootfs {
        RootFs::Host => {
            report.wall(
                "filesystem",
                Enforced,
                "allow-list of the host's programs and libraries",
            );
        }
        RootFs::HostAll => {
            report.wall(
                "filesystem",
                Approximate,
                "everything the caller can read, less known secrets",
            );
            report.degraded.push(
                "a socket that a program of the host makes later, where files are shown, can be \
                 connected to from inside"
                    .to_owned(),
            );
        }
        RootFs::Dir(path) => {
            report.wall(
                "filesystem",
                Enforced,
                format!("{} as read-only layer", path.display()),
            );
        }
    }
    workspace_wall(&mut report, spec, plan);
    walls::network(&mut report, spec, found);
    let apart = if verification::has_own_user_id(plan, found.user_ids) {
        "a user id of its own"
    } else {
        "a second seccomp filter"
    };
    report.wall(
        "processes",
        Enforced,
        format!(
            "own pid, ipc, uts and cgroup namespaces; {apart} keeps commands from scheduling the guest"
        ),
    );
    report.wall(
        "capabilities",
        Enforced,
        match plan.seal.nested {
            None => {
                "none in any set of a command, none to be gained; the guest keeps CAP_KILL; no_new_privs"
            }
            Some(_) => {
                "none in the sandbox's own namespaces, all in those that a command makes; the guest keeps CAP_KILL; \
                 no_new_privs"
            }
        },
    );
    report.wall(
        "syscalls",
        Enforced,
        match plan.seal.nested {
            None => "seccomp allow-list",
            Some(_) => "seccomp allow-list, with the calls that make namespaces and mounts",
        },
    );
    if plan.seal.nested.is_none() {
        walls::landlock(&mut report, found);
    }
    walls::namespaces(&mut report, plan, found);
    walls::tracing(&mut report, found);
    if found.unset_bounds.is_empty() {
        report.wall(
            "kernel-objects",
            Enforced,
            bounds::summary(plan.seal.open_files),
        );
    } else {
        let unset = found.unset_bounds.join(", ");
        report.wall(
            "kernel-objects",
            Approximate,
            format!(
                "{}; not set: {unset}",
                bounds::summary(plan.seal.open_files)
            ),
        );
        report.degraded.push(format!(
            "the number of {unset} is not bounded: /proc/sys/user cannot be written here"
        ));
    }
    report.degraded.extend(launched.degraded.iter().cloned());
    report.timings_us.push(("prepare".to_owned(), prepared_us));
    report.timings_us.extend(found.timings_us.iter().cloned());
    report
}
