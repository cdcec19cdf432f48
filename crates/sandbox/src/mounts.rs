//! Table of mounts: type of a file system, and mounts below a directory.

use glovebox_jail::stage0::unescape_mount;
use std::fs;
use std::path::{Path, PathBuf};

/// Table of the mounts that this process sees (proc_pid_mountinfo(5)).
const TABLE: &str = "/proc/self/mountinfo";

/// Returns the mount points below `dir`, relative to it, without those below another one.
pub fn find_mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read(TABLE).unwrap_or_default();
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    mounts_below(&table, &dir)
}

/// Returns the type of the file system that contains `path`. Empty if the table does not tell.
pub(crate) fn read_mount_type(path: &Path) -> String {
    let table = fs::read(TABLE).unwrap_or_default();
    let real = path.ancestors().find_map(|path| path.canonicalize().ok());
    type_at(&table, &real.unwrap_or_else(|| path.to_owned()))
}

/// Returns the type of the visible mount above a path: the last one among those with the longest
/// mount point.
fn type_at(table: &[u8], path: &Path) -> String {
    let mut best = (0, String::new());
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let Some(target) = fields.nth(4).and_then(unescape_mount) else {
            continue;
        };
        let kind = fields.skip_while(|field| *field != b"-").nth(1);
        let depth = target.components().count();
        if path.starts_with(&target) && depth >= best.0 {
            let kind = String::from_utf8_lossy(kind.unwrap_or_default()).into_owned();
            best = (depth, kind);
        }
    }
    best.1
}

fn mounts_below(table: &[u8], dir: &Path) -> Vec<PathBuf> {
    let targets = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let target = unescape_mount(line.split(|byte| *byte == b' ').nth(4)?)?;
        let below = target.strip_prefix(dir).ok()?.to_owned();
        (!below.as_os_str().is_empty()).then_some(below)
    });
    let mut found: Vec<PathBuf> = targets.collect();
    found.sort();
    found.dedup_by(|later, earlier| later.starts_with(earlier));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_is_that_of_the_mount_that_is_seen() {
        let table = b"36 35 98:0 / / rw - ext4 /dev/x rw\n\
            37 36 0:1 / /a\\040b rw shared:1 - tmpfs none rw\n\
            38 37 0:2 / /a\\040b rw - fuse.bindfs /x rw\n";
        assert_eq!(type_at(table, Path::new("/a b/c")), "fuse.bindfs");
        assert_eq!(type_at(table, Path::new("/a")), "ext4");
        assert_eq!(type_at(b"broken", Path::new("/a")), "");
    }

    #[test]
    fn mounts_below_a_directory_are_found() {
        let table = b"36 35 98:0 / / rw - ext4 /dev/x rw\n\
            37 36 0:1 / /p rw - ext4 /dev/y rw\n\
            38 37 0:2 / /p/a\\040b rw - tmpfs none rw\n\
            39 38 0:3 / /p/a\\040b/c rw - tmpfs none rw\n\
            40 36 0:4 / /px rw - tmpfs none rw\n";
        assert_eq!(mounts_below(table, Path::new("/p")), [Path::new("a b")]);
        assert_eq!(
            mounts_below(b"broken\n", Path::new("/p")),
            [""; 0].map(PathBuf::from)
        );
    }
}
