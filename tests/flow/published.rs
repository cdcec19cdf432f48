//! Test suites of published projects, as their packages ship them: what they say inside is what they say on the host.
//!
//! `cargo xtask test` fetches the packages, at fixed versions, with the programs that run their tests
//! (`xtask/src/projects.rs`). Nothing is installed or prepared inside.

use crate::agents_inside::can_reach;
use crate::projects::{Tools, rust_tools};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, thread};
use testkit::{Canary, Person, installed, skip};

/// A published package, and how its tests are run.
struct Published {
    /// The directory that holds what was fetched for it.
    group: &'static str,
    /// Its own, below that.
    source: &'static str,
    /// The program and its arguments, relative to what was fetched where they begin with `@`.
    command: &'static [&'static str],
    /// Variables, relative to what was fetched where that begins with `@`.
    env: &'static [(&'static str, &'static str)],
    /// Whether it is built with the user's Rust.
    is_rust: bool,
    /// What counts of all that was said.
    summary: fn(&str) -> Summary,
    /// The least that must have passed: a suite that finds no tests says the same on both sides.
    passed: u32,
}

/// What is compared.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    /// Lines without what differs from run to run.
    lines: Vec<String>,
    /// Tests that passed.
    passed: u32,
}

/// The number before `word`.
fn number_before(line: &str, word: &str) -> Option<u32> {
    line.split_once(word)?
        .0
        .split(' ')
        .next_back()?
        .parse()
        .ok()
}

/// `1 failed, 488 passed, 2 skipped`, of the last line of pytest.
fn of_pytest(said: &str) -> Summary {
    let last = said.lines().rev().find(|line| line.contains(" passed"));
    let Some((numbers, _)) = last.and_then(|line| line.rsplit_once(" in ")) else {
        return Summary::default();
    };
    // The line is framed where it is long. Warnings are about Python, and change with its release.
    let numbers = numbers.trim_matches(['=', ' ']).split(", ");
    let kept: Vec<&str> = numbers.filter(|part| !part.contains("warning")).collect();
    let line = kept.join(", ");
    Summary {
        passed: number_before(&line, " passed").unwrap_or(0),
        lines: vec![line],
    }
}

/// `# tests 153`, `# pass  153`, of the Test Anything Protocol.
fn of_tap(said: &str) -> Summary {
    let lines = said.lines().filter(|line| {
        let words = ["# tests ", "# pass ", "# fail "];
        words.iter().any(|word| line.starts_with(word))
    });
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    let passed = lines.iter().find_map(|line| line.strip_prefix("# pass "));
    Summary {
        passed: passed.map_or(0, |number| number.trim().parse().unwrap_or(0)),
        lines,
    }
}

/// `1166 passing`, `4 failing`, of Mocha.
fn of_mocha(said: &str) -> Summary {
    let lines: Vec<String> = said
        .lines()
        .map(str::trim)
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').take(2).collect();
            let is_count = words.first()?.parse::<u32>().is_ok()
                && ["passing", "failing", "pending"].contains(words.get(1)?);
            is_count.then(|| words.join(" "))
        })
        .collect();
    Summary {
        passed: lines
            .iter()
            .find_map(|line| number_before(line, " passing"))
            .unwrap_or(0),
        lines,
    }
}

/// `ok. 114 passed; 0 failed; 0 ignored`, of each test program that cargo runs.
fn of_cargo(said: &str) -> Summary {
    let lines: Vec<String> = said
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "))
        .filter_map(|line| Some(line.split_once("; finished in ")?.0.to_owned()))
        .collect();
    Summary {
        passed: lines
            .iter()
            .filter_map(|line| number_before(line, " passed"))
            .sum(),
        lines,
    }
}

/// What `configure` has found, and `*** zlib shared test OK ***` of each of the ways it is linked.
fn of_zlib(said: &str) -> Summary {
    let words = ["Checking for ", "Building ", "*** zlib "];
    let lines: Vec<String> = said
        .lines()
        .map(str::trim)
        .filter(|line| words.iter().any(|word| line.starts_with(word)))
        .map(str::to_owned)
        .collect();
    let passed = lines.iter().filter(|line| line.ends_with(" test OK ***"));
    Summary {
        passed: u32::try_from(passed.count()).unwrap_or(0),
        lines,
    }
}

/// What was fetched, if it was.
fn fetched(group: &str) -> Option<PathBuf> {
    installed(&format!("projects/{group}/installed"))?
        .parent()
        .map(Path::to_owned)
}

/// Runs `command`, and gives what counts and all that was said.
fn run(mut command: Command, project: &Published) -> (Summary, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ((project.summary)(&said), said)
}

/// The project, twice: where sandboxes are made from it, and where its tests leave their traces on the host.
fn copy_twice(person: &Person, source: &Path) {
    for copy in ["project", "home/copy"] {
        let to = person.place().root().join(copy);
        let _ = fs::remove_dir_all(&to);
        let copied = Command::new("cp")
            .arg("-r")
            .args([source, &to])
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
}

fn says_the_same_inside(project: &Published) {
    let Some(fetched) = fetched(project.group) else {
        skip!("needs the projects that `cargo xtask test` fetches");
    };
    let resolve = |word: &str| match word.strip_prefix('@') {
        Some(path) => fetched.join(path).into_os_string(),
        None => OsString::from(word),
    };
    let words: Vec<OsString> = project.command.iter().map(|word| resolve(word)).collect();
    Person::each(|person| {
        if !can_reach(person, &fetched) {
            return;
        }
        let tools = if project.is_rust {
            let Some(tools) = rust_tools(person) else {
                skip!("needs cargo and rustup in a home")
            };
            tools
        } else {
            Tools::default()
        };
        copy_twice(person, &fetched.join(project.source));
        let env = project
            .env
            .iter()
            .map(|(name, value)| (name, resolve(value)));

        let copy = person.place().home().join("copy");
        let mut outside = tools.command(person, &words, &copy);
        outside.envs(env.clone()).env(
            // What another user has left in the one of the machine is in the way of some.
            "TMPDIR",
            person.write("home/tmp/.keep", "").parent().unwrap(),
        );

        let mut call: Vec<OsString> = vec![person.binary().into()];
        call.extend(
            ["run", "--apply", "never", "--timeout", "400s", "--grant"].map(OsString::from),
        );
        call.push(fetched.clone().into());
        for (name, value) in env {
            let mut variable = OsString::from(format!("{name}="));
            variable.push(value);
            call.extend(["--env".into(), variable]);
        }
        call.push("--".into());
        call.extend(words.iter().cloned());
        let inside = tools.command(person, &call, &person.project());

        let canary = Canary::watch(person.project());
        // Both at once, for some wait more than they work.
        let ((inside, said_inside), (outside, said_outside)) = thread::scope(|scope| {
            let outside = scope.spawn(|| run(outside, project));
            (run(inside, project), outside.join().unwrap())
        });
        canary.assert_untouched();

        assert_eq!(
            inside, outside,
            "inside:\n{said_inside}\non the host:\n{said_outside}"
        );
        assert!(inside.passed >= project.passed, "{inside:?}: {said_inside}");
        person.assert_nothing_left();
    });
}

const PYTHON: Published = Published {
    group: "python",
    source: "",
    command: &["@venv/bin/python", "-m", "pytest", "-q"],
    env: &[("PYTHONPATH", "src"), ("PYTHONDONTWRITEBYTECODE", "1")],
    is_rust: false,
    summary: of_pytest,
    passed: 0,
};

#[test]
fn click_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        source: "click",
        passed: 600,
        ..PYTHON
    });
}

#[test]
fn flask_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        source: "flask",
        passed: 450,
        ..PYTHON
    });
}

/// With those that talk to a server on the loopback interface. Left out are two that want an address at which nobody
/// answers and that is not refused either, which is for the network around a machine to have.
#[test]
fn requests_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        source: "requests",
        command: &[
            "@venv/bin/python",
            "-m",
            "pytest",
            "-q",
            "tests",
            "--deselect=tests/test_requests.py::TestTimeout::test_connect_timeout",
            "--deselect=tests/test_requests.py::TestTimeout::test_total_timeout_connect",
        ],
        passed: 550,
        ..PYTHON
    });
}

#[test]
fn minimist_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        group: "minimist",
        source: "source",
        command: &["@modules/node_modules/.bin/tape", "test/*.js"],
        env: &[("NODE_PATH", "@modules/node_modules")],
        is_rust: false,
        summary: of_tap,
        passed: 150,
    });
}

#[test]
fn express_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        group: "express",
        source: "source",
        command: &[
            "@modules/node_modules/.bin/mocha",
            "--require",
            "test/support/env",
            "--reporter",
            "dot",
            "--check-leaks",
            "test/",
            "test/acceptance/",
        ],
        env: &[("NODE_PATH", "@modules/node_modules")],
        is_rust: false,
        summary: of_mocha,
        passed: 1000,
    });
}

#[test]
fn zlib_is_built_and_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        group: "zlib",
        source: "source",
        command: &["sh", "-c", "./configure && make -j2 && make test"],
        env: &[],
        is_rust: false,
        summary: of_zlib,
        passed: 3,
    });
}

/// Built from what cargo has in its cache, without network.
#[test]
fn ripgrep_is_built_and_passes_its_tests_inside() {
    says_the_same_inside(&Published {
        group: "ripgrep",
        source: "source",
        command: &["cargo", "test", "--offline", "--locked"],
        // What is left out takes longer than the tests.
        env: &[
            ("CARGO_INCREMENTAL", "0"),
            ("CARGO_PROFILE_DEV_DEBUG", "0"),
            ("CARGO_PROFILE_TEST_DEBUG", "0"),
        ],
        is_rust: true,
        summary: of_cargo,
        passed: 400,
    });
}

#[test]
fn numbers_are_read_from_what_runners_say() {
    let pytest = "....\n==== 1 failed, 488 passed, 2 skipped, 18 warnings in 2.15s ====\n";
    let tap = "ok 1 x\n\n# tests 153\n# pass  153\n\n# ok\n";
    let mocha = "  ..!.\n\n  1166 passing (2s)\n  4 failing\n\n  1) res\n";
    let cargo = "test a ... ok\ntest result: ok. 114 passed; 0 failed; finished in 0.03s\n\
                 test result: FAILED. 2 passed; 1 failed; finished in 0.01s\n";
    let zlib = "Checking for gcc...\nhello world\n\t\t*** zlib test OK ***\n\t\t*** zlib shared test FAILED ***\n";
    let expected: [(Summary, &[&str], u32); 6] = [
        (of_pytest(pytest), &["1 failed, 488 passed, 2 skipped"], 488),
        (of_tap(tap), &["# tests 153", "# pass  153"], 153),
        (of_mocha(mocha), &["1166 passing", "4 failing"], 1166),
        (
            of_cargo(cargo),
            &["ok. 114 passed; 0 failed", "FAILED. 2 passed; 1 failed"],
            116,
        ),
        (
            of_zlib(zlib),
            &[
                "Checking for gcc...",
                "*** zlib test OK ***",
                "*** zlib shared test FAILED ***",
            ],
            1,
        ),
        (of_pytest("no tests ran in 0.01s\n"), &[], 0),
    ];
    for (summary, lines, passed) in expected {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(summary, Summary { lines, passed });
    }
}
