//! A directory that is not there yet: filled under a name that hardly anybody uses, and put in its place
//! once there is nothing more to come.
//!
//! Until then nobody finds it under its own name, so what is in it needs no names for the time being
//! either. However its filling ends, what is in it is whole and takes its place.

use super::beneath::{self, Root};
use crate::fault;
use crate::files::{remove_all, shown, temporary_name};
use glovebox_proto::{Code, Fault};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::sync::Arc;

/// A directory that is being filled.
#[derive(Debug)]
pub(super) struct NewDirectory {
    /// Where it will be, below the directory of the request.
    path: Vec<u8>,
    parent: Arc<OwnedFd>,
    temporary: Vec<u8>,
    root: Root,
    is_placed: bool,
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // Nobody is left who could be told.
        let _ = self.place();
    }
}

impl NewDirectory {
    /// Begins one in `parent`, where nothing has its name.
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

    /// What a path is called in here, if it is in here, and the directory it is called so from.
    pub(super) fn holds<'p>(&mut self, path: &'p [u8]) -> Option<(&mut Root, &'p [u8])> {
        let rest = path
            .strip_prefix(self.path.as_slice())?
            .strip_prefix(b"/")?;
        Some((&mut self.root, rest))
    }

    /// Puts it in its place.
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
            // Anything that is no directory gives way.
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
