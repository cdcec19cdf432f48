//! Data of the machine that programs read in addition to `/usr` and `/etc`: the kernel's files
//! about processors and memory nodes, and tables of packages.
//!
//! The list is closed, because secrets lie beside these files: it has the catalogue of a package
//! manager, but no database of a server.

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use std::path::{Path, PathBuf};

/// The kernel's files about processors and memory. Their file system translates no owners.
pub(crate) const KERNEL: [&str; 2] = ["/sys/devices/system/cpu", "/sys/devices/system/node"];

/// Directories that packages fill and every user may read.
const PACKAGES: [&str; 18] = [
    "/var/lib/dpkg",
    "/var/lib/rpm",
    "/var/lib/pacman",
    "/var/lib/alternatives",
    "/var/lib/aspell",
    "/var/lib/ispell",
    "/var/lib/dictionaries-common",
    "/var/lib/gems",
    "/var/lib/ghc",
    "/var/lib/texmf",
    "/var/lib/xml-core",
    "/var/lib/sgml-base",
    "/var/lib/mecab",
    "/var/lib/emacsen-common",
    "/var/lib/python",
    "/var/lib/ca-certificates-java",
    "/var/cache/fontconfig",
    "/var/cache/man",
];

/// Returns the paths of [`KERNEL`] that this machine has.
pub(crate) fn kernel_dirs() -> Vec<PathBuf> {
    existing(&KERNEL)
}

/// Returns the directories of packages that this machine has.
pub(crate) fn package_dirs() -> Vec<PathBuf> {
    existing(&PACKAGES)
}

fn existing(list: &[&str]) -> Vec<PathBuf> {
    list.iter()
        .map(Path::new)
        .filter(|path| is_public(path))
        .map(Path::to_owned)
        .collect()
}

/// Returns true for a directory of root that everybody may list and only root may write to, if all
/// its parents are such directories and no part is a symbolic link.
fn is_public(path: &Path) -> bool {
    path.ancestors().all(|part| {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID;
        rustix::fs::statx(CWD, part, flags, wanted).is_ok_and(|found| {
            let mode = u32::from(found.stx_mode);
            FileType::from_raw_mode(mode) == FileType::Directory
                && found.stx_uid == 0
                && mode & 0o007 == 0o005
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_a_file_and_a_closed_directory_are_not_shown() {
        assert!(is_public(Path::new("/usr/lib")));
        for path in ["/proc/self/cwd", "/etc/passwd", "/nonexistent", "/tmp/."] {
            assert!(!is_public(Path::new(path)), "{path}");
        }
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/usr/lib", &link).unwrap();
        assert!(!is_public(&link));
    }
}
