//! Generated lower layers of a host root, built once per content and shared read-only by every
//! sandbox that they fit.
//!
//! The *skeleton* contains empty mount points, the accounts and names of one kind of sandbox, and a
//! link to the workspace: a few files that differ between projects. Below it lies the machine
//! layer, the part of the host's `/etc` that programs need: hundreds of files and links, the same
//! for all sandboxes.

use crate::etc::{self, EtcEntryKind};
use crate::facts::{EntryKind, HostFacts};
use crate::plan::{Plan, range_of};
use glovebox_spec::seed::{HELD_INSIDE, LIVE_LFS_INSIDE, LIVE_OBJECTS_INSIDE};
use glovebox_spec::{Isolation, RootFs, SANDBOX_GID, SANDBOX_UID, SANDBOX_USER, WORKSPACE};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Content of a skeleton; equal recipes give equal skeletons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipe {
    dirs: BTreeMap<PathBuf, (u32, u32)>,
    files: Vec<PathBuf>,
    links: BTreeMap<PathBuf, PathBuf>,
    text: BTreeMap<&'static str, String>,
    /// Stamp of the host's `/etc`. `None` if that is not copied.
    etc: Option<String>,
}

impl Recipe {
    /// Returns the recipe of the machine layer, below the skeleton of [`Recipe::new`]. `None`
    /// unless the root is [`RootFs::Host`].
    pub fn machine(spec: &Isolation) -> Option<Self> {
        (spec.rootfs == RootFs::Host).then(|| Self {
            dirs: BTreeMap::from([("etc".into(), (0o755, 0))]),
            etc: Some(etc::stamp(Path::new(etc::ETC))),
            ..Self::default()
        })
    }

    /// Determines the content of the skeleton for a spec.
    pub fn new(spec: &Isolation, facts: &HostFacts) -> Self {
        let mut recipe = Self::default();
        for (path, mode) in [
            ("etc", 0o755),
            ("proc", 0o555),
            ("dev", 0o755),
            ("run", 0o755),
            ("workspace", 0o755),
            ("tmp", 0o1777),
            ("var", 0o755),
            ("var/tmp", 0o1777),
            ("home", 0o755),
            ("sys", 0o755),
            ("sys/fs", 0o755),
            ("sys/fs/cgroup", 0o755),
        ] {
            recipe.dirs.insert(path.into(), (mode, 0));
        }
        let is_bound = |path: &Path| {
            facts
                .root_entries
                .iter()
                .any(|entry| entry.kind == EntryKind::Directory && path.starts_with(&entry.name))
        };
        recipe.own_dir(&spec.home, SANDBOX_UID, &is_bound);
        for grant in &spec.grants {
            let Ok(target) = grant.target.strip_prefix("/") else {
                continue;
            };
            if is_bound(target) {
                continue;
            }
            let below_home = spec
                .home
                .strip_prefix("/")
                .is_ok_and(|home| target.starts_with(home));
            let owner = if below_home { SANDBOX_UID } else { 0 };
            if grant.source.is_dir() {
                recipe.own_dir(&grant.target, owner, &is_bound);
            } else {
                if let Some(parent) = grant.target.parent() {
                    recipe.own_dir(parent, owner, &is_bound);
                }
                recipe.files.push(target.to_owned());
            }
        }
        // These mount points would otherwise be made in the layer that commands write to.
        for path in facts.kernel_dirs.iter().chain(&facts.package_dirs) {
            recipe.own_dir(path, 0, &is_bound);
        }
        if !spec.repositories.is_empty() {
            for target in [HELD_INSIDE, LIVE_OBJECTS_INSIDE, LIVE_LFS_INSIDE] {
                recipe.own_dir(Path::new(target), 0, &is_bound);
            }
        }
        for cache in spec
            .caches
            .iter()
            .filter(|cache| cache.in_workspace().is_none())
        {
            let is_in_home = cache.target.starts_with(&spec.home);
            recipe.own_dir(
                &cache.target,
                if is_in_home { SANDBOX_UID } else { 0 },
                &is_bound,
            );
        }
        for entry in &facts.root_entries {
            match &entry.kind {
                EntryKind::Directory => {
                    recipe.dirs.insert(entry.name.clone().into(), (0o755, 0));
                }
                EntryKind::Symlink(target) => {
                    recipe
                        .links
                        .insert(entry.name.clone().into(), target.clone());
                }
            }
        }
        if spec.rootfs == RootFs::Host {
            recipe.text = accounts(spec);
        }
        if let Some(link) = recipe.project_link(spec, facts) {
            let parents = link.ancestors().skip(1);
            for part in parents.filter(|part| !part.as_os_str().is_empty()) {
                recipe.dirs.entry(part.to_owned()).or_insert((0o755, 0));
            }
            recipe.links.insert(link, WORKSPACE.into());
        }
        recipe
    }

    /// Returns the place of the symbolic link to the workspace: the project's path on the host,
    /// because build output may contain that path (scripts of a Python virtual environment do).
    /// `None` if the path is taken, or if the link would hide another entry.
    fn project_link(&self, spec: &Isolation, facts: &HostFacts) -> Option<PathBuf> {
        let project = spec.workspace.as_deref()?;
        let path = project.strip_prefix("/").ok()?;
        let top = path.components().next()?;
        let is_elsewhere = spec.rootfs == RootFs::Host
            && !["proc", "dev", "workspace"]
                .iter()
                .any(|own| top.as_os_str() == *own)
            && !facts
                .root_entries
                .iter()
                .any(|entry| top.as_os_str() == entry.name.as_str())
            && !spec
                .grants
                .iter()
                .any(|grant| project.starts_with(&grant.target))
            && !spec
                .caches
                .iter()
                .any(|cache| project.starts_with(&cache.target));
        // Entries of the skeleton at this path or below it would be unreachable.
        let is_free = self
            .dirs
            .keys()
            .chain(&self.files)
            .chain(self.links.keys())
            .all(|own| !own.starts_with(path));
        (is_elsewhere && is_free).then(|| path.to_owned())
    }

    /// Adds a directory and its missing parents.
    fn own_dir(&mut self, path: &Path, owner: u32, is_bound: &dyn Fn(&Path) -> bool) {
        let Ok(path) = path.strip_prefix("/") else {
            return;
        };
        if is_bound(path) {
            return;
        }
        let mut ancestors: Vec<&Path> = path
            .ancestors()
            .filter(|part| !part.as_os_str().is_empty())
            .collect();
        ancestors.reverse();
        for (depth, part) in ancestors.iter().enumerate() {
            // A one-component home such as /root is the home itself, not a shared parent.
            let is_shared = depth == 0 && ancestors.len() > 1;
            let owner = if is_shared { 0 } else { owner };
            self.dirs
                .entry(part.to_path_buf())
                .or_insert((0o755, owner));
        }
    }

    /// Returns a stable text of the whole content. Its digest names the skeleton.
    pub fn fingerprint(&self) -> String {
        format!(
            "4\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
            self.dirs, self.files, self.links, self.text, self.etc
        )
    }

    /// Builds the skeleton at `path`, which must not exist yet. Entries get their owners, as ids
    /// inside, if `is_privileged`.
    ///
    /// # Errors
    /// Any failure to write. A partly built skeleton is removed.
    pub fn build(&self, path: &Path, is_privileged: bool) -> io::Result<()> {
        let built = self.build_in(path, is_privileged);
        if built.is_err() {
            let _ = fs::remove_dir_all(path);
        }
        built
    }

    fn build_in(&self, root: &Path, is_privileged: bool) -> io::Result<()> {
        let own = |path: &Path, owner: u32| {
            if is_privileged {
                let group = if owner == SANDBOX_UID {
                    SANDBOX_GID
                } else {
                    owner
                };
                std::os::unix::fs::lchown(path, Some(owner), Some(group))
            } else {
                Ok(())
            }
        };
        make_dir(root, 0o755)?;
        for (name, (mode, owner)) in &self.dirs {
            let path = root.join(name);
            make_dir(&path, *mode)?;
            own(&path, *owner)?;
        }
        for name in &self.files {
            let path = root.join(name);
            fs::write(&path, b"")?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        for (name, target) in &self.links {
            symlink(target, root.join(name))?;
        }
        if self.etc.is_some() {
            copy_etc(Path::new(etc::ETC), &root.join("etc"))?;
        }
        for (name, content) in &self.text {
            let path = root.join("etc").join(name);
            fs::write(&path, content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        Ok(())
    }
}

/// Makes the directories of a sandbox's writable layers and, under root, gives them to their owners
/// inside.
///
/// # Errors
/// A directory cannot be made, or its owner or mode cannot be set.
pub fn make_layers(plan: &Plan, layers: &Path, workspace_mode: u32) -> io::Result<()> {
    let is_privileged = plan.identity.writer == crate::plan::MapWriter::Privileged;
    for (name, owner) in plan.layer_dirs() {
        if plan.layers_in_memory() && !name.is_empty() {
            break;
        }
        let path = if name.is_empty() {
            layers.to_owned()
        } else {
            layers.join(&name)
        };
        let mode = match name.as_str() {
            "" => 0o700,
            "workspace-upper" => workspace_mode & 0o777,
            _ => 0o755,
        };
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => {}
            // A kept sandbox starts again on its old changes, but with a new work directory: a
            // volatile overlay leaves a mark in the old one that forbids its use.
            Err(Errno::EXIST) if name.ends_with("-work") => {
                remove_work(&path)?;
                rustix::fs::mkdir(&path, Mode::RWXU)?;
            }
            // The directory was made earlier for its project id and has no owner yet.
            Err(Errno::EXIST) if name.is_empty() => {}
            Err(Errno::EXIST) => continue,
            Err(error) => return Err(error.into()),
        }
        // chmod is separate from creation, so that the caller's umask does not apply.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        if is_privileged
            && let (Some(uid), Some(gid)) = (plan.host_uid(owner), plan.host_gid(owner))
        {
            std::os::unix::fs::lchown(&path, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// Gives a tree to the range that begins at `first_id`. The owner of each entry, whether an id of
/// this machine or of another range, is mapped to the id of the new range with the same offset.
///
/// # Errors
/// The owner of an entry cannot be changed.
pub fn give_to_range(path: &Path, first_id: u32) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            give_to_range(&entry?.path(), first_id)?;
        }
    }
    let shifted = |id: u32| first_id.checked_add(id - range_of(id).unwrap_or(0));
    std::os::unix::fs::lchown(path, shifted(meta.uid()), shifted(meta.gid()))
}

/// Removes a work directory. The kernel makes its own directories in it, without any permission
/// bits.
fn remove_work(path: &Path) -> io::Result<()> {
    unlock(path)?;
    fs::remove_dir_all(path)
}

/// Gives the owner all rights on a directory and all directories below it. No other process may be
/// changing the tree.
fn unlock(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            unlock(&entry.path())?;
        }
    }
    Ok(())
}

/// Makes a directory with this mode, or sets the mode of an existing one.
pub(crate) fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // chmod is separate from creation, so that the caller's umask does not apply.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Copies the shown part of a directory like `/etc` into an existing directory.
fn copy_etc(from: &Path, to: &Path) -> io::Result<()> {
    for entry in etc::list(from) {
        let path = to.join(&entry.name);
        match entry.kind {
            EtcEntryKind::Directory => make_dir(&path, 0o755)?,
            EtcEntryKind::Link(target) => symlink(target, path)?,
            EtcEntryKind::File { is_executable } => {
                let Ok(content) = etc::read_file(from, &entry.name) else {
                    continue;
                };
                fs::write(&path, content)?;
                let mode = if is_executable { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

fn accounts(spec: &Isolation) -> BTreeMap<&'static str, String> {
    let home = spec.home.display();
    let (user, uid, gid, host) = (SANDBOX_USER, SANDBOX_UID, SANDBOX_GID, &spec.hostname);
    BTreeMap::from([
        (
            "passwd",
            format!(
                "root:x:0:0:root:/:/usr/sbin/nologin\n\
                 {user}:x:{uid}:{gid}:Sandbox user:{home}:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        ),
        (
            "group",
            format!("root:x:0:\ntty:x:5:\n{user}:x:{gid}:\nnogroup:x:65534:\n"),
        ),
        (
            "hosts",
            format!("127.0.0.1 localhost {host}\n::1 localhost\n"),
        ),
        ("hostname", format!("{host}\n")),
        ("host.conf", "multi on\n".to_owned()),
        (
            "resolv.conf",
            match spec.net {
                // The guest answers there that no name exists.
                glovebox_spec::Net::None => {
                    "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n".to_owned()
                }
                // The owner answers there, and may have to ask another server first.
                glovebox_spec::Net::Egress => {
                    "nameserver 127.0.0.1\noptions timeout:12 attempts:1\n".to_owned()
                }
                glovebox_spec::Net::Host => {
                    fs::read_to_string("/etc/resolv.conf").unwrap_or_default()
                }
            },
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_part_is_the_same_for_all_and_the_skeleton_is_small() {
        let spec = |home: &str, rootfs| Isolation {
            home: home.into(),
            workspace: Some(format!("{home}/project").into()),
            rootfs,
            ..Isolation::default()
        };
        let one = spec("/home/one", RootFs::Host);
        let other = spec("/home/other", RootFs::Host);
        assert_eq!(Recipe::machine(&one), Recipe::machine(&other));
        assert_eq!(Recipe::machine(&spec("/home/one", RootFs::HostAll)), None);

        // The project need not exist.
        let facts = HostFacts::read(&Isolation::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (machine, skeleton) = (dir.path().join("machine"), dir.path().join("skeleton"));
        let recipe = Recipe::machine(&one).unwrap();
        recipe.build(&machine, false).unwrap();
        let recipe = Recipe::new(&one, &facts);
        recipe.build(&skeleton, false).unwrap();
        assert_ne!(
            recipe.fingerprint(),
            Recipe::new(&other, &facts).fingerprint()
        );
        let names = |dir: &Path| -> Vec<_> {
            let entries = fs::read_dir(dir).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(names(&machine), ["etc"]);
        // Neither layer hides a file of the other.
        let copied = names(&machine.join("etc"));
        assert!(!copied.is_empty());
        let own = names(&skeleton.join("etc"));
        assert!(own.contains(&"passwd".into()));
        assert!(own.iter().all(|name| !copied.contains(name)), "{own:?}");
        let link = fs::read_link(skeleton.join("home/one/project")).unwrap();
        assert_eq!(link, Path::new(WORKSPACE));
    }
}
