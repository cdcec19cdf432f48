//! Differences from the last push, found while a side is being listed.
//!
//! Most of a project is unchanged. Neither side's complete list is kept: each is compared with the
//! manifest as it arrives, and only differences are stored.

use super::entry::{ListedPath, PathVersions, Row, Rows, SeenEntry};
use super::manifest::{FileSide, Line, Lines, Sameness};
use super::spool::{Reader, Spool, SpooledList};
use crate::RelPath;
use crate::path::compare;
use glovebox_proto::Fault;
use glovebox_proto::tree::Signature;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::path::Path;

/// A path that differs from the manifest, or about which the manifest has too little information.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Difference {
    /// The path exists.
    Seen {
        seen: SeenEntry,
        /// Length of the file in the manifest, and whether the present one may be the same. `None`
        /// if the manifest has no file there.
        was: Option<(u64, bool)>,
    },
    /// The path does not exist any longer.
    Gone(RelPath),
}

impl ListedPath for Difference {
    fn path(&self) -> &RelPath {
        match self {
            Self::Seen { seen, .. } => &seen.path,
            Self::Gone(path) => path,
        }
    }
}

/// Receiver of the entries of a tree, in order.
pub(super) trait DifferenceSink {
    /// Returns true if a file is known to be unchanged, so that it need not be taken.
    fn knows(&mut self, path: &[u8], signature: &Signature) -> Result<bool, Fault>;
    /// Takes an entry.
    fn take(&mut self, seen: SeenEntry) -> Result<(), Fault>;
}

impl DifferenceSink for Spool<SeenEntry> {
    fn knows(&mut self, _path: &[u8], _signature: &Signature) -> Result<bool, Fault> {
        Ok(false)
    }

    fn take(&mut self, seen: SeenEntry) -> Result<(), Fault> {
        self.push(&seen)
    }
}

/// Comparison of one side with the manifest.
#[derive(Debug)]
pub(super) struct Comparison {
    base: Lines,
    side: FileSide,
    found: Spool<Difference>,
}

impl Comparison {
    pub(super) fn new(manifest: &Path, side: FileSide, spool_dir: &Path) -> Result<Self, Fault> {
        Ok(Self {
            base: Lines::open(manifest)?,
            side,
            found: Spool::unnamed(spool_dir)?,
        })
    }

    /// Records all paths of the manifest before `path` as removed. Returns true if the manifest has
    /// `path`.
    fn pass(&mut self, path: &[u8]) -> Result<bool, Fault> {
        while let Some(line) = self.base.peek()? {
            match compare(line.path.as_bytes(), path) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(true),
                Ordering::Greater => return Ok(false),
            }
            if let Some(line) = self.base.next()? {
                self.found.push(&Difference::Gone(line.path))?;
            }
        }
        Ok(false)
    }

    /// Ends the comparison after the last entry, and returns the differences.
    pub(super) fn finish(mut self) -> Result<SpooledList<Difference>, Fault> {
        while let Some(line) = self.base.next()? {
            self.found.push(&Difference::Gone(line.path))?;
        }
        self.found.finish()
    }
}

impl DifferenceSink for Comparison {
    fn knows(&mut self, path: &[u8], signature: &Signature) -> Result<bool, Fault> {
        let is_known = self.pass(path)?
            && self
                .base
                .peek()?
                .is_some_and(|line| line.compare_file(signature, self.side) == Sameness::Yes);
        if is_known {
            self.base.next()?;
        }
        Ok(is_known)
    }

    fn take(&mut self, seen: SeenEntry) -> Result<(), Fault> {
        let line = if self.pass(seen.path.as_bytes())? {
            self.base.next()?
        } else {
            None
        };
        let same = line.as_ref().map(|line| line.compare(&seen, self.side));
        // The base index needs an entry for every object of the host that is not a file.
        if same == Some(Sameness::Yes) && (self.side == FileSide::Inside || seen.is_file()) {
            return Ok(());
        }
        let size = line.as_ref().and_then(Line::digest).map(|(size, _)| size);
        let was = size.map(|size| (size, same == Some(Sameness::Perhaps)));
        self.found.push(&Difference::Seen { seen, was })
    }
}

/// Next step of a push.
#[derive(Debug)]
pub(super) enum Step {
    /// A file that both sides have unchanged.
    Same(Line),
    Row(Box<Row>),
}

/// Steps of a push, in order.
pub(super) trait Steps {
    fn next_step(&mut self) -> Result<Option<Step>, Fault>;
}

impl Steps for Rows<Difference> {
    fn next_step(&mut self) -> Result<Option<Step>, Fault> {
        let found = match self.found()? {
            PathVersions {
                base: Some(line),
                host: None,
                inside: None,
            } if line.digest().is_some() => return Ok(Some(Step::Same(line))),
            found => found,
        };
        let Some(path) = found.path().cloned() else {
            return Ok(None);
        };
        let PathVersions { base, host, inside } = found;
        let now = |found: Option<Difference>, side| match found {
            Some(Difference::Seen { seen, .. }) => Some(seen),
            Some(Difference::Gone(_)) => None,
            None => base.as_ref().map(|line| line.as_seen(side)),
        };
        let (host, inside) = (now(host, FileSide::Host), now(inside, FileSide::Inside));
        Ok(Some(Step::Row(Box::new(Row {
            path,
            base,
            host,
            inside,
        }))))
    }
}

/// Lists files of the sandbox whose content must be compared with the last push or with the
/// project. The list may contain files whose digest is not needed in the end. Returns it with its
/// length.
pub(super) fn doubtful(
    mut host: Reader<Difference>,
    mut inside: Reader<Difference>,
    spool_dir: &Path,
) -> Result<(SpooledList<RelPath>, u64), Fault> {
    let mut wanted: Spool<RelPath> = Spool::unnamed(spool_dir)?;
    let mut count = 0;
    while let Some(found) = inside.next()? {
        let Difference::Seen { seen, was } = found else {
            continue;
        };
        while host.peek()?.is_some_and(|host| *host.path() < seen.path) {
            host.next()?;
        }
        if !seen.is_file() {
            continue;
        }
        let (was_size, may_be_same) = was.unzip();
        let host_size = match host.peek()? {
            Some(difference) if *difference.path() == seen.path => match difference {
                Difference::Seen { seen, .. } if seen.is_file() => Some(seen.signature.size),
                _ => None,
            },
            _ => was_size,
        };
        if may_be_same == Some(true) || host_size == Some(seen.signature.size) {
            wanted.push(&seen.path)?;
            count += 1;
        }
    }
    Ok((wanted.finish()?, count))
}

#[cfg(test)]
mod tests {
    use super::super::entry::SeenKind;
    use super::super::manifest::{LineKind, Writer};
    use super::super::scan::NO_SIGNATURE;
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const PATHS: [&str; 6] = ["a", "a/b", "a/b/c", "a-b", "b", "c"];

    fn signature() -> impl Strategy<Value = Signature> {
        (0..2_u64, 0..2_i64, prop::bool::ANY).prop_map(|(size, mtime_ns, is_executable)| {
            Signature {
                size,
                mtime_ns,
                permissions: if is_executable { 0o755 } else { 0o644 },
                ..NO_SIGNATURE
            }
        })
    }

    /// Entries at some paths, as one side reports them.
    fn side(side: FileSide) -> impl Strategy<Value = Vec<SeenEntry>> {
        let kind =
            (0..4_u8, signature(), prop::bool::ANY).prop_map(move |(kind, known, is_linked)| {
                let plain = if side == FileSide::Host {
                    known
                } else {
                    NO_SIGNATURE
                };
                match kind {
                    0 => (SeenKind::Dir, plain),
                    1 => (SeenKind::Special, plain),
                    2 => {
                        let target = serde_bytes::ByteBuf::from("t");
                        (SeenKind::Link { target }, plain)
                    }
                    _ => {
                        let is_linked = is_linked && side == FileSide::Inside;
                        (SeenKind::File { is_linked }, known)
                    }
                }
            });
        prop::collection::vec(prop::option::of(kind), PATHS.len()).prop_map(|kinds| {
            let seen = |(path, kind): (&str, Option<(SeenKind, Signature)>)| {
                let (kind, signature) = kind?;
                Some(SeenEntry {
                    path: RelPath::new(path).ok()?,
                    signature,
                    kind,
                })
            };
            PATHS.into_iter().zip(kinds).filter_map(seen).collect()
        })
    }

    fn manifest() -> impl Strategy<Value = Vec<Line>> {
        let known = || prop::option::of(signature());
        (
            side(FileSide::Host),
            prop::collection::vec((known(), known()), PATHS.len()),
        )
            .prop_map(|(seen, known)| {
                let line = |(seen, (host, inside)): (SeenEntry, _)| Line {
                    path: seen.path,
                    kind: match seen.kind {
                        SeenKind::File { .. } => LineKind::File {
                            size: seen.signature.size,
                            is_executable: seen.signature.is_executable(),
                            digest: [0; 32],
                            host,
                            inside,
                        },
                        SeenKind::Link { target } => LineKind::Link { target },
                        _ => LineKind::Dir,
                    },
                };
                seen.into_iter().zip(known).map(line).collect()
            })
    }

    fn compared(
        at: &Path,
        side: FileSide,
        list: &[SeenEntry],
        dir: &Path,
    ) -> SpooledList<Difference> {
        let mut comparison = Comparison::new(at, side, dir).unwrap();
        for seen in list {
            let is_plain =
                side == FileSide::Inside && seen.kind == (SeenKind::File { is_linked: false });
            if !is_plain
                || !comparison
                    .knows(seen.path.as_bytes(), &seen.signature)
                    .unwrap()
            {
                comparison.take(seen.clone()).unwrap();
            }
        }
        comparison.finish().unwrap()
    }

    fn list(seen: &[SeenEntry], dir: &Path) -> Reader<SeenEntry> {
        let mut spool = Spool::unnamed(dir).unwrap();
        for seen in seen {
            spool.push(seen).unwrap();
        }
        spool.finish().unwrap().read()
    }

    /// Returns true if only the content decides whether a file of the sandbox changed.
    fn needs_content(row: &Row) -> bool {
        let Some(inside) = row.inside.as_ref().filter(|seen| seen.is_file()) else {
            return false;
        };
        match row
            .base
            .as_ref()
            .map(|line| line.compare(inside, FileSide::Inside))
        {
            Some(Sameness::Yes) => false,
            Some(Sameness::Perhaps) => true,
            Some(Sameness::No) | None => row
                .host
                .as_ref()
                .is_some_and(|host| host.is_file() && host.signature.size == inside.signature.size),
        }
    }

    proptest! {
        #[test]
        fn what_differs_and_the_manifest_tell_all_that_whole_lists_tell(
            lines in manifest(),
            host in side(FileSide::Host),
            inside in side(FileSide::Inside),
        ) {
            let temp = tempfile::tempdir().unwrap();
            let (dir, at) = (temp.path(), temp.path().join("manifest"));
            let mut writer = Writer::create(&at).unwrap();
            for line in lines {
                writer.push(line).unwrap();
            }
            writer.finish().unwrap();
            let mut rows = Rows {
                base: Lines::open(&at).unwrap(),
                host: list(&host, dir),
                inside: list(&inside, dir),
            };
            let mut expected = BTreeMap::new();
            while let Some(row) = rows.next().unwrap() {
                expected.insert(row.path.clone(), row);
            }
            let on_host = compared(&at, FileSide::Host, &host, dir);
            let on_inside = compared(&at, FileSide::Inside, &inside, dir);
            let (wanted, count) = doubtful(on_host.read(), on_inside.read(), dir).unwrap();
            let mut asked = BTreeSet::new();
            let mut wanted = wanted.read();
            while let Some(path) = wanted.next().unwrap() {
                asked.insert(path);
            }
            prop_assert_eq!(count, asked.len() as u64);
            let mut steps = Rows {
                base: Lines::open(&at).unwrap(),
                host: on_host.read(),
                inside: on_inside.read(),
            };
            while let Some(step) = steps.next_step().unwrap() {
                let path = match &step {
                    Step::Same(line) => line.path.clone(),
                    Step::Row(row) => row.path.clone(),
                };
                let row = expected.remove(&path).unwrap();
                prop_assert!(!needs_content(&row) || asked.contains(&path));
                match step {
                    Step::Same(line) => {
                        let same = |seen: Option<SeenEntry>, side| seen.map(|seen| line.compare(&seen, side));
                        prop_assert_eq!(same(row.host, FileSide::Host), Some(Sameness::Yes));
                        prop_assert_eq!(same(row.inside, FileSide::Inside), Some(Sameness::Yes));
                        prop_assert_eq!(row.base.as_ref(), Some(&line));
                    }
                    Step::Row(found) => {
                        prop_assert_eq!(found.base, row.base);
                        prop_assert_eq!(found.host, row.host);
                        let unlinked = |seen: Option<SeenEntry>| seen.map(|mut seen| {
                            if seen.is_file() {
                                seen.kind = SeenKind::File { is_linked: false };
                            }
                            seen
                        });
                        prop_assert_eq!(unlinked(found.inside), unlinked(row.inside));
                    }
                }
            }
            prop_assert!(expected.is_empty(), "{expected:?}");
        }
    }
}
