//! Random projects with random edits on both sides, made through a real overlay: for every path,
//! the result of a pull must be that of a three-way comparison.
//!
//! This test program makes the sandbox's edits itself, in its own user and mount namespace
//! (`unshare(1)`), over the mount options of a sandbox; the layers are then read from outside.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod fixture;

use fixture::builder::HostBuilder;
use fixture::{Fixture, Tree, TreeNode};
use glovebox_workspace::base::Signature;
use glovebox_workspace::branch::HostRepository;
use glovebox_workspace::{Options, Outcome, RelPath, branch};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{has_program, skip};

/// Variable with the path of the fixture for the process in the namespace.
const PLACE: &str = "GLOVEBOX_TEST_PLACE";

/// An edit. Paths are lists of names; an impossible edit is skipped.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Edit {
    /// Writes a file with a content that no other file has.
    Write(Vec<Vec<u8>>),
    MakeExecutable(Vec<Vec<u8>>),
    Link(Vec<Vec<u8>>, Vec<u8>),
    MakeDir(Vec<Vec<u8>>),
    Remove(Vec<Vec<u8>>),
    /// Moves as mv(1) does across file systems.
    Move(Vec<Vec<u8>>, Vec<Vec<u8>>),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::sample::select(vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]),
        1 => prop::sample::select(vec![b"\xff\xfe".to_vec(), b"a\nb ".to_vec(), b"-".to_vec()]),
    ]
}

fn place() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(name(), 1..4)
}

fn edit() -> impl Strategy<Value = Edit> {
    let targets =
        ["a", "../b", "/etc/passwd", "a/../..", "b/c", "."].map(|text| text.as_bytes().to_vec());
    prop_oneof![
        6 => place().prop_map(Edit::Write),
        1 => place().prop_map(Edit::MakeExecutable),
        1 => (place(), prop::sample::select(targets.to_vec())).prop_map(|(at, to)| Edit::Link(at, to)),
        1 => place().prop_map(Edit::MakeDir),
        3 => place().prop_map(Edit::Remove),
        1 => (place(), place()).prop_map(|(from, to)| Edit::Move(from, to)),
    ]
}

fn at(root: &Path, names: &[Vec<u8>]) -> PathBuf {
    names.iter().fold(root.to_owned(), |path, name| {
        path.join(OsStr::from_bytes(name))
    })
}

/// Makes one edit; `unique` makes its content differ from all others.
fn act(root: &Path, edit: &Edit, unique: &str) {
    // Parents are real directories only, so edits stay within the tree.
    let parent = |names: &[Vec<u8>]| {
        let path = at(root, names);
        let mut dir = root.to_owned();
        for name in &names[..names.len() - 1] {
            dir.push(OsStr::from_bytes(name));
            if fs::symlink_metadata(&dir).is_ok_and(|meta| !meta.is_dir()) {
                return None;
            }
        }
        fs::create_dir_all(&dir).ok()?;
        Some(path)
    };
    match edit {
        Edit::Write(names) => {
            if let Some(path) = parent(names) {
                if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
                    fs::remove_file(&path).unwrap();
                }
                let _ = fs::write(path, format!("{unique}\0\n"));
            }
        }
        Edit::MakeExecutable(names) => {
            let path = at(root, names);
            let is_plain = fs::symlink_metadata(&path)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o100 == 0);
            if is_plain && parent(names).is_some() {
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        Edit::Link(names, target) => {
            if let Some(path) = parent(names) {
                let _ = symlink(OsStr::from_bytes(target), path);
            }
        }
        Edit::MakeDir(names) => {
            if let Some(path) = parent(names) {
                let _ = fs::create_dir(path);
            }
        }
        Edit::Remove(names) => {
            let path = at(root, names);
            let is_within = names.len() == 1 || parent(names).is_some();
            match fs::symlink_metadata(&path) {
                Ok(meta) if is_within && meta.is_dir() => fs::remove_dir_all(path).unwrap(),
                Ok(_) if is_within => fs::remove_file(path).unwrap(),
                _ => {}
            }
        }
        Edit::Move(from, to) => {
            let source = at(root, from);
            let is_possible = parent(from).is_some()
                && fs::symlink_metadata(&source).is_ok()
                && !at(root, to).starts_with(&source);
            if is_possible
                && let Some(target) = parent(to)
                && fs::symlink_metadata(&target).is_err()
            {
                let status = Command::new("cp")
                    .arg("-a")
                    .arg(&source)
                    .arg(&target)
                    .status();
                assert!(status.unwrap().success());
                act(root, &Edit::Remove(from.clone()), unique);
            }
        }
    }
}

fn act_all(root: &Path, edits: &[Edit], who: &str) {
    for (number, edit) in edits.iter().enumerate() {
        act(root, edit, &format!("{who} {number}"));
    }
}

/// Body of the process in the namespace: mounts the overlay and makes the sandbox's edits in it.
#[test]
#[ignore = "run by the other, in a namespace"]
fn edit_inside() {
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    let merged = place.join("merged");
    for dir in [&merged, &place.join("work")] {
        let _ = fs::create_dir(dir);
    }
    let options = format!(
        "userxattr,lowerdir={0}/project,upperdir={0}/layer0,workdir={0}/work",
        place.display()
    );
    let status = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(&merged)
        .status();
    assert!(status.unwrap().success());
    let edits: Vec<Edit> = serde_json::from_slice(&fs::read(place.join("edits")).unwrap()).unwrap();
    act_all(&merged, &edits, "sandbox");
}

fn inside(fixture: &Fixture, edits: &[Edit]) -> bool {
    fs::write(
        fixture.root().join("edits"),
        serde_json::to_vec(edits).unwrap(),
    )
    .unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "edit_inside"])
        .env(PLACE, fixture.root())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    output.status.success()
}

/// Signatures of everything in the project.
fn signatures(fixture: &Fixture) -> BTreeMap<Vec<u8>, Signature> {
    let tree = fixture.tree();
    let look = |path: &Vec<u8>| {
        let at = fixture.project().join(OsStr::from_bytes(path));
        let stat = rustix::fs::statat(rustix::fs::CWD, at, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        Signature::from(&stat.unwrap())
    };
    tree.0
        .keys()
        .map(|path| (path.clone(), look(path)))
        .collect()
}

/// Returns true if a file has each side's change of content and of permission, where the other side
/// changed nothing.
fn is_merged(
    base: Option<&TreeNode>,
    host: Option<&TreeNode>,
    sandbox: Option<&TreeNode>,
    found: Option<&TreeNode>,
) -> bool {
    fn one<T: PartialEq>(base: &T, host: &T, sandbox: &T, found: &T) -> bool {
        (host == base && found == sandbox) || (sandbox == base && found == host)
    }
    match (base, host, sandbox, found) {
        (
            Some(TreeNode::File(base, base_mode)),
            Some(TreeNode::File(host, host_mode)),
            Some(TreeNode::File(sandbox, sandbox_mode)),
            Some(TreeNode::File(found, found_mode)),
        ) => one(base, host, sandbox, found) && one(base_mode, host_mode, sandbox_mode, found_mode),
        _ => false,
    }
}

/// Compares the result of a pull with the expected one.
fn check(
    base: &Tree,
    host: &Tree,
    sandbox: &Tree,
    touched: &BTreeSet<Vec<u8>>,
    now: &Tree,
    outcome: &Outcome,
) {
    let is_at_or_below = |path: &[u8], top: &[u8]| {
        path.strip_prefix(top)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let paths: BTreeSet<&Vec<u8>> = [base, host, sandbox]
        .iter()
        .flat_map(|tree| tree.0.keys())
        .collect();
    let theirs: BTreeMap<&[u8], &RelPath> = outcome
        .conflicts
        .iter()
        .filter_map(|conflict| Some((conflict.path.as_bytes(), conflict.theirs.as_ref()?)))
        .collect();
    for path in &paths {
        let text = String::from_utf8_lossy(path).into_owned();
        let (b, h, s) = (base.0.get(*path), host.0.get(*path), sandbox.0.get(*path));
        let found = now.0.get(*path);
        let is_refused = outcome
            .refused
            .iter()
            .any(|refusal| is_at_or_below(path, &refusal.path));
        if touched.contains(*path) || is_refused || s == b {
            // A directory may be created, or stay, for its content.
            let is_for_content = found == Some(&TreeNode::Dir)
                && now
                    .0
                    .keys()
                    .any(|other| other != *path && is_at_or_below(other, path));
            let is_agreed = found == s && found != h && h == b;
            assert!(
                found == h || is_for_content || is_agreed || is_merged(b, h, s, found),
                "{text}: the host's version is gone: {found:?}"
            );
        }
        if is_refused || s == b || found == s || is_merged(b, h, s, found) {
            continue;
        }
        // If the sandbox changed a path that does not exist now, there is a conflict here or around
        // it.
        let is_disputed = touched
            .iter()
            .any(|other| is_at_or_below(other, path) || is_at_or_below(path, other))
            || outcome
                .refused
                .iter()
                .any(|refusal| is_at_or_below(&refusal.path, path));
        assert!(is_disputed, "{text}: {found:?} instead of {s:?}");
        // The sandbox's version is then beside it.
        if let Some(TreeNode::File(..) | TreeNode::Link(_)) = s {
            let beside = theirs
                .get(path.as_slice())
                .map(|at| now.0.get(at.as_bytes()));
            assert_eq!(beside, Some(s), "{text}: the sandbox's version is gone");
        }
    }
    // No other path was created.
    for path in now.0.keys() {
        let is_beside = path.windows(7).any(|part| part == b".theirs");
        assert!(
            is_beside || paths.contains(path),
            "{}",
            String::from_utf8_lossy(path)
        );
    }
}

fn one(before: &[Edit], there: &[Edit], here: &[Edit]) {
    let fixture = Fixture::new(1);
    act_all(&fixture.project(), before, "base");
    fixture.push();
    let (base, base_signatures) = (fixture.tree(), signatures(&fixture));
    assert!(inside(&fixture, there), "the overlay could not be edited");
    // The same edits on a plain copy show what the sandbox saw.
    let copy = fixture.scratch().join("copy");
    fs::create_dir(&copy).unwrap();
    act_all(&copy, before, "base");
    act_all(&copy, there, "sandbox");
    let sandbox = Tree::read(&copy);
    act_all(&fixture.project(), here, "host");
    let (host, host_signatures) = (fixture.tree(), signatures(&fixture));
    let touched: BTreeSet<Vec<u8>> = base_signatures
        .keys()
        .chain(host_signatures.keys())
        .filter(
            |path| match (base_signatures.get(*path), host_signatures.get(*path)) {
                (Some(before), Some(after)) => !before.is_same(after),
                _ => true,
            },
        )
        .cloned()
        .collect();
    let outcome = fixture.pull(Options::default()).unwrap();
    check(&base, &host, &sandbox, &touched, &fixture.tree(), &outcome);
    // A second pull applies nothing, so that only the conflicts remain.
    let after = fixture.tree();
    let again = fixture.pull(Options::default()).unwrap();
    assert_eq!(fixture.tree(), after);
    assert_eq!(again.applied, []);
}

#[test]
fn pulls_do_what_three_way_comparison_says() {
    let can_mount = has_program("unshare") && {
        let fixture = Fixture::new(1);
        inside(&fixture, &[])
    };
    if !can_mount {
        skip!("needs overlays in a user namespace");
    }
    let config = Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    };
    let edits = |count| prop::collection::vec(edit(), 0..count);
    TestRunner::new(config)
        .run(
            &(edits(12), edits(10), edits(5)),
            |(before, there, here)| {
                one(&before, &there, &here);
                Ok(())
            },
        )
        .unwrap();
}

/// Runs git on the host, in a directory, with a fixed identity.
fn git(dir: &Path, args: &[&str]) -> Vec<u8> {
    let done = Command::new("git")
        .args(["-c", "core.autocrlf=false", "-c", "core.quotePath=false"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "git {args:?}: {complaint}");
    done.stdout
}

/// Commits a whole project; as a worktree of a repository elsewhere if `is_worktree` is true.
fn commit_all(fixture: &Fixture, is_worktree: bool) {
    let project = fixture.project();
    let identify = |dir: &Path| {
        git(dir, &["config", "user.name", "A Person"]);
        git(dir, &["config", "user.email", "person@example.org"]);
    };
    if is_worktree {
        let main = fixture.root().join("main");
        fs::create_dir(&main).unwrap();
        git(&main, &["init", "-q", "-b", "main"]);
        identify(&main);
        git(&main, &["commit", "-q", "--allow-empty", "-m", "empty"]);
        let added = fixture.root().join("added");
        git(
            &main,
            &[
                "worktree",
                "add",
                "-q",
                "-b",
                "work",
                added.to_str().unwrap(),
            ],
        );
        fs::rename(added.join(".git"), project.join(".git")).unwrap();
        git(&project, &["worktree", "repair"]);
    } else {
        git(&project, &["init", "-q", "-b", "main"]);
        identify(&project);
    }
    git(&project, &["add", "-A"]);
    git(&project, &["commit", "-q", "--allow-empty", "-m", "first"]);
}

/// Files and links of a project, which are all that git stores.
fn tracked(mut tree: Tree) -> Tree {
    tree.0.retain(|path, thing| {
        *thing != TreeNode::Dir && path != b".git" && !path.starts_with(b".git/")
    });
    tree
}

fn one_branch(before: &[Edit], there: &[Edit], is_worktree: bool) {
    const BRANCH: &str = "box/work";
    let fixture = Fixture::new(1);
    let project = fixture.project();
    act_all(&project, before, "base");
    commit_all(&fixture, is_worktree);
    fixture.push();
    assert!(inside(&fixture, there), "the overlay could not be edited");
    let untouched = |fixture: &Fixture| {
        let mut all = signatures(fixture);
        all.retain(|path, _| !path.starts_with(b".git"));
        let inner = git(&project, &["rev-parse", "--absolute-git-dir"]);
        let inner = PathBuf::from(OsStr::from_bytes(inner.trim_ascii_end()));
        let read = |name: &str| fs::read(inner.join(name)).unwrap_or_default();
        (
            all,
            read("index"),
            read("HEAD"),
            git(&project, &["rev-parse", "HEAD"]),
        )
    };
    let first = untouched(&fixture);
    let collected = fixture.collect();
    // Git does not store directories, so with these alone no branch is made.
    let mut is_empty = collected.set.changes.is_empty();
    if !is_empty {
        let done = branch::commit(
            &collected,
            fixture.base_file().as_ref(),
            &HostRepository::open(&project, Path::new("git")).unwrap(),
            &mut HostBuilder::new(&project),
            BRANCH,
            "from a sandbox\n",
        )
        .unwrap();
        is_empty = done.commit.is_none();
    }
    assert!(
        untouched(&fixture) == first,
        "the branch was not all that was touched"
    );
    // The result of a pull, for comparison.
    fixture.pull(Options::default()).unwrap();
    let wanted = tracked(fixture.tree());
    let out = fixture.scratch().join("out");
    fs::create_dir(&out).unwrap();
    let tar = fixture.scratch().join("tar");
    let which = if is_empty { "HEAD" } else { BRANCH };
    git(&project, &["archive", "-o", tar.to_str().unwrap(), which]);
    let unpacked = Command::new("tar")
        .arg("-xf")
        .arg(&tar)
        .arg("-C")
        .arg(&out)
        .status();
    assert!(unpacked.unwrap().success());
    let (wanted, found) = (wanted.lines(), tracked(Tree::read(&out)).lines());
    assert_eq!(wanted, found, "left: a pull, right: the branch");
}

#[test]
fn a_branch_has_what_a_pull_would_make_of_the_project() {
    let can_mount = ["unshare", "git", "tar"]
        .iter()
        .all(|name| has_program(name))
        && {
            let fixture = Fixture::new(1);
            inside(&fixture, &[])
        };
    if !can_mount {
        skip!("needs git, and overlays in a user namespace");
    }
    let config = Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    };
    let edits = |count| prop::collection::vec(edit(), 0..count);
    TestRunner::new(config)
        .run(
            &(edits(12), edits(10), any::<bool>()),
            |(before, there, is_worktree)| {
                one_branch(&before, &there, is_worktree);
                Ok(())
            },
        )
        .unwrap();
}
