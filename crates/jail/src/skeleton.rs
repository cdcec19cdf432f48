//! The generated lower layers of a host root, built once per content and shared, read-only, by every
//! sandbox that they fit.
//!
//! The *skeleton* has empty mount points, the accounts and names of one kind of sandbox, and a link to the
//! workspace: a few files, other ones for each project. Below it lies the machine's part, what programs need of the
//! host's `/etc`: hundreds of files and links, the same ones for all.

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

/// Entries of `/etc` that are copied when they exist: what programs read there, and what `/usr` links to. No
/// accounts, keys, hosts or mounts.
const ETC: [&str; 59] = [
    "ImageMagick-6",
    "ImageMagick-7",
    "R",
    "X11",
    "alternatives",
    "ant",
    "bash.bashrc",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "environment",
    "ethertypes",
    "fonts",
    "gai.conf",
    "groff",
    "inputrc",
    "java",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "java-8-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "magic",
    "magic.mime",
    "manpath.config",
    "maven",
    "mime.types",
    "networks",
    "nsswitch.conf",
    "octave.conf",
    "openmpi",
    "os-release",
    "perl",
    "pki",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
    "rpc",
    "services",
    "sgml",
    "shells",
    "ssl",
    "terminfo",
    "texmf",
    "timezone",
    "vim",
    "xml",
];

/// Never copied, wherever it stands: private keys.
const ETC_REFUSED: [&str; 2] = ["ssl/private", "pki/tls/private"];

/// Settings that may hold passwords of the whole machine's users, and the elements that do. Comments do not count.
const ETC_WITH_PASSWORDS: [&str; 1] = ["maven/settings.xml"];
const PASSWORD_ELEMENTS: [&str; 3] = ["<password>", "<passphrase>", "<privateKey>"];

/// Largest file copied and most files copied, so that an odd `/etc` cannot fill the state directory.
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_FILES: usize = 20_000;

/// What a skeleton is made of; equal recipes give equal skeletons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipe {
    dirs: BTreeMap<PathBuf, (u32, u32)>,
    files: Vec<PathBuf>,
    links: BTreeMap<PathBuf, PathBuf>,
    text: BTreeMap<&'static str, String>,
    /// What the host's `/etc` is like, where that is copied.
    etc: Option<String>,
}

impl Recipe {
    /// The machine's part, below the skeleton of [`Recipe::new`]; `None` where all of the host is shown.
    pub fn machine(spec: &Isolation) -> Option<Self> {
        (spec.rootfs == RootFs::Host).then(|| Self {
            dirs: BTreeMap::from([("etc".into(), (0o755, 0))]),
            etc: Some(etc_stamp()),
            ..Self::default()
        })
    }

    /// Works out what the skeleton for this spec holds.
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
        // Mount points, so that none of them is made in the layer that commands write.
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

    /// Where a symbolic link to the workspace goes: to the place at which the project stands on the host, for what was
    /// built there may hold its own path (the scripts of a Python virtual environment do). `None` where something else
    /// stands there, or would be hidden by it.
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
        // What the skeleton has at this place or below it would be out of reach.
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

    /// A stable text of everything that matters; its digest names the skeleton.
    pub fn fingerprint(&self) -> String {
        format!(
            "3\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
            self.dirs, self.files, self.links, self.text, self.etc
        )
    }

    /// Builds the skeleton at `path`, which must not exist yet.
    ///
    /// `ids` translates an id inside to one on the host when the builder is privileged.
    ///
    /// # Errors
    /// Any failure to write; what was made so far is removed again.
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
            let mut copied = 0;
            for name in ETC {
                copy(
                    &Path::new("/etc").join(name),
                    &root.join("etc").join(name),
                    name,
                    &mut copied,
                )?;
            }
        }
        for (name, content) in &self.text {
            let path = root.join("etc").join(name);
            fs::write(&path, content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        Ok(())
    }
}

/// Makes the directories for a sandbox's writable layers and gives them to their owners inside.
///
/// # Errors
/// Any failure to make or own them.
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
            // A kept sandbox starts again on what it wrote, but with a new work directory: the
            // mark that a volatile overlay leaves in the old one forbids its use.
            Err(Errno::EXIST) if name.ends_with("-work") => {
                remove_work(&path)?;
                rustix::fs::mkdir(&path, Mode::RWXU)?;
            }
            // It was made before for its project id, and has no owner yet.
            Err(Errno::EXIST) if name.is_empty() => {}
            Err(Errno::EXIST) => continue,
            Err(error) => return Err(error.into()),
        }
        // Set apart from creation, so that the caller's umask has no say.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        if is_privileged
            && let (Some(uid), Some(gid)) = (plan.host_uid(owner), plan.host_gid(owner))
        {
            std::os::unix::fs::lchown(&path, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// Gives a tree to the range that begins at `first_id`: each entry to the id of the range that its owner stands for, be
/// that an id of this machine or one of another range.
///
/// # Errors
/// Any entry whose owner cannot be changed.
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

/// The kernel makes its own directories in there without any permission bits.
fn remove_work(path: &Path) -> io::Result<()> {
    unlock(path)?;
    fs::remove_dir_all(path)
}

/// Gives the owner its rights on a directory and all below it. Nobody else is at work there.
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

/// Makes a directory of this mode, or gives the one that is there this mode.
pub(crate) fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // Set apart from creation, so that the caller's umask has no say.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Copies files, directories and links; skips what the caller cannot read and what is neither.
fn copy(from: &Path, to: &Path, name: &str, copied: &mut usize) -> io::Result<()> {
    if ETC_REFUSED.contains(&name) || *copied >= MAX_FILES {
        return Ok(());
    }
    let Ok(meta) = fs::symlink_metadata(from) else {
        return Ok(());
    };
    *copied += 1;
    if meta.is_symlink() {
        let Ok(target) = fs::read_link(from) else {
            return Ok(());
        };
        symlink(target, to)
    } else if meta.is_dir() {
        let Ok(entries) = fs::read_dir(from) else {
            return Ok(());
        };
        make_dir(to, 0o755)?;
        for entry in entries.flatten() {
            let child = entry.file_name();
            let child_name = format!("{name}/{}", child.to_string_lossy());
            copy(&entry.path(), &to.join(&child), &child_name, copied)?;
        }
        Ok(())
    } else if meta.is_file() && meta.len() <= MAX_FILE_BYTES && meta.mode() & 0o004 != 0 {
        let Ok(content) = fs::read(from) else {
            return Ok(());
        };
        if ETC_WITH_PASSWORDS.contains(&name) && has_password(&String::from_utf8_lossy(&content)) {
            return Ok(());
        }
        fs::write(to, content)?;
        let mode = if meta.mode() & 0o111 == 0 {
            0o644
        } else {
            0o755
        };
        fs::set_permissions(to, fs::Permissions::from_mode(mode))
    } else {
        Ok(())
    }
}

/// What of `/etc` is shown in place, where nothing can be copied there: directories and files, by the rules of a copy.
#[derive(Debug, Default)]
pub(crate) struct ShownEtc {
    /// Directories that may be listed.
    pub(crate) dirs: Vec<PathBuf>,
    /// Files that may be read.
    pub(crate) files: Vec<PathBuf>,
}

/// Looks for what a sandbox sees of `/etc`.
pub(crate) fn shown_etc() -> ShownEtc {
    let mut shown = ShownEtc::default();
    for name in ETC {
        show(&Path::new("/etc").join(name), name, &mut shown);
    }
    shown
}

fn show(path: &Path, name: &str, shown: &mut ShownEtc) {
    if ETC_REFUSED.contains(&name) || shown.dirs.len() + shown.files.len() >= MAX_FILES {
        return;
    }
    // A link is followed by whoever may read what it leads to.
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    if meta.is_dir() {
        let Ok(entries) = fs::read_dir(path) else {
            return;
        };
        shown.dirs.push(path.to_owned());
        for entry in entries.flatten() {
            let child = format!("{name}/{}", entry.file_name().to_string_lossy());
            show(&entry.path(), &child, shown);
        }
    } else if meta.is_file() && meta.mode() & 0o004 != 0 {
        let may_hold_passwords = ETC_WITH_PASSWORDS.contains(&name);
        let text = || fs::read(path).unwrap_or_default();
        if !may_hold_passwords || !has_password(&String::from_utf8_lossy(&text())) {
            shown.files.push(path.to_owned());
        }
    }
}

/// Whether settings in XML hold a password outside of comments.
fn has_password(text: &str) -> bool {
    let mut rest = text;
    loop {
        let (shown, after) = rest.split_once("<!--").unwrap_or((rest, ""));
        if PASSWORD_ELEMENTS
            .iter()
            .any(|element| shown.contains(element))
        {
            return true;
        }
        let Some((_, next)) = after.split_once("-->") else {
            return false;
        };
        rest = next;
    }
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
                // The owner answers there, and may have to ask somebody first.
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

/// Changes when what is copied from `/etc` changes, judged by the time stamps of two levels.
fn etc_stamp() -> String {
    let mut stamp = String::new();
    for name in ETC {
        let path = Path::new("/etc").join(name);
        let mut add = |path: &Path| {
            if let Ok(meta) = fs::symlink_metadata(path) {
                use std::fmt::Write as _;
                let _ = write!(
                    stamp,
                    "{}:{}.{}:{} ",
                    meta.ino(),
                    meta.mtime(),
                    meta.mtime_nsec(),
                    meta.len()
                );
            }
        };
        add(&path);
        if name == "ssl" {
            add(Path::new("/etc/ssl/certs"));
        }
    }
    stamp
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

        // The project need not be there.
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
        // Neither hides a file of the other.
        let copied = names(&machine.join("etc"));
        assert!(!copied.is_empty());
        let own = names(&skeleton.join("etc"));
        assert!(own.contains(&"passwd".into()));
        assert!(own.iter().all(|name| !copied.contains(name)), "{own:?}");
        let link = fs::read_link(skeleton.join("home/one/project")).unwrap();
        assert_eq!(link, Path::new(WORKSPACE));
    }

    #[test]
    fn passwords_in_comments_are_examples() {
        let example = "<settings><!-- <password>x</password> --><servers/></settings>";
        assert!(!has_password(example));
        assert!(has_password(&format!(
            "{example}<server><password>x</password></server>"
        )));
        assert!(has_password(
            "<!-- one --><passphrase>x</passphrase><!-- open"
        ));
        assert!(!has_password("<!-- never closed <password>x"));
    }
}
