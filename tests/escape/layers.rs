//! The layers below: whatever is done inside, the project and the host's programs stay as they are.

use crate::arena::{Arena, Shape};
use crate::script::{perl, sh, sh_ok};
use glovebox_workspace::collect::{LayerPaths, from_layers};
use glovebox_workspace::{ChangeKind, Filter, Quota};
use std::fs;
use std::ops::ControlFlow;
use testkit::Canary;

/// Write, truncate, map, link, chmod, rename and remove everything in the project and in /usr -> no
/// byte of the host changes. Twin: inside, every change shows.
#[test]
fn probe_49_lower_immutability() {
    let arena = Arena::new();
    let canary = Canary::plant(arena.home.project().join("canary"));
    arena.home.write("project/mapped", vec![b'a'; 8192]);
    let project = Canary::watch(arena.home.project());
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            include_str!("probes/probe_49_lower_immutability.pl"),
        );
        for name in [
            "write", "chmod", "utime", "truncate", "link", "unlink", "rmdir", "mkdir", "xattr",
            "mmap",
        ] {
            found.worked(name);
        }
        // A descriptor from before the copy-up goes on showing what it showed, or follows.
        assert!(
            ["canary", "changed"].contains(&found.get("early")),
            "{shape:?}"
        );
        assert_eq!(found.get("mapped"), "zzzz", "{shape:?}");
        if shape != Shape::Dir {
            found.all_refused("usr/", &["EROFS", "EACCES", "EPERM", "EXDEV", "EBUSY"]);
            // /proc/PID/mem may write to pages of one's own copy; never to the file.
            assert_eq!(sh_ok(sandbox, "/usr/bin/env echo fine"), "fine\n");
        }
        assert!(
            sh(
                sandbox,
                "rm -rf /workspace/* /workspace/.[!.]*; ls -A /workspace"
            )
            .out
            .is_empty()
        );
        canary.assert_untouched();
        project.assert_untouched();
    });
    project.assert_untouched();
}

/// Marks of the overlay itself, forged from inside -> refused or inert, and nothing of the host shows
/// or changes by them.
#[test]
fn attack_forged_overlay_marks() {
    let arena = Arena::new();
    arena.home.write("project/dir/below", "below\n");
    arena.home.write("project/victim", "victim\n");
    let project = Canary::watch(arena.home.project());
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            include_str!("probes/attack_forged_overlay_marks.pl"),
        );
        for (name, value) in found.below("mark/trusted") {
            assert_ne!(value, "ok", "{shape:?}: {name}");
        }
        found.all_refused(
            "other/security.capability",
            &["EPERM", "EINVAL", "EOPNOTSUPP"],
        );
        found.all_refused("other/trusted", &["EPERM", "EOPNOTSUPP"]);
        found.refused("whiteout", &["EPERM"]);
        found.worked("list");
        found.worked("below");
        found.worked("own");
        // Whatever was accepted is data of the sandbox: the view stays the same.
        assert_eq!(sh_ok(sandbox, "cat /workspace/victim"), "victim\n");
        assert!(
            sh(sandbox, "ls /workspace/new/ /workspace/dir/")
                .out
                .contains("below")
        );
        assert!(!sh(sandbox, "cat /workspace/new/shadow /workspace/dir/shadow").succeeded());
    });
    project.assert_untouched();
    // What is listed as changed is what was changed.
    let sandbox = arena.sandbox();
    sh_ok(
        &sandbox,
        "rm /workspace/victim; echo more >> /workspace/dir/below; echo new > /workspace/added",
    );
    let layers = sandbox.workspace_layers().expect("layers");
    let source = LayerPaths {
        project: layers.project.as_deref(),
        layers: &layers.layers,
        hidden: &layers.hidden,
        base: Some(&layers.base),
    };
    let collected = from_layers(&source, &Filter::default(), &Quota::default(), &mut |_| {
        ControlFlow::Continue(())
    })
    .expect("changes");
    let changes: Vec<String> = collected
        .set
        .changes
        .iter()
        .map(|change| {
            let kind = match change.kind {
                ChangeKind::Added { .. } => "Added",
                ChangeKind::Modified { .. } => "Modified",
                ChangeKind::Deleted { .. } => "Deleted",
                ChangeKind::Renamed { .. } => "Renamed",
            };
            format!("{kind} {}", change.path)
        })
        .collect();
    assert_eq!(
        changes,
        ["Added added", "Modified dir/below", "Deleted victim"]
    );
    project.assert_untouched();
}

/// Hard links and unnamed files across the mounts -> stay apart. Twin: within the workspace they work.
#[test]
fn attack_links_across_mounts() {
    let arena = Arena::new();
    arena.home.write("project/file", "project\n");
    let project = Canary::watch(arena.home.project());
    arena.in_every_shape(|_, sandbox| {
        let found = perl(
            sandbox,
            include_str!("probes/attack_links_across_mounts.pl"),
        );
        for (name, value) in found
            .below("link")
            .chain(found.below("by-"))
            .chain(found.below("tmpfile"))
        {
            // The root and the workspace of a small image are different mounts as well.
            assert!(
                ["EXDEV", "EPERM", "EACCES", "ENOENT", "EROFS"].contains(&value),
                "{name} came out as {value}"
            );
        }
        found.worked("own");
    });
    project.assert_untouched();
    assert_eq!(
        fs::metadata(arena.home.project().join("file"))
            .map(|meta| std::os::unix::fs::MetadataExt::nlink(&meta))
            .ok(),
        Some(1)
    );
}
