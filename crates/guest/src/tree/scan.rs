//! Lists a tree, sorted, without opening a file. Temporary files and directories of this guest are
//! skipped.

use super::beneath::{self, Root};
use super::{STEP_BYTES, check_cancel, signature};
use crate::fault;
use crate::files::{kind_of, shown, temporary_prefix};
use glovebox_proto::tree::{Entry, EntryKind, Packer, Packing, ScanItem, Signature, TreeTotals};
use glovebox_proto::{Code, Fault, FileKind, limits};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Maximum memory for the names of all directories from the root to the current one, in bytes.
const MAX_NAMES_BYTES: usize = 24 << 20;
/// Maximum number of directories kept open on the way down; those above are opened again on the way
/// back.
const MAX_OPEN: usize = 16;

/// State of a `TreeScan` request.
#[derive(Debug)]
pub(crate) struct Scan {
    path: Vec<u8>,
    root: Option<Root>,
    levels: Vec<Level>,
    names_bytes: usize,
    /// Path of the directory on top of `levels`.
    at: Vec<u8>,
    path_buffer: Vec<u8>,
    /// Prefix of the temporary names of this guest.
    own_prefix: String,
    max_entries: u64,
    max_depth: usize,
    packer: Packer,
    totals: TreeTotals,
}

/// Directory whose names are being processed.
#[derive(Debug)]
struct Level {
    names: Names,
    next: usize,
    dir: Option<Arc<OwnedFd>>,
    /// Length of the parent's path.
    parent_len: usize,
}

/// Sorted names in one allocation.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    places: Vec<(u32, u8, bool)>,
}

impl Names {
    fn get(&self, index: usize) -> Option<(&[u8], bool)> {
        let &(start, len, is_dir) = self.places.get(index)?;
        let start = start as usize;
        Some((self.bytes.get(start..start + len as usize)?, is_dir))
    }

    fn held_bytes(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<(u32, u8, bool)>()
    }

    fn sort(&mut self) {
        let Self { bytes, places } = self;
        places.sort_unstable_by(|one, other| {
            let name = |place: &(u32, u8, bool)| {
                bytes.get(place.0 as usize..place.0 as usize + place.1 as usize)
            };
            name(one).cmp(&name(other))
        });
        bytes.shrink_to_fit();
        places.shrink_to_fit();
    }
}

impl Scan {
    /// Creates a request; the first step opens the directory.
    pub(crate) fn new(
        path: Vec<u8>,
        max_entries: u64,
        max_depth: u32,
        packing: Packing,
    ) -> Result<Self, Fault> {
        Ok(Self {
            path,
            root: None,
            levels: Vec::new(),
            names_bytes: 0,
            at: Vec::new(),
            path_buffer: Vec::new(),
            own_prefix: temporary_prefix(),
            max_entries,
            max_depth: max_depth as usize,
            packer: Packer::new(packing)?,
            totals: TreeTotals::default(),
        })
    }

    /// Works until a block can be sent. Returns the totals at the end.
    pub(super) fn step(
        &mut self,
        out: &mut Vec<u8>,
        cancel: &AtomicBool,
    ) -> Result<Option<TreeTotals>, Fault> {
        if self.root.is_none() {
            let mut root = Root::open(&self.path, false)?;
            let dir = root.dir(b"").map_err(|errno| self.failed(b"", errno))?;
            self.root = Some(root);
            self.enter(dir, 0, cancel)
                .map_err(|errno| self.failed(b"", errno))?;
            check_cancel(cancel)?;
        }
        while out.len() < STEP_BYTES {
            check_cancel(cancel)?;
            if !self.look_at_next(out, cancel)? {
                self.packer.seal(out)?;
                return Ok(Some(self.totals));
            }
        }
        Ok(None)
    }

    fn failed(&self, path: &[u8], errno: Errno) -> Fault {
        let path = [self.path.as_slice(), b"/", path].concat();
        if errno == Errno::NOBUFS {
            let message = format!("{} holds more names than a scan takes", shown(&path));
            return Fault::failed(Code::TooLarge, message);
        }
        fault::file(
            errno,
            &format!("cannot read the directory {}", shown(&path)),
        )
    }

    /// Reads the names of the directory at path `at`, whose parent's path has `parent_len` bytes.
    fn enter(
        &mut self,
        dir: Arc<OwnedFd>,
        parent_len: usize,
        cancel: &AtomicBool,
    ) -> Result<(), Errno> {
        let readable = beneath::open_names(&dir)?;
        let mut names = Names::default();
        let mut room = [MaybeUninit::uninit(); 16 << 10];
        let mut entries = RawDir::new(&readable, &mut room);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || name.starts_with(self.own_prefix.as_bytes()) {
                continue;
            }
            if self.names_bytes + names.held_bytes() > MAX_NAMES_BYTES {
                return Err(Errno::NOBUFS);
            }
            if check_cancel(cancel).is_err() {
                break;
            }
            let is_dir = entry.file_type() == FileType::Directory;
            let place = (names.bytes.len() as u32, name.len() as u8, is_dir);
            names.bytes.extend_from_slice(name);
            names.places.push(place);
        }
        names.sort();
        self.names_bytes += names.held_bytes();
        // Deep trees must not hold a descriptor per level.
        if let Some(index) = self.levels.len().checked_sub(MAX_OPEN) {
            self.levels[index].dir = None;
        }
        self.levels.push(Level {
            names,
            next: 0,
            dir: Some(dir),
            parent_len,
        });
        Ok(())
    }

    /// Reports the next name. Returns false when none is left.
    fn look_at_next(&mut self, out: &mut Vec<u8>, cancel: &AtomicBool) -> Result<bool, Fault> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(false);
        };
        let Some((name, is_dir)) = level.names.get(level.next) else {
            self.names_bytes -= level.names.held_bytes();
            self.at.truncate(level.parent_len);
            self.levels.pop();
            return Ok(true);
        };
        level.next += 1;
        let parent_len = self.at.len();
        // One buffer for all paths: allocating one per path costs as much as the stat(2) call.
        let mut path = std::mem::take(&mut self.path_buffer);
        path.clear();
        path.extend_from_slice(&self.at);
        if parent_len > 0 {
            path.push(b'/');
        }
        let name_at = path.len();
        path.extend_from_slice(name);
        let looked = self.look_at(&path, name_at, is_dir, out, cancel);
        self.path_buffer = path;
        looked.map(|()| true)
    }

    /// Reports a path in the current directory, and enters it if it is a directory.
    fn look_at(
        &mut self,
        path: &[u8],
        name_at: usize,
        is_dir: bool,
        out: &mut Vec<u8>,
        cancel: &AtomicBool,
    ) -> Result<(), Fault> {
        if path.len() >= limits::MAX_PATH_BYTES {
            return self.miss(path, Code::TooLarge, out);
        }
        let depth = self.levels.len();
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        let dir = match (&level.dir, &mut self.root) {
            (Some(dir), _) => Arc::clone(dir),
            (None, Some(root)) => match root.dir(&self.at) {
                Ok(dir) => Arc::clone(level.dir.insert(dir)),
                // The directory was moved away meanwhile, with everything in it.
                Err(errno) => return self.miss_for(path, errno, out),
            },
            (None, None) => return Ok(()),
        };
        let name = &path[name_at..];
        if !is_dir {
            match look(&dir, name) {
                Ok(NameKind::Other(kind)) => return self.tell(path, kind.as_entry(), out),
                // The file system reports no kinds, or the entry was replaced.
                Ok(NameKind::Dir) => {}
                Err(errno) => return self.miss_for(path, errno, out),
            }
        }
        let child = beneath::open_dir(&dir, name);
        self.tell(path, EntryKind::Dir, out)?;
        if depth >= self.max_depth {
            return self.miss(path, Code::TooLarge, out);
        }
        let parent_len = self.at.len();
        self.at.clear();
        self.at.extend_from_slice(path);
        let entered = child.and_then(|child| self.enter(Arc::new(child), parent_len, cancel));
        match entered {
            Ok(()) => Ok(()),
            Err(Errno::NOBUFS) => Err(self.failed(path, Errno::NOBUFS)),
            Err(errno) => {
                self.at.truncate(parent_len);
                self.miss_for(path, errno, out)
            }
        }
    }

    fn tell(&mut self, path: &[u8], kind: EntryKind<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.totals.entries += 1;
        if self.totals.entries > self.max_entries {
            let message = format!(
                "{} holds more than {} files and directories",
                shown(&self.path),
                self.max_entries
            );
            return Err(Fault::failed(Code::TooLarge, message));
        }
        self.packer
            .push(&ScanItem::Entry(Entry { path, kind }), out)
    }

    fn miss(&mut self, path: &[u8], code: Code, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.totals.failed += 1;
        // Bounded like entries: a million paths that are too long would be as many items.
        if self.totals.failed > self.max_entries {
            return Err(Fault::failed(
                Code::TooLarge,
                format!("{} holds too much that cannot be read", shown(&self.path)),
            ));
        }
        self.packer.push(&ScanItem::Missed { path, code }, out)
    }

    /// Reports a path that cannot be examined, unless it no longer exists.
    fn miss_for(&mut self, path: &[u8], errno: Errno, out: &mut Vec<u8>) -> Result<(), Fault> {
        if errno == Errno::NOENT {
            return Ok(());
        }
        self.miss(path, fault::file(errno, "").code, out)
    }
}

/// Kind of an entry.
enum NameKind {
    Dir,
    Other(LeafKind),
}

enum LeafKind {
    File {
        signature: Signature,
        is_linked: bool,
    },
    Link(Vec<u8>),
    Special(FileKind),
}

impl LeafKind {
    fn as_entry(&self) -> EntryKind<'_> {
        match self {
            Self::File {
                signature,
                is_linked,
            } => EntryKind::File {
                signature: *signature,
                is_linked: *is_linked,
            },
            Self::Link(target) => EntryKind::Link { target },
            Self::Special(kind) => EntryKind::Special(*kind),
        }
    }
}

fn look(dir: &OwnedFd, name: &[u8]) -> Result<NameKind, Errno> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => NameKind::Dir,
        FileType::RegularFile => NameKind::Other(LeafKind::File {
            signature: signature(&stat),
            is_linked: stat.st_nlink > 1,
        }),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
            NameKind::Other(LeafKind::Link(target.into_bytes()))
        }
        other => NameKind::Other(LeafKind::Special(kind_of(other))),
    })
}
