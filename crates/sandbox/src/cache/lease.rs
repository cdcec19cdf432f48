//! Lease of a project's caches for one sandbox.

use super::build_output::{self, BuildOutputChange};
use super::store::{
    self, CacheLayer, Index, MAX_BYTES, MAX_OWNER_BYTES, MAX_PROJECT_BYTES, USERS, WRITER,
};
use super::{merge, sources};
use crate::report::CacheKeeping;
use crate::spec::amount::size;
use crate::spec::name::random_hex;
use crate::state::layout::{LAYERS, Layout};
use crate::{SandboxSpec, fault};
use glovebox_jail::plan::{FrozenCache, cache_layer, range_of};
use glovebox_jail::usage::{TreeUsage, measure};
use glovebox_proto::{Code, Fault};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Number of layers above which they are merged.
const MANY_LAYERS: usize = 4;
/// Number of layers above which none is added until they can be merged.
const MAX_LAYERS: usize = 24;

/// Lease of a project's caches for one sandbox. Dropping it releases the locks.
#[derive(Debug)]
pub(crate) struct CacheLease {
    dir: PathBuf,
    /// Shared lock that protects the layers from removal.
    users: OwnedFd,
    /// Lock that allows to add a layer. `None` if another sandbox holds it.
    writer: Option<OwnedFd>,
    index: Index,
}

impl CacheLease {
    /// Takes the caches of the project that `spec` names. `None` if the sandbox keeps none.
    /// `sandbox_dir` is the sandbox's directory, which already has files if the sandbox is resumed.
    pub(crate) fn take(
        layout: &Layout,
        spec: &SandboxSpec,
        sandbox_dir: &Path,
    ) -> Result<Option<Self>, Fault> {
        /// Attempts: the caches may be removed between being opened and locked.
        const TURNS: usize = 16;
        let Some(project) = spec
            .cache_project
            .as_ref()
            .filter(|_| spec.has_layers_on_disk())
        else {
            return Ok(None);
        };
        let owner = spec.cache_owner.as_deref();
        let dir = store::project_dir(layout, project, owner);
        for _ in 0..TURNS {
            if let Some(mut lease) = Self::try_take(&dir, project, owner)? {
                lease.begin(layout, spec, sandbox_dir)?;
                return Ok(Some(lease));
            }
        }
        Err(Fault::failed(
            Code::Busy,
            format!(
                "the package caches in {} are just being changed",
                dir.display()
            ),
        )
        .retryable())
    }

    fn try_take(dir: &Path, project: &Path, owner: Option<&str>) -> Result<Option<Self>, Fault> {
        let broken = |errno| fault::io("lock", dir, errno);
        store::make_dir(dir)?;
        let [writer, users] = [WRITER, USERS].map(|name| store::open_lock(dir, name));
        let (writer, users) = match (writer, users) {
            (Err(Errno::NOENT), _) | (_, Err(Errno::NOENT)) => return Ok(None),
            (writer, users) => (writer.map_err(broken)?, users.map_err(broken)?),
        };
        let is_writer =
            store::try_lock(&writer, FlockOperation::NonBlockingLockExclusive).map_err(broken)?;
        // A process that merges or removes caches holds the lock only briefly.
        rustix::io::retry_on_intr(|| rustix::fs::flock(&users, FlockOperation::LockShared))
            .map_err(broken)?;
        if !store::is_in_place(&users, dir, USERS) || !store::is_in_place(&writer, dir, WRITER) {
            return Ok(None);
        }
        let index = store::read(dir)?.unwrap_or_else(|| Index::new(project, owner));
        Ok(Some(Self {
            dir: dir.to_owned(),
            users,
            writer: is_writer.then_some(writer),
            index,
        }))
    }

    /// Leaves out build output of other sources, and records the time of use.
    fn begin(
        &mut self,
        layout: &Layout,
        spec: &SandboxSpec,
        sandbox_dir: &Path,
    ) -> Result<(), Fault> {
        build_output::drop_stale(layout, spec, sandbox_dir, &self.dir, &mut self.index);
        if self.writer.is_some() {
            self.index.used_unix_ms = store::now_ms();
            store::write(&self.dir, &self.index)?;
        }
        Ok(())
    }

    /// Returns the treatment of files that the sandbox writes to its caches.
    pub(crate) fn keeping(lease: Option<&Self>) -> CacheKeeping {
        match lease {
            None => CacheKeeping::ThrownAway,
            Some(Self { writer: None, .. }) => CacheKeeping::HeldByAnother,
            Some(_) => CacheKeeping::Kept,
        }
    }

    /// Returns the layers that earlier sandboxes left, newest first.
    pub(crate) fn frozen(&self) -> Vec<FrozenCache> {
        let layers = self.index.layers.iter();
        layers
            .flat_map(|layer| {
                layer.names.iter().map(|name| FrozenCache {
                    name: name.clone(),
                    path: self.dir.join(&layer.id).join(name),
                    first_id: layer.first_id,
                })
            })
            .collect()
    }

    /// Keeps what the sandbox in `sandbox_dir` wrote to its caches. Precondition: its processes
    /// have ended.
    ///
    /// # Errors
    /// The errors of moving files. Layers that were kept before stay. Nothing of this sandbox is
    /// kept, or everything but its build output, as the fault says.
    pub(crate) fn keep(
        self,
        layout: &Layout,
        spec: &SandboxSpec,
        sandbox_dir: &Path,
    ) -> Result<(), Fault> {
        if self.writer.is_none() {
            return Ok(());
        }
        let written = written_caches(spec, sandbox_dir)?;
        let mut index = Index {
            used_unix_ms: store::now_ms(),
            ..self.index.clone()
        };
        let output = build_output::find(layout, spec, sandbox_dir);
        if let (Ok(BuildOutputChange::Removed), Some((name, _))) = (&output, build_output::of(spec))
        {
            build_output::take_out(&self.dir, name, &mut index.layers, usize::MAX);
        }
        let (output, mut problem) = match output {
            Ok(BuildOutputChange::Output(output)) => (Some(output), None),
            Ok(BuildOutputChange::Nothing | BuildOutputChange::Removed) => (None, None),
            Err(fault) => (None, Some(fault)),
        };
        let is_anything = !written.is_empty() || output.is_some();
        if is_anything && index.layers.len() < MAX_LAYERS {
            let layer = self.move_in(layout, &written, output, &mut problem)?;
            let place = self.dir.join(&layer.id);
            if !layer.names.is_empty() {
                index.layers.insert(0, layer);
            }
            if !sources::is_within_bounds(&index.layers)
                && let Some((name, _)) = build_output::of(spec)
            {
                build_output::take_out(&self.dir, name, &mut index.layers, usize::MAX);
            }
            // The index names the layer only after it is complete. A crash before leaves garbage
            // that is collected later.
            store::write(&self.dir, &index).inspect_err(|_| store::discard(layout, &place))?;
        } else {
            store::write(&self.dir, &index)?;
        }
        // Then no other sandbox has the layers mounted.
        let is_alone =
            store::try_lock(&self.users, FlockOperation::NonBlockingLockExclusive) == Ok(true);
        if is_alone {
            let output = build_output::of(spec).map(|(name, _)| name);
            tidy(layout, &self.dir, index, output)?;
        }
        let own = self.dir.clone();
        drop(self);
        drop_excess(layout, &own)?;
        problem.map_or(Ok(()), Err)
    }

    /// Moves the writable layers of caches to the directory of kept caches, as one layer that no
    /// index names yet. A failure to move the build output is stored in `problem`.
    fn move_in(
        &self,
        layout: &Layout,
        written: &[(String, PathBuf)],
        output: Option<build_output::BuildOutput>,
        problem: &mut Option<Fault>,
    ) -> Result<CacheLayer, Fault> {
        let of_output = output.as_ref().and_then(|output| output.first_id);
        let of_caches = written.first().and_then(|(_, upper)| first_id(upper));
        let mut layer = CacheLayer {
            id: random_hex(),
            first_id: of_caches.or(of_output),
            bytes: 0,
            names: written.iter().map(|(name, _)| name.clone()).collect(),
            kept_unix_ms: store::now_ms(),
            sources: Vec::new(),
        };
        let place = self.dir.join(&layer.id);
        store::make_dir(&place)?;
        let moved = written.iter().try_for_each(|(name, upper)| {
            let to = place.join(name);
            // rename(2) needs write access to a directory that changes its parent, and commands may
            // have removed it.
            fs::set_permissions(upper, fs::Permissions::from_mode(0o755))
                .and_then(|()| fs::rename(upper, &to))
                .map_err(|error| fault::io("move a package cache to", &to, error))
        });
        let counted = moved.and_then(|()| match measure(&place, MAX_PROJECT_BYTES) {
            TreeUsage::Whole { bytes, .. } => Ok(bytes),
            usage => Err(not_counted("package caches are", &usage)),
        });
        match counted {
            Ok(bytes) => layer.bytes = bytes,
            Err(fault) => {
                store::discard(layout, &place);
                return Err(fault);
            }
        }
        if let Some(output) = output {
            *problem = output.move_in(layout, &place, &mut layer).err();
        }
        if layer.names.is_empty() {
            store::discard(layout, &place);
        }
        Ok(layer)
    }
}

/// Caches of a sandbox that keeps them when it ends, with its spec.
#[derive(Debug)]
pub(crate) struct KeptCaches {
    lease: CacheLease,
    spec: SandboxSpec,
}

impl KeptCaches {
    pub(crate) fn new(lease: CacheLease, spec: &SandboxSpec) -> Self {
        Self {
            lease,
            spec: spec.clone(),
        }
    }

    /// Returns true if the sandbox adds to the kept caches.
    pub(crate) fn is_writer(&self) -> bool {
        self.lease.writer.is_some()
    }

    /// As [`CacheLease::keep`].
    pub(crate) fn keep(self, layout: &Layout, sandbox_dir: &Path) -> Result<(), Fault> {
        self.lease.keep(layout, &self.spec, sandbox_dir)
    }
}

/// Returns the fault for files that are not kept. `what` is a phrase such as `package caches are`.
pub(super) fn not_counted(what: &str, usage: &TreeUsage) -> Fault {
    let why = match usage {
        TreeUsage::Over => format!(
            "larger than {}, the most that is kept of one project",
            size(MAX_PROJECT_BYTES)
        ),
        TreeUsage::TooManyEntries => "too many files".to_owned(),
        TreeUsage::TooDeep => "too many levels of directories".to_owned(),
        TreeUsage::Unseen(_) | TreeUsage::Whole { .. } => {
            "commands closed a directory in there to its owner".to_owned()
        }
    };
    Fault::failed(Code::TooLarge, format!("{what} not kept: {why}"))
}

/// Returns the writable layers of caches that have content.
fn written_caches(spec: &SandboxSpec, sandbox_dir: &Path) -> Result<Vec<(String, PathBuf)>, Fault> {
    let mut written = Vec::new();
    for cache in &spec.jail.caches {
        let name = format!("{}-upper", cache_layer(&cache.name));
        let upper = sandbox_dir.join(LAYERS).join(name);
        let mut entries = match fs::read_dir(&upper) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            // A command denied its owner access to the directory.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => continue,
            Err(error) => return Err(fault::io("read", &upper, error)),
        };
        if entries.next().is_some() {
            written.push((cache.name.clone(), upper));
        }
    }
    Ok(written)
}

/// Returns the first host id of the range that owns a layer. `None` if it was not written by a
/// sandbox of root.
fn first_id(upper: &Path) -> Option<u32> {
    range_of(fs::symlink_metadata(upper).ok()?.uid())
}

/// Merges layers if there are many, empties the caches of a project that exceeds its bound, and
/// removes directories that no index names. Precondition: all locks are held.
fn tidy(
    layout: &Layout,
    dir: &Path,
    mut index: Index,
    build_output: Option<&str>,
) -> Result<(), Fault> {
    if index.bytes() > index.max_bytes() {
        // Build output can be made again without a network, so it is removed first.
        if let Some(name) = build_output {
            build_output::take_out(dir, name, &mut index.layers, usize::MAX);
        }
        if index.bytes() > index.max_bytes() {
            index.layers.clear();
        }
        store::write(dir, &index)?;
    } else if index.layers.len() > MANY_LAYERS {
        match merge::merge(layout, dir, &index) {
            Ok(Some(merged)) => store::write(dir, &merged)?,
            // The trees are too deep, or their layers belong to different ids.
            Ok(None) | Err(_) if index.layers.len() >= MAX_LAYERS => {
                index.layers.clear();
                store::write(dir, &index)?;
            }
            Ok(None) | Err(_) => {}
        }
    }
    store::collect_garbage(layout, dir);
    Ok(())
}

/// Removes the caches of other projects, the least recently used first, until all are within
/// bounds.
fn drop_excess(layout: &Layout, own: &Path) -> Result<(), Fault> {
    let mut all: Vec<(PathBuf, Index)> = store::project_dirs(layout)?
        .into_iter()
        .filter_map(|dir| {
            let index = store::read(&dir).ok()??;
            Some((dir, index))
        })
        .collect();
    all.sort_by_key(|(dir, index)| (dir != own, std::cmp::Reverse(index.used_unix_ms)));
    for dir in too_many(&all, MAX_BYTES, MAX_OWNER_BYTES) {
        // Caches in use stay until the next time.
        if let Some(_locks) = store::lock_alone(dir)? {
            store::discard(layout, dir);
        }
    }
    Ok(())
}

/// Returns the directories beyond `max` bytes in total or `max_of_owner` bytes of one user of a
/// server. `all` must be sorted: the first is always kept, the last is removed first.
fn too_many(all: &[(PathBuf, Index)], max: u64, max_of_owner: u64) -> Vec<&Path> {
    let mut bytes = 0_u64;
    let mut of_owners: HashMap<&str, u64> = HashMap::new();
    let mut found = Vec::new();
    for (position, (dir, index)) in all.iter().enumerate() {
        let own = index.bytes();
        let of_owner = index.owner.as_deref().map_or(0, |owner| {
            let sum = of_owners.entry(owner).or_default();
            *sum = sum.saturating_add(own);
            *sum
        });
        let is_first = position == 0;
        if !is_first && of_owner > max_of_owner {
            // Removed for its owner's bound, so it does not count against the total.
            found.push(dir.as_path());
            continue;
        }
        bytes = bytes.saturating_add(own);
        if !is_first && bytes > max {
            found.push(dir.as_path());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;
    use glovebox_spec::CacheDir;

    struct LeaseFixture {
        temp: tempfile::TempDir,
        layout: Layout,
    }

    impl LeaseFixture {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let layout = Layout::open(&temp.path().join("state")).unwrap();
            Self { temp, layout }
        }

        fn spec(&self, project: &str) -> SandboxSpec {
            let mut spec = SandboxSpec::new(Backend::NATIVE);
            spec.cache_project = Some(self.temp.path().join(project));
            spec.jail.caches = vec![CacheDir {
                name: "npm".to_owned(),
                source: None,
                target: "/home/u/.npm/_cacache".into(),
            }];
            spec
        }

        /// Keeps a file of this name, like a sandbox that wrote it.
        fn keep(&self, lease: CacheLease, spec: &SandboxSpec, name: &str) {
            let dir = self.temp.path().join(random_hex());
            let upper = dir.join("layers/cache-npm-upper");
            fs::create_dir_all(&upper).unwrap();
            fs::write(upper.join(name), name).unwrap();
            lease.keep(&self.layout, spec, &dir).unwrap();
        }

        fn take(&self, spec: &SandboxSpec) -> CacheLease {
            let dir = self.temp.path().join("none");
            CacheLease::take(&self.layout, spec, &dir).unwrap().unwrap()
        }

        fn names(&self, spec: &SandboxSpec) -> Vec<String> {
            let mut names: Vec<String> = self
                .take(spec)
                .frozen()
                .iter()
                .flat_map(|frozen| fs::read_dir(&frozen.path).unwrap())
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn what_is_kept_is_there_for_the_same_project_alone() {
        let site = LeaseFixture::new();
        let (one, other) = (site.spec("one"), site.spec("other"));
        site.keep(site.take(&one), &one, "a");
        assert_eq!(site.names(&one), ["a"]);
        assert!(site.names(&other).is_empty());
    }

    #[test]
    fn only_one_sandbox_at_a_time_adds_and_the_other_reads() {
        let site = LeaseFixture::new();
        let spec = site.spec("one");
        site.keep(site.take(&spec), &spec, "a");
        let first = site.take(&spec);
        let second = site.take(&spec);
        assert_eq!(CacheLease::keeping(Some(&first)), CacheKeeping::Kept);
        assert_eq!(
            CacheLease::keeping(Some(&second)),
            CacheKeeping::HeldByAnother
        );
        assert_eq!(second.frozen().len(), 1);
        site.keep(first, &spec, "b");
        site.keep(second, &spec, "c");
        assert_eq!(site.names(&spec), ["a", "b"]);
    }

    #[test]
    fn many_layers_become_one_but_not_under_somebody_who_reads() {
        let site = LeaseFixture::new();
        let spec = site.spec("one");
        let names: Vec<String> = (0..=MANY_LAYERS + 1).map(|n| n.to_string()).collect();
        site.keep(site.take(&spec), &spec, &names[0]);
        let first = site.take(&spec);
        let reader = site.take(&spec);
        site.keep(first, &spec, &names[1]);
        for name in &names[2..names.len() - 1] {
            site.keep(site.take(&spec), &spec, name);
        }
        assert!(site.take(&spec).frozen().len() > MANY_LAYERS);
        assert!(reader.frozen().iter().all(|frozen| frozen.path.is_dir()));
        drop(reader);
        site.keep(site.take(&spec), &spec, &names[names.len() - 1]);
        assert_eq!(site.take(&spec).frozen().len(), 1);
        assert_eq!(site.names(&spec), names);
    }

    #[test]
    fn what_a_crash_left_is_swept_and_never_shown() {
        let site = LeaseFixture::new();
        let spec = site.spec("one");
        site.keep(site.take(&spec), &spec, "a");
        let dir = store::project_dir(&site.layout, spec.cache_project.as_ref().unwrap(), None);
        fs::create_dir_all(dir.join("half/npm")).unwrap();
        assert_eq!(site.names(&spec), ["a"]);
        let lease = site.take(&spec);
        assert!(store::sweep(&site.layout, true).is_empty());
        drop(lease);
        assert_eq!(store::sweep(&site.layout, false), [dir.join("half")]);
        assert_eq!(store::sweep(&site.layout, true), [dir.join("half")]);
        assert!(!dir.join("half").exists());
        assert_eq!(site.names(&spec), ["a"]);
    }

    #[test]
    fn a_project_that_takes_too_much_begins_anew() {
        let site = LeaseFixture::new();
        let spec = site.spec("one");
        site.keep(site.take(&spec), &spec, "a");
        let dir = store::project_dir(&site.layout, spec.cache_project.as_ref().unwrap(), None);
        let mut index = store::read(&dir).unwrap().unwrap();
        index.layers[0].bytes = MAX_PROJECT_BYTES;
        store::write(&dir, &index).unwrap();
        site.keep(site.take(&spec), &spec, "b");
        assert!(site.names(&spec).is_empty());
        site.keep(site.take(&spec), &spec, "c");
        assert_eq!(site.names(&spec), ["c"]);
    }

    #[test]
    fn the_longest_unused_projects_go_first() {
        let site = LeaseFixture::new();
        for (project, used_unix_ms) in [("old", 1), ("older", 0), ("used", 2)] {
            let spec = site.spec(project);
            site.keep(site.take(&spec), &spec, "a");
            let dir = store::project_dir(&site.layout, spec.cache_project.as_ref().unwrap(), None);
            let mut index = store::read(&dir).unwrap().unwrap();
            index.used_unix_ms = used_unix_ms;
            index.layers[0].bytes = MAX_BYTES / 3 + 1;
            store::write(&dir, &index).unwrap();
        }
        let busy = site.spec("busy");
        site.keep(site.take(&busy), &busy, "a");
        for project in ["old", "used", "busy"] {
            assert_eq!(site.names(&site.spec(project)), ["a"], "{project}");
        }
        assert!(site.names(&site.spec("older")).is_empty());
    }

    #[test]
    fn caches_of_users_are_apart_from_each_other_and_from_the_machines() {
        let site = LeaseFixture::new();
        let spec = |owner: Option<&str>| SandboxSpec {
            cache_owner: owner.map(str::to_owned),
            ..site.spec("p")
        };
        let take = |owner| {
            let lease = CacheLease::take(&site.layout, &spec(owner), site.temp.path());
            lease.unwrap().unwrap()
        };
        let owners = [None, Some("ann"), Some("bob")];
        // No owner waits for the lock of another or can see that it is held.
        let leases = owners.map(take);
        for lease in &leases {
            assert!(lease.writer.is_some());
        }
        for (lease, owner) in leases.into_iter().zip(owners) {
            site.keep(lease, &spec(owner), owner.unwrap_or("machine"));
        }
        for owner in owners {
            let frozen = take(owner).frozen();
            assert_eq!(frozen.len(), 1, "{owner:?}");
            assert!(frozen[0].path.join(owner.unwrap_or("machine")).exists());
        }
    }

    #[test]
    fn a_user_who_keeps_much_evicts_himself() {
        let index = |owner: Option<&str>, bytes: u64| {
            let mut index = Index::new(Path::new("/p"), owner);
            index.layers.push(CacheLayer {
                id: "l".to_owned(),
                first_id: None,
                bytes,
                names: Vec::new(),
                kept_unix_ms: 0,
                sources: Vec::new(),
            });
            index
        };
        // Newest first; an owner may have 5, and all together 20.
        let all = [
            ("ann-1", index(Some("ann"), 4)),
            ("ann-2", index(Some("ann"), 4)),
            ("bob", index(Some("bob"), 5)),
            ("machine", index(None, 11)),
            ("old", index(Some("cleo"), 1)),
        ]
        .map(|(name, index)| (PathBuf::from(name), index));
        assert_eq!(
            too_many(&all, 20, 5),
            [Path::new("ann-2"), Path::new("old")]
        );
        assert_eq!(too_many(&all, 21, 5), [Path::new("ann-2")]);
        assert_eq!(too_many(&all[3..], 5, 5), [Path::new("old")]);
    }
}
