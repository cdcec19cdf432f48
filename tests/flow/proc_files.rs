//! What `/proc` tells inside: nothing of the guest by way of its file operations, nothing of the
//! machine's boot parameters.

use serde_json::{Value, json};
use std::fs;
use testkit::Person;

fn call(person: &Person, tool: &str, arguments: &Value) -> Value {
    let arguments = arguments.to_string();
    let ran = person
        .glovebox(["call", tool, &arguments, "--sandbox", "box", "--json"])
        .run();
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn file_operations_do_not_tell_about_the_guest() {
    Person::each(|person| {
        person.line("start -q box").run().expect_code(0);
        let links = "ln -s /proc/self/maps maps; ln -s /proc/self dir";
        person.script("exec box", links).run().expect_code(0);
        for path in [
            "/proc/1/maps",
            "/proc/self/maps",
            "/proc/thread-self/maps",
            "/proc/1/task/1/maps",
            "/proc/1/stat",
            "/proc/1/auxv",
            "/proc/1/fdinfo/0",
            "maps",
            "dir/maps",
        ] {
            let read = call(person, "Read", &json!({ "path": path }));
            assert_eq!(read["success"], false, "{path}: {read}");
            let found = call(person, "Grep", &json!({ "path": path, "pattern": "." }));
            let text = found["data"]["text"].as_str().unwrap_or_default();
            assert!(
                !text.contains("r-xp") && !text.contains("flags:"),
                "{path}: {found}"
            );
        }
        let found = call(
            person,
            "Grep",
            &json!({ "path": "/proc/1", "pattern": "r-xp|flags:" }),
        );
        let text = found["data"]["text"].as_str().unwrap_or_default();
        assert!(
            !text.contains("r-xp") && !text.contains("flags:"),
            "{found}"
        );
        // The twins: what everybody may see, and what a command may see of itself.
        for path in ["/proc/cpuinfo", "/proc/1/status", "/proc/mounts"] {
            let read = call(person, "Read", &json!({ "path": path }));
            assert_eq!(read["success"], true, "{path}: {read}");
        }
        let maps = person
            .script("exec box", "grep -c r-xp /proc/self/maps")
            .run()
            .expect_code(0);
        assert_ne!(maps.out(), "0\n");
    });
}

#[test]
fn boot_parameters_stay_outside() {
    let own = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    Person::each(|person| {
        let look = "cat /proc/cmdline; cat /proc/bootconfig 2> /dev/null; ls -A /proc/fs/cifs /proc/fs/nfsfs 2> /dev/null; true";
        let told = person.script("run --quiet", look).run().expect_code(0);
        let named = told
            .out()
            .replace("/proc/fs/cifs:", "")
            .replace("/proc/fs/nfsfs:", "");
        assert_eq!(named.trim(), "", "outside: {own}");
        let version = person
            .line("run --quiet -- cat /proc/version")
            .run()
            .expect_code(0);
        assert!(version.out().starts_with("Linux version"), "{version}");
    });
}
