//! Commits and stashes that a command makes: what comes of them at its end, and what stays is told and kept.

use super::workspace::host;
use testkit::{Person, has_program, skip};

const MAKE: &str = "rm -rf .git * && git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    seq 1 20 > a && seq 1 20 > b && git add . && git commit -q -m first";

/// Name of the sandbox that a run has parked.
fn parked(person: &Person) -> String {
    let list = person.line("list --json").run().expect_code(0);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let list = list.get("data").unwrap_or(&list);
    let list = list.get("sandboxes").unwrap_or(list);
    list[0]["name"].as_str().unwrap().to_owned()
}

#[test]
fn commits_of_a_run_that_applies_come_as_a_branch() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, MAKE);
        let work = "echo one >> b && git commit -q -a -m one && echo two >> b && git commit -q -a -m two && echo open > open";
        let ran = person.script("run --apply auto", work).run().expect_code(0);
        assert!(
            ran.err().contains("2 commits on the new branch `sandbox/"),
            "{ran}"
        );
        let branch = host(
            person,
            "git branch --list 'sandbox/*' --format='%(refname:short)'",
        );
        let branch = branch.trim();
        assert_eq!(
            host(person, &format!("git log --format=%s {branch}")),
            "two\none\nfirst\n"
        );
        assert_eq!(host(person, "tail -1 b && cat open"), "two\nopen\n");
        // The line names a step that works.
        assert!(
            ran.err().contains(&format!("`git reset {branch}`")),
            "{ran}"
        );
        host(person, &format!("git reset -q {branch}"));
        assert_eq!(host(person, "git status --porcelain"), "?? open\n");
        person.assert_nothing_left();

        // Nothing but commits, of what was there before.
        host(
            person,
            &format!("git branch -q -D {branch} && echo mine > mine"),
        );
        let _ = person
            .script("run --apply auto", "git add mine && git commit -q -m mine")
            .run()
            .expect_code(0);
        assert_eq!(
            host(
                person,
                "git log --format=%s --branches='sandbox/*' --not main"
            ),
            "mine\n"
        );
        person.assert_nothing_left();
    });
}

/// A stash takes what the user has not committed out of the files: nothing is applied then.
#[test]
fn stash_inside_takes_nothing_from_the_user() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, MAKE);
        host(person, "echo mine >> a && echo new > untracked");
        let ran = person
            .script("run --apply auto", "git stash -q -u && echo more >> b")
            .run()
            .expect_code(3);
        assert!(ran.err().contains("1 stash stays in"), "{ran}");
        assert_eq!(
            host(person, "tail -1 a && cat untracked && tail -1 b"),
            "mine\nnew\n20\n"
        );
        let name = parked(person);
        assert!(
            ran.err()
                .contains(&format!("glovebox pull {name} --commits --all")),
            "{ran}"
        );
        let _ = person
            .glovebox(["pull", &name, "--commits", "--all"])
            .run()
            .expect_code(0);
        let log = host(
            person,
            "git log -1 --format=%s --branches='sandbox/*@stash-0'",
        );
        assert!(log.starts_with("WIP on main"), "{log}");
        let _ = person.glovebox(["kill", &name]).run().expect_code(0);
    });
}

/// Work that is not taken over is kept and told, also where no file was changed.
#[test]
fn git_work_is_kept_until_somebody_decides() {
    if !has_program("git") {
        skip!("needs git");
    }
    let commit = "git commit -q --allow-empty -m empty";
    Person::each(|person| {
        host(person, MAKE);
        for (args, work, told) in [
            ("run", commit, "1 commit on `main` stays in"),
            (
                "run --apply auto",
                "git checkout -q -b side && git commit -q --allow-empty -m s && git checkout -q main",
                "1 branch (side) stays in",
            ),
            ("run --apply auto", "git tag v1", "1 tag (v1) stays in"),
        ] {
            let ran = person.script(args, work).run().expect_code(0);
            assert!(ran.err().contains(told), "{ran}");
            let name = parked(person);
            let _ = person.glovebox(["kill", &name]).run().expect_code(0);
        }
        let ran = person
            .script("run --apply discard", &format!("{commit} && echo x >> b"))
            .run()
            .expect_code(0);
        assert!(
            ran.err().contains("1 change and 1 commit discarded"),
            "{ran}"
        );
        // To look is no work.
        let look = "git status -s && git log -1 && git diff && git gc -q";
        let ran = person.script("run", look).run().expect_code(0);
        assert!(!ran.err().contains("stay"), "{ran}");
        person.assert_nothing_left();
        assert_eq!(
            host(person, "git for-each-ref --format='%(refname)'"),
            "refs/heads/main\n"
        );
    });
}

/// Commits that nobody has fetched do not go with a sandbox without a word, whether it runs or not.
#[test]
fn removing_a_sandbox_tells_of_commits_that_only_it_has() {
    if !has_program("git") {
        skip!("needs git");
    }
    let work = "git commit -q --allow-empty -m one && git commit -q --allow-empty -m two";
    Person::each(|person| {
        host(person, MAKE);
        let start = |work: &str| {
            person.line("start -q box").run().expect_code(0);
            person.script("exec box", work).run().expect_code(0);
        };
        start(&format!(
            "{work} && echo x >> b && git stash -q && echo y >> a"
        ));
        let ran = person.line("kill box").run().expect_code(0);
        let told = "1 change, 2 commits and 1 stash discarded";
        assert!(ran.err().contains(told), "{ran}");

        start(work);
        let ran = person.line("kill --json box").run().expect_code(0);
        let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let killed = &json["data"]["killed"][0];
        assert_eq!(killed["discarded_git"]["commits"], 2, "{ran}");

        // Of one that has stopped only its layers can be looked at.
        start(work);
        person.line("stop -q box").run().expect_code(0);
        let ran = person.line("prune --yes").run().expect_code(0);
        let told = "commits, branches or stashes, as it seems, discarded with box";
        assert!(ran.err().contains(told), "{ran}");

        // What was fetched is there.
        start(work);
        person.line("pull box --commits").run().expect_code(0);
        let ran = person.line("kill box").run().expect_code(0);
        assert!(!ran.err().contains("discarded"), "{ran}");
        start(&format!("{work} && git commit -q --allow-empty -m three"));
        person.line("pull box --commits other").run().expect_code(0);
        person.line("stop -q box").run().expect_code(0);
        let ran = person.line("prune --yes").run().expect_code(0);
        assert!(!ran.err().contains("discarded"), "{ran}");
    });
}

/// A submodule has commits of its own, which come to its own repository on the host.
#[test]
fn commits_of_a_submodule_come_with_all() {
    if !has_program("git") {
        skip!("needs git");
    }
    let make = format!(
        "{MAKE} && cp -r .git ../lib.git && git -c protocol.file.allow=always submodule -q add ../lib.git lib && \
         git commit -q -m lib"
    );
    let git = "git -c user.name=T -c user.email=t@example.org";
    Person::each(|person| {
        host(person, &make);
        let before = host(person, "git -C lib for-each-ref");
        person.line("start -q box").run().expect_code(0);
        let work = format!(
            "cd lib && echo x > x && git add x && {git} commit -q -m inner && cd .. && git add lib && git commit -q -m outer"
        );
        person.script("exec box", &work).run().expect_code(0);
        let ran = person.line("stop box").run().expect_code(0);
        assert!(ran.err().contains("git work in lib"), "{ran}");
        assert!(ran.err().contains("pull box --commits --all"), "{ran}");
        let ran = person.line("pull box --commits --all").run().expect_code(0);
        assert!(ran.err().contains("`sandbox/box in lib`"), "{ran}");
        assert_eq!(
            host(
                person,
                "git -C lib log -1 --format=%s sandbox/box && git log -1 --format=%s sandbox/box"
            ),
            "inner\nouter\n"
        );
        // What the commit outside points to is there now.
        host(
            person,
            "git -C lib cat-file -e $(git rev-parse sandbox/box:lib)",
        );
        let after = host(
            person,
            "git -C lib for-each-ref | grep -v refs/heads/sandbox",
        );
        assert_eq!(after, before, "nothing else moved");
        let ran = person.line("pull box --commits --all").run().expect_code(0);
        assert!(
            ran.err().contains("no commits that you do not have"),
            "{ran}"
        );
        person.line("kill -q box").run().expect_code(0);
    });
}
