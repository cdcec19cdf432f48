//! Nothing of a sandbox's work is lost or altered on its way to the host.

use crate::screen::Terminal;
use crate::workspace::on_the_host;
use serde_json::Value;
use std::fs;
use testkit::{Person, Ran};

/// Waits, for half a minute, until the command in `../home/out` says that it has begun. Bounded: a sandbox that does
/// not start says nothing.
pub(crate) const BEGUN: &str =
    "timeout 30 sh -c 'until grep -q begun ../home/out; do sleep 0.1; done'";

/// Runs `inside` with `flags`, and `outside` on the host while it runs.
fn run_beside(person: &Person, flags: &str, inside: &str, outside: &str) -> Ran {
    let script = format!(
        "{} run {flags} -- sh -c '{inside}; echo begun; sleep 2' > ../home/out 2> ../home/err & \
         {BEGUN}; sleep 0.5; {outside}; \
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

/// The user's project as one sees it: file names and contents.
fn files(person: &Person) -> Vec<(String, String)> {
    let entries = fs::read_dir(person.project()).unwrap();
    let mut files: Vec<(String, String)> = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Thirty numbered lines that only this file has, with one of them edited.
fn numbers(name: &str, edit: &str) -> String {
    (1..=30)
        .map(|number| match edit.strip_prefix(&format!("{number}=")) {
            Some(text) => format!("{text}\n"),
            None => format!("{name}{number}\n"),
        })
        .collect()
}

#[test]
fn pulled_file_that_the_user_deletes_stays_deleted_until_the_sandbox_changes_it() {
    Person::each(|person| {
        person.line("start -q box").run().expect_code(0);
        // One of them is longer than what is kept as a base.
        let work = "echo one > small; seq 300000 > large; echo x > other";
        person.script("exec box", work).run().expect_code(0);
        person.line("pull -q box").run().expect_code(0);
        for name in ["small", "large"] {
            fs::remove_file(person.project().join(name)).unwrap();
        }
        // Further pulls of other paths forget nothing.
        for text in ["y", "z"] {
            let work = format!("echo {text} > other");
            person.script("exec box", &work).run().expect_code(0);
            let ran = person.line("pull box").run().expect_code(0);
            let other = ("other".to_owned(), format!("{text}\n"));
            assert_eq!(files(person), [other], "{ran}");
        }
        person
            .script("exec box", "echo two > small")
            .run()
            .expect_code(0);
        person.line("pull box").run().expect_code(3);
        let beside = fs::read_to_string(person.project().join("small.theirs")).unwrap();
        assert_eq!(beside, "two\n");
        assert!(!person.project().join("large.theirs").exists());
        person.line("kill -q box").run().expect_code(0);
        on_the_host(person, &person.project(), "find . -mindepth 1 -delete");
    });
}

#[test]
fn edit_of_a_file_that_the_sandbox_renames_is_carried_over() {
    Person::each(|person| {
        for name in ["a", "b", "c"] {
            person.write(format!("project/{name}"), numbers(name, ""));
        }
        person.line("start -q box").run().expect_code(0);
        std::thread::sleep(std::time::Duration::from_millis(500));
        let work = "mkdir d; mv a d/a; mv b moved; sed -i s/^b3$/box/ moved; mv c c2; sed -i s/^c15$/box/ c2";
        person.script("exec box", work).run().expect_code(0);
        for name in ["a", "b", "c"] {
            person.write(format!("project/{name}"), numbers(name, "15=user"));
        }
        let patch = person.line("pull box --patch -").run().expect_code(3);
        assert!(!patch.out().contains("-user"), "{patch}");
        let ran = person.line("pull box").run().expect_code(3);
        let read = |name: &str| fs::read_to_string(person.project().join(name)).unwrap();
        assert_eq!(read("d/a"), numbers("a", "15=user"), "{ran}");
        let both = numbers("b", "15=user").replace("\nb3\n", "\nbox\n");
        assert_eq!(read("moved"), both, "{ran}");
        // The same line on both sides is for the user to decide; both files are named.
        assert_eq!(read("c"), numbers("c", "15=user"));
        assert_eq!(read("c2"), numbers("c", "15=box"));
        let names: Vec<String> = files(person).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["c", "c2", "moved"], "{ran}");
        assert!(
            ran.out().contains("R b -> moved (your edit of b is in it)"),
            "{ran}"
        );
        let conflict = "c: renamed in the sandbox, changed on the host; the sandbox's is c2";
        assert!(ran.err().contains(conflict), "{ran}");
        // What was carried over is settled, and later work on it merges.
        let work = "sed -i s/^[ab]29$/late/ moved d/a";
        person.script("exec box", work).run().expect_code(0);
        person.line("pull box").run();
        assert_eq!(read("moved"), both.replace("\nb29\n", "\nlate\n"));
        assert_eq!(
            read("d/a"),
            numbers("a", "15=user").replace("\na29\n", "\nlate\n")
        );
        person.line("kill -q box").run().expect_code(0);
        on_the_host(person, &person.project(), "find . -mindepth 1 -delete");
    });
}

#[test]
fn append_after_an_append_that_was_seen_is_no_conflict() {
    Person::each(|person| {
        person.write("project/log", "1\n2\n");
        person.line("start -q box").run().expect_code(0);
        std::thread::sleep(std::time::Duration::from_millis(500));
        person.write("project/log", "1\n2\nuser\n");
        let work = "printf '1\\n2\\nuser\\nbox\\n' > log";
        person.script("exec box", work).run().expect_code(0);
        let ran = person.line("pull box").run().expect_code(0);
        let log = fs::read_to_string(person.project().join("log")).unwrap();
        assert_eq!(log, "1\n2\nuser\nbox\n", "{ran}");
        person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn selection_of_hunks_says_what_was_taken_and_what_stays() {
    Person::each(|person| {
        person.write("project/text", numbers("", ""));
        let work = "sed -i 's/^1$/one/; s/^20$/twenty/' text";
        let mut terminal = Terminal::run(person, &["run", "--", "sh", "-c", work]);
        terminal.see("[s]elect");
        terminal.type_keys("s\n");
        terminal.see("text (1/2): take this?");
        terminal.type_keys("y\n");
        terminal.see("text (2/2): take this?");
        terminal.type_keys("n\n");
        terminal.see("M text (1 of 2 hunks taken");
        terminal.see("what you left out is in it");
        let text = terminal.text();
        assert_eq!(terminal.end(), 0);
        for untrue in ["merged with yours", "your files are as before"] {
            assert!(!text.contains(untrue), "{text}");
        }
        let [(sandbox, _)] = &sandboxes(person)[..] else {
            panic!("{text}");
        };
        person.line(&format!("pull {sandbox}")).run().expect_code(0);
        let text = fs::read_to_string(person.project().join("text")).unwrap();
        assert!(
            text.starts_with("one\n") && text.contains("\ntwenty\n"),
            "{text}"
        );
        person.line(&format!("kill {sandbox}")).run().expect_code(0);
    });
}
