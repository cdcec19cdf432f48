//! Random trees with ignore files, on the disk, and what `git` and `rg` say of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

/// Names of files and directories: few, so that patterns meet them, and with everything in them that
/// means something to a pattern.
pub(crate) const NAMES: &[&str] = &[
    "a",
    "b",
    "ab",
    "A",
    "a.rs",
    "b.rs",
    "a.txt",
    "b.c",
    "a.b.rs",
    ".hid",
    ".a.rs",
    "x y",
    " a",
    "a ",
    "[a]",
    "[a",
    "{a,b}",
    "a,b",
    "!a",
    "#a",
    "a\\b",
    "*",
    "?",
    "é",
    "日本.rs",
    "-a",
    "a-b",
    "target",
];

/// A path with the parts it is made of, relative to the tree.
pub(crate) type Parts = Vec<Vec<u8>>;

/// What a tree is made of.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) files: Vec<(Parts, Vec<u8>)>,
    /// Ignore files, each in the directory of the file with this number.
    pub(crate) ignores: Vec<(usize, usize, Vec<u8>)>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (parts, content) in &self.files {
            writeln!(
                f,
                "{}: {}",
                parts.join(&b'/').escape_ascii(),
                content.escape_ascii()
            )?;
        }
        for (index, depth, text) in &self.ignores {
            writeln!(f, "{index} {depth} .gitignore: {}", text.escape_ascii())?;
        }
        Ok(())
    }
}

pub(crate) fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        12 => select(NAMES).prop_map(|name| name.as_bytes().to_vec()),
        1 => "[ab.]{1,3}".prop_map(String::into_bytes),
        1 => Just(b"a\xff.rs".to_vec()),
    ]
    .prop_filter("a name", |name| name != b"." && name != b"..")
}

pub(crate) fn parts() -> impl Strategy<Value = Parts> {
    vec(name(), 1..5)
}

/// One part of a pattern.
pub(crate) fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => select(NAMES).prop_map(str::to_owned),
        2 => Just("**".to_owned()),
        2 => Just("*".to_owned()),
        3 => select(vec![
            "*.rs", "*.txt", "a*", "*b", ".*", "?", "??", "a?", "*.?", "[ab]", "[!a]", "[^a]", "[a-c]*", "*.[ch]",
            "[]a]", "[a", "[A-Z]", "\\*", "\\[a\\]", "a\\ ", "x\\ y", "\\a", "**b", "a**b", "[[]a]", "[!]", "[a-]",
            "*.*", "[.]hid", "[*]", "[?]", "{a,b}", "*.{rs,txt}", "\\{a,b\\}", "***", "é*", "[é]",
        ]).prop_map(str::to_owned),
    ]
}

/// A pattern for paths.
pub(crate) fn pattern() -> impl Strategy<Value = String> {
    (any::<bool>(), vec(part(), 1..4), prop::bool::weighted(0.2)).prop_map(
        |(anchored, parts, ends)| {
            let (front, back) = (
                if anchored && parts.len() < 3 { "/" } else { "" },
                if ends { "/" } else { "" },
            );
            format!("{front}{}{back}", parts.join("/"))
        },
    )
}

/// A line of an ignore file.
pub(crate) fn ignore_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        12 => (prop::bool::weighted(0.3), pattern(), select(vec!["", "", "", "", " ", "\r"])).prop_map(
            |(turns, pattern, end)| format!("{}{pattern}{end}", if turns { "!" } else { "" }).into_bytes()),
        1 => select(vec!["", "# a", "\\#a", "\\!a", "!", "/", "\\", "a\\", "!\\!a", "//", "/**", "**/", "a//b", "!/", "  ", "\ta", "a\t"])
            .prop_map(|line| line.as_bytes().to_vec()),
        1 => select(vec![&b"# caf\xe9"[..], b"[[:alpha:]]", b"[[:digit:]a]*", b"*[![:upper:]]", b"[\\]]", b"[a\\]b]*", b"[!\\!]*", b"[b-a]"]).prop_map(<[u8]>::to_vec),
    ]
}

pub(crate) fn ignore_file() -> impl Strategy<Value = Vec<u8>> {
    (
        vec(ignore_line(), 1..5),
        prop::bool::weighted(0.1),
        any::<bool>(),
    )
        .prop_map(|(lines, bom, ends)| {
            let mut text = if bom {
                b"\xef\xbb\xbf".to_vec()
            } else {
                Vec::new()
            };
            text.extend(lines.join(&b'\n'));
            if ends {
                text.push(b'\n');
            }
            text
        })
}

pub(crate) fn plan(content: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Plan> {
    (
        vec((parts(), content), 1..24),
        vec((0_usize..24, 0_usize..4, ignore_file()), 1..4),
    )
        .prop_map(|(files, ignores)| Plan { files, ignores })
}

pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// A tree on the disk.
pub(crate) struct Tree {
    dir: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) files: BTreeSet<Vec<u8>>,
    pub(crate) dirs: BTreeSet<Vec<u8>>,
}

impl Tree {
    pub(crate) fn grow(plan: &Plan) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        std::fs::create_dir(&root).unwrap();
        let mut tree = Self {
            dir,
            root,
            files: BTreeSet::new(),
            dirs: BTreeSet::from([Vec::new()]),
        };
        for (index, (parts, content)) in plan.files.iter().enumerate() {
            let path = parts.join(&b'/');
            let whole = tree.root.join(path_of(&path));
            // What another one took as a file is no directory, and the other way round.
            if std::fs::create_dir_all(whole.parent().unwrap()).is_err()
                || std::fs::write(&whole, content).is_err()
            {
                continue;
            }
            // Few times, so that some are equal.
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + index as u64 % 5);
            std::fs::File::open(&whole)
                .unwrap()
                .set_modified(time)
                .unwrap();
            tree.files.insert(path);
            for depth in 1..parts.len() {
                tree.dirs.insert(parts[..depth].join(&b'/'));
            }
        }
        for (index, depth, text) in &plan.ignores {
            let parts = &plan.files[index % plan.files.len()].0;
            let mut path = parts[..(*depth).min(parts.len() - 1)].join(&b'/');
            if !tree.dirs.contains(&path) {
                continue;
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(b".gitignore");
            std::fs::write(tree.root.join(path_of(&path)), text).unwrap();
            tree.files.insert(path);
        }
        // Links are neither files nor ways into a directory, for any of the three.
        let _ = std::os::unix::fs::symlink(".", tree.root.join("loop"));
        tree
    }

    /// Holds a NUL, and is no text in another encoding.
    pub(crate) fn is_binary(&self, path: &[u8]) -> bool {
        let content = std::fs::read(self.root.join(path_of(path))).unwrap();
        content.contains(&0) && !content.starts_with(b"\xff\xfe")
    }

    pub(crate) fn mtime(&self, path: &[u8]) -> i128 {
        let stat = self.root.join(path_of(path)).symlink_metadata().unwrap();
        i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec())
    }

    /// What `git` would let in.
    pub(crate) fn seen_by_git(&self) -> BTreeSet<Vec<u8>> {
        let mut git = Command::new("git");
        let repository = self.dir.path().join("repository");
        if !repository.exists() {
            let made = clean(
                Command::new("git")
                    .args(["init", "--quiet", "--bare"])
                    .arg(&repository),
            );
            assert!(made.status.success(), "{made:?}");
        }
        git.arg("--git-dir")
            .arg(&repository)
            .arg("--work-tree")
            .arg(&self.root);
        git.args([
            "-c",
            "core.fileMode=false",
            "ls-files",
            "-z",
            "--others",
            "--exclude-standard",
        ]);
        let listed = clean(git.current_dir(&self.root));
        assert!(listed.status.success(), "{listed:?}");
        fields(&listed.stdout, 0)
            .filter(|path| self.files.contains(*path))
            .map(<[u8]>::to_vec)
            .collect()
    }

    /// Runs `rg` in a directory of the tree.
    pub(crate) fn rg(&self, below: &[u8], args: &[OsString]) -> Output {
        let mut rg = Command::new("rg");
        rg.args([
            "--no-config",
            "--hidden",
            "--no-ignore",
            "--no-messages",
            "--threads=1",
            "--null",
        ]);
        clean(rg.args(args).current_dir(self.root.join(path_of(below))))
    }
}

/// Runs a program that knows nothing of whose machine it is on.
pub(crate) fn clean(command: &mut Command) -> Output {
    let path = std::env::var_os("PATH").unwrap_or_default();
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

pub(crate) fn fields(bytes: &[u8], end: u8) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(move |byte| *byte == end)
        .filter(|field| !field.is_empty())
}
