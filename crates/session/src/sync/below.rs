//! Part of a change set, relative to a directory of the workspace.

use glovebox_proto::{Code, Fault};
use glovebox_workspace::{
    Change, ChangeKind, ChangeSet, CollectedChanges, Contents, RefusedPath, RelPath,
};
use std::io::Read;

/// Contents with paths relative to a directory.
pub(crate) struct ChangesBelow {
    whole: CollectedChanges,
    dir: RelPath,
}

impl ChangesBelow {
    /// Returns the changes below `dir` with relative paths. A file renamed across the border
    /// becomes an added or a deleted one.
    pub(super) fn rebase(mut whole: CollectedChanges, dir: &RelPath) -> CollectedChanges {
        let set = std::mem::take(&mut whole.set);
        let mut changes: Vec<Change> = Vec::new();
        for change in set.changes {
            let path = relative(&change.path, dir);
            let change = match (path, change.kind) {
                (Some(path), ChangeKind::Renamed { source, from, to }) => Change {
                    kind: match relative(&source, dir) {
                        Some(source) => ChangeKind::Renamed { source, from, to },
                        None => ChangeKind::Added { to },
                    },
                    path,
                    flags: change.flags,
                },
                (Some(path), kind) => Change {
                    path,
                    kind,
                    flags: change.flags,
                },
                (None, ChangeKind::Renamed { source, from, .. }) => {
                    let Some(path) = relative(&source, dir) else {
                        continue;
                    };
                    Change {
                        path,
                        kind: ChangeKind::Deleted { from },
                        flags: Vec::new(),
                    }
                }
                (None, _) => continue,
            };
            changes.push(change);
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        let refused = set
            .refused
            .into_iter()
            .filter_map(|refusal| {
                let path = refusal.path.strip_prefix(dir.as_bytes())?;
                Some(RefusedPath {
                    path: path.strip_prefix(b"/")?.to_vec(),
                    reason: refusal.reason,
                })
            })
            .collect();
        let dir = dir.clone();
        let ignored = std::mem::take(&mut whole.ignored);
        let mut part = CollectedChanges::new(
            ChangeSet { changes, refused },
            Box::new(Self { whole, dir }),
        );
        part.ignored = ignored;
        part
    }

    fn path(&self, path: &RelPath) -> Result<RelPath, Fault> {
        RelPath::new([self.dir.as_bytes(), path.as_bytes()].join(&b'/')).map_err(|error| {
            Fault::failed(
                Code::InvalidArgument,
                format!("`{path}` is not a path: {error}"),
            )
        })
    }
}

impl Contents for ChangesBelow {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        self.whole.open(&self.path(path)?)
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        self.whole.open_base(&self.path(path)?)
    }
}

fn relative(path: &RelPath, dir: &RelPath) -> Option<RelPath> {
    let rest = path.as_bytes().strip_prefix(dir.as_bytes())?;
    RelPath::new(rest.strip_prefix(b"/")?).ok()
}

/// Contents without any file.
pub(super) struct NoContents;

impl Contents for NoContents {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Err(absent(path))
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Err(absent(path))
    }
}

fn absent(path: &RelPath) -> Fault {
    Fault::failed(Code::NotFound, format!("there is no `{path}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_workspace::Node;

    #[test]
    fn what_crosses_the_border_is_added_or_deleted() {
        let path = |text: &str| RelPath::new(text).unwrap();
        let renamed = |from: &str, to: &str| Change {
            path: path(to),
            kind: ChangeKind::Renamed {
                source: path(from),
                from: Node::Dir,
                to: Node::Dir,
            },
            flags: Vec::new(),
        };
        let set = ChangeSet {
            changes: vec![
                renamed("d/a", "d/b"),
                renamed("x", "d/in"),
                renamed("d/out", "y"),
                renamed("p", "q"),
            ],
            refused: Vec::new(),
        };
        let whole = CollectedChanges::new(set, Box::new(NoContents));
        let part = ChangesBelow::rebase(whole, &path("d"));
        let kinds: Vec<_> = part
            .set
            .changes
            .iter()
            .map(|change| {
                (
                    change.path.to_string(),
                    std::mem::discriminant(&change.kind),
                )
            })
            .collect();
        let kind = |kind: &ChangeKind| std::mem::discriminant(kind);
        assert_eq!(
            kinds,
            [
                ("b".to_owned(), kind(&renamed("a", "b").kind)),
                ("in".to_owned(), kind(&ChangeKind::Added { to: Node::Dir })),
                (
                    "out".to_owned(),
                    kind(&ChangeKind::Deleted { from: Node::Dir })
                ),
            ]
        );
    }
}
