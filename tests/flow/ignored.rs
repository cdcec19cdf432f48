//! What a project ignores stays in the sandbox and is one line, unless it is asked for.

use super::workspace::on_the_host;
use std::fs;
use testkit::{Person, has_program, skip};

const MAKE: &str = "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    printf 'target/\\n*.o\\n/dist\\n' > .gitignore && mkdir -p src dist && echo one > src/a && echo kept > dist/kept && \
    echo local.txt > .git/info/exclude && git add -f . && git commit -q -m first";
/// A build: much that is ignored, one file that is not, one that is tracked although it is ignored.
const WORK: &str = "mkdir -p target/debug obj && head -c 2000000 /dev/zero > target/debug/big && \
    echo '#!/bin/sh' > target/debug/run && chmod +x target/debug/run && echo x > obj/a.o && \
    echo x > local.txt && echo two > src/a && echo changed > dist/kept && echo new > dist/new && echo package > src/b";
const TAKEN: &str = "M dist/kept\n  M src/a\n  A src/b";

#[test]
fn ignored_files_are_one_line_and_stay() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        let _ = person.line("start work").run().expect_code(0);
        let _ = person.script("exec work", WORK).run().expect_code(0);
        let ran = person.line("diff work --json").run().expect_code(0);
        let told: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let paths: Vec<&str> = told["data"]["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| change["path"].as_str().unwrap())
            .collect();
        assert_eq!(paths, ["dist/kept", "src/a", "src/b"], "{ran}");
        assert_eq!(told["data"]["ignored"]["paths"], 5, "{ran}");

        let ran = person.line("diff work").run().expect_code(0);
        assert!(
            !ran.out().contains("target") && !ran.out().contains("obj"),
            "{ran}"
        );
        // What runs on the host is about what comes back.
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"glovebox: 5 files (1.9 MiB) left out because the project ignores them: target, dist/new, local.txt, ...; --ignored takes them");
        // Named, or all of it.
        let ran = person
            .line("diff work target/debug/run")
            .run()
            .expect_code(0);
        assert!(ran.out().contains("target/debug/run"), "{ran}");
        let ran = person
            .line("diff work --stat --ignored")
            .run()
            .expect_code(0);
        for name in [
            "target/debug/big",
            "obj/a.o",
            "local.txt",
            "dist/new",
            "src/b",
        ] {
            assert!(ran.out().contains(name), "{name}: {ran}");
        }

        let ran = person
            .line("pull work --patch out.patch")
            .run()
            .expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        glovebox: 5 files (1.9 MiB) left out because the project ignores them: target, dist/new, local.txt, ...; --ignored takes them
        glovebox: 3 changes in out.patch; `git apply` takes it, your files are as before
        ");
        let _ = person
            .line("pull work --branch sandbox/work")
            .run()
            .expect_code(0);
        let show = "git show --format= --name-status sandbox/work && rm out.patch";
        let shown = on_the_host(person, &person.project(), show);
        assert_eq!(shown, "M\tdist/kept\nM\tsrc/a\nA\tsrc/b\n");

        let _ = person.line("pull work").run().expect_code(0);
        let look = "git status --short && ls";
        let left = on_the_host(person, &person.project(), look);
        assert_eq!(left, " M dist/kept\n M src/a\n?? src/b\ndist\nsrc\n");
        let _ = person
            .line("pull work --from target/debug")
            .run()
            .expect_code(0);
        let run = person.project().join("target/debug/run");
        assert!(fs::read_to_string(run).unwrap().starts_with("#!"));
        let _ = person.line("kill work").run().expect_code(0);
    });
}

#[test]
fn the_end_of_a_run_leaves_them_out_and_says_so() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        let ran = person.script("run --apply auto", WORK).run().expect_code(0);
        assert!(ran.err().contains(TAKEN), "{ran}");
        insta::assert_snapshot!(ran.said("they go with the sandbox", person.place().root()), @"glovebox: 5 files (1.9 MiB) left out because the project ignores them: target, dist/new, local.txt, ...; they go with the sandbox, --ignored takes them");
        assert!(!person.project().join("target").exists());
        let ran = person
            .script("run --apply auto --ignored", WORK)
            .run()
            .expect_code(0);
        assert!(person.project().join("target/debug/run").exists(), "{ran}");
        // Removing what the host has of them is left out too, and the host's rules decide.
        let work = "rm -rf target && printf 'src/\\n' > .gitignore && echo three > src/a";
        let ran = person.script("run --apply auto", work).run().expect_code(0);
        assert!(person.project().join("target/debug/run").exists(), "{ran}");
        let text = fs::read_to_string(person.project().join("src/a")).unwrap();
        assert_eq!(text, "three\n", "{ran}");
    });
}

#[test]
fn a_copy_leaves_them_out_too() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        let flags = "run --workspace copy --apply auto";
        let ran = person.script(flags, WORK).run().expect_code(0);
        insta::assert_snapshot!(ran.said("left out because", person.place().root()), @"glovebox: 5 files (1.9 MiB) left out because the project ignores them: target, dist, local.txt, ...; they go with the sandbox, --ignored takes them");
        let left = on_the_host(person, &person.project(), "git status --short");
        assert_eq!(left, " M dist/kept\n M src/a\n?? src/b\n", "{ran}");
        assert!(!person.project().join("target").exists());
    });
}
