//! `start` for a sandbox that is there already: the same again, or an error that names what differs.

use serde_json::Value;
use testkit::Person;

#[test]
fn start_names_what_differs_from_the_sandbox_that_runs() {
    Person::each(|person| {
        let start = "start work --memory 512MiB --cpus 1";
        let _ = person.line(start).run().expect_code(0);
        // The same again is no difference, whatever variables the caller has by now.
        let _ = person
            .line(start)
            .env("COLORTERM", "x")
            .run()
            .expect_code(0);
        let asked = "start work --memory 1GiB --cpus 1 --pids 77 --env TOKEN=hush";
        let ran = person.line(asked).run().expect_code(3);
        let said = ran.err();
        for part in [
            "`work` runs with other settings",
            "memory is 512MiB, asked for 1GiB",
            "pids is 4096, asked for 77",
            "env is without TOKEN",
            "`glovebox kill work`",
        ] {
            assert!(said.contains(part), "{part}: {ran}");
        }
        assert!(!said.contains("hush") && !said.contains("cpus"), "{ran}");
        person.write("home/shared/x", "x\n");
        let shared = person.place().home().join("shared");
        let grant = format!("{start} --grant {}", shared.display());
        let ran = person.line(&grant).run().expect_code(3);
        assert!(ran.err().contains("grant is nothing, asked for"), "{ran}");
        let ran = person
            .line(&format!("{start} --net host"))
            .run()
            .expect_code(3);
        assert!(ran.err().contains("net is none, asked for host"), "{ran}");
        // Another project is another sandbox, also when it has ended.
        person.write("other/file", "x\n");
        let other = person.place().root().join("other");
        let ran = person.line(start).dir(&other).run().expect_code(3);
        assert!(ran.err().contains("project is "), "{ran}");
        let _ = person.line("exec work -- true").run().expect_code(0);
        let _ = person.line("kill work").run().expect_code(0);

        let _ = person.script("run", "echo new > made").run().expect_code(0);
        let ran = person.line("list --json").run().expect_code(0);
        let list: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let name = list["data"]["sandboxes"][0]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        let again = format!("start {name}");
        let ran = person.line(&again).dir(&other).run().expect_code(3);
        assert!(ran.err().contains("belong to"), "{ran}");
        let _ = person.line(&again).run().expect_code(0);
        let ran = person
            .line(&format!("exec {name} -- cat made"))
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "new\n");
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}
