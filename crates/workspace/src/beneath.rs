//! Directories that are opened once, and access to the files beneath them.
//!
//! The kernel resolves every path relative to a descriptor, with links and `..` forbidden
//! (`openat2(2)`). Nothing outside the directory can be reached, however the tree changes
//! meanwhile. Files are opened without waiting for the other end of a FIFO, and are checked before
//! they are read.

use crate::Digest;
use glovebox_proto::sparse::data_runs;
use glovebox_proto::{Code, Fault, Setting};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// An open directory, and its path for messages.
#[derive(Debug)]
pub(crate) struct Anchor {
    fd: OwnedFd,
    path: PathBuf,
}

/// Flags for opening a directory to read its entries.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Flags for opening a regular file. If it was replaced, opening a FIFO must not block and opening
/// a terminal must not make it the controlling terminal.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// Number of bytes read at a time.
pub(crate) const BLOCK_BYTES: usize = 128 << 10;

impl Anchor {
    /// Opens a directory by a trusted path. Links in it are followed.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| io("open", path, errno))?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Opens a directory beneath this one as an anchor of its own.
    pub(crate) fn beneath(&self, path: &[u8]) -> Result<Self, Errno> {
        Ok(Self {
            fd: self.dir(path)?,
            path: self.path.join(OsStr::from_bytes(path)),
        })
    }

    /// Opens a directory by a canonical path. Refuses symbolic links anywhere in it, because a link
    /// may lead to another directory than the one for which the path was recorded.
    pub(crate) fn open_canonical(path: &Path) -> Result<Self, Fault> {
        // Without `O_NOFOLLOW`, a link at the end fails with `ELOOP` and not with `ENOTDIR`.
        // `RESOLVE_NO_SYMLINKS` refuses it in either case.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let rules = ResolveFlags::NO_SYMLINKS;
        let fd = match rustix::fs::openat2(CWD, path, flags, Mode::empty(), rules) {
            Err(Errno::LOOP) => {
                return Err(Fault::refused(
                    Code::PermissionDenied,
                    format!(
                        "{} leads through a symbolic link, which is not followed",
                        path.display()
                    ),
                )
                .remedy([
                    "name the directory that the changes go to with ".into(),
                    Setting::To.of("DIR"),
                ]));
            }
            opened => opened.map_err(|errno| io("open", path, errno))?,
        };
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Opens a directory beneath; an empty path is the anchor itself.
    pub(crate) fn dir(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.get(if path.is_empty() { b"." } else { path }, DIRECTORY)
    }

    /// Opens a regular file beneath for reading.
    // TRUST: the type is checked before the file is opened, and again through the descriptor.
    pub(crate) fn file(&self, path: &[u8]) -> Result<(File, Stat), Errno> {
        let before = self.stat(path)?;
        require_regular(&before)?;
        let fd = self.get(path, FILE)?;
        let stat = rustix::fs::fstat(&fd)?;
        require_regular(&stat)?;
        Ok((File::from(fd), stat))
    }

    /// Returns the digest of the regular file beneath. `None` if it does not exist, cannot be read,
    /// or is not `size` bytes long.
    pub(crate) fn digest(&self, path: &[u8], size: u64) -> Result<Option<Digest>, Fault> {
        let failed = |error: std::io::Error| {
            let path = Path::new(OsStr::from_bytes(path));
            io("read", &self.path.join(path), error)
        };
        let mut file = match self.file(path) {
            Ok((file, _)) => file,
            // The file was removed or replaced, or is not readable for this user. It counts as
            // another version.
            Err(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::LOOP
                | Errno::NXIO
                | Errno::ACCESS
                | Errno::PERM,
            ) => return Ok(None),
            Err(errno) => return Err(failed(errno.into())),
        };
        match digest(&mut file, size, &mut |_| Ok(())) {
            Ok((sum, read)) => Ok((read == size).then_some(sum)),
            // The file is being extended at this moment.
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the attributes of a path beneath, without following a link there.
    pub(crate) fn stat(&self, path: &[u8]) -> Result<Stat, Errno> {
        let fd = self.get(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        rustix::fs::fstat(fd)
    }

    /// Returns the attributes of a path beneath on the same file system. Fails with [`Errno::XDEV`]
    /// across a mount point.
    pub(crate) fn stat_within(&self, path: &[u8]) -> Result<Stat, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = resolve(self.fd.as_fd(), path, flags, ResolveFlags::NO_XDEV)?;
        rustix::fs::fstat(fd)
    }

    /// Opens a directory beneath on the same file system; an empty path is the anchor itself.
    pub(crate) fn dir_within(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        resolve(self.fd.as_fd(), path, DIRECTORY, ResolveFlags::NO_XDEV)
    }

    /// Returns the target of a link beneath.
    pub(crate) fn link(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let fd = self.get(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        Ok(rustix::fs::readlinkat(fd, c"", Vec::new())?.into_bytes())
    }

    /// Returns the anchor's own path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn get(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        open_beneath(self.fd.as_fd(), path, flags)
    }
}

impl AsFd for Anchor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a path beneath a directory without following links.
pub(crate) fn open_beneath(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    resolve(dir, path, flags, ResolveFlags::empty())
}

fn resolve(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    further: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(dir, path, flags, Mode::empty(), rules | further) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn require_regular(stat: &Stat) -> Result<(), Errno> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(Errno::LOOP),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::NXIO),
    }
}

/// Returns the attributes of a name in an open directory, without following a link there.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Calls `each` with the names in a directory and their types, which may be [`FileType::Unknown`].
pub(crate) fn read_names<E: From<Errno>>(
    dir: &OwnedFd,
    mut each: impl FnMut(&[u8], FileType) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = [MaybeUninit::uninit(); 16 << 10];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            each(name, entry.file_type())?;
        }
    }
    Ok(())
}

/// Returns digest and length of the content of `source`, and passes each block to `each`. Fails
/// with [`std::io::ErrorKind::FileTooLarge`] if it is longer than `max_bytes`.
pub(crate) fn digest(
    source: &mut dyn Read,
    max_bytes: u64,
    each: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<(Digest, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut total = 0_u64;
    loop {
        let count = match source.read(&mut block) {
            Ok(0) => return Ok((hasher.finalize().into(), total)),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        total += count as u64;
        // TRUST: a file may grow while it is read.
        if total > max_bytes {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        hasher.update(&block[..count]);
        each(&block[..count])?;
    }
}

/// Writes `bytes` at the offset `at` of a new file, leaving holes for zeros. The caller must set
/// the length of the file at the end.
pub(crate) fn write_sparse(file: &File, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    data_runs(at, bytes).try_for_each(|(offset, run)| file.write_all_at(run, offset))
}

/// Returns the fault for a failed system call. `what` is the verb of the message.
pub(crate) fn io(what: &str, path: &Path, error: impl Into<std::io::Error>) -> Fault {
    let error = error.into();
    let code = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => Code::NotFound,
        Some(Errno::ACCESS | Errno::PERM) => Code::PermissionDenied,
        Some(Errno::NOTDIR) => Code::NotDirectory,
        Some(Errno::ISDIR) => Code::IsDirectory,
        Some(Errno::NOSPC | Errno::DQUOT) => Code::NoSpace,
        Some(Errno::ROFS) => Code::ReadOnly,
        Some(Errno::EXIST) => Code::AlreadyExists,
        Some(Errno::NOTEMPTY) => Code::NotEmpty,
        Some(Errno::NXIO) => Code::SpecialFile,
        _ => Code::Io,
    };
    Fault::failed(code, format!("cannot {what} {}: {error}", path.display()))
}
