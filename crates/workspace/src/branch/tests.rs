//! Commits on a new branch, inspected with git itself.

#[path = "../../tests/fixture/builder.rs"]
mod builder;

use super::*;
use crate::{Change, ChangeSet, Contents};
use builder::HostBuilder;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

struct MapContents(HashMap<Vec<u8>, Vec<u8>>);

impl Contents for MapContents {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Ok(Box::new(self.0[path.as_bytes()].as_slice()))
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Err(unreadable(path, &io::Error::other("not needed")))
    }
}

fn file(content: &[u8]) -> Node {
    Node::File {
        size: content.len() as u64,
        is_executable: content.starts_with(b"#!"),
        digest: Some(*blake3::hash(content).as_bytes()),
    }
}

/// A change set of paths with their new contents; `None` deletes the path.
fn collected(changes: &[(&[u8], Option<&[u8]>)]) -> CollectedChanges {
    let mut held = HashMap::new();
    let mut set = ChangeSet::default();
    for (path, content) in changes {
        let kind = match content {
            Some(content) => {
                held.insert(path.to_vec(), content.to_vec());
                ChangeKind::Added { to: file(content) }
            }
            None => ChangeKind::Deleted { from: file(b"") },
        };
        set.changes.push(Change {
            path: RelPath::new(path.to_vec()).unwrap(),
            kind,
            flags: Vec::new(),
        });
    }
    set.changes.sort_by(|a, b| a.path.cmp(&b.path));
    CollectedChanges::new(set, Box::new(MapContents(held)))
}

struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fixture.git(&["init", "-q", "-b", "main"]);
        fixture.git(&["config", "user.name", "A Person"]);
        fixture.git(&["config", "user.email", "person@example.org"]);
        fs::create_dir(fixture.dir.path().join("sub")).unwrap();
        for (name, text) in [
            ("sub/keep", "same\n"),
            ("sub/gone", "bye\n"),
            (".gitignore", "*.log\n"),
        ] {
            fs::write(fixture.dir.path().join(name), text).unwrap();
        }
        fixture.git(&["add", "."]);
        fixture.git(&["commit", "-qm", "first"]);
        fixture
    }

    fn git(&self, args: &[&str]) -> String {
        let done = Command::new("git")
            .args(args)
            .current_dir(self.dir.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "git {args:?}: {}",
            complaint(&done.stderr)
        );
        String::from_utf8(done.stdout).unwrap()
    }

    fn commit(
        &self,
        below: &str,
        collected: &CollectedChanges,
        branch: &str,
    ) -> Result<CommitOutcome, Fault> {
        let project = self.dir.path().join(below);
        let host = HostRepository::open(&project, Path::new("git"))?;
        let mut builder = HostBuilder::new(&project);
        super::commit(
            collected,
            None,
            &host,
            &mut builder,
            branch,
            "from a sandbox\n",
        )
    }
}

#[test]
fn a_change_set_becomes_one_commit_and_nothing_else_moves() {
    let fixture = Fixture::new();
    // A hook that runs would leave a file.
    let hook = fixture.dir.path().join(".git/hooks/reference-transaction");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\ntouch \"$PWD/hooked\"\n").unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(fixture.dir.path().join("sub/keep"), "not committed\n").unwrap();
    let status = fixture.git(&["status", "--porcelain"]);
    let changes = collected(&[
        (b"gone", None),
        (b"new \"name\"\n", Some(b"#!/bin/sh\n")),
        (b"deep/er", Some(b"no newline")),
        (b"noise.log", Some(b"left out")),
    ]);
    let done = fixture.commit("sub", &changes, "box/fix").unwrap();
    assert_eq!(done.paths, 3);
    assert_eq!(done.ignored, [RelPath::new("noise.log").unwrap()]);
    let commit = done.commit.unwrap();
    assert_eq!(fixture.git(&["rev-parse", "box/fix"]).trim(), commit);
    assert_eq!(
        fixture
            .git(&[
                "diff",
                "--raw",
                "--abbrev=1",
                "-z",
                "--no-renames",
                "main",
                "box/fix"
            ])
            .split('\0')
            .filter(|part| !part.is_empty())
            .map(|part| part.split(' ').next_back().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
            .len(),
        6
    );
    assert_eq!(fixture.git(&["show", "box/fix:sub/deep/er"]), "no newline");
    assert_eq!(
        fixture.git(&["show", "box/fix:sub/new \"name\"\n"]),
        "#!/bin/sh\n"
    );
    assert_eq!(
        fixture
            .git(&["log", "-1", "--format=%an <%ae> %s", "box/fix"])
            .trim(),
        "A Person <person@example.org> from a sandbox"
    );
    assert_eq!(fixture.git(&["status", "--porcelain"]), status);
    assert_eq!(fixture.git(&["branch", "--show-current"]).trim(), "main");
    assert!(!fixture.dir.path().join("hooked").exists());
    assert!(!fixture.dir.path().join("sub/hooked").exists());
}

#[test]
fn what_git_cannot_do_is_said_with_its_remedy() {
    let fixture = Fixture::new();
    let changes = collected(&[(b"x", Some(b"y"))]);
    let code = |branch: &str| fixture.commit("", &changes, branch).unwrap_err().code;
    assert_eq!(code("main"), Code::AlreadyExists);
    assert_eq!(code("bad..name"), Code::InvalidArgument);
    assert_eq!(code("--force"), Code::InvalidArgument);
    fixture.git(&["config", "user.email", ""]);
    fixture.git(&["config", "user.name", ""]);
    let fault = fixture.commit("", &changes, "fresh").unwrap_err();
    assert!(fault.message.contains("who you are"), "{fault}");
    assert!(
        fault
            .remedy
            .unwrap()
            .to_string()
            .contains("git config user.email")
    );

    let empty = tempfile::tempdir().unwrap();
    let outside = HostRepository::open(empty.path(), Path::new("git")).unwrap_err();
    assert_eq!(outside.code, Code::NotFound);
    let none = HostRepository::open(fixture.dir.path(), Path::new("/no/git")).unwrap_err();
    assert_eq!(none.code, Code::CommandNotFound);
}

#[test]
fn a_sandbox_that_writes_on_makes_no_commit() {
    let fixture = Fixture::new();
    let set = collected(&[(b"x", Some(b"collected"))]).set;
    for lie in [&b"different"[..], b"short", b"much longer than it was"] {
        let held = HashMap::from([(b"x".to_vec(), lie.to_vec())]);
        let lying = CollectedChanges::new(set.clone(), Box::new(MapContents(held)));
        let fault = fixture.commit("", &lying, "fresh").unwrap_err();
        assert_eq!(fault.code, Code::DigestMismatch, "{fault}");
        assert!(!fixture.git(&["branch", "--list"]).contains("fresh"));
    }
}
