//! Tests of detection on simulated machines, and of real control groups on this machine.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;

use crate::sys::clone::{Side, clone_into_group};

use super::*;

const FREEZABLE: Limits = Limits {
    memory_bytes: None,
    cpus: None,
    pids: None,
    can_freeze: true,
};
const SECOND: Duration = Duration::from_secs(1);

/// Makes a tree that looks like a version 2 machine: mount at `sys/cgroup`, our group at `own`.
fn unified_machine(root: &Path, own: &str, own_has_processes: bool) -> DetectCx {
    let mount = root.join("sys/cgroup");
    let own_dir = mount.join(own);
    fs::create_dir_all(&own_dir).unwrap();
    let parent = own_dir.parent().unwrap();
    for dir in [parent, &own_dir] {
        fs::create_dir_all(dir.join(PARENT)).unwrap();
        for place in [dir.to_path_buf(), dir.join(PARENT)] {
            fs::write(place.join("cgroup.subtree_control"), "").unwrap();
            fs::write(place.join("cgroup.type"), "domain\n").unwrap();
            fs::write(place.join("cgroup.procs"), "").unwrap();
        }
    }
    if own_has_processes {
        fs::write(own_dir.join("cgroup.procs"), "12\n34\n").unwrap();
    }
    let proc_self = root.join("proc");
    fs::create_dir_all(&proc_self).unwrap();
    fs::write(
        proc_self.join("mountinfo"),
        "25 1 0:21 / /proc rw - proc proc rw\n30 1 0:27 / /sys/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
    )
    .unwrap();
    fs::write(proc_self.join("cgroup"), format!("0::/{own}\n")).unwrap();
    DetectCx {
        proc_self,
        root: root.to_path_buf(),
    }
}

#[test]
fn a_group_with_processes_gets_siblings_not_children() {
    let root = tempfile::tempdir().unwrap();
    let cx = unified_machine(root.path(), "user.slice/app.slice/term.scope", true);
    let controllers = Controllers::detect(&cx);
    for controller in Controller::ALL {
        let (path, version) = controllers.place(controller).unwrap();
        assert_eq!(version, 2);
        assert!(path.ends_with("user.slice/app.slice"), "{}", path.display());
    }
    let handed_down = root
        .path()
        .join("sys/cgroup/user.slice/app.slice/glovebox/cgroup.subtree_control");
    // The kernel's file would contain all controllers; a plain file keeps the last write.
    assert!(fs::read_to_string(handed_down).unwrap().contains("cpu"));
}

/// A start makes no group for the freezer alone: if limits are in hierarchies of version 1, or
/// nowhere.
#[test]
fn sandboxes_are_stopped_at_once_only_where_their_group_has_a_limit() {
    let usual = Limits::of_sandbox(Some(1 << 30), Some(1.0), Some(100));
    let root = tempfile::tempdir().unwrap();
    let all = Controllers::detect(&unified_machine(root.path(), "delegated", false));
    assert!(all.can_stop(&usual));
    let group = Cgroup::create(&all, "box", &usual).unwrap();
    assert!(group.freezer_of_version_2().is_some());

    let root = tempfile::tempdir().unwrap();
    let freezer_alone = Controllers::detect(&unified_machine(root.path(), "", true));
    assert!(freezer_alone.place(Controller::Freezer).is_some());
    let stops = freezer_alone.can_stop(&usual);
    let group = Cgroup::create(&freezer_alone, "box", &usual);
    let has_freezer = group.is_ok_and(|group| group.freezer_of_version_2().is_some());
    assert_eq!(stops, has_freezer);
}

#[test]
fn an_empty_group_gets_children() {
    let root = tempfile::tempdir().unwrap();
    let cx = unified_machine(root.path(), "delegated", false);
    let controllers = Controllers::detect(&cx);
    let (path, _) = controllers.place(Controller::Memory).unwrap();
    assert!(path.ends_with("delegated"), "{}", path.display());
    assert!(controllers.limits_unified());
}

#[test]
fn with_nothing_visible_above_only_the_freezer_is_left_and_the_reason_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let cx = unified_machine(root.path(), "", true);
    let controllers = Controllers::detect(&cx);
    let why = controllers.why_absent(Controller::Memory).unwrap();
    assert!(
        why.contains("holds processes") && why.contains("Delegate=yes"),
        "{why}"
    );
    assert_eq!(controllers.why_absent(Controller::Freezer), None);
    assert!(!controllers.limits_unified());
    let group = unified_dirs(root.path(), "sys/cgroup");
    let state = LimitState::Absent(why.to_owned());
    let limits = Limits {
        memory_bytes: Some(1 << 30),
        ..FREEZABLE
    };
    let cgroup = Cgroup::create(&controllers, "box", &limits).unwrap();
    assert_eq!(cgroup.applied().memory, state);
    assert_eq!(cgroup.applied().pids, LimitState::Unlimited);
    assert!(group.join("box").is_dir());
}

fn unified_dirs(root: &Path, mount: &str) -> PathBuf {
    root.join(mount).join(PARENT)
}

#[test]
fn a_machine_without_control_groups_says_so() {
    let root = tempfile::tempdir().unwrap();
    let cx = DetectCx {
        proc_self: root.path().to_path_buf(),
        root: root.path().to_path_buf(),
    };
    let controllers = Controllers::detect(&cx);
    for controller in Controller::ALL {
        assert!(
            controllers
                .why_absent(controller)
                .unwrap()
                .contains("mounted")
        );
        assert_eq!(controllers.place(controller), None);
    }
    let limits = Limits {
        cpus: Some(1.0),
        ..FREEZABLE
    };
    let group = Cgroup::create(&controllers, "box", &limits).unwrap();
    assert!(matches!(group.applied().cpu, LimitState::Absent(_)));
    assert!(group.freeze(SECOND).is_err());
    must_remove(group);
}

#[test]
fn mountinfo_of_real_machines_is_understood() {
    // Hybrid machine; our memory group is below the root of its hierarchy.
    let hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                  35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let mounts = parse_pairs(hybrid, "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/x\n");
    assert_eq!(
        mounts,
        [
            (Version::V1, "/sys/fs/cgroup/cpu".into()),
            (Version::V1, "/sys/fs/cgroup/memory/a/b".into()),
            (Version::V2, "/sys/fs/cgroup/unified/x".into()),
        ]
    );
    // Container with version 1: the mount shows only its own part, under the host's name.
    let docker = "9 8 0:3 /docker/77 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let mounts = parse_pairs(docker, "4:memory:/docker/77\n");
    assert_eq!(mounts, [(Version::V1, "/sys/fs/cgroup/memory".into())]);
    // Mount from another cgroup namespace, in which our path does not exist.
    let foreign = "9 8 0:3 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let mounts = parse_pairs(foreign, "0::/../../etc\n");
    assert_eq!(mounts, [(Version::V2, "/sys/fs/cgroup".into())]);
    let broken = "x\n9 8\n - cgroup2\n9 8 0:3 / /a - cgroup\n";
    assert_eq!(parse_pairs(broken, "::\n0\n0::/\n"), []);
}

fn parse_pairs(mountinfo: &str, membership: &str) -> Vec<(Version, PathBuf)> {
    let mounts = detect::parse(mountinfo, membership);
    mounts.into_iter().map(|m| (m.version, m.own)).collect()
}

/// Makes a version 2 group with files as the kernel would have filled them.
fn unified_group(root: &Path) -> (hierarchy::Hierarchy, OwnedFd) {
    let dir = root.join(PARENT).join("box");
    fs::create_dir_all(&dir).unwrap();
    let files = [
        ("memory.max", "max"),
        ("memory.swap.max", "max"),
        ("pids.max", "max"),
        ("cpu.max", "max 100000"),
        ("cgroup.freeze", "0"),
        (
            "memory.events",
            "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n",
        ),
        ("memory.current", "4096\n"),
        ("memory.peak", "8192\n"),
        ("pids.events", "max 7\n"),
        ("cgroup.events", "populated 1\nfrozen 1\n"),
    ];
    for (file, content) in files {
        fs::write(dir.join(file), content).unwrap();
    }
    let hierarchy = hierarchy::Hierarchy {
        version: Version::V2,
        base: rustix::fs::open(root, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap(),
        path: root.to_path_buf(),
        serves: Controller::ALL.to_vec(),
    };
    let fd = hierarchy.open_child("box").unwrap();
    (hierarchy, fd)
}

#[test]
fn version_2_files_are_written_and_read_in_their_format() {
    let root = tempfile::tempdir().unwrap();
    let (hierarchy, fd) = unified_group(root.path());
    let limits = Limits {
        memory_bytes: Some(536_870_912),
        cpus: Some(1.5),
        pids: Some(100),
        can_freeze: true,
    };
    for controller in Controller::ALL {
        hierarchy
            .set_limit(fd.as_fd(), controller, &limits)
            .unwrap();
    }
    hierarchy.set_frozen(fd.as_fd(), true).unwrap();
    let dir = root.path().join(PARENT).join("box");
    // A write does not truncate a plain file, so it begins with the text the kernel would have
    // received.
    let starts = |file: &str, value: &str| {
        let content = fs::read_to_string(dir.join(file)).unwrap();
        assert!(content.starts_with(value), "{file}: {content}");
    };
    starts("memory.max", "536870912");
    starts("memory.swap.max", "0");
    starts("pids.max", "100");
    starts("cpu.max", "150000 100000");
    starts("cgroup.freeze", "1");
    assert_eq!(
        hierarchy::read_keyed(fd.as_fd(), hierarchy.memory_events(), "oom_kill"),
        Some(3),
        "not oom_group_kill, not oom"
    );
    assert_eq!(hierarchy.memory_current(fd.as_fd()), Some(4096));
    assert_eq!(hierarchy.memory_peak(fd.as_fd()), Some(8192));
    assert!(hierarchy.is_frozen(fd.as_fd()));
    // A missing swap file is no error, but a missing memory controller is.
    fs::remove_file(dir.join("memory.swap.max")).unwrap();
    hierarchy
        .set_limit(fd.as_fd(), Controller::Memory, &limits)
        .unwrap();
    fs::remove_file(dir.join("memory.max")).unwrap();
    let (file, errno) = hierarchy
        .set_limit(fd.as_fd(), Controller::Memory, &limits)
        .unwrap_err();
    assert_eq!((file, errno), ("memory.max", Errno::NOENT));
}

#[test]
fn names_that_are_paths_or_kernel_files_are_refused() {
    let controllers = Controllers::detect(&DetectCx {
        proc_self: PathBuf::from("/nonexistent"),
        root: PathBuf::from("/nonexistent"),
    });
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "cgroup.procs",
        "a b",
        "\u{e9}",
        &"x".repeat(65),
    ] {
        let result = Cgroup::create(&controllers, name, &FREEZABLE);
        assert!(matches!(result, Err(Error::Name(_))), "{name}");
        assert!(controllers.adopt(name).is_none());
    }
    for cpus in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let limits = Limits {
            cpus: Some(cpus),
            ..Limits::default()
        };
        let result = Cgroup::create(&controllers, "box", &limits);
        assert!(matches!(result, Err(Error::Cpus(_))), "{cpus}");
    }
}

/// Returns the controllers of this machine if all of `needed` are available.
fn real(needed: &[Controller]) -> Option<Controllers> {
    let controllers = Controllers::detect(&DetectCx::default());
    for controller in needed {
        if let Some(why) = controllers.why_absent(*controller) {
            testkit::skip_loudly(module_path!(), format!("{}: {why}", controller.name()));
            return None;
        }
    }
    Some(controllers)
}

/// Returns the controllers of this machine if this version serves the needed one.
fn real_by(needed: Controller, version: u8) -> Option<Controllers> {
    let controllers = real(&[needed])?;
    if controllers
        .place(needed)
        .is_some_and(|(_, by)| by == version)
    {
        return Some(controllers);
    }
    testkit::skip_loudly(
        module_path!(),
        format!("no version {version} hierarchy here"),
    );
    None
}

fn name(test: &str) -> String {
    format!("test-{test}-{}", std::process::id())
}

/// Starts a shell that waits for a line on its input, then runs `script`.
fn shell(script: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("read go; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).unwrap()
}

fn go(child: &mut Child) {
    use std::io::Write as _;
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
}

fn must_remove(mut group: Cgroup) {
    group.remove(5 * SECOND).unwrap();
}

#[test]
fn a_real_group_counts_limits_freezes_kills_and_goes() {
    let Some(controllers) = real(&Controller::ALL) else {
        return;
    };
    let name = name("whole");
    let limits = Limits {
        memory_bytes: Some(256 << 20),
        cpus: Some(0.5),
        pids: Some(12),
        can_freeze: true,
    };
    let mut group = Cgroup::create(&controllers, &name, &limits).unwrap();
    let enforced = LimitStates {
        memory: LimitState::Enforced,
        cpu: LimitState::Enforced,
        pids: LimitState::Enforced,
    };
    assert_eq!(*group.applied(), enforced);
    let again = Cgroup::create(&controllers, &name, &limits);
    assert!(matches!(again, Err(Error::Exists(_))), "{again:?}");

    let mut child = shell("(while :; do sleep 600 & done); exec sleep 600");
    group.attach(pid_of(&child)).unwrap();
    assert_eq!(*group.applied(), enforced);
    assert_eq!(group.pids_current(), Some(1));
    go(&mut child);
    let begun = Instant::now();
    while group.forks_refused() == 0 {
        assert!(
            begun.elapsed() < 10 * SECOND,
            "the pids limit never refused a fork"
        );
        thread::sleep(Duration::from_millis(5));
    }
    assert!(group.pids_current().unwrap() <= 12);
    assert!(group.memory_current().unwrap() > 0);
    assert!(group.memory_peak().unwrap() >= group.memory_current().unwrap() / 2);
    assert!(controllers.list_ours("test-").contains(&name));
    assert!(!controllers.list_ours("other-").contains(&name));

    group.freeze(5 * SECOND).unwrap();
    group.thaw().unwrap();
    group.kill_all().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
        Some(9)
    );
    must_remove(group);
    assert!(!controllers.list_ours("test-").contains(&name));
    assert!(controllers.adopt(&name).is_none());
}

#[test]
fn a_real_memory_limit_kills_and_counts() {
    let Some(controllers) = real(&[Controller::Memory]) else {
        return;
    };
    let limits = Limits {
        memory_bytes: Some(32 << 20),
        ..Limits::default()
    };
    let mut group = Cgroup::create(&controllers, &name("oom"), &limits).unwrap();
    let mut child = shell("exec tail /dev/zero");
    group.attach(pid_of(&child)).unwrap();
    assert_eq!(group.oom_kills(), 0);
    go(&mut child);
    assert!(!child.wait().unwrap().success());
    assert_eq!(group.oom_kills(), 1);
    must_remove(group);
}

#[test]
fn a_process_walks_in_by_itself() {
    let Some(controllers) = real(&[Controller::Memory]) else {
        return;
    };
    let limits = Limits {
        memory_bytes: Some(32 << 20),
        ..Limits::default()
    };
    let group = Cgroup::create(&controllers, &name("walk"), &limits).unwrap();
    let entrances = group.entrances().unwrap();
    if controllers.place(Controller::Memory).unwrap().1 == 2 {
        assert!(entrances.is_empty());
    }
    if entrances.is_empty() {
        return;
    }
    let paths = entrances.iter().map(|entrance| {
        let fd = std::os::fd::AsRawFd::as_raw_fd(entrance);
        std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap()
    });
    let script =
        "for tasks; do echo 0 >\"$tasks\" || exit 0; done; exec tail /dev/zero 2>/dev/null";
    let status = std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .args(paths)
        .status()
        .unwrap();
    assert!(!status.success());
    assert_eq!(group.oom_kills(), 1);
    must_remove(group);
}

#[test]
fn a_frozen_process_makes_no_progress_and_dies_when_killed() {
    use std::io::Read as _;
    let Some(controllers) = real(&[Controller::Freezer]) else {
        return;
    };
    let mut group = Cgroup::create(&controllers, &name("freeze"), &FREEZABLE).unwrap();
    let mut child = shell("echo ran; sleep 600");
    group.attach(pid_of(&child)).unwrap();
    group.freeze(5 * SECOND).unwrap();
    go(&mut child);
    let mut out = child.stdout.take().unwrap();
    let state = fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
    thread::sleep(Duration::from_millis(50));
    let mut poll = [rustix::event::PollFd::new(
        &out,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::time::Timespec::default();
    assert_eq!(
        rustix::event::poll(&mut poll, Some(&now)).unwrap(),
        0,
        "ran while frozen ({state})"
    );
    group.thaw().unwrap();
    let mut line = [0u8; 4];
    out.read_exact(&mut line).unwrap();
    group.freeze(5 * SECOND).unwrap();
    group.kill_all().unwrap();
    child.wait().unwrap();
    must_remove(group);
}

#[test]
fn an_orphaned_group_is_found_killed_and_removed() {
    let Some(controllers) = real(&[Controller::Freezer]) else {
        return;
    };
    let name = name("orphan");
    let mut group = Cgroup::create(&controllers, &name, &FREEZABLE).unwrap();
    let mut child = shell("sleep 600 & sleep 600");
    group.attach(pid_of(&child)).unwrap();
    go(&mut child);
    drop(group);
    let mut found = controllers.adopt(&name).unwrap();
    let error = found.remove(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    found.kill_all().unwrap();
    child.wait().unwrap();
    must_remove(found);
}

#[test]
fn a_process_is_born_in_its_group() {
    let Some(controllers) = real_by(Controller::Freezer, 2) else {
        return;
    };
    let name = name("born");
    let mut group = Cgroup::create(&controllers, &name, &FREEZABLE).unwrap();
    let dir = group.unified_dir().unwrap();
    let (pid, pidfd) = match clone_into_group(0, dir).unwrap() {
        // The child is a copy of a process with several threads, so it may only sleep until it is
        // killed.
        Side::Child => loop {
            let hour = rustix::thread::Timespec {
                tv_sec: 3600,
                tv_nsec: 0,
            };
            let _ = rustix::thread::nanosleep(&hour);
        },
        Side::Parent { pid, pidfd } => (pid, pidfd),
    };
    let of = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).unwrap();
    assert!(
        of.lines()
            .any(|line| line.starts_with("0::") && line.ends_with(&format!("{PARENT}/{name}"))),
        "{of}"
    );
    assert_eq!(group.processes(), [pid]);
    group.kill_all().unwrap();
    rustix::process::waitid(
        rustix::process::WaitId::PidFd(pidfd.as_fd()),
        rustix::process::WaitIdOptions::EXITED,
    )
    .unwrap();
    group.remove(SECOND).unwrap();
}

#[test]
fn version_1_kills_by_freezing() {
    let Some(controllers) = real_by(Controller::Pids, 1) else {
        return;
    };
    // The same machine without its version 2 mount.
    let root = tempfile::tempdir().unwrap();
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.contains("cgroup2")).collect();
    let legacy = lines.join("\n");
    fs::write(root.path().join("mountinfo"), legacy).unwrap();
    fs::copy("/proc/self/cgroup", root.path().join("cgroup")).unwrap();
    let cx = DetectCx {
        proc_self: root.path().to_path_buf(),
        root: PathBuf::from("/"),
    };
    let legacy = Controllers::detect(&cx);
    assert_eq!(legacy.place(Controller::Freezer).unwrap().1, 1);
    let mut group = Cgroup::create(&legacy, &name("legacy"), &FREEZABLE).unwrap();
    assert!(group.unified_dir().is_none());
    let mut child = shell("while :; do sleep 0.001 & done");
    group.attach(pid_of(&child)).unwrap();
    go(&mut child);
    thread::sleep(Duration::from_millis(30));
    group.kill_all().unwrap();
    child.wait().unwrap();
    must_remove(group);
    drop(controllers);
}

#[test]
fn what_keeps_a_limit_from_being_held_comes_with_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let controllers = Controllers::detect(&DetectCx {
        proc_self: empty.path().to_owned(),
        root: empty.path().to_owned(),
    });
    for controller in Controller::ALL {
        let why = controllers.why_absent(controller).unwrap_or_default();
        let (_, remedy) = why.split_once("; ").unwrap_or_default();
        assert!(remedy.contains("mount -t cgroup"), "{why}");
    }
    // A version 1 hierarchy that is mounted, but whose directory is not visible here.
    let machine = tempfile::tempdir().unwrap();
    fs::create_dir(machine.path().join("proc")).unwrap();
    let mountinfo = "30 1 0:30 / /sys/memory rw - cgroup cgroup rw,memory\n";
    fs::write(machine.path().join("proc/mountinfo"), mountinfo).unwrap();
    fs::write(machine.path().join("proc/cgroup"), "4:memory:/\n").unwrap();
    let controllers = Controllers::detect(&DetectCx {
        proc_self: machine.path().join("proc"),
        root: machine.path().to_owned(),
    });
    let why = controllers
        .why_absent(Controller::Memory)
        .unwrap_or_default();
    assert!(why.contains("/sys/memory") && why.contains("; "), "{why}");
}
