//! Detects renames: added files that have the same or similar content as a deleted one.
//!
//! First by content: a deleted file with the digest of an added one. Then by similarity, for text
//! of moderate size: at least half of the bytes, counted in whole lines, are equal. Both are
//! bounded in number and bytes; beyond the bounds a rename remains an addition and a deletion,
//! which has the same effect.

use crate::beneath::digest;
use crate::{Change, ChangeKind, ChangeSet, Contents, Digest, Node, RelPath};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hasher as _;
use std::io::Read;

/// Maximum total size of deleted files that are read to find their digests, in bytes.
const MAX_DIGEST_BYTES: u64 = 256 << 20;
/// Maximum size of a file that is compared by similarity, in bytes.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Maximum number of files on each side that are compared by similarity.
const MAX_TEXTS: usize = 200;
/// Minimum similarity of a rename, in percent.
const MIN_PERCENT: u64 = 50;

/// Replaces pairs of additions and deletions by renames.
pub(super) fn detect(set: &mut ChangeSet, contents: &dyn Contents) {
    let mut pairs = RenamePairs::default();
    exact(set, contents, &mut pairs);
    similar(set, contents, &mut pairs);
    if pairs.source_of.is_empty() {
        return;
    }
    let changes = std::mem::take(&mut set.changes);
    let mut sources: HashMap<RelPath, Node> = HashMap::new();
    let mut kept = Vec::with_capacity(changes.len());
    for change in changes {
        match change.kind {
            ChangeKind::Deleted { from } if pairs.is_source.contains(&change.path) => {
                sources.insert(change.path, from);
            }
            _ => kept.push(change),
        }
    }
    for change in &mut kept {
        if let Some(source) = pairs.source_of.remove(&change.path)
            && let ChangeKind::Added { to } = &change.kind
            && let Some(mut from) = sources.remove(&source)
        {
            if let (Node::File { digest, .. }, Some(known)) =
                (&mut from, pairs.digests.remove(&source))
            {
                *digest = Some(known);
            }
            let to = to.clone();
            change.kind = ChangeKind::Renamed { source, from, to };
        }
    }
    set.changes = kept;
}

#[derive(Default)]
struct RenamePairs {
    source_of: HashMap<RelPath, RelPath>,
    is_source: HashSet<RelPath>,
    digests: HashMap<RelPath, Digest>,
}

impl RenamePairs {
    fn add(&mut self, source: &RelPath, target: &RelPath) {
        self.source_of.insert(target.clone(), source.clone());
        self.is_source.insert(source.clone());
    }
}

/// An added or deleted file that is not empty.
struct Candidate<'a> {
    path: &'a RelPath,
    size: u64,
    digest: Option<Digest>,
}

fn candidates(set: &ChangeSet) -> (Vec<Candidate<'_>>, Vec<Candidate<'_>>) {
    let (mut added, mut deleted) = (Vec::new(), Vec::new());
    for Change { path, kind, .. } in &set.changes {
        let (list, node) = match kind {
            ChangeKind::Added { to } => (&mut added, to),
            ChangeKind::Deleted { from } => (&mut deleted, from),
            _ => continue,
        };
        if let Node::File { size, digest, .. } = node
            && *size > 0
        {
            list.push(Candidate {
                path,
                size: *size,
                digest: *digest,
            });
        }
    }
    (added, deleted)
}

fn exact(set: &ChangeSet, contents: &dyn Contents, pairs: &mut RenamePairs) {
    let (added, deleted) = candidates(set);
    let sizes: HashSet<u64> = added.iter().map(|file| file.size).collect();
    let mut by_digest: BTreeMap<Digest, Vec<&RelPath>> = BTreeMap::new();
    let mut left = MAX_DIGEST_BYTES;
    for file in deleted.iter().filter(|file| sizes.contains(&file.size)) {
        let known = match file.digest {
            Some(known) => Some(known),
            None if file.size <= left => {
                left -= file.size;
                base_digest(contents, file)
            }
            None => None,
        };
        if let Some(known) = known {
            by_digest.entry(known).or_default().push(file.path);
            pairs.digests.insert(file.path.clone(), known);
        }
    }
    for file in &added {
        let Some(sources) = file.digest.and_then(|sum| by_digest.get_mut(&sum)) else {
            continue;
        };
        if sources.is_empty() {
            continue;
        }
        // If several deleted files have the same content, one with the same name is preferred: it
        // was moved to another directory.
        let same_name = sources
            .iter()
            .position(|source| source.name() == file.path.name());
        let source = sources.remove(same_name.unwrap_or(0));
        pairs.add(source, file.path);
    }
}

fn base_digest(contents: &dyn Contents, file: &Candidate<'_>) -> Option<Digest> {
    // A file that the host is changing cannot be the source of a rename.
    let mut source = contents.open_base(file.path).ok()?;
    let (sum, size) = digest(&mut source, file.size, &mut |_| Ok(())).ok()?;
    (size == file.size).then_some(sum)
}

fn similar(set: &ChangeSet, contents: &dyn Contents, pairs: &mut RenamePairs) {
    let (mut added, mut deleted) = candidates(set);
    added.retain(|file| file.size <= MAX_TEXT_BYTES && !pairs.source_of.contains_key(file.path));
    deleted.retain(|file| file.size <= MAX_TEXT_BYTES && !pairs.is_source.contains(file.path));
    if added.is_empty() || deleted.is_empty() {
        return;
    }
    if added.len() > MAX_TEXTS || deleted.len() > MAX_TEXTS {
        return;
    }
    let sketches = |files: &[Candidate<'_>], is_base: bool| -> Vec<Option<LineCounts>> {
        files
            .iter()
            .map(|file| {
                let source = if is_base {
                    contents.open_base(file.path)
                } else {
                    contents.open(file.path)
                };
                LineCounts::read(source.ok()?)
            })
            .collect()
    };
    let (new, old) = (sketches(&added, false), sketches(&deleted, true));
    let mut scores = Vec::new();
    for (at, new) in new.iter().enumerate() {
        for (from, old) in old.iter().enumerate() {
            let (Some(new), Some(old)) = (new, old) else {
                continue;
            };
            let percent = new.likeness(old);
            if percent >= MIN_PERCENT {
                let same_name = added[at].path.name() == deleted[from].path.name();
                scores.push((percent, same_name, at, from));
            }
        }
    }
    scores.sort_by(|a, b| (b.0, b.1, a.2, a.3).cmp(&(a.0, a.1, b.2, b.3)));
    let mut used = (HashSet::new(), HashSet::new());
    for (_, _, at, from) in scores {
        if !used.0.contains(&at) && !used.1.contains(&from) {
            used.0.insert(at);
            used.1.insert(from);
            pairs.add(deleted[from].path, added[at].path);
        }
    }
}

/// Lines of a text as a multiset: bytes by hash of the line.
struct LineCounts {
    lines: HashMap<u64, u64>,
    size: u64,
}

impl LineCounts {
    /// Reads a text. `None` if it is not text, too large, or not readable.
    fn read(source: Box<dyn Read + Send + '_>) -> Option<Self> {
        let mut text = Vec::new();
        source
            .take(MAX_TEXT_BYTES + 1)
            .read_to_end(&mut text)
            .ok()?;
        if text.len() as u64 > MAX_TEXT_BYTES || text.contains(&0) {
            return None;
        }
        let mut lines = HashMap::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let mut hasher = DefaultHasher::new();
            hasher.write(line);
            *lines.entry(hasher.finish()).or_default() += line.len() as u64;
        }
        let size = text.len() as u64;
        Some(Self { lines, size })
    }

    /// Returns the size of the common lines, in percent of the larger text.
    fn likeness(&self, other: &Self) -> u64 {
        let (large, small) = (self.size.max(other.size), self.size.min(other.size));
        if large == 0 || small * 100 < large * MIN_PERCENT {
            return 0;
        }
        let shared: u64 = self
            .lines
            .iter()
            .filter_map(|(line, bytes)| Some(*bytes.min(other.lines.get(line)?)))
            .sum();
        shared * 100 / large
    }
}
