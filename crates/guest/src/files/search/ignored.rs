//! Rules of the ignore files of a tree: `.gitignore`, `.ignore` and `.git/info/exclude`.
//!
//! The ignore crate's own reading is not used: it opens anything of such a name, even a FIFO, and
//! parses some patterns as a shell does where `git` differs; see [`super::gitignore`]. Precedence
//! as in `rg`: `.ignore` before `.gitignore` before `exclude`, and within each the deeper file
//! first. Git's rules from above a repository do not apply inside it.

use super::gitignore::rules;
use super::{below, open_file, regular};
use ignore::Match;
use ignore::gitignore::Gitignore;
use rustix::fs::CWD;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Maximum number of bytes read of an ignore file.
// TRUST: the author of the tree wrote this file; anything beyond the bound is ignored.
const MAX_RULES_BYTES: u64 = 1 << 20;

/// Rules of a walk. The walk reports each directory before its entries.
pub(super) struct SearchIgnoreRules {
    root: PathBuf,
    /// Canonical path of the root, for rules of the directories above it.
    real: PathBuf,
    /// Rules by path below the root. Directories without rules have no entry.
    levels: RwLock<HashMap<Vec<u8>, Arc<Level>>>,
    /// Rules of the directories above the root, nearest first.
    above: Vec<Level>,
}

/// The rules of one directory, for paths below it.
struct Level {
    parent: Option<Arc<Self>>,
    ignore: Gitignore,
    git: Gitignore,
    exclude: Gitignore,
    is_repository: bool,
}

impl Level {
    /// Reads the ignore files of `dir`. Their rules apply to paths that begin with `prefix`.
    fn read(dir: &Path, prefix: &Path, parent: Option<Arc<Self>>) -> Self {
        let read = |name: &str| {
            content(&dir.join(name)).map_or_else(Gitignore::empty, |text| rules(prefix, &text))
        };
        let is_repository = rustix::fs::lstat(dir.join(".git")).is_ok();
        Self {
            parent,
            ignore: read(".ignore"),
            git: read(".gitignore"),
            exclude: if is_repository {
                read(".git/info/exclude")
            } else {
                Gitignore::empty()
            },
            is_repository,
        }
    }

    fn says_something(&self) -> bool {
        self.is_repository || !self.ignore.is_empty() || !self.git.is_empty()
    }
}

impl SearchIgnoreRules {
    /// Reads the rules of `root` and of every directory above it.
    pub(super) fn new(root: &Path) -> Self {
        // If the path cannot be resolved, no rules from above apply.
        let real = root.canonicalize().unwrap_or_default();
        let above = real
            .ancestors()
            .skip(1)
            .map(|dir| Level::read(dir, dir, None));
        let ignored = Self {
            root: root.to_owned(),
            above: above.filter(Level::says_something).collect(),
            real,
            levels: RwLock::default(),
        };
        ignored.enter(root);
        ignored
    }

    /// Reads the rules of a directory. The caller must do so before it asks about anything below.
    pub(super) fn enter(&self, dir: &Path) {
        let below = self.below(dir);
        let level = Level::read(dir, below, self.level(below.as_os_str().as_bytes()));
        if level.says_something() {
            let key = below.as_os_str().as_bytes().to_vec();
            let mut levels = self.levels.write().unwrap_or_else(PoisonError::into_inner);
            levels.insert(key, Arc::new(level));
        }
    }

    /// Returns true if a rule ignores this path.
    pub(super) fn names(&self, path: &Path, is_dir: bool) -> bool {
        let below = self.below(path);
        let level = self.level(below.as_os_str().as_bytes());
        let inside = || {
            std::iter::successors(level.as_deref(), |level| level.parent.as_deref())
                .map(|level| (level, below))
        };
        if self.above.is_empty() {
            return decide(inside, is_dir);
        }
        let whole = self.real.join(below);
        decide(
            || inside().chain(self.above.iter().map(|level| (level, whole.as_path()))),
            is_dir,
        )
    }

    fn below<'a>(&self, path: &'a Path) -> &'a Path {
        let root = self.root.as_os_str().as_bytes();
        Path::new(OsStr::from_bytes(below(root, path)))
    }

    /// Returns the rules of the nearest directory above a path that has rules.
    fn level(&self, below: &[u8]) -> Option<Arc<Level>> {
        let levels = self.levels.read().unwrap_or_else(PoisonError::into_inner);
        let mut rest = below;
        while !rest.is_empty() {
            rest = &rest[..memchr::memrchr(b'/', rest).unwrap_or(0)];
            if let Some(level) = levels.get(rest) {
                return Some(Arc::clone(level));
            }
        }
        None
    }
}

/// Evaluates the first rule that matches: true if it ignores the path, false if it includes it or
/// none matches. Each of `levels` comes with the path that its rules expect.
fn decide<'a, L: Iterator<Item = (&'a Level, &'a Path)>>(
    levels: impl Fn() -> L,
    is_dir: bool,
) -> bool {
    let said = |rules: &Gitignore, path: &Path| match rules.matched(path, is_dir) {
        Match::None => None,
        said => Some(said.is_ignore()),
    };
    // Levels up to the innermost repository.
    let in_repository = || {
        let mut is_left = false;
        levels().take_while(move |(level, _)| {
            let is_inside = !is_left;
            is_left |= level.is_repository;
            is_inside
        })
    };
    levels()
        .find_map(|(level, path)| said(&level.ignore, path))
        .or_else(|| in_repository().find_map(|(level, path)| said(&level.git, path)))
        .or_else(|| in_repository().find_map(|(level, path)| said(&level.exclude, path)))
        .unwrap_or(false)
}

/// Reads a regular file. `None` for anything else; as in `git`, a link is not followed.
fn content(path: &Path) -> Option<Vec<u8>> {
    let file = open_file(CWD, path)?;
    regular(&file)?;
    let mut text = Vec::new();
    file.take(MAX_RULES_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}
