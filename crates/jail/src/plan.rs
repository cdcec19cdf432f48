//! Planning: turns an [`Isolation`] spec and the machine's [`HostFacts`] into an ordered [`Plan`].
//!
//! Planning is pure. It makes no system call, so a plan can be printed, compared and tested for
//! machines that are not available. [`crate::stage0`] applies the steps in order and checks again
//! what may have changed since the facts were read.

mod builder;
mod caches;
mod nested;

pub use crate::byte_path::BytePath;
use crate::cgroup::{GROUPS, GroupView};
use crate::facts::{EntryKind, HostFacts};
use crate::processors::Processors;
use crate::seed::Seed;
use builder::Builder;
pub use caches::{FrozenCache, cache_layer};
use glovebox_spec::{
    Ids, Isolation, Layers, Net, ProcMode, RootFs, SANDBOX_GID, SANDBOX_UID, WORKSPACE,
};
pub use nested::NestedNamespaces;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Number of ids in a range. It covers every account of a distribution.
pub const RANGE_IDS: u32 = 65_536;
/// First host id of the ranges leased under root. `systemd`'s table of id ranges leaves
/// 0x70000000 to 0x7fffffff unused.
pub const RANGE_BASE: u32 = 0x7000_0000;
/// Number of ranges that can be leased.
pub const RANGE_SLOTS: u32 = 4096;

/// Returns the first host id of the range that `slot` leases under root.
pub const fn first_id(slot: u32) -> u32 {
    RANGE_BASE + slot * RANGE_IDS
}

/// Returns the first id of the leased range that contains a host id. `None` if no leased range
/// contains it.
pub fn range_of(id: u32) -> Option<u32> {
    let slot = id.checked_sub(RANGE_BASE)? / RANGE_IDS;
    (slot < RANGE_SLOTS).then_some(RANGE_BASE + slot * RANGE_IDS)
}

/// Paths and ids on the host that belong to one sandbox alone.
#[derive(Debug, Clone)]
pub struct HostResources {
    /// Directory with the writable layers; see [`Plan::layer_dirs`].
    pub layers: PathBuf,
    /// The generated base layer of the root. Required for [`RootFs::Host`] and [`RootFs::HostAll`],
    /// unused for other roots.
    pub skeleton: Option<PathBuf>,
    /// The layer with this machine's own files, below the base layer (only for [`RootFs::Host`]).
    pub machine: Option<PathBuf>,
    /// Leased slot. Under root it selects the id range; see [`first_id`].
    pub slot: u32,
    /// Layers that earlier checkpoints froze, newest first. They are mounted read-only between the
    /// writable layer and the bottom layer.
    pub frozen: Vec<CheckpointLayer>,
    /// Cache layers that earlier sandboxes of the project left, newest first.
    pub caches: Vec<FrozenCache>,
    /// The git directories of the workspace's repositories, mounted below all frozen layers.
    pub seed: Option<Seed>,
}

/// One frozen layer of both overlays: root and workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointLayer {
    /// Layer of the root. `None` if nothing was written to the root.
    pub root: Option<PathBuf>,
    /// Layer of the workspace. `None` if nothing was written to the workspace.
    pub workspace: Option<PathBuf>,
    /// First host id of the range that owns its files. `None` unless the layer was written under
    /// root.
    pub first_id: Option<u32>,
}

/// Name of the layer in [`HostResources::layers`] that hides [`Isolation::hidden`].
pub const MASK: &str = "workspace-mask";
/// Prefix of the names of the layers of [`Isolation::caches`].
const CACHE: &str = "cache-";
/// Name of the directory in [`HostResources::layers`] with the files that replace files of grants.
pub const REPLACED: &str = "replaced";

/// Error of making a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The spec requests a range of ids, but the caller has none.
    #[error("a range of ids was asked for, but this user has none")]
    NoIdRange,
    /// The spec requests a single id, but the caller is root. The sandbox user would be root on the
    /// host.
    #[error("a single id would make the sandbox user host root")]
    SingleIdOfRoot,
    /// The spec allows nested namespaces, but does not show the whole of `/proc`.
    #[error(
        "nested namespaces need the whole /proc: programs that bring a sandbox of their own mount a new one, and the \
         kernel refuses them one that shows more than they have"
    )]
    NestedWithoutProc,
    /// The spec is contradictory or unsafe. Holds the message.
    #[error("{0}")]
    Invalid(String),
}

/// Complete description of a sandbox's set-up for stage 0 and the guest, in order of application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Host name inside the sandbox.
    pub hostname: String,
    /// Network of the sandbox.
    pub net: Net,
    /// Addresses of other machines that lead to the sandbox itself, so that the sandbox's owner
    /// sees the connections to them. Used with [`Net::Egress`]. At most
    /// [`MAX_CAPTURED`](crate::stage0::own_network::MAX_CAPTURED).
    pub captured: Vec<Ipv4Addr>,
    /// Mapping of user and group ids between sandbox and host.
    pub identity: Identity,
    /// Place of the writable layers: disk or memory.
    pub layers: Layers,
    /// Size of the staging file system in bytes. It also holds the layers of [`Layers::Memory`].
    pub staging_bytes: u64,
    /// Host paths that are shown inside. All of them are opened before the first step is applied.
    pub sources: Vec<Source>,
    /// Mounts, in order.
    pub steps: Vec<Step>,
    /// Restrictions that apply once everything is mounted.
    pub seal: Seal,
    /// Base environment of every command.
    pub env: Vec<(String, String)>,
    /// Working directory of the guest and of its commands.
    pub cwd: BytePath,
}

/// Mapping of user and group ids between sandbox and host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Lines of `uid_map`.
    pub uids: Vec<Extent>,
    /// Lines of `gid_map`.
    pub gids: Vec<Extent>,
    /// Program or privilege that writes the maps.
    pub writer: MapWriter,
    /// True if id 0 exists inside during set-up.
    pub has_root: bool,
    /// Under root: user id on disk that appears as the sandbox user in the workspace and in grants.
    pub owner_uid: u32,
    /// Under root: group id on disk that appears as the sandbox user's group there.
    pub owner_gid: u32,
}

/// One line of `uid_map` or `gid_map` (user_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// Number of consecutive ids.
    pub count: u32,
}

/// Program or privilege that writes the id maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapWriter {
    /// The caller itself; it is privileged.
    Privileged,
    /// The caller itself; any user may map exactly one id, its own.
    Single,
    /// `newuidmap` and `newgidmap`, which allow the ranges of `/etc/subuid` and `/etc/subgid`.
    Newuidmap,
}

/// Translation of the owners of a source's files (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Idmap {
    /// No translation.
    None,
    /// Id N on disk is id N inside.
    Range,
    /// As `Range`, with the ids of the workspace's owner and of the sandbox user exchanged.
    Owner,
    /// As `Range`, with the ids of this owner and of the sandbox user exchanged.
    OwnedBy {
        /// User id on disk.
        uid: u32,
        /// Group id on disk.
        gid: u32,
    },
    /// Ids of another leased range become ids of this sandbox's range. Holds the first id of the
    /// other range.
    Shift(u32),
}

/// Host path that the sandbox shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Absolute path without symbolic links.
    pub path: BytePath,
    /// True if the mounts below the path are shown as well.
    pub is_recursive: bool,
    /// True if the mount is read-only and stays so.
    pub is_read_only: bool,
    /// Translation of the owners of its files.
    pub idmap: Idmap,
}

/// One mount, in order of application. Targets are relative to the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// An overlay file system; the first step is the one for `/`.
    Overlay {
        /// Mount point.
        target: BytePath,
        /// Indices of the read-only layers in [`Plan::sources`], top first. If the list is empty,
        /// an empty directory takes their place.
        lowers: Vec<usize>,
        /// Name of the writable layer, whose directories are `NAME-upper` and `NAME-work`.
        layer: String,
        /// True if the mount refuses every write.
        is_read_only: bool,
    },
    /// A source mounted at a target.
    Bind {
        /// Index in [`Plan::sources`].
        source: usize,
        /// Mount point.
        target: BytePath,
    },
    /// A new `/proc` of the sandbox's pid namespace.
    Proc {
        /// True if it shows process directories only.
        pids_only: bool,
        /// Paths below `/proc` that are made read-only.
        read_only: Vec<String>,
        /// Paths below `/proc` that are covered by something empty; a trailing slash marks
        /// directories.
        covered: Vec<String>,
    },
    /// A small `/dev`: null, zero, full, random, urandom, tty, pts, shm.
    Dev {
        /// Size of `/dev/shm` in bytes.
        shm_bytes: u64,
        /// True if a further, complete `/proc` is mounted below `/dev` and covered as a whole. The
        /// kernel lets a nested namespace mount a new `/proc` only while a `/proc` without covered
        /// parts is visible.
        has_whole_proc: bool,
    },
    /// An empty, read-only mount over a path. Skipped if the path does not exist.
    Cover {
        /// Path that is covered.
        target: BytePath,
    },
    /// The sandbox's own control group, read-only at [`crate::cgroup::GROUPS`]. It is mounted last,
    /// after the sandbox has joined the group.
    Groups {
        /// Directories of the group. A directory whose limit could not be set does not exist and is
        /// left out.
        views: Vec<GroupView>,
    },
}

/// Restrictions that apply once everything is mounted; no later step can lift them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// User id of the guest and its commands.
    pub uid: u32,
    /// Group id of the guest and its commands.
    pub gid: u32,
    /// Paths that commands may write to (Landlock).
    pub writable: Vec<BytePath>,
    /// Maximum size of a file in bytes (`RLIMIT_FSIZE`). `None` for no limit.
    pub file_bytes: Option<u64>,
    /// Maximum number of open files of each command (`RLIMIT_NOFILE`). `None` if the spec sets no
    /// limit.
    pub open_files: Option<u32>,
    /// Maximum number of processes of the user id (`RLIMIT_NPROC`). `None` if a cgroup controller
    /// counts them.
    pub processes: Option<u64>,
    /// Limits on namespaces that commands make. `None` if commands may make none.
    pub nested: Option<NestedNamespaces>,
    /// Processors that commands start on. `None` for all processors of the machine.
    pub processors: Option<Processors>,
}

/// Directory below `/dev` on which [`Step::Dev`] mounts the complete `/proc`, under a cover.
pub const WHOLE_PROC: &str = ".proc";

const READ_ONLY_PROC: [&str; 5] = ["sys", "irq", "bus", "fs", "sysrq-trigger"];

impl Plan {
    /// Makes the plan of a sandbox.
    ///
    /// # Errors
    /// [`PlanError`] if the spec is contradictory or the machine lacks what the spec needs.
    pub fn new(
        spec: &Isolation,
        facts: &HostFacts,
        place: &HostResources,
    ) -> Result<Self, PlanError> {
        let identity = identity(spec, facts, place)?;
        let nested = NestedNamespaces::of(spec, facts)?;
        let is_mapped = identity.writer == MapWriter::Privileged;
        let mut builder = Builder {
            sources: vec![Source {
                path: place.layers.clone().into(),
                is_recursive: false,
                is_read_only: false,
                idmap: Idmap::None,
            }],
            steps: Vec::new(),
            is_mapped,
            own_first: identity.uids.first().map_or(0, |extent| extent.outside),
        };

        match &spec.rootfs {
            RootFs::Host | RootFs::HostAll => {
                let skeleton = place.skeleton.as_ref().ok_or_else(|| {
                    PlanError::Invalid("a host root needs its skeleton first".to_owned())
                })?;
                let idmap = match facts.skeleton_first_id {
                    Some(_) => Idmap::None,
                    None => Idmap::Range,
                };
                builder.root(place, skeleton, idmap);
                for entry in &facts.root_entries {
                    if entry.kind == EntryKind::Directory && shows(&spec.rootfs, &entry.name) {
                        let path = Path::new("/").join(&entry.name);
                        builder.bind(&path, &path, Idmap::Range);
                    }
                }
                for path in &facts.kernel_dirs {
                    builder.bind(path, path, Idmap::None);
                }
                for path in &facts.package_dirs {
                    builder.bind(path, path, Idmap::Range);
                }
            }
            RootFs::Dir(path) => builder.root(place, path, Idmap::Range),
        }
        for grant in &spec.grants {
            check_target(&grant.target)?;
            builder.bind(&grant.source, &grant.target, Idmap::Owner);
        }
        for (number, file) in spec.replaced_in_grants().enumerate() {
            check_target(&file.path)?;
            let shown = place.layers.join(REPLACED).join(number.to_string());
            builder.bind(&shown, &file.path, Idmap::Owner);
        }
        builder.git_objects(place);
        builder.caches(spec, facts, place)?;
        if spec.rootfs == RootFs::HostAll {
            for secret in &facts.secrets {
                builder.steps.push(Step::Cover {
                    target: secret.clone().into(),
                });
            }
        }
        for cover in &facts.covers {
            for target in appearances(spec, cover) {
                builder.steps.push(Step::Cover {
                    target: target.into(),
                });
            }
        }
        match spec.proc {
            ProcMode::None => {}
            ProcMode::Pids => builder.steps.push(Step::Proc {
                pids_only: true,
                read_only: Vec::new(),
                covered: Vec::new(),
            }),
            ProcMode::Masked => builder.steps.push(Step::Proc {
                pids_only: false,
                read_only: READ_ONLY_PROC.map(str::to_owned).to_vec(),
                covered: facts.proc_covers.clone(),
            }),
        }
        let shm_bytes = spec
            .limits
            .memory_bytes
            .map_or(256 << 20, |bytes| bytes / 2)
            .max(1 << 20);
        builder.steps.push(Step::Dev {
            shm_bytes,
            has_whole_proc: nested.is_some(),
        });
        builder.workspace(spec, facts, place)?;

        let mut writable = match spec.rootfs {
            RootFs::Host | RootFs::HostAll => vec![
                BytePath::from(WORKSPACE),
                spec.home.clone().into(),
                "/tmp".into(),
                "/var/tmp".into(),
                "/run".into(),
                "/dev".into(),
                "/proc".into(),
            ],
            RootFs::Dir(_) => vec!["/".into()],
        };
        for cache in &spec.caches {
            if !writable
                .iter()
                .any(|shown| cache.target.starts_with(shown.as_path()))
            {
                writable.push(cache.target.clone().into());
            }
        }
        Ok(Self {
            hostname: spec.hostname.clone(),
            net: spec.net,
            captured: Vec::new(),
            identity,
            layers: spec.layers,
            staging_bytes: match spec.layers {
                Layers::Disk => 1 << 20,
                Layers::Memory => spec.limits.disk_bytes.unwrap_or(1 << 30),
            },
            sources: builder.sources,
            steps: builder.steps,
            seal: Seal {
                uid: SANDBOX_UID,
                gid: SANDBOX_GID,
                writable,
                file_bytes: largest_file(spec),
                open_files: spec.limits.open_files,
                processes: None,
                nested,
                processors: None,
            },
            env: spec.env.clone(),
            // Built from components: joining an empty `start_dir` would leave a trailing slash.
            cwd: Path::new(WORKSPACE)
                .components()
                .chain(spec.start_dir.components())
                .collect::<PathBuf>()
                .into(),
        })
    }

    /// Adds the mount of the sandbox's own control group. Does nothing if `views` is empty or a
    /// bind of the plan overlaps [`GROUPS`].
    pub fn show_groups(&mut self, views: Vec<GroupView>) {
        let groups = Path::new(GROUPS);
        let is_taken = self.steps.iter().any(|step| {
            matches!(step, Step::Bind { target, .. } if groups.starts_with(target.as_path())
                || target.as_path().starts_with(groups))
        });
        if !views.is_empty() && !is_taken {
            self.steps.push(Step::Groups { views });
        }
    }

    /// Returns true if the writable layers live in the staging file system, in memory.
    pub fn layers_in_memory(&self) -> bool {
        self.layers == Layers::Memory
    }

    /// Returns the directories that must exist in [`HostResources::layers`], each with the id
    /// inside that owns it. The first one is the layers directory itself (empty name).
    pub fn layer_dirs(&self) -> Vec<(String, u32)> {
        let root = if self.identity.has_root {
            0
        } else {
            self.seal.uid
        };
        let mut dirs = vec![(String::new(), root)];
        for step in &self.steps {
            if let Step::Overlay { layer, target, .. } = step {
                let is_of_commands =
                    target.as_path() == Path::new(WORKSPACE) || layer.starts_with(CACHE);
                let owner = if is_of_commands { self.seal.uid } else { root };
                dirs.push((format!("{layer}-upper"), owner));
                dirs.push((format!("{layer}-work"), root));
            }
        }
        dirs
    }

    /// Returns the part of the plan that mounts the overlays of the named layers (`root`,
    /// `workspace`). [`crate::exchange`] uses it.
    #[must_use]
    pub fn overlays(&self, layers: &[&str]) -> Self {
        let mut sources: Vec<Source> = self.sources.first().cloned().into_iter().collect();
        let steps = self
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Overlay {
                    target,
                    lowers,
                    layer,
                    is_read_only,
                } if layers.contains(&layer.as_str()) => {
                    let lowers = lowers.iter().filter_map(|index| {
                        sources.push(self.sources.get(*index)?.clone());
                        Some(sources.len() - 1)
                    });
                    Some(Step::Overlay {
                        target: target.clone(),
                        lowers: lowers.collect(),
                        layer: layer.clone(),
                        is_read_only: *is_read_only,
                    })
                }
                _ => None,
            })
            .collect();
        Self {
            sources,
            steps,
            ..self.clone()
        }
    }

    /// Returns the host id of a user id inside. `None` if the id is not mapped.
    pub fn host_uid(&self, inside: u32) -> Option<u32> {
        translate(&self.identity.uids, inside)
    }

    /// Returns the host id of a group id inside. `None` if the id is not mapped.
    pub fn host_gid(&self, inside: u32) -> Option<u32> {
        translate(&self.identity.gids, inside)
    }
}

/// Returns the maximum size of one file in bytes: the file limit, or the disk limit if that is
/// lower. The disk limit does not count for layers in memory, because their file system has a size
/// of its own.
fn largest_file(spec: &Isolation) -> Option<u64> {
    let disk = match spec.layers {
        Layers::Disk => spec.limits.disk_bytes,
        Layers::Memory => None,
    };
    [spec.limits.file_bytes, disk].into_iter().flatten().min()
}

fn translate(extents: &[Extent], inside: u32) -> Option<u32> {
    extents.iter().find_map(|extent| {
        let offset = inside.checked_sub(extent.inside)?;
        (offset < extent.count).then(|| extent.outside + offset)
    })
}

/// Returns true if the top-level directory `name` is bound from the host. Every other one is absent
/// in [`RootFs::Host`], and the sandbox's own in [`RootFs::HostAll`].
pub(crate) fn shows(rootfs: &RootFs, name: &str) -> bool {
    match rootfs {
        RootFs::Host => {
            matches!(
                name,
                "usr" | "bin" | "sbin" | "lib" | "lib32" | "lib64" | "libx32"
            )
        }
        RootFs::HostAll => !matches!(
            name,
            "proc" | "sys" | "dev" | "run" | "tmp" | "workspace" | "lost+found"
        ),
        RootFs::Dir(_) => false,
    }
}

/// Returns the paths at which a host path is visible inside because a directory above it is shown.
/// A path that was itself granted is left out: a granted socket is meant to be reachable.
fn appearances(spec: &Isolation, path: &Path) -> Vec<PathBuf> {
    let top = path
        .components()
        .nth(1)
        .and_then(|name| name.as_os_str().to_str());
    let mut found = match &spec.rootfs {
        RootFs::Dir(root) => path
            .strip_prefix(root)
            .ok()
            .filter(|rest| !rest.as_os_str().is_empty())
            .map(|rest| Path::new("/").join(rest))
            .into_iter()
            .collect(),
        rootfs if top.is_some_and(|name| shows(rootfs, name)) => vec![path.to_owned()],
        RootFs::Host | RootFs::HostAll => Vec::new(),
    };
    for grant in &spec.grants {
        if let Ok(rest) = path.strip_prefix(&grant.source)
            && !rest.as_os_str().is_empty()
        {
            found.push(grant.target.join(rest));
        }
    }
    found
}

fn check_target(target: &Path) -> Result<(), PlanError> {
    let is_plain = target.is_absolute()
        && target
            .components()
            .skip(1)
            .all(|part| matches!(part, std::path::Component::Normal(_)))
        && target.components().count() > 1;
    let is_ours = ["/proc", "/dev", WORKSPACE]
        .iter()
        .any(|own| target.starts_with(own));
    if is_plain && !is_ours {
        Ok(())
    } else {
        Err(PlanError::Invalid(format!(
            "`{}` cannot be the target of a grant: it must be an absolute path without `..`, \
             outside /proc, /dev and {WORKSPACE}",
            target.display()
        )))
    }
}

fn check_inside(path: &Path) -> Result<(), PlanError> {
    let is_plain = !path.as_os_str().is_empty()
        && path
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
    if is_plain {
        return Ok(());
    }
    Err(PlanError::Invalid(format!(
        "`{}` cannot be hidden or protected: it must be a path relative to the workspace, \
         without `..`",
        path.display()
    )))
}

fn identity(
    spec: &Isolation,
    facts: &HostFacts,
    place: &HostResources,
) -> Result<Identity, PlanError> {
    let single = |uid, gid| Identity {
        uids: vec![Extent {
            inside: SANDBOX_UID,
            outside: uid,
            count: 1,
        }],
        gids: vec![Extent {
            inside: SANDBOX_GID,
            outside: gid,
            count: 1,
        }],
        writer: MapWriter::Single,
        has_root: false,
        owner_uid: uid,
        owner_gid: gid,
    };
    if facts.is_privileged {
        if spec.ids == Ids::Single {
            return Err(PlanError::SingleIdOfRoot);
        }
        if place.slot >= RANGE_SLOTS {
            return Err(PlanError::Invalid(format!(
                "slot {} is beyond the {RANGE_SLOTS} id ranges",
                place.slot
            )));
        }
        let range = vec![Extent {
            inside: 0,
            outside: first_id(place.slot),
            count: RANGE_IDS,
        }];
        return Ok(Identity {
            uids: range.clone(),
            gids: range,
            writer: MapWriter::Privileged,
            has_root: true,
            owner_uid: facts.workspace_uid,
            owner_gid: facts.workspace_gid,
        });
    }
    if spec.ids != Ids::Range {
        return Ok(single(facts.uid, facts.gid));
    }
    let Some(sub) = &facts.sub_ids else {
        return Err(PlanError::NoIdRange);
    };
    // The sandbox user is the caller; every other id comes from the subordinate range.
    let around = |own: u32, inside: u32, first: u32| {
        vec![
            Extent {
                inside: 0,
                outside: first,
                count: inside,
            },
            Extent {
                inside,
                outside: own,
                count: 1,
            },
            Extent {
                inside: inside + 1,
                outside: first + inside,
                count: RANGE_IDS - inside - 1,
            },
        ]
    };
    Ok(Identity {
        uids: around(facts.uid, SANDBOX_UID, sub.first_uid),
        gids: around(facts.gid, SANDBOX_GID, sub.first_gid),
        writer: MapWriter::Newuidmap,
        // Set-up runs as the sandbox user here, so that the caller can remove the files that it
        // makes.
        has_root: false,
        owner_uid: facts.uid,
        owner_gid: facts.gid,
    })
}
