//! The staging directory and its journal: what a commit does, written down before it begins.
//!
//! ```text
//! .glovebox-pull-XXXX/
//!   identity     which directory this is: what merely looks like ours, say in a cloned project, is not
//!   new/N old/N  contents on their way in and out
//!   journal      the operations, with a digest; locked while somebody commits or recovers
//!   committing   a commit has begun
//!   done         it has ended; only cleaning up remains
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
/// Times that a directory is tried to be removed, and the pause between them.
const EMPTY_TRIES: u32 = 50;
const EMPTY_STEP: Duration = Duration::from_millis(4);
const IDENTITY: &str = "identity";
const JOURNAL: &str = "journal";

/// What a commit does.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    /// In the order in which they are done.
    pub(super) operations: Vec<Operation>,
    /// The base index to be told what became of the paths.
    #[serde(with = "serde_bytes")]
    pub(super) base_index: Option<Vec<u8>>,
    /// Paths that become what they are in the sandbox. What is put beside a path is not among them: it
    /// belongs to the host from then on.
    pub(super) applied: Vec<RelPath>,
    /// Digests of the sandbox's versions of files among the applied.
    pub(super) digests: Vec<(RelPath, Digest)>,
    /// Paths whose base becomes something else than what the host has, and the slot with its content.
    pub(super) bases: Vec<(RelPath, u32)>,
    /// Where the sandbox's versions of paths in conflict are put.
    pub(super) theirs: Vec<RelPath>,
    /// Paths that were as they should be already.
    pub(super) settled: Vec<(RelPath, Signature)>,
}

/// Which directory a staging directory is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    device: u64,
    inode: u64,
    /// When it was made; 0 where the file system does not say.
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
    /// The directory itself.
    pub(super) dir: OwnedFd,
    /// Contents on their way in.
    pub(super) new: OwnedFd,
    /// Contents on their way out.
    pub(super) old: OwnedFd,
    /// Its path, for messages and for another process.
    pub(super) path: PathBuf,
    name: Vec<u8>,
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Staging {
    /// Makes a staging directory in `parent`.
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
                // First of all, so that whatever is interrupted is known as ours.
                let identity = encode(&Identity::of(dir.as_fd()).map_err(cannot)?)?;
                write(&dir, &path, IDENTITY, &identity)?;
                Self::opened(dir, path.clone(), name.clone().into_bytes()).map_err(cannot)
            });
        if made.is_err() {
            discard_unfinished(parent, name.as_bytes());
        }
        made
    }

    /// Opens what a name in `parent` says is a staging directory; `None` when it is not one of ours.
    // TRUST: a project from elsewhere may contain anything by that name. It cannot know the inode
    // and the time of birth that a directory gets on this machine.
    pub(super) fn open(parent: BorrowedFd<'_>, parent_path: &Path, name: &[u8]) -> Option<Self> {
        let dir = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&dir).ok()?;
        let euid = rustix::process::geteuid();
        let is_own = stat.st_uid == euid.as_raw();
        if !is_own || stat.st_mode & 0o077 != 0 {
            // Where there are no modes, owner and mode say nothing about who made it. Of another user's directory only
            // root can tell.
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

    /// Opens the rooms of a staging directory. One that was being removed may have none.
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

    /// Writes the journal, and makes sure that it is on the disk. Its name is there by the time the
    /// commit is marked as begun.
    pub(super) fn write_journal(&self, journal: &Journal) -> Result<(), Fault> {
        let file = write(&self.dir, &self.path, JOURNAL, &encode(journal)?)?;
        file.sync_data()
            .map_err(|error| io("write", &self.path.join(JOURNAL), error))
    }

    /// Reads the journal and locks it.
    ///
    /// # Errors
    /// `None` when there is none, or it is not complete. [`Errno::AGAIN`] when somebody else has it.
    pub(super) fn take_journal(&self) -> Result<Option<(Journal, File)>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, JOURNAL, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            // As with the destination: some file systems cannot lock.
            Ok(()) | Err(Errno::BADF | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        if rustix::fs::fstat(&file)?.st_nlink == 0 {
            // Whoever had it before has cleaned up.
            return Ok(None);
        }
        let mut bytes = Vec::new();
        if (&file).read_to_end(&mut bytes).is_err() {
            return Err(Errno::IO);
        }
        Ok(decode(&bytes).map(|journal| (journal, file)))
    }

    /// What a slot on the way in has, if it is a file.
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

    /// Whether a marker is there.
    pub(super) fn has(&self, marker: &str) -> bool {
        rustix::fs::statat(&self.dir, marker, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Marks the commit as begun. Everything before is on the disk after that.
    pub(super) fn mark_committing(&self) -> Result<(), Fault> {
        write(&self.dir, &self.path, COMMITTING, &[])?;
        rustix::fs::fsync(&self.dir).map_err(|errno| io("write", &self.path, errno))
    }

    /// Marks the commit as ended. File systems keep the order of such changes: should the machine
    /// stop before it is on the disk, what follows is not there either, and the commit is undone.
    pub(super) fn mark_done(&self) -> Result<(), Fault> {
        write(&self.dir, &self.path, DONE, &[]).map(drop)
    }

    /// Removes everything, as far as it goes; what remains is removed by the next recovery. The
    /// journal goes first, so that nothing is done by it any more; the identity goes last, so that what
    /// remains is still known as ours. `lock` is that of the journal, if this process has it.
    pub(super) fn remove(&self, parent: BorrowedFd<'_>, lock: Option<File>) {
        let mut is_clean = is_gone(rustix::fs::unlinkat(&self.dir, JOURNAL, AtFlags::empty()));
        // NFS and file systems in user space keep a removed file under another name while it is open.
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

/// Removes a directory whose entries were removed. Where the kernel tells a file system in user space of the last close
/// without waiting for it, an entry is there for some moments more.
fn remove_emptied(parent: BorrowedFd<'_>, name: &[u8]) {
    for _ in 0..EMPTY_TRIES {
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => std::thread::sleep(EMPTY_STEP),
            _ => return,
        }
    }
}

/// Returns true if the file system keeps the permissions of an open file or directory of this user, which has `mode` now:
/// they are changed, looked at and changed back.
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

/// Removes a directory that has no identity yet. One with anything else in it is not ours, and stays.
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

/// Bytes with their digest in front.
fn encode(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    let body = postcard::to_allocvec(value)
        .map_err(|error| Fault::failed(Code::Internal, format!("cannot encode: {error}")))?;
    Ok([blake3::hash(&body).as_bytes().as_slice(), &body].concat())
}

/// `None` for what is cut off or was never ours.
fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    let (sum, body) = bytes.split_at_checked(blake3::OUT_LEN)?;
    if blake3::hash(body).as_bytes() != sum {
        return None;
    }
    postcard::from_bytes(body).ok()
}
