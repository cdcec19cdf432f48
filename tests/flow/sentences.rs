//! What is said in situations that users meet sooner or later: the right thing, once.

use crate::screen::Terminal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use testkit::Person;

#[test]
fn granted_toolchains_are_named_when_they_change() {
    Person::each(|person| {
        let toolchain = "home/.cargo/bin/cargo";
        person.write(toolchain, "#!/bin/sh\n");
        let path = person.place().root().join(toolchain);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let said = |line: &str| {
            let ran = person.line(line).run().expect_code(0);
            ran.err().contains("readable inside")
        };
        assert!(said("run -- true"));
        assert!(!said("run -- true"));
        assert!(!said("start box"));
        assert!(said("run -v -- true"));
        // Another project has not been told.
        let other = person.place().root().join("project/other");
        fs::create_dir(&other).unwrap();
        person.own(&other);
        assert!(said(&format!("-C {} run -- true", other.display())));
        assert!(!said("run -- true"));
        // Something else is readable now.
        let go = "home/.pyenv/versions/3/bin/python";
        person.write(go, "#!/bin/sh\n");
        assert!(said("run -- true"));
        assert!(!said("run -- true"));
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_fork_that_was_never_started_says_so() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let ran = person.line("fork --no-start box twin").run().expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        glovebox: sandbox `twin` is made, with the files of `box` at checkpoint v1
        glovebox: `glovebox start twin` brings it up
        ");
        let ran = person.line("exec twin -- true").run().expect_code(125);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `twin` is not running: it has not been started yet
        hint: `glovebox start twin` starts it, `glovebox kill twin` removes it
        ");
        let _ = person.line("start -q twin").run().expect_code(0);
        let _ = person.line("exec twin -- true").run().expect_code(0);
        let _ = person.line("kill box twin").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_fork_of_a_busy_sandbox_names_flags_that_exist() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let script = "sleep 300 >/dev/null 2>&1 &";
        let _ = person
            .script("exec --keep-background box", script)
            .run()
            .expect_code(0);
        let ran = person.line("fork box twin").run().expect_code(5);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: something runs in the sandbox, and would lose its files
        hint: wait for it or end it (`glovebox logs box` lists what runs), or fork from a copy of the files: `glovebox checkpoint box --live`, then `glovebox fork box twin --from ID`, the id it names
        ");
        // What it says works.
        let _ = person.line("checkpoint box --live").run().expect_code(0);
        let _ = person.line("fork box twin --from v1").run().expect_code(0);
        let _ = person.line("kill box twin").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_path_that_is_nowhere_is_said() {
    Person::each(|person| {
        person.write("project/there.txt", "text\n");
        let _ = person.line("start -q box").run().expect_code(0);
        let _ = person
            .script("exec box", "mkdir new; echo x > new/file; rm there.txt")
            .run()
            .expect_code(0);
        let ran = person.line("diff box no/such").run().expect_code(6);
        assert!(ran.stdout.is_empty(), "{ran}");
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: there is no path `no/such` in the project, nor among the changes
        hint: paths are relative to the workspace; without a path, all changes are shown
        ");
        let ran = person
            .line("diff --json box there.txt no/such")
            .run()
            .expect_code(6);
        assert!(
            ran.out().contains(r#""success":false"#) && ran.out().contains(r#""code":"not-found""#),
            "{ran}"
        );
        for path in ["there.txt", "new", "new/file", "."] {
            let _ = person
                .line(&format!("diff box {path}"))
                .run()
                .expect_code(0);
        }
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn a_tab_in_a_shown_patch_is_a_tab() {
    Person::each(|person| {
        person.write("project/code.c", "int x;\n");
        let _ = person.line("start -q box").run().expect_code(0);
        let _ = person
            .script("exec box", r"printf '\tint y;\033[6n\n' > code.c")
            .run()
            .expect_code(0);
        let terminal = Terminal::run(person, &["diff", "box"]);
        terminal.see("+\tint y;\u{1b}[7m\\x1b\u{1b}[27m[6n");
        assert_eq!(terminal.end(), 0);
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn memory_that_is_too_small_names_the_least() {
    Person::each(|person| {
        let ran = person
            .line("run --memory 1k -- true")
            .run()
            .expect_code(125);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: a memory limit of 1 KiB is too small: a sandbox does not start in it
        hint: give it at least 8 MiB, as in `--memory 8MiB`
        ");
        let ran = person.line("start --memory 4MiB box").run().expect_code(2);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: a memory limit of 4 MiB is too small: a sandbox does not start in it
        hint: give it at least 8 MiB, as in `--memory 8MiB`
        ");
        let _ = person
            .line("run --memory 8MiB -- true")
            .run()
            .expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn amounts_are_written_for_people() {
    Person::each(|person| {
        let _ = person
            .line("start -q --memory 2GiB --cpus 1.5 --disk 64MiB box")
            .run()
            .expect_code(0);
        let info = person.line("info box").run().expect_code(0).out();
        assert!(info.contains("memory 2 GiB, 1.5 cpus, pids "), "{info}");
        assert!(info.contains("disk 64 MiB"), "{info}");
        let _ = person.line("kill box").run().expect_code(0);
        let ran = person
            .script("run --disk 8MiB", "head -c 50000000 /dev/zero > a; sleep 5")
            .run();
        assert!(!ran.err().contains("8388608"), "{ran}");
        let ran = person.line("run --memory 1k -- true").run();
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: a memory limit of 1 KiB is too small: a sandbox does not start in it
        hint: give it at least 8 MiB, as in `--memory 8MiB`
        ");
    });
}

#[test]
fn failures_are_objects_where_objects_were_asked_for() {
    Person::each(|person| {
        for (line, code, word) in [
            ("start --json Bad_Name", 2, "invalid-argument"),
            ("start --json --memory 1k box", 2, "invalid-argument"),
            ("run --json -- no-such-command", 127, "command-not-found"),
            ("run --json --memory 1k -- true", 125, "invalid-argument"),
            (
                "run --json --keep Bad_Name -- true",
                125,
                "invalid-argument",
            ),
        ] {
            let ran = person.line(line).run().expect_code(code);
            assert!(ran.out().contains(r#""success":false"#), "{line}: {ran}");
            assert!(
                ran.out().contains(&format!(r#""code":"{word}""#)),
                "{line}: {ran}"
            );
            assert!(!ran.err().contains("error:"), "{line}: {ran}");
            assert_eq!(ran.out().lines().count(), 1, "{line}: {ran}");
        }
        let ran = person
            .script("run --json", "cat; echo oops >&2; exit 3")
            .input("words")
            .run()
            .expect_code(3);
        for part in [
            r#""success":false"#,
            r#""exit_code":3"#,
            r#""stdout":"words""#,
            r#""stderr":"oops\n""#,
            r#""error":null"#,
        ] {
            assert!(ran.out().contains(part), "{part}: {ran}");
        }
        let ran = person
            .script("run --json --apply auto", "echo x > made")
            .run()
            .expect_code(0);
        assert!(ran.out().contains(r#""success":true"#), "{ran}");
        assert!(person.project().join("made").is_file());
        person.assert_nothing_left();
    });
}

#[test]
fn a_state_directory_that_others_may_read_is_made_private() {
    Person::each(|person| {
        let state = person.place().state();
        person.place().empty_state();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
        let _ = person.line("run -- true").run().expect_code(0);
        assert_eq!(
            fs::metadata(&state).unwrap().permissions().mode() & 0o7777,
            0o700
        );
        // What others could have written to is not trusted.
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        let ran = person.line("list").run().expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: will not use [ROOT]/state for state: others may write to it
        hint: chmod 700 [ROOT]/state
        ");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        // Nor is a directory of something else closed by mistake.
        let documents = person.write("documents/letter", "text");
        let documents = documents.parent().unwrap();
        fs::set_permissions(documents, fs::Permissions::from_mode(0o755)).unwrap();
        let ran = person
            .line("list")
            .env("GLOVEBOX_STATE", documents)
            .run()
            .expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: will not use [ROOT]/documents for state: others may look into it, and it holds something else
        hint: name an empty directory, or chmod 700 [ROOT]/documents
        ");
        assert_eq!(
            fs::metadata(documents).unwrap().permissions().mode() & 0o777,
            0o755
        );
    });
}

#[test]
fn the_doctor_knows_the_inside() {
    Person::each(|person| {
        let program = person.project().join("glovebox-copy");
        fs::copy(person.binary(), &program).unwrap();
        person.own(&person.project());
        let ran = person
            .script(
                "run -q",
                "./glovebox-copy doctor; echo code-$?; ./glovebox-copy run -- true",
            )
            .run();
        assert!(
            ran.out()
                .contains("this is the inside of a Glovebox sandbox"),
            "{ran}"
        );
        assert!(ran.out().contains("code-1"), "{ran}");
        assert!(
            !ran.out().contains("sudo") && !ran.out().contains("fix:"),
            "{ran}"
        );
        insta::assert_snapshot!(ran.said("no further one", person.place().root()), @"hint: this is the inside of a Glovebox sandbox, and a wall of it is that no further one can be made there; run the command as it is");
        let ran = person.line("doctor --json").run();
        assert!(ran.out().contains(r#""inside_sandbox":false"#), "{ran}");
    });
}

#[test]
fn an_export_says_what_it_prints() {
    let person = Person::myself();
    let export = person
        .line("sessions export --help")
        .run()
        .expect_code(0)
        .out();
    assert!(
        export.contains("Print the kept events") && export.contains("JSON lines"),
        "{export}"
    );
    let show = person
        .line("sessions show --help")
        .run()
        .expect_code(0)
        .out();
    assert!(
        show.starts_with("Show a session") && !show.contains("JSON"),
        "{show}"
    );
}
