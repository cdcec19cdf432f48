//! A small file system that a test can fill.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory, mounted until this is dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of this size, such as `2m`; `None` where that cannot be done.
    pub(crate) fn mount(dir: &Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=700"),
                "none",
            ])
            .arg(dir)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Self(dir.to_owned()))
    }

    /// Writes a file until nothing more fits.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![7; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
