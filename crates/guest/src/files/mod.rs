//! File operations, run on worker threads. Paths are bytes; relative paths begin at the directory
//! that the caller passes. Links are followed only where the kernel follows them. FIFOs, devices
//! and sockets are refused before they are opened, so that no request can hang on one.

mod edit;
pub(crate) mod own;
mod read;
mod search;
mod tree;
mod write;

pub(crate) use edit::edit;
pub(crate) use read::{STEP_BYTES, Source, read_step};
pub(crate) use search::{glob, grep, grep_log};
pub(crate) use tree::{remove, remove_all};
pub(crate) use write::{
    FileSink, TopLayer, WriteSpec, temporary_in, temporary_name, temporary_prefix,
};

use crate::fault;
use glovebox_proto::sparse::data_runs;
use glovebox_proto::{Code, DirEntry, Fault, FileKind, Reply, Stat, limits};
use read::read_whole;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::collections::BinaryHeap;
use std::mem::MaybeUninit;

/// Returns `path` if it is absolute, otherwise `path` below `base`.
pub(crate) fn absolute(base: &[u8], path: &[u8]) -> Vec<u8> {
    if path.first() == Some(&b'/') {
        return path.to_vec();
    }
    [base, b"/", path].concat()
}

/// Formats a path for messages. Bytes that are not UTF-8 are replaced.
pub(crate) fn shown(path: &[u8]) -> String {
    format!("`{}`", String::from_utf8_lossy(path))
}

pub(crate) fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => FileKind::File,
    }
}

#[cfg_attr(
    target_arch = "x86_64",
    expect(
        clippy::unnecessary_cast,
        reason = "the link count has 64 bits here and 32 on aarch64"
    )
)]
fn describe(stat: &rustix::fs::Stat) -> Stat {
    Stat {
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        permissions: stat.st_mode & 0o7777,
        mtime_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: stat.st_nlink as u64,
    }
}

/// Returns a fault unless the file is a regular file.
pub(crate) fn require_regular(stat: &rustix::fs::Stat, path: &[u8]) -> Result<(), Fault> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Fault::failed(
            Code::IsDirectory,
            format!("{} is a directory", shown(path)),
        )),
        other => {
            let kind = match other {
                FileType::Fifo => "a FIFO",
                FileType::Socket => "a socket",
                FileType::Symlink => "a symbolic link",
                _ => "a device",
            };
            let message = format!("{} is {kind}, not a regular file", shown(path));
            Err(Fault::failed(Code::SpecialFile, message))
        }
    }
}

/// Returns kind, size, times and owner of a path.
pub(crate) fn stat(path: &[u8], follow: bool) -> Result<Reply, Fault> {
    let flags = if follow {
        AtFlags::empty()
    } else {
        AtFlags::SYMLINK_NOFOLLOW
    };
    let stat = rustix::fs::statat(CWD, path, flags)
        .map_err(|errno| fault::file(errno, &format!("cannot look at {}", shown(path))))?;
    Ok(Reply::Stat(describe(&stat)))
}

/// Returns the target of a symbolic link.
pub(crate) fn read_link(path: &[u8]) -> Result<Reply, Fault> {
    match own::refuse_parent(path).and_then(|()| rustix::fs::readlink(path, Vec::new())) {
        Ok(target) => Ok(Reply::Link(ByteBuf::from(target.into_bytes()))),
        Err(Errno::INVAL) => Err(Fault::failed(
            Code::InvalidArgument,
            format!("{} is not a symbolic link", shown(path)),
        )),
        Err(errno) => Err(fault::file(
            errno,
            &format!("cannot read the link {}", shown(path)),
        )),
    }
}

/// Creates a directory with exactly these permissions. With `make_parents`, an existing directory
/// is no error.
pub(crate) fn mkdir(path: &[u8], permissions: u32, make_parents: bool) -> Result<Reply, Fault> {
    let failed = |errno| fault::file(errno, &format!("cannot make the directory {}", shown(path)));
    if make_parents && let Some((parent, _)) = split(path) {
        make_all(parent).map_err(failed)?;
    }
    let mode = Mode::from_raw_mode(permissions & 0o7777);
    match rustix::fs::mkdir(path, mode) {
        // mkdir(2) has applied the umask; the caller asked for exactly these permissions.
        Ok(()) => rustix::fs::chmod(path, mode).map_err(failed)?,
        Err(Errno::EXIST) if make_parents => {
            let stat = rustix::fs::stat(path).map_err(failed)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return Err(failed(Errno::EXIST));
            }
        }
        Err(errno) => return Err(failed(errno)),
    }
    Ok(Reply::Done)
}

/// Creates every missing directory of `path` with mode 0777 less the umask.
pub(crate) fn make_all(path: &[u8]) -> Result<(), Errno> {
    if path.is_empty() {
        return Ok(());
    }
    let usual = Mode::from_raw_mode(0o777);
    match rustix::fs::mkdir(path, usual) {
        Ok(()) | Err(Errno::EXIST) => return Ok(()),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let ends = path
        .iter()
        .enumerate()
        .filter(|&(index, &byte)| byte == b'/' && index > 0);
    for end in ends.map(|(index, _)| index).chain([path.len()]) {
        match rustix::fs::mkdir(&path[..end], usual) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Splits an absolute path into directory and last name. `None` if the last name is empty, `.` or
/// `..`.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let trimmed = path.len() - path.iter().rev().take_while(|&&byte| byte == b'/').count();
    let path = &path[..trimmed];
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    let (parent, name) = (&path[..slash], &path[slash + 1..]);
    let parent = if parent.is_empty() { b"/" } else { parent };
    (!matches!(name, b"" | b"." | b"..")).then_some((parent, name))
}

/// Renames `from` to `to`. Without `replace`, an existing `to` is an error.
pub(crate) fn rename(from: &[u8], to: &[u8], replace: bool) -> Result<Reply, Fault> {
    let result = if replace {
        rustix::fs::rename(from, to)
    } else {
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems do not support NOREPLACE. The check before the rename is not
            // atomic, but there is no better one.
            Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::lstat(to) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => rustix::fs::rename(from, to),
                Err(errno) => Err(errno),
            },
            other => other,
        }
    };
    result.map(|()| Reply::Done).map_err(|errno| {
        fault::file(
            errno,
            &format!("cannot rename {} to {}", shown(from), shown(to)),
        )
    })
}

/// Lists a directory: the first `max_entries` entries by name, and the number of the others.
pub(crate) fn list(path: &[u8], max_entries: u32) -> Result<Reply, Fault> {
    let failed = |errno| fault::file(errno, &format!("cannot list {}", shown(path)));
    let max = max_entries.min(limits::MAX_LIST_ENTRIES) as usize;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let dir = own::open(path, flags, Mode::empty()).map_err(failed)?;
    // A heap of the smallest names, largest on top, bounds memory for any size of directory.
    let mut names: BinaryHeap<Vec<u8>> = BinaryHeap::new();
    let mut more = 0_u64;
    let mut room = [MaybeUninit::uninit(); 16 << 10];
    let mut entries = RawDir::new(&dir, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if names.len() < max {
            names.push(name.to_vec());
            continue;
        }
        more += 1;
        if let Some(mut largest) = names.peek_mut()
            && name < largest.as_slice()
        {
            *largest = name.to_vec();
        }
    }
    let mut entries = Vec::with_capacity(names.len());
    for name in names.into_sorted_vec() {
        match rustix::fs::statat(&dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => entries.push(DirEntry {
                name: ByteBuf::from(name),
                stat: describe(&stat),
            }),
            // Removed since the directory was read.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(Reply::List { entries, more })
}

/// Writes `bytes` at the offset `at` of a new file and leaves holes for runs of zeros. Returns the
/// end of the last written run; `None` if nothing was written. The caller sets the length of the
/// file.
pub(crate) fn write_sparse(file: &OwnedFd, at: u64, bytes: &[u8]) -> Result<Option<u64>, Errno> {
    let mut written = None;
    for (offset, run) in data_runs(at, bytes) {
        let mut end = offset;
        let mut rest = run;
        while !rest.is_empty() {
            match rustix::io::pwrite(file, rest, end) {
                Ok(count) => {
                    end += count as u64;
                    rest = rest.get(count..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        written = Some(end);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_at_the_last_name() {
        assert_eq!(split(b"/a/b"), Some((&b"/a"[..], &b"b"[..])));
        assert_eq!(split(b"/a//"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split(b"/"), None);
        assert_eq!(split(b"/a/.."), None);
        assert_eq!(absolute(b"/w", b"x/y"), b"/w/x/y");
        assert_eq!(absolute(b"/w", b"/x"), b"/x");
    }
}
