//! Files and links in the layers, and the host's objects at the same paths.

use super::Walk;
use crate::beneath::{digest, io};
use crate::collect::merge::{HostEntry, LayerId};
use crate::progress::{Progress, report};
use crate::{Flag, Node, RefusalReason, RelPath};
use glovebox_proto::{Code, Fault, Setting};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::io::Read;

impl Walk<'_, '_> {
    /// Collects a file, link or special file in a layer. Returns false if it is not taken.
    pub(super) fn other(
        &mut self,
        path: &RelPath,
        layer: LayerId,
        kind: FileType,
        base: Option<&HostEntry>,
    ) -> Result<bool, Fault> {
        let anchor = &self.trees.layers[usize::from(layer)];
        let bytes = path.as_bytes();
        match kind {
            FileType::RegularFile => {}
            FileType::Symlink => {
                let target = match anchor.link(bytes) {
                    Ok(target) => target,
                    // The sandbox still runs, and has removed or replaced the link.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::LOOP) => {
                        return Ok(false);
                    }
                    Err(Errno::ACCESS) => {
                        self.refuse(bytes, RefusalReason::Unreadable);
                        return Ok(false);
                    }
                    Err(errno) => {
                        return Err(io("read", &anchor.path().join(path.as_path()), errno));
                    }
                };
                let from = self.base_node(path, base)?;
                let to = Node::Link { target };
                if from.as_ref() != Some(&to) {
                    self.change(path, from, Some(to), Vec::new())?;
                }
                return Ok(true);
            }
            _ => {
                self.refuse(bytes, RefusalReason::Special);
                return Ok(false);
            }
        }
        let (mut file, stat) = match anchor.file(bytes) {
            Ok(opened) => opened,
            Err(Errno::ACCESS) => {
                self.refuse(bytes, RefusalReason::Unreadable);
                return Ok(false);
            }
            // The sandbox still runs, and has removed or replaced the file.
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NOTDIR | Errno::NXIO) => {
                return Ok(false);
            }
            Err(errno) => return Err(io("read", &anchor.path().join(path.as_path()), errno)),
        };
        let is_executable = stat.st_mode & 0o100 != 0;
        let (sum, size) = self.digest(path, &mut file, stat.st_size as u64)?;
        let mut from = self.base_node(path, base)?;
        if let Some(Node::File {
            size: base_size,
            is_executable: base_executable,
            digest: base_digest,
        }) = &mut from
            && *base_size == size
        {
            *base_digest = match &self.trees.project {
                Some(project) => project.digest(path.as_bytes(), size)?,
                None => None,
            };
            // An unchanged copy of the host's file is no change and does not count against the
            // quota.
            if *base_digest == Some(sum) && *base_executable == is_executable {
                self.bytes -= size;
                return Ok(true);
            }
        }
        let mut flags = Vec::new();
        if stat.st_mode & 0o7000 != 0 {
            flags.push(Flag::SpecialMode);
        }
        if stat.st_nlink > 1 {
            flags.push(Flag::HardLink);
        }
        let to = Node::File {
            size,
            is_executable,
            digest: Some(sum),
        };
        self.change(path, from, Some(to), flags)?;
        Ok(true)
    }

    /// Computes the digest of a file of a layer, within the quota.
    // TRUST: the sandbox controls the length. A sparse file counts with its apparent length, and
    // before it is read.
    fn digest(
        &mut self,
        path: &RelPath,
        file: &mut dyn Read,
        size: u64,
    ) -> Result<(crate::Digest, u64), Fault> {
        let left = self.quota.max_bytes.saturating_sub(self.bytes);
        let too_large = || {
            Fault::failed(
                Code::TooLarge,
                format!(
                    "the changes have more than {} bytes, with `{path}` among them",
                    self.quota.max_bytes
                ),
            )
            .remedy([
                "leave it out with ".into(),
                Setting::Exclude.into(),
                ", or raise the limit".into(),
            ])
        };
        if size > left {
            return Err(too_large());
        }
        let (paths, before) = (self.paths, self.bytes);
        let mut done = 0;
        let mut stopped = None;
        let watch = &mut *self.watch;
        let result = digest(file, left, &mut |block| {
            let earlier = done / (4 << 20);
            done += block.len() as u64;
            if done / (4 << 20) != earlier {
                let bytes = before + done;
                if let Err(fault) = report(watch, Progress::Collecting { paths, bytes }) {
                    stopped = Some(fault);
                    return Err(std::io::ErrorKind::Other.into());
                }
            }
            Ok(())
        });
        match result {
            Ok((sum, size)) => {
                self.bytes += size;
                Ok((sum, size))
            }
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Err(too_large()),
            Err(error) => Err(stopped.unwrap_or_else(|| io("read", path.as_path(), error))),
        }
    }

    /// Returns the host's node; `None` if there is none or it cannot be transferred.
    pub(super) fn base_node(
        &self,
        path: &RelPath,
        base: Option<&HostEntry>,
    ) -> Result<Option<Node>, Fault> {
        let (Some(look), Some(project)) = (base, &self.trees.project) else {
            return Ok(None);
        };
        Ok(match look.kind {
            FileType::RegularFile => Some(Node::File {
                size: look.size,
                is_executable: look.is_executable,
                digest: None,
            }),
            FileType::Symlink => match project.link(path.as_bytes()) {
                Ok(target) => Some(Node::Link { target }),
                // The host is removing or replacing the link at this moment.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::LOOP) => None,
                Err(errno) => return Err(io("read", &project.path().join(path.as_path()), errno)),
            },
            FileType::Directory => Some(Node::Dir),
            _ => None,
        })
    }
}
