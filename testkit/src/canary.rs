//! Tree of files that must not change.

use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Planted tree and its fingerprint.
#[derive(Debug)]
pub struct Canary {
    dir: PathBuf,
    before: String,
}

impl Canary {
    /// Plants files, an executable, an empty directory, symbolic links, a hidden file and unusual
    /// names in `dir`.
    ///
    /// # Panics
    /// The tree cannot be written.
    #[expect(clippy::expect_used, reason = "a test cannot go on without its canary")]
    pub fn plant(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        let plant = || -> std::io::Result<()> {
            fs::create_dir_all(dir.join("deep/er/still"))?;
            fs::create_dir(dir.join("empty"))?;
            fs::write(dir.join("file.txt"), "canary\n")?;
            fs::write(dir.join(".hidden"), "hidden canary\n")?;
            fs::write(dir.join("deep/er/still/data.bin"), [0u8, 255, 10, 13])?;
            fs::write(dir.join("name with spaces\nand a line break"), "odd\n")?;
            fs::write(dir.join("run.sh"), "#!/bin/sh\nexit 0\n")?;
            fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o755))?;
            symlink("file.txt", dir.join("link"))?;
            symlink("/nonexistent", dir.join("dangling"))
        };
        plant().expect("a canary");
        Self::watch(dir)
    }

    /// Watches an existing tree.
    pub fn watch(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        let before = fingerprint(&dir);
        Self { dir, before }
    }

    /// Returns the directory of the tree.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Checks that nothing in the tree has changed: names, kinds, modes, owners, contents, link
    /// targets.
    ///
    /// # Panics
    /// With the first difference, if something has changed.
    pub fn assert_untouched(&self) {
        let after = fingerprint(&self.dir);
        let difference = self
            .before
            .lines()
            .zip(after.lines())
            .find(|(was, is)| was != is);
        assert!(
            self.before == after,
            "{} was touched: {} lines before, {} after, first difference {difference:?}",
            self.dir.display(),
            self.before.lines().count(),
            after.lines().count()
        );
    }
}

/// Describes each object in one line, in the order of paths.
#[expect(
    clippy::expect_used,
    reason = "a canary that cannot be read is a failed test"
)]
fn fingerprint(dir: &Path) -> String {
    let mut lines = String::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = path.symlink_metadata().expect("a canary's file");
        let content = if metadata.is_dir() {
            let mut entries: Vec<PathBuf> = fs::read_dir(&path)
                .expect("a canary's directory")
                .flatten()
                .map(|entry| entry.path())
                .collect();
            entries.sort_by(|a, b| b.cmp(a));
            pending.extend(entries);
            "directory".to_owned()
        } else if metadata.is_symlink() {
            {
                let target = fs::read_link(&path).expect("a canary's link");
                format!("-> {}", target.as_os_str().as_bytes().escape_ascii())
            }
        } else {
            blake3::hash(&fs::read(&path).expect("a canary's content"))
                .to_hex()
                .to_string()
        };
        let name = String::from_utf8_lossy(path.as_os_str().as_bytes())
            .escape_debug()
            .to_string();
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        let _ = writeln!(lines, "{name} {mode:o} {uid}:{gid} {content}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_touch_is_noticed() {
        let touches: [fn(&Path); 6] = [
            |dir| fs::write(dir.join("file.txt"), "Canary\n").unwrap(),
            |dir| fs::remove_file(dir.join(".hidden")).unwrap(),
            |dir| fs::write(dir.join("empty/new"), "").unwrap(),
            |dir| {
                fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
            },
            |dir| fs::remove_dir(dir.join("empty")).unwrap(),
            |dir| {
                fs::remove_file(dir.join("link")).unwrap();
                symlink(".hidden", dir.join("link")).unwrap();
            },
        ];
        for (index, touch) in touches.iter().enumerate() {
            let temp = tempfile::tempdir().unwrap();
            let canary = Canary::plant(temp.path().join("canary"));
            canary.assert_untouched();
            touch(canary.dir());
            let noticed = std::panic::catch_unwind(|| canary.assert_untouched()).is_err();
            assert!(noticed, "touch {index} went unnoticed");
        }
    }
}
