//! Tests patches against git itself: for any two trees, `git apply` must lead from one to the
//! other.

use super::*;
use crate::{Change, ChangeKind, ChangeSet, Contents, Node, RelPath};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// A file or link of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    File {
        content: Vec<u8>,
        is_executable: bool,
    },
    Link(Vec<u8>),
}

type Tree = BTreeMap<Vec<u8>, Item>;

struct TreePair {
    before: Tree,
    after: Tree,
}

impl Contents for TreePair {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Ok(read(&self.after, path))
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Ok(read(&self.before, path))
    }
}

fn read<'a>(tree: &'a Tree, path: &RelPath) -> Box<dyn Read + Send + 'a> {
    match &tree[path.as_bytes()] {
        Item::File { content, .. } => Box::new(content.as_slice()),
        Item::Link(_) => panic!("{path} is a link"),
    }
}

fn node(item: &Item) -> Node {
    match item {
        Item::File {
            content,
            is_executable,
        } => Node::File {
            size: content.len() as u64,
            is_executable: *is_executable,
            digest: Some(*blake3::hash(content).as_bytes()),
        },
        Item::Link(target) => Node::Link {
            target: target.clone(),
        },
    }
}

/// The change set that leads from one tree to the other; `renames` may name sources.
fn collected(before: &Tree, after: &Tree, renames: &[(&[u8], &[u8])]) -> CollectedChanges {
    let mut changes = Vec::new();
    let mut paths: Vec<&Vec<u8>> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    for name in paths {
        let path = RelPath::new(name.clone()).unwrap();
        let source = renames.iter().find(|(_, to)| to == name);
        if renames.iter().any(|(from, _)| from == name) {
            continue;
        }
        let kind = match (before.get(name), after.get(name)) {
            (None, Some(to)) => match source {
                Some((from, _)) => ChangeKind::Renamed {
                    source: RelPath::new(from.to_vec()).unwrap(),
                    from: node(&before[*from]),
                    to: node(to),
                },
                None => ChangeKind::Added { to: node(to) },
            },
            (Some(from), None) => ChangeKind::Deleted { from: node(from) },
            (Some(from), Some(to)) if from != to => ChangeKind::Modified {
                from: node(from),
                to: node(to),
            },
            _ => continue,
        };
        changes.push(Change {
            path,
            kind,
            flags: Vec::new(),
        });
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    let set = ChangeSet {
        changes,
        ..ChangeSet::default()
    };
    let both = TreePair {
        before: before.clone(),
        after: after.clone(),
    };
    CollectedChanges::new(set, Box::new(both))
}

fn patch_of(collected: &CollectedChanges) -> Vec<u8> {
    let mut out = Vec::new();
    write(collected, Style::Exact, &mut out).unwrap();
    out
}

fn lay_out(tree: &Tree, dir: &Path) {
    for (name, item) in tree {
        let path = dir.join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match item {
            Item::File {
                content,
                is_executable,
            } => {
                fs::write(&path, content).unwrap();
                let mode = if *is_executable { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            Item::Link(target) => symlink(OsStr::from_bytes(target), &path).unwrap(),
        }
    }
}

fn look(root: &Path, dir: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
        let metadata = path.symlink_metadata().unwrap();
        if name == b".git" {
            continue;
        }
        if metadata.is_dir() {
            look(root, &path, tree);
            continue;
        }
        let item = if metadata.is_symlink() {
            Item::Link(fs::read_link(&path).unwrap().as_os_str().as_bytes().into())
        } else {
            Item::File {
                content: fs::read(&path).unwrap(),
                is_executable: metadata.permissions().mode() & 0o100 != 0,
            }
        };
        tree.insert(name.to_vec(), item);
    }
}

fn git(dir: &Path, args: &[&str], stdin: &[u8]) {
    let mut child = Command::new("git")
        .args(args)
        .current_dir(dir)
        // Ignores the machine's configuration and any repository above.
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Git may refuse before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let done = child.wait_with_output().unwrap();
    assert!(
        done.status.success(),
        "git {args:?}: {}\n{}",
        String::from_utf8_lossy(&done.stderr),
        String::from_utf8_lossy(stdin)
    );
}

/// Applies the patch inside a repository and outside one; both must lead to `after`.
fn prove(before: &Tree, after: &Tree, renames: &[(&[u8], &[u8])]) {
    let patch = patch_of(&collected(before, after, renames));
    for has_repository in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        lay_out(before, dir);
        if has_repository {
            git(dir, &["init", "-q"], b"");
        }
        let mut found = Tree::new();
        if !patch.is_empty() {
            git(dir, &["apply", "--whitespace=nowarn", "-"], &patch);
        }
        look(dir, dir, &mut found);
        assert_eq!(&found, after, "{}", String::from_utf8_lossy(&patch));
    }
}

fn file(content: &[u8]) -> Item {
    Item::File {
        content: content.to_vec(),
        is_executable: false,
    }
}

fn tree(items: &[(&[u8], Item)]) -> Tree {
    items
        .iter()
        .map(|(name, item)| (name.to_vec(), item.clone()))
        .collect()
}

#[test]
fn every_kind_of_change_is_applied_by_git() {
    let executable = |content: &[u8]| Item::File {
        content: content.to_vec(),
        is_executable: true,
    };
    let before = tree(&[
        (b"mod", file(b"a\nb\nc\n")),
        (b"no newline", file(b"x")),
        (b"gone", file(b"1\n")),
        (b"empty-gone", file(b"")),
        (b"run", file(b"#!/bin/sh\n")),
        (b"bin", file(b"\0\x01\x02")),
        (b"bin-gone", file(&[0; 1000])),
        (b"link", Item::Link(b"mod".to_vec())),
        (b"becomes-link", file(b"text\n")),
        (b"becomes-file", Item::Link(b"x".to_vec())),
        (b"becomes-dir", file(b"flat\n")),
        (b"was-dir/x", file(b"deep\n")),
        (b"old name", file(b"1\n2\n3\n4\n5\n")),
        (b"old-bin", file(b"\0same")),
    ]);
    let after = tree(&[
        (b"mod", file(b"a\nB\nc\n")),
        (b"no newline", file(b"x\ny")),
        (b"run", executable(b"#!/bin/sh\n")),
        (b"bin", file(&[0xff; 4096])),
        (b"link", Item::Link(b"elsewhere\n".to_vec())),
        (b"becomes-link", Item::Link(b"mod".to_vec())),
        (b"becomes-file", executable(b"now\n")),
        (b"becomes-dir/a/b", file(b"deep\n")),
        (b"was-dir", file(b"flat\n")),
        (b"sub/new \"name\"\n\xff", file(b"1\n2\n3\n4\nfive\n")),
        (b"new-bin", file(b"\0same")),
        (b"empty", file(b"")),
        (b" lead and trail ", file(b"\r\n\r\n")),
        (b"tab\there", executable(b"")),
    ]);
    prove(
        &before,
        &after,
        &[
            (b"old name", b"sub/new \"name\"\n\xff"),
            (b"old-bin", b"new-bin"),
        ],
    );
    prove(&after, &before, &[]);
}

#[test]
fn a_patch_leads_back_as_well() {
    let before = tree(&[(b"bin", file(b"\0old")), (b"text", file(b"a\n"))]);
    let after = tree(&[(b"bin", file(b"\0new and longer")), (b"text", file(b"b\n"))]);
    let patch = patch_of(&collected(&before, &after, &[]));
    let dir = tempfile::tempdir().unwrap();
    lay_out(&after, dir.path());
    git(dir.path(), &["apply", "-R", "-"], &patch);
    let mut found = Tree::new();
    look(dir.path(), dir.path(), &mut found);
    assert_eq!(found, before);
}

#[test]
fn what_is_too_large_to_compare_is_still_exact() {
    let long: Vec<u8> = (0..600_000_u32)
        .flat_map(|number| format!("{number} and some more\n").into_bytes())
        .collect();
    let before = tree(&[(b"big", file(b"small\n"))]);
    let after = tree(&[
        (b"big", file(&long)),
        (b"lines", file("\n".repeat(500_000).as_bytes())),
    ]);
    prove(&before, &after, &[]);
}

#[test]
fn a_sandbox_that_writes_on_makes_no_patch() {
    let after = tree(&[(b"x", file(b"collected\n"))]);
    let lie = TreePair {
        before: Tree::new(),
        after: tree(&[(b"x", file(b"different\n"))]),
    };
    let set = collected(&Tree::new(), &after, &[]).set;
    let collected = CollectedChanges::new(set, Box::new(lie));
    let error = write(&collected, Style::Exact, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("changed while"), "{error}");
    assert!(stat(&collected).is_err());
}

#[test]
fn nothing_acts_on_a_screen_and_colour_only_repeats_what_is_said() {
    let before = tree(&[(b"x", file(b"old\n")), (b"b", file(b"\0"))]);
    let after = tree(&[(b"x", file(b"\x1b[2Jnew\n")), (b"b", file(b"\0\0"))]);
    let collected = collected(&before, &after, &[]);
    let show = |has_color| {
        let style = Style::Screen { has_color };
        let mut out = Vec::new();
        write(&collected, style, &mut out).unwrap();
        write_stat(&stat(&collected).unwrap(), style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let plain = show(false);
    assert!(plain.contains("+\\x1b[2Jnew\n-") || plain.contains("-old\n+\\x1b[2Jnew\n"));
    assert!(plain.contains("Binary content: 1 -> 2 bytes"));
    assert!(
        plain.ends_with(" 2 files changed, 1 insertion(+), 1 deletion(-)\n"),
        "{plain}"
    );
    let coloured = show(true);
    let mut stripped = coloured.clone();
    for code in ["0", "1", "7", "27", "31", "32", "36"] {
        stripped = stripped.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_ne!(coloured, plain);
    assert_eq!(stripped, plain);
    assert!(coloured.contains("\u{1b}[7m\\x1b\u{1b}[27m[2Jnew"));
}

#[test]
fn characters_that_hide_are_found_by_file_and_line_ends_and_scripts_are_none() {
    let names: [(&[u8], &[u8], &[u8]); 6] = [
        (b"bytes", b"a\n", b"caf\xe9\n"),
        (b"crlf", b"a\r\nb\r\n", b"\xef\xbb\xbfa\r\nc\r\n"),
        (b"late-mark", b"a\nb\n", b"a\n\xef\xbb\xbfb\n"),
        (b"lone-cr", b"a\n", b"rm x\rls\n"),
        (b"rlo", b"a\n", "x = 1 \u{202e}\u{1b}]8;;y\n".as_bytes()),
        (
            b"twin",
            b"a\n",
            "\u{5e9}\u{5dc}\u{5d5}\u{5dd}\t\u{2764}\u{fe0f}\u{a0}!\n".as_bytes(),
        ),
    ];
    let before: Vec<_> = names
        .iter()
        .map(|(name, before, _)| (*name, file(before)))
        .collect();
    let after: Vec<_> = names
        .iter()
        .map(|(name, _, after)| (*name, file(after)))
        .collect();
    let collected = collected(&tree(&before), &tree(&after), &[]);
    let report = find_hidden(&collected).unwrap();
    assert!(!report.is_partial);
    let found: Vec<String> = report
        .files
        .iter()
        .map(|(path, found)| format!("{path}: {found}"))
        .collect();
    assert_eq!(
        found,
        [
            "bytes: 1 hidden character: 0xE9",
            "late-mark: 1 hidden character: BOM",
            "lone-cr: 1 hidden character: CR",
            "rlo: 2 hidden characters: RLO, ESC",
        ]
    );
}

/// Names that git accepts: no component with a special meaning, none that Windows would misread as
/// one.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => "[a-c]{1,2}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 1..6),
        1 => "[ \"\\\\\t\n']{1,3}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 1..4)
        .prop_map(|pieces| pieces.join(&b'/'))
        .prop_filter("a path git takes", |name| {
            let lower = name.to_ascii_lowercase();
            RelPath::new(name.clone()).is_ok() && !lower.windows(3).any(|part| part == b"git")
        })
}

fn item() -> impl Strategy<Value = Item> {
    let content = prop_oneof![
        3 => proptest::collection::vec("[ab\r]{0,2}\n?", 0..30)
            .prop_map(|lines| lines.concat().into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
    ];
    prop_oneof![
        5 => (content, any::<bool>()).prop_map(|(content, is_executable)| Item::File {
            content,
            is_executable,
        }),
        1 => proptest::collection::vec(1_u8..=255, 1..20).prop_map(Item::Link),
    ]
}

/// A tree without a name that is both a file and a directory.
fn any_tree() -> impl Strategy<Value = Tree> {
    proptest::collection::btree_map(name(), item(), 0..8).prop_map(|tree| {
        let names: Vec<Vec<u8>> = tree.keys().cloned().collect();
        tree.into_iter()
            .filter(|(name, _)| {
                !names.iter().any(|other| {
                    other
                        .strip_prefix(name.as_slice())
                        .is_some_and(|rest| rest.first() == Some(&b'/'))
                })
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn git_apply_leads_from_any_tree_to_any_other(before in any_tree(), mut after in any_tree(), keep in any::<u64>()) {
        // Some names stay, so that there are files to modify.
        for (index, (name, item)) in before.iter().enumerate() {
            let is_free = !after.keys().any(|other| other.starts_with(name) || name.starts_with(other.as_slice()));
            if keep >> (index * 2) & 1 == 1 && is_free {
                let item = match item {
                    Item::File { content, is_executable } if keep >> (index * 2 + 1) & 1 == 1 => {
                        let mut content = content.clone();
                        content.extend_from_slice(b"more\n");
                        Item::File { content, is_executable: *is_executable }
                    }
                    other => other.clone(),
                };
                after.insert(name.clone(), item);
            }
        }
        prove(&before, &after, &[]);
    }
}
