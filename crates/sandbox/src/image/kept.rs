//! Single copy of the guest in the state directory, from which all sandboxes run. Its pages are in
//! memory only once, and a start need not write them first.
//!
//! `base/guest-HASH` is the program. `base/guest-HASH.seen` records which file last had that
//! digest: its inode, its times of change, and the boot. Only the owner can access both files, and
//! a command inside cannot reach the file of a running guest (`/proc/PID/exe` is inaccessible,
//! because the guest is not dumpable and commands are in a Landlock domain). Even if a command
//! could, any change of the file changes its `ctime`, and the digest is computed again.

use super::{GUEST, GUEST_HASH};
use crate::spec::name::random_hex;
use rustix::fs::{
    CWD, FileType, Mode, OFlags, RenameFlags, Stat, StatVfsMountFlags, fstat, fstatvfs,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Permissions of the program: not writable, even for its owner.
const MODE: u32 = 0o500;
/// Maximum size of a stamp, in bytes.
const STAMP_BYTES: u64 = 256;

/// Returns the name of the program in `base/`; different for each version of the guest.
pub(crate) fn name() -> String {
    format!("guest-{}", &GUEST_HASH[..32])
}

/// Opens the copy in `base`, which is created if it is missing. `None` if a trusted copy cannot be
/// created or run there.
pub(super) fn open(base: &Path) -> Option<OwnedFd> {
    let path = base.join(name());
    match open_trusted(&path) {
        Ok(Some(fd)) => return Some(fd),
        Ok(None) => return None,
        Err(Errno::NOENT) => {}
        // Damaged, or a file of another owner. Replace it.
        Err(_) => fs::remove_file(&path).ok()?,
    }
    write(&path)?;
    open_trusted(&path).ok().flatten()
}

/// Opens the copy. `Ok(None)` if programs cannot be run there; an error if the file is not the
/// guest.
fn open_trusted(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = fstat(&fd)?;
    // TRUST: only this user has access to the directory. This detects a damaged or modified file.
    let is_ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & 0o7777 == MODE
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_nlink == 1
        && u64::try_from(stat.st_size) == Ok(GUEST.len() as u64);
    if !is_ours {
        return Err(Errno::BADF);
    }
    if fstatvfs(&fd)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Ok(None);
    }
    let seen = path.with_extension("seen");
    let stamp = stamp(&stat);
    if read_stamp(&seen) == stamp {
        return Ok(Some(fd));
    }
    let file = File::from(fd);
    if !is_guest(&file) {
        return Err(Errno::BADMSG);
    }
    // Without a stamp the next start computes the digest again.
    let _ = write_new(&seen, stamp.as_bytes(), 0o600)
        .and_then(|fresh| rustix::fs::rename(&fresh, &seen));
    Ok(Some(OwnedFd::from(file)))
}

fn is_guest(mut file: &File) -> bool {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0_u8; 64 << 10];
    while let Ok(count) = file.read(&mut buffer) {
        if count == 0 {
            return hasher.finalize().to_hex().as_str() == GUEST_HASH;
        }
        hasher.update(&buffer[..count]);
    }
    false
}

/// Returns a text that changes with every modification of the file and with every boot.
fn stamp(stat: &Stat) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!(
        "{} {} {} {}.{} {}.{}\n",
        boot.trim(),
        stat.st_dev,
        stat.st_ino,
        stat.st_ctime,
        stat.st_ctime_nsec,
        stat.st_mtime,
        stat.st_mtime_nsec
    )
}

fn read_stamp(path: &Path) -> String {
    let mut text = String::new();
    // An unreadable stamp counts as different.
    let _ = File::open(path).and_then(|file| file.take(STAMP_BYTES).read_to_string(&mut text));
    text
}

/// Writes the program to `path`. Succeeds if another process wrote it first.
fn write(path: &Path) -> Option<()> {
    let fresh = write_new(path, &GUEST.unpack().ok()?, MODE).ok()?;
    if rustix::fs::renameat_with(CWD, &fresh, CWD, path, RenameFlags::NOREPLACE).is_err() {
        // The caller's open shows whether the program is in place.
        let _ = fs::remove_file(&fresh);
    }
    Some(())
}

/// Writes a new file with a unique name beside `path`.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<PathBuf, Errno> {
    let fresh = path.with_extension(format!("new-{}", random_hex()));
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&fresh)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            // Restores permissions that the umask removed.
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            Ok(())
        });
    match written {
        Ok(()) => Ok(fresh),
        Err(error) => {
            let _ = fs::remove_file(&fresh);
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    fn inode(path: &Path) -> u64 {
        fs::symlink_metadata(path).unwrap().ino()
    }

    #[test]
    fn the_copy_is_made_once_and_used_again() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join(name());
        assert!(open(base.path()).is_some());
        let first = inode(&path);
        assert_eq!(fs::read(&path).unwrap(), GUEST.unpack().unwrap());
        let seen = inode(&path.with_extension("seen"));
        assert!(open(base.path()).is_some());
        assert_eq!(inode(&path), first);
        assert_eq!(inode(&path.with_extension("seen")), seen);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_copy_that_was_meddled_with_is_replaced() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join(name());
        let meddle: [fn(&Path); 5] = [
            |path| {
                fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
                let mut bytes = GUEST.unpack().unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                // Another file of the same size and permissions.
                fs::write(path, bytes).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(MODE)).unwrap();
            },
            |path| fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap(),
            |path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/bin/true", path).unwrap();
            },
            |path| fs::hard_link(path, path.with_extension("other")).unwrap(),
            |path| {
                fs::remove_file(path).unwrap();
                rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
            },
        ];
        for (turn, meddle) in meddle.iter().enumerate() {
            assert!(open(base.path()).is_some());
            meddle(&path);
            assert!(open(base.path()).is_some(), "{turn}");
            assert_eq!(fs::read(&path).unwrap(), GUEST.unpack().unwrap(), "{turn}");
            assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{turn}");
        }
    }

    #[test]
    fn a_forged_stamp_of_another_file_is_no_stamp() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join(name());
        assert!(open(base.path()).is_some());
        fs::write(path.with_extension("seen"), "seen it\n").unwrap();
        let before = inode(&path);
        assert!(open(base.path()).is_some());
        assert_eq!(inode(&path), before, "an intact copy stays");
        let stat = rustix::fs::stat(&path).unwrap();
        assert_eq!(read_stamp(&path.with_extension("seen")), stamp(&stat));
    }
}
