//! Verdicts: turn results of probes and settings of the machine into findings. The functions are
//! pure, so that tests can judge machines that are not available. Each function checks causes from
//! the most to the least specific.

use std::path::PathBuf;

use rustix::io::Errno;

use super::machine::{Machine, Surroundings};
use super::{Outcome, Probe};
use crate::cgroup::Controller;
use crate::tracing::Tracing;
use glovebox_spec::finding::{Finding, FindingState};

/// Number of ids that package managers of a distribution need.
const ID_RANGE: u64 = 65_535;

/// Returns the finding for `outcome` of `probe` on `machine`.
pub fn judge(probe: Probe, outcome: &Outcome, machine: &Machine) -> Finding {
    let (step, errno) = match outcome {
        Outcome::Worked(detail) => return worked(probe, detail),
        Outcome::NotRun(why) => {
            return finding(
                probe,
                weight(probe),
                format!("the probe itself could not run: {why}"),
                Some("check that this program may be executed from memory or from where it is installed".to_owned()),
            );
        }
        Outcome::Failed { step, errno } => (step.as_str(), Errno::from_raw_os_error(*errno)),
    };
    let seen = format!("{step} was refused: {}", std::io::Error::from(errno));
    match step {
        "user-namespace" | "setgroups" | "uid-map" | "gid-map" if probe != Probe::UserNamespace => {
            let detail = "not tried: it needs user namespaces, which are refused here".to_owned();
            return finding(probe, weight(probe), detail, None);
        }
        _ => {}
    }
    let remedy = match probe {
        Probe::UserNamespace => user_namespace(step, errno, machine),
        Probe::MountNamespace | Probe::NewMountApi | Probe::NetworkNamespace => {
            namespace(errno, machine)
        }
        Probe::PidNamespace => pid_namespace(step, errno, machine),
        Probe::Overlay => overlay(step, errno, machine),
        Probe::IdmappedMount if step == "range-map" => Some(
            "give root CAP_SETUID and CAP_SETGID over the whole id range; without id maps files are copied instead".to_owned(),
        ),
        Probe::IdmappedMount if errno == Errno::NOSYS => namespace(errno, machine),
        Probe::IdmappedMount => Some(format!(
            "put the state directory on ext4, xfs, btrfs or tmpfs (it is on {}), or accept that files are copied instead of mapped",
            machine.state_fs
        )),
        Probe::Seccomp | Probe::Landlock if step.ends_with("-effect") => Some(
            "the kernel accepts the rules and does not apply them: a filter or an emulation around us answers in its place: use another machine or container".to_owned(),
        ),
        Probe::Seccomp => Some("use a kernel with CONFIG_SECCOMP_FILTER".to_owned()),
        Probe::Landlock => Some(if machine.kernel() < (5, 13) {
            "use Linux 5.13 or later; without Landlock the mounts still hold the policy".to_owned()
        } else {
            "add `landlock` to the `lsm=` list of the kernel command line (or build with CONFIG_SECURITY_LANDLOCK); without it the mounts still hold the policy".to_owned()
        }),
        Probe::MemfdExec => memfd_exec(errno, machine),
        Probe::Terminal => Some("mount devpts on /dev/pts with ptmxmode=666 (containers: run with a normal /dev)".to_owned()),
    };
    // A sandbox starts without Landlock, but not with a ruleset that has no effect.
    let state = match step {
        "landlock-effect" => FindingState::Missing,
        _ => weight(probe),
    };
    finding(probe, state, seen, remedy)
}

/// Returns the state of a finding whose `probe` failed.
fn weight(probe: Probe) -> FindingState {
    match probe {
        Probe::IdmappedMount | Probe::Landlock | Probe::MemfdExec | Probe::Terminal => {
            FindingState::Degraded
        }
        _ => FindingState::Missing,
    }
}

fn worked(probe: Probe, detail: &str) -> Finding {
    let detail = match (probe, detail) {
        (_, "") => "works".to_owned(),
        (Probe::Landlock, abi) => {
            let older = ["ABI 1", "ABI 2", "ABI 3", "ABI 4", "ABI 5"];
            let scope = if older.contains(&abi) {
                " (6 and later also cut off abstract sockets of other processes)"
            } else {
                ""
            };
            format!("{abi}{scope}")
        }
        (_, fact) => format!("works; {fact}"),
    };
    finding(probe, FindingState::Ok, detail, None)
}

fn title(probe: Probe) -> &'static str {
    match probe {
        Probe::UserNamespace => "user namespaces",
        Probe::MountNamespace => "private mounts",
        Probe::NewMountApi => "mounts by descriptor",
        Probe::NetworkNamespace => "own network",
        Probe::PidNamespace => "own processes and /proc",
        Probe::Overlay => "writable layer over read-only files",
        Probe::IdmappedMount => "id-mapped mounts",
        Probe::Seccomp => "system call filter",
        Probe::Landlock => "Landlock",
        Probe::MemfdExec => "programs run from memory",
        Probe::Terminal => "terminals",
    }
}

fn finding(probe: Probe, state: FindingState, detail: String, remedy: Option<String>) -> Finding {
    Finding {
        id: probe.id().to_owned(),
        title: title(probe).to_owned(),
        state,
        detail,
        remedy,
    }
}

/// Returns true for a refusal for lack of permission, in either of the kernel's two errnos.
fn is_denied(errno: Errno) -> bool {
    errno == Errno::PERM || errno == Errno::ACCESS
}

fn user_namespace(step: &str, errno: Errno, machine: &Machine) -> Option<String> {
    if let Some(remedy) = not_linux(machine) {
        return Some(remedy);
    }
    if errno == Errno::NOSPC || machine.max_user_namespaces == Some(0) {
        return outside_container(machine, persistently("user.max_user_namespaces", "15000"));
    }
    if step == "user-namespace" && is_denied(errno) {
        if machine.unprivileged_userns_clone == Some(0) && machine.uid != 0 {
            return outside_container(
                machine,
                persistently("kernel.unprivileged_userns_clone", "1"),
            );
        }
        if let Some(remedy) = outer_filter(machine) {
            return Some(remedy);
        }
    }
    if let Some(remedy) = app_armor(errno, machine) {
        return Some(remedy);
    }
    if errno == Errno::INVAL || errno == Errno::NOSYS {
        return Some("use a kernel with CONFIG_USER_NS".to_owned());
    }
    if step != "user-namespace" && machine.uid == 0 && is_denied(errno) {
        return Some(
            "give root CAP_SETFCAP (containers drop it): mapping id 0 needs it since Linux 5.12"
                .to_owned(),
        );
    }
    selinux(machine)
}

fn namespace(errno: Errno, machine: &Machine) -> Option<String> {
    not_linux(machine)
        .or_else(|| app_armor(errno, machine))
        .or_else(|| is_denied(errno).then(|| outer_filter(machine)).flatten())
        .or_else(|| {
            (errno == Errno::NOSYS).then(|| {
                outer_filter(machine).unwrap_or_else(|| {
                    format!("use Linux 5.12 or later (this is {})", machine.kernel_release)
                })
            })
        })
        .or_else(|| {
            (errno == Errno::NOSPC)
                .then(|| "raise the limits user.max_mnt_namespaces, user.max_net_namespaces and user.max_pid_namespaces".to_owned())
        })
        .or_else(|| selinux(machine))
}

fn pid_namespace(step: &str, errno: Errno, machine: &Machine) -> Option<String> {
    if step == "proc" && is_denied(errno) && machine.is_proc_masked {
        return Some(match machine.surroundings {
            Surroundings::Kubernetes => {
                "the container's /proc is masked: set `procMount: Unmasked` (with `hostUsers: false`) in the pod's securityContext".to_owned()
            }
            Surroundings::Podman => {
                "the container's /proc is masked: start it with `--security-opt unmask=ALL`".to_owned()
            }
            _ => "the container's /proc is masked: start it with `--security-opt systempaths=unconfined`".to_owned(),
        });
    }
    namespace(errno, machine)
}

fn overlay(step: &str, errno: Errno, machine: &Machine) -> Option<String> {
    let state_dir = machine.state_dir.display();
    if step == "state-dir" {
        return Some(format!(
            "make {state_dir} a directory this user can write to"
        ));
    }
    if ["overlay", "fuse.fuse-overlayfs"].contains(&machine.state_fs.as_str()) {
        return Some(format!(
            "{state_dir} is itself on an overlay, which cannot hold another one's writable layer, so sandboxes keep theirs in memory; on a volume they are on disk, for example `--mount type=volume,dst={state_dir}`"
        ));
    }
    if errno == Errno::NODEV {
        return Some("load the module: sudo modprobe overlay".to_owned());
    }
    if is_denied(errno) && machine.kernel() < (5, 11) {
        return Some(format!(
            "overlays in a user namespace need Linux 5.11 (this is {}), for root as well",
            machine.kernel_release
        ));
    }
    if step == "opaque" || [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTSUP].contains(&errno) {
        return Some(format!(
            "{state_dir} is on {}, which cannot hold a writable layer (no extended attributes or no rename flags): use ext4, xfs or btrfs, or tmpfs with Linux 6.6 and later",
            machine.state_fs
        ));
    }
    namespace(errno, machine)
}

fn memfd_exec(errno: Errno, machine: &Machine) -> Option<String> {
    if machine.memfd_noexec.is_some_and(|level| level > 0) || is_denied(errno) {
        return Some("vm.memfd_noexec or a security module forbids programs in memory: install the program on the inside as a file".to_owned());
    }
    selinux(machine)
}

/// Returns the remedy for environments without a Linux kernel.
fn not_linux(machine: &Machine) -> Option<String> {
    match machine.surroundings {
        Surroundings::Wsl1 => Some("this is WSL 1, which has no Linux kernel: convert it with `wsl --set-version <distribution> 2`".to_owned()),
        Surroundings::Gvisor => Some("this is gVisor, which does not offer what native sandboxes need: use another backend here, gVisor already contains it".to_owned()),
        _ => None,
    }
}

/// Returns the remedy for AppArmor's restriction. On Ubuntu 23.10 and later a namespace can be
/// created but not used.
fn app_armor(errno: Errno, machine: &Machine) -> Option<String> {
    let restricts = machine
        .apparmor_restrict_unprivileged_userns
        .is_some_and(|value| value != 0);
    if !restricts || machine.uid == 0 || !is_denied(errno) || machine.surroundings.is_container() {
        return None;
    }
    let program = machine.program.display();
    Some(format!(
        "user namespaces are restricted by AppArmor (kernel.apparmor_restrict_unprivileged_userns=1). Pick one: \
         1) allow this program alone, with these lines in /etc/apparmor.d/glovebox: \
         `abi <abi/4.0>, include <tunables/global> profile glovebox {program} flags=(unconfined) {{ userns, }}`, \
         then `sudo apparmor_parser -r /etc/apparmor.d/glovebox` (the program must be a root-owned file); \
         2) run as root; 3) use another backend"
    ))
}

/// Returns the remedy for a filter that was installed around this process, such as that of a
/// container engine.
fn outer_filter(machine: &Machine) -> Option<String> {
    if !machine.is_filtered {
        return None;
    }
    let what = match machine.surroundings {
        Surroundings::Docker => {
            "start the container with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`, or with a seccomp profile that allows clone, unshare, mount and the new mount calls"
        }
        Surroundings::Podman => {
            "start the container with `--security-opt seccomp=unconfined`, or with a seccomp profile that allows clone, unshare, mount and the new mount calls"
        }
        Surroundings::Kubernetes => {
            "set `seccompProfile: {type: Unconfined}` in the pod's securityContext, or a Localhost profile that allows clone, unshare, mount and the new mount calls"
        }
        _ => {
            "the system call filter around this process forbids namespaces: it has to be changed by what started this process"
        }
    };
    Some(what.to_owned())
}

fn selinux(machine: &Machine) -> Option<String> {
    (machine.is_selinux_enforcing && !machine.surroundings.is_container()).then(|| {
        "SELinux enforces here: look for the denial with `sudo ausearch -m avc -ts recent` and allow it for this program".to_owned()
    })
}

/// Returns a remedy for the machine's administrator. `None` in a container, from inside which it
/// cannot be followed.
fn outside_container(machine: &Machine, remedy: String) -> Option<String> {
    (!machine.surroundings.is_container()).then_some(remedy)
}

/// Returns a command that changes a setting now and after the next boot.
fn persistently(setting: &str, value: &str) -> String {
    format!(
        "echo '{setting} = {value}' | sudo tee /etc/sysctl.d/60-glovebox.conf && sudo sysctl -p /etc/sysctl.d/60-glovebox.conf"
    )
}

/// Compares the kernel's version with the versions that sandboxes need.
pub(super) fn kernel(machine: &Machine) -> Finding {
    let (state, remedy) = match (machine.surroundings, machine.kernel()) {
        (Surroundings::Wsl1 | Surroundings::Gvisor, _) => {
            (FindingState::Missing, not_linux(machine))
        }
        (_, version) if version < (5, 12) => (
            FindingState::Missing,
            Some("native sandboxes need Linux 5.12 or later".to_owned()),
        ),
        (_, version) if version < (5, 13) => (
            FindingState::Degraded,
            Some("Linux 5.13 adds Landlock, the second wall around files".to_owned()),
        ),
        _ => (FindingState::Ok, None),
    };
    Finding {
        id: "kernel".to_owned(),
        title: "kernel".to_owned(),
        state,
        detail: format!("Linux {}", machine.kernel_release),
        remedy,
    }
}

/// Judges whether programs inside can be debugged.
pub(super) fn tracing(machine: &Machine, has_landlock: bool) -> Finding {
    let tracing = Tracing::judge(u32::from(has_landlock), false, machine.ptrace_scope);
    let (state, detail) = match tracing.why_off() {
        None => (FindingState::Ok, "works".to_owned()),
        Some(why) => (FindingState::Degraded, format!("off: {why}")),
    };
    Finding {
        id: "tracing".to_owned(),
        title: "gdb, strace, LeakSanitizer".to_owned(),
        state,
        detail,
        remedy: tracing
            .remedy()
            .and_then(|remedy| outside_container(machine, remedy)),
    }
}

/// Judges whether more than one user id can exist inside.
pub(super) fn id_ranges(machine: &Machine) -> Finding {
    let has_ranges = machine.sub_ids.0 >= ID_RANGE && machine.sub_ids.1 >= ID_RANGE;
    let (state, detail, remedy) = if machine.uid == 0 {
        (
            FindingState::Ok,
            "root takes a range of its own for each sandbox".to_owned(),
            None,
        )
    } else if !has_ranges {
        (
            FindingState::Degraded,
            "one user id inside: changing owners fails there, and so do package managers of the distribution".to_owned(),
            outside_container(machine, "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER".to_owned()),
        )
    } else if !machine.has_newidmap {
        (
            FindingState::Degraded,
            "ranges are assigned in /etc/subuid and /etc/subgid, but newuidmap is missing to use them".to_owned(),
            outside_container(machine, "install it: sudo apt install uidmap (Debian, Ubuntu), sudo dnf install shadow-utils (Fedora)".to_owned()),
        )
    } else {
        (
            FindingState::Ok,
            format!(
                "{} user ids, {} group ids",
                machine.sub_ids.0, machine.sub_ids.1
            ),
            None,
        )
    };
    Finding {
        id: "id-ranges".to_owned(),
        title: "several users inside".to_owned(),
        state,
        detail,
        remedy,
    }
}

/// Adds to the finding of a usable freezer that sandboxes do not get it.
pub(super) fn weaken_freezer(found: &mut Finding) {
    if found.state == FindingState::Ok {
        found.state = FindingState::Degraded;
        found.detail.push_str(
            ", where sandboxes have no group of their own: their processes are stopped one by one",
        );
    }
}

/// Judges a controller by the path where it is available, or by the reason why it is not.
pub(super) fn controller(
    controller: Controller,
    place: Option<(PathBuf, u8)>,
    why_absent: Option<&str>,
) -> Finding {
    let (state, detail, remedy) = if let Some((path, version)) = place {
        let detail = format!("control groups version {version} in {}", path.display());
        (FindingState::Ok, detail, None)
    } else {
        let why = why_absent.unwrap_or("not available");
        // The reason ends with a remedy, if there is one.
        let (why, remedy) = match why.split_once("; ") {
            Some((why, remedy)) => (why, Some(remedy.to_owned())),
            None => (why, None),
        };
        (FindingState::Degraded, why.to_owned(), remedy)
    };
    let title = match controller {
        Controller::Memory => "memory limit",
        Controller::Pids => "process limit",
        Controller::Cpu => "processor limit",
        Controller::Freezer => "freezing and killing at once",
        Controller::CpuAccount => "counting processor time",
        Controller::CpuSet => "naming processors",
    };
    Finding {
        id: format!("cgroup-{}", controller.name()),
        title: title.to_owned(),
        state,
        detail,
        remedy,
    }
}
