//! Where namespaces are refused: what is said, what is taken instead, and that the backend without namespaces does not
//! start with a wall less.

use crate::filter::Condition::Equals;
use crate::filter::{Call, Lie, glovebox_under};
use crate::{CONFINEMENT, IDENTITY, NAMESPACES, UNUSED, call};
use glovebox_jail::landlock::abi_version;
use std::process::{Command, Output};
use testkit::{Person, has_program, skip};

const CLONE: Call = NAMESPACES[0];
const RUN: [&str; 7] = [
    "run",
    "--no-toolchains",
    "--apply",
    "never",
    "--timeout",
    "30s",
    "--quiet",
];

fn can_try() -> bool {
    if !has_program("perl") {
        testkit::skip_loudly(module_path!(), "needs perl");
        return false;
    }
    if abi_version() < 6 {
        testkit::skip_loudly(module_path!(), "needs Linux 6.12");
        return false;
    }
    true
}

fn finish(mut command: Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    let told = String::from_utf8_lossy(&stderr).into_owned();
    (status.code().unwrap_or(-1), told)
}

#[test]
fn refusal_of_namespaces_names_the_backend_that_works_and_the_setting() {
    if !can_try() {
        return;
    }
    Person::each(|person| {
        // A hidden name, which needs a device node that a container may not make either.
        person.write("project/.env", "KEY=1\n");
        for entry in [&["run", "--", "true"][..], &["start", "box"]] {
            let mut refused = glovebox_under(person, CLONE, Lie::NotPermitted);
            refused.args(entry);
            let (code, told) = finish(refused);
            assert_eq!(code, 125, "{told}");
            for part in [
                "native sandboxes are refused here",
                "`--backend confined` works here",
                "backend = [\"native\", \"confined\"]",
            ] {
                assert!(told.contains(part), "{entry:?}: {told}");
            }
        }
        let mut chosen = glovebox_under(person, CLONE, Lie::NotPermitted);
        chosen
            .env("GLOVEBOX_BACKEND", "native,confined")
            .args(&RUN[..6])
            .args(["--", "true"]);
        let (code, told) = finish(chosen);
        assert_eq!(code, 0, "{told}");
        assert!(
            told.contains("sandbox on confined (native is refused here)"),
            "{told}"
        );
        let mut demo = glovebox_under(person, CLONE, Lie::NotPermitted);
        demo.arg("demo");
        let shown = demo.output().unwrap();
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.status.success(), "{text}");
        let first = text.lines().next().unwrap_or_default();
        assert!(first.ends_with("this demo runs on `confined`"), "{text}");
        assert!(
            text.contains("unchanged") && !text.contains("CHANGED"),
            "{text}"
        );
    });
}

#[test]
fn confined_sandbox_does_not_start_with_a_wall_less() {
    if !can_try() {
        return;
    }
    let find = |calls: &[Call], name: &str| *calls.iter().find(|call| call.name == name).unwrap();
    let walls = [
        find(&CONFINEMENT, "seccomp"),
        find(&CONFINEMENT, "landlock_restrict_self"),
        find(&CONFINEMENT, "landlock_create_ruleset"),
        find(&IDENTITY, "prctl NO_NEW_PRIVS"),
    ];
    Person::each(|person| {
        let run = |call: Call, lie: Lie| {
            let mut command = glovebox_under(person, call, lie);
            command
                .args(RUN)
                .args(["--backend", "confined", "--", "true"]);
            finish(command)
        };
        let (code, told) = run(UNUSED, Lie::NoEffect);
        assert_eq!(code, 0, "{told}");
        for wall in walls {
            // An ordinary user's filter takes the flag itself, so that a lie about it is none.
            if wall.name == "prctl NO_NEW_PRIVS" && !person.is_root() {
                continue;
            }
            for lie in Lie::ALL {
                let (code, told) = run(wall, lie);
                assert_eq!(code, 125, "{} {lie:?}: {told}", wall.name);
            }
        }
    });
}

/// On a kernel that cannot sign connections, their packets could reach sockets outside.
#[test]
fn confined_sandbox_has_no_network_sockets_that_are_not_signed() {
    if !can_try() {
        return;
    }
    if !has_program("python3") {
        skip!("needs python3");
    }
    const TCP_MD5SIG_EXT: u32 = 32;
    let signing = call(
        "setsockopt",
        libc::SYS_setsockopt,
        Equals(2, TCP_MD5SIG_EXT),
    );
    let open =
        "import socket\ntry: socket.socket(); print('opened')\nexcept OSError as e: print(e.errno)";
    Person::each(|person| {
        let run = |call: Call, net: &str| {
            let mut command = glovebox_under(person, call, Lie::NotPermitted);
            command
                .args(RUN)
                .args(["--backend", "confined", "--net", net])
                .args(["--", "python3", "-c", open]);
            let output = command.output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.code(), said, told)
        };
        let (code, said, told) = run(UNUSED, "none");
        assert_eq!((code, said.as_str()), (Some(0), "opened\n"), "{told}");
        let (code, said, told) = run(signing, "none");
        assert_eq!((code, said.as_str()), (Some(0), "97\n"), "{told}");
        let (code, _, told) = run(signing, "egress");
        assert_eq!(code, Some(125), "{told}");
        assert!(told.contains("cannot sign TCP connections"), "{told}");
    });
}
