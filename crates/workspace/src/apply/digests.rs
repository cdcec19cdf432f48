//! Digests of the paths of a change set in a destination. They show whether the destination is
//! still in the state that a reviewer was shown.

use super::{Destination, paths};
use crate::beneath::{Anchor, io};
use crate::{ChangeSet, Digest, RelPath, Stage, SyncError};
use glovebox_proto::Fault;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Digests of the state of a destination, by path. A path that does not exist has a digest as well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DestinationDigests(BTreeMap<RelPath, Digest>);

impl DestinationDigests {
    /// Adds all paths and digests to `hasher`.
    pub fn add_to(&self, hasher: &mut blake3::Hasher) {
        for (path, digest) in &self.0 {
            let bytes = path.as_bytes();
            // The length comes before the name, so that different sets of paths never produce the
            // same bytes.
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes).update(digest);
        }
    }

    /// Returns true if every path in `later` has the same digest here. Paths that `later` lacks are
    /// ignored.
    pub fn holds(&self, later: &Self) -> bool {
        let mut later = later.0.iter();
        later.all(|(path, digest)| self.0.get(path) == Some(digest))
    }
}

impl Destination {
    /// Reads the state of each path of a change set, including the sources of renames.
    ///
    /// # Errors
    /// When a path cannot be inspected.
    pub fn digest_paths(&self, set: &ChangeSet) -> Result<DestinationDigests, SyncError> {
        let digests = paths(set).into_iter().map(|path| {
            let digest = digest_node(&self.anchor, &path)?;
            Ok((path, digest))
        });
        let digests = digests.collect::<Result<_, Fault>>();
        let digests = digests.map_err(|fault| SyncError::pull(Stage::Plan, fault))?;
        Ok(DestinationDigests(digests))
    }
}

/// Returns the digest of type, owner's execute permission and content of a path.
fn digest_node(anchor: &Anchor, path: &RelPath) -> Result<Digest, Fault> {
    let failed = |errno| io("read", &anchor.path().join(path.as_path()), errno);
    let stat = match anchor.stat_within(path.as_bytes()) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(digest_parts(b"absent", &[])),
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(digest_parts(b"blocked", &[])),
        Err(Errno::XDEV) => return Ok(digest_parts(b"mount", &[])),
        Err(errno) => return Err(failed(errno)),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => digest_parts(b"directory", &[]),
        FileType::Symlink => {
            let target = anchor.link(path.as_bytes()).map_err(failed)?;
            digest_parts(b"link", &target)
        }
        FileType::RegularFile => {
            let kind: &[u8] = match stat.st_mode & 0o100 {
                0 => b"file",
                _ => b"executable",
            };
            match anchor.digest(path.as_bytes(), stat.st_size as u64)? {
                Some(content) => digest_parts(kind, &content),
                // The file is being written, or is not readable. Its times represent the content.
                None => digest_parts(kind, &times(&stat)),
            }
        }
        _ => digest_parts(b"special", &[]),
    })
}

fn times(stat: &Stat) -> Vec<u8> {
    let parts = [
        stat.st_ino as i128,
        i128::from(stat.st_size),
        i128::from(stat.st_mtime),
        stat.st_mtime_nsec as i128,
        i128::from(stat.st_ctime),
        stat.st_ctime_nsec as i128,
    ];
    parts.iter().flat_map(|part| part.to_le_bytes()).collect()
}

fn digest_parts(kind: &[u8], rest: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind).update(b"\0").update(rest);
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, ChangeKind, Node};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn digests_tell_content_mode_and_kind_apart() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let set = |paths: &[&str]| ChangeSet {
            changes: paths
                .iter()
                .map(|path| Change {
                    path: RelPath::new(path.as_bytes()).unwrap(),
                    kind: ChangeKind::Added { to: Node::Dir },
                    flags: Vec::new(),
                })
                .collect(),
            refused: Vec::new(),
        };
        let both = set(&["a", "d/b"]);
        let read = |set: &ChangeSet| {
            let destination = Destination::look(&dir, None).unwrap();
            destination.digest_paths(set).unwrap()
        };
        let file = dir.join("a");
        let mut seen = vec![read(&both)];
        let mut note = || {
            let now = read(&both);
            assert_eq!(now, read(&both));
            assert!(!seen.contains(&now), "{seen:?}");
            seen.push(now);
        };
        fs::write(&file, "one").unwrap();
        note();
        fs::write(&file, "two").unwrap();
        note();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        note();
        fs::remove_file(&file).unwrap();
        symlink("one", &file).unwrap();
        note();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        note();
        fs::write(dir.join("d"), "").unwrap();
        note();
        // Some of the paths are compared with all of them; an additional path is not known.
        let all = read(&both);
        assert!(all.holds(&read(&set(&["a"]))));
        assert!(!all.holds(&read(&set(&["c"]))));
        fs::remove_dir(&file).unwrap();
        assert!(!all.holds(&read(&set(&["a"]))));
        assert!(all.holds(&read(&set(&["d/b"]))));
    }
}
