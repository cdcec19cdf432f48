//! Which files of a project are tracked: those in the index of the repository they lie in.

use super::index::{self, Index};
use super::{git_dir, owned_working_tree, small_file};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The indexes of the repositories in a project.
#[derive(Debug, Default)]
pub(crate) struct TrackedFiles {
    /// The innermost come first.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    /// Its top, relative to the project; the project itself, or something above it, is the empty path.
    dir: Vec<u8>,
    /// What names of the index begin with, for a repository whose top lies above the project.
    prefix: Vec<u8>,
    index: Index,
}

impl TrackedFiles {
    /// Reads the index of the repository that the project lies in, and those of the repositories at the
    /// `nested` paths in it. One that cannot be read tracks nothing.
    pub(crate) fn read(project: &Path, nested: &[Vec<u8>]) -> Self {
        let mut parts: Vec<Part> = nested
            .iter()
            .filter(|dir| !dir.is_empty())
            .map(|dir| Part {
                index: read_index(git_dir(&project.join(OsStr::from_bytes(dir))).as_deref()),
                dir: dir.clone(),
                prefix: Vec::new(),
            })
            .collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.dir.len()));
        parts.extend(outermost(project));
        Self { parts }
    }

    /// Whether a file is tracked.
    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        self.part(path)
            .is_some_and(|(part, name)| part.index.contains(&name))
    }

    /// Whether something below a directory is tracked.
    pub(crate) fn has_below(&self, dir: &[u8]) -> bool {
        self.part(dir)
            .is_some_and(|(part, name)| part.index.has_below(&name))
            || self
                .parts
                .iter()
                .any(|part| is_below(&part.dir, dir) && !part.index.is_empty())
    }

    /// The repository that a path lies in, and the path's name there.
    fn part(&self, path: &[u8]) -> Option<(&Part, Vec<u8>)> {
        let part = self
            .parts
            .iter()
            .find(|part| part.dir.is_empty() || is_below(path, &part.dir))?;
        let rest = match part.dir.len() {
            0 => path,
            length => &path[length + 1..],
        };
        Some((part, [&part.prefix, rest].concat()))
    }
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// The repository that the project itself lies in.
fn outermost(project: &Path) -> Option<Part> {
    let (tree, prefix) = owned_working_tree(project)?;
    Some(Part {
        dir: Vec::new(),
        prefix,
        index: read_index(Some(&tree.git_dir)),
    })
}

fn read_index(git_dir: Option<&Path>) -> Index {
    git_dir
        .and_then(|dir| small_file(dir, "index", index::MAX_BYTES))
        .and_then(|bytes| Index::parse(&bytes))
        .unwrap_or_default()
}
