//! Data of the machine that programs read besides `/usr` and `/etc`: processors and memory nodes as the kernel tells
//! them, and tables of packages.
//!
//! A closed list, since secrets lie beside: the catalogue of a package manager, but no database of a server.

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use std::path::{Path, PathBuf};

/// Facts of the kernel about processors and memory. Its file system translates no owners.
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

/// Those of [`KERNEL`] that this machine has.
pub(crate) fn kernel_dirs() -> Vec<PathBuf> {
    existing(&KERNEL)
}

/// Those of the packages' that this machine has.
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

/// True for a directory of root that all may list and nobody else writes, on a path of such directories without
/// symbolic links.
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
