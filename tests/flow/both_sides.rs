//! Both sides edit one file: every form of the sandbox's changes carries those and nothing else.

use crate::screen::Terminal;
use crate::way_back::BEGUN;
use crate::workspace::host;
use serde_json::Value;
use std::fs;
use testkit::{Person, Ran, has_program, skip};

const MAKE: &str = "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    seq 1 9 > clean && seq 1 9 > dirty && git add . && git commit -q -m first && \
    echo 10 >> dirty && seq 1 9 > untracked && sleep 0.1 && git update-index --refresh -q || true";
/// The three ways in which the content of the base is found.
const FILES: [&str; 3] = ["clean", "dirty", "untracked"];
/// What each sandbox does to all of them.
const WORK: &str = "for f in clean dirty untracked; do sed -i 's/^1$/box/' $f; done";

fn lines(edits: &[(usize, &str)], last: usize) -> String {
    (1..=last)
        .map(|number| {
            let own = edits.iter().find(|(at, _)| *at == number);
            own.map_or(format!("{number}\n"), |(_, text)| format!("{text}\n"))
        })
        .collect()
}

fn last(name: &str) -> usize {
    if name == "dirty" { 10 } else { 9 }
}

fn edit(person: &Person, line: usize, text: &str) {
    for name in FILES {
        person.write(
            format!("project/{name}"),
            lines(&[(line, text)], last(name)),
        );
    }
}

fn data(ran: &Ran) -> Value {
    let value: Value = serde_json::from_str(&ran.out()).unwrap();
    value["data"].clone()
}

fn paths(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item["path"].as_str().unwrap()).collect()
}

/// Fails unless every file of the project has both edits.
fn assert_merged(person: &Person, dir: &str, form: &str) {
    for name in FILES {
        let text = fs::read_to_string(person.project().join(dir).join(name)).unwrap();
        let wanted = lines(&[(1, "box"), (9, "user")], last(name));
        assert_eq!(text, wanted, "{form}: {name}");
    }
}

/// A box with the work done, and the user's edit of another line since.
fn begin(person: &Person) {
    let _ = fs::remove_dir_all(person.project());
    fs::create_dir(person.project()).unwrap();
    person.own(&person.project());
    host(person, MAKE);
    person.line("start -q box").run().expect_code(0);
    person.script("exec box", WORK).run().expect_code(0);
}

#[test]
fn distant_edits_of_both_sides_come_together_in_every_form() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        begin(person);
        edit(person, 9, "user");
        for args in ["diff box", "pull box --patch -"] {
            let ran = person.line(args).run().expect_code(0);
            for line in ran.out().lines() {
                let is_change = line.starts_with('-') || line.starts_with('+');
                let is_own = ["-1", "+box"].contains(&line)
                    || line.starts_with("--- ")
                    || line.starts_with("+++ ");
                assert!(!is_change || is_own, "{args}: {line}: {ran}");
            }
            assert!(ran.err().contains("the patch merges:\n  clean\n"), "{ran}");
            fs::write(person.place().root().join("home/p"), ran.out()).unwrap();
            host(
                person,
                "rm -rf ../copy && cp -a . ../copy && cd ../copy && git apply ../home/p",
            );
            assert_merged(person, "../copy", args);
        }
        let shown = person.line("diff box --json").run().expect_code(0);
        assert_eq!(paths(&data(&shown)["merged"]), FILES);
        assert_eq!(data(&shown)["conflicts"], Value::Array(Vec::new()));

        // The user has committed part of what was edited; the branch holds that, and the merge the rest.
        host(person, "git commit -q -m second clean");
        person.line("pull box --branch side").run().expect_code(0);
        let committed = host(person, "git show side:clean");
        assert_eq!(committed, lines(&[(1, "box"), (9, "user")], 9));
        let dirty = host(person, "git show side:dirty");
        assert_eq!(
            dirty,
            lines(&[(1, "box")], 9),
            "an edit that is not committed came along"
        );
        host(
            person,
            "rm -rf ../copy && git clone -q . ../copy && cd ../copy && git merge -q origin/side",
        );
        let text = fs::read_to_string(person.project().join("../copy/clean")).unwrap();
        assert_eq!(text, lines(&[(1, "box"), (9, "user")], 9));

        let ran = person.line("pull box --json").run().expect_code(0);
        assert_merged(person, ".", "pull");
        assert_eq!(paths(&data(&ran)["merged"]), FILES);
        assert_eq!(data(&ran)["applied"][0]["merged"], true);

        // What was merged is not undone by the next pull, and merges again.
        person.line("pull box").run().expect_code(0);
        assert_merged(person, ".", "a second pull");
        let more = "for f in clean dirty untracked; do sed -i 's/^5$/five/' $f; done";
        person.script("exec box", more).run().expect_code(0);
        person.line("pull box").run().expect_code(0);
        for name in FILES {
            let text = fs::read_to_string(person.project().join(name)).unwrap();
            let wanted = lines(&[(1, "box"), (5, "five"), (9, "user")], last(name));
            assert_eq!(text, wanted, "{name}");
        }
        person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn a_copy_of_the_project_is_merged_like_the_project_itself() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, MAKE);
        person
            .line("start -q --workspace copy box")
            .run()
            .expect_code(0);
        person.script("exec box", WORK).run().expect_code(0);
        edit(person, 9, "user");
        person
            .line("pull box --patch ../home/p")
            .run()
            .expect_code(0);
        host(
            person,
            "rm -rf ../copy && cp -a . ../copy && cd ../copy && git apply ../home/p",
        );
        assert_merged(person, "../copy", "patch");
        person.line("pull box").run().expect_code(0);
        assert_merged(person, ".", "pull");
        person.line("pull box").run().expect_code(0);
        assert_merged(person, ".", "a second pull");
        person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn the_end_of_a_run_merges_too() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        for (flags, is_patch) in [
            ("--apply auto", false),
            ("--apply never --patch ../home/p", true),
        ] {
            let _ = fs::remove_dir_all(person.project());
            fs::create_dir(person.project()).unwrap();
            person.own(&person.project());
            host(person, MAKE);
            let edits = FILES.map(|name| {
                let path = person.project().join(name);
                format!("sed -i 's/^9$/user/' {}", path.display())
            });
            // The command tells when it has begun, and waits until the user is done. In between there is time
            // to write down what the project is like.
            let script = format!(
                "{} run -q {flags} -- sh -c \"{}; echo begun; sleep 4\" > ../home/out & \
                 {BEGUN}; sleep 1; {}; wait $!",
                person.binary().display(),
                WORK.replace('$', "\\$"),
                edits.join("; ")
            );
            host(person, &script);
            if is_patch {
                host(person, "git apply ../home/p");
            }
            assert_merged(person, ".", flags);
        }
        person.assert_nothing_left();
    });
}

#[test]
fn edits_of_the_same_line_are_a_conflict_in_every_form() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        begin(person);
        edit(person, 1, "user");
        let before: Vec<String> = FILES
            .iter()
            .map(|name| fs::read_to_string(person.project().join(name)).unwrap())
            .collect();
        let is_untouched = || {
            let read = |name: &&str| fs::read_to_string(person.project().join(name)).unwrap();
            FILES.iter().map(read).eq(before.iter().cloned())
        };
        for args in [
            "diff box",
            "pull box --patch ../home/p",
            "pull box --patch -",
        ] {
            let ran = person.line(args).run().expect_code(3);
            assert!(!ran.out().contains("-user"), "{args}: {ran}");
            assert!(ran.err().contains("clean: changed on both sides"), "{ran}");
        }
        // The patch applies, and puts the sandbox's versions beside.
        host(
            person,
            "rm -rf ../copy && cp -a . ../copy && cd ../copy && git apply ../home/p && \
             grep -qx user clean && grep -qx box clean.theirs",
        );
        let ran = person.line("diff box --json").run().expect_code(0);
        assert_eq!(paths(&data(&ran)["conflicts"]), FILES);

        host(person, "git commit -q -m second clean");
        let ran = person
            .line("pull box --branch side --json")
            .run()
            .expect_code(3);
        assert_eq!(data(&ran)["conflicts"][0]["theirs"], "clean.theirs");
        assert_eq!(
            host(person, "git show side:clean"),
            lines(&[(1, "user")], 9)
        );
        assert_eq!(
            host(person, "git show side:clean.theirs"),
            lines(&[(1, "box")], 9)
        );

        person.line("pull box").run().expect_code(3);
        assert!(is_untouched());
        let theirs = person.project().join("clean.theirs");
        assert_eq!(
            fs::read_to_string(&theirs).unwrap(),
            lines(&[(1, "box")], 9)
        );

        // On request both come into the file, and what lies beside is not needed any more.
        let ran = person.line("pull box --merge --json").run().expect_code(3);
        assert_eq!(data(&ran)["conflicts"][0]["marked"], true);
        assert_eq!(paths(&data(&ran)["resolved"])[0], "clean.theirs");
        let both = "<<<<<<< yours\nuser\n=======\nbox\n>>>>>>> sandbox\n2\n";
        for name in FILES {
            let text = fs::read_to_string(person.project().join(name)).unwrap();
            assert!(text.starts_with(both), "{text}");
            assert!(!person.project().join(format!("{name}.theirs")).exists());
        }
        // Whatever the user makes of it is not asked about again.
        edit(person, 1, "agreed");
        person.line("pull box").run().expect_code(0);
        for name in FILES {
            let text = fs::read_to_string(person.project().join(name)).unwrap();
            assert_eq!(text, lines(&[(1, "agreed")], last(name)));
        }
        person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn a_version_put_beside_goes_when_the_conflict_does_and_stays_when_it_was_touched() {
    Person::each(|person| {
        let project = person.project();
        let theirs = project.join("x.theirs");
        for is_touched in [false, true] {
            person.write("project/x", "base\n");
            person.line("start -q box").run().expect_code(0);
            person
                .script("exec box", "echo theirs > x")
                .run()
                .expect_code(0);
            person.write("project/x", "mine\n");
            person.line("pull box").run().expect_code(3);
            assert!(theirs.exists());
            if is_touched {
                person.write("project/x.theirs", "mine too\n");
            }
            // The user takes the sandbox's version by hand.
            person.write("project/x", "theirs\n");
            person.line("pull box").run().expect_code(0);
            assert_eq!(theirs.exists(), is_touched);
            let _ = fs::remove_file(&theirs);
            person.line("kill -q box").run().expect_code(0);
        }
    });
}

/// A pull on a terminal.
fn pull_on_terminal(person: &Person, args: &[&str]) -> Terminal {
    Terminal::run(person, &[&["pull", "box"], args].concat())
}

#[test]
fn each_conflict_is_decided_at_the_terminal() {
    Person::each(|person| {
        let read = |name: &str| fs::read_to_string(person.project().join(name)).unwrap_or_default();
        for name in ["a", "b", "c", "e"] {
            person.write(format!("project/{name}"), "base\n");
        }
        person.line("start -q box").run().expect_code(0);
        let work = "for f in a b c e; do echo box > $f; done; echo new > n";
        person.script("exec box", work).run().expect_code(0);
        for name in ["a", "b", "c", "e"] {
            person.write(format!("project/{name}"), "mine\n");
        }
        // Whoever leaves has changed nothing.
        let mut terminal = pull_on_terminal(person, &[]);
        terminal.see("a: changed on both sides.");
        terminal.type_keys("t\n");
        terminal.see("b: changed on both sides.");
        terminal.type_keys("q\n");
        assert_eq!(terminal.end(), 130);
        assert_eq!((read("a").as_str(), read("n").as_str()), ("mine\n", ""));

        let mut terminal = pull_on_terminal(person, &[]);
        terminal.see("a: changed on both sides.");
        terminal.type_keys("d\n");
        terminal.see("+box");
        assert!(terminal.text().contains("-mine"), "{}", terminal.text());
        terminal.see_times("a: changed on both sides. [t]ake", 2);
        terminal.type_keys("t\n");
        terminal.see("b: changed on both sides. [t]ake");
        terminal.type_keys("k\n");
        terminal.see("c: changed on both sides. [t]ake");
        terminal.type_keys("m\n");
        terminal.see("e: changed on both sides. [t]ake");
        terminal.type_keys("b\n");
        terminal.see("paths changed on both sides");
        assert_eq!(terminal.end(), 3);
        assert_eq!(read("a"), "box\n");
        assert_eq!(read("a.orig"), "mine\n");
        assert_eq!(read("b"), "mine\n");
        assert_eq!(
            read("c"),
            "<<<<<<< yours\nmine\n=======\nbox\n>>>>>>> sandbox\n"
        );
        assert_eq!(read("e"), "mine\n");
        assert_eq!(read("e.theirs"), "box\n");
        assert_eq!(read("n"), "new\n");

        // What was decided is not asked again: only `e` is open.
        let ran = person.line("pull box --json").run().expect_code(3);
        assert_eq!(paths(&data(&ran)["conflicts"]), ["e"]);
        person
            .script("exec box", "echo other > b")
            .run()
            .expect_code(0);
        let ran = person.line("pull box --json").run().expect_code(3);
        assert_eq!(paths(&data(&ran)["conflicts"]), ["b", "e"]);
        person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn changes_are_chosen_hunk_by_hunk_and_the_rest_is_offered_again() {
    Person::each(|person| {
        let project = person.project();
        let read = |name: &str| fs::read_to_string(project.join(name)).unwrap_or_default();
        person.write("project/text", lines(&[], 30));
        person.write("project/gone", "x\n");
        person.line("start -q box").run().expect_code(0);
        let work = "sed -i 's/^1$/one/; s/^4$/four/; s/^20$/twenty/' text; rm gone; mkdir d; echo new > d/n";
        person.script("exec box", work).run().expect_code(0);
        let ran = person.line("pull box --select").run().expect_code(2);
        assert!(ran.err().contains("no terminal"), "{ran}");

        let mut terminal = pull_on_terminal(person, &["-p"]);
        terminal.see("add d/n?");
        terminal.type_keys("n\n");
        terminal.see("delete gone?");
        terminal.type_keys("n\n");
        // Lines 1 and 4 share their context, and are taken apart.
        terminal.see("text (1/2): take this?");
        terminal.type_keys("s\n");
        terminal.see("text (1/3): take this?");
        terminal.type_keys("n\n");
        terminal.see("text (2/3): take this?");
        terminal.type_keys("y\n");
        terminal.see("text (3/3): take this?");
        terminal.type_keys("d\n");
        terminal.see("applied to ");
        assert_eq!(terminal.end(), 0);
        assert_eq!(read("text"), lines(&[(4, "four")], 30));
        assert_eq!(read("gone"), "x\n");
        assert!(!project.join("d").exists());

        // The user goes on, and takes the rest.
        // (Written in place: what else lies there is not even given to another owner.)
        let edited = lines(&[(4, "four"), (12, "user")], 30);
        fs::write(project.join("text"), edited).unwrap();
        person.line("pull box").run().expect_code(0);
        let all = [(1, "one"), (4, "four"), (12, "user"), (20, "twenty")];
        assert_eq!(read("text"), lines(&all, 30));
        assert!(!project.join("gone").exists());
        assert_eq!(read("d/n"), "new\n");
        person.line("kill -q box").run().expect_code(0);
        fs::remove_dir_all(project.join("d")).unwrap();

        // At the end of a run what was not selected is kept.
        person.write("project/text", lines(&[], 30));
        let script = "sed -i 's/^1$/one/; s/^20$/twenty/' text";
        let mut terminal = Terminal::run(person, &["run", "--", "sh", "-c", script]);
        terminal.see("[s]elect");
        terminal.type_keys("s\n");
        terminal.see("text (1/2): take this?");
        terminal.type_keys("y\n");
        terminal.see("text (2/2): take this?");
        terminal.type_keys("q\n");
        terminal.see("glovebox pull ");
        let text = terminal.text();
        assert_eq!(terminal.end(), 0);
        assert_eq!(read("text"), lines(&[(1, "one")], 30));
        let mut rest = text.split("`glovebox pull ").skip(1);
        let name = rest.next().and_then(|rest| rest.split('`').next()).unwrap();
        person.glovebox(["pull", "-q", name]).run().expect_code(0);
        assert_eq!(read("text"), lines(&[(1, "one"), (20, "twenty")], 30));
        person.glovebox(["kill", "-q", name]).run().expect_code(0);
    });
}

#[test]
fn a_long_diff_goes_through_the_pager_and_a_short_one_does_not() {
    Person::each(|person| {
        person.write("project/text", lines(&[], 9));
        person.line("start -q box").run().expect_code(0);
        let pager = person.write(
            "home/pager",
            "#!/bin/sh\necho PAGED; head -n 3; echo \"LESS=$LESS\"\n",
        );
        fs::set_permissions(&pager, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let pager = pager.to_str().unwrap();
        person
            .script("exec box", "printf 'a\\033[2Jb\\n' >> text")
            .run()
            .expect_code(0);
        let terminal = Terminal::run_with(person, &["diff", "box"], &[["PAGER", pager]]);
        // The sign in reverse video, as one that hides.
        terminal.see("a\u{1b}[7m\\x1b\u{1b}[27m[2Jb");
        let text = terminal.text();
        assert!(!text.contains("PAGED"), "{text}");
        assert_eq!(terminal.end(), 0);

        person
            .script("exec box", "seq 1000 > text")
            .run()
            .expect_code(0);
        let terminal = Terminal::run_with(person, &["diff", "box"], &[["PAGER", "cat"]]);
        terminal.see("+1000");
        assert_eq!(terminal.end(), 0);
        let terminal = Terminal::run_with(person, &["diff", "box"], &[["PAGER", pager]]);
        terminal.see("LESS=R");
        let text = terminal.text();
        assert!(text.contains("PAGED"), "{text}");
        assert!(!text.contains("+1000"), "{text}");
        assert_eq!(terminal.end(), 0);
        // Nobody pages what goes elsewhere.
        let ran = person
            .line("diff box")
            .env("PAGER", pager)
            .run()
            .expect_code(0);
        assert!(ran.out().contains("+1000\n") && !ran.out().contains("PAGED"));
        person.line("kill -q box").run().expect_code(0);
    });
}
