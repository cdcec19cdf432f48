//! Nothing of a sandbox's work is lost or altered on its way to the host.

use crate::workspace::on_the_host;
use serde_json::Value;
use std::fs;
use testkit::{Person, Ran};

/// Runs `inside` with `flags`, and `outside` on the host while it runs.
fn run_beside(person: &Person, flags: &str, inside: &str, outside: &str) -> Ran {
    let script = format!(
        "{} run {flags} -- sh -c '{inside}; echo begun; sleep 2' > ../home/out 2> ../home/err & \
         until grep -q begun ../home/out; do sleep 0.1; done; sleep 0.5; {outside}; \
         wait $!; code=$?; cat ../home/err >&2; exit $code",
        person.binary().display()
    );
    let mut shell = person.program("sh");
    let shell = shell.args(["-c", &script]).current_dir(person.project());
    Ran::new(shell.output().unwrap())
}

/// Sandboxes of the user, by name and state.
fn sandboxes(person: &Person) -> Vec<(String, String)> {
    let ran = person.line("list --json").run().expect_code(0);
    let list: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = list["data"]["sandboxes"].as_array().unwrap().iter();
    all.map(|one| (text(&one["name"]), text(&one["state"])))
        .collect()
}

#[test]
fn conflict_without_a_name_beside_parks_the_sandbox() {
    let long = "n".repeat(250);
    let take_all = "echo mine > x; touch x.theirs; for i in $(seq 99); do touch x.theirs.$i; done";
    let table = [
        (
            long.as_str(),
            format!("echo mine > {long}"),
            "name too long",
        ),
        ("x", take_all.to_owned(), "all names taken"),
    ];
    Person::each(|person| {
        for (name, outside, reason) in &table {
            let inside = format!("echo box > {name}; echo new > also");
            let ran = run_beside(person, "-q --apply auto", &inside, outside).expect_code(3);
            assert!(ran.err().contains(reason), "{ran}");
            let read = |name: &str| fs::read_to_string(person.project().join(name)).unwrap();
            assert_eq!(
                (read(name).as_str(), read("also").as_str()),
                ("mine\n", "new\n")
            );
            let [(sandbox, state)] = &sandboxes(person)[..] else {
                panic!("{name}: {ran}");
            };
            assert_eq!(state, "parked");
            assert!(
                ran.err().contains(&format!("it stays in {sandbox}")),
                "{ran}"
            );
            // The version is still there, and `--to` writes it where there is room.
            let pulled = person.line(&format!("pull {sandbox}")).run().expect_code(3);
            assert!(pulled.err().contains(reason), "{pulled}");
            let json = format!("pull {sandbox} --json");
            let pulled = person.line(&json).run().expect_code(3);
            let data: Value = serde_json::from_slice(&pulled.stdout).unwrap();
            let unplaced = &data["data"]["conflicts"][0]["unplaced"];
            assert_eq!(
                *unplaced,
                reason.replace(' ', "-").replace("all-", ""),
                "{pulled}"
            );
            let to = person.place().root().join("home/to");
            fs::create_dir(&to).unwrap();
            person.own(&to);
            let pull = format!("pull {sandbox} --to {}", to.display());
            person.line(&pull).run().expect_code(0);
            assert_eq!(fs::read_to_string(to.join(name)).unwrap(), "box\n");
            person.line(&format!("kill {sandbox}")).run().expect_code(0);
            fs::remove_dir_all(&to).unwrap();
            on_the_host(person, &person.project(), "find . -mindepth 1 -delete");
        }
        person.assert_nothing_left();
    });
}

#[test]
fn conflict_without_a_name_beside_is_told_by_pull_of_a_named_sandbox() {
    let dir = "d".repeat(250);
    Person::each(|person| {
        person.line("start -q box").run().expect_code(0);
        let work = format!("mkdir {dir} && echo box > {dir}/f");
        person.script("exec box", &work).run().expect_code(0);
        person.write(format!("project/{dir}"), "a file of the user\n");
        let ran = person.line("pull -q box").run().expect_code(3);
        assert!(
            ran.err().contains("(name too long); it stays in box"),
            "{ran}"
        );
        person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn discarding_says_how_many_changes_go_whichever_way_they_do() {
    let has_line = |ran: &Ran, word: &str| ran.err().lines().any(|line| line.contains(word));
    Person::each(|person| {
        person.write("project/a", "a\n");
        let work = "echo b > b; echo c >> a";
        for word in ["discard", "never"] {
            let ran = person.script(&format!("run --apply {word}"), work).run();
            let ran = ran.expect_code(0);
            assert!(has_line(&ran, "2 changes discarded"), "{ran}");
            let quiet = person.script(&format!("run -q --apply {word}"), work).run();
            assert_eq!(quiet.expect_code(0).err(), "");
            let nothing = person.script(&format!("run --apply {word}"), "true").run();
            assert!(!has_line(&nothing, "discarded"), "{nothing}");
        }
        // What is in a patch is not discarded.
        let patch = person.script("run --apply discard --patch -", work).run();
        assert!(!has_line(&patch, "discarded"), "{patch}");

        person.line("start -q box").run().expect_code(0);
        person.script("exec box", work).run().expect_code(0);
        let ran = person.line("kill box").run().expect_code(0);
        assert!(has_line(&ran, "2 changes discarded"), "{ran}");
        person.line("start -q box").run().expect_code(0);
        let ran = person.line("kill box").run().expect_code(0);
        assert!(!has_line(&ran, "discarded"), "{ran}");

        person.line("start -q box").run().expect_code(0);
        person.script("exec box", work).run().expect_code(0);
        person.line("stop -q box").run().expect_code(0);
        let ran = person.line("prune --yes").run().expect_code(0);
        assert!(has_line(&ran, "2 changes discarded with box"), "{ran}");
        assert!(!person.project().join("b").exists());
        person.assert_nothing_left();
    });
}

#[test]
fn link_in_the_place_of_the_project_is_not_followed() {
    Person::each(|person| {
        let project = person.project();
        let (aside, decoy) = (
            project.with_file_name("aside"),
            project.with_file_name("decoy"),
        );
        person.write("project/a", "a\n");
        fs::create_dir_all(&decoy).unwrap();
        fs::write(decoy.join("a"), "a\n").unwrap();
        person.own(&decoy);
        person.line("start -q box").run().expect_code(0);
        let work = "echo box > a; echo new > b";
        person.script("exec box", work).run().expect_code(0);
        fs::rename(&project, &aside).unwrap();
        std::os::unix::fs::symlink(&decoy, &project).unwrap();
        let home = person.place().home();
        for line in [
            "diff box",
            "pull box",
            "pull box --dry-run",
            "pull box --patch p",
        ] {
            let ran = person.line(line).dir(&home).run().expect_code(3);
            assert!(
                ran.err().contains("symbolic link") && ran.err().contains("--to DIR"),
                "{ran}"
            );
        }
        assert_eq!(fs::read_to_string(decoy.join("a")).unwrap(), "a\n");
        assert!(!decoy.join("b").exists());
        // The directory itself, under its other name, is still the project.
        let line = format!("pull box --to {}", aside.display());
        person.line(&line).dir(&home).run().expect_code(0);
        assert_eq!(fs::read_to_string(aside.join("a")).unwrap(), "box\n");
        assert_eq!(fs::read_to_string(aside.join("b")).unwrap(), "new\n");
        person.line("kill -q box").dir(&home).run().expect_code(0);
        fs::remove_file(&project).unwrap();
        fs::remove_dir_all(&decoy).unwrap();
        fs::rename(&aside, &project).unwrap();
    });
}
