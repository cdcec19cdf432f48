//! Projects copied over a carrier: what is left of them when the sandbox ends, and what is taken of files
//! that are written to all the time.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
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
fn a_call_removes_its_copy_when_nothing_was_changed() {
    Person::each(|person| {
        person.write("project/a", "0\n");
        let home = person.place().home();
        let look = |carrier: &str| {
            person
                .glovebox(["call", "Bash", r#"{"command":"true"}"#])
                .env("GLOVEBOX_BACKEND", "command")
                .env("GLOVEBOX_CARRIER", carrier)
                .env("GLOVEBOX_WORKSPACE", "copy")
                .env("GLOVEBOX_MEMORY", "1GiB")
                .run()
        };
        let ran = look(&format!("env -C {} sh", home.display())).expect_code(0);
        insta::assert_snapshot!(ran.said("does not hold", person.place().root()), @"warning: the memory limit of 1 GiB does not hold here: the command backend cannot hold limits on the other side");
        let names = fs::read_dir(&home).unwrap().flatten();
        let copies = names.filter(|entry| entry.file_name().as_bytes().starts_with(b"glovebox-"));
        assert_eq!(copies.count(), 0);
        person.assert_nothing_left();

        // Nothing can be made in there, so there is no copy to work on.
        let ran = look("env -C /proc sh");
        assert_ne!(ran.code, 0, "{ran}");
        assert!(ran.err().contains("push"), "{ran}");
        person.assert_nothing_left();
    });
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

/// Long enough to be written to while it is read, whole only with equal lines.
const WILD: &str = "echo 1 > calm; head -c ${BYTES:-64000000} /dev/zero > wild; touch begun; \
                    while :; do echo x 1<>wild; done";

#[test]
fn a_file_that_others_never_hold_still_is_named_and_not_taken() {
    let person = Person::myself();
    person.write("project/calm", "0\n");
    start(&person);
    let copy = other_side(&person);
    // Not by the sandbox, which could hold it still.
    let mut writer = person.program("sh");
    writer.args(["-c", WILD]).current_dir(&copy);
    // Read for so long that the writer has its turn meanwhile, whatever else this machine does.
    writer.env("BYTES", "256000000");
    let mut writer = writer.stdin(Stdio::null()).spawn().unwrap();
    assert!(wait_until(WAIT, || copy.join("begun").exists()));
    let ran = person.line("pull box").run().expect_code(0);
    writer.kill().unwrap();
    writer.wait().unwrap();
    insta::assert_snapshot!(ran.said("changed while", person.place().root()), @"wild: changed while it was collected; pull again when nothing writes to it");
    assert!(!person.project().join("wild").exists());
    assert_eq!(fs::read(person.project().join("calm")).unwrap(), b"1\n");
    person.line("kill box").run().expect_code(0);
    person.assert_nothing_lives();
}

#[test]
fn a_file_that_commands_never_hold_still_is_taken_whole() {
    let person = Person::myself();
    person.write("project/calm", "0\n");
    start(&person);
    let mut writer = begin(&person, WILD);
    let copy = other_side(&person);
    assert!(wait_until(WAIT, || copy.join("begun").exists()));
    let said = person.line("pull box").run().expect_code(0).err();
    assert!(!said.contains("went on"), "{said}");
    let size = fs::metadata(person.project().join("wild")).unwrap().len();
    assert_eq!(size, 64_000_000);
    person.line("kill box").run().expect_code(0);
    writer.wait().unwrap();
    person.assert_nothing_lives();
}

#[test]
fn what_is_written_in_memory_comes_back_as_well() {
    const WORK: &str = "echo 1 > a && rm gone && mkdir -p new/dir && echo n > new/dir/file && \
                        rm -r dir && mkdir dir && echo x > dir/only && chmod +x tool && ln -s a near && mv old moved";
    Person::each(|person| {
        for (path, content) in [
            ("a", "0\n"),
            ("gone", ""),
            ("dir/below", "1\n"),
            ("tool", "#!/bin/sh\n"),
            ("old", "the same content before and after\n"),
        ] {
            person.write(format!("project/{path}"), content);
        }
        let project = person.project();
        let look = |path: &str| fs::read_to_string(project.join(path)).ok();
        let is_done = || {
            assert_eq!(look("a").as_deref(), Some("1\n"));
            assert_eq!(look("new/dir/file").as_deref(), Some("n\n"));
            assert_eq!(look("dir/only").as_deref(), Some("x\n"));
            assert_eq!(look("near").as_deref(), Some("1\n"));
            assert!(look("moved").is_some());
            for gone in ["gone", "dir/below", "old"] {
                assert_eq!(look(gone), None, "{gone}");
            }
        };
        if !testkit::has_layers_in_memory() {
            return;
        }
        person
            .line("start box --layers memory")
            .run()
            .expect_code(0);
        person.script("exec box", WORK).run().expect_code(0);
        let diff = person.line("diff box --stat").run().expect_code(0).out();
        assert!(
            diff.contains("new/dir/file") && diff.contains("gone"),
            "{diff}"
        );
        // Both sides.
        person.write("project/a", "mine\n");
        person.line("pull box").run().expect_code(3);
        assert_eq!(look("a").as_deref(), Some("mine\n"));
        assert_eq!(look("a.theirs").as_deref(), Some("1\n"));
        person.line("pull box --force").run().expect_code(0);
        is_done();
        person.line("kill box").run().expect_code(0);

        // One command, from nothing to its changes.
        person
            .script("run --layers memory --apply auto", "echo 2 > a; rm -r new")
            .run()
            .expect_code(0);
        assert_eq!(look("a").as_deref(), Some("2\n"));
        assert!(!project.join("new").exists());
        person.assert_nothing_lives();
    });
}

#[test]
fn what_lies_outside_the_workspace_comes_back_to_where_it_is_wanted() {
    Person::each(|person| {
        person.write("project/dist/a.js", "0\n");
        person.line("start box").run().expect_code(0);
        let made = "mkdir -p /tmp/out/deep/.git && cd /tmp/out && echo one > deep/one && echo x > '*' && \
                    mkfifo pipe && ln -s /etc/passwd away && ln -s deep/one near && echo 1 > deep/.git/x && \
                    chmod +x deep/one && echo 1 > /workspace/dist/a.js && echo 2 > /workspace/dist/b.js";
        person.script("exec box", made).run().expect_code(0);

        let ran = person.line("pull box --from /tmp/out").run().expect_code(2);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: /tmp/out does not lie in the workspace
        hint: name the directory that it goes to with --to DIR
        ");
        let to = person.place().home().join("to");
        fs::create_dir(&to).unwrap();
        person.own(&to);
        let pull = |from: &str| {
            person.glovebox(["pull", "box", "--from", from, "--to", to.to_str().unwrap()])
        };
        let ran = pull("/tmp/out").run().expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        glovebox: applied to ~/to: 4 added
        warning: look at these before you use them:
          deep/one: became executable
        glovebox: 3 paths stay in the sandbox:
          deep/.git: part of `.git` or of the repository that it names, which never comes back
          pipe: a device, FIFO or socket
          away: a link that leads out of the workspace
        ");
        for stays in ["pipe", "away", "deep/.git"] {
            assert!(fs::symlink_metadata(to.join(stays)).is_err(), "{stays}");
        }
        assert_eq!(fs::read(to.join("deep/one")).unwrap(), b"one\n");
        assert_eq!(fs::read(to.join("near")).unwrap(), b"one\n");
        let mode = fs::metadata(to.join("deep/one")).unwrap().permissions();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&mode) & 0o100,
            0o100
        );

        // One file, by a name that is a pattern; what is there already and differs stays.
        fs::remove_dir_all(to.join("deep")).unwrap();
        pull("/tmp/out/*").run().expect_code(0);
        assert!(!to.join("deep").exists());
        fs::write(to.join("*"), "mine\n").unwrap();
        pull("/tmp/out/*").run().expect_code(3);
        assert_eq!(fs::read(to.join("*")).unwrap(), b"mine\n");
        assert_eq!(fs::read(to.join("*.theirs")).unwrap(), b"x\n");

        // One file of the workspace.
        pull("/workspace/dist/b.js").run().expect_code(0);
        assert_eq!(fs::read(to.join("b.js")).unwrap(), b"2\n");
        assert!(!to.join("a.js").exists());

        let ran = pull("/tmp/nowhere").run();
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the pull failed at collect: cannot look at `/tmp/nowhere`: it does not exist
        hint: nothing was changed and the sandbox is as it was; try again with `glovebox pull box --from /tmp/nowhere --to [ROOT]/home/to`
        ");
        let ran = pull("/tmp/out/pipe").run();
        insta::assert_snapshot!(ran.failure(person.place().root()), @"error: the pull failed at collect: cannot pull /tmp/out/pipe: it is neither a directory nor a file");
        person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

#[test]
fn where_processes_cannot_be_held_it_is_said() {
    Person::each(|person| {
        let mut probe = person.program("unshare");
        let hide = "mount -t tmpfs none /proc";
        let can = probe
            .args(["-Urm", "sh", "-c", hide])
            .stderr(Stdio::null())
            .status();
        if !can.is_ok_and(|status| status.success()) {
            testkit::skip!("no user namespaces for somebody who wants to hide /proc");
        }
        person.write("project/a", "0\n");
        let home = person.place().home().display().to_string();
        let carrier = format!("unshare -Urm sh -c '{hide} && cd {home} && exec sh'");
        person
            .glovebox(["start", "box", "--backend", "command", "--carrier"])
            .args([carrier.as_str(), "--workspace", "copy"])
            .run()
            .expect_code(0);
        person.script("exec box", "echo 1 > a").run().expect_code(0);
        let ran = person.line("diff box").run().expect_code(0);
        assert!(ran.err().contains("went on working"), "{ran}");
        let ran = person.line("diff box --json").run().expect_code(0);
        let said: serde_json::Value = serde_json::from_str(&ran.out()).unwrap();
        assert!(said["data"]["unheld"].is_string(), "{ran}");
        let ran = person
            .line("pull box --dry-run --json")
            .run()
            .expect_code(0);
        let said: serde_json::Value = serde_json::from_str(&ran.out()).unwrap();
        assert!(said["data"]["unheld"].is_string(), "{ran}");
        person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}
