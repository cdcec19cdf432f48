//! What a person at a terminal is asked and shown about changes, and what becomes of each answer.

use crate::screen::Terminal;
use std::fs;
use std::process::Stdio;
use std::time::Duration;
use testkit::{Person, wait_until};

const WORK: &str = "echo new > made; echo changed > x";

fn read(person: &Person, name: &str) -> Option<String> {
    fs::read_to_string(person.project().join(name)).ok()
}

fn ask(person: &Person) -> Terminal {
    person.write("project/x", "before\n");
    let _ = fs::remove_file(person.project().join("made"));
    let terminal = Terminal::run(person, &["run", "--apply", "ask", "--", "sh", "-c", WORK]);
    terminal.see("apply to ");
    for line in ["2 changes in /workspace", "  A made", "  M x", "[k]eep"] {
        assert!(
            terminal.text().contains(line),
            "{line}: {}",
            terminal.text()
        );
    }
    assert_eq!(
        read(person, "made"),
        None,
        "applied before it was agreed to"
    );
    terminal
}

#[test]
fn the_end_of_a_run_is_agreed_to_or_not() {
    Person::each(|person| {
        // Something else is no answer; a look at the difference is none yet.
        let mut terminal = ask(person);
        terminal.type_keys("maybe\n");
        terminal.see_times("apply to ", 2);
        terminal.type_keys("d\n");
        terminal.see_times("apply to ", 3);
        let shown = terminal.text();
        for line in ["+++ b/made", "-before", "+changed"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        terminal.type_keys("Y\n");
        terminal.see("applied to ");
        assert_eq!(terminal.end(), 0);
        assert_eq!(read(person, "x").as_deref(), Some("changed\n"));
        assert_eq!(read(person, "made").as_deref(), Some("new\n"));
        person.assert_nothing_left();

        let mut terminal = ask(person);
        terminal.type_keys("n\n");
        assert_eq!(terminal.end(), 0);
        assert_eq!(read(person, "x").as_deref(), Some("before\n"));
        assert_eq!(read(person, "made"), None);
        person.assert_nothing_left();
    });
}

#[test]
fn whoever_leaves_without_an_answer_finds_the_work_later() {
    Person::each(|person| {
        // Keep it; Ctrl-C; Ctrl-D.
        for keys in ["k\n", "\x03", "\x04"] {
            let mut terminal = ask(person);
            terminal.type_keys(keys);
            terminal.see("glovebox pull ");
            let text = terminal.text();
            let code = terminal.end();
            assert_eq!(code, 0, "{keys:?}: {text}");
            assert_eq!(read(person, "made"), None, "{keys:?}");
            let name = text
                .split("`glovebox pull ")
                .nth(1)
                .and_then(|rest| rest.split('`').next())
                .unwrap();
            person.glovebox(["pull", "-q", name]).run().expect_code(0);
            assert_eq!(read(person, "made").as_deref(), Some("new\n"), "{keys:?}");
            person.glovebox(["kill", "-q", name]).run().expect_code(0);
        }
    });
}

#[test]
fn what_the_host_would_execute_is_asked_about() {
    Person::each(|person| {
        person.line("start -q box").run().expect_code(0);
        let work =
            "mkdir -p .github/workflows && echo on > .github/workflows/ci.yml && echo new > made";
        person.script("exec box", work).run().expect_code(0);
        let pull = |flags: &[&str]| {
            let words: Vec<&str> = ["pull", "box"].iter().chain(flags).copied().collect();
            Terminal::run(person, &words)
        };
        // No; anything else; Ctrl-C; Ctrl-D: all of them leave everything as it is.
        for keys in ["n\n", "\x03", "\x04"] {
            let mut terminal = pull(&[]);
            terminal.see("[d]iff");
            for line in [
                "look at these first",
                ".github/workflows/ci.yml: runs on the host",
            ] {
                assert!(
                    terminal.text().contains(line),
                    "{line}: {}",
                    terminal.text()
                );
            }
            terminal.type_keys(keys);
            let text = terminal.text();
            assert_eq!(terminal.end(), 130, "{keys:?}: {text}");
            assert_eq!(read(person, "made"), None, "{keys:?}");
        }
        let mut terminal = pull(&[]);
        terminal.see("[d]iff");
        terminal.type_keys("d\n");
        terminal.see("+++ b/.github/workflows/ci.yml");
        terminal.see_times("[d]iff", 2);
        terminal.type_keys("y\n");
        assert_eq!(terminal.end(), 0);
        assert_eq!(read(person, "made").as_deref(), Some("new\n"));

        // Without such a file, with --force, with --json or quietly, nobody is asked.
        person
            .script("exec box", "echo newer > made")
            .run()
            .expect_code(0);
        assert_eq!(pull(&[]).end(), 0);
        for flag in ["--force", "--json", "--quiet"] {
            let work = format!("echo {flag} > .github/workflows/ci.yml");
            person.script("exec box", &work).run().expect_code(0);
            let terminal = pull(&[flag]);
            let text = terminal.text();
            assert_eq!(terminal.end(), 0, "{flag}: {text}");
            let there = read(person, ".github/workflows/ci.yml");
            assert_eq!(there, Some(format!("{flag}\n")), "{flag}: {text}");
        }
        person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn how_far_a_long_pull_is_is_told_to_people_and_to_programs() {
    const LINE: &str = "copying: ";
    // Files cost more than bytes: a large file alone is copied before anyone asks how far it is.
    const MANY_FILES: &str =
        "mkdir many; seq 4000 | split -a 4 -l 1 - many/; head -c 100M /dev/zero > big";
    Person::each(|person| {
        person
            .line("start -q --disk 2GiB --timeout none box")
            .run()
            .expect_code(0);
        person.script("exec box", MANY_FILES).run().expect_code(0);
        let to = |name: &str| {
            let dir = person.place().root().join(name);
            fs::create_dir(&dir).unwrap();
            person.own(&dir);
            dir.into_os_string().into_string().unwrap()
        };
        // A person sees a bar, which is gone when it is over.
        let dir = to("shown");
        let terminal = Terminal::run(person, &["pull", "box", "--to", &dir]);
        let is_shown = wait_until(Duration::from_mins(1), || {
            let text = terminal.text();
            text.contains(LINE) || text.contains("collecting: ")
        });
        assert!(is_shown, "no bar:\n{}", terminal.text());
        terminal.see("applied to ");
        let text = terminal.text();
        assert_eq!(terminal.end(), 0);
        let after = text.rsplit("applied to ").next().unwrap();
        assert!(!after.contains(LINE), "{text}");
        let dir = to("quiet");
        let terminal = Terminal::run(person, &["pull", "-q", "box", "--to", &dir]);
        let text = wait_for_end(terminal);
        assert_eq!(text, "");

        // A program gets lines of JSON on standard error, and one answer on standard output.
        let dir = to("json");
        let ran = person
            .glovebox(["pull", "box", "--json", "--to", &dir])
            .run()
            .expect_code(0);
        let answer: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(answer["success"], true, "{ran}");
        let events: Vec<serde_json::Value> = ran
            .err()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}: {ran}")))
            .collect();
        assert!(!events.is_empty(), "{ran}");
        assert!(
            events
                .iter()
                .all(|event| event["event"] == "progress" && event["version"] == 1),
            "{ran}"
        );
        let stages: Vec<&str> = events
            .iter()
            .filter_map(|event| event["stage"].as_str())
            .collect();
        assert!(stages.contains(&"transfer"), "{ran}");

        // Neither of them: no bar, no events.
        let dir = to("plain");
        let mut plain = person.glovebox(["pull", "box", "--to", &dir]);
        plain.command.stdin(Stdio::null());
        let ran = plain.run().expect_code(0);
        assert!(
            !ran.err().contains(LINE) && !ran.err().contains("progress"),
            "{ran}"
        );
        assert!(
            !ran.stderr.contains(&b'\r') && !ran.stderr.contains(&0x1b),
            "{ran}"
        );
        person.line("kill -q box").run().expect_code(0);
    });
}

fn wait_for_end(terminal: Terminal) -> String {
    let screen = terminal.screen();
    assert_eq!(terminal.end(), 0);
    screen.lock().unwrap().clone()
}

#[test]
fn characters_that_hide_are_signs_with_a_warning_and_scripts_stay_readable() {
    let person = Person::myself();
    person.write("project/run.sh", "make\n");
    person.write("project/twin.txt", "a\n");
    let work = "printf 'rm build \\033]8;;x\\007\\342\\200\\256\\n' > run.sh; \
                printf '\\327\\251\\327\\234\\327\\225\\327\\235\\tx\\n' > twin.txt";
    let mut terminal = Terminal::run(&person, &["run", "--apply", "ask", "--", "sh", "-c", work]);
    terminal.see("apply to ");
    let listed = terminal.text();
    assert!(
        listed.contains("run.sh: 3 hidden characters: ESC, BEL, RLO"),
        "{listed}"
    );
    assert!(!listed.contains("twin.txt: "), "{listed}");
    terminal.type_keys("d\n");
    terminal.see_times("apply to ", 2);
    let shown = terminal.text();
    assert!(
        shown.contains("rm build \u{1b}[7m\\x1b\u{1b}[27m]8;;x\u{1b}[7m\\x07\u{1b}[27m"),
        "{shown}"
    );
    assert!(!shown.contains('\u{202e}'), "{shown}");
    assert!(shown.contains("\u{5e9}\u{5dc}\u{5d5}\u{5dd}\tx"), "{shown}");
    terminal.type_keys("n\n");
    assert_eq!(terminal.end(), 0);
    person.assert_nothing_left();
}
