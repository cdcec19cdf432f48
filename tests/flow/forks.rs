//! Forks and what came back before them.

use std::fs;
use testkit::Person;

fn inside(person: &Person, name: &str, script: &str) {
    person
        .script(&format!("exec {name}"), script)
        .run()
        .expect_code(0);
}

fn read(person: &Person, name: &str) -> String {
    fs::read_to_string(person.project().join(name)).unwrap_or_else(|_| "none".to_owned())
}

#[test]
fn what_was_pulled_before_a_fork_is_no_conflict_for_it() {
    Person::each(|person| {
        for name in ["a", "b", "gone"] {
            person.write(format!("project/{name}"), "0\n");
        }
        person.line("start box").run().expect_code(0);
        inside(person, "box", "echo 1 > a; echo 1 > new; rm gone");
        person.line("checkpoint box -m early").run().expect_code(0);
        person.line("pull box").run().expect_code(0);
        assert_eq!(read(person, "a") + &read(person, "new"), "1\n1\n");

        person.line("fork box late").run().expect_code(0);
        inside(
            person,
            "late",
            "echo 2 > a; echo 2 > new; echo 2 > gone; echo 2 > b",
        );
        person.line("pull late").run().expect_code(0);
        for name in ["a", "b", "new", "gone"] {
            assert_eq!(read(person, name), "2\n", "{name}");
        }

        // What it began with was there before anything came back: the host has moved on.
        person.line("fork box early --from v1").run().expect_code(0);
        inside(person, "early", "echo 3 > a");
        person.line("pull early").run().expect_code(3);
        assert_eq!(read(person, "a"), "2\n");
        assert_eq!(read(person, "a.theirs"), "3\n");

        // The user's own work is a conflict for any fork.
        fs::write(person.project().join("b"), "mine\n").unwrap();
        person.line("fork late later").run().expect_code(0);
        inside(person, "later", "echo 4 > b; echo 4 > new");
        person.line("pull later").run().expect_code(3);
        assert_eq!(read(person, "b") + &read(person, "new"), "mine\n4\n");
        for name in ["box", "late", "early", "later"] {
            person.line(&format!("kill {name}")).run().expect_code(0);
        }
        person.assert_nothing_lives();
    });
}
