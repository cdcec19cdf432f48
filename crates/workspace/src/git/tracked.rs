//! Tracked files of a project: those in the index of the repository that contains them.

use super::index::{self, Index};
use super::{git_dir, owned_working_tree, small_file};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Indexes of the repositories in a project.
#[derive(Debug, Default)]
pub(crate) struct TrackedFiles {
    /// Indexes, innermost first.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    /// Top directory relative to the project. Empty for the project itself or a directory above it.
    dir: Vec<u8>,
    /// Prefix of the project's names in the index, for a repository whose top lies above the
    /// project.
    prefix: Vec<u8>,
    index: Index,
}

impl TrackedFiles {
    /// Reads the index of the repository that contains the project, and those of the repositories
    /// at the paths `nested` in it. An index that cannot be read tracks no files.
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

    /// Returns true if a file is tracked.
    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        self.part(path)
            .is_some_and(|(part, name)| part.index.contains(&name))
    }

    /// Returns true if a file below a directory is tracked.
    pub(crate) fn has_below(&self, dir: &[u8]) -> bool {
        self.part(dir)
            .is_some_and(|(part, name)| part.index.has_below(&name))
            || self
                .parts
                .iter()
                .any(|part| is_below(&part.dir, dir) && !part.index.is_empty())
    }

    /// Returns the repository that contains a path, and the path's name in its index.
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

/// Returns the repository that contains the project.
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
