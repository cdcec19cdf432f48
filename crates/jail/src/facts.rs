//! Facts about the machine and the caller, read once before planning and plain data afterwards.

use crate::plan::{self, RANGE_IDS};
use crate::system_data;
use glovebox_spec::{CacheDir, Ids, Isolation, RootFs, WorkspaceAccess};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Facts about the host and the caller that a plan depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Effective user id of the caller.
    pub uid: u32,
    /// Effective group id of the caller.
    pub gid: u32,
    /// True if the caller is root of the whole machine and has the capabilities that root mode
    /// needs.
    pub is_privileged: bool,
    /// User id that owns the workspace directory; that of the caller if there is no workspace.
    pub workspace_uid: u32,
    /// Group id of the workspace directory.
    pub workspace_gid: u32,
    /// Paths of [`Isolation::protected`] that can be protected in a live workspace: they exist and
    /// contain no symbolic link. Sorted, and none is below another.
    pub protected: Vec<PathBuf>,
    /// Subordinate ids of the caller. `None` if it has too few or the tools that map them are
    /// missing.
    pub sub_ids: Option<SubIds>,
    /// Entries of `/` that the chosen root shows, sorted by name.
    pub root_entries: Vec<RootEntry>,
    /// Paths below `/proc` that exist and are covered inside; directories end in a slash.
    pub proc_covers: Vec<String>,
    /// Files and directories that hold secrets, for [`RootFs::HostAll`].
    pub secrets: Vec<PathBuf>,
    /// Host paths without symbolic links that are covered wherever a shown directory contains them.
    /// They are listening sockets, since a read-only mount does not prevent connecting, and paths
    /// that this library's caller adds, such as its own state.
    pub covers: Vec<PathBuf>,
    /// Owners of the directories of [`Isolation::caches`] that exist on the host.
    pub cache_owners: Vec<CacheOwner>,
    /// Kernel directories that are shown without translated owners.
    pub kernel_dirs: Vec<PathBuf>,
    /// Directories with data of packages that are shown in addition to [`Self::root_entries`].
    pub package_dirs: Vec<PathBuf>,
    /// True if commands could write to control groups that they can see. Only determined for
    /// [`Isolation::is_nested`], else false.
    pub has_writable_groups: bool,
    /// First host id of the range that owns the generated layers of the root. `None` if ids of this
    /// machine own them, which are translated. Set by the caller of this library, which makes the
    /// layers.
    pub skeleton_first_id: Option<u32>,
}

/// Owner of a host directory that a cache shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheOwner {
    /// Name of the cache, as [`glovebox_spec::CacheDir::name`].
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// One entry of the host's `/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootEntry {
    /// Name of the entry.
    pub name: String,
    /// Kind of the entry.
    pub kind: EntryKind,
}

/// Kind of an entry of `/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(PathBuf),
}

/// Subordinate ids (subuid(5), newuidmap(1)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubIds {
    /// First of at least 65,535 user ids.
    pub first_uid: u32,
    /// First of at least 65,535 group ids.
    pub first_gid: u32,
}

/// Paths below `/proc` that reveal details of the kernel, the keys of other users, or secrets of
/// the machine: boot parameters, names and accounts of its file servers. Paths that only root of
/// the machine may read need no cover, because no process inside is that user.
const PROC_COVERS: [&str; 15] = [
    "cmdline",
    "bootconfig",
    "fs/cifs/",
    "fs/nfsfs/",
    "kcore",
    "keys",
    "key-users",
    "kallsyms",
    "kmsg",
    "latency_stats",
    "timer_list",
    "sched_debug",
    "scsi/",
    "acpi/",
    "asound/",
];

/// Paths below a home directory that hold secrets.
const HOME_SECRETS: [&str; 32] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/hub",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".terraform.d",
    ".vault-token",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".thunderbird",
    ".password-store",
    ".local/share/keyrings",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".node_repl_history",
    ".local/state/glovebox",
];

/// Paths that hold secrets of the machine, or sockets that control it.
const HOST_SECRETS: [&str; 9] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/var/run",
    "/var/lib/docker",
];

impl HostFacts {
    /// Reads the facts that `spec` needs.
    ///
    /// # Errors
    /// Only if the metadata of the workspace or the entries of `/` cannot be read.
    pub fn read(spec: &Isolation) -> io::Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let (workspace_uid, workspace_gid) = match &spec.workspace {
            Some(path) => {
                let meta = fs::metadata(path)?;
                (meta.uid(), meta.gid())
            }
            None => (uid, gid),
        };
        let is_privileged = uid == 0 && is_machine_root();
        Ok(Self {
            uid,
            gid,
            is_privileged,
            workspace_uid,
            workspace_gid,
            protected: protectable(spec),
            sub_ids: if is_privileged || spec.ids != Ids::Range {
                None
            } else {
                sub_ids(uid)
            },
            root_entries: root_entries(&spec.rootfs)?,
            proc_covers: PROC_COVERS
                .iter()
                .filter(|name| {
                    fs::symlink_metadata(Path::new("/proc").join(name))
                        .is_ok_and(|meta| meta.mode() & 0o004 != 0)
                })
                .map(|&name| name.to_owned())
                .collect(),
            secrets: if spec.rootfs == RootFs::HostAll {
                secrets()
            } else {
                Vec::new()
            },
            covers: if spec.rootfs == RootFs::HostAll
                || !spec.grants.is_empty()
                || spec.workspace_access == WorkspaceAccess::Live
            {
                sockets(&fs::read_to_string("/proc/net/unix").unwrap_or_default())
            } else {
                Vec::new()
            },
            cache_owners: cache_owners(spec),
            kernel_dirs: match spec.rootfs {
                RootFs::Host | RootFs::HostAll => system_data::kernel_dirs(),
                RootFs::Dir(_) => Vec::new(),
            },
            // A host-all root shows these directories anyway.
            package_dirs: match spec.rootfs {
                RootFs::Host => system_data::package_dirs(),
                RootFs::HostAll | RootFs::Dir(_) => Vec::new(),
            },
            has_writable_groups: spec.is_nested && !is_privileged && has_writable_groups(),
            skeleton_first_id: None,
        })
    }
}

fn cache_owners(spec: &Isolation) -> Vec<CacheOwner> {
    let owner = |cache: &CacheDir| {
        let found = fs::metadata(cache.source.as_ref()?).ok()?;
        Some(CacheOwner {
            name: cache.name.clone(),
            uid: found.uid(),
            gid: found.gid(),
        })
    };
    spec.caches.iter().filter_map(owner).collect()
}

/// Returns true if the caller may write to its control group in any hierarchy, or if no mount shows
/// that it may not. A namespace that the sandbox makes would have that group as its root.
fn has_writable_groups() -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mounts = group_mounts(&read("/proc/self/mountinfo"));
    let own = read("/proc/self/cgroup");
    let groups = group_paths(&own);
    groups.iter().any(|group| {
        let mut found = mounts
            .iter()
            .map(|mount| mount.join(group.trim_start_matches('/')))
            .filter(|path| path.is_dir())
            .peekable();
        found.peek().is_none()
            || found.any(|path| {
                ["", "cgroup.procs", "cgroup.kill", "tasks"]
                    .iter()
                    .any(|file| {
                        rustix::fs::access(path.join(file), rustix::fs::Access::WRITE_OK).is_ok()
                    })
            })
    })
}

/// Returns the mount points of control-group hierarchies in a table like `/proc/self/mountinfo`
/// (proc(5)).
fn group_mounts(table: &str) -> Vec<PathBuf> {
    table
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let is_group = kind.starts_with("cgroup ") || kind.starts_with("cgroup2 ");
            is_group.then(|| mount.split(' ').nth(4).map(PathBuf::from))?
        })
        .collect()
}

/// Returns the paths of the groups in a table like `/proc/self/cgroup` (cgroups(7)).
fn group_paths(table: &str) -> Vec<&str> {
    table
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .collect()
}

fn protectable(spec: &Isolation) -> Vec<PathBuf> {
    let (Some(project), WorkspaceAccess::Live) = (&spec.workspace, spec.workspace_access) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = spec
        .protected
        .iter()
        .filter(|path| {
            let whole = project.join(path);
            fs::canonicalize(&whole).is_ok_and(|real| real == whole)
        })
        .cloned()
        .collect();
    found.sort_unstable();
    found.dedup_by(|later, earlier| later.starts_with(earlier.as_path()));
    found
}

/// Returns true if uid 0 here is uid 0 of the machine and has the capabilities that root mode
/// needs. In a container's user namespace it is not, and the sandbox is built as for an ordinary
/// user.
pub(crate) fn is_machine_root() -> bool {
    use rustix::thread::CapabilitySet as Caps;
    let needed = Caps::SYS_ADMIN | Caps::SETUID | Caps::SETGID | Caps::CHOWN | Caps::DAC_OVERRIDE;
    let has_caps =
        rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    let has_all_ids = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    has_caps && has_all_ids
}

fn root_entries(rootfs: &RootFs) -> io::Result<Vec<RootEntry>> {
    if matches!(rootfs, RootFs::Dir(_)) {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if !plan::shows(rootfs, &name) {
            continue;
        }
        let kind = match entry.file_type()? {
            kind if kind.is_dir() => EntryKind::Directory,
            kind if kind.is_symlink() => EntryKind::Symlink(fs::read_link(entry.path())?),
            _ => continue,
        };
        entries.push(RootEntry { name, kind });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Returns the paths of the sockets that are bound in this network namespace (unix(7)), if they
/// exist and the caller can resolve them. The table lists neither sockets of containers nor
/// absolute forms of relative paths.
fn sockets(table: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| Some(&line[line.find(" /")? + 1..]))
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn secrets() -> Vec<PathBuf> {
    let mut homes = vec![PathBuf::from("/root")];
    if let Ok(entries) = fs::read_dir("/home") {
        homes.extend(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())));
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    homes.extend(
        passwd
            .lines()
            .filter_map(|line| Some(PathBuf::from(line.split(':').nth(5)?))),
    );
    homes.retain(|home| home.is_absolute());
    homes.sort_unstable();
    homes.dedup();
    let mut found: Vec<PathBuf> = HOST_SECRETS.iter().map(PathBuf::from).collect();
    for home in homes {
        found.extend(HOME_SECRETS.iter().map(|name| home.join(name)));
    }
    // A secret behind a symbolic link is covered at its real path, if that is shown.
    let mut found: Vec<PathBuf> = found
        .into_iter()
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    found.retain(|path| {
        let top = path
            .components()
            .nth(1)
            .and_then(|name| name.as_os_str().to_str());
        top.is_some_and(|name| plan::shows(&RootFs::HostAll, name))
    });
    found.sort_unstable();
    found.dedup();
    found
}

fn sub_ids(uid: u32) -> Option<SubIds> {
    let has_tools = ["newuidmap", "newgidmap"]
        .iter()
        .all(|tool| Path::new("/usr/bin").join(tool).exists());
    if !has_tools {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = login_name(&passwd, uid);
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    Some(SubIds {
        first_uid: first_sub_id(&read("/etc/subuid"), name, uid)?,
        first_gid: first_sub_id(&read("/etc/subgid"), name, uid)?,
    })
}

fn login_name(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

fn first_sub_id(table: &str, name: Option<&str>, uid: u32) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let first: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        let is_ours = Some(owner) == name || owner.parse() == Ok(uid);
        (is_ours && count >= RANGE_IDS - 1).then_some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_where_they_are_mounted() {
        let table = "25 30 0:22 / /proc rw - proc proc rw\n\
                     31 30 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu\n\
                     32 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";
        assert_eq!(
            group_mounts(table),
            [
                Path::new("/sys/fs/cgroup/cpu,cpuacct"),
                Path::new("/sys/fs/cgroup/unified")
            ]
        );
        let own = "4:memory:/a/b:c\n1:name=systemd:/\n0::/x\n";
        assert_eq!(group_paths(own), ["/a/b:c", "/", "/x"]);
    }

    #[test]
    fn subordinate_ids_are_found_by_name_or_number_and_must_suffice() {
        let table = "alice:100000:65536\n1001:300000:65536\nbob:500000:10\n";
        assert_eq!(first_sub_id(table, Some("alice"), 7), Some(100_000));
        assert_eq!(first_sub_id(table, None, 1001), Some(300_000));
        assert_eq!(first_sub_id(table, Some("bob"), 8), None);
    }

    #[test]
    fn bound_sockets_are_found_by_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("with a space");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let table = fs::read_to_string("/proc/net/unix").unwrap();
        assert!(sockets(&table).contains(&fs::canonicalize(&path).unwrap()));
        assert_eq!(
            sockets("Num RefCount Path\n0: 2 0 0 2 1 9 @/abstract\n0: 2 /no/such\n"),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn login_names_come_from_the_third_field() {
        assert_eq!(
            login_name("root:x:0:0::/root:/bin/sh\nme:x:7:7::/:\n", 7),
            Some("me")
        );
    }
}
