//! Test suites of published projects, as their packages ship them: what they say inside is what they say on the host.
//!
//! `cargo xtask test` fetches the packages, at fixed versions, with the programs that run their tests
//! (`xtask/src/projects.rs`). Nothing is installed or prepared inside.

use crate::agents_inside::can_reach;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{Canary, Person, installed, skip};

/// A published package, and how its tests are run.
struct Published {
    /// Its directory among what was fetched.
    dir: &'static str,
    /// The program, relative to what was fetched, and its arguments.
    command: &'static [&'static str],
    /// Variables, relative to what was fetched where that begins with `@`.
    env: &'static [(&'static str, &'static str)],
    /// What the line with the numbers begins and ends with, without the time they took.
    summary: fn(&str) -> Option<String>,
    /// The least that must have passed: a suite that finds no tests says the same on both sides.
    passed: u32,
}

/// `1 failed, 488 passed, 2 skipped`, of the last line of pytest.
fn of_pytest(said: &str) -> Option<String> {
    let line = said.lines().rev().find(|line| line.contains(" passed"))?;
    let (numbers, _) = line.rsplit_once(" in ")?;
    // The line is framed where it is long. Warnings are about Python, and change with its release.
    let numbers = numbers.trim_matches(['=', ' ']).split(", ");
    let kept: Vec<&str> = numbers.filter(|part| !part.contains("warning")).collect();
    Some(kept.join(", "))
}

/// `# tests 153 # pass  153`, of the Test Anything Protocol.
fn of_tap(said: &str) -> Option<String> {
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| {
            ["# tests ", "# pass ", "# fail "]
                .iter()
                .any(|word| line.starts_with(word))
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// The number before ` passed`, or behind `# pass`.
fn count_passed(summary: &str) -> u32 {
    let words: Vec<&str> = summary
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse().ok());
    let before = words
        .iter()
        .position(|word| *word == "passed")
        .and_then(|at| number(at.checked_sub(1)?));
    let behind = words
        .iter()
        .position(|word| *word == "pass")
        .and_then(|at| number(at + 1));
    before.or(behind).unwrap_or(0)
}

/// What was fetched, if it was.
fn fetched() -> Option<PathBuf> {
    installed("projects/installed")?
        .parent()
        .map(Path::to_owned)
}

/// Runs `command`, and gives the numbers and all that was said.
fn run(mut command: Command, project: &Published) -> (Option<String>, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ((project.summary)(&said), said)
}

fn says_the_same_inside(project: &Published) {
    let Some(fetched) = fetched() else {
        skip!("needs the packages that `cargo xtask test` fetches");
    };
    Person::each(|person| {
        if !can_reach(person, &fetched) {
            return;
        }
        let source = fetched.join(project.dir);
        for copy in ["project", "home/copy"] {
            let to = person.place().root().join(copy);
            let _ = fs::remove_dir_all(&to);
            let copied = Command::new("cp")
                .arg("-r")
                .args([&source, &to])
                .status()
                .unwrap();
            assert!(copied.success());
            person.own(&to);
        }
        // As in a clone: what is tracked is shown inside, also where its name is that of a secret (`.env` of flask).
        for words in [&["init", "-q"][..], &["add", "--all", "--force"]] {
            let done = person.program("git").args(words).status().unwrap();
            assert!(done.success());
        }
        let mut words: Vec<OsString> = vec![fetched.join(project.command[0]).into()];
        words.extend(
            project.command[1..]
                .iter()
                .map(|word| match word.strip_prefix('@') {
                    Some(path) => fetched.join(path).into_os_string(),
                    None => word.into(),
                }),
        );
        let env: Vec<(&str, String)> = project
            .env
            .iter()
            .map(|(name, value)| match value.strip_prefix('@') {
                Some(path) => (*name, fetched.join(path).display().to_string()),
                None => (*name, (*value).to_owned()),
            })
            .collect();

        let mut outside = person.program(&words[0]);
        outside
            .args(&words[1..])
            .envs(env.iter().map(|(name, value)| (name, value)))
            // What another user has left in the one of the machine is in the way of some.
            .env(
                "TMPDIR",
                person.write("home/tmp/.keep", "").parent().unwrap(),
            )
            .current_dir(person.place().home().join("copy"));
        let (outside, said_outside) = run(outside, project);

        let canary = Canary::watch(person.project());
        let mut call = person
            .glovebox(["run", "--apply", "never", "--timeout", "120s", "--grant"])
            .args([&fetched]);
        for (name, value) in &env {
            call = call.args(["--env".to_owned(), format!("{name}={value}")]);
        }
        let (inside, said_inside) = run(call.args(["--"]).args(&words).command, project);
        canary.assert_untouched();

        assert_eq!(
            inside, outside,
            "inside:\n{said_inside}\non the host:\n{said_outside}"
        );
        let passed = count_passed(inside.as_deref().unwrap_or_default());
        assert!(passed >= project.passed, "{inside:?}: {said_inside}");
        person.assert_nothing_left();
    });
}

const SOURCES: &[(&str, &str)] = &[("PYTHONPATH", "src"), ("PYTHONDONTWRITEBYTECODE", "1")];

#[test]
fn click_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        dir: "click",
        command: &["venv/bin/python", "-m", "pytest", "-q"],
        env: SOURCES,
        summary: of_pytest,
        passed: 600,
    });
}

#[test]
fn flask_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        dir: "flask",
        command: &["venv/bin/python", "-m", "pytest", "-q"],
        env: SOURCES,
        summary: of_pytest,
        passed: 450,
    });
}

/// Without those that talk to a server: they take over a minute on any machine.
#[test]
fn requests_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        dir: "requests",
        command: &[
            "venv/bin/python",
            "-m",
            "pytest",
            "-q",
            "tests/test_utils.py",
            "tests/test_structures.py",
            "tests/test_hooks.py",
            "tests/test_adapters.py",
            "tests/test_help.py",
            "tests/test_packages.py",
        ],
        env: SOURCES,
        summary: of_pytest,
        passed: 200,
    });
}

/// The packages of most projects of Node come without tests, express among them; this one has its own.
#[test]
fn minimist_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        dir: "minimist",
        command: &["tape/node_modules/.bin/tape", "test/*.js"],
        env: &[("NODE_PATH", "@tape/node_modules")],
        summary: of_tap,
        passed: 150,
    });
}

#[test]
fn numbers_are_read_from_what_runners_say() {
    let pytest = "....\n==== 1 failed, 488 passed, 2 skipped, 18 warnings in 2.15s ====\n";
    let summary = of_pytest(pytest).unwrap();
    assert_eq!(summary, "1 failed, 488 passed, 2 skipped");
    assert_eq!(count_passed(&summary), 488);
    let tap = "ok 1 x\n\n# tests 153\n# pass  153\n\n# ok\n";
    let summary = of_tap(tap).unwrap();
    assert_eq!(summary, "# tests 153 # pass  153");
    assert_eq!(count_passed(&summary), 153);
    assert_eq!(of_pytest("no tests ran in 0.01s\n"), None);
}
