//! The git directory inside is a whole one of one moment: what the user does to the repository meanwhile is neither
//! taken back by a commit inside nor pulled away from under it.

use super::workspace::{host, inside};
use testkit::{Person, has_program, skip};

const MAKE: &str = "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    seq 1 20 > a && seq 1 20 > b && mkdir d && echo x > d/f && git add . && git commit -q -m first";

/// What the sandbox has of the repository is old or new as a whole, whatever it has written of it before.
#[test]
fn commit_of_the_user_survives_one_made_inside() {
    if !has_program("git") {
        skip!("needs git");
    }
    let befores = [
        ":",
        "echo inside >> b && git add b",
        "git status && git log -1 && git stash list && git gc -q",
        "git branch other && git tag t",
    ];
    Person::each(|person| {
        for before in befores {
            host(person, "rm -rf .git * && true");
            host(person, MAKE);
            let _ = person.line("start work").run().expect_code(0);
            inside(person, before);
            host(
                person,
                "sed -i 's/^5$/5 by the user/' a && git commit -q -a -m user",
            );
            inside(
                person,
                "echo inside >> b && git add b && git commit -q -m inside",
            );
            let _ = person.line("pull work --commits").run().expect_code(0);
            host(person, "git merge -q --no-edit sandbox/work");
            assert_eq!(host(person, "grep -c 'by the user' a"), "1\n", "{before}");
            assert_eq!(host(person, "tail -1 b"), "inside\n", "{before}");
            let _ = person.line("kill work").run().expect_code(0);
        }
        person.assert_nothing_left();
    });
}

/// The first command sees a clean tree: no look at the files has refreshed the index before.
#[test]
fn clean_tree_is_clean_at_once() {
    if !has_program("git") {
        skip!("needs git");
    }
    let looks = [
        "git diff-index --name-only HEAD",
        "git diff-files --name-only",
        "git describe --always --dirty=-dirty | grep dirty || true",
    ];
    Person::each(|person| {
        host(person, MAKE);
        for look in looks {
            let ran = person
                .script("run --quiet --apply never", look)
                .run()
                .expect_code(0);
            assert_eq!(ran.out(), "", "{look}");
        }
        // An edit of the same length is seen, in the second of the commit too.
        host(person, "sed -i 's/^x/y/' d/f");
        let ran = person
            .script("run --quiet --apply never", looks[1])
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "d/f\n");
    });
}

/// References of all kinds, a stash, an operation in progress and the upstream are there; locks and credentials not.
#[test]
fn seed_holds_what_git_works_with() {
    if !has_program("git") {
        skip!("needs git");
    }
    let make = format!(
        "{MAKE} && git tag -a -m note v1 && git branch old && git pack-refs --all && git branch new && \
         git commit -q --allow-empty -m second && echo more >> a && git stash -q && \
         git update-ref refs/remotes/origin/main HEAD && git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main && \
         git config remote.origin.url . && git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*' && git config branch.main.remote origin && git config branch.main.merge refs/heads/main && \
         printf 'ignored\\n' >> .git/info/exclude && printf '#!/bin/sh\\necho hooked > hooked\\n' > .git/hooks/post-commit && \
         chmod +x .git/hooks/post-commit && git bisect start -q HEAD HEAD~1 2>/dev/null && touch .git/index.lock ignored"
    );
    let look = "git for-each-ref && git show-ref -d v1 && git stash list && git bisect log && git status --porcelain --branch && \
        git rev-parse --abbrev-ref '@{upstream}' && git log -g --format=%gs HEAD";
    Person::each(|person| {
        host(person, &make);
        let outside = host(person, look);
        assert!(
            outside.contains("refs/heads/old") && outside.contains("stash@{0}"),
            "{outside}"
        );
        let ran = person
            .script("run --quiet --apply never", look)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), outside);
        let work = "test ! -e .git/index.lock && echo z >> b && git commit -q -a -m inside && cat hooked && git stash pop -q && git fsck --no-dangling";
        let ran = person
            .script("run --quiet --apply never", work)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "hooked\n", "{ran}");
        assert_eq!(
            host(
                person,
                "ls hooked 2>/dev/null || true; git log -1 --format=%s"
            ),
            "second\n"
        );
    });
}

/// A clean-up on the host takes no object away that the sandbox began with.
#[test]
fn objects_stay_whatever_the_host_cleans_up() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, MAKE);
        host(
            person,
            "git commit -q --allow-empty -m second && echo late >> a && git commit -q -a -m third",
        );
        let _ = person.line("start work").run().expect_code(0);
        host(
            person,
            "git reset -q --hard HEAD~2 && git reflog expire --expire=now --all && git gc -q --prune=now",
        );
        let log = inside(
            person,
            "git log --format=%s && git fsck --no-dangling && git show HEAD:a | tail -1",
        );
        assert_eq!(log, "third\nsecond\nfirst\nlate\n");
        let _ = person.line("kill work").run().expect_code(0);
        person.assert_nothing_left();
        // Of the user's files nothing went with it.
        assert_eq!(
            host(person, "git fsck --no-dangling && git log --format=%s"),
            "first\n"
        );
    });
}

#[test]
fn linked_worktrees_submodules_and_nested_repositories_work() {
    if !has_program("git") {
        skip!("needs git");
    }
    let make = format!(
        "{MAKE} && git worktree add -q ../tree -b side && git clone -q . nested && git -C nested config user.name T && \
         git -C nested config user.email t@example.org && \
         git -c protocol.file.allow=always submodule --quiet add \"$PWD/.git\" sub && git commit -q -m sub && \
         git -C sub config user.name T && git -C sub config user.email t@example.org"
    );
    Person::each(|person| {
        host(person, &make);
        let work = "for dir in . nested sub; do (cd $dir && test -z \"$(git diff-index --name-only HEAD)\" && echo w >> b && \
            git commit -q -a -m inside && git stash list && git log -1 --format=%s && git fsck --no-dangling) || exit; done; git submodule status | cut -c1";
        let ran = person
            .script("run --quiet --apply never", work)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "inside\ninside\ninside\n+\n", "{ran}");
        let tree = "git branch --show-current && echo w >> a && git stash -q && git stash pop -q && git commit -q -a -m inside && \
            git log --format=%s && git fsck --no-dangling";
        let ran = person
            .script("run --quiet --apply never", tree)
            .dir(person.project().join("../tree"))
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "side\ninside\nfirst\n", "{ran}");
        assert_eq!(
            host(
                person,
                "git log -1 --format=%s side && git log -1 --format=%s"
            ),
            "first\nsub\n"
        );
        person.assert_nothing_left();
    });
}

/// Checkpoints and forks keep the git directory that they began with.
#[test]
fn forks_and_restores_keep_their_repository() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, MAKE);
        let _ = person.line("start work").run().expect_code(0);
        inside(person, "echo one >> b && git commit -q -a -m one");
        let _ = person.line("checkpoint work").run().expect_code(0);
        host(
            person,
            "sed -i 's/^5$/5 by the user/' a && git commit -q -a -m user",
        );
        inside(
            person,
            "echo two >> b && git commit -q -a -m two && git status --porcelain",
        );
        let _ = person
            .line("fork work other --from v1")
            .run()
            .expect_code(0);
        let look =
            "git log --format=%s && git fsck --no-dangling && git diff-index --name-only HEAD";
        let forked = person.script("exec other", look).run().expect_code(0);
        // The user's edit is seen as one: files are live, the repository is not.
        assert_eq!(forked.out(), "one\nfirst\na\n");
        let _ = person.line("restore work v1").run().expect_code(0);
        assert_eq!(inside(person, look), "one\nfirst\na\n");
        let _ = person.line("kill work").run().expect_code(0);
        let forked = person
            .script(
                "exec other",
                "git fsck --no-dangling && git log -1 --format=%s",
            )
            .run();
        assert_eq!(forked.expect_code(0).out(), "one\n");
        let _ = person.line("kill other").run().expect_code(0);
        person.assert_nothing_left();
    });
}

/// A sandbox that has done nothing gets the repository as it is by now; one that has worked keeps its own.
#[test]
fn restart_takes_back_nothing_that_was_committed_meanwhile() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, MAKE);
        let _ = person.line("start work").run().expect_code(0);
        inside(person, "git status --porcelain && git log -1 --format=%s");
        let _ = person.line("stop work").run().expect_code(0);
        host(
            person,
            "sed -i 's/^5$/5 by the user/' a && git commit -q -a -m user",
        );
        let _ = person.line("start work").run().expect_code(0);
        assert_eq!(
            inside(person, "git log -1 --format=%s && git status --porcelain"),
            "user\n"
        );

        inside(person, "sed -i 's/^15$/15 inside/' a");
        let _ = person.line("stop work").run().expect_code(0);
        host(
            person,
            "sed -i 's/^10$/10 by the user/' a && git commit -q -a -m again",
        );
        let _ = person.line("start work").run().expect_code(0);
        assert_eq!(inside(person, "git log -1 --format=%s"), "user\n");
        inside(person, "git commit -q -a -m inside");
        let _ = person.line("pull work --commits").run().expect_code(0);
        host(person, "git merge -q --no-edit sandbox/work");
        assert_eq!(host(person, "grep -c 'by the user\\|inside' a"), "3\n");
        let _ = person.line("kill work").run().expect_code(0);
        person.assert_nothing_left();
    });
}

/// Tracked files that are hidden count as unchanged: a commit of everything does not delete them.
#[test]
fn commit_of_everything_keeps_what_is_hidden() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        for version in ["2", "4"] {
            host(person, "rm -rf .git * && true");
            host(
                person,
                &format!("{MAKE} && git update-index --index-version {version}"),
            );
            let work = "test ! -e a && test ! -e d && git status --porcelain && echo more >> b && git commit -q -a -m inside && \
                git show --name-only --format= && git ls-files && git fsck";
            let ran = person
                .script("run --quiet --apply never --exclude /a --exclude d", work)
                .run()
                .expect_code(0);
            assert_eq!(ran.out(), "b\na\nb\nd/f\n", "{ran}");
        }
    });
}
