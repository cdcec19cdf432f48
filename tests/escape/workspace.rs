//! The ways to the project: names that are hidden, a workspace that is live, and stillness.

use crate::arena::Arena;
use crate::script::{sh, sh_ok, shell};
use glovebox_proto::{Code, WriteMode};
use glovebox_sandbox::WallFact;
use glovebox_spec::{Layers, LimitState, WorkspaceAccess};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testkit::Canary;

/// Names of the project that are hidden -> absent inside, in every listing and by every path, while
/// their directories look as before. Twin: what is beside them shows.
#[test]
fn attack_hidden_names() {
    let arena = Arena::new();
    for path in [
        ".env",
        "keys/id",
        "keys/note",
        "deep/er/token",
        "tree/in/secret",
    ] {
        arena.home.write(format!("project/{path}"), "secret\n");
    }
    let keys = arena.home.project().join("keys");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o750)).expect("chmod");
    let project = Canary::watch(arena.home.project());
    for layers in [Layers::Disk, Layers::Memory] {
        if layers == Layers::Memory && !testkit::has_layers_in_memory() {
            continue;
        }
        let sandbox = arena.with(|spec| {
            spec.jail.layers = layers;
            let hidden = [".env", "keys/id", "deep/er/token", "tree", "not/there"];
            spec.jail.hidden = hidden.iter().map(PathBuf::from).collect();
        });
        assert_eq!(
            sh_ok(&sandbox, "cd /workspace && find . -mindepth 1 | sort"),
            "./deep\n./deep/er\n./keys\n./keys/note\n"
        );
        assert_eq!(sh_ok(&sandbox, "stat -c %a /workspace/keys"), "750\n");
        for path in [".env", "keys/id", "deep/er/token", "tree/in/secret"] {
            let read = format!("cat /workspace/{path} 2>&1; rm /workspace/{path} 2>&1");
            assert!(!sh(&sandbox, &read).out.contains("secret\n"), "{path}");
        }
        // The name is the sandbox's own to use.
        assert_eq!(
            sh_ok(
                &sandbox,
                "cd /workspace && echo own > .env && mkdir tree && ls -A tree && cat .env"
            ),
            "own\n"
        );
        sandbox.destroy().expect("an end in order");
    }
    project.assert_untouched();
}

/// A live workspace -> written on the host, but for what is protected, wherever its directories are
/// moved; and the report says it loudly.
#[test]
fn attack_live_workspace() {
    let arena = Arena::new();
    let project = arena.home.project();
    for path in [
        ".git/hooks/sample",
        ".git/config",
        ".git/objects/x",
        ".env",
        "src/file",
    ] {
        arena.home.write(format!("project/{path}"), "before\n");
    }
    let protected = [
        Canary::watch(project.join(".git/hooks")),
        Canary::watch(project.join(".git/config")),
    ];
    let sandbox = arena.with(|spec| {
        spec.jail.workspace_access = WorkspaceAccess::Live;
        spec.jail.hidden = vec![".env".into()];
        let paths = [".git/hooks", ".git/config", ".vscode/tasks.json"];
        spec.jail.protected = paths.iter().map(PathBuf::from).collect();
    });
    for attack in [
        "echo x > .git/hooks/post-checkout",
        "echo x >> .git/config",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/other",
        "mv .git .other",
        "mv .git/config .git/other",
        "chmod 777 .git/config",
        "ln .git/config hard && echo x >> hard",
    ] {
        let script = format!("cd /workspace && {attack}");
        assert!(!sh(&sandbox, &script).succeeded(), "{attack} went through");
    }
    assert_eq!(
        sh_ok(&sandbox, "cat /workspace/.env /workspace/.git/config"),
        "before\n"
    );
    sh_ok(
        &sandbox,
        "cd /workspace && echo after > src/file && echo new > new && echo y > .git/objects/y",
    );
    let report = sandbox.report().expect("a report");
    let wall = report
        .walls
        .iter()
        .find(|wall| wall.name == "workspace")
        .expect("a line");
    assert_eq!(wall.state, LimitState::Absent);
    assert!(
        wall.detail.contains("LIVE") && wall.detail.contains(".git/hooks"),
        "{wall:?}"
    );
    assert!(
        report
            .degraded
            .iter()
            .any(|line| line.contains(".vscode/tasks.json"))
    );
    assert!(sandbox.workspace_layers().is_err());
    sandbox.destroy().expect("an end in order");
    for canary in protected {
        canary.assert_untouched();
    }
    let read = |path: &str| fs::read_to_string(project.join(path)).expect("it is on the host");
    assert_eq!(
        (read("src/file"), read("new"), read(".env")),
        ("after\n".into(), "new\n".into(), "before\n".into())
    );
    let owner = |path: &str| {
        std::os::unix::fs::MetadataExt::uid(&fs::metadata(project.join(path)).expect("it is there"))
    };
    assert_eq!(owner("new"), owner("src/file"));
}

/// A read-only workspace -> EROFS for every write there, by commands, by the guest's own file
/// operations and through every name of it, while reading works. Twin: the home beside it is written.
#[test]
fn attack_read_only_workspace() {
    let arena = Arena::new();
    for path in ["src/file", ".env"] {
        arena.home.write(format!("project/{path}"), "before\n");
    }
    let project = Canary::watch(arena.home.project());
    for layers in [Layers::Disk, Layers::Memory] {
        if layers == Layers::Memory && !testkit::has_layers_in_memory() {
            continue;
        }
        let sandbox = arena.with(|spec| {
            spec.jail.layers = layers;
            spec.jail.workspace_access = WorkspaceAccess::ReadOnly;
            spec.jail.hidden = vec![".env".into()];
        });
        assert_eq!(
            sh_ok(&sandbox, "cd /workspace && cat src/file && ls -A"),
            "before\nsrc\n"
        );
        for attack in [
            "echo x > new",
            "echo x >> src/file",
            "mkdir d",
            "rm src/file",
            "mv src other",
            "chmod 777 src/file",
            "touch src/file",
            "ln src/file hard",
            "ln -s x link",
            "mkfifo pipe",
            "exec 3< . && echo x > /proc/self/fd/3/new",
            "cd /proc/self/root/workspace && echo x > new",
        ] {
            let ran = sh(&sandbox, &format!("exec 2>&1; cd /workspace && {attack}"));
            assert!(
                !ran.succeeded() && ran.out.contains("Read-only file system"),
                "{attack}: {}",
                ran.out
            );
        }
        let remount = "mount -o remount,rw /workspace || mount --bind /tmp /workspace";
        assert!(!sh(&sandbox, remount).succeeded());
        let write = |path: &[u8]| sandbox.write_file(path, WriteMode::Replace, b"x");
        for path in [&b"/workspace/new"[..], b"/workspace/src/file"] {
            let fault = write(path).expect_err("a read-only workspace");
            assert_eq!(fault.code, Code::ReadOnly, "{fault:?}");
        }
        sh_ok(&sandbox, "echo x > ~/own && echo y > /tmp/own && cat ~/own");
        let report = sandbox.report().expect("a report");
        let is_told = |wall: &WallFact| {
            wall.name == "workspace"
                && wall.state == LimitState::Enforced
                && wall.detail.starts_with("read-only")
        };
        assert!(report.walls.iter().any(is_told), "{:?}", report.walls);
        sandbox.destroy().expect("an end in order");
    }
    project.assert_untouched();
}

/// A sandbox that is held still -> nothing it runs makes a step, however it forks; and it goes on
/// afterwards. Twin: it counts before and after.
#[test]
fn frozen_commands_make_no_step() {
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    let job = sandbox
        .start_job(shell(
            "for i in 1 2 3; do (while :; do echo x >> /workspace/n; sh -c 'sleep 0.001 & wait'; done) & done; wait",
        ))
        .expect("a job");
    let layer = sandbox
        .workspace_layers()
        .expect("layers")
        .layers
        .remove(0)
        .join("n");
    let size = || fs::metadata(&layer).map_or(0, |meta| meta.len());
    let grows = |from: u64| {
        let until = Instant::now() + Duration::from_secs(10);
        while size() <= from {
            assert!(Instant::now() < until, "no step since {from}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    grows(0);
    for _ in 0..5 {
        let frozen = sandbox.freeze().expect("stillness");
        let before = size();
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(size(), before);
        drop(frozen);
        sandbox.ping().expect("the guest answers again");
        grows(before);
    }
    let frozen = sandbox.freeze().expect("stillness");
    sandbox.destroy().expect("a frozen sandbox can be ended");
    drop((frozen, job));
}
