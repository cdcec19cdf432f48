//! From what is wanted ([`Isolation`]) and what the machine has ([`HostFacts`]) to an ordered plan.
//!
//! Pure: no system call is made here, so a plan can be printed, compared and tested for machines
//! that are not at hand. [`crate::stage0`] applies it in one loop, and re-checks what it must not
//! take on trust.

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

/// Ids in a range: enough for every account of a distribution.
pub const RANGE_IDS: u32 = 65_536;
/// First host id of the ranges leased under root. `systemd`'s table of id ranges leaves
/// 0x70000000 to 0x7fffffff unused.
pub const RANGE_BASE: u32 = 0x7000_0000;
/// Number of ranges that can be leased.
pub const RANGE_SLOTS: u32 = 4096;

/// First host id of the range that a slot leases under root.
pub const fn first_id(slot: u32) -> u32 {
    RANGE_BASE + slot * RANGE_IDS
}

/// First id of the leased range that a host id belongs to, if it belongs to one.
pub fn range_of(id: u32) -> Option<u32> {
    let slot = id.checked_sub(RANGE_BASE)? / RANGE_IDS;
    (slot < RANGE_SLOTS).then_some(RANGE_BASE + slot * RANGE_IDS)
}

/// The places on the host that belong to this one sandbox.
#[derive(Debug, Clone)]
pub struct HostResources {
    /// Directory with the writable layers; see [`Plan::layer_dirs`].
    pub layers: PathBuf,
    /// The generated root skeleton (only for [`RootFs::Host`] and [`RootFs::HostAll`]).
    pub skeleton: Option<PathBuf>,
    /// The machine's part below it (only for [`RootFs::Host`]).
    pub machine: Option<PathBuf>,
    /// Leased slot: which id range is used under root.
    pub slot: u32,
    /// What earlier checkpoints froze, newest first: read-only layers between the writable one and
    /// the bottom one.
    pub frozen: Vec<CheckpointLayer>,
    /// What earlier sandboxes left in caches, newest first.
    pub caches: Vec<FrozenCache>,
    /// The git directories of the workspace's repositories, below all that is frozen.
    pub seed: Option<Seed>,
}

/// One frozen layer of both overlays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointLayer {
    /// What was written to the root, if anything was.
    pub root: Option<PathBuf>,
    /// What was written to the workspace, if anything was.
    pub workspace: Option<PathBuf>,
    /// First host id of the range its files belong to, when they were written under root.
    pub first_id: Option<u32>,
}

/// Name of the layer in [`HostResources::layers`] that hides [`Isolation::hidden`].
pub const MASK: &str = "workspace-mask";
/// How the names of the layers of [`Isolation::caches`] begin.
const CACHE: &str = "cache-";
/// Name of the directory in [`HostResources::layers`] with the files that are shown in place of those of grants.
pub const REPLACED: &str = "replaced";

/// Why no plan can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A range of ids for a caller who has none.
    #[error("a range of ids was asked for, but this user has none")]
    NoIdRange,
    /// One id for a caller who is root, as which the sandbox's user would be root outside.
    #[error("a single id would make the sandbox user host root")]
    SingleIdOfRoot,
    /// Namespaces of commands' own in a sandbox that shows less than the whole of `/proc`.
    #[error(
        "nested namespaces need the whole /proc: programs that bring a sandbox of their own mount a new one, and the \
         kernel refuses them one that shows more than they have"
    )]
    NestedWithoutProc,
    /// The spec asks for something contradictory or unsafe.
    #[error("{0}")]
    Invalid(String),
}

/// Everything stage 0 and the guest need to know, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Host name inside.
    pub hostname: String,
    /// What network it has.
    pub net: Net,
    /// With [`Net::Egress`]: addresses of other machines that are the sandbox's own, so that its owner sees who
    /// connects to them. At most [`MAX_CAPTURED`](crate::stage0::own_network::MAX_CAPTURED).
    pub captured: Vec<Ipv4Addr>,
    /// Who is who inside and outside.
    pub identity: Identity,
    /// Where the writable layers live.
    pub layers: Layers,
    /// Size of the staging file system, which also holds the layers of [`Layers::Memory`].
    pub staging_bytes: u64,
    /// Host paths that are needed inside, opened before anything is mounted.
    pub sources: Vec<Source>,
    /// What is mounted, in order.
    pub steps: Vec<Step>,
    /// How the way back is closed.
    pub seal: Seal,
    /// Base environment of every command.
    pub env: Vec<(String, String)>,
    /// Working directory of the guest and of its commands.
    pub cwd: BytePath,
}

/// Who is who inside and outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User ids inside.
    pub uids: Vec<Extent>,
    /// Group ids inside.
    pub gids: Vec<Extent>,
    /// Who may write the maps.
    pub writer: MapWriter,
    /// Whether id 0 exists inside during set-up.
    pub has_root: bool,
    /// Under root: user id on disk that appears as the sandbox user in the workspace and in grants.
    pub owner_uid: u32,
    /// The same for the group.
    pub owner_gid: u32,
}

/// One line of `uid_map` or `gid_map` (user_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// Who may write the id maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapWriter {
    /// The caller is privileged.
    Privileged,
    /// Any user may map exactly one id: itself.
    Single,
    /// `newuidmap` and `newgidmap`, which know the ranges of `/etc/subuid`.
    Newuidmap,
}

/// How a source's owners are translated (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Idmap {
    /// As they are.
    None,
    /// Id N on disk is id N inside.
    Range,
    /// As `Range`, with the workspace's owner and the sandbox user exchanged.
    Owner,
    /// As `Range`, with this owner and the sandbox user exchanged.
    OwnedBy {
        /// User id on disk.
        uid: u32,
        /// Group id on disk.
        gid: u32,
    },
    /// The ids of another leased range, which starts here, are those of this one.
    Shift(u32),
}

/// A host path that is needed inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Absolute path without symbolic links.
    pub path: BytePath,
    /// With what is mounted below it.
    pub is_recursive: bool,
    /// Read-only for good.
    pub is_read_only: bool,
    /// How its owners are translated.
    pub idmap: Idmap,
}

/// One mount, in order of application. Targets are relative to the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// An overlay file system; the first step is the one for `/`.
    Overlay {
        /// Where it appears.
        target: BytePath,
        /// Indices of the read-only layers in [`Plan::sources`], top first; none for an empty one.
        lowers: Vec<usize>,
        /// Name of the writable layer: `NAME-upper` and `NAME-work`.
        layer: String,
        /// Whether the mount as a whole refuses every write.
        is_read_only: bool,
    },
    /// A source at a target.
    Bind {
        /// Index in [`Plan::sources`].
        source: usize,
        /// Where it appears.
        target: BytePath,
    },
    /// A new `/proc`.
    Proc {
        /// Only process directories.
        pids_only: bool,
        /// Parts made read-only.
        read_only: Vec<String>,
        /// Parts covered by something empty; a trailing slash marks directories.
        covered: Vec<String>,
    },
    /// A small `/dev`: null, zero, full, random, urandom, tty, pts, shm.
    Dev {
        /// Bytes that fit in `/dev/shm`.
        shm_bytes: u64,
        /// With a `/proc` that is covered as a whole: the kernel gives namespaces that commands make a new one only
        /// where there is one of which no part is covered.
        has_whole_proc: bool,
    },
    /// Something empty and read-only over a path; nothing if the path does not exist.
    Cover {
        /// What is covered.
        target: BytePath,
    },
    /// The sandbox's own control group, read-only at [`crate::cgroup::GROUPS`]. It is shown last, when the sandbox
    /// has joined it.
    Groups {
        /// Its directories; one whose limit could not be set does not exist.
        views: Vec<GroupView>,
    },
}

/// How the way back is closed once everything is in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// User id of the guest and its commands.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Paths commands may write to (Landlock).
    pub writable: Vec<BytePath>,
    /// Largest file in bytes (`RLIMIT_FSIZE`).
    pub file_bytes: Option<u64>,
    /// Open files of each command (`RLIMIT_NOFILE`), where the spec says.
    pub open_files: Option<u32>,
    /// Processes of the user id (`RLIMIT_NPROC`), where no controller counts them.
    pub processes: Option<u64>,
    /// What commands may have of namespaces of their own, if any.
    pub nested: Option<NestedNamespaces>,
    /// The processors that commands start on, where they are fewer than there are.
    pub processors: Option<Processors>,
}

/// Directory below `/dev` with the `/proc` of [`Step::Dev`], under a cover.
pub const WHOLE_PROC: &str = ".proc";

const READ_ONLY_PROC: [&str; 5] = ["sys", "irq", "bus", "fs", "sysrq-trigger"];

impl Plan {
    /// Makes the plan.
    ///
    /// # Errors
    /// [`PlanError`] when the spec is contradictory or the machine lacks what it needs.
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
            // Joining nothing would leave a slash.
            cwd: Path::new(WORKSPACE)
                .components()
                .chain(spec.start_dir.components())
                .collect::<PathBuf>()
                .into(),
        })
    }

    /// Shows the sandbox its own control group, unless something of the caller's stands there.
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

    /// Whether the writable layers live in the staging file system, in memory.
    pub fn layers_in_memory(&self) -> bool {
        self.layers == Layers::Memory
    }

    /// Directories that must exist in [`HostResources::layers`], with the id inside that owns each: the
    /// layers directory itself (empty name) first.
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

    /// The part of the plan that makes the overlays of the named layers (`root`, `workspace`), for
    /// [`crate::exchange`].
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

    /// Host id of an id inside, where it has one.
    pub fn host_uid(&self, inside: u32) -> Option<u32> {
        translate(&self.identity.uids, inside)
    }

    /// Host id of a group id inside, where it has one.
    pub fn host_gid(&self, inside: u32) -> Option<u32> {
        translate(&self.identity.gids, inside)
    }
}

/// No file is larger than all files together may be. Layers in memory have a size of their own.
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

/// Top-level directories that are bound from the host. Everything not named here is absent in
/// [`RootFs::Host`], and is the sandbox's own in [`RootFs::HostAll`].
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

/// Where a host path shows inside, below something else that is shown. A socket that was itself
/// granted is wanted.
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
        // Set-up runs as the sandbox user there: what it makes stays removable by the caller.
        has_root: false,
        owner_uid: facts.uid,
        owner_gid: facts.gid,
    })
}
