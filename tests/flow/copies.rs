//! Projects copied over a carrier: what is left of them when the sandbox ends, and what is taken of files
//! that never hold still.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;
use testkit::{Person, wait_until};

/// For what happens soon.
const WAIT: Duration = Duration::from_secs(20);

/// Starts a sandbox on the other side of a plain shell, which starts in a directory of this person's.
fn start(person: &Person) {
    let carrier = format!("env -C {} sh", person.place().home().display());
    let words = ["start", "box", "--backend", "command", "--carrier"];
    person
        .glovebox(words)
        .args([carrier.as_str(), "--workspace", "copy"])
        .run()
        .expect_code(0);
}

fn other_side(person: &Person) -> PathBuf {
    let at = person.line("exec box -- pwd -P").run().expect_code(0).out();
    PathBuf::from(at.trim())
}

/// A command that goes on in the sandbox.
fn begin(person: &Person, script: &str) -> Child {
    let mut call = person.script("exec box", script);
    let command = call.command.stdin(Stdio::null());
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_kill_removes_the_copy_or_says_where_it_stays() {
    Person::each(|person| {
        person.write("project/a", "0\n");
        start(person);
        let copy = other_side(person);
        assert!(copy.ends_with("glovebox-box"), "{}", copy.display());
        assert_eq!(fs::read(copy.join("a")).unwrap(), b"0\n");
        // Something still writes there.
        let mut writer = begin(person, "while :; do mkdir -p d; echo x >> d/x; done");
        assert!(wait_until(WAIT, || copy.join("d/x").exists()));
        let ran = person.line("kill box --json").run().expect_code(0);
        assert!(ran.out().contains("\"left\": null") || ran.out().contains("\"left\":null"));
        assert!(!copy.exists());
        writer.wait().unwrap();

        start(person);
        let copy = other_side(person);
        let list = person.line("list --json").run().expect_code(0).out();
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let pid = list["data"]["sandboxes"][0]["pid"].as_u64().unwrap();
        let mut kill = person.program("kill");
        assert!(
            kill.args(["-KILL", &pid.to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert!(wait_until(WAIT, || {
            person
                .line("list")
                .run()
                .expect_code(0)
                .out()
                .contains("lost")
                || !person.line("list").run().out().contains("box")
        }));
        if copy.exists() {
            let ran = person.line("kill box").run();
            let said = ran.err();
            assert!(
                said.contains("glovebox-box") || said.contains("nothing to do"),
                "{said}"
            );
        }
        person.assert_nothing_lives();
    });
}

#[test]
fn a_file_that_never_holds_still_is_named_and_not_taken() {
    let person = Person::myself();
    person.write("project/calm", "0\n");
    start(&person);
    // Long enough to be written to while it is read, whole only with equal lines.
    let mut writer = begin(
        &person,
        "echo 1 > calm; head -c 64000000 /dev/zero > wild; touch begun; \
         while :; do echo x 1<>wild; done",
    );
    let copy = other_side(&person);
    assert!(wait_until(WAIT, || copy.join("begun").exists()));
    let ran = person.line("pull box").run().expect_code(0);
    let said = ran.err();
    assert!(
        said.contains("wild") && said.contains("changed while"),
        "{said}"
    );
    assert!(!person.project().join("wild").exists());
    assert_eq!(fs::read(person.project().join("calm")).unwrap(), b"1\n");
    person.line("kill box").run().expect_code(0);
    writer.wait().unwrap();
    person.assert_nothing_lives();
}
