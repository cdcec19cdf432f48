//! The machine's settings in `/etc` as programs inside find them, and what of it stays outside.

use testkit::{Person, has_program, skip};

/// Prints each name below `/etc`, less what the sandbox has of its own.
const LIST: &str = "find /etc -mindepth 1 | sort";

fn run(person: &Person, script: &str) -> String {
    person
        .script("run -q --no-toolchains --apply discard", script)
        .run()
        .expect_code(0)
        .out()
}

fn run_outside(person: &Person, script: &str) -> String {
    let output = person.program("sh").args(["-c", script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn php_has_inside_the_modules_that_it_has_outside() {
    if !has_program("php") {
        skip!("needs php");
    }
    Person::each(|person| {
        let modules = "php -m 2>/dev/null";
        let outside = run_outside(person, modules);
        assert!(outside.contains("tokenizer"), "{outside}");
        assert_eq!(run(person, modules), outside, "as {}", person.name());
    });
}

#[test]
fn what_is_for_the_machine_alone_stays_outside() {
    Person::each(|person| {
        let listed = run(person, LIST);
        let names: Vec<&str> = listed.lines().collect();
        for name in [
            "/etc/shadow",
            "/etc/passwd-",
            "/etc/sudoers",
            "/etc/machine-id",
            "/etc/fstab",
            "/etc/ssl/private",
            "/etc/pam.d",
            "/etc/systemd",
            "/etc/cron.d",
        ] {
            assert!(!names.contains(&name), "as {}: {name}", person.name());
        }
        // Files of the machine as they are there, with links that lead nowhere too.
        for name in [
            "/etc/services",
            "/etc/nsswitch.conf",
            "/etc/login.defs",
            "/etc/ld.so.cache",
        ] {
            if std::path::Path::new(name).exists() {
                assert!(names.contains(&name), "as {}: {name}", person.name());
                let sum = format!("cksum < {name}");
                assert_eq!(run(person, &sum), run_outside(person, &sum), "{name}");
            }
        }
        let own = run(person, "cat /etc/passwd");
        assert!(own.contains("Sandbox user"), "{own}");
    });
}

#[test]
fn setting_that_is_held_back_is_named_with_the_reason() {
    let Some(path) = ["/etc/fstab", "/etc/machine-id", "/etc/subuid"]
        .into_iter()
        .find(|path| std::fs::metadata(path).is_ok())
    else {
        skip!("needs a file that no sandbox sees");
    };
    Person::each(|person| {
        let ran = person
            .script(
                "run --no-toolchains --apply discard",
                &format!("cat {path}"),
            )
            .run()
            .expect_code(1);
        let line = format!("`{path}` is not shown to this sandbox: files of this name are for the");
        assert!(
            ran.err().contains(&line),
            "as {}: {}",
            person.name(),
            ran.err()
        );
    });
}
