//! Verdicts on machines that are not available, from their simulated answers.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use glovebox_spec::finding::FindingState;

const EPERM: i32 = 1;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;

fn ordinary() -> Machine {
    Machine {
        kernel_release: "6.8.0-31-generic".to_owned(),
        uid: 1000,
        max_user_namespaces: Some(60_000),
        state_fs: "ext4".to_owned(),
        program: PathBuf::from("/usr/local/bin/glovebox"),
        state_dir: PathBuf::from("/var/lib/glovebox"),
        ..Machine::default()
    }
}

fn failed(probe: Probe, step: &str, errno: i32, machine: &Machine) -> Finding {
    let outcome = Outcome::Failed {
        step: step.to_owned(),
        errno,
    };
    judge(probe, &outcome, machine)
}

fn remedy(probe: Probe, step: &str, errno: i32, machine: &Machine) -> String {
    failed(probe, step, errno, machine).remedy.unwrap()
}

#[test]
fn ubuntu_with_app_armor_gets_a_profile_for_this_program_only() {
    let ubuntu = Machine {
        apparmor_restrict_unprivileged_userns: Some(1),
        ..ordinary()
    };
    let refusals = [
        (Probe::UserNamespace, "uid-map", EPERM),
        (Probe::UserNamespace, "user-namespace", EACCES),
        (Probe::MountNamespace, "private-mounts", EACCES),
        (Probe::NetworkNamespace, "loopback-up", EPERM),
        (Probe::PidNamespace, "proc", EPERM),
        (Probe::Overlay, "overlay", EPERM),
    ];
    for (probe, step, errno) in refusals {
        let finding = failed(probe, step, errno, &ubuntu);
        assert_eq!(finding.state, FindingState::Missing);
        let remedy = finding.remedy.unwrap();
        assert!(
            remedy.contains(
                "profile glovebox /usr/local/bin/glovebox flags=(unconfined) { userns, }"
            )
        );
        assert!(
            !remedy.contains("sysctl"),
            "switching it off for everybody is no remedy: {remedy}"
        );
        assert!(remedy.find("profile").unwrap() < remedy.find("run as root").unwrap());
    }
    // The setting does not affect root, nor failures with another cause.
    let root = Machine {
        uid: 0,
        ..ubuntu.clone()
    };
    assert!(!remedy(Probe::UserNamespace, "uid-map", EPERM, &root).contains("AppArmor"));
    assert!(remedy(Probe::Overlay, "overlay", ENODEV, &ubuntu).contains("modprobe overlay"));
}

#[test]
fn settings_that_forbid_user_namespaces_are_named() {
    let rhel = Machine {
        max_user_namespaces: Some(0),
        ..ordinary()
    };
    let text = remedy(Probe::UserNamespace, "user-namespace", ENOSPC, &rhel);
    assert!(
        text.contains("user.max_user_namespaces = 15000") && text.contains("/etc/sysctl.d/"),
        "{text}"
    );
    let debian = Machine {
        unprivileged_userns_clone: Some(0),
        ..ordinary()
    };
    let text = remedy(Probe::UserNamespace, "user-namespace", EPERM, &debian);
    assert!(
        text.contains("kernel.unprivileged_userns_clone = 1"),
        "{text}"
    );
    assert!(
        remedy(Probe::UserNamespace, "user-namespace", EINVAL, &ordinary())
            .contains("CONFIG_USER_NS")
    );
}

#[test]
fn containers_get_the_option_of_their_engine() {
    let container = |surroundings| Machine {
        surroundings,
        is_filtered: true,
        is_proc_masked: true,
        uid: 0,
        ..ordinary()
    };
    let refused = |surroundings| {
        remedy(
            Probe::UserNamespace,
            "user-namespace",
            EPERM,
            &container(surroundings),
        )
    };
    assert!(refused(Surroundings::Docker).contains("--security-opt seccomp=unconfined"));
    assert!(refused(Surroundings::Podman).contains("--security-opt seccomp=unconfined"));
    assert!(refused(Surroundings::Kubernetes).contains("seccompProfile"));
    assert!(refused(Surroundings::Machine).contains("filter around this process"));
    let proc = |surroundings| remedy(Probe::PidNamespace, "proc", EPERM, &container(surroundings));
    assert!(proc(Surroundings::Docker).contains("systempaths=unconfined"));
    assert!(proc(Surroundings::Podman).contains("unmask=ALL"));
    assert!(proc(Surroundings::Kubernetes).contains("procMount: Unmasked"));
    let mounts = remedy(
        Probe::NewMountApi,
        "open-tree",
        ENOSYS,
        &container(Surroundings::Docker),
    );
    assert!(mounts.contains("seccomp=unconfined"));
}

#[test]
fn overlays_fail_for_reasons_that_are_told_apart() {
    let on_overlay = Machine {
        state_fs: "overlay".to_owned(),
        ..ordinary()
    };
    let text = remedy(Probe::Overlay, "overlay", EINVAL, &on_overlay);
    assert!(
        text.contains("/var/lib/glovebox") && text.contains("volume"),
        "{text}"
    );
    let old = Machine {
        kernel_release: "5.4.0-150-generic".to_owned(),
        ..ordinary()
    };
    assert!(remedy(Probe::Overlay, "overlay", EPERM, &old).contains("5.11"));
    let nfs = Machine {
        state_fs: "nfs4".to_owned(),
        ..ordinary()
    };
    assert!(remedy(Probe::Overlay, "overlay", EINVAL, &nfs).contains("nfs4"));
    assert!(remedy(Probe::Overlay, "state-dir", EACCES, &nfs).contains("write to"));
    let in_memory = Machine {
        state_fs: "tmpfs".to_owned(),
        ..ordinary()
    };
    assert!(remedy(Probe::Overlay, "opaque", EIO, &in_memory).contains("6.6"));
}

#[test]
fn what_is_only_weaker_without_is_not_missing() {
    let landlock = failed(Probe::Landlock, "landlock", 95, &ordinary());
    assert_eq!(landlock.state, FindingState::Degraded);
    assert!(landlock.remedy.unwrap().contains("lsm="));
    let old = Machine {
        kernel_release: "5.10.0".to_owned(),
        ..ordinary()
    };
    assert!(remedy(Probe::Landlock, "landlock", ENOSYS, &old).contains("5.13"));
    assert!(remedy(Probe::IdmappedMount, "idmap", ENOSYS, &old).contains("5.12"));
    assert_eq!(verdict::kernel(&old).state, FindingState::Missing);
    assert_eq!(verdict::kernel(&ordinary()).state, FindingState::Ok);
    assert_eq!(
        failed(Probe::MemfdExec, "exec", EACCES, &ordinary()).state,
        FindingState::Degraded
    );
    assert_eq!(
        failed(Probe::Seccomp, "seccomp", EINVAL, &ordinary()).state,
        FindingState::Missing
    );
}

#[test]
fn one_cause_is_reported_once() {
    let finding = failed(Probe::Overlay, "user-namespace", EPERM, &ordinary());
    assert!(finding.detail.contains("needs user namespaces"));
    assert_eq!(finding.remedy, None);
}

#[test]
fn kernels_that_are_none_are_recognised() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let read = || {
        Machine::read(
            root.path(),
            Path::new("/state/x"),
            Path::new("/bin/glovebox"),
        )
    };
    write("proc/sys/kernel/osrelease", "4.4.0-19041-Microsoft\n");
    assert_eq!(read().surroundings, Surroundings::Wsl1);
    assert!(
        remedy(Probe::UserNamespace, "user-namespace", EINVAL, &read())
            .contains("wsl --set-version")
    );
    write(
        "proc/sys/kernel/osrelease",
        "5.15.90.1-microsoft-standard-WSL2\n",
    );
    assert_eq!(read().surroundings, Surroundings::Machine);
    write(
        "proc/version",
        "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n",
    );
    assert_eq!(read().surroundings, Surroundings::Gvisor);
    assert_eq!(verdict::kernel(&read()).state, FindingState::Missing);
}

#[test]
fn a_machine_is_read_from_its_files() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "proc/self/status",
        "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nSeccomp:\t2\nSeccomp_filters:\t1\n",
    );
    write(
        "proc/self/mountinfo",
        "1 0 0:1 / / rw - overlay overlay rw\n2 1 0:2 / /proc rw - proc proc rw\n\
         3 2 0:3 / /proc/kcore rw - tmpfs tmpfs rw\n4 1 0:4 / /state rw - ext4 /dev/sda rw\n",
    );
    write("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n");
    write(
        "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1\n",
    );
    write(
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n",
    );
    write("etc/subuid", "bob:1:2\nann:100000:65536\n1000:300000:10\n");
    write("etc/subgid", "ann:100000:65536\n");
    write(".dockerenv", "");
    let machine = Machine::read(
        root.path(),
        Path::new("/state/x"),
        Path::new("/bin/glovebox"),
    );
    assert_eq!(machine.surroundings, Surroundings::Docker);
    assert_eq!(machine.kernel(), (6, 1));
    assert_eq!((machine.uid, machine.sub_ids), (1000, (65_546, 65_536)));
    assert!(machine.is_filtered && machine.is_proc_masked && !machine.has_newidmap);
    assert_eq!(machine.state_fs, "ext4");
    assert_eq!(machine.apparmor_restrict_unprivileged_userns, Some(1));
    assert_eq!(machine.unprivileged_userns_clone, None);
    let in_container = verdict::id_ranges(&machine);
    assert_eq!(in_container.state, FindingState::Degraded);
    assert_eq!(in_container.remedy, None, "nobody inside can install it");
    let machine = Machine {
        surroundings: Surroundings::Machine,
        ..machine
    };
    assert!(
        verdict::id_ranges(&machine)
            .remedy
            .unwrap()
            .contains("uidmap")
    );
}

#[test]
fn container_without_a_mark_is_known_by_root_masks_and_capabilities() {
    let surroundings = |mounts: &str, bounding_set: &str| {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc/self");
        fs::create_dir_all(&proc).unwrap();
        fs::write(proc.join("mountinfo"), mounts).unwrap();
        fs::write(proc.join("status"), format!("CapBnd:\t{bounding_set}\n")).unwrap();
        Machine::read(root.path(), Path::new("/"), Path::new("")).surroundings
    };
    let overlay = "1 0 0:1 / / rw - overlay overlay rw\n";
    let masked = format!("{overlay}2 1 0:2 / /proc/keys rw - tmpfs tmpfs rw\n");
    let (docker, all) = ("00000000a80425fb", "000001ffffffffff");
    assert_eq!(surroundings(overlay, docker), Surroundings::Docker);
    assert_eq!(
        surroundings(&masked, "0000000000000000"),
        Surroundings::Container
    );
    assert_eq!(surroundings(&masked, all), Surroundings::Container);
    assert_eq!(surroundings(overlay, all), Surroundings::Machine);
    let disk = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
    assert_eq!(surroundings(disk, docker), Surroundings::Machine);
}

#[test]
fn controllers_split_reason_and_remedy() {
    let finding = verdict::controller(
        Controller::Memory,
        None,
        Some("it is not ours; start it elsewhere"),
    );
    assert_eq!(
        (finding.state, finding.detail.as_str()),
        (FindingState::Degraded, "it is not ours")
    );
    assert_eq!(finding.remedy.as_deref(), Some("start it elsewhere"));
    let finding = verdict::controller(Controller::Pids, Some((PathBuf::from("/x"), 2)), None);
    assert_eq!(finding.state, FindingState::Ok);
}

#[test]
fn outcomes_survive_the_pipe_and_nonsense_does_not_pass_for_success() {
    for outcome in [
        Outcome::Worked("ABI 7".to_owned()),
        Outcome::Worked(String::new()),
        Outcome::Failed {
            step: "uid-map".to_owned(),
            errno: 1,
        },
        Outcome::NotRun("no".to_owned()),
    ] {
        assert_eq!(Outcome::parse(&format!("{outcome}\n")), outcome);
    }
    for nonsense in [
        "",
        "\n",
        "failed",
        "failed x",
        "failed x y",
        "okay",
        "Segmentation fault",
    ] {
        let parsed = Outcome::parse(nonsense);
        assert!(
            matches!(parsed, Outcome::NotRun(_)),
            "{nonsense}: {parsed:?}"
        );
    }
}
