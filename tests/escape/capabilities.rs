//! Capabilities, and programs that would hand some out.

use crate::arena::{Arena, Shape, own_root};
use crate::script::{perl, sh, sh_ok};
use glovebox_spec::RootFs;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Capability sets, no_new_privs and seccomp mode of a command -> 0, 1, 2; nothing can be regained.
#[test]
fn probe_10_caps_zero() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let status = sh_ok(sandbox, "cat /proc/self/status");
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
                .unwrap_or_else(|| panic!("{shape:?}: no {name} in {status}"))
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{shape:?}: {set}");
        }
        assert_eq!(field("NoNewPrivs"), "1");
        assert_eq!(field("Seccomp"), "2");
        assert_eq!(field("Uid"), "1000\t1000\t1000\t1000");
        assert_eq!(field("Gid"), "1000\t1000\t1000\t1000");
        let found = perl(
            sandbox,
            r#"try('setuid', 'setuid', 0); try('setgid', 'setgid', 0); try('setresuid', 'setresuid', 0, 0, 0);
               try('setgroups', 'setgroups', 1, pack('I', 0));
               my $head = pack('Ii', 0x20080522, 0);
               try('capset', 'capset', $head, pack('I6', 0xffffffff, 0xffffffff, 0, 0xffffffff, 0xffffffff, 0));
               try('ambient', 'prctl', 47, 2, 21, 0, 0); try('securebits', 'prctl', 28, 0, 0, 0, 0);
               try('nnp', 'prctl', 38, 0, 0, 0, 0); try('hostname', 'sethostname', 'x', 1);
               try('setuid-own', 'setuid', 1000); try('capset-none', 'capset', $head, pack('I6', 0, 0, 0, 0, 0, 0));
               verdict('chown', !chown(0, 0, '/workspace') ? ($! = $!, 0)[1] : 1);"#,
        );
        for name in ["setuid", "setgid", "setresuid", "setgroups", "capset", "ambient", "securebits", "hostname", "chown"] {
            found.refused(name, &["EPERM", "EINVAL"]);
        }
        found.refused("nnp", &["EINVAL"]);
        found.worked("setuid-own");
        found.worked("capset-none");
    });
}

/// What the guest needed for its set-up is gone with the thread that had it: whatever thread of it is left has the one
/// capability it keeps.
#[test]
fn no_thread_of_the_set_up_is_left() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let status = sh_ok(sandbox, "cat /proc/1/task/*/status");
        let sets = |name: &str| -> Vec<String> {
            let lines = status.lines().filter_map(|line| line.strip_prefix(name));
            lines.map(|set| set.trim().to_owned()).collect()
        };
        for set in ["CapPrm:", "CapEff:"] {
            let found = sets(set);
            assert!(!found.is_empty(), "{shape:?}: {status}");
            // CAP_KILL
            assert!(
                found.iter().all(|set| set == "0000000000000020"),
                "{shape:?}: {found:?}"
            );
        }
        assert!(
            sets("CapBnd:").iter().all(|set| set == "0000000000000000"),
            "{shape:?}: {status}"
        );
        assert!(
            sets("Seccomp:").iter().all(|mode| mode == "2"),
            "{shape:?}: {status}"
        );
    });
}

/// Run set-user-id programs: the host's, the image's, the project's -> the user stays the same.
#[test]
fn probe_11_setuid_exec() {
    let arena = Arena::new();
    let root = own_root();
    let plant = |path: std::path::PathBuf| {
        fs::copy("/usr/bin/id", &path).expect("a copy of id");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).expect("set-user-id");
    };
    plant(root.path().join("bin/raise"));
    plant(arena.home.project().join("raise"));
    for shape in [Shape::Host, Shape::HostAll, Shape::Dir] {
        let sandbox = arena.create(&{
            let mut spec = arena.shaped(shape);
            if shape == Shape::Dir {
                spec.jail.rootfs = RootFs::Dir(root.path().to_owned());
            }
            spec
        });
        for program in ["/workspace/raise", "/bin/raise"] {
            let answer = sh(&sandbox, &format!("{program} -u; {program} -ru"));
            if shape == Shape::Dir || program == "/workspace/raise" {
                assert_eq!(
                    answer.out, "1000\n1000\n",
                    "{shape:?}: {program}: {answer:?}"
                );
            }
        }
        let own = sh_ok(
            &sandbox,
            "cp /workspace/raise /workspace/mine; chmod 6755 /workspace/mine; /workspace/mine -u",
        );
        assert_eq!(own, "1000\n");
        for program in [
            "su -c 'id -u'",
            "sudo -n id -u",
            "pkexec id -u",
            "newgrp root -c id",
        ] {
            let answer = sh(&sandbox, &format!("{program} </dev/null"));
            assert!(
                !answer.out.lines().any(|line| line == "0"),
                "{shape:?}: {program}: {answer:?}"
            );
        }
    }
}

/// Run a program with file capabilities -> none gained. Twin: it runs.
#[test]
fn probe_12_file_caps() {
    if !testkit::is_root() {
        testkit::skip_because!(testkit::SkipReason::needs_root(
            "to plant file capabilities"
        ));
    }
    if !testkit::has_program("setcap") {
        testkit::skip!("planting file capabilities needs setcap");
    }
    let arena = Arena::new();
    let root = own_root();
    for path in [
        root.path().join("bin/raw"),
        arena.home.project().join("raw"),
    ] {
        fs::copy("/bin/cat", &path).expect("a copy of cat");
        let set = std::process::Command::new("setcap")
            .args(["cap_net_raw,cap_sys_admin,cap_dac_override+eip"])
            .arg(&path)
            .status();
        if !set.is_ok_and(|status| status.success()) {
            testkit::skip!("this file system takes no file capabilities");
        }
    }
    let sandbox = arena.with(|spec| spec.jail.rootfs = RootFs::Dir(root.path().to_owned()));
    for program in ["/bin/raw", "/workspace/raw"] {
        let status = sh_ok(&sandbox, &format!("{program} /proc/self/status"));
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert!(
                status.contains(&format!("{set}:\t0000000000000000")),
                "{program}: {status}"
            );
        }
    }
}
