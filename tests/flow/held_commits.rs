//! Files are live, so a commit inside may hold what the user did to them meanwhile. Commits that would take back the
//! user's work are held, and others say what of it is in them.

use super::workspace::host;
use testkit::{Person, has_program, skip};

const MAKE: &str = "rm -rf .git * && git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    for name in a b c d; do seq 1 20 > $name; done && git add . && git commit -q -m first && git checkout -q -b feature && \
    echo feature >> a && echo feature >> c && git commit -q -a -m feature && git checkout -q main && \
    echo main >> d && git commit -q -a -m second";
const COMMIT: &str = "echo inside >> b && git commit -q -a -m inside";

fn inside(person: &Person, script: &str) {
    let _ = person.script("exec work", script).run().expect_code(0);
}

/// What the user does before the start, between the start and the commit, the commit inside, and what follows.
struct Case {
    before: &'static str,
    meanwhile: &'static str,
    work: &'static str,
    /// Words of the line that names paths; empty if nothing is said.
    told: &'static str,
    is_held: bool,
}

const CASES: [Case; 12] = [
    // The branch that the user went to would be taken back to the sandbox's.
    Case {
        before: ":",
        meanwhile: "git checkout -q feature",
        work: COMMIT,
        told: "3 paths that the sandbox never wrote (a, c, d), because your files changed under it or are hidden \
               from it: you are on `feature`, the sandbox is on `main`",
        is_held: true,
    },
    // It copied the other branch's content up, whatever it did to it.
    Case {
        before: ":",
        meanwhile: "git checkout -q feature",
        work: "touch a && echo inside >> c && git commit -q -a -m inside",
        told: "3 paths that the sandbox never wrote (a, c, d)",
        is_held: true,
    },
    // A branch that goes on from the sandbox's one takes nothing back, but is none of its work.
    Case {
        before: ":",
        meanwhile: "git checkout -q -b ahead && echo ahead >> a && git commit -q -a -m ahead",
        work: COMMIT,
        told: "1 path that the sandbox never wrote (a)",
        is_held: true,
    },
    Case {
        before: ":",
        meanwhile: "git checkout -q feature && rm -rf .git/logs",
        work: COMMIT,
        told: "3 paths",
        is_held: true,
    },
    Case {
        before: "git checkout -q --detach",
        meanwhile: "git checkout -q feature",
        work: COMMIT,
        told: "3 paths",
        is_held: true,
    },
    // Forth and back: nothing is left of the other branch.
    Case {
        before: ":",
        meanwhile: "git checkout -q feature && git checkout -q main",
        work: COMMIT,
        told: "",
        is_held: false,
    },
    // A commit forward and an edit that is not committed come along, and are told.
    Case {
        before: ":",
        meanwhile: "echo user >> a && git commit -q -a -m user",
        work: COMMIT,
        told: "1 path in them is as you committed or edited since: a",
        is_held: false,
    },
    Case {
        before: "echo user >> a",
        meanwhile: "echo user >> d",
        work: COMMIT,
        told: "2 paths in them are as you committed or edited since: a, d",
        is_held: false,
    },
    Case {
        before: ":",
        meanwhile: "git reset -q --hard feature && git reset -q --hard main@{1}",
        work: COMMIT,
        told: "",
        is_held: false,
    },
    // One that the sandbox takes out of the index, or squashes.
    Case {
        before: ":",
        meanwhile: ":",
        work: "git rm -q --cached d && git commit -q -m inside",
        told: "1 path that the sandbox never wrote (d)",
        is_held: true,
    },
    Case {
        before: ":",
        meanwhile: ":",
        work: "echo one >> b && git commit -q -a -m one && echo two >> b && git commit -q -a -m two && \
               git reset -q --soft HEAD~2 && git commit -q -m inside",
        told: "",
        is_held: false,
    },
    Case {
        before: ":",
        meanwhile: ":",
        work: "rm c && git mv a e && mkdir new && mv d new/d && git add -A && git merge -q feature || git commit -q -a -m inside",
        told: "",
        is_held: false,
    },
];

#[test]
fn commits_that_would_take_back_the_users_work_are_held() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        for case in &CASES {
            host(person, MAKE);
            host(person, case.before);
            let _ = person.line("start work").run().expect_code(0);
            host(person, case.meanwhile);
            inside(person, case.work);
            let ran = person.line("pull work --commits").run();
            let name = format!("{}: {}", case.meanwhile, case.work);
            assert_eq!(ran.code, if case.is_held { 3 } else { 0 }, "{name}: {ran}");
            let err = ran.err().replace('\n', " ");
            let is_told = err.contains("never wrote") || err.contains("as you committed");
            assert!(err.contains(case.told), "{name}: {ran}");
            assert_eq!(is_told, !case.told.is_empty(), "{name}: {ran}");
            let branches = host(person, "git branch --list 'sandbox/*'");
            assert_eq!(branches.is_empty(), case.is_held, "{name}");
            let _ = person.line("kill work").run().expect_code(0);
        }
    });
}

/// A sandbox that was stopped keeps its beginnings, and a user who goes back can take the commit after all.
#[test]
fn held_commits_come_when_the_user_goes_back() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, MAKE);
        let _ = person.line("start work").run().expect_code(0);
        inside(person, "echo inside >> b");
        let _ = person.line("stop work").run().expect_code(0);
        host(person, "git checkout -q feature");
        let _ = person.line("start work").run().expect_code(0);
        inside(person, "git commit -q -a -m inside");
        let ran = person.line("pull work --commits").run().expect_code(3);
        assert!(ran.err().contains("go back to `main`"), "{ran}");
        host(person, "git checkout -q main");
        // Until then, files that git replaced may be seen as they were.
        let _ = person.line("stop work").run().expect_code(0);
        let _ = person.line("start work").run().expect_code(0);
        inside(person, "git commit -q -a --amend --no-edit");
        let _ = person.line("pull work --commits").run().expect_code(0);
        host(
            person,
            "git merge -q --no-edit sandbox/work && git merge -q --no-edit feature",
        );
        assert_eq!(
            host(person, "tail -qn1 a b c"),
            "feature\ninside\nfeature\n"
        );
        let _ = person.line("kill work").run().expect_code(0);
    });
}

/// What `--commits` holds or leaves comes with `--all`, each as a branch of its own, also from a stopped sandbox.
#[test]
fn everything_comes_with_all() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, MAKE);
        let _ = person.line("start work").run().expect_code(0);
        host(person, "git checkout -q feature");
        inside(
            person,
            "echo inside >> b && git commit -q -a -m inside && git branch side HEAD && git tag v1 && \
             git checkout -q side && echo side > new && git add new && git commit -q -m side && git checkout -q main && \
             sed -i 's/^1$/stashed/' b && git stash -q",
        );
        let _ = person.line("stop work").run().expect_code(0);
        let ran = person
            .line("pull work --commits --all")
            .run()
            .expect_code(3);
        let branches = host(
            person,
            "git branch --list 'sandbox/*' --format='%(refname:short) %(subject)'",
        );
        let branches: Vec<&str> = branches.lines().collect();
        assert_eq!(branches.len(), 3, "{branches:?}: {ran}");
        assert_eq!(branches[0], "sandbox/work@held inside");
        assert_eq!(branches[1], "sandbox/work@side side");
        assert!(
            branches[2].starts_with("sandbox/work@stash-0 WIP on main"),
            "{branches:?}"
        );
        host(
            person,
            "git checkout -q main && git stash apply -q sandbox/work@stash-0",
        );
        assert_eq!(host(person, "head -1 b"), "stashed\n");
        let list = person.line("list").run();
        assert!(list.out().contains("stopped"), "{list}");
        let _ = person.line("kill work").run().expect_code(0);
    });
}
