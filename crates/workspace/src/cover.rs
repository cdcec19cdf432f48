//! Objects in a layer of an overlay that hide a path of the layers below.

use crate::beneath::{Anchor, DIRECTORY, open_beneath, stat_at};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FileType, Mode};

/// Object of a layer at a path, or above it, that hides the layers below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerCover {
    /// A regular file at the path itself.
    File,
    /// A whiteout at the path itself.
    Whiteout,
    /// Any other object: a directory or link at the path, a file or an opaque directory above it.
    Other,
}

/// Returns the object of a layer that hides a path of the layers below. `None` if they are visible
/// there. An object that cannot be inspected hides nothing.
pub(crate) fn cover(layer: &Anchor, path: &[u8]) -> Option<LayerCover> {
    let mut parent = layer.dir(b"").ok()?;
    let mut names = path.split(|byte| *byte == b'/').peekable();
    while let Some(name) = names.next() {
        let stat = stat_at(parent.as_fd(), name).ok()?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_last = names.peek().is_none();
        match kind {
            FileType::RegularFile if is_last => return Some(LayerCover::File),
            FileType::CharacterDevice if is_last && stat.st_rdev == 0 => {
                return Some(LayerCover::Whiteout);
            }
            FileType::Directory if !is_opaque(&parent, name) => {}
            _ => return Some(LayerCover::Other),
        }
        parent = open_beneath(parent.as_fd(), name, DIRECTORY).ok()?;
    }
    // The layer has a directory at the path.
    Some(LayerCover::Other)
}

/// Returns true if a directory of a layer hides the lower directories at its path.
pub(crate) fn is_opaque(parent: &OwnedFd, name: &[u8]) -> bool {
    let Ok(dir) = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) else {
        return false;
    };
    let mut value = [0_u8; 1];
    matches!(
        rustix::fs::fgetxattr(dir, "user.overlay.opaque", &mut value),
        Ok(1)
    ) && value == *b"y"
}
