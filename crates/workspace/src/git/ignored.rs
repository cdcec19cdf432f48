//! Ignore rules of a project, with git's meaning: `.gitignore` files, `info/exclude` and the user's
//! own file. Tracked files are never ignored.
//!
//! The rules are those of the project on the host. A `.gitignore` that a sandbox wrote covers only
//! paths that the host does not have ([`NewRules`]), so it cannot hide changes of existing files.

use super::{
    TrackedFiles, common_dir, git_dir, owned_working_tree, path_of, small_file, small_file_in,
    with_slash,
};
use crate::RelPath;
use crate::beneath::Anchor;
use glovebox_gitignore::PatternProblem;
use glovebox_proto::Fault;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum size of one file of rules, in bytes. A longer file is not applied, so it leaves nothing
/// out.
const MAX_RULES_BYTES: u64 = 64 << 10;
/// Maximum number of topmost ignored paths that are listed.
const MAX_TOPS: usize = 1000;

/// Summary of the changes that are left out because the project ignores the paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct IgnoredChanges {
    /// Number of files and links.
    pub paths: u64,
    /// Total size, in bytes.
    pub bytes: u64,
    /// Topmost ignored paths, each with the bytes at and below it.
    #[serde(skip)]
    pub tops: Vec<(RelPath, u64)>,
    /// True if some paths are covered only by a `.gitignore` of the change set.
    #[serde(skip)]
    pub has_new_rules: bool,
}

/// The `.gitignore` files of a change set, by directory.
#[derive(Debug, Default)]
pub(crate) struct NewRules {
    files: HashMap<Vec<u8>, Gitignore>,
}

impl NewRules {
    /// Reads the `.gitignore` at a path. A file that is too long is not applied, so it leaves
    /// nothing out.
    // TRUST: the sandbox controls the lines; their number is bounded by `MAX_RULES_BYTES`.
    pub(crate) fn add(&mut self, path: &RelPath, file: impl Read) {
        let mut text = Vec::new();
        let read = file.take(MAX_RULES_BYTES + 1).read_to_end(&mut text);
        if read.is_err() || text.len() as u64 > MAX_RULES_BYTES {
            return;
        }
        let dir = path.parent().map(|dir| dir.as_bytes().to_vec());
        self.files.insert(dir.unwrap_or_default(), rules(&text));
    }

    /// Returns true if a path is that of a `.gitignore` file.
    pub(crate) fn is_name(path: &RelPath) -> bool {
        path.name() == b".gitignore"
    }
}

impl IgnoredChanges {
    /// Adds the paths at or below a topmost ignored path.
    pub(crate) fn add(&mut self, top: &RelPath, paths: u64, bytes: u64) {
        if paths == 0 {
            return;
        }
        self.paths += paths;
        self.bytes += bytes;
        // Paths arrive in the order of a walk, so those below a directory follow it.
        let is_room = self.tops.len() < MAX_TOPS;
        match self.tops.last_mut() {
            Some((last, total)) if top.starts_with(last) => *total += bytes,
            _ if is_room => self.tops.push((top.clone(), bytes)),
            _ => {}
        }
    }

    /// Returns the topmost ignored paths with the most bytes.
    pub fn largest(&self, count: usize) -> Vec<&RelPath> {
        let mut tops: Vec<&(RelPath, u64)> = self.tops.iter().collect();
        tops.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        tops.into_iter().take(count).map(|(path, _)| path).collect()
    }
}

/// Ignore rules of one project.
#[derive(Debug)]
pub struct IgnoreRules {
    project: Anchor,
    /// Rules from the user's own file.
    global: Gitignore,
    /// Ignored paths that are taken nevertheless.
    named: Vec<RelPath>,
    /// Repository that contains the project.
    outer: Scope,
    known: Mutex<IgnoreCache>,
}

/// Results read so far.
#[derive(Debug, Default)]
struct IgnoreCache {
    /// True for ignored directories, by path.
    dirs: HashMap<Vec<u8>, bool>,
    /// Rules in each directory; `None` if it has none.
    files: HashMap<Vec<u8>, Option<Arc<Gitignore>>>,
    /// Repositories within the project; `None` for directories that are not one.
    nested: HashMap<Vec<u8>, Option<Arc<Scope>>>,
}

/// Rules and tracked files of one repository.
#[derive(Debug)]
struct Scope {
    tracked: TrackedFiles,
    /// Rules of `info/exclude`.
    exclude: Gitignore,
    /// Rules in the directories above the project, if the repository's top lies above it, nearest
    /// first. Each has the directory's path from the top, with a slash at the end. `prefix` is the
    /// same path for the project.
    above: Vec<(Vec<u8>, Gitignore)>,
    prefix: Vec<u8>,
}

impl IgnoreRules {
    /// Reads the rules of a project. `global` is the user's own file of rules.
    ///
    /// # Errors
    /// When the project cannot be opened.
    pub fn read(project: &Path, global: Option<&Path>) -> Result<Self, Fault> {
        let global = global.and_then(|file| {
            small_file(file.parent()?, file.file_name()?.to_str()?, MAX_RULES_BYTES)
        });
        Ok(Self {
            project: Anchor::open(project)?,
            global: rules(&global.unwrap_or_default()),
            named: Vec::new(),
            outer: Scope::around(project),
            known: Mutex::new(IgnoreCache::default()),
        })
    }

    /// Takes the ignored ones of these paths and everything below them, although they are ignored.
    pub fn except(&mut self, paths: &[RelPath]) {
        let ignored = |path: &&RelPath| self.covers(path, true) || self.covers(path, false);
        let named: Vec<RelPath> = paths.iter().filter(ignored).cloned().collect();
        self.named.extend(named);
    }

    /// Returns true if a directory is left out with everything in it, so that no path below it is a
    /// change.
    pub fn leaves_out_whole(&self, dir: &RelPath) -> bool {
        self.leaves_out(dir, true) && !self.may_take_below(dir)
    }

    /// Returns true if a path is left out. Paths below a directory that is left out may still be
    /// tracked: see [`Self::may_take_below`].
    pub(crate) fn leaves_out(&self, path: &RelPath, is_dir: bool) -> bool {
        if self.named.iter().any(|named| path.starts_with(named)) {
            return false;
        }
        self.covers(path, is_dir)
    }

    /// Returns true if a path that the host does not have is ignored once the change set's own
    /// rules are applied. False for paths that git tracks.
    pub(crate) fn covers_new(&self, path: &RelPath, is_dir: bool, new: &NewRules) -> bool {
        let has_tracked = |scope: &Scope, name: &[u8]| {
            if is_dir {
                scope.tracked.has_below(name)
            } else {
                scope.tracked.contains(name)
            }
        };
        if new.files.is_empty()
            || self
                .named
                .iter()
                .any(|named| path.starts_with(named) || (is_dir && named.starts_with(path)))
            || self.in_scope(path.as_bytes(), has_tracked)
        {
            return false;
        }
        let mut above = path.parent();
        while let Some(dir) = above {
            if self.matches(dir.as_bytes(), true, Some(new)) {
                return true;
            }
            above = dir.parent();
        }
        self.matches(path.as_bytes(), is_dir, Some(new))
    }

    /// Returns true if a path below a directory that is left out is taken nevertheless.
    pub(crate) fn may_take_below(&self, dir: &RelPath) -> bool {
        self.named.iter().any(|named| named.starts_with(dir))
            || self.in_scope(dir.as_bytes(), |scope, name| scope.tracked.has_below(name))
    }

    /// Returns true if the rules cover a path that is not tracked.
    fn covers(&self, path: &RelPath, is_dir: bool) -> bool {
        let bytes = path.as_bytes();
        let is_covered = path.parent().is_some_and(|dir| self.is_dir_covered(&dir))
            || self.matches(bytes, is_dir, None);
        is_covered && (is_dir || !self.in_scope(bytes, |scope, name| scope.tracked.contains(name)))
    }

    fn is_dir_covered(&self, dir: &RelPath) -> bool {
        if let Some(is_covered) = self.known().dirs.get(dir.as_bytes()) {
            return *is_covered;
        }
        let is_covered = dir
            .parent()
            .is_some_and(|above| self.is_dir_covered(&above))
            || self.matches(dir.as_bytes(), true, None);
        self.known()
            .dirs
            .insert(dir.as_bytes().to_vec(), is_covered);
        is_covered
    }

    /// Returns the decision of the nearest matching rule; false if none matches. A file of `new`
    /// replaces the project's in the same directory.
    fn matches(&self, path: &[u8], is_dir: bool, new: Option<&NewRules>) -> bool {
        let says = |rules: &Gitignore, path: &[u8]| match rules
            .matched(Path::new(OsStr::from_bytes(path)), is_dir)
        {
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
            Match::None => None,
        };
        let mut end = path.len();
        loop {
            let slash = path[..end].iter().rposition(|byte| *byte == b'/');
            let (dir, rest) = match slash {
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (&path[..0], path),
            };
            let said = match new.and_then(|new| new.files.get(dir)) {
                Some(rules) => says(rules, rest),
                None => self.file(dir).and_then(|rules| says(&rules, rest)),
            };
            if let Some(said) = said {
                return said;
            }
            if let Some(scope) = self.nested(dir) {
                let said = says(&scope.exclude, rest).or_else(|| says(&self.global, rest));
                return said.unwrap_or(false);
            }
            match slash {
                Some(slash) => end = slash,
                None => break,
            }
        }
        let outer = &self.outer;
        let whole = [&outer.prefix, path].concat();
        let above = outer
            .above
            .iter()
            .find_map(|(dir, rules)| says(rules, &whole[dir.len()..]));
        above
            .or_else(|| says(&outer.exclude, &whole))
            .or_else(|| says(&self.global, &whole))
            .unwrap_or(false)
    }

    /// Returns the rules in a directory of the project.
    fn file(&self, dir: &[u8]) -> Option<Arc<Gitignore>> {
        if let Some(rules) = self.known().files.get(dir) {
            return rules.clone();
        }
        let read = rules_in(&self.project, dir).map(Arc::new);
        self.known().files.insert(dir.to_vec(), read.clone());
        read
    }

    /// Returns the repository whose top is the directory `dir` of the project. `None` for the
    /// project itself.
    fn nested(&self, dir: &[u8]) -> Option<Arc<Scope>> {
        if dir.is_empty() {
            return None;
        }
        if let Some(scope) = self.known().nested.get(dir) {
            return scope.clone();
        }
        let scope = self.project.stat(&join(dir, b".git")).ok().map(|_| {
            let top = self.project.path().join(OsStr::from_bytes(dir));
            Arc::new(Scope::around(&top))
        });
        self.known().nested.insert(dir.to_vec(), scope.clone());
        scope
    }

    /// Calls `ask` with the innermost repository that contains a path, and the path relative to its
    /// top.
    fn in_scope(&self, path: &[u8], ask: impl Fn(&Scope, &[u8]) -> bool) -> bool {
        let mut end = path.len();
        while let Some(slash) = path[..end].iter().rposition(|byte| *byte == b'/') {
            if let Some(scope) = self.nested(&path[..slash]) {
                return ask(&scope, &path[slash + 1..]);
            }
            end = slash;
        }
        ask(&self.outer, path)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, IgnoreCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scope {
    /// Reads the rules of the repository that contains a directory. Empty if there is none.
    fn around(dir: &Path) -> Self {
        let mut scope = Self {
            tracked: TrackedFiles::read(dir, &[]),
            exclude: Gitignore::empty(),
            above: Vec::new(),
            prefix: Vec::new(),
        };
        let Some((tree, prefix)) = owned_working_tree(dir) else {
            return scope;
        };
        let exclude = git_dir(&tree.top)
            .and_then(|git_dir| common_dir(&git_dir).ok())
            .and_then(|dir| small_file(&dir.join("info"), "exclude", MAX_RULES_BYTES));
        scope.exclude = rules(&exclude.unwrap_or_default());
        let below = path_of(prefix.strip_suffix(b"/").unwrap_or_default());
        scope.prefix = prefix;
        let above: Vec<PathBuf> = below.ancestors().skip(1).map(Path::to_owned).collect();
        for dir in above {
            if let Some(text) = small_file(&tree.top.join(&dir), ".gitignore", MAX_RULES_BYTES) {
                scope.above.push((with_slash(&dir), rules(&text)));
            }
        }
        scope
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}

/// Reads the rules in a directory of a project; `None` if there are none or the file is too long.
pub(crate) fn rules_in(project: &Anchor, dir: &[u8]) -> Option<Gitignore> {
    let (text, _) = small_file_in(project, &join(dir, b".gitignore"), MAX_RULES_BYTES)?;
    Some(rules(&text))
}

/// Parses rules as git does: skips lines that are not valid patterns.
// TRUST: the lines come from the project; their number is bounded by `MAX_RULES_BYTES`.
fn rules(text: &[u8]) -> Gitignore {
    if text.is_empty() {
        return Gitignore::empty();
    }
    let mut builder = GitignoreBuilder::new("");
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // No pattern can spell a name that is not UTF-8.
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        let pattern = match glovebox_gitignore::pattern(line) {
            Ok(Some(pattern)) | Err(PatternProblem::Backward { as_git: pattern }) => pattern,
            Ok(None) | Err(PatternProblem::FitsNothing) => continue,
        };
        let _ = builder.add_line(None, &pattern);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::{Command, Stdio};
    use testkit::{has_program, skip};

    fn git(dir: &Path, args: &[&str], input: &str) -> Vec<u8> {
        let mut child = Command::new("git")
            .args(args)
            .current_dir(dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap().stdout
    }

    /// Queries `git check-ignore`, which reads the index too.
    #[test]
    fn what_is_ignored_is_what_git_ignores() {
        if !has_program("git") {
            skip!("needs git");
        }
        let temp = tempfile::tempdir().unwrap();
        let files = [
            ".gitignore",
            "a.log",
            "build/out",
            "build/tracked",
            "deep/.gitignore",
            "deep/b.log",
            "deep/build/x",
            "deep/er/keep.log",
            "deep/er/local.txt",
            "doc/private",
            "keep.log",
            "logs/keep.log",
            "src/gen/.gitignore",
            "src/gen/x",
            "src/main.rs",
            "tracked.log",
        ];
        for file in files {
            let path = temp.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x\n").unwrap();
        }
        let write = |file: &str, text: &str| fs::write(temp.path().join(file), text).unwrap();
        write(".gitignore", "*.log\n!keep.log\n/build/\nlogs/\n[z-a]x\n");
        write("deep/.gitignore", "!b.log\nkeep.log\n");
        write("src/gen/.gitignore", "*\n!.gitignore\n");
        git(temp.path(), &["init", "-q", "."], "");
        write(".git/info/exclude", "local.txt\ndoc/private\n");
        git(
            temp.path(),
            &["add", "-f", "tracked.log", "build/tracked"],
            "",
        );
        let list = files.join("\n");
        let told = git(temp.path(), &["check-ignore", "--stdin"], &list);
        let told: Vec<&str> = std::str::from_utf8(&told).unwrap().lines().collect();
        let own = IgnoreRules::read(temp.path(), None).unwrap();
        let path = |name: &str| RelPath::new(name).unwrap();
        let said: Vec<&str> = files
            .into_iter()
            .filter(|file| own.leaves_out(&path(file), false))
            .collect();
        assert_eq!(said, told);
        assert!(said.contains(&"build/out") && !said.contains(&"build/tracked"));
        assert!(own.leaves_out(&path("build"), true));
        assert!(own.may_take_below(&path("build")) && !own.may_take_below(&path("logs")));

        // The same rules, seen from a directory below.
        let below = IgnoreRules::read(&temp.path().join("deep"), None).unwrap();
        for (name, is_out) in [
            ("b.log", false),
            ("c.log", false),
            ("er/keep.log", true),
            ("er/local.txt", true),
            ("build/x", false),
        ] {
            // `!b.log` applies to that name only; `*.log` at the top covers the rest.
            let is_out = is_out || name == "c.log";
            assert_eq!(below.leaves_out(&path(name), false), is_out, "{name}");
        }
    }

    #[test]
    fn rules_of_somebody_elses_repository_above_do_not_count() {
        let temp = tempfile::tempdir().unwrap();
        let project = temp.path().join("deep");
        fs::create_dir(&project).unwrap();
        git(temp.path(), &["init", "-q"], "");
        fs::write(temp.path().join(".gitignore"), "*.log\n").unwrap();
        fs::write(temp.path().join(".git/info/exclude"), "*.tmp\n").unwrap();
        let left_out = || {
            let rules = IgnoreRules::read(&project, None).unwrap();
            ["a.log", "a.tmp"].map(|name| {
                let path = RelPath::new(name.as_bytes().to_vec()).unwrap();
                rules.leaves_out(&path, false)
            })
        };
        assert_eq!(left_out(), [true; 2]);
        if !testkit::is_root() {
            testkit::skip_because!(testkit::SkipReason::needs_root("to give a directory away"));
        }
        std::os::unix::fs::chown(&project, Some(65534), None).unwrap();
        assert_eq!(left_out(), [false; 2]);
    }

    #[test]
    fn named_paths_and_the_users_own_rules_count() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join(".gitignore"), "out/\n").unwrap();
        fs::write(temp.path().join("global"), "*.swp\n").unwrap();
        let path = |name: &str| RelPath::new(name).unwrap();
        let mut rules = IgnoreRules::read(temp.path(), Some(&temp.path().join("global"))).unwrap();
        assert!(rules.leaves_out(&path("x.swp"), false));
        assert!(rules.leaves_out(&path("out/a/b"), false));
        rules.except(&[path("out/a"), path("src")]);
        assert!(!rules.leaves_out(&path("out/a/b"), false));
        assert!(rules.leaves_out(&path("out/c"), false) && rules.may_take_below(&path("out")));
        // Naming a directory does not include the ignored paths in it.
        assert!(rules.leaves_out(&path("src/x.swp"), false));
    }
}
