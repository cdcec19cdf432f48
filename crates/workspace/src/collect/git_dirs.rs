//! Git repositories in changes: those of the host's own repository are refused, and those that a
//! sandbox created are flagged.
//!
//! A directory with `HEAD`, `objects` and `refs` is a repository, whatever its name: git that runs
//! in it reads its `config`, which can name programs. The host's own repository is `.git`, by any
//! name that some file system treats as that one, or the directory that a file `.git` names.

use super::BaseTree;
use crate::beneath::Anchor;
use crate::{Change, ChangeSet, Flag, RefusalReason, RefusedPath, RelPath};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

/// Parts of a repository that name programs to run, or the location of other parts.
const STEERING: [&[u8]; 6] = [
    b"head",
    b"config",
    b"config.worktree",
    b"commondir",
    b"hooks",
    b"info",
];
/// Other parts by which git recognizes a repository.
const STORES: [&[u8]; 2] = [b"objects", b"refs"];
/// Maximum size of a `.git` file, in bytes.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// Returns a name as the most permissive file systems compare it: in lower case, without characters
/// that HFS+ ignores, and without what NTFS drops at the end.
pub(super) fn plain_name(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let is_ignored = |c: &char| {
        matches!(*c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{206a}'..='\u{206f}' | '\u{feff}')
    };
    let kept: String = text.chars().filter(|c| !is_ignored(c)).collect();
    let kept = kept.split(':').next().unwrap_or_default();
    kept.trim_end_matches(['.', ' ']).to_lowercase()
}

/// Returns true if a name is `.git`, or its short name, on some file system. Git itself refuses the
/// same names.
pub(crate) fn is_git_name(name: &[u8]) -> bool {
    matches!(plain_name(name).as_str(), ".git" | "git~1")
}

/// Returns the directory in the project that its file `.git` names; `None` if there is no such file
/// or it leads out of the project.
pub(crate) fn named_by_file(project: &Anchor) -> Option<RelPath> {
    let (file, _) = project.file(b".git").ok()?;
    let mut content = Vec::new();
    file.take(MAX_POINTER_BYTES)
        .read_to_end(&mut content)
        .ok()?;
    let target = content.trim_ascii_end().strip_prefix(b"gitdir: ")?;
    let target = Path::new(OsStr::from_bytes(target));
    let top = project.path().canonicalize().ok()?;
    let real = top.join(target).canonicalize().ok()?;
    let below = real.strip_prefix(&top).ok()?;
    let is_below = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !is_below {
        return None;
    }
    RelPath::new(below.as_os_str().as_bytes()).ok()
}

/// Returns true if the host has a repository at this path.
pub(super) fn is_of_host(base: &dyn BaseTree, path: &RelPath) -> bool {
    base.git_dir()
        .is_some_and(|git_dir| path.starts_with(git_dir))
        || is_repository(path.as_bytes(), &|part| base.holds(part))
}

/// Moves changes in the host's own repository to the refused paths.
pub(super) fn refuse(set: &mut ChangeSet, base: &dyn BaseTree) {
    let Some(git_dir) = base.git_dir() else {
        return;
    };
    let before = set.changes.len();
    set.changes
        .retain(|change| !change.path.starts_with(git_dir));
    if set.changes.len() < before {
        set.refused.push(RefusedPath {
            path: git_dir.as_bytes().to_vec(),
            reason: RefusalReason::Git,
        });
    }
}

/// Flags changes of files that control a directory which git will treat as a repository.
pub(super) fn flag(set: &mut ChangeSet, base: &dyn BaseTree) {
    let mut dirs: HashSet<Vec<u8>> = HashSet::new();
    for change in &set.changes {
        dirs.extend(parts(change).map(|(dir, _)| dir));
    }
    if dirs.is_empty() {
        return;
    }
    let changed: HashMap<Vec<u8>, bool> = set
        .changes
        .iter()
        .map(|change| (change.path.folded(), change.to().is_some()))
        .collect();
    let is_there = |path: &RelPath| match changed.get(&path.folded()) {
        Some(is_there) => *is_there,
        None => base.holds(path),
    };
    dirs.retain(|dir| is_repository(dir, &is_there));
    for change in &mut set.changes {
        let is_steering = |(dir, part): (Vec<u8>, Vec<u8>)| {
            dirs.contains(&dir) && STEERING.contains(&part.as_slice())
        };
        if change.to().is_some() && parts(change).any(is_steering) {
            for flag in [Flag::Executes, Flag::Repository] {
                if !change.flags.contains(&flag) {
                    change.flags.push(flag);
                }
            }
        }
    }
}

/// Returns the directories above a path of which it may be a part of a repository, with the name of
/// that part. The project's own directory is the empty path.
fn parts(change: &Change) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
    let path = change.path.as_bytes();
    let mut end = 0;
    change.path.components().filter_map(move |name| {
        let dir = &path[..end];
        end += name.len() + usize::from(end > 0);
        let name = name.to_ascii_lowercase();
        let is_part = STEERING.contains(&name.as_slice()) || STORES.contains(&name.as_slice());
        is_part.then(|| (dir.to_vec(), name))
    })
}

fn is_repository(dir: &[u8], is_there: &dyn Fn(&RelPath) -> bool) -> bool {
    let has = |name: &str| {
        let path = match dir {
            b"" => name.into(),
            dir => [dir, b"/", name.as_bytes()].concat(),
        };
        RelPath::new(path).is_ok_and(|path| is_there(&path))
    };
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChangeKind, Node};
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Names(BTreeSet<&'static str>, Option<RelPath>);

    impl BaseTree for Names {
        fn link(&self, _: &RelPath) -> Option<Vec<u8>> {
            None
        }

        fn holds(&self, path: &RelPath) -> bool {
            std::str::from_utf8(path.as_bytes()).is_ok_and(|path| self.0.contains(path))
        }

        fn git_dir(&self) -> Option<&RelPath> {
            self.1.as_ref()
        }
    }

    fn added(paths: &[&str]) -> ChangeSet {
        let to = Node::File {
            size: 0,
            is_executable: false,
            digest: None,
        };
        let change = |path: &&str| Change {
            path: RelPath::new(*path).unwrap(),
            kind: ChangeKind::Added { to: to.clone() },
            flags: Vec::new(),
        };
        ChangeSet {
            changes: paths.iter().map(change).collect(),
            refused: Vec::new(),
        }
    }

    fn flagged(paths: &[&str], host: &[&'static str]) -> Vec<String> {
        let mut set = added(paths);
        flag(&mut set, &Names(host.iter().copied().collect(), None));
        set.changes
            .iter()
            .filter(|change| change.flags == [Flag::Executes, Flag::Repository])
            .map(|change| change.path.to_string())
            .collect()
    }

    #[test]
    fn a_repository_by_any_name_is_pointed_out() {
        let whole = ["x/HEAD", "x/config", "x/objects", "x/objects/ab", "x/refs"];
        assert_eq!(flagged(&whole, &[]), ["x/HEAD", "x/config"]);
        assert_eq!(
            flagged(&["HEAD", "config", "objects", "refs"], &[]),
            ["HEAD", "config"]
        );
        assert_eq!(
            flagged(&["x/head", "x/Config", "x/OBJECTS", "x/refs"], &[]),
            ["x/head", "x/Config"]
        );
        assert_eq!(
            flagged(&["x/HEAD", "x/commondir"], &[]),
            ["x/HEAD", "x/commondir"]
        );
        // Parts that the host already has complete those of the sandbox.
        let host = ["x/HEAD", "x/objects", "x/refs"];
        assert_eq!(
            flagged(&["x/config", "x/hooks/pre-push"], &host),
            ["x/config", "x/hooks/pre-push"]
        );
        assert_eq!(
            flagged(&["x/HEAD", "x/config"], &["x/objects", "x/refs"]),
            ["x/HEAD", "x/config"]
        );
        // Git requires all three parts.
        for paths in [
            &["x/HEAD", "x/config", "x/objects"][..],
            &["x/config", "x/objects", "x/refs"],
            &["src/config", "src/info"],
        ] {
            assert!(flagged(paths, &[]).is_empty(), "{paths:?}");
        }
    }

    #[test]
    fn every_spelling_of_git_is_known() {
        for name in [
            ".git",
            ".GIT",
            ".Git",
            "git~1",
            "GIT~1",
            ".git.",
            ".git ",
            ".git . .",
            ".g\u{200c}it",
            ".git\u{feff}",
            ".git::$INDEX_ALLOCATION",
        ] {
            assert!(is_git_name(name.as_bytes()), "{name:?}");
        }
        for name in [
            ".gitignore",
            ".github",
            "git",
            "x.git",
            ".git2",
            "git~2",
            ".gitattributes",
        ] {
            assert!(!is_git_name(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn the_directory_that_a_file_names_stays_the_hosts() {
        let mut set = added(&["meta/config", "meta-x", "a"]);
        let git_dir = Some(RelPath::new("meta").unwrap());
        refuse(&mut set, &Names(BTreeSet::new(), git_dir));
        let left: Vec<_> = set
            .changes
            .iter()
            .map(|change| change.path.to_string())
            .collect();
        assert_eq!(left, ["meta-x", "a"]);
        assert_eq!(set.refused.len(), 1);
        assert_eq!(set.refused[0].reason, RefusalReason::Git);
    }
}
