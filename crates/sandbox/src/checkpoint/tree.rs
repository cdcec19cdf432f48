//! Copying of a layer, and merging of several into one of hard links.
//!
//! Layers were written from inside and are hostile. They are walked by descriptor, one name at a
//! time, without following links, to a bounded depth. Only regular files are opened, without
//! blocking. The marks of an overlay in a layer (whiteouts, opaque directories) keep their meaning;
//! see the kernel's `overlayfs.rst`.

use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};

/// Maximum depth of directories to merge. Each level holds a directory open in every layer.
const MAX_MERGE_DEPTH: usize = 48;
/// Maximum depth of directories to copy.
pub(super) const MAX_COPY_DEPTH: usize = 200;
/// Maximum size of all attribute names, and of one value, in bytes: the kernel's own bounds
/// (xattr(7)).
const MAX_XATTR_BYTES: usize = 64 << 10;
/// Size of a piece to copy at once if the kernel cannot copy by itself, in bytes.
const PIECE_BYTES: usize = 256 << 10;
const OPAQUE: &str = "user.overlay.opaque";
/// Attributes of an overlay that are valid only in the place where they were created.
const LOCAL: [&[u8]; 2] = [b"user.overlay.origin", b"user.overlay.impure"];

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    kind(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

pub(crate) fn look(dir: impl AsFd, name: &CStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn names(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

pub(crate) fn open_dir(at: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(&at, name, DIRECTORY, Mode::empty()) {
        // Not readable by its owner, and an ordinary user is the owner as well. The permissions can
        // be changed for a moment, because nothing uses a layer that is copied or merged, and a
        // link was refused above.
        Err(Errno::ACCESS) => {
            let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = rustix::fs::openat(&at, name, way, Mode::empty())?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&held)?.st_mode & 0o7777);
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            rustix::fs::chmod(path.as_str(), mode | Mode::RWXU)?;
            let opened = rustix::fs::openat(&at, name, DIRECTORY, Mode::empty());
            rustix::fs::chmod(path.as_str(), mode)?;
            opened
        }
        other => other,
    }
}

pub(crate) fn is_opaque(dir: &OwnedFd) -> bool {
    let mut value = [0_u8; 1];
    matches!(rustix::fs::fgetxattr(dir, OPAQUE, &mut value), Ok(1)) && value == *b"y"
}

fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: stat.st_atime,
            tv_nsec: stat.st_atime_nsec as _,
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec as _,
        },
    }
}

fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )
}

/// Sets owner, attributes, mode and times of `fd` to those of `like`.
fn dress(fd: &OwnedFd, like: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
    let (uid, gid) = owner(stat);
    rustix::fs::fchown(fd, uid, gid)?;
    let mut list = vec![0_u8; MAX_XATTR_BYTES];
    let length = match rustix::fs::flistxattr(like, list.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => 0,
        Err(errno) => return Err(errno),
    };
    let mut value = vec![0_u8; if length == 0 { 0 } else { MAX_XATTR_BYTES }];
    for name in list[..length].split(|byte| *byte == 0) {
        // Other attributes cannot be set from inside or are reserved for the kernel.
        if !name.starts_with(b"user.") || LOCAL.contains(&name) {
            continue;
        }
        let size = rustix::fs::fgetxattr(like, name, value.as_mut_slice())?;
        rustix::fs::fsetxattr(fd, name, &value[..size], XattrFlags::empty())?;
    }
    rustix::fs::fchmod(fd, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    rustix::fs::futimens(fd, &times(stat))
}

fn make_dir(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(at, name, Mode::RWXU)?;
    rustix::fs::openat(at, name, DIRECTORY, Mode::empty())
}

fn c_string(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::INVAL)
}

/// Merges layers of one sandbox, newest first, into a new one at `to`, which shares their files.
///
/// # Errors
/// `NAMETOOLONG` if they are too deep; any error of reading or writing.
pub(super) fn merge(layers: &[PathBuf], to: &Path) -> Result<(), Errno> {
    merge_names(layers, to, |_| true)
}

/// As [`merge`], for one name at the top only.
///
/// # Errors
/// As [`merge`].
pub(crate) fn merge_one(layers: &[PathBuf], name: &Path, to: &Path) -> Result<(), Errno> {
    let name = c_string(name)?;
    merge_names(layers, to, |other| other == name.as_c_str())
}

fn merge_names(
    layers: &[PathBuf],
    to: &Path,
    is_wanted: impl Fn(&CStr) -> bool,
) -> Result<(), Errno> {
    let sources = layers
        .iter()
        .map(|path| rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()))
        .collect::<Result<Vec<_>, _>>()?;
    let target = make_dir(CWD, &c_string(to)?)?;
    // An explicit stack, because the sandbox decided about the depth and threads here have small
    // stacks.
    let mut top = DirectoryMerge::new(sources, target, false)?;
    let wanted: Vec<(usize, CString)> = top.names.filter(|(_, name)| is_wanted(name)).collect();
    top.names = wanted.into_iter();
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        let Some((index, name)) = level.names.next() else {
            level.finish()?;
            levels.pop();
            continue;
        };
        if let Some(below) = merge_name(&level.sources[index..], &level.target, &name)? {
            if levels.len() > MAX_MERGE_DEPTH {
                return Err(Errno::NAMETOOLONG);
            }
            levels.push(below);
        }
    }
    Ok(())
}

/// Directory that is being merged.
struct DirectoryMerge {
    /// The directory in the layers that have it, newest first.
    sources: Vec<OwnedFd>,
    target: OwnedFd,
    /// True if the oldest source hides entries of the layers below.
    is_cut: bool,
    /// Names still to be merged, each with the index of the first source that has it.
    names: std::vec::IntoIter<(usize, CString)>,
}

impl DirectoryMerge {
    fn new(sources: Vec<OwnedFd>, target: OwnedFd, is_cut: bool) -> Result<Self, Errno> {
        let mut seen: HashSet<CString> = HashSet::new();
        let mut found = Vec::new();
        for (index, source) in sources.iter().enumerate() {
            for name in names(source)? {
                if seen.insert(name.clone()) {
                    found.push((index, name));
                }
            }
        }
        Ok(Self {
            sources,
            target,
            is_cut,
            names: found.into_iter(),
        })
    }

    /// Sets the attributes of the merged directory to those of the newest source.
    fn finish(&self) -> Result<(), Errno> {
        let (target, Some(top)) = (&self.target, self.sources.first()) else {
            return Ok(());
        };
        dress(target, top, &rustix::fs::fstat(top)?)?;
        if self.is_cut {
            rustix::fs::fsetxattr(target, OPAQUE, b"y", XattrFlags::empty())?;
        } else if is_opaque(target) {
            rustix::fs::fremovexattr(target, OPAQUE)?;
        }
        // An attribute changes only the time of the last status change. The times of the content
        // are nevertheless set last.
        rustix::fs::futimens(target, &times(&rustix::fs::fstat(top)?))
    }
}

/// Merges one name. The first of `layers` is the newest that has it. Returns a directory that is
/// still to be merged.
fn merge_name(
    layers: &[OwnedFd],
    target: &OwnedFd,
    name: &CStr,
) -> Result<Option<DirectoryMerge>, Errno> {
    let Some((first, older)) = layers.split_first() else {
        return Ok(None);
    };
    let Some(stat) = look(first, name)? else {
        return Ok(None);
    };
    if kind(&stat) != FileType::Directory {
        rustix::fs::linkat(first, name, target, name, AtFlags::empty())?;
        return Ok(None);
    }
    let mut parts = vec![open_dir(first, name)?];
    let mut is_cut = is_opaque(&parts[0]);
    for layer in older {
        if is_cut {
            break;
        }
        match look(layer, name)? {
            None => {}
            Some(stat) if kind(&stat) == FileType::Directory => {
                let part = open_dir(layer, name)?;
                is_cut = is_opaque(&part);
                parts.push(part);
            }
            // A non-directory in the older layer hides everything below it.
            Some(_) => is_cut = true,
        }
    }
    let made = make_dir(target.as_fd(), name)?;
    DirectoryMerge::new(parts, made, is_cut).map(Some)
}

/// Copies the layer at `from` to `to`, sharing blocks if the file system supports that.
///
/// # Errors
/// `NAMETOOLONG` if it is too deep; any error of reading or writing.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Errno> {
    let source = rustix::fs::openat(CWD, from, DIRECTORY, Mode::empty())?;
    let target = make_dir(CWD, &c_string(to)?)?;
    let root = rustix::fs::openat(CWD, to, DIRECTORY, Mode::empty())?;
    let mut copying = TreeCopy {
        root,
        links: HashMap::new(),
        levels: Vec::new(),
        path: Vec::new(),
    };
    copying.enter(source, target, 0)?;
    // An explicit stack, as for merging.
    while let Some(level) = copying.levels.last_mut() {
        match level.names.next() {
            Some(name) => copying.entry(&name)?,
            None => copying.leave()?,
        }
    }
    Ok(())
}

struct TreeCopy {
    root: OwnedFd,
    /// Paths to which files with several names were copied, by inode.
    links: HashMap<u64, CString>,
    /// Directories that are being copied, outermost first.
    levels: Vec<CopyLevel>,
    /// Path of the innermost directory.
    path: Vec<u8>,
}

/// Directory that is being copied.
struct CopyLevel {
    source: OwnedFd,
    target: OwnedFd,
    names: std::vec::IntoIter<CString>,
    /// Length of the path of its parent.
    parent_length: usize,
}

impl TreeCopy {
    /// Begins to copy a directory.
    fn enter(
        &mut self,
        source: OwnedFd,
        target: OwnedFd,
        parent_length: usize,
    ) -> Result<(), Errno> {
        let names = names(&source)?.into_iter();
        self.levels.push(CopyLevel {
            source,
            target,
            names,
            parent_length,
        });
        Ok(())
    }

    /// Finishes the innermost directory. Its times are set last, because creating entries changes
    /// them.
    fn leave(&mut self) -> Result<(), Errno> {
        let Some(level) = self.levels.pop() else {
            return Ok(());
        };
        self.path.truncate(level.parent_length);
        let stat = rustix::fs::fstat(&level.source)?;
        dress(&level.target, &level.source, &stat)
    }

    /// Copies one name of the innermost directory.
    fn entry(&mut self, name: &CStr) -> Result<(), Errno> {
        let Some(CopyLevel { source, target, .. }) = self.levels.last() else {
            return Ok(());
        };
        let Some(stat) = look(source, name)? else {
            return Ok(());
        };
        let parent_length = self.path.len();
        let path = match parent_length {
            0 => name.to_bytes().to_vec(),
            _ => [&self.path[..], b"/", name.to_bytes()].concat(),
        };
        if kind(&stat) != FileType::Directory && stat.st_nlink > 1 {
            if let Some(first) = self.links.get(&stat.st_ino) {
                // TRUST: the path was created here, name by name, and contains no link.
                let flags = AtFlags::empty();
                return rustix::fs::linkat(&self.root, first.as_c_str(), target, name, flags);
            }
            let here = CString::new(path.clone()).map_err(|_| Errno::INVAL)?;
            self.links.insert(stat.st_ino, here);
        }
        let (uid, gid) = owner(&stat);
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        match kind(&stat) {
            FileType::Directory => {
                if self.levels.len() > MAX_COPY_DEPTH {
                    return Err(Errno::NAMETOOLONG);
                }
                let below = open_dir(source, name)?;
                let made = make_dir(target.as_fd(), name)?;
                self.path = path;
                return self.enter(below, made, parent_length);
            }
            FileType::RegularFile => return copy_file(source, target, name),
            FileType::Symlink => {
                let link = rustix::fs::readlinkat(source, name, Vec::new())?;
                rustix::fs::symlinkat(link, target, name)?;
            }
            FileType::CharacterDevice if is_whiteout(&stat) => {
                rustix::fs::mknodat(target, name, FileType::CharacterDevice, mode, 0)?;
            }
            special @ (FileType::Fifo | FileType::Socket) => {
                rustix::fs::mknodat(target, name, special, mode, 0)?;
            }
            // A device, which no command inside can have created.
            _ => return Ok(()),
        }
        rustix::fs::chownat(target, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::utimensat(target, name, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn copy_file(source: &OwnedFd, target: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let from = match rustix::fs::openat(source, name, flags, Mode::empty()) {
        // Not readable by its owner, and an ordinary user is the owner as well.
        Err(Errno::ACCESS) => {
            let way = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = rustix::fs::openat(source, name, way, Mode::empty())?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&held)?.st_mode & 0o7777);
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            rustix::fs::chmod(path.as_str(), mode | Mode::RUSR)?;
            let opened = rustix::fs::openat(source, name, flags, Mode::empty());
            rustix::fs::chmod(path.as_str(), mode)?;
            opened?
        }
        other => other?,
    };
    let stat = rustix::fs::fstat(&from)?;
    if kind(&stat) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let to = rustix::fs::openat(target, name, flags, Mode::RUSR | Mode::WUSR)?;
    if rustix::fs::ioctl_ficlone(&to, &from).is_err() {
        copy_content(&from, &to, stat.st_size as u64)?;
    }
    dress(&to, &from, &stat)
}

/// Copies the written parts and leaves the holes.
fn copy_content(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), Errno> {
    rustix::fs::ftruncate(to, size)?;
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(from, SeekFrom::Data(at as _)) {
            Ok(start) => start,
            // Only a hole is left.
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(start as _))?.min(size);
        let (mut read_at, mut write_at) = (start, start);
        while read_at < end {
            let left = usize::try_from(end - read_at)
                .unwrap_or(usize::MAX)
                .min(1 << 30);
            let copied = rustix::fs::copy_file_range(
                from,
                Some(&mut read_at),
                to,
                Some(&mut write_at),
                left,
            );
            let count = match copied {
                // Fails between different file systems (copy_file_range(2)).
                Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    copy_piece(from, &mut read_at, to, &mut write_at, left)?
                }
                other => other?,
            };
            if count == 0 {
                return Ok(());
            }
        }
        at = end.max(start + 1);
    }
    Ok(())
}

/// Copies at most `left` bytes through this process and advances both positions.
fn copy_piece(
    from: &OwnedFd,
    read_at: &mut u64,
    to: &OwnedFd,
    write_at: &mut u64,
    left: usize,
) -> Result<usize, Errno> {
    let mut piece = vec![0_u8; left.min(PIECE_BYTES)];
    let count = rustix::io::pread(from, piece.as_mut_slice(), *read_at)?;
    let mut rest = piece.get(..count).unwrap_or_default();
    while !rest.is_empty() {
        let written = rustix::io::pwrite(to, rest, *write_at)?;
        *write_at += written as u64;
        rest = rest.get(written..).unwrap_or_default();
    }
    *read_at += count as u64;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Runs `body` on a stack as small as those of the supervisor's threads.
    fn on_a_small_stack(body: impl FnOnce() + Send + 'static) {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn(body).unwrap().join().unwrap();
    }

    /// Makes nested directories with a file in the innermost.
    fn make_deep(at: &Path, depth: usize) {
        fs::create_dir(at).unwrap();
        let mut dir = rustix::fs::openat(CWD, at, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..depth {
            dir = make_dir(dir.as_fd(), c"d").unwrap();
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::openat(&dir, c"file", flags, Mode::RUSR).unwrap();
    }

    fn deep_file(at: &Path, depth: usize) -> PathBuf {
        at.join("d/".repeat(depth) + "file")
    }

    #[test]
    fn depth_is_no_matter_for_the_stack() {
        on_a_small_stack(|| {
            let temp = tempfile::tempdir().unwrap();
            let [deep, deeper, beside] =
                ["deep", "deeper", "beside"].map(|name| temp.path().join(name));
            make_deep(&deep, MAX_COPY_DEPTH);
            make_deep(&deeper, MAX_COPY_DEPTH + 1);
            let to = temp.path().join("copy");
            copy(&deep, &to).unwrap();
            assert!(deep_file(&to, MAX_COPY_DEPTH).is_file());
            let refused = copy(&deeper, &temp.path().join("none"));
            assert_eq!(refused, Err(Errno::NAMETOOLONG));

            fs::create_dir(&beside).unwrap();
            fs::write(beside.join("new"), "new").unwrap();
            let small = temp.path().join("small");
            make_deep(&small, MAX_MERGE_DEPTH);
            let merged = temp.path().join("merged");
            merge(&[beside.clone(), small], &merged).unwrap();
            assert!(deep_file(&merged, MAX_MERGE_DEPTH).is_file());
            assert!(merged.join("new").is_file());
            let refused = merge(&[beside, deep], &temp.path().join("no"));
            assert_eq!(refused, Err(Errno::NAMETOOLONG));
        });
    }
}
