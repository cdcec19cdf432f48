//! Large files of git-lfs: stores the contents for pointers in a commit in the host's repository.
//!
//! A file is named by its SHA-256 digest, which the caller must check. It is first written under
//! another name, without following links, and never replaces an existing file.

use super::commits::HostRepository;
use crate::beneath::{Anchor, io};
use glovebox_proto::{Code, Fault};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Directory of git-lfs objects, below the common directory.
const OBJECTS: [&str; 2] = ["lfs", "objects"];

/// A large file that is being written. Dropping it before [`Self::keep`] removes it.
#[derive(Debug)]
pub struct NewLargeFile {
    /// The file, initially empty, open for reading and writing.
    pub file: File,
    dir: OwnedFd,
    temporary: String,
    id: String,
    place: PathBuf,
    is_kept: bool,
}

impl Drop for NewLargeFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = rustix::fs::unlinkat(&self.dir, &self.temporary, AtFlags::empty());
        }
    }
}

impl NewLargeFile {
    /// Waits until the content is on the disk, and gives the file its name.
    ///
    /// # Errors
    /// Any failure to write.
    pub fn keep(mut self) -> Result<(), Fault> {
        let failed = |error: std::io::Error| io("write", &self.place, error);
        self.file.sync_data().map_err(failed)?;
        let (dir, flags) = (&self.dir, RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(dir, &self.temporary, dir, &self.id, flags) {
            Ok(()) => {
                self.is_kept = true;
                Ok(())
            }
            // A file of that name has the same content.
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}

impl HostRepository<'_> {
    /// Begins the large file with the name `id`; `None` if it exists.
    ///
    /// # Errors
    /// [`Code::Protocol`] for an invalid name; a link or file in place of a directory; and any
    /// failure to write.
    // TRUST: the sandbox chose the name. It must be hexadecimal digits, and directories are opened
    // without following links.
    pub fn begin_large_file(&self, id: &str) -> Result<Option<NewLargeFile>, Fault> {
        if id.len() != 64 || !super::is_object_name(id) {
            let message = "a large file in the sandbox has no valid name";
            return Err(Fault::failed(Code::Protocol, message));
        }
        let anchor = Anchor::open(self.common_dir())?;
        let mut path = PathBuf::new();
        for part in OBJECTS.into_iter().chain([&id[..2], &id[2..4]]) {
            let above = open(&anchor, &path)?;
            path.push(part);
            match rustix::fs::mkdirat(&above, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(io("make", &anchor.path().join(&path), errno)),
            }
        }
        let dir = open(&anchor, &path)?;
        if crate::beneath::stat_at(rustix::fd::AsFd::as_fd(&dir), id.as_bytes()).is_ok() {
            return Ok(None);
        }
        let mut random = [0_u8; 8];
        let place = anchor.path().join(&path).join(id);
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| io("write", &place, errno))?;
        let temporary = format!("glovebox-{:016x}", u64::from_ne_bytes(random));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let file = rustix::fs::openat(&dir, &temporary, flags, mode)
            .map_err(|errno| io("write", &place, errno))?;
        Ok(Some(NewLargeFile {
            file: File::from(file),
            dir,
            temporary,
            id: id.to_owned(),
            place,
            is_kept: false,
        }))
    }
}

fn open(anchor: &Anchor, path: &Path) -> Result<OwnedFd, Fault> {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let opened = anchor.dir_within(bytes);
    opened.map_err(|errno| io("open", &anchor.path().join(path), errno))
}
