//! Removal of trees with untrusted content: any depth, any names, unreadable directories, without
//! following symbolic links.
//!
//! A tree is first renamed into the trash, so that it vanishes at once and completely for all other
//! processes. The next sweep removes the remains after a crash.

use crate::fault;
use crate::spec::name::random_hex;
use crate::state::layout::{Layout, open_dir};
use glovebox_jail::project_quota;
use glovebox_proto::Fault;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chmodat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Number of removed directories that are kept open and then closed together.
const BATCH: usize = 32;
/// Duration of a close from which the disk is assumed to be slow, so that the others are closed in
/// parallel.
const WAITS: Duration = Duration::from_micros(25);
/// Number of threads that close at the same time, including this one.
const WAITERS: usize = 4;
/// Stack size of a thread that closes descriptors.
const STACK_BYTES: usize = 64 << 10;

/// Maximum number of levels with open directories. Deeper parts are first moved up into the trash,
/// so that no depth can exhaust the stack or file descriptors.
const MAX_LEVELS: usize = 48;

/// Renames `path` into the trash and returns its new path. `None` if it does not exist.
pub(crate) fn discard(layout: &Layout, path: &Path) -> Result<Option<PathBuf>, Fault> {
    let name = random_hex();
    let place = layout.trash().join(name);
    match rustix::fs::rename(path, &place) {
        Ok(()) => Ok(Some(place)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(fault::io("remove", path, errno)),
    }
}

/// Removes a tree in the trash. Ignores entries that vanish meanwhile.
pub(crate) fn remove(layout: &Layout, place: &Path) -> Result<(), Fault> {
    remove_by(layout, place, 1)
}

/// As [`remove`], for a caller that is waited for and that starts no process meanwhile. A new
/// process would inherit the directories held open here and delay their release.
pub(crate) fn remove_at_once(layout: &Layout, place: &Path) -> Result<(), Fault> {
    remove_by(layout, place, BATCH)
}

/// Removes a tree. Keeps up to `batch` removed directories open and closes them together.
fn remove_by(layout: &Layout, place: &Path, batch: usize) -> Result<(), Fault> {
    let broken = |errno| fault::io("remove", place, errno);
    let trash = open_dir(&layout.trash()).map_err(broken)?;
    let Some(name) = place.file_name() else {
        return Ok(());
    };
    let name = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(name))
        .map_err(|_| broken(Errno::INVAL))?;
    let mut walk = TrashWalk {
        trash: &trash,
        deep: vec![name],
        moved: 0,
        removed: Vec::new(),
        batch,
    };
    while let Some(name) = walk.deep.pop() {
        walk.tree(name).map_err(broken)?;
    }
    close_all(walk.removed);
    // Removes quotas whose last files are gone.
    project_quota::reclaim(trash.as_fd());
    Ok(())
}

/// Closes removed directories. The close frees their blocks. A file system that reports each of
/// them to the disk at once (ext4 without a journal, mounted with `discard`) waits for the answer,
/// which takes much longer than the rest of a small tree's removal.
fn close_all(removed: Vec<OwnedFd>) {
    let mut rest = removed.into_iter();
    loop {
        let began = Instant::now();
        match rest.next() {
            Some(dir) => drop(dir),
            None => return,
        }
        if began.elapsed() > WAITS && rest.len() > 1 {
            break;
        }
    }
    let mut shares: Vec<Vec<OwnedFd>> = (0..WAITERS).map(|_| Vec::new()).collect();
    for (index, dir) in rest.enumerate() {
        shares[index % WAITERS].push(dir);
    }
    thread::scope(|scope| {
        let own = shares.pop();
        for share in shares.into_iter().filter(|share| !share.is_empty()) {
            let closer = thread::Builder::new()
                .name("closer".to_owned())
                .stack_size(STACK_BYTES);
            // Without a thread, dropping the closure closes them here, one after the other.
            let _ = closer.spawn_scoped(scope, move || drop(share));
        }
        drop(own);
    });
}

struct TrashWalk<'a> {
    trash: &'a OwnedFd,
    /// Names in the trash that are still to be removed.
    deep: Vec<CString>,
    moved: u64,
    /// Directories that are removed but still open here.
    removed: Vec<OwnedFd>,
    batch: usize,
}

/// Directory that is being emptied.
struct Level {
    name: CString,
    dir: OwnedFd,
    entries: Dir,
}

impl Level {
    fn open(name: CString, dir: OwnedFd) -> Result<Self, Errno> {
        let entries = Dir::read_from(&dir)?;
        Ok(Self { name, dir, entries })
    }

    /// Returns the next name in it, with true if it is known to be that of a directory.
    fn next(&mut self) -> Result<Option<(CString, bool)>, Errno> {
        while let Some(entry) = self.entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let is_dir = entry.file_type() == FileType::Directory;
                return Ok(Some((name.to_owned(), is_dir)));
            }
        }
        Ok(None)
    }
}

impl<'a> TrashWalk<'a> {
    /// Removes the tree of this name in the trash. Uses an explicit stack, because the sandbox
    /// decided about the depth and the stack of a thread may be small.
    fn tree(&mut self, name: CString) -> Result<(), Errno> {
        let trash: &'a OwnedFd = self.trash;
        let mut levels: Vec<Level> = Vec::new();
        let mut next = Some((name, false));
        loop {
            let parent = levels
                .last()
                .map_or(trash.as_fd(), |level| level.dir.as_fd());
            if let Some((name, is_dir)) = next.take() {
                if let Some(dir) = self.entry(parent, &name, is_dir, levels.len())? {
                    levels.push(Level::open(name, dir)?);
                }
            } else if let Some(level) = levels.pop() {
                let Level { name, dir, entries } = level;
                drop(entries);
                let parent = levels
                    .last()
                    .map_or(trash.as_fd(), |level| level.dir.as_fd());
                match unlinkat(parent, name.as_c_str(), AtFlags::REMOVEDIR) {
                    Ok(()) => self.is_removed(Some(dir)),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            match levels.last_mut() {
                Some(level) => next = level.next()?,
                None => return Ok(()),
            }
        }
    }

    /// Removes a name, or returns the directory that must be emptied first.
    fn entry(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        is_dir: bool,
        level: usize,
    ) -> Result<Option<OwnedFd>, Errno> {
        if !is_dir {
            match unlinkat(parent, name, AtFlags::empty()) {
                // The file system does not report the type with the name.
                Err(Errno::ISDIR | Errno::PERM) => {}
                Ok(()) | Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        if level >= MAX_LEVELS {
            self.moved += 1;
            let random = random_hex();
            let up = CString::new(format!("{random}-{}", self.moved)).map_err(|_| Errno::INVAL)?;
            match renameat(parent, name, self.trash, &up) {
                // rename(2) needs write access to a directory that changes its parent.
                Err(Errno::ACCESS) => {
                    open_child(parent, name)?;
                    renameat(parent, name, self.trash, &up)?;
                }
                other => other?,
            }
            self.deep.push(up);
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = (self.batch > 1)
            .then(|| openat(parent, name, flags, Mode::empty()).ok())
            .flatten();
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            // An unreadable directory may not be empty.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => {}
            Ok(()) => {
                self.is_removed(held);
                return Ok(None);
            }
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        drop(held);
        open_child(parent, name)
    }

    fn is_removed(&mut self, dir: Option<OwnedFd>) {
        self.removed.extend(dir);
        if self.removed.len() >= self.batch {
            close_all(std::mem::take(&mut self.removed));
        }
    }
}

/// Opens a directory for walking and adds the permissions that this needs.
fn open_child(parent: impl AsFd, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match openat(&parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return Err(Errno::NOTDIR);
            }
            // fchmodat(2) follows links, but no process can change the tree: its sandbox is gone,
            // and only this user has access to the trash.
            chmodat(&parent, name, Mode::RWXU, AtFlags::empty())?;
            openat(&parent, name, flags, Mode::empty())?
        }
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    // Removing the entries of a directory needs write and search permission on it.
    let stat = rustix::fs::fstat(&dir)?;
    if stat.st_mode & 0o700 != 0o700 {
        // Root needs no permission, and may not be the owner.
        let _ = rustix::fs::fchmod(&dir, Mode::RWXU);
    }
    Ok(Some(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn hostile_trees_are_removed_and_nothing_else() {
        // A stack as small as those of the threads that remove trees.
        for remove in [remove, remove_at_once] {
            let small = thread::Builder::new().stack_size(STACK_BYTES);
            let removed = small.spawn(move || removes_a_hostile_tree(remove)).unwrap();
            removed.join().unwrap();
        }
    }

    fn removes_a_hostile_tree(remove: fn(&Layout, &Path) -> Result<(), Fault>) {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let canary = temp.path().join("canary");
        fs::create_dir(&canary).unwrap();
        fs::write(canary.join("file"), "kept").unwrap();

        let tree = temp.path().join("tree");
        fs::create_dir(&tree).unwrap();
        symlink(&canary, tree.join("link")).unwrap();
        symlink("/nowhere", tree.join("dangling")).unwrap();
        fs::create_dir_all(tree.join("locked/in")).unwrap();
        fs::write(tree.join("locked/in/file"), "x").unwrap();
        fs::set_permissions(tree.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::write(tree.join("new\nline"), "x").unwrap();
        for index in 0..3 * BATCH {
            fs::create_dir_all(tree.join(format!("{index}/below"))).unwrap();
        }

        // Deeper than any path and than the number of descriptors that may be open.
        let mut dir = open_dir(&tree).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&dir, "d", Mode::RWXU).unwrap();
            dir = openat(&dir, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }

        let place = discard(&layout, &tree).unwrap().unwrap();
        assert!(!tree.exists());
        remove(&layout, &place).unwrap();
        assert_eq!(fs::read_dir(layout.trash()).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(canary.join("file")).unwrap(), "kept");
        assert_eq!(discard(&layout, &tree).unwrap(), None);
    }
}
