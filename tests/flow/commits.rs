//! Commits that were made inside come out as objects on a branch, and nothing else of the repository does.

use super::workspace::{host, on_the_host};
use std::fs;
use testkit::{Person, has_program, skip};

const MAKE: &str = "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    mkdir src && echo one > src/a && git add . && git commit -q -m first";

fn ready(person: &Person) {
    on_the_host(person, &person.project(), MAKE);
    let _ = person.line("start work").run().expect_code(0);
}

#[test]
fn commits_come_out_as_a_branch_and_move_it_forward() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        ready(person);
        let ran = person.line("pull work --commits").run().expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"glovebox: the sandbox has no commits that you do not have");
        assert_eq!(host(person, "git branch"), "* main\n");
        let work = "echo two > src/a && git commit -q -a -m second && git checkout -q -b inside && \
            echo b > b && git add b && git commit -q -m third && git tag t && echo open > open && \
            git config core.hooksPath /tmp/hooks && git config alias.x '!touch /tmp/x' && \
            printf '#!/bin/sh\\n' > .git/hooks/post-checkout && git rev-parse HEAD";
        let head = person.script("exec work", work).run().expect_code(0).out();
        let config = fs::read(person.project().join(".git/config")).unwrap();
        let hooks = host(person, "ls .git/hooks");
        let ran = person.line("pull work --commits").run().expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        glovebox: 2 commits on the new branch `sandbox/work`
        glovebox: `git log -p HEAD..sandbox/work` shows them, `git merge sandbox/work` takes them; what is not committed stays in the sandbox
        ");
        assert_eq!(host(person, "git rev-parse sandbox/work"), head);
        let log = host(person, "git log --format=%s main..sandbox/work");
        assert_eq!(log, "third\nsecond\n");
        // Neither files, nor other references, nor anything that git obeys.
        assert_eq!(
            host(person, "git status --short && git tag && git branch"),
            "* main\n  sandbox/work\n"
        );
        assert_eq!(
            fs::read(person.project().join(".git/config")).unwrap(),
            config
        );
        assert_eq!(host(person, "ls .git/hooks"), hooks);
        assert_eq!(
            host(person, "git fsck --strict 2>&1 | grep -v '^notice' || true"),
            ""
        );
        assert_eq!(
            host(person, "ls -d .git/glovebox-* 2>/dev/null || true"),
            ""
        );

        let more = "git commit -q --allow-empty -m fourth";
        let _ = person.script("exec work", more).run().expect_code(0);
        let ran = person
            .line("pull work --commits --json")
            .run()
            .expect_code(0);
        let told: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(told["data"]["commits"], 1, "{ran}");
        assert_eq!(told["data"]["is_new"], false, "{ran}");
        let ran = person
            .line("pull work --commits topic")
            .run()
            .expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"glovebox: the sandbox has no commits that you do not have");

        // A branch that went another way stays, and so does the one that is checked out.
        host(
            person,
            "git branch -f sandbox/work main~0 && git checkout -q sandbox/work && git commit -q --allow-empty -m own && git checkout -q main",
        );
        let own = host(person, "git rev-parse sandbox/work");
        let ran = person.line("pull work --commits").run().expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the pull failed at apply: the branch `sandbox/work` has commits that the sandbox's does not have
        hint: choose another name with `--commits NAME`, or remove it with `git branch -D sandbox/work`
        ");
        assert_eq!(host(person, "git rev-parse sandbox/work"), own);
        let ran = person.line("pull work --commits main").run().expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the pull failed at apply: the branch `main` is checked out in [ROOT]/project/.git
        hint: choose another name with `--commits NAME`, and `git merge NAME` then
        ");
        let _ = person
            .line("pull work --commits two..dots")
            .run()
            .expect_code(1);
        let _ = person
            .line("pull work --commits side/track")
            .run()
            .expect_code(0);
        assert_eq!(
            host(
                person,
                "git log -1 --format=%s side/track && git merge -q side/track && git log -1 --format=%s"
            ),
            "fourth\nfourth\n"
        );
        let _ = person.line("kill work").run().expect_code(0);
    });
}

#[test]
fn a_sandbox_named_in_the_place_of_a_branch_is_a_usage_error() {
    if !has_program("git") {
        skip!("needs git");
    }
    let person = Person::myself();
    ready(&person);
    let work = "echo two > src/a && git commit -q -a -m second";
    person.script("exec work", work).run().expect_code(0);
    let ran = person.line("pull --commits work").run().expect_code(2);
    assert!(ran.err().contains("glovebox pull work --commits"), "{ran}");
    assert_eq!(host(&person, "git branch"), "* main\n");
    person.line("pull --commits fix").run().expect_code(0);
    assert_eq!(host(&person, "git branch"), "  fix\n* main\n");
}

/// What a sandbox says its git is may be anything.
#[test]
fn objects_that_are_not_sound_are_not_taken() {
    if !has_program("git") {
        skip!("needs git");
    }
    // A tree with `.git` in it, made by hand; a commit whose tree is not there; an answer that is no pack;
    // and a program in place of git that answers with the name of an option.
    const LIES: [(&str, &str); 4] = [
        (
            "blob=$(echo x | git hash-object -w --stdin) && \
             tree=$(printf \"100644 .git\\0$(echo $blob | sed 's/../\\\\x&/g')\" | git hash-object -t tree -w --literally --stdin) && \
             git update-ref refs/heads/main $(git commit-tree -p HEAD -m bad $tree)",
            "not sound",
        ),
        (
            "tree=$(git rev-parse HEAD^{tree}) && \
             bad=$(git cat-file commit HEAD | sed s/$tree/1111111111111111111111111111111111111111/ | git hash-object -t commit -w --literally --stdin) && \
             git update-ref refs/heads/main $bad",
            "",
        ),
        (
            "printf '#!/bin/sh\\ncase $1 in rev-parse) echo 1234567890123456789012345678901234567890;; pack-objects) echo nonsense;; esac\\n' > git",
            "not sound",
        ),
        (
            "printf '#!/bin/sh\\necho --upload-pack=x\\n' > git",
            "no commit",
        ),
    ];
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        let before = host(person, "git rev-parse --all && find .git -type f | sort");
        for (lie, word) in LIES {
            let path = "PATH=/workspace:/usr/local/bin:/usr/bin:/bin";
            let _ = person
                .glovebox(["start", "liar", "--env", path])
                .run()
                .expect_code(0);
            let made = person
                .glovebox([
                    "exec",
                    "liar",
                    "--",
                    "bash",
                    "-c",
                    &format!("{lie} && chmod -f +x git || true"),
                ])
                .run();
            assert_eq!(made.code, 0, "{made}");
            let ran = person.line("pull liar --commits").run();
            assert_ne!(ran.code, 0, "{lie}: {ran}");
            assert!(ran.err().contains(word), "{lie}: {ran}");
            let after = host(person, "git rev-parse --all && find .git -type f | sort");
            assert_eq!(after, before, "{lie}: {ran}");
            let _ = person.line("kill liar").run().expect_code(0);
        }
    });
}
