//! Specification of a sandbox, and terms that all crates share: plain data without facts about the
//! machine.
//!
//! The crate performs no I/O and makes no decisions. A crate that only names isolation, limits or
//! the network therefore depends on no code that implements them.

pub mod finding;
pub mod json_path;
mod limits;
pub mod seed;
pub mod token_shapes;

pub use limits::{LimitKind, LimitUnit, Limits, MOST_FILES, OPEN_FILES, files_within};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// Isolation of one sandbox, as the caller chose it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isolation {
    /// Content of `/` in the sandbox.
    pub rootfs: RootFs,
    /// Host directory that appears at `/workspace`, by default as an overlay: readable and writable
    /// inside, never written outside. `None` gives an empty directory.
    #[serde(with = "json_path::option")]
    pub workspace: Option<PathBuf>,
    /// Working directory of commands, relative to the workspace; empty for the workspace itself.
    #[serde(default, with = "json_path")]
    pub start_dir: PathBuf,
    /// Access of commands to the workspace.
    #[serde(default)]
    pub workspace_access: WorkspaceAccess,
    /// Paths relative to the workspace that do not exist inside, whether or not the host has them:
    /// absent under [`WorkspaceAccess::Overlay`], shown empty under [`WorkspaceAccess::Live`].
    #[serde(default, with = "json_path::list")]
    pub hidden: Vec<PathBuf>,
    /// Files that appear with other content, such as a configuration without its credentials.
    #[serde(default)]
    pub replaced: Vec<ReplacedFile>,
    /// Repositories of the workspace that get their own git directory inside instead of the
    /// project's. The project's own repository comes first, if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<SeedRepository>,
    /// Paths relative to the workspace that stay read-only under [`WorkspaceAccess::Live`], because
    /// the host runs or obeys their content (`.git/hooks`, `.git/config`). A path that does not
    /// exist when the sandbox starts cannot be protected: commands can create it.
    #[serde(default, with = "json_path::list")]
    pub protected: Vec<PathBuf>,
    /// Further host paths to mount read-only.
    pub grants: Vec<Grant>,
    /// Directories in which commands may write over the host's content, and which can be kept:
    /// caches of package managers, and build output in the workspace.
    #[serde(default)]
    pub caches: Vec<CacheDir>,
    /// Network of the sandbox.
    pub net: Net,
    /// Visible part of `/proc`.
    pub proc: ProcMode,
    /// Storage of written data.
    pub layers: Layers,
    /// User ids that exist inside.
    pub ids: Ids,
    /// Resource limits.
    pub limits: Limits,
    /// Limits that must hold: a missing one is an error instead of a line in the report.
    pub require: Vec<LimitKind>,
    /// Home directory inside. It is a new directory; its granted parts come from `grants`.
    pub home: PathBuf,
    /// Base environment of every command, as `(name, value)`.
    pub env: Vec<(String, String)>,
    /// Host name inside.
    pub hostname: String,
    /// True if commands may create namespaces, in which they have every capability, for programs
    /// that start their own sandbox. Weaker.
    #[serde(default)]
    pub is_nested: bool,
}

impl Default for Isolation {
    fn default() -> Self {
        Self {
            rootfs: RootFs::Host,
            workspace: None,
            start_dir: PathBuf::new(),
            workspace_access: WorkspaceAccess::Overlay,
            hidden: Vec::new(),
            replaced: Vec::new(),
            repositories: Vec::new(),
            protected: Vec::new(),
            grants: Vec::new(),
            caches: Vec::new(),
            net: Net::None,
            proc: ProcMode::Masked,
            layers: Layers::Disk,
            ids: Ids::Auto,
            limits: Limits::default(),
            require: Vec::new(),
            home: PathBuf::from("/home/sandbox"),
            env: Vec::new(),
            hostname: "glovebox".to_owned(),
            is_nested: false,
        }
    }
}

/// File that appears with other content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacedFile {
    /// A relative path names a file of the workspace. It is an ordinary file inside, but empty
    /// under [`WorkspaceAccess::Live`] unless it is protected. An absolute path names a file of a
    /// grant.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// Content inside the sandbox.
    pub content: Vec<u8>,
}

/// Repository of the workspace that gets its own git directory inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedRepository {
    /// Top directory, relative to the workspace; empty for the workspace itself.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// Git directories outside the project; `None` for a `.git` in the top directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsideGitDirs>,
}

/// Git directories of a linked working tree or a submodule, with symbolic links resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideGitDirs {
    /// Directory with `HEAD` and the index.
    #[serde(with = "json_path")]
    pub git_dir: PathBuf,
    /// Directory with references and objects.
    #[serde(with = "json_path")]
    pub common_dir: PathBuf,
}

impl Isolation {
    /// Returns the files of the workspace that appear with other content.
    pub fn replaced_in_workspace(&self) -> impl Iterator<Item = &ReplacedFile> {
        self.replaced.iter().filter(|file| file.path.is_relative())
    }

    /// Returns the files of grants that appear with other content.
    pub fn replaced_in_grants(&self) -> impl Iterator<Item = &ReplacedFile> {
        self.replaced.iter().filter(|file| file.path.is_absolute())
    }

    /// Returns true if a layer over the project hides or replaces names.
    pub fn has_mask(&self) -> bool {
        !self.hidden.is_empty()
            || !self.repositories.is_empty()
            || self.replaced_in_workspace().next().is_some()
    }

    /// Returns the paths of the workspace that the mask covers with a whiteout: hidden paths, and
    /// each `.git` that the seed provides.
    pub fn masked(&self) -> Vec<PathBuf> {
        let seeded = self.repositories.iter().map(|one| one.path.join(".git"));
        self.hidden.iter().cloned().chain(seeded).collect()
    }
}

/// Content of `/` in the sandbox (isolation design 3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootFs {
    /// Programs and libraries of the host, by allow-list: no homes, no `/run`, no secrets.
    Host,
    /// All host files that the caller can read, except a list of known secrets. Weaker.
    HostAll,
    /// Directory that contains a root file system.
    Dir(PathBuf),
}

impl fmt::Display for RootFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::HostAll => f.write_str("host-all"),
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

/// Access of commands to the workspace's directory on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceAccess {
    /// Through an overlay: written data stays in a layer, and the host's directory is never
    /// written.
    #[default]
    Overlay,
    /// Directly: writes reach the host at once. No isolation.
    Live,
    /// As [`WorkspaceAccess::Overlay`], but read-only for every process inside.
    ReadOnly,
}

impl fmt::Display for WorkspaceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlay => "overlay",
            Self::Live => "live",
            Self::ReadOnly => "read-only",
        })
    }
}

/// Host path mounted read-only inside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Absolute path on the host. Symbolic links in it are resolved before use.
    #[serde(with = "json_path")]
    pub source: PathBuf,
    /// Absolute path inside.
    #[serde(with = "json_path")]
    pub target: PathBuf,
}

/// Directory with an overlay of its own inside, or directory of the workspace that can be kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheDir {
    /// Name, such as `cargo-registry`: lower-case letters, digits and `-`.
    pub name: String,
    /// Absolute path on the host, which is never written; `None` if the host has no content for it.
    #[serde(with = "json_path::option")]
    pub source: Option<PathBuf>,
    /// Absolute path inside.
    #[serde(with = "json_path")]
    pub target: PathBuf,
}

impl CacheDir {
    /// Returns the path relative to the workspace, or `None` for a path elsewhere. A directory of
    /// the workspace has no overlay of its own: commands write to the workspace, and its kept
    /// content is a layer below.
    pub fn in_workspace(&self) -> Option<&Path> {
        self.target.strip_prefix(WORKSPACE).ok()
    }
}

/// Network of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Net {
    /// Own network namespace with only loopback.
    None,
    /// Network of the host, with everything it reaches. No isolation.
    Host,
    /// Own network namespace. Its only way out is through sockets that the first process passes to
    /// the owner.
    Egress,
}

impl Net {
    /// Returns true if the sandbox has its own network namespace.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::None | Self::Egress)
    }
}

/// Visible part of `/proc` (isolation design 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcMode {
    /// Everything; `sys` and similar directories are read-only, kernel internals are covered.
    Masked,
    /// Process directories only (`subset=pid`).
    Pids,
    /// No `/proc`, for hosts whose own `/proc` is masked, where the kernel refuses a new one.
    None,
}

/// Storage of written data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layers {
    /// In the sandbox's state directory. The disk limit is then watched, not enforced.
    Disk,
    /// In memory. The disk limit is then exact, and written data counts as memory.
    Memory,
}

/// User ids that exist inside (isolation design 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ids {
    /// A range if the caller is root, otherwise one id.
    Auto,
    /// Single id: the sandbox user is mapped to the caller.
    Single,
    /// 65,536 ids: a leased range if the caller is root, otherwise from `/etc/subuid`.
    Range,
}

/// Enforcement of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitState {
    /// The kernel enforces the limit.
    Enforced,
    /// The limit is watched, and exceeding it has an effect after a delay.
    Approximate,
    /// The limit does not hold here.
    Absent,
}

impl fmt::Display for LimitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enforced => "enforced",
            Self::Approximate => "approximate",
            Self::Absent => "absent",
        })
    }
}

/// User id of commands inside.
pub const SANDBOX_UID: u32 = 1000;
/// User id of the guest and its per-command supervisors in a sandbox with more than one id. No
/// account has this id and no process inside can take it on, so no process inside can change their
/// scheduling. The guest creates and opens no files as this id. The next id, 65534, is the overflow
/// user id of the kernel.
pub const GUEST_UID: u32 = 65_533;
/// Group id of commands inside.
pub const SANDBOX_GID: u32 = 1000;
/// Login name of [`SANDBOX_UID`] inside.
pub const SANDBOX_USER: &str = "sandbox";
/// Path of the workspace inside.
pub const WORKSPACE: &str = "/workspace";
/// Address of the HTTP proxy inside a sandbox with [`Net::Egress`], for programs that support
/// proxies. It is in the range reserved for network benchmarks (RFC 2544), and no rule of a policy
/// leads to a port of it. The proxy and the ports of rules listen before any command runs, so a
/// command that wants one of these ports finds it in use.
pub const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 808);
