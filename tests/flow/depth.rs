//! Trees of any depth: what walks them has small stacks, and must neither end by them nor leave them.

use std::fs;
use testkit::Person;

/// Makes directories one within the other in `/tmp` and in the project.
fn make(person: &Person, depth: usize) {
    let script = format!(
        "for top in /tmp /workspace; do cd $top; i=0; while [ $i -lt {depth} ]; do mkdir d; cd -P d; i=$((i+1)); done; echo deep > file; done"
    );
    person.script("exec box", &script).run().expect_code(0);
}

#[test]
fn a_deep_tree_is_copied_restored_and_removed() {
    Person::each(|person| {
        person.line("start -q box").run().expect_code(0);
        make(person, 180);
        let copied = person.line("checkpoint --live box").run().expect_code(0);
        assert!(
            copied.out().contains("v1") || copied.err().contains("v1"),
            "{copied}"
        );
        let alive = person.script("exec box", "echo alive").run().expect_code(0);
        assert_eq!(alive.out(), "alive\n");
        // What copies nothing minds no depth.
        person.line("checkpoint box").run().expect_code(0);
        person.line("restore box v1").run().expect_code(0);
        let deep = "cd /tmp; for i in $(seq 180); do cd -P d; done; cat file";
        let back = person.script("exec box", deep).run().expect_code(0);
        assert_eq!(back.out(), "deep\n");
        person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
        let trash = person.place().state().join("trash");
        assert_eq!(fs::read_dir(trash).unwrap().count(), 0);
    });
}
