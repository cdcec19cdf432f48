//! Directories opened once, and what lies beneath them, never anywhere else.
//!
//! Every path is resolved by the kernel relative to a descriptor with links and `..` forbidden
//! (`openat2(2)`), so whatever a sandbox or anybody else does to the tree meanwhile, nothing outside
//! it is reached. Files are opened without waiting for a FIFO's other end, and looked at before they
//! are read.

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

/// How a directory is opened to read its entries.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// How a regular file is opened: whatever it turned into must not make us wait or become our terminal.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// Bytes read at a time.
pub(crate) const BLOCK_BYTES: usize = 128 << 10;

impl Anchor {
    /// Opens a directory by a path that the caller vouches for.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| io("open", path, errno))?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Opens a directory beneath as an anchor of its own.
    pub(crate) fn beneath(&self, path: &[u8]) -> Result<Self, Errno> {
        Ok(Self {
            fd: self.dir(path)?,
            path: self.path.join(OsStr::from_bytes(path)),
        })
    }

    /// Opens a directory by a canonical path, and refuses a symbolic link anywhere on it: another directory may
    /// stand behind a link than the one that the path was recorded for.
    pub(crate) fn open_canonical(path: &Path) -> Result<Self, Fault> {
        // Without NOFOLLOW: a link at the end is to be told from a file, and both rules refuse it.
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

    /// A directory beneath; an empty path is the anchor itself.
    pub(crate) fn dir(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.get(if path.is_empty() { b"." } else { path }, DIRECTORY)
    }

    /// A regular file beneath, open for reading.
    // TRUST: what is there is looked at before it is opened, and again through the descriptor.
    pub(crate) fn file(&self, path: &[u8]) -> Result<(File, Stat), Errno> {
        let before = self.stat(path)?;
        require_regular(&before)?;
        let fd = self.get(path, FILE)?;
        let stat = rustix::fs::fstat(&fd)?;
        require_regular(&stat)?;
        Ok((File::from(fd), stat))
    }

    /// Digest of the regular file beneath, if there is one that can be read and is that long.
    pub(crate) fn digest(&self, path: &[u8], size: u64) -> Result<Option<Digest>, Fault> {
        let failed = |error: std::io::Error| {
            let path = Path::new(OsStr::from_bytes(path));
            io("read", &self.path.join(path), error)
        };
        let mut file = match self.file(path) {
            Ok((file, _)) => file,
            // It is gone, is something else by now, or is not for us: a different version, whatever
            // it has.
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
            // Somebody writes it at this moment.
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// What is at a path beneath, without following a link there.
    pub(crate) fn stat(&self, path: &[u8]) -> Result<Stat, Errno> {
        let fd = self.get(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        rustix::fs::fstat(fd)
    }

    /// What is at a path beneath on the same file system.
    pub(crate) fn stat_within(&self, path: &[u8]) -> Result<Stat, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = resolve(self.fd.as_fd(), path, flags, ResolveFlags::NO_XDEV)?;
        rustix::fs::fstat(fd)
    }

    /// A directory beneath on the same file system; an empty path is the anchor itself.
    pub(crate) fn dir_within(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        resolve(self.fd.as_fd(), path, DIRECTORY, ResolveFlags::NO_XDEV)
    }

    /// Where a link beneath points.
    pub(crate) fn link(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let fd = self.get(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        Ok(rustix::fs::readlinkat(fd, c"", Vec::new())?.into_bytes())
    }

    /// The anchor's own path, for messages.
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

/// Opens what is at a path beneath a directory, through no link.
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

/// What is at a name in an open directory, without following a link there.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Calls `each` with the names in a directory and their types as far as the directory tells.
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

/// Digest and length of everything `source` has, which must not be more than `max_bytes`.
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

/// Writes `bytes` at the offset `at` of a new file, without its holes. The caller sets its length at the end.
pub(crate) fn write_sparse(file: &File, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    data_runs(at, bytes).try_for_each(|(offset, run)| file.write_all_at(run, offset))
}

/// A failed system call in words.
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
