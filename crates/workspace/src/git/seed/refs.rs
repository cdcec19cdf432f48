//! References of a repository: loose ones and packed ones become one new `packed-refs`.

use super::source::{Problem, Source, entries, join, read};
use crate::beneath::Anchor;
use rustix::fs::FileType;
use std::collections::BTreeMap;

/// Most references of a repository.
const MAX_REFS: usize = 1_000_000;
/// Longest `packed-refs`, in bytes.
const MAX_PACKED_BYTES: u64 = 256 << 20;
/// Longest loose reference, in bytes.
const MAX_LOOSE_BYTES: u64 = 4 << 10;
/// Deepest directory of references.
const MAX_DEPTH: usize = 32;
/// References that one thread reads before it gets help.
const ALONE_REFS: usize = 256;
/// Most threads that read references.
const MAX_THREADS: usize = 4;
/// References that each working tree has for itself; git looks for them as files.
const PER_WORKTREE: [&[u8]; 3] = [b"refs/bisect/", b"refs/rewritten/", b"refs/worktree/"];

/// All references of a repository.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Object names in hexadecimal digits, by the name of the reference.
    pub(super) direct: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Files that stay files: symbolic references and those of one working tree.
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

    /// The text of the new `packed-refs`.
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
            // Git names a reference broken whose file is none; inside it is not there.
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
                // The packed one of the same name does not count any more.
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

/// The object name and the name of a reference in a line of `packed-refs`.
fn split_packed(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (id, name) = (&line[..space], &line[space + 1..]);
    (is_object_name(id) && is_reference_name(name)).then_some((id, name))
}

fn is_per_worktree(name: &[u8]) -> bool {
    PER_WORKTREE.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether these are the digits of an object name, SHA-1 or SHA-256.
pub(super) fn is_object_name(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

/// Whether git takes a name below `refs` (`git-check-ref-format(1)`).
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
