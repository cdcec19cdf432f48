//! Collects changes from layers as the kernel, or a hostile sandbox, leaves them.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod fixture;

use fixture::Fixture;
use glovebox_proto::Code;
use glovebox_workspace::{ChangeKind, Flag, Node, Quota, RefusalReason};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

#[test]
fn nothing_changed_is_nothing() {
    let fixture = Fixture::new(1);
    fixture.host("a", "1");
    fixture.host("dir/b", "2");
    // Copied up by a program that opened the file for writing and wrote the same content.
    fixture.layer(0, "dir/b", "2");
    assert_eq!(fixture.lines(), Vec::<String>::new());
    assert!(fixture.collect().set.refused.is_empty());
}

#[test]
fn every_kind_of_change_is_found() {
    let fixture = Fixture::new(1);
    for (path, text) in [
        ("keep", "k"),
        ("edit", "old"),
        ("gone", "g"),
        ("mode", "m"),
        ("dir/in", "i"),
    ] {
        fixture.host(path, text);
    }
    symlink("keep", fixture.project().join("link")).unwrap();
    fixture.layer(0, "edit", "new!");
    fixture.whiteout(0, "gone");
    fixture.layer(0, "mode", "m");
    fixture.make_executable(0, "mode");
    fixture.whiteout(0, "dir");
    fixture.layer(0, "new/deep/file", "n");
    fixture.layer_link(0, "link", "edit");
    assert_eq!(
        fixture.lines(),
        [
            "D dir",
            "D dir/in",
            "M edit",
            "D gone",
            "M link",
            "M mode",
            "A new",
            "A new/deep",
            "A new/deep/file",
        ]
    );
    let collected = fixture.collect();
    let mut text = String::new();
    let path = fixture::path("new/deep/file");
    collected
        .open(&path)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "n");
    text.clear();
    let path = fixture::path("edit");
    collected
        .open_base(&path)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "old");
}

#[test]
fn layers_are_merged_by_the_rules_of_the_overlay() {
    let fixture = Fixture::new(3);
    for path in ["a", "b", "c", "opaque/host", "opaque/both", "back"] {
        fixture.host(path, "host");
    }
    // Oldest: deletes `a` and `back`, changes `b`, and creates a file that a later layer removes.
    fixture.whiteout(2, "a");
    fixture.whiteout(2, "back");
    fixture.layer(2, "b", "oldest");
    fixture.layer(2, "passing", "x");
    fixture.layer(2, "opaque/old-layer", "x");
    // Middle: changes `b` again, creates `back` with its former content, removes `passing`.
    fixture.layer(1, "b", "middle");
    fixture.layer(1, "back", "host");
    fixture.whiteout(1, "passing");
    // Newest: a directory that was removed and created again.
    fixture.layer(0, "opaque/both", "other");
    fixture.opaque(0, "opaque");
    assert_eq!(
        fixture.lines(),
        ["D a", "M b", "M opaque/both", "D opaque/host"]
    );
    let mut text = String::new();
    fixture
        .collect()
        .open(&fixture::path("b"))
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "middle");
}

#[test]
fn what_something_is_may_change() {
    let fixture = Fixture::new(1);
    fixture.host("file", "f");
    fixture.host("dir/x/y", "1");
    fixture.host("to-link", "l");
    fixture.layer(0, "file/now/inside", "i");
    fixture.layer(0, "dir", "now a file");
    fixture.layer_link(0, "to-link", "file");
    assert_eq!(
        fixture.lines(),
        [
            "M dir",
            "D dir/x",
            "D dir/x/y",
            "M file",
            "A file/now",
            "A file/now/inside",
            "M to-link"
        ]
    );
    let set = fixture.collect().set;
    assert_eq!(set.changes[0].from(), Some(&Node::Dir));
}

#[test]
fn renames_are_found_by_content_and_by_likeness() {
    let fixture = Fixture::new(1);
    let text: String = (10..60).map(fixture::line).collect();
    fixture.host("exact", "the same");
    fixture.host("like.rs", &text);
    fixture.host("unlike", "nothing of this remains\n");
    for path in ["exact", "like.rs", "unlike"] {
        fixture.whiteout(0, path);
    }
    fixture.layer(0, "moved/exact", "the same");
    fixture.layer(0, "moved/like.rs", &text.replace("line 17\n", "seven\n"));
    fixture.layer(0, "moved/unlike", "all new words here\n");
    assert_eq!(
        fixture.lines(),
        [
            "A moved",
            "R exact -> moved/exact",
            "R like.rs -> moved/like.rs",
            "A moved/unlike",
            "D unlike",
        ]
    );
}

#[test]
fn what_a_hostile_sandbox_plants_stays_there() {
    let fixture = Fixture::new(1);
    fixture.host("dir/file", "host");
    fixture.host("replaced", "host");
    fixture.host(".git/config", "host");
    symlink("/etc/passwd", fixture.scratch().join("target")).unwrap();
    fixture.layer_link(0, "evil", "/etc");
    fixture.layer_link(0, "up", "../../x");
    // A directory of the host that became a link leading out: its content is not deleted.
    fixture.layer_link(0, "dir", "/etc");
    fixture.fifo(0, "replaced");
    fixture.fifo(0, "pipe");
    fixture.socket(0, "socket");
    fixture.layer(0, ".git/hooks/post-checkout", "#!/bin/sh");
    fixture.layer(0, "sub/.git/config", "[core]");
    fixture.layer(0, "sub/.GIT/config", "[core]");
    fixture.layer(0, ".glovebox-pull-1234/journal", "forged");
    fixture.layer(0, "setuid", "s");
    let setuid = fixture.layer_path(0, "setuid");
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o6755)).unwrap();
    fs::hard_link(&setuid, fixture.layer_path(0, "second")).unwrap();
    let collected = fixture.collect();
    let refused: Vec<String> = collected
        .set
        .refused
        .iter()
        .map(|refusal| {
            format!(
                "{} {:?}",
                String::from_utf8_lossy(&refusal.path),
                refusal.reason
            )
        })
        .collect();
    for expected in [
        "evil LinkLeadsOut",
        "up LinkLeadsOut",
        "dir LinkLeadsOut",
        "replaced Special",
        "pipe Special",
        "socket Special",
        ".git Git",
        "sub/.git Git",
        "sub/.GIT Git",
        ".glovebox-pull-1234 Reserved",
    ] {
        assert!(
            refused.iter().any(|line| line == expected),
            "{expected}: {refused:?}"
        );
    }
    assert_eq!(refused.len(), 10, "{refused:?}");
    assert_eq!(fixture.lines(), ["A second", "A setuid", "A sub"]);
    assert_eq!(
        collected.set.changes[1].flags,
        [Flag::SpecialMode, Flag::HardLink, Flag::MadeExecutable]
    );
}

#[test]
fn forged_attributes_mean_nothing() {
    let fixture = Fixture::new(1);
    fixture.host("dir/file", "host");
    fixture.host("other", "host");
    fixture.layer(0, "dir/new", "n");
    for (name, value) in [
        ("user.overlay.opaque", "x"),
        ("user.overlay.redirect", "/other"),
        ("user.overlay.overlay.opaque", "y"),
        ("trusted.overlay.opaque", "y"),
    ] {
        fixture.attribute(0, "dir", name, value);
    }
    fixture.layer(0, "empty", "");
    fixture.attribute(0, "empty", "user.overlay.whiteout", "");
    fixture.attribute(0, "empty", "user.overlay.metacopy", "");
    fixture.attribute(0, "empty", "user.overlay.redirect", "/other");
    assert_eq!(fixture.lines(), ["A dir/new", "A empty"]);
}

#[test]
fn names_are_bytes() {
    let fixture = Fixture::new(1);
    let name = fixture::path(b"\xff\xfe \n\"'\\*".to_vec());
    fs::write(fixture.layer_path(0, "").join(name.as_path()), "x").unwrap();
    let set = fixture.collect().set;
    assert_eq!(set.changes.len(), 1);
    assert_eq!(set.changes[0].path, name);
}

#[test]
fn hidden_names_neither_come_back_nor_go_away() {
    let mut fixture = Fixture::new(1);
    fixture.host(".env", "secret");
    fixture.host("dir/.env", "secret");
    fixture.host("dir/other", "o");
    fixture.host("quiet/.env", "secret");
    fixture.hide(&[".env", "dir/.env", "quiet/.env"]);
    fixture.layer(0, ".env", "planted");
    // `rm -rf dir`, where the sandbox only saw `other`.
    fixture.whiteout(0, "dir");
    // Created and removed again by the sandbox.
    fixture.whiteout(0, "quiet/.env");
    assert_eq!(fixture.lines(), ["D dir/other"]);
    let refused = fixture.collect().set.refused;
    let paths: Vec<_> = refused.iter().map(|refusal| refusal.path.clone()).collect();
    assert_eq!(paths, [b".env".to_vec(), b"dir/.env".to_vec()]);
    assert!(
        refused
            .iter()
            .all(|refusal| refusal.reason == RefusalReason::Excluded)
    );
}

#[test]
fn patterns_leave_out_and_take_in() {
    let mut fixture = Fixture::new(1);
    fixture.host("dist/old", "host");
    fixture.layer(0, "dist/report.html", "r");
    fixture.layer(0, "dist/other", "o");
    fixture.whiteout(0, "dist/old");
    fixture.layer(0, "node_modules/a/b", "x");
    fixture.layer(0, "trace.log", "x");
    fixture.layer(0, "src", "s");
    fixture.filter(&["dist/", "node_modules", "*.log"], &["dist/report.html"]);
    assert_eq!(fixture.lines(), ["A dist/report.html", "A src"]);
    let refused: Vec<_> = fixture
        .collect()
        .set
        .refused
        .into_iter()
        .map(|refusal| String::from_utf8(refusal.path).unwrap())
        .collect();
    assert_eq!(refused, ["dist", "node_modules", "trace.log"]);
}

#[test]
fn what_nobody_may_read_is_named() {
    if rustix::process::geteuid().is_root() {
        // Root can read it, and so could the sandbox's root.
        return;
    }
    let fixture = Fixture::new(1);
    fixture.layer(0, "closed", "x");
    fs::set_permissions(
        fixture.layer_path(0, "closed"),
        fs::Permissions::from_mode(0o0),
    )
    .unwrap();
    fixture.layer(0, "dir/inside", "x");
    let dir = fixture.layer_path(0, "dir");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o0)).unwrap();
    let refused = fixture.collect().set.refused;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(
        refused
            .iter()
            .all(|refusal| refusal.reason == RefusalReason::Unreadable)
    );
}

#[test]
fn depth_is_bounded() {
    let fixture = Fixture::new(1);
    fixture.deep(0, 4096);
    let set = fixture.collect().set;
    assert_eq!(set.changes.len(), Quota::default().max_depth);
    assert_eq!(set.refused.len(), 1);
    assert_eq!(set.refused[0].reason, RefusalReason::TooDeep);
}

#[test]
fn number_and_bytes_are_bounded() {
    let mut fixture = Fixture::new(1);
    for number in 0..30 {
        fixture.layer(0, &format!("many/{number}"), "x");
    }
    fixture.quota.max_changes = 20;
    let error = fixture.try_collect().unwrap_err();
    assert_eq!(error.fault.code, Code::TooLarge, "{error}");
    fixture.quota.max_changes = 31;
    assert_eq!(fixture.collect().set.changes.len(), 31);
    // A sparse file of 10 TiB is refused before a byte of it is read.
    let sparse = fs::File::create(fixture.layer_path(0, "sparse")).unwrap();
    sparse.set_len(10 << 40).unwrap();
    let started = std::time::Instant::now();
    let error = fixture.try_collect().unwrap_err();
    assert_eq!(error.fault.code, Code::TooLarge, "{error}");
    assert!(error.fault.message.contains("`sparse`"), "{error}");
    assert!(started.elapsed().as_secs() < 1);
}

#[test]
fn a_collection_can_be_stopped() {
    let fixture = Fixture::new(1);
    for number in 0..200 {
        fixture.layer(0, &format!("many/{number}"), "x");
    }
    let mut calls = 0;
    let error = fixture
        .collect_watched(&mut |_| {
            calls += 1;
            std::ops::ControlFlow::Break(())
        })
        .unwrap_err();
    assert_eq!((error.fault.code, calls), (Code::Cancelled, 1));
}

#[test]
fn the_host_removed_it_too() {
    let fixture = Fixture::new(1);
    fixture.whiteout(0, "was-here");
    fixture.whiteout(0, "dir");
    assert!(fixture.lines().is_empty());
    let kinds = fixture.collect().set.changes;
    assert!(
        !kinds
            .iter()
            .any(|change| matches!(change.kind, ChangeKind::Deleted { .. }))
    );
}

/// The sandbox controls the depth, and the collecting thread may have a small stack.
#[test]
fn deep_layers_need_no_deep_stack() {
    let small = std::thread::Builder::new().stack_size(128 << 10);
    let collected = small.spawn(|| {
        let fixture = Fixture::new(1);
        let depth = fixture.quota.max_depth;
        let dir = |depth: usize| vec!["d"; depth].join("/");
        fixture.layer(0, &format!("{}/file", dir(depth - 1)), "deep");
        fixture.layer(0, &format!("e/{}/file", dir(depth - 1)), "too deep");
        fixture.host(&format!("gone/{}/file", dir(depth / 2)), "host");
        fixture.whiteout(0, "gone");
        let collected = fixture.collect();
        let paths: Vec<_> = collected
            .set
            .changes
            .iter()
            .map(|change| change.path.to_string())
            .collect();
        (depth, paths, collected.set.refused)
    });
    let (depth, paths, refused) = collected.unwrap().join().unwrap();
    assert!(
        paths.iter().any(|path| path.ends_with("d/file")),
        "{paths:?}"
    );
    assert!(paths.iter().any(|path| path == "gone"));
    // Directories, a file, and the same in the other two trees.
    assert_eq!(paths.len(), depth + depth + (depth / 2 + 2), "{paths:?}");
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].reason, RefusalReason::TooDeep);
}
