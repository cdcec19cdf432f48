//! What programs find of this machine inside: the files of `/etc` that they link to, the user's certificates,
//! proxies and colours, how many processors they may use, and tables of packages.

use crate::workspace::told;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use testkit::{Person, has_program, skip};

/// Links below /usr that lead to /etc and to something there.
const LINKS: &str =
    "find /usr -xdev -type l -lname '/etc/*' -exec test -e {} \\; -print 2>/dev/null | sort";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

#[test]
fn links_from_usr_to_etc_lead_somewhere() {
    Person::each(|person| {
        // Also on the host only what this person can see.
        let outside = person.program("sh").args(["-c", LINKS]).output().unwrap();
        let inside = person
            .script("--quiet run --no-toolchains --timeout 120s", LINKS)
            .run()
            .expect_code(0);
        let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
        let missing: Vec<_> = outside
            .lines()
            .filter(|link| !inside.out().lines().any(|seen| seen == *link))
            .filter(|link| {
                // Keys of the machine stay out.
                let target = fs::read_link(link).unwrap();
                !target.starts_with("/etc/ssl/private")
            })
            .collect();
        assert!(missing.is_empty(), "{missing:#?}");
    });
}

#[test]
fn maven_starts() {
    if !has_program("mvn") {
        skip!("needs mvn");
    }
    Person::each(|person| {
        let ran = person
            .line("--quiet run --timeout 120s -- mvn --version")
            .run();
        let ran = ran.expect_code(0);
        assert!(ran.out().contains("Apache Maven"), "{ran}");
    });
}

#[test]
fn colours_pass_and_an_empty_wish_does_not() {
    Person::each(|person| {
        let ran = person
            .line("--quiet run --no-toolchains -- env")
            .env("CI", "true")
            .env("FORCE_COLOR", "1")
            .env("NO_COLOR", "")
            .env("CI_JOB_TOKEN", "hush")
            .run()
            .expect_code(0);
        assert!(
            ran.out().contains("CI=true\n") && ran.out().contains("FORCE_COLOR=1\n"),
            "{ran}"
        );
        assert!(
            !ran.out().contains("NO_COLOR") && !ran.out().contains("hush"),
            "{ran}"
        );
    });
}

#[test]
fn proxies_pass_where_the_network_is_shared() {
    Person::each(|person| {
        let env = |net: &str| {
            person
                .line(&format!("run --no-toolchains --net {net} -- env"))
                .env("http_proxy", "http://proxy.test:3128")
                .env("HTTPS_PROXY", "http://me:hush@proxy.test:3128")
                .run()
                .expect_code(0)
        };
        let (open, closed) = (env("host"), env("none"));
        assert!(
            open.out().contains("http_proxy=http://proxy.test:3128\n"),
            "{open}"
        );
        insta::assert_snapshot!(told(person, &open), @"
        glovebox: HTTPS_PROXY is not passed on: it holds a password; `--env HTTPS_PROXY` passes it as it is
        warning: --net host opens your network to the command: this machine's services and everything you can reach
        ");
        assert!(
            !open.out().contains("hush") && !open.err().contains("hush"),
            "{open}"
        );
        assert!(!closed.out().contains("proxy.test"), "{closed}");
    });
}

#[test]
fn a_certificate_file_of_the_user_is_readable_or_its_variable_stays_out() {
    Person::each(|person| {
        let own = person.write("certificates/own.pem", CERTIFICATE);
        let key = person.write("certificates/key.pem", "-----BEGIN PRIVATE KEY-----\n");
        let script = "cat \"$NODE_EXTRA_CA_CERTS\"; echo \"key=$PIP_CERT\"; \
            echo more 2>/dev/null >> \"$NODE_EXTRA_CA_CERTS\" && echo written; ls \"${NODE_EXTRA_CA_CERTS%/*}\"";
        let ran = person
            .script("run --no-toolchains", script)
            .env("NODE_EXTRA_CA_CERTS", &own)
            .env("PIP_CERT", &key)
            .run()
            .expect_code(0);
        let expected = format!("{CERTIFICATE}key=\nown.pem\n");
        assert_eq!(ran.out(), expected, "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: PIP_CERT is not passed on: [ROOT]/certificates/key.pem holds a private key; `--env PIP_CERT` passes it as it is");
        assert_eq!(fs::read_to_string(&own).unwrap(), CERTIFICATE);
    });
}

#[test]
fn programs_count_the_processors_they_may_use() {
    let outside = Command::new("nproc").output().unwrap().stdout;
    Person::each(|person| {
        let count = |options: &str| {
            let ran = person
                .line(&format!("--quiet run --no-toolchains {options} -- nproc"))
                .run()
                .expect_code(0);
            ran.out()
        };
        assert_eq!(count("--cpus 1"), "1\n");
        assert_eq!(count("--cpus 0.5"), "1\n");
        assert_eq!(count("--cpus none").as_bytes(), outside);
    });
}

#[test]
fn terminal_with_a_description_in_the_home_is_known_inside() {
    if !["infocmp", "tic", "tput"].into_iter().all(has_program) {
        skip!("needs infocmp, tic and tput");
    }
    Person::each(|person| {
        let known = Command::new("infocmp").arg("xterm").output().unwrap();
        let known = String::from_utf8(known.stdout).unwrap();
        let own = known.replacen("xterm|", "own-terminal|", 1);
        let source = person.write("home/own.terminfo", own);
        let compiled = person
            .program("tic")
            .args(["-x", "-o"])
            .args([&person.place().root().join("home/.terminfo"), &source])
            .status()
            .unwrap();
        assert!(compiled.success());
        let colours = |term: &str| {
            person
                .line("--quiet run --no-toolchains -- tput colors")
                .env("TERM", term)
                .run()
        };
        assert_eq!(colours("own-terminal").expect_code(0).out(), "8\n");
        // The twin: one that nobody describes.
        assert_ne!(colours("no-terminal").code, 0);
    });
}

#[test]
fn active_environment_outside_of_the_project_is_there() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    Person::each(|person| {
        let env = person.place().root().join("home/environment");
        let made = person
            .program("python3")
            .args(["-m", "venv", "--without-pip"])
            .arg(&env)
            .status()
            .unwrap();
        assert!(made.success());
        person.write("home/environment/bin/own-program", "#!/bin/sh\necho own\n");
        let program = env.join("bin/own-program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", env.join("bin").display());
        let ran = |activates: bool| {
            let script = "own-program; python3 -c 'import sys; print(sys.prefix)'";
            let run = person.script("--quiet run", script);
            let run = if activates {
                run.env("VIRTUAL_ENV", &env)
            } else {
                run
            };
            run.env("PATH", &path).run().expect_code(0).out()
        };
        assert_eq!(ran(true), format!("own\n{}\n", env.display()));
        // The twin: a directory in PATH alone shows nothing.
        assert!(!ran(false).contains("own"));
    });
}

#[test]
fn link_that_leads_out_of_the_project_is_told_once_with_its_target() {
    Person::each(|person| {
        person.write("library/index.js", "module.exports = 5\n");
        person.write("project/node_modules/other/index.js", "");
        let target = person.place().root().join("library");
        symlink(&target, person.project().join("node_modules/library")).unwrap();
        let ran = person.line("run --no-toolchains -- true").run();
        let ran = ran.expect_code(0);
        insta::assert_snapshot!(told(person, &ran), @"glovebox: a link leads out of the project and nowhere inside: node_modules/library (to [ROOT]/library); `--grant [ROOT]/library` shows it");
        let again = person.line("run --no-toolchains -- true").run();
        assert_eq!(told(person, &again.expect_code(0)), "");
        let grant = format!("run --no-toolchains --grant {} --", target.display());
        let shown = person
            .line(&format!("{grant} cat node_modules/library/index.js"))
            .run()
            .expect_code(0);
        assert_eq!(
            (shown.out().as_str(), told(person, &shown).as_str()),
            ("module.exports = 5\n", "")
        );
    });
}

/// Readers of what the machine keeps outside of /usr and /etc: a path it needs, and a command.
const READERS: [(&str, &str); 6] = [
    (
        "/sys/devices/system/cpu",
        "cat /sys/devices/system/cpu/online /sys/devices/system/cpu/possible",
    ),
    (
        "/sys/devices/system/node",
        "cat /sys/devices/system/node/online",
    ),
    ("/sys/devices/system/cpu", "getconf _NPROCESSORS_CONF"),
    (
        "/var/lib/dpkg",
        "dpkg-query --show --showformat '${Version}' dpkg",
    ),
    ("/var/lib/dpkg", "cat /var/lib/dpkg/arch"),
    ("/var/cache/fontconfig", "ls /var/cache/fontconfig"),
];

#[test]
fn readers_of_the_machine_s_data_find_it_and_can_change_nothing() {
    Person::each(|person| {
        for flags in [
            "",
            "--workspace copy",
            "--rootfs host-all",
            "--backend confined",
        ] {
            if flags.contains("confined") && !crate::confined::can_start(person) {
                continue;
            }
            let run = format!("--quiet run --no-toolchains --apply never {flags}");
            for (path, script) in READERS {
                let alone = person.program("sh").args(["-c", script]).output().unwrap();
                if !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
                    || !alone.status.success()
                {
                    continue;
                }
                let ran = person.script(&run, script).run().expect_code(0);
                let alone = String::from_utf8_lossy(&alone.stdout);
                assert_eq!(ran.out(), alone, "{flags}: {script}");
                // A file that its owner may write is refused for the mount, or for the rules.
                let write = format!("touch {path}/new 2>&1 || touch -c {path} 2>&1");
                let ran = person.script(&run, &write).run();
                assert_eq!(ran.code, 1, "{flags}: {path}: {ran}");
            }
        }
    });
}

#[test]
fn data_of_the_machine_that_is_not_shown_is_named_with_the_grant() {
    Person::each(|person| {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (inside, is_told) in [("shown/x", true), ("nowhere/x", false)] {
            fs::create_dir_all(dir.path().join("shown")).unwrap();
            fs::write(dir.path().join("shown/x"), "data\n").unwrap();
            let path = dir.path().join(inside);
            let script = format!("cat {}", path.display());
            let ran = person.script("--quiet run", &script).run().expect_code(1);
            let line = format!(
                "glovebox: `{0}` is not shown to this sandbox: `--grant {0}` shows it",
                path.display()
            );
            assert_eq!(ran.err().contains(&line), is_told, "{ran}");
        }
        let path = dir.path().join("shown/x");
        let flags = format!("--quiet run --grant {}", path.display());
        let ran = person
            .script(&flags, &format!("cat {}", path.display()))
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "data\n");
    });
}

/// What doctor says of a limit is what a start makes of it.
#[test]
fn doctor_says_of_limits_what_a_report_says() {
    Person::each(|person| {
        let path = person.place().root().join("report");
        person
            .line("run -q --apply discard --memory 256MiB --cpus 1 --pids 200 --report")
            .args([path.as_os_str()])
            .args(["--", "true"])
            .run()
            .expect_code(0);
        let report: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let ran = person.line("doctor --json").run();
        let told: Value = serde_json::from_str(&ran.out()).unwrap();
        let row = |list: &Value, key: &str, name: &str| {
            let mut rows = list.as_array().unwrap().iter();
            let found = rows.find(|row| row[key] == name);
            found.unwrap_or_else(|| panic!("no {name} in {list:#}"))["state"].clone()
        };
        for name in ["memory", "cpu", "pids"] {
            let finding = row(&told["data"]["findings"], "id", &format!("cgroup-{name}"));
            let limit = row(&report["limits"], "kind", name);
            assert_eq!(
                finding == "ok",
                limit == "enforced",
                "{name} as {}: doctor says {finding}, a report {limit}",
                person.name()
            );
        }
    });
}

#[test]
fn whole_machine_that_is_shown_is_said_before_the_command_runs() {
    let person = Person::myself();
    let ran = person
        .script(
            "run --apply discard --rootfs host-all",
            "echo the command >&2",
        )
        .run()
        .expect_code(0);
    let err = ran.err();
    let line = err.find("--rootfs host-all shows the command everything");
    assert!(line.unwrap() < err.find("the command\n").unwrap(), "{ran}");
}
