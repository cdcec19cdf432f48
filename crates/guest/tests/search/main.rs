//! Finding files and lines agrees with the programs everybody knows: what is ignored with `git`, what a
//! pattern finds with `rg`. Random trees, ignore files and patterns; one guest serves them all.
//!
//! What is meant to differ is made equal here and nowhere loosened: `rg` is told to look into hidden
//! files, and that a dot in a pattern that spans lines is any byte; its order is not asked for, ours
//! (newest first, then by name) is checked by itself.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

macro_rules! needs {
    ($($program:literal),+) => {
        $(if Command::new($program).arg("--version").output().is_err() {
            testkit::skip!("needs the program {}", $program);
        })+
    };
}

#[path = "../client/mod.rs"]
mod client;
mod lines;
mod tree;

use client::Guest;
use glovebox_proto::{Code, Fault, FileKind, Glob, GlobReport, Reply, Request, SearchEnd};
use lines::content;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tree::{Tree, fields, path_of, pattern, plan};

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn glob(
    guest: &mut Guest,
    root: &Path,
    pattern: &str,
    use_ignore: bool,
) -> Result<GlobReport, Fault> {
    let reply = guest.call(&Request::Glob(Glob {
        path: ByteBuf::from(root.as_os_str().as_bytes()),
        pattern: pattern.to_owned(),
        use_ignore,
        max_hits: 1000,
        deadline_ms: 20_000,
    }))?;
    match reply {
        Reply::Globbed(found) => Ok(found),
        other => panic!("{other:?}"),
    }
}

fn names(found: &GlobReport) -> BTreeSet<Vec<u8>> {
    found.hits.iter().map(|hit| hit.path.to_vec()).collect()
}

fn shown(paths: &BTreeSet<Vec<u8>>) -> Vec<String> {
    paths
        .iter()
        .map(|path| path.escape_ascii().to_string())
        .collect()
}

/// Runs a property with one guest for all its cases.
fn check<P: std::fmt::Debug>(
    cases: u32,
    strategy: impl Strategy<Value = P>,
    property: impl Fn(&mut Guest, &P) -> Result<(), TestCaseError>,
) {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(cases);
    let guest = std::cell::RefCell::new(Guest::start());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let result = runner.run(&strategy, |plan| property(&mut guest.borrow_mut(), &plan));
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn what_is_ignored_is_what_git_ignores() {
    needs!("git");
    check(80, plan(Just(Vec::new())), |guest, plan| {
        let tree = Tree::grow(plan);
        let ours = names(&glob(guest, &tree.root, "*", true).unwrap());
        prop_assert_eq!(shown(&ours), shown(&tree.seen_by_git()));
        let all = names(&glob(guest, &tree.root, "*", false).unwrap());
        prop_assert_eq!(shown(&all), shown(&tree.files));
        Ok(())
    });
}

/// A directory of the tree, by chance.
fn below(tree: &Tree, choice: usize) -> Vec<u8> {
    let dirs: Vec<_> = tree.dirs.iter().collect();
    // The whole tree mostly.
    dirs[if choice < 24 { 0 } else { choice % dirs.len() }].clone()
}

/// Newest first, then by name; fewer wanted are the first of them.
fn in_order(tree: &Tree, root: &[u8], paths: &[&[u8]]) -> bool {
    let rank = |path: &[u8]| {
        let whole = if root.is_empty() {
            path.to_vec()
        } else {
            [root, b"/", path].concat()
        };
        (std::cmp::Reverse(tree.mtime(&whole)), path.to_vec())
    };
    paths.windows(2).all(|two| rank(two[0]) < rank(two[1]))
}

#[test]
fn a_glob_finds_what_ripgrep_finds() {
    needs!("git", "rg");
    let strategy = (
        plan(Just(Vec::new())),
        0_usize..32,
        vec(pattern(), 4),
        1_u32..9,
    );
    check(40, strategy, |guest, (plan, choice, patterns, few)| {
        let tree = Tree::grow(plan);
        let root = below(&tree, *choice);
        let whole = tree.root.join(path_of(&root));
        for pattern in patterns {
            // Ours is only ever for what to find.
            let turned = pattern
                .strip_prefix('!')
                .map_or_else(|| pattern.clone(), |rest| format!("\\!{rest}"));
            let rg = tree.rg(&root, &words(&["--files", "--glob", &turned]));
            let found = match glob(guest, &whole, pattern, false) {
                Ok(found) => found,
                Err(fault) => {
                    prop_assert_eq!(
                        (fault.code, rg.status.code()),
                        (Code::InvalidArgument, Some(2)),
                        "{}",
                        fault
                    );
                    continue;
                }
            };
            prop_assert_ne!(rg.status.code(), Some(2), "{:?} {:?}", pattern, rg);
            let theirs: BTreeSet<_> = fields(&rg.stdout, 0).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(shown(&names(&found)), shown(&theirs), "{}", pattern);
            let order: Vec<&[u8]> = found.hits.iter().map(|hit| &hit.path[..]).collect();
            prop_assert!(in_order(&tree, &root, &order), "{:?}", order);
            prop_assert_eq!(
                (found.total, found.end),
                (theirs.len() as u64, SearchEnd::Complete)
            );
            // What is ignored is not found, whatever the pattern says.
            if root.is_empty() {
                let kept = glob(guest, &whole, pattern, true).unwrap();
                let git: BTreeSet<_> = tree.seen_by_git().intersection(&theirs).cloned().collect();
                prop_assert_eq!(shown(&names(&kept)), shown(&git), "{}", pattern);
            }
            let Ok(Reply::Globbed(first)) = guest.call(&Request::Glob(Glob {
                path: ByteBuf::from(whole.as_os_str().as_bytes()),
                pattern: pattern.clone(),
                use_ignore: false,
                max_hits: *few,
                deadline_ms: 20_000,
            })) else {
                panic!("no answer");
            };
            prop_assert_eq!(first.total, found.total);
            prop_assert_eq!(
                &first.hits[..],
                &found.hits[..found.hits.len().min(*few as usize)]
            );
        }
        Ok(())
    });
}

#[test]
fn a_listing_tells_what_is_there() {
    check(40, (plan(content()), 1_u32..9), |guest, (plan, few)| {
        let tree = Tree::grow(plan);
        for dir in &tree.dirs {
            let whole = tree.root.join(path_of(dir));
            let mut there = Vec::new();
            for entry in std::fs::read_dir(&whole).unwrap().flatten() {
                let stat = entry.path().symlink_metadata().unwrap();
                let kind = match stat.file_type() {
                    kind if kind.is_dir() => FileKind::Directory,
                    kind if kind.is_symlink() => FileKind::Symlink,
                    _ => FileKind::File,
                };
                there.push((entry.file_name().into_vec(), kind, stat.size()));
            }
            there.sort_by(|a, b| a.0.cmp(&b.0));
            for max_entries in [100, *few] {
                let path = ByteBuf::from(whole.as_os_str().as_bytes());
                let Ok(Reply::List { entries, more }) =
                    guest.call(&Request::List { path, max_entries })
                else {
                    panic!("no answer");
                };
                let told: Vec<_> = entries
                    .iter()
                    .map(|entry| (entry.name.to_vec(), entry.stat.kind, entry.stat.size))
                    .collect();
                let first = there.len().min(max_entries as usize);
                prop_assert_eq!(&told, &there[..first]);
                prop_assert_eq!(more as usize, there.len() - first);
            }
        }
        Ok(())
    });
}

/// A tree is somebody else's: what only has the name of an ignore file holds up nothing.
#[test]
fn an_ignore_file_that_is_none_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start();
    for (place, name) in [
        ("fifo", ".gitignore"),
        ("own", ".ignore"),
        ("endless", ".gitignore"),
        ("link", ".gitignore"),
    ] {
        let place = dir.path().join(place);
        std::fs::create_dir_all(place.join(".git/info")).unwrap();
        std::fs::write(place.join("a"), "").unwrap();
        std::fs::write(place.join("rules"), "a\n").unwrap();
        let file = place.join(name);
        match place.file_name().unwrap().to_str().unwrap() {
            "endless" => std::os::unix::fs::symlink("/dev/zero", file).unwrap(),
            "link" => std::os::unix::fs::symlink("rules", file).unwrap(),
            _ => {
                for path in [file, place.join(".git/info/exclude")] {
                    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
                }
            }
        }
        let found = glob(&mut guest, &place, "a", true).unwrap();
        assert_eq!(shown(&names(&found)), ["a"], "{}", place.display());
        assert_eq!(found.end, SearchEnd::Complete);
    }
}

/// Rules of a directory above hold in a search below it, but not across the border of a repository.
#[test]
fn rules_from_above_end_at_a_repository() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("outer/inner");
    for place in ["inside/deep", "other/.git/info"] {
        std::fs::create_dir_all(inner.join(place)).unwrap();
    }
    std::fs::write(
        dir.path().join("outer/.gitignore"),
        "*.log\n/inner/inside/only\n",
    )
    .unwrap();
    std::fs::write(dir.path().join("outer/.ignore"), "*.tmp\n").unwrap();
    std::fs::write(inner.join("other/.git/info/exclude"), "*.own\n!k.own\n").unwrap();
    for place in ["inside", "inside/deep", "other"] {
        for name in ["a.log", "a.tmp", "a.own", "k.own", "only"] {
            std::fs::write(inner.join(place).join(name), "").unwrap();
        }
    }
    std::os::unix::fs::symlink(&inner, dir.path().join("way")).unwrap();
    let mut guest = Guest::start();
    let mut found = |place: PathBuf| shown(&names(&glob(&mut guest, &place, "*", true).unwrap()));
    let inside = ["a.own", "deep/a.own", "deep/k.own", "deep/only", "k.own"];
    assert_eq!(found(inner.join("inside")), inside);
    assert_eq!(found(dir.path().join("way/inside")), inside);
    assert_eq!(found(inner.join("inside/deep/..")), inside);
    let other = ["a.log", "k.own", "only"];
    assert_eq!(found(inner.join("other")), other);
    let whole = found(dir.path().join("outer"));
    for name in other {
        assert!(whole.contains(&format!("inner/other/{name}")), "{whole:?}");
    }
    assert!(
        !whole.iter().any(|name| name.ends_with("inside/a.log")
            || name.contains("a.tmp")
            || name == "inner/inside/only"),
        "{whole:?}"
    );
}
