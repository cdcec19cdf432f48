//! Writer of a seed's files, which get the owner of the project.

use crate::beneath::Anchor;
use rustix::fs::{AtFlags, CWD, Stat, Timespec, Timestamps};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::Path;

/// Writer of a seed's files.
#[derive(Debug)]
pub(super) struct Target {
    /// Owner and group of new files; `None` for an ordinary user, who owns them anyway.
    owner: Option<(u32, u32)>,
}

impl Target {
    /// Returns a writer for the owner of the project.
    pub(super) fn new(project: &Anchor) -> io::Result<Self> {
        let stat = rustix::fs::fstat(project)?;
        let is_privileged = rustix::process::geteuid().is_root();
        Ok(Self {
            owner: is_privileged.then_some((stat.st_uid, stat.st_gid)),
        })
    }

    /// Returns a writer for the owner of the existing seed at `dir`.
    pub(super) fn like(dir: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let meta = fs::symlink_metadata(dir)?;
        let is_privileged = rustix::process::geteuid().is_root();
        Ok(Self {
            owner: is_privileged.then_some((meta.uid(), meta.gid())),
        })
    }

    /// Creates a directory, unless it exists.
    pub(super) fn make_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            made => made?,
        }
        // The umask applies at creation, so the mode is set explicitly.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        self.own(path)
    }

    /// Creates the missing directories above a file, below `top`.
    pub(super) fn make_parents(&self, top: &Path, path: &Path) -> io::Result<()> {
        let Ok(below) = path.strip_prefix(top) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut at = top.to_owned();
        for part in below.parent().into_iter().flat_map(Path::components) {
            at.push(part);
            self.make_dir(&at)?;
        }
        Ok(())
    }

    /// Writes a new file with these permissions.
    pub(super) fn write(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<File> {
        let mut file = File::create_new(path)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        self.own(path)?;
        Ok(file)
    }

    /// Copies owner, mode and times of a directory of the project, which the new one covers.
    pub(super) fn copy_attributes(&self, from: &Anchor, to: &Path) -> io::Result<()> {
        let stat = rustix::fs::fstat(from)?;
        if self.owner.is_some() {
            lchown(to, Some(stat.st_uid), Some(stat.st_gid))?;
        }
        fs::set_permissions(to, fs::Permissions::from_mode(stat.st_mode & 0o7777))?;
        rustix::fs::utimensat(CWD, to, &times_of(&stat), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    fn own(&self, path: &Path) -> io::Result<()> {
        match self.owner {
            Some((uid, gid)) => lchown(path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }
}

/// Returns the times of access and of the last modification.
pub(super) fn times_of(stat: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds as _,
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}
