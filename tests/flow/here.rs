//! Commands that name no sandbox mean the one of the project.

use super::screen::Terminal;
use serde_json::Value;
use std::fs;
use testkit::Person;

#[test]
fn without_a_name_the_one_sandbox_of_the_project_is_meant() {
    Person::each(|person| {
        fs::create_dir_all(person.project().join("deep")).unwrap();
        let none = person.line("pull").run().expect_code(6);
        insta::assert_snapshot!(none.failure(person.place().root()), @"
        error: no sandbox works on [ROOT]/project
        hint: `glovebox list` shows what there is; `glovebox start NAME` makes one
        ");
        let none = person.line("diff --json").run();
        let none: Value = serde_json::from_slice(&none.expect_code(6).stdout).unwrap();
        assert_eq!(none["error"]["code"], "sandbox-not-found", "{none}");

        person.line("start -q box").run().expect_code(0);
        person
            .script("exec box", "echo mine > a; echo said")
            .run()
            .expect_code(0);
        let diff = person.line("diff").run().expect_code(0);
        assert!(diff.out().contains("+mine"), "{diff}");
        insta::assert_snapshot!(diff.shown_err(person.place().root()), @"glovebox: the sandbox box");
        let diff = person.line("diff . deep").run().expect_code(0);
        assert_eq!(diff.out(), "", "{diff}");
        let info = person.line("info --json").run().expect_code(0);
        let info: Value = serde_json::from_slice(&info.stdout).unwrap();
        assert_eq!(info["data"]["sandbox"]["name"], "box", "{info}");
        assert!(person.line("logs . 1").run().out().contains("said"));
        assert!(person.line("logs").run().out().contains("echo mine"));
        person.line("checkpoint -m first").run().expect_code(0);
        person.script("exec box", "rm a").run().expect_code(0);
        let list = person.line("checkpoints").run().expect_code(0);
        assert!(list.out().contains("first"), "{list}");
        person.line("restore v1").run().expect_code(0);
        person.line("checkpoint delete v1").run().expect_code(0);
        person.line("pull").run().expect_code(0);
        let a = fs::read_to_string(person.project().join("a")).unwrap();
        assert_eq!(a, "mine\n");
        person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn of_several_the_user_chooses() {
    Person::each(|person| {
        for name in ["one", "two"] {
            person
                .line(&format!("start -q {name}"))
                .run()
                .expect_code(0);
            let script = format!("echo {name} > of-{name}");
            person
                .script(&format!("exec {name}"), &script)
                .run()
                .expect_code(0);
        }
        let several = person.line("pull").run().expect_code(2);
        // How old they are differs.
        for line in ["  1  two  ready, ", "  2  one  ready, "] {
            let found = several.err().lines().any(|shown| shown.starts_with(line));
            assert!(found, "{several}");
        }
        let listed = person.line("diff --json").run().expect_code(2);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(
            listed["error"]["details"].as_array().map(Vec::len),
            Some(2),
            "{listed}"
        );
        insta::assert_snapshot!(several.said("hint:", person.place().root()), @"hint: name the one that is meant; `glovebox list` shows all");
        assert!(!person.project().join("of-two").exists());
        // The newest is the first.
        let mut terminal = Terminal::run(person, &["diff", "--stat"]);
        terminal.see("which one? [1-2]");
        terminal.type_keys("1\n");
        terminal.see("of-two");
        assert_eq!(terminal.end(), 0);
        person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}
