//! Mounts: making, moving and peeling them, climbing above the root, and what travels between host
//! and sandbox.

use crate::arena::{Arena, Shape};
use crate::script::{perl, sh, sh_ok};
use std::fs;
use std::process::Command;

const REFUSED: [&str; 2] = ["EPERM", "ENOSYS"];

/// Every way to mount, old and new -> EPERM or ENOSYS. Twin: files and directories are made.
#[test]
fn probe_06_mount_any() {
    let arena = Arena::new();
    arena.in_every_shape(|_, sandbox| {
        let found = perl(sandbox, include_str!("probes/probe_06_mount_any.pl"));
        found.all_refused("mount/", &REFUSED);
        found.all_refused("new/", &REFUSED);
        found.all_refused("root/", &REFUSED);
        found.worked("mkdir");
        assert!(!sh(sandbox, "mount -t tmpfs none /tmp/m").succeeded());
    });
}

/// Unmount and remount what covers and protects -> refused, and what is covered stays so.
#[test]
fn probe_07_umount_mask() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            r#"my $n = 0;
               for my $line (split /\n/, slurp('/proc/self/mountinfo')) {
                 my ($where) = (split / /, $line)[4]; $n++;
                 for my $flags (0, 1, 2, 8) { try("umount/$where/$flags", 'umount2', $where, $flags); }
                 try("rw/$where", 'mount', 'none', $where, 0, 32, 0); }
               found('count', $n);"#,
        );
        found.all_refused("umount/", &["EPERM"]);
        found.all_refused("rw/", &["EPERM"]);
        assert!(found.get("count").parse::<u32>().is_ok_and(|count| count > 5), "{shape:?}");
        if shape == Shape::HostAll {
            assert!(sh(sandbox, "cat /etc/shadow").out.is_empty(), "shadow is readable");
        }
    });
}

/// Climb above the root by every path -> it is the root. Twin: the same paths lead to its own files.
#[test]
fn attack_climb_above_the_root() {
    let arena = Arena::new();
    arena.home.write("host-only-file", "host");
    let outside = arena.home.root().display().to_string();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            &format!(
                r#"my @way = ('/..', '/../../..', '/proc/self/root', '/proc/self/root/..', '/proc/self/cwd/../..',
                     '/workspace/../..', '/proc/self/task/self/root/..', '/dev/../..', '/proc/thread-self/root');
                   my $root = join ',', (stat '/')[0, 1];
                   for (@way) {{ my @s = stat $_; next unless @s;
                     found("way/$_", join(',', @s[0, 1]) eq $root ? 'root' : 'elsewhere'); }}
                   for my $up ('', '/..', '/proc/self/root', '/proc/self/cwd/..') {{
                     found("seen$up", -e "$up{outside}/host-only-file" ? 'seen' : 'unseen'); }}
                   # A directory that is moved from under one's feet, and a descriptor kept across it.
                   mkdir '/workspace/a'; mkdir '/workspace/a/b'; chdir '/workspace/a/b';
                   my $fd = sys('openat', -100, '.', 0x10000, 0);
                   rename '/workspace/a/b', '/tmp/b'; rename '/workspace/a', '/workspace/c';
                   my $up = '../' x 40; found('moved', join(',', (stat $up)[0, 1]) eq $root ? 'root' : 'elsewhere');
                   $! = 0; verdict('workspace', rename('/workspace', '/elsewhere'));
                   $! = 0; verdict('workspace-exchange', sys('renameat2', -100, '/workspace', -100, '/tmp', 2) != -1);
                   $! = 0; verdict('etc', rename('/usr', '/tmp/usr'));
                   verdict('own', rename('/workspace/c', '/workspace/d'));"#
            ),
        );
        for (way, is) in found.below("way/") {
            assert_eq!(is, "root", "{shape:?}: {way}");
        }
        for (way, is) in found.below("seen") {
            assert_eq!(is, "unseen", "{shape:?}: {way}");
        }
        assert_eq!(found.get("moved"), "root", "{shape:?}");
        for name in ["workspace", "workspace-exchange", "etc"] {
            found.refused(name, &["EACCES", "EPERM", "EBUSY", "EXDEV", "EROFS"]);
        }
        found.worked("own");
    });
}

/// What the host mounts later stays outside, and what a sandbox mounts while it is built never
/// reaches the host, also where mounts propagate (`/` shared, as under systemd).
#[test]
fn probe_60_propagation() {
    let in_namespace = |script: &str, arena: &Arena| {
        let mut command = Command::new("unshare");
        if !testkit::is_root() {
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        command
            .args(["--mount", "--propagation", "unchanged", "sh", "-ec", script])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", arena.home.home())
            .env("GLOVEBOX_STATE", arena.home.state())
            .env("GLOVEBOX", testkit::binary())
            .current_dir(arena.home.project());
        command.output().expect("unshare runs")
    };
    let arena = Arena::new();
    let trial = in_namespace("mount --make-rshared / && mount -t tmpfs none /mnt", &arena);
    if !trial.status.success() {
        testkit::skip!(
            "no mount namespace of one's own: {}",
            String::from_utf8_lossy(&trial.stderr)
        );
    }
    fs::create_dir_all(arena.home.root().join("granted/later")).expect("a directory");
    fs::write(arena.home.root().join("granted/file"), "granted\n").expect("a file");
    let output = in_namespace(
        r#"mount --make-rshared /
        before=$(cut -d' ' -f3- /proc/self/mountinfo | sed 's/shared:[0-9]* //' | sort)
        shadow=$(stat -c %i /etc/shadow)
        for rootfs in host host-all; do
            $GLOVEBOX --quiet run --no-toolchains --rootfs $rootfs --grant "$PWD/../granted:/granted" -- true
            $GLOVEBOX --quiet start --no-toolchains --rootfs $rootfs --grant "$PWD/../granted:/granted" spread >/dev/null
            mount -t tmpfs -o size=64k none ../granted/later
            echo secret > ../granted/later/secret
            mount -t tmpfs -o size=64k none /usr/local
            echo "inside $rootfs: $($GLOVEBOX exec spread -- sh -c 'cat /granted/file; ls /granted/later; ls /usr/local | wc -l')"
            umount ../granted/later
            umount /usr/local
            $GLOVEBOX --quiet kill spread
        done
        after=$(cut -d' ' -f3- /proc/self/mountinfo | sed 's/shared:[0-9]* //' | sort)
        [ "$before" = "$after" ] || { echo "mounts on the host: $after"; exit 3; }
        [ "$shadow" = "$(stat -c %i /etc/shadow)" ] || { echo "shadow is covered on the host"; exit 4; }"#,
        &arena,
    );
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if out.is_empty() && err.contains("unavailable") && !testkit::is_root() {
        testkit::skip!("no sandbox in a namespace of one's own: {err}");
    }
    assert!(output.status.success(), "{out}{err}");
    assert!(
        !out.contains("secret"),
        "a later mount of the host shows inside: {out}"
    );
    for rootfs in ["host", "host-all"] {
        assert!(
            out.contains(&format!("inside {rootfs}: granted\n")),
            "the grant is not readable: {out}{err}"
        );
    }
    assert!(
        !out.lines().any(|line| line.trim() == "0"),
        "a later mount hides what was there: {out}"
    );
}

/// All mounts inside are private, and none allows set-user-id; none but /dev has devices.
#[test]
fn mount_table_is_tight() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let table = sh_ok(sandbox, "cat /proc/self/mountinfo");
        for line in table.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let (place, options) = (fields[4], fields[5]);
            assert_eq!(fields[6], "-", "{shape:?}: {place} propagates: {line}");
            assert!(
                options.split(',').any(|option| option == "nosuid"),
                "{shape:?}: {line}"
            );
            let has_devices = place.starts_with("/dev");
            assert!(
                has_devices || options.split(',').any(|option| option == "nodev"),
                "{shape:?}: {line}"
            );
            let may_write =
                ["/", "/workspace", "/proc", "/dev"].contains(&place) || place.starts_with("/dev/");
            assert!(
                may_write || options.starts_with("ro"),
                "{shape:?}: writable: {line}"
            );
        }
    });
}
