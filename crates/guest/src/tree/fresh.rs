//! New directory of a tree, filled under a temporary name and renamed when complete.
//!
//! Until then it is not visible under its own name, so the files in it need no temporary names.
//! However the filling ends, the files in it are complete and are put in place.

use super::beneath::{self, Root};
use crate::fault;
use crate::files::{remove_all, shown, temporary_name};
use glovebox_proto::{Code, Fault};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::sync::Arc;

/// Directory that is being filled.
#[derive(Debug)]
pub(super) struct NewDirectory {
    /// Final path, below the directory of the request.
    path: Vec<u8>,
    parent: Arc<OwnedFd>,
    temporary: Vec<u8>,
    root: Root,
    is_placed: bool,
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // An error cannot be reported from here.
        let _ = self.place();
    }
}

impl NewDirectory {
    /// Creates a directory under a temporary name in `parent`, which has no entry of the final
    /// name.
    pub(super) fn begin(
        path: &[u8],
        parent: Arc<OwnedFd>,
        permissions: Mode,
    ) -> Result<Self, Errno> {
        let temporary = temporary_name();
        rustix::fs::mkdirat(&parent, temporary.as_slice(), permissions)?;
        let root = beneath::open_dir(&parent, &temporary).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&parent, temporary.as_slice(), AtFlags::REMOVEDIR);
        })?;
        Ok(Self {
            path: path.to_vec(),
            parent,
            temporary,
            root: Root::of(root),
            is_placed: false,
        })
    }

    /// Returns the path relative to this directory if it lies in it, and the directory to resolve
    /// it from.
    pub(super) fn holds<'p>(&mut self, path: &'p [u8]) -> Option<(&mut Root, &'p [u8])> {
        let rest = path
            .strip_prefix(self.path.as_slice())?
            .strip_prefix(b"/")?;
        Some((&mut self.root, rest))
    }

    /// Renames the directory to its final name.
    pub(super) fn finish(mut self) -> Result<(), Fault> {
        self.place().map_err(|errno| match errno {
            Errno::NOTEMPTY | Errno::EXIST => {
                let path = shown(&self.path);
                let message = format!("{path} was made by something else at the same moment");
                Fault::failed(Code::Busy, message).retryable()
            }
            errno => fault::file(errno, &format!("cannot make {}", shown(&self.path))),
        })
    }

    fn place(&mut self) -> Result<(), Errno> {
        if std::mem::replace(&mut self.is_placed, true) {
            return Ok(());
        }
        let name = self
            .path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default();
        let temporary = self.temporary.as_slice();
        let rename = || rustix::fs::renameat(&self.parent, temporary, &self.parent, name);
        let renamed = match rename() {
            // A file or link of the final name is replaced.
            Err(Errno::NOTDIR) => {
                rustix::fs::unlinkat(&self.parent, name, AtFlags::empty()).and_then(|()| rename())
            }
            other => other,
        };
        if renamed.is_err() {
            let _ = remove_all(&self.parent, temporary);
        }
        renamed
    }
}
