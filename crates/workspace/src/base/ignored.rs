//! Matches files of a project against its own `.gitignore` files.

use crate::RelPath;
use crate::beneath::Anchor;
use crate::git::ignored::rules_in;
use ignore::Match;
use ignore::gitignore::Gitignore;
use std::collections::HashMap;
use std::path::Path;

/// Maximum number of directories with rules; further ones are skipped.
const MAX_FILES: usize = 1000;

/// Rules of a project. They are read when a path below their directory is first queried.
pub(super) struct ProjectIgnoreRules<'a> {
    anchor: &'a Anchor,
    dirs: HashMap<Vec<u8>, IgnoreDir>,
    files: usize,
}

struct IgnoreDir {
    is_ignored: bool,
    rules: Option<Gitignore>,
}

impl<'a> ProjectIgnoreRules<'a> {
    pub(super) fn new(anchor: &'a Anchor) -> Self {
        Self {
            anchor,
            dirs: HashMap::new(),
            files: 0,
        }
    }

    /// Returns true if the file at `path` is ignored.
    pub(super) fn is_ignored(&mut self, path: &RelPath) -> bool {
        let bytes = path.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let tops: Vec<usize> = std::iter::once(0).chain(ends.map(|(at, _)| at)).collect();
        for end in tops {
            let dir = &bytes[..end];
            if !self.dirs.contains_key(dir) {
                let is_ignored = end > 0 && self.matches(dir, true);
                let rules = (!is_ignored).then(|| self.rules(dir)).flatten();
                self.dirs
                    .insert(dir.to_vec(), IgnoreDir { is_ignored, rules });
            }
            if self.dirs.get(dir).is_some_and(|dir| dir.is_ignored) {
                return true;
            }
        }
        self.matches(bytes, false)
    }

    /// Matches a path against the rules of the directories above it. The nearest match decides.
    fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        let mut end = path.len();
        while let Some(at) = path[..end].iter().rposition(|byte| *byte == b'/') {
            match self.matched(&path[..at], &path[at + 1..], is_dir) {
                Match::None => end = at,
                found => return found.is_ignore(),
            }
        }
        self.matched(b"", path, is_dir).is_ignore()
    }

    fn matched(&self, dir: &[u8], below: &[u8], is_dir: bool) -> Match<()> {
        let rules = self.dirs.get(dir).and_then(|dir| dir.rules.as_ref());
        let below = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(below);
        rules.map_or(Match::None, |rules| {
            rules.matched(Path::new(below), is_dir).map(drop)
        })
    }

    // TRUST: the number of files is bounded here, their length where they are read.
    fn rules(&mut self, dir: &[u8]) -> Option<Gitignore> {
        if self.files >= MAX_FILES {
            return None;
        }
        let rules = rules_in(self.anchor, dir)?;
        self.files += 1;
        Some(rules)
    }
}
