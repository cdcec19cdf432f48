//! Device nodes: making, finding and importing them.

use crate::arena::{Arena, own_root};
use crate::script::{perl, sh, sh_ok};
use glovebox_spec::{Grant, RootFs};
use rustix::fs::{CWD, FileType, Mode};

/// mknod of devices and whiteouts -> EPERM. Twin: a FIFO, and reading /dev/zero.
#[test]
fn probe_13_device_node() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(sandbox, include_str!("probes/probe_13_device_node.pl"));
        for (name, value) in found.below("node") {
            // /dev/shm may be out of the Landlock rules' reach for devices: any refusal will do.
            assert!(
                ["EPERM", "EACCES"].contains(&value),
                "{shape:?}: {name} came out as {value}"
            );
        }
        found.worked("fifo/workspace");
        assert_eq!(
            found.get("dev"),
            "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero",
            "{shape:?}"
        );
        found.all_refused("open/", &["ENOENT", "ENOTDIR"]);
        for name in ["zero", "random", "null"] {
            found.worked(name);
        }
    });
}

/// Device nodes that lie in an image, in the project or in a grant -> cannot be opened.
#[test]
fn probe_13_supplied_node() {
    if !testkit::is_root() {
        testkit::skip_because!(testkit::SkipReason::needs_root("to plant device nodes"));
    }
    let root = own_root();
    let arena = Arena::new();
    let granted = arena.home.root().join("granted");
    std::fs::create_dir(&granted).expect("a directory");
    // Null, as a harmless stand-in for a disk: what is refused is the kind, not the number.
    let places = [
        root.path().join("tmp/node"),
        arena.home.project().join("node"),
        granted.join("node"),
    ];
    for place in &places {
        let device = rustix::fs::makedev(1, 3);
        if let Err(errno) = rustix::fs::mknodat(
            CWD,
            place,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            device,
        ) {
            testkit::skip!("this root may not make a device node: {errno}");
        }
        assert!(
            std::fs::read(place).is_ok(),
            "the planted node works on the host"
        );
    }
    let sandbox = arena.with(|spec| {
        spec.jail.rootfs = RootFs::Dir(root.path().to_owned());
        spec.jail.grants = vec![Grant {
            source: granted,
            target: "/granted".into(),
        }];
    });
    let found = perl(
        &sandbox,
        r#"for my $p ('/tmp/node', '/workspace/node', '/granted/node') {
             try_open("read$p", $p, 0); try_open("write$p", $p, 1); }
           try_open('own', '/dev/null', 1);"#,
    );
    found.all_refused("read", &["EACCES"]);
    found.all_refused("write", &["EACCES", "EROFS"]);
    found.worked("own");
    // Copying the node, or linking to it, gives no other kind of node.
    assert!(
        !sh(
            &sandbox,
            "cp -a /workspace/node /workspace/copy && cat /workspace/copy"
        )
        .succeeded()
    );
    assert!(
        !sh(
            &sandbox,
            "ln /workspace/node /workspace/link && cat /workspace/link"
        )
        .succeeded()
    );
    assert_eq!(
        sh_ok(
            &sandbox,
            "dd if=/dev/zero of=/workspace/zeroes bs=4 count=1 2>/dev/null; cat /workspace/zeroes"
        ),
        "\0\0\0\0"
    );
}

/// Change the host's own device nodes, which are bound into /dev -> refused.
#[test]
fn attack_bound_devices() {
    let arena = Arena::new();
    let before = std::fs::metadata("/dev/null")
        .expect("the host's null")
        .permissions();
    arena.in_every_shape(|_, sandbox| {
        let found = perl(
            sandbox,
            r#"for my $n (qw(null zero full random urandom tty)) {
                 $! = 0; verdict("change/$n/chmod", chmod(0000, "/dev/$n")); $! = 0; verdict("change/$n/chown", chown(1000, 1000, "/dev/$n"));
                 $! = 0; verdict("change/$n/unlink", unlink("/dev/$n")); $! = 0; verdict("change/$n/rename", rename("/dev/$n", "/dev/x"));
                 $! = 0; verdict("change/$n/link", link("/dev/$n", "/dev/shm/$n")); }
               $! = 0; verdict('change/symlink', unlink('/dev/ptmx')); $! = 0; verdict('change/dir', mkdir('/dev/new'));
               my $h; verdict('shm', open($h, '>', '/dev/shm/own'));"#,
        );
        found.all_refused("change/", &["EPERM", "EACCES", "EBUSY", "EXDEV", "EROFS"]);
        found.worked("shm");
    });
    assert_eq!(
        before,
        std::fs::metadata("/dev/null")
            .expect("the host's null")
            .permissions()
    );
}
