//! References of a repository. Loose and packed ones are combined into one new `packed-refs`.

use super::source::{Problem, Source, entries, join, read};
use crate::beneath::Anchor;
use rustix::fs::FileType;
use std::collections::BTreeMap;

/// Maximum number of references of a repository.
const MAX_REFS: usize = 1_000_000;
/// Maximum size of `packed-refs`, in bytes.
const MAX_PACKED_BYTES: u64 = 256 << 20;
/// Maximum size of a loose reference, in bytes.
const MAX_LOOSE_BYTES: u64 = 4 << 10;
/// Maximum depth of a directory of references.
const MAX_DEPTH: usize = 32;
/// Maximum number of references that are read without further threads.
const ALONE_REFS: usize = 256;
/// Maximum number of threads that read references.
const MAX_THREADS: usize = 4;
/// Prefixes of references that belong to one working tree; git expects them as files.
const PER_WORKTREE: [&[u8]; 3] = [b"refs/bisect/", b"refs/rewritten/", b"refs/worktree/"];

/// All references of a repository.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Object names in hexadecimal digits, by full name of the reference.
    pub(super) direct: BTreeMap<Vec<u8>, Vec<u8>>,
    /// References that stay files, with their contents: symbolic ones and those of one working
    /// tree.
    pub(super) loose: Vec<(Vec<u8>, Vec<u8>)>,
}

impl References {
    pub(super) fn read(source: &Source) -> Result<Self, Problem> {
        let mut all = Self::default();
        let packed = read(&source.common, b"packed-refs", MAX_PACKED_BYTES)?;
        for line in packed
            .iter()
            .flat_map(|(text, _)| text.split(|byte| *byte == b'\n'))
        {
            let Some((id, name)) = split_packed(line) else {
                continue;
            };
            all.direct.insert(name.to_vec(), id.to_vec());
            if all.direct.len() > MAX_REFS {
                return Err(too_many());
            }
        }
        let mut names = Vec::new();
        list(&source.common, b"refs", 0, &mut names)?;
        all.add_loose(&source.common, &names, |name| {
            !source.is_linked || !is_per_worktree(name)
        })?;
        if source.is_linked {
            let mut names = Vec::new();
            list(&source.git_dir, b"refs", 0, &mut names)?;
            all.add_loose(&source.git_dir, &names, is_per_worktree)?;
        }
        Ok(all)
    }

    /// Returns the text of the new `packed-refs`.
    pub(super) fn packed(&self) -> Vec<u8> {
        let mut text = b"# pack-refs with: sorted \n".to_vec();
        for (name, id) in &self.direct {
            text.extend_from_slice(id);
            text.push(b' ');
            text.extend_from_slice(name);
            text.push(b'\n');
        }
        text
    }

    fn add_loose(
        &mut self,
        dir: &Anchor,
        names: &[Vec<u8>],
        is_wanted: impl Fn(&[u8]) -> bool + Sync,
    ) -> Result<(), Problem> {
        let read_all = |names: &[Vec<u8>]| {
            let wanted = names.iter().filter(|name| is_wanted(name));
            // Git reports a reference whose file is invalid as broken. Inside it does not exist.
            let read = wanted.filter_map(|name| {
                let (text, _) = read(dir, name, MAX_LOOSE_BYTES).ok()??;
                Some((name.clone(), text))
            });
            read.collect::<Vec<_>>()
        };
        let found = if names.len() <= ALONE_REFS {
            read_all(names)
        } else {
            let parts = names.chunks(names.len().div_ceil(MAX_THREADS));
            std::thread::scope(|scope| {
                let threads: Vec<_> = parts
                    .map(|part| {
                        (
                            part,
                            std::thread::Builder::new().spawn_scoped(scope, || read_all(part)),
                        )
                    })
                    .collect();
                let results = threads.into_iter().map(|(part, thread)| match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|_| read_all(part)),
                    Err(_) => read_all(part),
                });
                results.flatten().collect()
            })
        };
        for (name, text) in found {
            let id = text.trim_ascii_end();
            if text.starts_with(b"ref:") {
                // A loose reference overrides the packed one of the same name.
                self.direct.remove(&name);
                self.loose.push((name, text));
            } else if is_object_name(id) {
                if is_per_worktree(&name) {
                    self.loose.push((name, text));
                } else {
                    self.direct.insert(name, id.to_vec());
                }
            }
        }
        if self.direct.len() + self.loose.len() > MAX_REFS {
            return Err(too_many());
        }
        Ok(())
    }
}

/// Lists the files below a directory of references.
fn list(dir: &Anchor, path: &[u8], depth: usize, names: &mut Vec<Vec<u8>>) -> Result<(), Problem> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    for (name, kind) in entries(dir, path) {
        let child = join(path, &name);
        match kind {
            FileType::Directory => list(dir, &child, depth + 1, names)?,
            FileType::RegularFile if is_reference_name(&child) => names.push(child),
            FileType::RegularFile => {}
            _ => return Err(Problem::new(&child, "is no regular file")),
        }
        if names.len() > MAX_REFS {
            return Err(too_many());
        }
    }
    Ok(())
}

fn too_many() -> Problem {
    Problem::new(b"refs", "has more than 1,000,000 references")
}

/// Splits a line of `packed-refs` into the object name and the name of the reference; `None` for
/// other lines.
fn split_packed(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (id, name) = (&line[..space], &line[space + 1..]);
    (is_object_name(id) && is_reference_name(name)).then_some((id, name))
}

fn is_per_worktree(name: &[u8]) -> bool {
    PER_WORKTREE.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns true if a text is a full object name in hexadecimal digits, SHA-1 or SHA-256.
pub(super) fn is_object_name(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

/// Returns true if git accepts a name below `refs` (`git-check-ref-format(1)`).
pub(super) fn is_reference_name(name: &[u8]) -> bool {
    name.starts_with(b"refs/")
        && name
            .split(|byte| *byte == b'/')
            .all(|part| !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock"))
        && !name.ends_with(b".")
        && !name.windows(2).any(|pair| pair == b".." || pair == b"@{")
        && !name
            .iter()
            .any(|byte| *byte <= b' ' || *byte == 0x7f || b"~^:?*[\\".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_git_takes() {
        for good in [
            "refs/heads/main",
            "refs/heads/a/b-c",
            "refs/stash",
            "refs/tags/v1.0",
        ] {
            assert!(is_reference_name(good.as_bytes()), "{good}");
        }
        for bad in [
            "HEAD",
            "refs/heads/",
            "refs//a",
            "refs/heads/.a",
            "refs/heads/a.lock",
            "refs/heads/a..b",
            "refs/heads/a b",
            "refs/heads/a\nb",
            "refs/heads/a.",
            "refs/../config",
        ] {
            assert!(!is_reference_name(bad.as_bytes()), "{bad}");
        }
    }
}
