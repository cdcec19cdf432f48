//! References and stashes with which a sandbox started, read from its seed.

use super::GIT_DIR;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// References and stashes with which a sandbox started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeedReferences {
    /// Object of each reference, by its full name; empty with `reftable`.
    pub objects: BTreeMap<String, String>,
    /// Log of the stashes.
    stash_log: String,
}

impl SeedReferences {
    /// Reads the references of the project's own repository from the seed in the directory `seed`.
    pub fn read(seed: &Path) -> Self {
        let git_dir = seed.join(GIT_DIR).join(".git");
        let text = |name: &str| {
            let content = fs::read(git_dir.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&content).into_owned()
        };
        let objects = text("packed-refs")
            .lines()
            .filter_map(|line| {
                let (object, name) = line.split_once(' ')?;
                (!object.starts_with('#')).then(|| (name.to_owned(), object.to_owned()))
            })
            .collect();
        Self {
            objects,
            stash_log: text("logs/refs/stash"),
        }
    }

    /// Returns true if the sandbox started with the stash of this commit.
    pub fn has_stash(&self, commit: &str) -> bool {
        let mut lines = self.stash_log.lines();
        lines.any(|line| line.split(' ').nth(1) == Some(commit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_stashes_of_a_seed_are_read() {
        let temp = tempfile::tempdir().unwrap();
        let git_dir = temp.path().join(GIT_DIR).join(".git");
        fs::create_dir_all(git_dir.join("logs/refs")).unwrap();
        let packed = "# pack-refs with: sorted\n11 refs/heads/main\n22 refs/tags/v1\n";
        fs::write(git_dir.join("packed-refs"), packed).unwrap();
        fs::write(
            git_dir.join("logs/refs/stash"),
            "00 33 T <t> 1 +0000\tWIP\n",
        )
        .unwrap();
        let seed = SeedReferences::read(temp.path());
        assert_eq!(seed.objects["refs/tags/v1"], "22");
        assert_eq!(seed.objects.len(), 2);
        assert!(seed.has_stash("33") && !seed.has_stash("00"));
    }
}
