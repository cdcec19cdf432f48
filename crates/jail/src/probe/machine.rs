//! Settings and surroundings that explain why a primitive is refused on this machine. Read once,
//! plain data afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Kind of environment that the program runs in, if it matters for a remedy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surroundings {
    /// A machine or a virtual machine of its own.
    #[default]
    Machine,
    /// A Docker container.
    Docker,
    /// A Podman container.
    Podman,
    /// A pod of Kubernetes.
    Kubernetes,
    /// Some other container.
    Container,
    /// Windows Subsystem for Linux 1, which has no Linux kernel.
    Wsl1,
    /// gVisor, which answers system calls itself.
    Gvisor,
}

impl Surroundings {
    /// Returns a noun with its article, for a sentence.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Machine => "a machine",
            Self::Docker => "a Docker container",
            Self::Podman => "a Podman container",
            Self::Kubernetes => "a pod of Kubernetes",
            Self::Container => "a container",
            Self::Wsl1 => "WSL 1",
            Self::Gvisor => "gVisor",
        }
    }

    /// Returns true if settings of the machine can only be changed from outside.
    pub const fn is_container(self) -> bool {
        matches!(
            self,
            Self::Docker | Self::Podman | Self::Kubernetes | Self::Container
        )
    }
}

/// Bounding set that Docker gives by default: 14 capabilities.
const DOCKER_BOUNDING_SET: u64 = 0xa804_25fb;
/// Paths below `/proc` that container engines mask.
const ENGINE_MASKS: [&str; 2] = ["/proc/keys", "/proc/timer_list"];

/// Facts about this machine, apart from the results of probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel_release: String,
    /// The caller's user id.
    pub uid: u32,
    /// Environment that this program runs in.
    pub surroundings: Surroundings,
    /// `kernel.apparmor_restrict_unprivileged_userns`; `None` where the kernel has no such setting.
    pub apparmor_restrict_unprivileged_userns: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, a setting of Debian and Arch kernels.
    pub unprivileged_userns_clone: Option<u64>,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `vm.memfd_noexec`.
    pub memfd_noexec: Option<u64>,
    /// `kernel.yama.ptrace_scope`; `None` where the kernel has no such setting.
    pub ptrace_scope: Option<u64>,
    /// True if a filter that is not ours applies to this process (`Seccomp: 2` of proc(5)).
    pub is_filtered: bool,
    /// True if mounts cover parts of this `/proc`, which forbids mounting a new one in a user
    /// namespace.
    pub is_proc_masked: bool,
    /// True if SELinux is enforcing.
    pub is_selinux_enforcing: bool,
    /// Type of the file system that holds the state directory.
    pub state_fs: String,
    /// True if newuidmap and newgidmap are installed.
    pub has_newidmap: bool,
    /// Numbers of subordinate user ids and group ids of the caller.
    pub sub_ids: (u64, u64),
    /// Path of this program, for remedies.
    pub program: PathBuf,
    /// The state directory, for remedies.
    pub state_dir: PathBuf,
}

impl Machine {
    /// Reads the facts below `root` (`/`). A setting that cannot be read counts as not set.
    pub fn read(root: &Path, state_dir: &Path, program: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let number = |path: &str| text(path).trim().parse().ok();
        let status = text("proc/self/status");
        let field = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        let uid = field("Uid")
            .get(1)
            .and_then(|uid| uid.parse().ok())
            .unwrap_or_default();
        let mounts = text("proc/self/mountinfo");
        let kernel_release = text("proc/sys/kernel/osrelease").trim().to_owned();
        let login = login_name(&text("etc/passwd"), uid);
        let count = |table: &str| sub_id_count(&text(table), login.as_deref(), uid);
        Self {
            uid,
            surroundings: match surroundings(root, &kernel_release, &text("proc/version")) {
                Surroundings::Machine => unmarked_container(&mounts, &field("CapBnd")),
                marked => marked,
            },
            kernel_release,
            apparmor_restrict_unprivileged_userns: number(
                "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            ),
            unprivileged_userns_clone: number("proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: number("proc/sys/user/max_user_namespaces"),
            memfd_noexec: number("proc/sys/vm/memfd_noexec"),
            ptrace_scope: number("proc/sys/kernel/yama/ptrace_scope"),
            is_filtered: field("Seccomp") == ["2"],
            is_proc_masked: mount_points(&mounts).any(|(point, _)| is_proc_mask(point)),
            is_selinux_enforcing: number("sys/fs/selinux/enforce") == Some(1),
            state_fs: file_system_of(&mounts, state_dir),
            has_newidmap: ["newuidmap", "newgidmap"]
                .iter()
                .all(|tool| is_installed(root, tool)),
            sub_ids: (count("etc/subuid"), count("etc/subgid")),
            program: program.to_path_buf(),
            state_dir: state_dir.to_path_buf(),
        }
    }

    /// Returns the major and minor version; zeroes if the release has another form.
    pub(super) fn kernel(&self) -> (u32, u32) {
        let mut numbers = self
            .kernel_release
            .split(|c: char| !c.is_ascii_digit())
            .map(|digits| digits.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }
}

fn surroundings(root: &Path, release: &str, version: &str) -> Surroundings {
    // gVisor always claims this kernel version and build date.
    if version.starts_with("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016") {
        return Surroundings::Gvisor;
    }
    // WSL 2 has a real kernel, whose release ends in "microsoft-standard-WSL2".
    if release.ends_with("-Microsoft") {
        return Surroundings::Wsl1;
    }
    let there = |path: &str| root.join(path).exists();
    if there("var/run/secrets/kubernetes.io") || there("run/secrets/kubernetes.io") {
        Surroundings::Kubernetes
    } else if there("run/.containerenv") {
        Surroundings::Podman
    } else if there(".dockerenv") {
        Surroundings::Docker
    } else if there("run/systemd/container") {
        Surroundings::Container
    } else {
        Surroundings::Machine
    }
}

/// Recognises a container without a marker file: its root is an overlay, and its engine has masked
/// paths or removed capabilities.
fn unmarked_container(mountinfo: &str, bounding_set: &[&str]) -> Surroundings {
    let is_overlay = mount_points(mountinfo).any(|mount| mount == ("/", "overlay"));
    let is_masked = mount_points(mountinfo).any(|(point, _)| ENGINE_MASKS.contains(&point));
    let set = bounding_set
        .first()
        .and_then(|set| u64::from_str_radix(set, 16).ok());
    match set {
        Some(DOCKER_BOUNDING_SET) if is_overlay => Surroundings::Docker,
        // Bit 21 is CAP_SYS_ADMIN, which every engine removes from unprivileged containers.
        Some(set) if is_overlay && (is_masked || set & (1 << 21) == 0) => Surroundings::Container,
        _ => Surroundings::Machine,
    }
}

/// Returns the mount points and file system types of `mountinfo`.
fn mount_points(mountinfo: &str) -> impl Iterator<Item = (&str, &str)> {
    mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        Some((left.split(' ').nth(4)?, right.split(' ').next()?))
    })
}

fn is_proc_mask(point: &str) -> bool {
    // Every systemd machine has an automount of binfmt_misc, on an empty directory. It does not
    // count.
    point.starts_with("/proc/") && point != "/proc/sys/fs/binfmt_misc"
}

/// Returns the type of the file system that `path` is on: that of the last of the longest mount
/// points above it.
fn file_system_of(mountinfo: &str, path: &Path) -> String {
    let mut best = (0, "");
    for (point, kind) in mount_points(mountinfo) {
        let depth = Path::new(point).components().count();
        if path.starts_with(point) && depth >= best.0 {
            best = (depth, kind);
        }
    }
    best.1.to_owned()
}

fn is_installed(root: &Path, tool: &str) -> bool {
    [
        "usr/bin",
        "usr/sbin",
        "bin",
        "usr/local/bin",
        "run/wrappers/bin",
    ]
    .iter()
    .any(|dir| {
        let meta = fs::metadata(root.join(dir).join(tool));
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

fn login_name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Returns the total number of subordinate ids that `table` (subuid(5)) gives the user.
fn sub_id_count(table: &str, login: Option<&str>, uid: u32) -> u64 {
    let counts = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.trim().split(':').collect();
        let [owner, _, count] = fields[..] else {
            return None;
        };
        let is_ours = Some(owner) == login || owner.parse() == Ok(uid);
        if is_ours {
            count.parse::<u64>().ok()
        } else {
            None
        }
    });
    counts.fold(0, u64::saturating_add)
}
