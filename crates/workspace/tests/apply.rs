//! Applies changes to a real directory whose host has changed meanwhile.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod fixture;

use fixture::{Fixture, Tree, path};
use glovebox_proto::Code;
use glovebox_workspace::apply::{Destination, commit};
use glovebox_workspace::{ConflictReason, Effect, Options, Resolution, Stage};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

const FORCE: Options = Options::all(Resolution::Theirs);

#[test]
fn everything_a_sandbox_did_arrives() {
    let fixture = Fixture::new(1);
    for (name, text) in [
        ("edit", "old"),
        ("gone", "g"),
        ("mode", "m"),
        ("old/name", "moved"),
        ("dir/in", "i"),
    ] {
        fixture.host(name, text);
    }
    fixture.host("to-dir", "f");
    fixture.host("to-file/x", "f");
    fixture.push();
    fixture.layer(0, "edit", "new!");
    fixture.whiteout(0, "gone");
    fixture.layer(0, "mode", "m");
    fixture.make_executable(0, "mode");
    fixture.whiteout(0, "old");
    fixture.layer(0, "new/name", "moved");
    fixture.whiteout(0, "dir");
    fixture.layer(0, "tool", "t");
    fixture.make_executable(0, "tool");
    fixture.layer_link(0, "link", "edit");
    fixture.layer(0, "to-dir/now/in", "d");
    fixture.layer(0, "to-file", "now a file");
    let outcome = fixture.pull(Options::default()).unwrap();
    assert!(
        outcome.conflicts.is_empty() && outcome.refused.is_empty(),
        "{outcome:?}"
    );
    assert_eq!(
        fixture.tree().lines(),
        [
            "edit - new!",
            "link -> edit",
            "mode x m",
            "new/",
            "new/name - moved",
            "to-dir/",
            "to-dir/now/",
            "to-dir/now/in - d",
            "to-file - now a file",
            "tool x t",
        ]
    );
    let renamed = outcome
        .applied
        .iter()
        .find(|done| done.path == path("new/name"))
        .unwrap();
    assert_eq!(
        renamed.effect,
        Effect::Renamed {
            source: path("old/name")
        }
    );
    // A second pull has nothing to do.
    assert!(fixture.lines().is_empty());
    let again = fixture.pull(Options::default()).unwrap();
    assert!(
        again.applied.is_empty() && again.conflicts.is_empty(),
        "{again:?}"
    );
}

#[test]
fn a_second_pull_knows_the_first() {
    let fixture = Fixture::new(1);
    fixture.host("file", "1");
    fixture.host("removed", "1");
    fixture.push();
    fixture.layer(0, "file", "2");
    fixture.layer(0, "added", "2");
    fixture.pull(Options::default()).unwrap();
    for (name, text) in [("file", "3"), ("added", "three")] {
        fixture.layer(0, name, text);
    }
    fixture.whiteout(0, "removed");
    let outcome = fixture.pull(Options::default()).unwrap();
    assert!(outcome.conflicts.is_empty(), "{outcome:?}");
    assert_eq!(fixture.tree().lines(), ["added - three", "file - 3"]);
    // A later edit of the host is a change of the host.
    fixture.host("file", "host");
    fixture.layer(0, "file", "4");
    let outcome = fixture.pull(Options::default()).unwrap();
    assert_eq!(outcome.conflicts[0].reason, ConflictReason::ChangedOnHost);
}

#[test]
fn a_file_changed_on_both_sides_is_never_lost() {
    let fixture = Fixture::new(1);
    for name in ["both", "deleted-here", "deleted-there", "same"] {
        fixture.host(name, "base");
    }
    fixture.push();
    fixture.host("both", "host");
    fixture.host("same", "agreed");
    fixture.host("new", "host");
    fixture.host("deleted-there", "host");
    fs::remove_file(fixture.project().join("deleted-here")).unwrap();
    fixture.layer(0, "both", "sandbox");
    fixture.layer(0, "same", "agreed");
    fixture.layer(0, "new", "sandbox");
    fixture.layer(0, "deleted-here", "sandbox");
    fixture.whiteout(0, "deleted-there");
    // The name for the sandbox's version may be in use.
    fixture.host("both.theirs", "mine");
    let outcome = fixture.pull(Options::default()).unwrap();
    let conflicts: Vec<_> = outcome
        .conflicts
        .iter()
        .map(|conflict| {
            (
                conflict.path.to_string(),
                conflict.reason,
                conflict.theirs.is_some(),
            )
        })
        .collect();
    let expected = [
        ("both", ConflictReason::ChangedOnHost, true),
        ("deleted-here", ConflictReason::DeletedOnHost, true),
        ("deleted-there", ConflictReason::DeletedInSandbox, false),
        ("new", ConflictReason::AddedOnHost, true),
    ]
    .map(|(name, reason, has_theirs)| (name.to_owned(), reason, has_theirs));
    assert_eq!(conflicts, expected);
    let lines = [
        "both - host",
        "both.theirs - mine",
        "both.theirs.1 - sandbox",
        "deleted-here.theirs - sandbox",
        "deleted-there - host",
        "new - host",
        "new.theirs - sandbox",
        "same - agreed",
    ];
    assert_eq!(fixture.tree().lines(), lines);
    // A second pull puts no further version beside it.
    fixture.pull(Options::default()).unwrap();
    assert_eq!(fixture.tree().lines(), lines);
    // With `FORCE` the sandbox's version is taken, and the host's is kept.
    let outcome = fixture.pull(FORCE).unwrap();
    assert!(outcome.conflicts.is_empty(), "{outcome:?}");
    let lines = fixture.tree().lines();
    for line in [
        "both - sandbox",
        "both.orig - host",
        "deleted-here - sandbox",
        "deleted-there.orig - host",
        "new - sandbox",
        "new.orig - host",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:?}");
    }
    assert!(!lines.iter().any(|line| line.starts_with("deleted-there -")));
}

#[test]
fn a_directory_with_other_content_stays() {
    let fixture = Fixture::new(1);
    fixture.host("dir/known", "k");
    fixture.host("file/known", "k");
    fixture.push();
    fixture.host("dir/new", "host");
    fixture.host("file/new", "host");
    fixture.whiteout(0, "dir");
    fixture.layer(0, "file", "now a file");
    for options in [Options::default(), FORCE] {
        let outcome = fixture.pull(options).unwrap();
        let reasons: Vec<_> = outcome
            .conflicts
            .iter()
            .filter(|conflict| conflict.reason == ConflictReason::DirectoryNotEmpty)
            .map(|conflict| conflict.path.to_string())
            .collect();
        assert_eq!(reasons, ["dir", "file"]);
    }
    let lines = fixture.tree().lines();
    assert!(
        lines.iter().any(|line| line == "file.theirs - now a file"),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("file/new")),
        "{lines:?}"
    );
}

#[test]
fn what_cannot_be_put_into_a_directory_is_put_beside_it() {
    let fixture = Fixture::new(1);
    fixture.host("dir/file", "1");
    fixture.push();
    fixture.layer(0, "dir/file", "sandbox");
    fixture.layer(0, "dir/deep/new", "sandbox");
    fs::remove_dir_all(fixture.project().join("dir")).unwrap();
    fixture.host("dir", "host's file");
    let outcome = fixture.pull(Options::default()).unwrap();
    assert!(outcome.applied.is_empty(), "{outcome:?}");
    assert_eq!(
        fixture.tree().lines(),
        [
            "dir - host's file",
            "dir.theirs/",
            "dir.theirs/deep/",
            "dir.theirs/deep/new - sandbox",
            "dir.theirs/file - sandbox",
        ]
    );
}

#[test]
fn links_of_the_host_are_not_followed() {
    let fixture = Fixture::new(1);
    fixture.host("dir/file", "1");
    fixture.host("file", "1");
    fixture.push();
    fixture.layer(0, "dir/file", "sandbox");
    fixture.layer(0, "file", "sandbox");
    fs::write(fixture.scratch().join("file"), "outside").unwrap();
    fs::remove_dir_all(fixture.project().join("dir")).unwrap();
    symlink(fixture.scratch(), fixture.project().join("dir")).unwrap();
    fs::remove_file(fixture.project().join("file")).unwrap();
    symlink(
        fixture.scratch().join("file"),
        fixture.project().join("file"),
    )
    .unwrap();
    let outcome = fixture.pull(FORCE).unwrap();
    assert_eq!(
        fs::read(fixture.scratch().join("file")).unwrap(),
        b"outside"
    );
    assert_eq!(fs::read_dir(fixture.scratch()).unwrap().count(), 1);
    assert_eq!(outcome.conflicts, []);
    // The links were moved aside, and real files replace them.
    let lines = fixture.tree().lines();
    for line in ["dir/file - sandbox", "file - sandbox"] {
        assert!(lines.iter().any(|found| found == line), "{lines:?}");
    }
}

#[test]
fn permissions_are_the_hosts_business() {
    let fixture = Fixture::new(1);
    fixture.host("private", "1");
    fs::set_permissions(
        fixture.project().join("private"),
        fs::Permissions::from_mode(0o640),
    )
    .unwrap();
    fixture.push();
    fixture.layer(0, "private", "2");
    let in_layer = fixture.layer_path(0, "private");
    fs::set_permissions(in_layer, fs::Permissions::from_mode(0o6777)).unwrap();
    fixture.layer(0, "new", "n");
    let in_layer = fixture.layer_path(0, "new");
    fs::set_permissions(in_layer, fs::Permissions::from_mode(0o4777)).unwrap();
    fixture.pull(Options::default()).unwrap();
    let mode = |name: &str| fs::metadata(fixture.project().join(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("private"), 0o750, "{:o}", mode("private"));
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    assert_eq!(mode("new"), 0o777 & !umask.as_raw_mode());
}

#[test]
fn another_destination_is_compared_by_content() {
    let fixture = Fixture::new(1);
    for name in ["edit", "gone", "differs", "absent"] {
        fixture.host(name, "base");
    }
    fixture.push();
    for name in ["edit", "differs", "absent", "sub/new"] {
        fixture.layer(0, name, "sandbox");
    }
    fixture.whiteout(0, "gone");
    for (name, text) in [("edit", "base"), ("gone", "base"), ("differs", "otherwise")] {
        fixture::write(&fixture.scratch(), name, text);
    }
    let outcome = fixture
        .pull_to(&fixture.scratch(), None, Options::default())
        .unwrap();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(
        Tree::read(&fixture.scratch()).lines(),
        [
            "absent - sandbox",
            "differs - otherwise",
            "differs.theirs - sandbox",
            "edit - sandbox",
            "sub/",
            "sub/new - sandbox",
        ]
    );
    // The project is unchanged.
    assert_eq!(fixture.tree().lines().len(), 4);
}

#[test]
fn one_at_a_time() {
    let fixture = Fixture::new(1);
    let first = Destination::open(&fixture.project(), None).unwrap();
    let error = Destination::open(&fixture.project(), None).unwrap_err();
    assert_eq!(error.fault.code, Code::Busy);
    assert!(error.fault.is_retryable);
    Destination::look(&fixture.project(), None).unwrap();
    drop(first);
    Destination::open(&fixture.project(), None).unwrap();
}

#[test]
fn a_host_that_changes_in_between_stops_everything() {
    let fixture = Fixture::new(1);
    for name in ["a", "m", "z"] {
        fixture.host(name, "base");
    }
    fixture.push();
    for name in ["a", "b", "m", "z"] {
        fixture.layer(0, name, "sandbox");
    }
    let (staged, lock) = fixture.stage(Options::default()).unwrap();
    fixture.host("m", "host");
    let before = fixture.tree().without_staging();
    let error = commit(&staged.hand_over(), &mut |_| {}).unwrap_err();
    assert_eq!(
        (error.stage, error.fault.code),
        (Stage::Apply, Code::Busy),
        "{error}"
    );
    assert_eq!(fixture.tree(), before);
    drop(lock);
    // New files at the paths have the same effect.
    let (staged, _lock) = fixture.stage(Options::default()).unwrap();
    fixture.host("b", "host");
    let before = fixture.tree().without_staging();
    commit(&staged.hand_over(), &mut |_| {}).unwrap_err();
    assert_eq!(fixture.tree(), before);
}

#[test]
fn a_sandbox_that_changes_in_between_is_noticed() {
    let fixture = Fixture::new(1);
    fixture.push();
    for (name, other) in [
        ("content", "evil"),
        ("longer", "much longer than before"),
        ("link", ""),
    ] {
        fixture.layer(0, name, "good");
        let collected = fixture.collect();
        let at = fixture.layer_path(0, name);
        if name == "link" {
            fs::remove_file(&at).unwrap();
            symlink("/etc/passwd", &at).unwrap();
        } else {
            fs::write(&at, other).unwrap();
        }
        let mut destination = Destination::open(&fixture.project(), None).unwrap();
        let plan = destination.plan(&collected, Options::default()).unwrap();
        let error = destination
            .stage(&plan, &collected, &mut |_| ControlFlow::Continue(()))
            .unwrap_err();
        assert!(
            matches!(error.stage, Stage::Validate | Stage::Transfer),
            "{error}"
        );
        fs::remove_file(&at).unwrap();
    }
    assert!(fixture.tree().lines().is_empty());
    assert_eq!(fs::read_dir(fixture.project()).unwrap().count(), 0);
}

#[test]
fn what_is_dropped_leaves_nothing() {
    let fixture = Fixture::new(1);
    fixture.layer(0, "new", "n");
    let (staged, lock) = fixture.stage(Options::default()).unwrap();
    assert!(staged.path().exists());
    drop(staged);
    assert_eq!(fs::read_dir(fixture.project()).unwrap().count(), 0);
    // An apply that is stopped between staging and commit.
    let collected = fixture.collect();
    drop(lock);
    let mut destination = Destination::open(&fixture.project(), None).unwrap();
    let plan = destination.plan(&collected, Options::default()).unwrap();
    let error = destination
        .stage(&plan, &collected, &mut |_| ControlFlow::Break(()))
        .unwrap_err();
    assert_eq!(error.fault.code, Code::Cancelled);
    assert_eq!(fs::read_dir(fixture.project()).unwrap().count(), 0);
}

#[test]
fn a_staging_directory_from_elsewhere_is_not_believed() {
    let fixture = Fixture::new(1);
    fixture.layer(0, "new", "n");
    let (staged, lock) = fixture.stage(Options::default()).unwrap();
    // As a clone of a hostile repository would bring it: the same content in another directory.
    let forged = fixture.project().join(".glovebox-pull-forged");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(staged.path())
        .arg(&forged)
        .status()
        .unwrap();
    assert!(copied.success());
    fs::write(forged.join("committing"), "").unwrap();
    drop(staged);
    drop(lock);
    commit(&forged, &mut |_| {}).unwrap_err();
    drop(Destination::open(&fixture.project(), None).unwrap());
    assert!(forged.join("journal").exists());
    assert!(!fixture.project().join("new").exists());
}

#[test]
fn what_a_file_of_the_host_has_beside_its_content_stays() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let fixture = Fixture::new(1);
    fixture.host("kept", "before\n");
    let at = fixture.project().join("kept");
    // Version 2; owner rwx, user 12345 rw-, group r--, mask rw-, others nothing.
    let entry = |tag: u16, rights: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &rights.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let list = [
        2_u32.to_le_bytes().to_vec(),
        entry(0x01, 7, u32::MAX),
        entry(0x02, 6, 12_345),
        entry(0x04, 4, u32::MAX),
        entry(0x10, 6, u32::MAX),
        entry(0x20, 0, u32::MAX),
    ]
    .concat();
    let set = |name: &str, value: &[u8]| setxattr(&at, name, value, XattrFlags::empty());
    let has_user = set("user.note", b"of the host").is_ok();
    let has_list = set("system.posix_acl_access", &list).is_ok();
    if !has_user && !has_list {
        testkit::skip!("needs a file system with extended attributes");
    }
    fixture.push();
    fixture.layer(0, "kept", "after\n");
    fixture.attribute(0, "kept", "user.note", "of the sandbox");
    fixture.attribute(0, "kept", "user.other", "of the sandbox");
    fixture.pull(Options::default()).unwrap();
    assert_eq!(fs::read_to_string(&at).unwrap(), "after\n");
    let get = |name: &str| {
        let mut value = vec![0; 256];
        let length = getxattr(&at, name, &mut value[..]).ok()?;
        value.truncate(length);
        Some(value)
    };
    if has_user {
        assert_eq!(get("user.note").as_deref(), Some(&b"of the host"[..]));
    }
    if has_list {
        // The executable bit follows the sandbox, which had cleared it: it is gone from the list
        // too.
        let now = get("system.posix_acl_access").unwrap();
        assert_eq!(now.len(), list.len());
        assert_eq!(now[12..20], list[12..20], "the other user's rights");
        assert_eq!(now[4..12], entry(0x01, 6, u32::MAX), "the owner's rights");
    }
    assert_eq!(get("user.other"), None);
}

/// A package manager links one file to many names.
#[test]
fn changes_of_several_hard_links_of_one_file_arrive() {
    let fixture = Fixture::new(1);
    for (of, names) in [("a", &["b", "c", "d", "left"][..]), ("e", &["f"])] {
        fixture.host(of, "same");
        for name in names {
            fs::hard_link(fixture.project().join(of), fixture.project().join(name)).unwrap();
        }
    }
    fixture.push();
    for name in ["a", "b"] {
        fixture.whiteout(0, name);
    }
    fixture.layer(0, "c", "other c");
    fixture.layer(0, "d", "other d");
    for name in ["e", "f"] {
        fixture.layer(0, name, "same");
        fixture.make_executable(0, name);
    }
    let outcome = fixture.pull(Options::default()).unwrap();
    assert!(outcome.conflicts.is_empty(), "{outcome:?}");
    assert_eq!(
        fixture.tree().lines(),
        [
            "c - other c",
            "d - other d",
            "e x same",
            "f x same",
            "left - same"
        ]
    );

    // The link that stays was not changed by the host, although its times differ.
    fixture.layer(0, "left", "other");
    let outcome = fixture.pull(Options::default()).unwrap();
    assert!(outcome.conflicts.is_empty(), "{outcome:?}");
    assert!(
        fixture.tree().lines().contains(&"left - other".to_owned()),
        "{:?}",
        fixture.tree().lines()
    );
}
