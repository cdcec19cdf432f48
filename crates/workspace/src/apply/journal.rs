//! Staging directory and journal. The journal records the operations of a commit before it begins.
//!
//! ```text
//! .glovebox-pull-XXXX/
//!   identity       inode and time of birth: a copy, say in a cloned project, is not recognized
//!   new/N old/N    contents to be put in, and contents taken out
//!   journal        the operations, with a digest; locked during a commit or recovery
//!   committing     marks a commit that has begun
//!   done           marks a commit that has ended; only cleaning up remains
//! ```

use super::operation::Operation;
use crate::base::Signature;
use crate::beneath::io;
use crate::merge::MAX_TEXT_BYTES;
use crate::{Digest, RelPath, collect::RESERVED_PREFIX};
use glovebox_proto::{Code, Fault};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the marker of a commit that has begun.
pub(super) const COMMITTING: &str = "committing";
/// Name of the marker of a commit that has ended.
pub(super) const DONE: &str = "done";
/// Maximum number of attempts to remove a directory, and the pause between them.
const EMPTY_TRIES: u32 = 50;
const EMPTY_STEP: Duration = Duration::from_millis(4);
const IDENTITY: &str = "identity";
const JOURNAL: &str = "journal";

/// Operations of a commit, and the effects to record afterwards.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    /// Operations, in the order in which they are performed.
    pub(super) operations: Vec<Operation>,
    /// Path of the base index in which the effects are recorded; `None` if there is none.
    #[serde(with = "serde_bytes")]
    pub(super) base_index: Option<Vec<u8>>,
    /// Paths that get the sandbox's version. A version put beside a path is not listed: it belongs
    /// to the host from then on.
    pub(super) applied: Vec<RelPath>,
    /// Digests of the sandbox's versions of applied files.
    pub(super) digests: Vec<(RelPath, Digest)>,
    /// Paths whose base must differ from what the host has afterwards, each with the slot of the
    /// new base.
    pub(super) bases: Vec<(RelPath, u32)>,
    /// Paths at which the sandbox's versions of conflicts are put.
    pub(super) theirs: Vec<RelPath>,
    /// Paths where the host already had the sandbox's version.
    pub(super) settled: Vec<(RelPath, Signature)>,
}

/// Identity of a staging directory.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    device: u64,
    inode: u64,
    /// Time of birth in nanoseconds since the epoch; 0 if the file system does not store it.
    birth_ns: i128,
}

impl Identity {
    fn of(dir: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mask = StatxFlags::INO | StatxFlags::BTIME;
        let stat = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, mask)?;
        Ok(Self {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            birth_ns: i128::from(stat.stx_btime.tv_sec) * 1_000_000_000
                + i128::from(stat.stx_btime.tv_nsec),
        })
    }
}

/// An open staging directory.
#[derive(Debug)]
pub(super) struct Staging {
    /// Descriptor of the directory itself.
    pub(super) dir: OwnedFd,
    /// Descriptor of `new`, for contents to be put in.
    pub(super) new: OwnedFd,
    /// Descriptor of `old`, for contents taken out.
    pub(super) old: OwnedFd,
    /// Path of the directory, for messages and for another process.
    pub(super) path: PathBuf,
    name: Vec<u8>,
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Staging {
    /// Creates a staging directory in `parent`.
    pub(super) fn make(parent: BorrowedFd<'_>, parent_path: &Path) -> Result<Self, Fault> {
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| io("name a directory in", parent_path, errno))?;
        let name = format!(
            "{}{:016x}",
            String::from_utf8_lossy(RESERVED_PREFIX),
            u64::from_le_bytes(random)
        );
        let path = parent_path.join(&name);
        let private = Mode::from_raw_mode(0o700);
        let cannot = |errno| io("make", &path, errno);
        rustix::fs::mkdirat(parent, &name, private).map_err(cannot)?;
        let made = rustix::fs::openat(parent, &name, DIRECTORY, Mode::empty())
            .map_err(cannot)
            .and_then(|dir| {
                // The identity is written first, so that a recovery recognizes the directory after
                // an interruption at any later step.
                let identity = encode(&Identity::of(dir.as_fd()).map_err(cannot)?)?;
                write(&dir, &path, IDENTITY, &identity)?;
                Self::opened(dir, path.clone(), name.clone().into_bytes()).map_err(cannot)
            });
        if made.is_err() {
            discard_unfinished(parent, name.as_bytes());
        }
        made
    }

    /// Opens a staging directory by its name in `parent`. `None` if it was not created by this user
    /// on this machine.
    // TRUST: a project from elsewhere may contain anything by that name. It cannot know the inode
    // and the time of birth that a directory gets on this machine.
    pub(super) fn open(parent: BorrowedFd<'_>, parent_path: &Path, name: &[u8]) -> Option<Self> {
        let dir = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&dir).ok()?;
        let euid = rustix::process::geteuid();
        let is_own = stat.st_uid == euid.as_raw();
        if !is_own || stat.st_mode & 0o077 != 0 {
            // On a file system without modes, owner and mode do not show who created the directory.
            // Only root can check this for a directory of another user.
            let mode = Mode::from_raw_mode(stat.st_mode);
            let is_without =
                (is_own || euid.is_root()) && keeps_modes(dir.as_fd(), mode) == Ok(false);
            if !is_without {
                return None;
            }
        }
        let own = Identity::of(dir.as_fd()).ok()?;
        if decode::<Identity>(&read(&dir, IDENTITY)?)? != own {
            return None;
        }
        let path = parent_path.join(std::ffi::OsStr::new(&*String::from_utf8_lossy(name)));
        Self::opened(dir, path, name.to_vec()).ok()
    }

    /// Opens the subdirectories of a staging directory, and creates those that are missing: an
    /// interrupted removal may have removed them.
    fn opened(dir: OwnedFd, path: PathBuf, name: Vec<u8>) -> Result<Self, Errno> {
        let room = |room: &str| {
            match rustix::fs::mkdirat(&dir, room, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            rustix::fs::openat(&dir, room, DIRECTORY, Mode::empty())
        };
        Ok(Self {
            new: room("new")?,
            old: room("old")?,
            dir,
            path,
            name,
        })
    }

    /// Writes the journal and waits until its content is on the disk. Its name is on the disk after
    /// [`Self::mark_committing`].
    pub(super) fn write_journal(&self, journal: &Journal) -> Result<(), Fault> {
        let file = write(&self.dir, &self.path, JOURNAL, &encode(journal)?)?;
        file.sync_data()
            .map_err(|error| io("write", &self.path.join(JOURNAL), error))
    }

    /// Reads the journal and locks it without waiting. `None` if there is none, or it is
    /// incomplete.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if another process holds the lock.
    pub(super) fn take_journal(&self) -> Result<Option<(Journal, File)>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, JOURNAL, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            // As with the destination, some file systems do not support locks.
            Ok(()) | Err(Errno::BADF | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        if rustix::fs::fstat(&file)?.st_nlink == 0 {
            // The previous holder of the lock has removed the journal.
            return Ok(None);
        }
        let mut bytes = Vec::new();
        if (&file).read_to_end(&mut bytes).is_err() {
            return Err(Errno::IO);
        }
        Ok(decode(&bytes).map(|journal| (journal, file)))
    }

    /// Returns the content of a slot of `new`, if it is a file. At most [`MAX_TEXT_BYTES`] are
    /// read.
    pub(super) fn content(&self, slot: u32) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.new, slot.to_string(), flags, Mode::empty()).ok()?;
        let mut bytes = Vec::new();
        File::from(fd)
            .take(MAX_TEXT_BYTES)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(bytes)
    }

    /// Returns true if a marker exists.
    pub(super) fn has(&self, marker: &str) -> bool {
        rustix::fs::statat(&self.dir, marker, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Marks the commit as begun. All earlier writes to the directory are on the disk when this
    /// returns.
    pub(super) fn mark_committing(&self) -> Result<(), Fault> {
        write(&self.dir, &self.path, COMMITTING, &[])?;
        rustix::fs::fsync(&self.dir).map_err(|errno| io("write", &self.path, errno))
    }

    /// Marks the commit as ended. This does not wait for the disk: file systems keep the order of
    /// such changes, so after a crash either the mark exists or what follows does not, and the
    /// commit is undone.
    pub(super) fn mark_done(&self) -> Result<(), Fault> {
        write(&self.dir, &self.path, DONE, &[]).map(drop)
    }

    /// Removes the staging directory as far as possible; the next recovery removes the rest. The
    /// journal is removed first, so that no recovery acts on it any more. The identity is removed
    /// last, so that the rest is still recognized. `lock` is that of the journal, if this process
    /// holds it.
    pub(super) fn remove(&self, parent: BorrowedFd<'_>, lock: Option<File>) {
        let mut is_clean = is_gone(rustix::fs::unlinkat(&self.dir, JOURNAL, AtFlags::empty()));
        // NFS and FUSE keep a removed file under another name while it is open, so that the
        // directory would not be empty.
        drop(lock);
        for room in [&self.new, &self.old] {
            let mut names = Vec::new();
            let read = crate::beneath::read_names(room, |name, _| {
                names.push(name.to_vec());
                Ok::<(), Errno>(())
            });
            is_clean &= read.is_ok();
            for name in names {
                is_clean &= match rustix::fs::unlinkat(room, &name, AtFlags::empty()) {
                    Err(Errno::ISDIR | Errno::PERM) => {
                        is_gone(rustix::fs::unlinkat(room, &name, AtFlags::REMOVEDIR))
                    }
                    other => is_gone(other),
                };
            }
        }
        for name in ["new", "old"] {
            is_clean &= is_gone(rustix::fs::unlinkat(&self.dir, name, AtFlags::REMOVEDIR));
        }
        for name in [COMMITTING, DONE] {
            is_clean &= is_gone(rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()));
        }
        if is_clean && is_gone(rustix::fs::unlinkat(&self.dir, IDENTITY, AtFlags::empty())) {
            remove_emptied(parent, &self.name);
        }
    }
}

/// Removes a directory whose entries were removed. Retries for a moment: if the kernel reports the
/// last close to a FUSE file system without waiting for it, an entry can remain for a short time.
fn remove_emptied(parent: BorrowedFd<'_>, name: &[u8]) {
    for _ in 0..EMPTY_TRIES {
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => std::thread::sleep(EMPTY_STEP),
            _ => return,
        }
    }
}

/// Returns true if the file system stores permissions. Changes those of an open file or directory
/// of this user, reads them back and restores `mode`, the current permissions.
pub(super) fn keeps_modes(file: BorrowedFd<'_>, mode: Mode) -> Result<bool, Errno> {
    let set = |bits: u32| rustix::fs::fchmod(file, Mode::from_raw_mode(bits));
    let (own, other) = (
        mode.as_raw_mode() & 0o7777,
        (mode.as_raw_mode() & 0o7777) ^ 0o110,
    );
    match set(other) {
        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP) => return Ok(false),
        changed => changed?,
    }
    let is_kept = rustix::fs::fstat(file)?.st_mode & 0o7777 == other;
    set(own)?;
    Ok(is_kept)
}

fn is_gone(unlinked: Result<(), Errno>) -> bool {
    matches!(unlinked, Ok(()) | Err(Errno::NOENT))
}

/// Removes a directory that has no complete identity. If it has any other content it was not
/// created by Glovebox, and stays.
pub(super) fn discard_unfinished(parent: BorrowedFd<'_>, name: &[u8]) {
    let Ok(dir) = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) else {
        return;
    };
    let is_empty = |stat: rustix::fs::Stat| stat.st_size == 0;
    if crate::beneath::stat_at(dir.as_fd(), IDENTITY.as_bytes()).is_ok_and(is_empty) {
        let _ = rustix::fs::unlinkat(&dir, IDENTITY, AtFlags::empty());
    }
    let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
}

fn write(dir: &OwnedFd, path: &Path, name: &str, bytes: &[u8]) -> Result<File, Fault> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let write = || -> std::io::Result<File> {
        let fd = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
        let mut file = File::from(fd);
        file.write_all(bytes)?;
        Ok(file)
    };
    write().map_err(|error| io("write", &path.join(name), error))
}

fn read(dir: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    File::from(fd).take(4096).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Serializes a value, preceded by the digest of the bytes.
fn encode(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    let body = postcard::to_allocvec(value)
        .map_err(|error| Fault::failed(Code::Internal, format!("cannot encode: {error}")))?;
    Ok([blake3::hash(&body).as_bytes().as_slice(), &body].concat())
}

/// Decodes the output of [`encode`]. `None` if it is truncated or the digest does not match.
fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    let (sum, body) = bytes.split_at_checked(blake3::OUT_LEN)?;
    if blake3::hash(body).as_bytes() != sum {
        return None;
    }
    postcard::from_bytes(body).ok()
}
