//! The changes of a native sandbox, read from its layers on this machine.
//!
//! In: the writable layer and those frozen below it, the project below all of them, and what was
//! hidden from the sandbox. Out: a change set with digests, and access to the contents. The layers
//! were written from inside and are hostile: see [`crate::beneath`]. Only what is in a layer is looked
//! at, so the cost is that of the changes and not of the project.

use super::BaseTree;
use super::merge::{Base, Entry, LayerId, Listing, Look, Top, list};
use crate::beneath::{Anchor, digest, io};
use crate::filter::Filter;
use crate::progress::{Progress, Watch, report};
use crate::{
    Change, ChangeKind, ChangeSet, Collected, Contents, Flag, Node, Quota, Refusal, RefusalReason,
    RelPath, Stage, SyncError,
};
use glovebox_proto::{Code, Fault};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the layers of a workspace are.
#[derive(Debug, Clone, Copy)]
pub struct Layered<'a> {
    /// The host's directory below the layers, if there is one.
    pub project: Option<&'a Path>,
    /// The layers, newest first: the writable one, then those that checkpoints froze.
    pub layers: &'a [PathBuf],
    /// Relative paths that the sandbox was not shown.
    pub hidden: &'a [PathBuf],
}

/// Beginning of the names of our own directories in a destination.
pub(crate) const RESERVED_PREFIX: &[u8] = b".glovebox-pull-";
/// How many more names than changes are held at a time.
const SPARE_NAMES: usize = 10_000;
/// How often progress is reported, in paths.
const REPORT_EVERY: u64 = 64;

/// Finds out what a sandbox changed.
///
/// # Errors
/// [`Code::TooLarge`] when there is more than `quota` allows, [`Code::Cancelled`] when `watch` says
/// so, and whatever reading the layers or the project fails with.
pub fn from_layers(
    source: &Layered<'_>,
    filter: &Filter,
    quota: &Quota,
    watch: &mut Watch<'_>,
) -> Result<Collected, SyncError> {
    let failed = |fault| SyncError::pull(Stage::Collect, fault);
    let trees = Arc::new(Trees::open(source).map_err(failed)?);
    let mut walk = Walk {
        trees: &trees,
        hidden: source
            .hidden
            .iter()
            .map(|path| std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec())
            .collect(),
        filter,
        quota,
        watch,
        changes: Vec::new(),
        refused: Vec::new(),
        paths: 0,
        bytes: 0,
        held_names: 0,
    };
    let ids: Vec<LayerId> = (0..).take(trees.layers.len()).collect();
    let base = match trees.project {
        Some(_) => Base::Shows,
        None => Base::Absent,
    };
    walk.directory(b"", &ids, base, 0, false).map_err(failed)?;
    let mut set = ChangeSet {
        changes: walk.changes.into_iter().flatten().collect(),
        refused: walk.refused,
    };
    let contents = LayerContents {
        git_dir: trees.project.as_ref().and_then(super::named_by_file),
        trees: Arc::clone(&trees),
    };
    super::complete(&mut set, &contents, &contents);
    Ok(Collected::new(set, Box::new(contents)))
}

/// The opened layers and project.
#[derive(Debug)]
struct Trees {
    layers: Vec<Anchor>,
    project: Option<Anchor>,
}

impl Trees {
    fn open(source: &Layered<'_>) -> Result<Self, Fault> {
        if source.layers.len() >= usize::from(LayerId::MAX) {
            return Err(Fault::failed(Code::TooLarge, "there are too many layers"));
        }
        Ok(Self {
            layers: source
                .layers
                .iter()
                .map(|path| Anchor::open(path))
                .collect::<Result<_, _>>()?,
            project: source.project.map(Anchor::open).transpose()?,
        })
    }
}

struct Walk<'a, 'w> {
    trees: &'a Trees,
    hidden: HashSet<Vec<u8>>,
    filter: &'a Filter,
    quota: &'a Quota,
    watch: &'a mut Watch<'w>,
    /// `None`: a deletion that turned out not to be one.
    changes: Vec<Option<Change>>,
    refused: Vec<Refusal>,
    paths: u64,
    bytes: u64,
    /// Names of the directories that are being looked at, one within the other.
    held_names: usize,
}

impl Walk<'_, '_> {
    /// Looks at one directory. True when something of the host in it stays, whatever the sandbox did.
    // TRUST: names, depth and number are a sandbox's; all are bounded by the quota.
    fn directory(
        &mut self,
        path: &[u8],
        ids: &[LayerId],
        base: Base,
        depth: usize,
        is_excluded: bool,
    ) -> Result<bool, Fault> {
        if depth >= self.quota.max_depth {
            self.refuse(path, RefusalReason::TooDeep);
            return Ok(base != Base::Absent);
        }
        let trees = self.trees;
        // Unchanged copies may be among them, so a few more names than changes are in order.
        let max_names = (self.quota.max_changes + SPARE_NAMES).saturating_sub(self.held_names);
        let project = trees.project.as_ref();
        let entries = match list(&trees.layers, ids, project, base, path, max_names)? {
            Listing::Entries(entries) => entries,
            Listing::Unreadable => {
                self.refuse(path, RefusalReason::Unreadable);
                return Ok(base != Base::Absent);
            }
        };
        let held = entries.len();
        self.held_names += held;
        let mut stays = false;
        for entry in entries {
            self.paths += 1;
            if self.paths.is_multiple_of(REPORT_EVERY) {
                self.report()?;
            }
            let child = join(path, &entry.name);
            stays |= self.entry(&child, entry, base, depth, is_excluded)?;
        }
        self.held_names -= held;
        Ok(stays)
    }

    fn entry(
        &mut self,
        path: &[u8],
        entry: Entry,
        base: Base,
        depth: usize,
        is_excluded: bool,
    ) -> Result<bool, Fault> {
        let exists_below = entry.base.is_some();
        let is_in_layers = !matches!(entry.top, Top::Nothing);
        let Ok(checked) = RelPath::new(path) else {
            self.refuse(path, RefusalReason::BadName);
            return Ok(exists_below);
        };
        if depth == 0 && entry.name.starts_with(RESERVED_PREFIX) {
            if is_in_layers {
                self.refuse(path, RefusalReason::Reserved);
            }
            return Ok(exists_below);
        }
        if super::is_git_name(&entry.name) {
            self.refuse(path, RefusalReason::Git);
            return Ok(exists_below);
        }
        if self.hidden.contains(path) {
            // A whiteout here is the sandbox's own file, made and removed.
            if matches!(entry.top, Top::Dir { .. } | Top::Other { .. })
                || matches!(base, Base::Hidden)
            {
                self.refuse(path, RefusalReason::Excluded);
            }
            return Ok(exists_below);
        }
        let base_kind = entry.base.map(|look| look.kind);
        let is_dir = match &entry.top {
            Top::Dir { .. } => true,
            Top::Other { .. } => false,
            Top::Whiteout | Top::Nothing => base_kind == Some(FileType::Directory),
        };
        let mut is_out = is_excluded;
        if !self.filter.takes(&checked, is_dir) {
            if !is_excluded && (exists_below || !matches!(entry.top, Top::Whiteout)) {
                self.refuse(path, RefusalReason::Excluded);
            }
            if !(is_dir && self.filter.may_include_below()) {
                return Ok(exists_below);
            }
            is_out = true;
        } else if is_excluded {
            is_out = false;
        }
        self.take(&checked, entry, base, depth, is_out)
    }

    /// Looks at a path that takes part; or, with `is_out`, only at what lies below it.
    fn take(
        &mut self,
        path: &RelPath,
        entry: Entry,
        base: Base,
        depth: usize,
        is_out: bool,
    ) -> Result<bool, Fault> {
        let below = entry.base.map(|look| look.kind);
        match entry.top {
            Top::Whiteout | Top::Nothing => self.deleted(path, entry.base.as_ref(), depth, is_out),
            Top::Dir { layers, is_opaque } => {
                let child_base = match below {
                    Some(FileType::Directory) if is_opaque || base == Base::Hidden => Base::Hidden,
                    Some(FileType::Directory) => Base::Shows,
                    _ => Base::Absent,
                };
                if !is_out && child_base == Base::Absent {
                    let from = self.base_node(path, entry.base.as_ref())?;
                    self.change(path, from, Some(Node::Dir), Vec::new())?;
                }
                self.directory(path.as_bytes(), &layers, child_base, depth + 1, is_out)
            }
            Top::Other { layer, kind } => {
                let was_dir = below == Some(FileType::Directory);
                let is_taken = self.other(path, layer, kind, entry.base.as_ref())? && !is_out;
                if was_dir && is_taken {
                    self.directory(path.as_bytes(), &[], Base::Hidden, depth + 1, is_out)
                } else {
                    Ok(below.is_some() && !is_taken)
                }
            }
        }
    }

    fn deleted(
        &mut self,
        path: &RelPath,
        base: Option<&Look>,
        depth: usize,
        is_out: bool,
    ) -> Result<bool, Fault> {
        let Some(look) = base else {
            // The host has removed it too, or never had it.
            return Ok(false);
        };
        match self.base_node(path, Some(look))? {
            None => {
                self.refuse(path.as_bytes(), RefusalReason::Special);
                Ok(true)
            }
            Some(Node::Dir) => {
                let at = self.changes.len();
                if !is_out {
                    self.change(path, Some(Node::Dir), None, Vec::new())?;
                }
                let stays =
                    self.directory(path.as_bytes(), &[], Base::Hidden, depth + 1, is_out)?;
                if stays && !is_out {
                    self.changes[at] = None;
                }
                Ok(stays || is_out)
            }
            Some(from) => {
                self.change(path, Some(from), None, Vec::new())?;
                Ok(false)
            }
        }
    }

    /// A file, link or special file in a layer. False when it is not taken.
    fn other(
        &mut self,
        path: &RelPath,
        layer: LayerId,
        kind: FileType,
        base: Option<&Look>,
    ) -> Result<bool, Fault> {
        let anchor = &self.trees.layers[usize::from(layer)];
        let bytes = path.as_bytes();
        match kind {
            FileType::RegularFile => {}
            FileType::Symlink => {
                let target = match anchor.link(bytes) {
                    Ok(target) => target,
                    // It went away or turned into something else: the sandbox still runs.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::LOOP) => {
                        return Ok(false);
                    }
                    Err(Errno::ACCESS) => {
                        self.refuse(bytes, RefusalReason::Unreadable);
                        return Ok(false);
                    }
                    Err(errno) => {
                        return Err(io("read", &anchor.path().join(path.as_path()), errno));
                    }
                };
                let from = self.base_node(path, base)?;
                let to = Node::Link { target };
                if from.as_ref() != Some(&to) {
                    self.change(path, from, Some(to), Vec::new())?;
                }
                return Ok(true);
            }
            _ => {
                self.refuse(bytes, RefusalReason::Special);
                return Ok(false);
            }
        }
        let (mut file, stat) = match anchor.file(bytes) {
            Ok(opened) => opened,
            Err(Errno::ACCESS) => {
                self.refuse(bytes, RefusalReason::Unreadable);
                return Ok(false);
            }
            // It went away or turned into something else: the sandbox still runs.
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NOTDIR | Errno::NXIO) => {
                return Ok(false);
            }
            Err(errno) => return Err(io("read", &anchor.path().join(path.as_path()), errno)),
        };
        let is_executable = stat.st_mode & 0o100 != 0;
        let (sum, size) = self.digest(path, &mut file, stat.st_size as u64)?;
        let mut from = self.base_node(path, base)?;
        if let Some(Node::File {
            size: base_size,
            is_executable: base_executable,
            digest: base_digest,
        }) = &mut from
            && *base_size == size
        {
            *base_digest = match &self.trees.project {
                Some(project) => project.digest(path.as_bytes(), size)?,
                None => None,
            };
            if *base_digest == Some(sum) && *base_executable == is_executable {
                self.bytes -= size;
                return Ok(true);
            }
        }
        let mut flags = Vec::new();
        if stat.st_mode & 0o7000 != 0 {
            flags.push(Flag::SpecialMode);
        }
        if stat.st_nlink > 1 {
            flags.push(Flag::HardLink);
        }
        let to = Node::File {
            size,
            is_executable,
            digest: Some(sum),
        };
        self.change(path, from, Some(to), flags)?;
        Ok(true)
    }

    /// Reads a file of a layer, within the quota.
    // TRUST: the length is a sandbox's. A sparse file counts with its apparent length, and before it
    // is read.
    fn digest(
        &mut self,
        path: &RelPath,
        file: &mut dyn Read,
        size: u64,
    ) -> Result<(crate::Digest, u64), Fault> {
        let left = self.quota.max_bytes.saturating_sub(self.bytes);
        let too_large = || {
            Fault::failed(
                Code::TooLarge,
                format!(
                    "the changes have more than {} bytes, with `{path}` among them",
                    self.quota.max_bytes
                ),
            )
            .remedy("leave it out with `--exclude`, or raise the limit")
        };
        if size > left {
            return Err(too_large());
        }
        let (paths, before) = (self.paths, self.bytes);
        let mut done = 0;
        let mut stopped = None;
        let watch = &mut *self.watch;
        let result = digest(file, left, &mut |block| {
            let earlier = done / (4 << 20);
            done += block.len() as u64;
            if done / (4 << 20) != earlier {
                let bytes = before + done;
                if let Err(fault) = report(watch, Progress::Collecting { paths, bytes }) {
                    stopped = Some(fault);
                    return Err(std::io::ErrorKind::Other.into());
                }
            }
            Ok(())
        });
        match result {
            Ok((sum, size)) => {
                self.bytes += size;
                Ok((sum, size))
            }
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Err(too_large()),
            Err(error) => Err(stopped.unwrap_or_else(|| io("read", path.as_path(), error))),
        }
    }

    /// What the host has; `None` for nothing and for what cannot travel.
    fn base_node(&self, path: &RelPath, base: Option<&Look>) -> Result<Option<Node>, Fault> {
        let (Some(look), Some(project)) = (base, &self.trees.project) else {
            return Ok(None);
        };
        Ok(match look.kind {
            FileType::RegularFile => Some(Node::File {
                size: look.size,
                is_executable: look.is_executable,
                digest: None,
            }),
            FileType::Symlink => match project.link(path.as_bytes()) {
                Ok(target) => Some(Node::Link { target }),
                // The host removes or replaces it at this moment.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::LOOP) => None,
                Err(errno) => return Err(io("read", &project.path().join(path.as_path()), errno)),
            },
            FileType::Directory => Some(Node::Dir),
            _ => None,
        })
    }

    fn change(
        &mut self,
        path: &RelPath,
        from: Option<Node>,
        to: Option<Node>,
        flags: Vec<Flag>,
    ) -> Result<(), Fault> {
        let kind = match (from, to) {
            (Some(from), Some(to)) => ChangeKind::Modified { from, to },
            (Some(from), None) => ChangeKind::Deleted { from },
            (None, Some(to)) => ChangeKind::Added { to },
            (None, None) => return Ok(()),
        };
        if self.changes.len() >= self.quota.max_changes {
            return Err(self.too_many());
        }
        let path = path.clone();
        self.changes.push(Some(Change { path, kind, flags }));
        Ok(())
    }

    fn refuse(&mut self, path: &[u8], reason: RefusalReason) {
        // Beyond any number a person would read, the first ones stand for all.
        if self.refused.len() < self.quota.max_changes {
            let path = path.to_vec();
            self.refused.push(Refusal { path, reason });
        }
    }

    fn report(&mut self) -> Result<(), Fault> {
        let (paths, bytes) = (self.paths, self.bytes);
        report(self.watch, Progress::Collecting { paths, bytes })
    }

    fn too_many(&self) -> Fault {
        Fault::failed(
            Code::TooLarge,
            format!("more than {} paths changed", self.quota.max_changes),
        )
        .remedy("leave directories of generated files out with `--exclude`")
    }
}

/// Contents in layers. The change set says what to expect; here only the place is found again.
struct LayerContents {
    trees: Arc<Trees>,
    git_dir: Option<RelPath>,
}

impl Contents for LayerContents {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        let mut last = Errno::NOENT;
        for layer in &self.trees.layers {
            match layer.file(path.as_bytes()) {
                Ok((file, _)) => return Ok(Box::new(file)),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => last = errno,
            }
        }
        Err(io("read the sandbox's version of", path.as_path(), last))
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        let opened = match &self.trees.project {
            Some(project) => project.file(path.as_bytes()),
            None => Err(Errno::NOENT),
        };
        match opened {
            Ok((file, _)) => Ok(Box::new(file)),
            Err(errno) => Err(io("read the host's version of", path.as_path(), errno)),
        }
    }
}

impl BaseTree for LayerContents {
    fn link(&self, path: &RelPath) -> Option<Vec<u8>> {
        match self.trees.project.as_ref()?.link(path.as_bytes()) {
            Ok(target) => Some(target),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::LOOP) => None,
            // What cannot be looked at may be a link to anywhere.
            Err(_) => Some(b"/".to_vec()),
        }
    }

    fn holds(&self, path: &RelPath) -> bool {
        let project = self.trees.project.as_ref();
        project.is_some_and(|project| project.stat(path.as_bytes()).is_ok())
    }

    fn git_dir(&self) -> Option<&RelPath> {
        self.git_dir.as_ref()
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}
