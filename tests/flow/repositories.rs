//! Git works inside as it does outside.

use testkit::{Person, SkipReason, UNPRIVILEGED_ID, has_program, skip, skip_because};

const MAKE: &str = "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    echo one > a && git add a && git commit -q -m first && echo two >> a && git commit -q -a -m second && \
    git checkout -q -b side && echo three > b && git add b && echo four > c && echo five >> a";
const LOOK: &str = "git status --short --branch; git log --format=%s; git branch; git diff; git rev-parse HEAD; git blame -s HEAD -- a; \
    git show --stat --format=%an HEAD";

/// The repository as the person sees it outside.
fn on_the_host(person: &Person, script: &str) -> (String, String) {
    let output = person.program("sh").args(["-c", script]).output().unwrap();
    (
        String::from_utf8_lossy(&output.stdout).into(),
        String::from_utf8_lossy(&output.stderr).into(),
    )
}

#[test]
fn status_and_log_tell_the_same() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        let (_, trouble) = on_the_host(person, MAKE);
        assert_eq!(trouble, "");
        let (outside, _) = on_the_host(person, LOOK);
        assert!(
            outside.contains("second") && outside.contains("?? c"),
            "{outside}"
        );
        let inside = person.script("run --quiet", LOOK).run().expect_code(0);
        assert_eq!(inside.err(), "");
        assert_eq!(inside.out(), outside);

        // And can be worked in, with nothing of it seen outside.
        let work = "git -c user.name=T -c user.email=t@example.org commit -q -a -m inside && git log -1 --format=%s && git gc -q && git fsck";
        let inside = person.script("run --quiet", work).run().expect_code(0);
        assert!(inside.out().starts_with("inside\n"), "{inside}");
        assert_eq!(on_the_host(person, LOOK).0, outside);
    });
}

#[test]
fn a_repository_of_somebody_else_is_no_trouble_either() {
    let Some(other) = Person::ordinary() else {
        skip_because!(SkipReason::needs_root("to open a project of somebody else"))
    };
    if !has_program("git") {
        skip!("needs git");
    }
    let (_, trouble) = on_the_host(&other, MAKE);
    assert_eq!(trouble, "");
    let root = Person::myself();
    let inside = root
        .script("run --quiet", "git status --short && stat -c %u a")
        .dir(other.project())
        .run()
        .expect_code(0);
    assert_eq!(inside.err(), "");
    assert_eq!(
        inside.out().lines().last(),
        Some("1000"),
        "{inside} (outside {UNPRIVILEGED_ID})"
    );
}

#[test]
fn a_subdirectory_of_a_repository_is_a_project() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        let script = format!("{MAKE} && mkdir sub && echo x > sub/file");
        assert_eq!(on_the_host(person, &script).1, "");
        let inside = person
            .script("run --quiet", "cat file")
            .dir(person.project().join("sub"))
            .run()
            .expect_code(0);
        assert_eq!(inside.out(), "x\n");
    });
}
