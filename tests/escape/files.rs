//! Reading the host's files: by path, link, descriptor, handle.

use crate::arena::{Arena, Shape};
use crate::script::{perl, sh, sh_ok};
use glovebox_spec::{Grant, RootFs};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

const CLOSED: [&str; 5] = ["ENOENT", "EACCES", "EPERM", "ENOTDIR", "ELOOP"];

/// Read secrets of the host by every way a path can be written -> not there. Twin: the project.
#[test]
fn probe_41_host_secrets() {
    let arena = Arena::new();
    arena.home.write("project/file", "project\n");
    let planted = [
        arena.home.write("home/.ssh/id_ed25519", "planted-secret"),
        arena.home.write("home/.aws/credentials", "planted-secret"),
        arena.home.write("home/.bash_history", "planted-secret"),
        arena.home.write("state/own-secret", "planted-secret"),
    ];
    let list = planted
        .iter()
        .map(|path| format!("'{}'", path.display()))
        .collect::<Vec<_>>()
        .join(", ");
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            &format!(
                r#"my @secret = ({list}, '/etc/shadow', '/etc/gshadow', '/etc/sudoers', '/etc/ssh/ssh_host_ed25519_key',
                     '/root/.ssh', '/root/.bash_history', '/root/.netrc', '/root/.npmrc', '/var/lib/docker', '/run/secrets');
                for my $s (@secret) {{ my $n = 0;
                  for my $way ($s, "/proc/self/root$s", "/proc/self/cwd/..$s", "/../../..$s", "/workspace/../../..$s",
                      "/proc/thread-self/root$s", "/dev/../$s", "/usr/../..$s") {{ $n++;
                    my $h; $! = 0; my $done = sysopen($h, $way, 0) && sysread($h, my $b, 16);
                    if (!$done && !$!) {{ found("read/$s/$n", 'empty'); next }} verdict("read/$s/$n", $done); }}
                  # O_PATH, then through the descriptor; openat2 without restrictions.
                  my $fd = sys('openat', -100, $s, 0x200000, 0);
                  my $h; $! = 0; my $done = $fd >= 0 && sysopen($h, "/proc/self/fd/$fd", 0) && sysread($h, my $b, 16);
                  found("read/$s/path", $done ? 'ok' : 'ENOENT');
                  $! = 0; verdict("link/$s", link($s, "/workspace/l")); unlink '/workspace/l';
                  $! = 0; verdict("rename/$s", rename($s, "/workspace/l"));
                  symlink($s, '/workspace/s'); my $g; $! = 0; $done = sysopen($g, '/workspace/s', 0) && sysread($g, $b, 16);
                  found("read/$s/symlink", $done ? 'ok' : 'ENOENT'); unlink '/workspace/s'; }}
                verdict('project', slurp('/workspace/file') eq "project\n");"#
            ),
        );
        let mut closed = CLOSED.to_vec();
        // What is covered is an empty file or directory.
        closed.extend(["empty", "EISDIR"]);
        if shape == Shape::HostAll {
            closed.push("EIO");
        }
        found.all_refused("read/", &closed);
        found.all_refused("link/", &["ENOENT", "EACCES", "EPERM", "EXDEV", "EROFS"]);
        found.all_refused("rename/", &["ENOENT", "EACCES", "EPERM", "EXDEV", "EROFS", "EBUSY"]);
        found.worked("project");
    });
    for path in planted {
        assert_eq!(
            fs::read_to_string(path).expect("the host's file"),
            "planted-secret"
        );
    }
}

/// Links that lie in the project and point to the host's files -> lead to the sandbox's own, by
/// command and by file request.
#[test]
fn attack_links_in_the_project() {
    let arena = Arena::new();
    let secret = arena.home.write("home/secret", "planted-secret");
    for (name, target) in [
        ("absolute", secret.display().to_string()),
        ("relative", "../home/secret".to_owned()),
        (
            "deep",
            format!("../../../../../../../..{}", secret.display()),
        ),
        ("proc", format!("/proc/self/root{}", secret.display())),
        ("one", format!("/proc/1/root{}", secret.display())),
        ("shadow", "/etc/shadow".to_owned()),
        ("passwd", "/etc/passwd".to_owned()),
        ("up", "..".to_owned()),
    ] {
        symlink(target, arena.home.project().join(name)).expect("a link");
    }
    let host_passwd = fs::read("/etc/passwd").expect("the host's accounts");
    arena.in_every_shape(|shape, sandbox| {
        for name in [
            "absolute",
            "relative",
            "deep",
            "proc",
            "one",
            "shadow",
            "up/home/secret",
        ] {
            let shown = sh(sandbox, &format!("cat '/workspace/{name}'"));
            assert!(
                !shown.out.contains("planted") && shown.out.is_empty(),
                "{shape:?}: {name}: {shown:?}"
            );
            let path = format!("/workspace/{name}");
            let read = sandbox.read_file(path.as_bytes(), 1 << 20);
            assert!(
                read.as_ref().map_or(true, Vec::is_empty),
                "{shape:?}: {name}: {read:?}"
            );
        }
        if matches!(shape, Shape::Host | Shape::Dir) {
            let passwd = sandbox
                .read_file(b"/workspace/passwd", 1 << 20)
                .expect("accounts of its own");
            assert_ne!(
                passwd, host_passwd,
                "{shape:?}: the host's accounts are shown"
            );
        }
        assert!(
            sh(
                sandbox,
                "echo x > /workspace/absolute; echo x > /workspace/up/home/secret; true"
            )
            .succeeded()
        );
    });
    assert_eq!(
        fs::read_to_string(&secret).expect("the host's file"),
        "planted-secret"
    );
}

/// A state directory in an unusual place, with another sandbox's socket and layers -> out of sight,
/// also where the whole host is shown.
#[test]
fn attack_state_directory_in_sight() {
    use glovebox_sandbox::{Registry, RegistryConfig};
    let place = tempfile::Builder::new()
        .prefix("glovebox-test-")
        .tempdir_in("/var/tmp")
        .expect("a directory in /var/tmp");
    let state = place.path().join("state");
    let registry = Registry::open(RegistryConfig {
        state_dir: state.clone(),
        max_sandboxes: 8,
        seed_maker: None,
    })
    .expect("a registry");
    let arena = Arena::new();
    let mut spec = arena.spec();
    spec.jail.rootfs = RootFs::HostAll;
    let victim = registry.create(&spec, None).expect("a sandbox");
    sh_ok(&victim, "echo victim-secret > /workspace/secret");
    let attacker = registry.create(&spec, None).expect("a sandbox");
    let look = format!(
        "find {0} 2>/dev/null | head -20; cat {0}/sandboxes/*/spec.json {0}/sandboxes/*/layers/workspace-upper/secret 2>/dev/null; true",
        state.display()
    );
    let seen = sh_ok(&attacker, &look);
    assert!(
        !seen.contains("victim-secret") && !seen.contains("spec.json"),
        "the state directory is in sight: {seen}"
    );
    drop((victim, attacker));
    // The same for a grant that has it inside.
    spec.jail.rootfs = RootFs::Host;
    spec.jail.grants = vec![Grant {
        source: place.path().to_owned(),
        target: "/granted".into(),
    }];
    if let Ok(sandbox) = registry.create(&spec, None) {
        let seen = sh_ok(&sandbox, "find /granted 2>/dev/null | head -50");
        assert!(
            !seen.contains("spec.json"),
            "the state directory is granted: {seen}"
        );
    }
}

/// A hostile image with links where mounts go -> the start fails in words, and the host is untouched.
#[test]
fn attack_image_with_links_for_mount_points() {
    let canary_home = tempfile::tempdir().expect("a directory");
    let canary = testkit::Canary::plant(canary_home.path().join("canary"));
    for (name, target) in [
        ("proc", canary.dir().display().to_string()),
        ("dev", "/proc/self/root".to_owned()),
        ("workspace", canary.dir().display().to_string()),
        ("dev", "../../../../..".to_owned()),
    ] {
        let root = crate::arena::own_root();
        let _ = fs::remove_dir_all(root.path().join(name));
        symlink(&target, root.path().join(name)).expect("a link");
        let arena = Arena::new();
        let mut spec = arena.spec();
        spec.jail.rootfs = RootFs::Dir(root.path().to_owned());
        match arena.registry.create(&spec, None) {
            Err(fault) => assert!(
                fault.message.contains(name) || fault.message.contains("cannot"),
                "{fault:?}"
            ),
            Ok(_) => panic!("a sandbox came up although /{name} is a link to {target}"),
        }
        assert_eq!(arena.registry.list().expect("a list"), []);
    }
    canary.assert_untouched();
}

/// A directory only root may read, shown by a grant or as part of the host -> modes still hold.
#[test]
fn attack_modes_of_granted_files() {
    let arena = Arena::new();
    let granted = arena.home.root().join("granted");
    fs::create_dir(&granted).expect("a directory");
    fs::write(granted.join("open"), "open").expect("a file");
    fs::write(granted.join("locked"), "locked").expect("a file");
    fs::set_permissions(granted.join("locked"), fs::Permissions::from_mode(0o000)).expect("closed");
    let sandbox = arena.with(|spec| {
        spec.jail.grants = vec![Grant {
            source: granted.clone(),
            target: "/granted".into(),
        }];
    });
    let found = perl(
        &sandbox,
        r#"verdict('open', slurp('/granted/open') eq 'open'); try_open('locked', '/granted/locked', 0);
           try_open('write', '/granted/open', 1); $! = 0; verdict('make', open(my $h, '>', '/granted/new'));
           $! = 0; verdict('unlink', unlink('/granted/open')); $! = 0; verdict('chmod', chmod(0777, '/granted/locked'));
           $! = 0; verdict('utime', utime(1, 1, '/granted/open')); $! = 0; verdict('link', link('/granted/open', '/workspace/hard'));"#,
    );
    found.worked("open");
    found.refused("locked", &["EACCES"]);
    for name in ["write", "make", "unlink", "chmod", "utime", "link"] {
        found.refused(name, &["EROFS", "EACCES", "EPERM", "EXDEV"]);
    }
}
