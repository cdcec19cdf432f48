//! The commit from which a branch starts, as the destination of a plan.
//!
//! A path of the commit counts as changed by the host if it differs from the version from which the
//! sandbox started: the user had uncommitted edits, or has committed since. Both versions are then
//! merged, or conflict.

use super::objects::Blobs;
use crate::apply::{BaseFile, paths};
use crate::base::{Base, BaseContents, Signature, hex};
use crate::beneath::{Anchor, digest};
use crate::merge::{MAX_TEXT_BYTES, Versions, is_executable, read_text, read_theirs};
use crate::plan::{Leftover, MergedFile};
use crate::{
    ChangeSet, CollectedChanges, Digest, Host, HostChange, HostNode, HostState, Node, RelPath,
};
use glovebox_proto::Fault;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Maximum length of the target of a link, in bytes.
const MAX_LINK_BYTES: u64 = 4096;

/// Entry of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    kind: Kind,
    /// Object name of its content.
    pub(super) id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File {
        is_executable: bool,
    },
    Link,
    /// The commit of a submodule.
    Other,
}

/// Recorded state of the project at the time when the sandbox started from it.
struct KnownBase<'a> {
    signatures: Base,
    contents: BaseContents<'a>,
}

/// Files of a commit below the project's directory.
pub(super) struct CommitTree<'a> {
    entries: BTreeMap<RelPath, Entry>,
    blobs: Blobs<'a>,
    project: Anchor,
    base: Option<KnownBase<'a>>,
    collected: &'a CollectedChanges,
    /// Lengths and digests of contents that were read, by object name.
    digests: HashMap<String, (u64, Digest)>,
    /// Local files with the contents of paths whose form in the working tree differs from the
    /// stored one.
    converted: HashMap<RelPath, PathBuf>,
}

impl<'a> CommitTree<'a> {
    /// Parses `listing`, the output of `git ls-tree -r -z` for the whole commit.
    pub(super) fn new(
        listing: &[u8],
        prefix: &[u8],
        blobs: Blobs<'a>,
        project: &'a Path,
        base: Option<&'a BaseFile>,
        collected: &'a CollectedChanges,
        set: &ChangeSet,
    ) -> Result<Self, Fault> {
        let entries = listing
            .split(|byte| *byte == 0)
            .filter_map(|line| entry(line, prefix))
            .collect();
        Ok(Self {
            entries,
            blobs,
            project: Anchor::open(project)?,
            base: base.map(|base| {
                let wanted = paths(set);
                KnownBase {
                    signatures: Base::load(&base.index, base.pushed_unix_ns, &wanted),
                    contents: BaseContents::load(base, project, &wanted),
                }
            }),
            collected,
            digests: HashMap::new(),
            converted: HashMap::new(),
        })
    }

    /// Returns the paths of a change set at which the commit has a file, relative to the top of the
    /// working tree, with their objects. Objects that a partial clone lacks are left out, because
    /// nothing is fetched.
    pub(super) fn files_of(&mut self, set: &ChangeSet, prefix: &[u8]) -> Vec<(Vec<u8>, String)> {
        let mut files = Vec::new();
        for path in paths(set) {
            let Some(entry) = self.entries.get(&path) else {
                continue;
            };
            let is_file = matches!(entry.kind, Kind::File { .. });
            if is_file && self.blobs.with(&entry.id, |_, _| ()).is_some() {
                files.push(([prefix, path.as_bytes()].concat(), entry.id.clone()));
            }
        }
        files
    }

    /// Replaces the stored contents of files by those in the form of the working tree.
    pub(super) fn show_as(&mut self, files: HashMap<Vec<u8>, PathBuf>, prefix: &[u8]) {
        let below = |(path, file): (Vec<u8>, PathBuf)| {
            let path = RelPath::new(path.strip_prefix(prefix)?).ok()?;
            Some((path, file))
        };
        self.converted = files.into_iter().filter_map(below).collect();
    }

    /// Returns the commit's entry for a path; `None` if there is none.
    pub(super) fn entry(&self, path: &RelPath) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Returns true if the commit has an entry below a path.
    fn is_dir(&self, path: &RelPath) -> bool {
        let after = (Bound::Excluded(path), Bound::Unbounded);
        let next = self.entries.range::<RelPath, _>(after).next();
        next.is_some_and(|(other, _)| other.starts_with(path))
    }

    /// Returns the node of an entry. If a partial clone lacks the content, the node equals none
    /// that the sandbox has.
    fn node(&mut self, path: &RelPath, entry: &Entry) -> HostNode {
        match entry.kind {
            Kind::Other => HostNode::Special,
            Kind::Link => match self.blobs.read(&entry.id, MAX_LINK_BYTES) {
                Some(target) => HostNode::Present(Node::Link { target }),
                None => HostNode::Special,
            },
            Kind::File { is_executable } => {
                let found = self.digest(path, &entry.id);
                HostNode::Present(Node::File {
                    size: found.map_or(0, |(size, _)| size),
                    is_executable,
                    digest: found.map(|(_, digest)| digest),
                })
            }
        }
    }

    fn digest(&mut self, path: &RelPath, id: &str) -> Option<(u64, Digest)> {
        if let Some(file) = self.converted.get(path) {
            let mut file = File::open(file).ok()?;
            let size = file.metadata().ok()?.len();
            let (sum, read) = digest(&mut file, size, &mut |_| Ok(())).ok()?;
            return Some((read, sum));
        }
        if let Some(known) = self.digests.get(id) {
            return Some(*known);
        }
        let read = |size, content: &mut dyn Read| digest(content, size, &mut |_| Ok(())).ok();
        let (sum, size) = self.blobs.with(id, read)??;
        self.digests.insert(id.to_owned(), (size, sum));
        Some((size, sum))
    }

    /// Returns the content of a path in the form of the working tree; `None` if it is too large to
    /// be merged.
    fn text(&mut self, path: &RelPath, id: &str) -> Option<Vec<u8>> {
        match self.converted.get(path) {
            Some(file) => read_text(File::open(file).ok()?).ok().flatten(),
            None => self.blobs.read(id, MAX_TEXT_BYTES),
        }
    }

    /// Returns the user's change of a file in the project since the sandbox started.
    fn since_in_project(&self, path: &RelPath) -> HostChange {
        let now = match self.project.stat_within(path.as_bytes()) {
            Ok(stat) => Signature::from(&stat),
            Err(_) => Signature::Absent,
        };
        let base = self.base.as_ref();
        base.map_or(HostChange::Same, |base| base.signatures.since(path, &now))
    }

    /// Opens the version from which the sandbox started; `None` if it cannot be read.
    fn base_reader(&self, path: &RelPath) -> Option<Box<dyn Read + '_>> {
        if self.base.is_none()
            && let Ok(reader) = self.collected.open_base(path)
        {
            return Some(reader);
        }
        let (file, _) = self.project.file(path.as_bytes()).ok()?;
        Some(Box::new(file))
    }

    /// Compares the commit's version of a path with the one from which the sandbox started.
    fn since(
        &mut self,
        path: &RelPath,
        entry: &Entry,
        committed: &HostNode,
        from: Option<&Node>,
        is_removed: bool,
    ) -> HostChange {
        let base = self.base.as_ref();
        let tracked = base.and_then(|base| base.contents.tracked(path));
        if let Some(tracked) = tracked
            && hex(&tracked.id) == entry.id
            && (tracked.is_clean || is_removed)
        {
            return HostChange::Same;
        }
        let since = self.since_in_project(path);
        if since == HostChange::Added || from.is_none() {
            return HostChange::Added;
        }
        let is_same = match committed {
            HostNode::Present(Node::Link { .. }) => {
                since == HostChange::Same
                    && matches!(committed, HostNode::Present(node) if Some(node) == from)
            }
            HostNode::Present(Node::File {
                size,
                digest: Some(sum),
                ..
            }) if since == HostChange::Same => self
                .base_reader(path)
                .and_then(|mut reader| digest(&mut reader, *size, &mut |_| Ok(())).ok())
                .is_some_and(|(found, _)| found == *sum),
            HostNode::Present(Node::File {
                digest: Some(sum), ..
            }) => {
                let committed = self.text(path, &entry.id);
                let candidates = committed.as_deref();
                let base = self.base.as_mut();
                let text =
                    base.and_then(|base| base.contents.text_among(path, candidates.as_slice()));
                text.is_some_and(|text| blake3::hash(&text).as_bytes() == sum)
            }
            _ => false,
        };
        if is_same {
            HostChange::Same
        } else {
            HostChange::Changed
        }
    }
}

impl Host for CommitTree<'_> {
    fn state(
        &mut self,
        path: &RelPath,
        from: Option<&Node>,
        to: Option<&Node>,
    ) -> Result<HostState, Fault> {
        let state = |node, since| Ok(HostState { node, since });
        let mut above = path.parent();
        while let Some(dir) = above {
            if self.entries.contains_key(&dir) {
                return state(HostNode::Blocked(dir), HostChange::Changed);
            }
            above = dir.parent();
        }
        if self.is_dir(path) {
            return state(HostNode::Present(Node::Dir), HostChange::Same);
        }
        let Some(entry) = self.entries.get(path).cloned() else {
            // The user has removed a file that git tracked when the sandbox started.
            let base = self.base.as_ref();
            let was_tracked = base.is_some_and(|base| base.contents.tracked(path).is_some());
            let is_removed = was_tracked && self.project.stat(path.as_bytes()).is_err();
            let since = if is_removed {
                HostChange::Changed
            } else {
                HostChange::Same
            };
            return state(HostNode::Absent, since);
        };
        let node = self.node(path, &entry);
        let since = self.since(path, &entry, &node, from, to.is_none());
        state(node, since)
    }

    fn merge(&mut self, path: &RelPath, to: &Node) -> Result<Option<MergedFile>, Fault> {
        let Some(Entry {
            kind: Kind::File {
                is_executable: ours_executable,
            },
            id,
        }) = self.entries.get(path).cloned()
        else {
            return Ok(None);
        };
        let ours = self.text(path, &id);
        let (Some(ours), Some(theirs)) = (ours, read_theirs(self.collected, path, to)?) else {
            return Ok(None);
        };
        let base = if self.since_in_project(path) == HostChange::Same {
            let reader = self.base_reader(path);
            reader.and_then(|reader| read_text(reader).ok().flatten())
        } else {
            let base = self.base.as_mut();
            let candidates = [ours.as_slice(), theirs.as_slice()];
            base.and_then(|base| base.contents.text_among(path, &candidates))
        };
        let mode = self
            .base
            .as_ref()
            .and_then(|base| base.signatures.mode(path));
        let was_executable = mode.map(|mode| mode & 0o100 != 0);
        let versions = Versions { base, ours, theirs };
        let modes = (was_executable, ours_executable, is_executable(to));
        Ok(Some(versions.merge(modes)))
    }

    fn leftovers(&mut self) -> Vec<Leftover> {
        Vec::new()
    }

    fn names(&mut self, dir: &RelPath) -> Result<Vec<Vec<u8>>, Fault> {
        let after = (Bound::Excluded(dir), Bound::Unbounded);
        let below = self.entries.range::<RelPath, _>(after);
        let mut names: Vec<Vec<u8>> = Vec::new();
        for (path, _) in below.take_while(|(path, _)| path.starts_with(dir)) {
            let rest = &path.as_bytes()[dir.as_bytes().len() + 1..];
            let name = rest.split(|byte| *byte == b'/').next().unwrap_or(rest);
            if names.last().is_none_or(|last| last != name) {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    fn folds_case(&self) -> bool {
        false
    }
}

/// Parses `MODE TYPE ID<tab>PATH`, with the path from the top of the working tree. `None` if the
/// path is not below `prefix`.
fn entry(line: &[u8], prefix: &[u8]) -> Option<(RelPath, Entry)> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let path = RelPath::new(line[tab + 1..].strip_prefix(prefix)?).ok()?;
    let mut words = std::str::from_utf8(&line[..tab]).ok()?.split(' ');
    let kind = match words.next()? {
        "100755" => Kind::File {
            is_executable: true,
        },
        "100644" | "100664" => Kind::File {
            is_executable: false,
        },
        "120000" => Kind::Link,
        _ => Kind::Other,
    };
    let id = words.nth(1)?.to_owned();
    Some((path, Entry { kind, id }))
}
