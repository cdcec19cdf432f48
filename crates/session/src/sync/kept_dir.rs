//! Directory that is filled anew again and again, of which one complete version exists at any time.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Versions of a directory below another one: the last complete one (`NAME`), one in progress
/// (`NAME.new`), and one that is being replaced (`NAME.old`).
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptDir(pub(super) &'static str);

impl KeptDir {
    /// Makes an empty directory for a new version, in place of one that was not completed.
    pub(super) fn begin(self, parent: &Path) -> io::Result<PathBuf> {
        let new = self.version(parent, ".new");
        remove(&new)?;
        DirBuilder::new().mode(0o700).create(&new)?;
        Ok(new)
    }

    /// Replaces the last version with the new one.
    pub(super) fn finish(self, parent: &Path) -> io::Result<()> {
        let [new, kept, old] = [".new", "", ".old"].map(|suffix| self.version(parent, suffix));
        // Renamed, not removed: after a crash before the next rename, `find` returns it. Without
        // `kept`, `old` is the last version after such a crash, and stays until there is a new one.
        if kept.exists() {
            remove(&old)?;
            fs::rename(&kept, &old)?;
        }
        fs::rename(&new, &kept)?;
        remove(&old)
    }

    /// Returns the directory of the last complete version. `None` if there is none.
    pub(super) fn find(self, parent: &Path) -> Option<PathBuf> {
        let versions = ["", ".old"].map(|suffix| self.version(parent, suffix));
        versions.into_iter().find(|version| version.is_dir())
    }

    fn version(self, parent: &Path, suffix: &str) -> PathBuf {
        parent.join(format!("{}{suffix}", self.0))
    }
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: KeptDir = KeptDir("kept");

    fn write(parent: &Path, content: &str) {
        let new = KEPT.begin(parent).unwrap();
        fs::write(new.join("file"), content).unwrap();
    }

    fn read(parent: &Path) -> Option<String> {
        fs::read_to_string(KEPT.find(parent)?.join("file")).ok()
    }

    #[test]
    fn last_complete_version_is_found() {
        let parent = tempfile::tempdir().unwrap();
        assert_eq!(read(parent.path()), None);
        for content in ["one", "two"] {
            write(parent.path(), content);
            KEPT.finish(parent.path()).unwrap();
            write(parent.path(), "incomplete");
            assert_eq!(read(parent.path()).unwrap(), content);
        }
        let left = fs::read_dir(parent.path()).unwrap().count();
        assert_eq!(left, 2, "the version that was replaced is gone");
    }

    /// The process died after it had renamed the last version away; the next one fails too.
    #[test]
    fn version_survives_two_failures() {
        let parent = tempfile::tempdir().unwrap();
        write(parent.path(), "one");
        KEPT.finish(parent.path()).unwrap();
        for _ in 0..2 {
            KEPT.finish(parent.path()).unwrap_err();
            assert_eq!(read(parent.path()).unwrap(), "one");
        }
        write(parent.path(), "two");
        KEPT.finish(parent.path()).unwrap();
        assert_eq!(read(parent.path()).unwrap(), "two");
    }
}
