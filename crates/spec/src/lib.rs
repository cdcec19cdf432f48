//! What a sandbox is wanted to be, and words about it that every crate shares: plain data without any fact about the
//! machine.
//!
//! Nothing here reads or decides anything, so whoever only speaks about walls, limits and the network depends on no
//! code that makes them.

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

/// Everything the caller decides about the isolation of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isolation {
    /// What the sandbox's `/` shows.
    pub rootfs: RootFs,
    /// Host directory that appears at `/workspace` as an overlay: readable and writable inside,
    /// never written outside. `None` gives an empty directory.
    #[serde(with = "json_path::option")]
    pub workspace: Option<PathBuf>,
    /// Where commands start, relative to the workspace; empty for the workspace itself.
    #[serde(default, with = "json_path")]
    pub start_dir: PathBuf,
    /// How commands reach that directory.
    #[serde(default)]
    pub workspace_access: WorkspaceAccess,
    /// Paths relative to the workspace that are not there inside, whatever the host has: absent
    /// under [`WorkspaceAccess::Overlay`], shown as something empty under [`WorkspaceAccess::Live`].
    #[serde(default, with = "json_path::list")]
    pub hidden: Vec<PathBuf>,
    /// Files that are shown with other content, such as a configuration without the credentials in it.
    #[serde(default)]
    pub replaced: Vec<ReplacedFile>,
    /// Repositories of the workspace that get a git directory of their own inside, in place of the project's. The
    /// project's own comes first, if it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<SeedRepository>,
    /// Paths relative to the workspace that stay read-only under [`WorkspaceAccess::Live`], because
    /// the host runs or obeys what is in them (`.git/hooks`, `.git/config`). One that does not exist
    /// when the sandbox starts cannot be protected: commands can create it.
    #[serde(default, with = "json_path::list")]
    pub protected: Vec<PathBuf>,
    /// Further host paths shown read-only.
    pub grants: Vec<Grant>,
    /// Directories that commands may write to over what the host has there, and that can be kept: caches of package
    /// managers, and build output in the workspace.
    #[serde(default)]
    pub caches: Vec<CacheDir>,
    /// Network reach.
    pub net: Net,
    /// How much of `/proc` is shown.
    pub proc: ProcMode,
    /// Where written data lives.
    pub layers: Layers,
    /// Which user ids exist inside.
    pub ids: Ids,
    /// Resource limits.
    pub limits: Limits,
    /// Limits whose absence is an error instead of a line in the report.
    pub require: Vec<LimitKind>,
    /// Home directory inside; a fresh directory whose granted parts come from `grants`.
    pub home: PathBuf,
    /// Base environment of every command, as `(name, value)`.
    pub env: Vec<(String, String)>,
    /// Host name inside.
    pub hostname: String,
    /// Commands may make namespaces of their own, in which they have every capability: for programs that bring a
    /// sandbox along. Weaker.
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

/// A file that is shown with other content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacedFile {
    /// Relative to the workspace: a file there, which inside is one like any other, but under
    /// [`WorkspaceAccess::Live`] shows nothing unless it is protected. Absolute: a file of a grant.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// What it is shown with.
    pub content: Vec<u8>,
}

/// A repository of the workspace that gets a git directory of its own inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedRepository {
    /// Its top directory, relative to the workspace; empty for the workspace itself.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// Its git directories, where they lie outside the project; `None` for a `.git` in its top directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsideGitDirs>,
}

/// Git directories of a linked working tree or a submodule, free of links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideGitDirs {
    /// Directory of `HEAD` and the index.
    #[serde(with = "json_path")]
    pub git_dir: PathBuf,
    /// Directory of references and objects.
    #[serde(with = "json_path")]
    pub common_dir: PathBuf,
}

impl Isolation {
    /// Files of the workspace that are shown with other content.
    pub fn replaced_in_workspace(&self) -> impl Iterator<Item = &ReplacedFile> {
        self.replaced.iter().filter(|file| file.path.is_relative())
    }

    /// Files of grants that are shown with other content.
    pub fn replaced_in_grants(&self) -> impl Iterator<Item = &ReplacedFile> {
        self.replaced.iter().filter(|file| file.path.is_absolute())
    }

    /// Whether a layer of names and contents lies over the project.
    pub fn has_mask(&self) -> bool {
        !self.hidden.is_empty()
            || !self.repositories.is_empty()
            || self.replaced_in_workspace().next().is_some()
    }

    /// Paths of the workspace at which the mask has a whiteout: what is hidden, and each `.git` that lies in the seed.
    pub fn masked(&self) -> Vec<PathBuf> {
        let seeded = self.repositories.iter().map(|one| one.path.join(".git"));
        self.hidden.iter().cloned().chain(seeded).collect()
    }
}

/// What the sandbox's `/` shows (isolation design 3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootFs {
    /// The host's programs and libraries, by allow-list: no homes, no `/run`, no secrets.
    Host,
    /// Everything on the host that the caller can read, less a list of known secrets. Weaker.
    HostAll,
    /// A directory that holds a root file system.
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

/// How commands reach the workspace's directory on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceAccess {
    /// Through an overlay: what they write stays in a layer, and the host's directory is never
    /// written.
    #[default]
    Overlay,
    /// Directly: what they write is written on the host, at once. No wall.
    Live,
    /// As [`WorkspaceAccess::Overlay`], but nothing in it can be written, by anything inside.
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

/// A host path shown read-only inside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Absolute path on the host; symbolic links in it are resolved before use.
    #[serde(with = "json_path")]
    pub source: PathBuf,
    /// Absolute path inside.
    #[serde(with = "json_path")]
    pub target: PathBuf,
}

/// A directory that is an overlay of its own inside, or a directory of the workspace that can be kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheDir {
    /// What it is called, such as `cargo-registry`: lower-case letters, digits and `-`.
    pub name: String,
    /// Absolute path on the host, which is never written; `None` where there is nothing to show.
    #[serde(with = "json_path::option")]
    pub source: Option<PathBuf>,
    /// Absolute path inside.
    #[serde(with = "json_path")]
    pub target: PathBuf,
}

impl CacheDir {
    /// Its path relative to the workspace, where it is a part of that. Then it is no overlay of its own: commands
    /// write to the workspace, and what is kept of it is a layer below.
    pub fn in_workspace(&self) -> Option<&Path> {
        self.target.strip_prefix(WORKSPACE).ok()
    }
}

/// Network reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Net {
    /// An own network namespace with nothing but loopback.
    None,
    /// The host's network, with all it can reach. No wall.
    Host,
    /// An own network namespace whose only way out are sockets that its first process hands to the owner.
    Egress,
}

impl Net {
    /// Whether the sandbox has a network namespace of its own.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::None | Self::Egress)
    }
}

/// How much of `/proc` is shown (isolation design 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcMode {
    /// All of it, `sys` and its like read-only, kernel internals covered.
    Masked,
    /// Process directories only (`subset=pid`).
    Pids,
    /// No `/proc`; for hosts whose own `/proc` is masked, where the kernel refuses a new one.
    None,
}

/// Where written data lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layers {
    /// In the sandbox's state directory. The disk limit is then watched, not enforced.
    Disk,
    /// In memory: the disk limit is exact, and what is written counts as memory.
    Memory,
}

/// Which user ids exist inside (isolation design 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ids {
    /// A range under root; one id otherwise.
    Auto,
    /// One id: the sandbox user is the caller.
    Single,
    /// 65,536 ids: a leased range under root, `/etc/subuid` otherwise.
    Range,
}

/// How well a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitState {
    /// The kernel holds it.
    Enforced,
    /// It is watched and acted upon, with a delay.
    Approximate,
    /// It does not hold here.
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
/// User id of the program on the inside and of its wardens, where a sandbox has more ids than one. No account
/// has it, and no process inside can take it on, so nothing inside may change how they are scheduled; no
/// file is made or opened as it. The last id of a range but two: the next is nobody's (65534).
pub const GUEST_UID: u32 = 65_533;
/// Group id of commands inside.
pub const SANDBOX_GID: u32 = 1000;
/// Login name of [`SANDBOX_UID`] inside.
pub const SANDBOX_USER: &str = "sandbox";
/// Where the workspace appears inside.
pub const WORKSPACE: &str = "/workspace";
/// Address of the HTTP proxy inside a sandbox whose network is [`Net::Egress`], for programs that know of proxies. No
/// rule of a policy leads to a port of this address. It belongs to the range that is kept for measurements of networks
/// (RFC 2544). The proxy listens before any command runs, and so do the ports of rules: a command that wants one of
/// them finds it taken.
pub const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 808);
