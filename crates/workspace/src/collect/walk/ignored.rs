//! Counts the paths and bytes that are left out because the project ignores them. Reads no
//! contents.

use super::Walk;
use crate::RelPath;
use crate::beneath::{read_names, stat_at};
use crate::collect::merge::{Entry, LayerId, TopEntry};
use rustix::fd::AsFd as _;
use rustix::fs::FileType;
use rustix::io::Errno;

/// Maximum number of paths that are counted; a directory of packages has some hundred thousand.
const MAX_PATHS: u64 = 2_000_000;
/// Maximum depth of directories that are counted.
const MAX_DEPTH: usize = 128;

impl Walk<'_, '_> {
    /// Counts the paths that the layers have at and below an ignored path.
    // TRUST: the sandbox controls these paths. They are only counted, up to a limit.
    pub(super) fn leave_out(&mut self, path: &RelPath, entry: &Entry) {
        let (paths, bytes) = match &entry.top {
            TopEntry::Dir { layers, .. } => self.count(path, layers),
            TopEntry::Other { layer, .. } => {
                let stat = self.trees.layers[usize::from(*layer)].stat(path.as_bytes());
                (1, stat.map_or(0, |stat| size(stat.st_mode, stat.st_size)))
            }
            TopEntry::Whiteout | TopEntry::Nothing => (u64::from(entry.base.is_some()), 0),
        };
        self.ignored.add(path, paths, bytes);
    }

    fn count(&self, path: &RelPath, layers: &[LayerId]) -> (u64, u64) {
        let (mut paths, mut bytes) = (0, 0);
        for layer in layers {
            let layer = &self.trees.layers[usize::from(*layer)];
            let mut waiting = vec![(path.as_bytes().to_vec(), 0)];
            while let Some((dir, depth)) = waiting.pop() {
                let Ok(open) = layer.dir(&dir) else { continue };
                // A directory that cannot be read is not counted.
                let _ = read_names(&open, |name, _| {
                    let Ok(stat) = stat_at(open.as_fd(), name) else {
                        return Ok(());
                    };
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                        if depth < MAX_DEPTH {
                            waiting.push(([&dir, &b"/"[..], name].concat(), depth + 1));
                        }
                        return Ok(());
                    }
                    paths += 1;
                    bytes += size(stat.st_mode, stat.st_size);
                    if self.ignored.paths + paths >= MAX_PATHS {
                        return Err(Errno::CANCELED);
                    }
                    Ok(())
                });
            }
        }
        (paths, bytes)
    }
}

fn size(mode: u32, size: i64) -> u64 {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => u64::try_from(size).unwrap_or(0),
        _ => 0,
    }
}
