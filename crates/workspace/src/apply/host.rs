//! [`Host`] for a destination directory: the state of each path, and whether the host changed it
//! since the push.

use super::case;
use crate::base::{Base, BaseContents, Signature};
use crate::beneath::{Anchor, digest, io, read_names};
use crate::merge::{Versions, is_executable, read_text, read_theirs};
use crate::plan::{Leftover, MergedFile};
use crate::{CollectedChanges, Digest, Host, HostChange, HostNode, HostState, Node, RelPath};
use glovebox_proto::Fault;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::collections::HashMap;

/// Recorded state of the project at the time when the sandbox started from it.
pub(super) struct KnownBase<'a> {
    pub(super) signatures: Base,
    pub(super) contents: BaseContents<'a>,
    /// Versions of the sandbox that earlier pulls put beside paths.
    pub(super) theirs: Vec<(RelPath, Signature)>,
}

/// Inspects a destination, and records the signatures of the paths that it inspects.
pub(super) struct DestinationLook<'a> {
    anchor: &'a Anchor,
    /// `None` if the destination is not the project from which the sandbox started.
    base: Option<KnownBase<'a>>,
    collected: &'a CollectedChanges,
    seen: &'a mut HashMap<RelPath, Signature>,
}

impl<'a> DestinationLook<'a> {
    pub(super) fn new(
        anchor: &'a Anchor,
        base: Option<KnownBase<'a>>,
        collected: &'a CollectedChanges,
        seen: &'a mut HashMap<RelPath, Signature>,
    ) -> Self {
        Self {
            anchor,
            base,
            collected,
            seen,
        }
    }

    fn cannot_read(&self, path: &RelPath, error: impl Into<std::io::Error>) -> Fault {
        io("read", &self.anchor.path().join(path.as_path()), error)
    }

    /// Returns the topmost component of a path that exists and is not a directory.
    fn blocker(&self, path: &RelPath) -> Option<RelPath> {
        let mut end = 0;
        for name in path.components() {
            end += name.len();
            let above = &path.as_bytes()[..end];
            let stat = self.anchor.stat(above).ok()?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return RelPath::new(above).ok();
            }
            end += 1;
        }
        None
    }

    fn node(
        &self,
        path: &RelPath,
        stat: &Stat,
        to: Option<&Node>,
        known: Option<Digest>,
    ) -> Result<HostNode, Fault> {
        let node = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let size = stat.st_size as u64;
                let is_compared =
                    matches!(to, Some(Node::File { size: other, .. }) if *other == size);
                let digest = match known {
                    _ if !is_compared => None,
                    Some(known) => Some(known),
                    None => self.anchor.digest(path.as_bytes(), size)?,
                };
                Node::File {
                    size,
                    is_executable: stat.st_mode & 0o100 != 0,
                    digest,
                }
            }
            FileType::Symlink => Node::Link {
                target: self
                    .anchor
                    .link(path.as_bytes())
                    .map_err(|errno| self.cannot_read(path, errno))?,
            },
            FileType::Directory => Node::Dir,
            _ => return Ok(HostNode::Special),
        };
        Ok(HostNode::Present(node))
    }

    /// Compares a path of a destination that is not the project with the base of the sandbox. A
    /// path without a base counts as added.
    fn compare(
        &self,
        path: &RelPath,
        stat: &Stat,
        from: Option<&Node>,
    ) -> Result<HostChange, Fault> {
        let Some(from) = from else {
            return Ok(HostChange::Added);
        };
        let HostNode::Present(now) = self.node(path, stat, Some(from), None)? else {
            return Ok(HostChange::Changed);
        };
        let is_changed = match (&now, from) {
            (
                Node::File {
                    size,
                    is_executable,
                    digest: Some(now),
                },
                Node::File {
                    size: from_size,
                    is_executable: from_executable,
                    digest: from,
                },
            ) => {
                if size != from_size || is_executable != from_executable {
                    true
                } else if let Some(from) = from {
                    from != now
                } else {
                    let mut source = self.collected.open_base(path)?;
                    let sum = digest(&mut source, *size, &mut |_| Ok(()));
                    !matches!(sum, Ok((sum, _)) if sum == *now)
                }
            }
            _ => now != *from,
        };
        Ok(if is_changed {
            HostChange::Changed
        } else {
            HostChange::Same
        })
    }
}

impl Host for DestinationLook<'_> {
    fn state(
        &mut self,
        path: &RelPath,
        from: Option<&Node>,
        to: Option<&Node>,
    ) -> Result<HostState, Fault> {
        let state = |node, since| Ok(HostState { node, since });
        let stat = match self.anchor.stat_within(path.as_bytes()) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                self.seen.insert(path.clone(), Signature::Absent);
                let since = match &self.base {
                    Some(base) => base.signatures.since(path, &Signature::Absent),
                    None => HostChange::Same,
                };
                return state(HostNode::Absent, since);
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return match self.blocker(path) {
                    Some(at) => state(HostNode::Blocked(at), HostChange::Changed),
                    // The component became a directory again in the meantime.
                    None => state(HostNode::Absent, HostChange::Changed),
                };
            }
            Err(Errno::XDEV) => return state(HostNode::Special, HostChange::Changed),
            Err(errno) => return Err(self.cannot_read(path, errno)),
        };
        let signature = Signature::from(&stat);
        self.seen.insert(path.clone(), signature);
        let since = match &self.base {
            Some(base) => base.signatures.since(path, &signature),
            None => self.compare(path, &stat, from)?,
        };
        let known = match from {
            // The digest was computed from this file, which has not changed since.
            Some(Node::File { digest, .. }) if self.base.is_some() && since == HostChange::Same => {
                *digest
            }
            _ => None,
        };
        let node = self.node(path, &stat, to, known)?;
        state(node, since)
    }

    fn merge(&mut self, path: &RelPath, to: &Node) -> Result<Option<MergedFile>, Fault> {
        self.merge_renamed(path, path, to)
    }

    fn is_pulled(&self, path: &RelPath, to: &Node) -> bool {
        let (
            Some(base),
            Node::File {
                digest: Some(digest),
                ..
            },
        ) = (&self.base, to)
        else {
            return false;
        };
        base.contents.is_pulled(path, digest)
    }

    fn merge_renamed(
        &mut self,
        path: &RelPath,
        renamed: &RelPath,
        to: &Node,
    ) -> Result<Option<MergedFile>, Fault> {
        let (file, stat) = match self.anchor.file(path.as_bytes()) {
            Ok(opened) => opened,
            Err(Errno::ACCESS | Errno::PERM) => return Ok(None),
            Err(errno) => return Err(self.cannot_read(path, errno)),
        };
        // The merged text must be based on the version that it will replace.
        if self.seen.get(path) != Some(&Signature::from(&stat)) {
            return Ok(None);
        }
        let ours = read_text(file).map_err(|error| self.cannot_read(path, error))?;
        let (Some(ours), Some(theirs)) = (ours, read_theirs(self.collected, renamed, to)?) else {
            return Ok(None);
        };
        let base = self.base.as_mut();
        let (base, mode) = base.map_or((None, None), |base| {
            let candidates = [ours.as_slice(), theirs.as_slice()];
            (
                base.contents.text_among(path, &candidates),
                base.signatures.mode(path),
            )
        });
        let versions = Versions { base, ours, theirs };
        let was_executable = mode.map(|mode| mode & 0o100 != 0);
        let modes = (was_executable, stat.st_mode & 0o100 != 0, is_executable(to));
        Ok(Some(versions.merge(modes)))
    }

    fn leftovers(&mut self) -> Vec<Leftover> {
        let noted = self
            .base
            .as_mut()
            .map(|base| std::mem::take(&mut base.theirs));
        let mut found = Vec::new();
        for (theirs, signature) in noted.unwrap_or_default() {
            let Some(path) = before_suffix(&theirs) else {
                continue;
            };
            let Ok(stat) = self.anchor.stat_within(theirs.as_bytes()) else {
                continue;
            };
            let now = Signature::from(&stat);
            if !now.has_same_content(&signature) {
                continue;
            }
            let digest = |path: &RelPath| {
                let size = stat.st_size as u64;
                self.anchor.digest(path.as_bytes(), size).ok().flatten()
            };
            let is_taken = digest(&theirs).is_some_and(|theirs| digest(&path) == Some(theirs));
            self.seen.insert(theirs.clone(), now);
            found.push(Leftover {
                path,
                theirs,
                is_taken,
            });
        }
        found
    }

    fn names(&mut self, dir: &RelPath) -> Result<Vec<Vec<u8>>, Fault> {
        let opened = self
            .anchor
            .dir(dir.as_bytes())
            .map_err(|errno| self.cannot_read(dir, errno))?;
        let mut names = Vec::new();
        read_names(&opened, |name, _| {
            names.push(name.to_vec());
            Ok::<(), Errno>(())
        })
        .map_err(|errno| self.cannot_read(dir, errno))?;
        Ok(names)
    }

    fn folds_case(&self) -> bool {
        case::folds(self.anchor)
    }
}

/// Returns the path beside which a pull put `theirs`; `None` if the name has no such suffix.
fn before_suffix(theirs: &RelPath) -> Option<RelPath> {
    const SUFFIX: &[u8] = b".theirs";
    let bytes = theirs.as_bytes();
    let digits = bytes
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let numbered = bytes[..bytes.len() - digits]
        .strip_suffix(b".")
        .filter(|_| digits > 0);
    let path = bytes
        .strip_suffix(SUFFIX)
        .or_else(|| numbered?.strip_suffix(SUFFIX))?;
    RelPath::new(path).ok()
}
