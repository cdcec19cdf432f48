//! Opens the project's files in sequence. Files in the directory of the previous one are opened
//! relative to it.

use crate::beneath::{Anchor, open_beneath};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A project, and the directory of the file that was opened last.
#[derive(Debug)]
pub(super) struct OpenProject<'a> {
    anchor: &'a Anchor,
    dir: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> OpenProject<'a> {
    pub(super) const fn new(anchor: &'a Anchor) -> Self {
        Self { anchor, dir: None }
    }

    /// Opens a path. Links in its directory are not followed; `flags` apply to the last component.
    pub(super) fn open(&mut self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some(slash) = path.iter().rposition(|&byte| byte == b'/') else {
            return open_beneath(self.anchor.as_fd(), path, flags);
        };
        let (parent, name) = (&path[..slash], &path[slash + 1..]);
        let dir = match &self.dir {
            Some((known, dir)) if known == parent => dir,
            _ => {
                let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let dir = open_beneath(self.anchor.as_fd(), parent, how)?;
                &self.dir.insert((parent.to_vec(), dir)).1
            }
        };
        rustix::fs::openat(dir, name, flags, Mode::empty())
    }
}
