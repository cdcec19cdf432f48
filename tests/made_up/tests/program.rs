//! A backend is one crate and one line of registration: the program with one more shows it everywhere by itself.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use std::fs;
use testkit::{Glovebox, Home, Ran};

/// A command line of the program that has the backend.
fn line(home: &Home, line: &str) -> Glovebox {
    let program = env!("CARGO_BIN_EXE_glovebox-made-up");
    home.program(program, line.split_whitespace())
}

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn help_completion_doctor_and_settings_have_it() {
    let home = Home::new();
    let help = line(&home, "run --help").run().expect_code(0).out();
    for words in ["made-up (a directory", "--greeting <WORD>"] {
        assert!(help.contains(words), "{words}: {help}");
    }
    let complete = line(&home, "__complete -- run --backend ma").run();
    assert!(complete.out().contains("made-up"), "{complete}");
    let explained = line(&home, "config explain")
        .env("GLOVEBOX_GREETING", "hello")
        .run()
        .expect_code(0);
    let is_told = |one: &str| one.contains("made_up.greeting") && one.contains("hello");
    assert!(explained.out().lines().any(is_told), "{explained}");
    let doctor = line(&home, "doctor").run();
    assert!(doctor.out().contains("made-up"), "{doctor}");
    let doctor = json(&line(&home, "doctor --json").run());
    let others = doctor["data"]["other_backends"].to_string();
    assert!(others.contains("made-up"), "{doctor}");
    let bad = line(&home, "run --backend made-up --greeting Hi! -- true").run();
    let words = "one word of lower-case letters";
    assert!(bad.err().contains(words), "{bad}");
}

#[test]
fn work_in_it_comes_back_and_its_report_repeats_the_greeting() {
    let home = Home::new();
    home.write("project/a", "1\n");
    let flags = "--backend made-up --greeting hello";
    let ran = line(&home, &format!("run {flags} --apply auto -- sh -c"))
        .args(["cat a; echo 2 >>a; exit 3"])
        .run()
        .expect_code(3);
    assert_eq!(ran.out(), "1\n");
    assert_eq!(fs::read(home.project().join("a")).unwrap(), b"1\n2\n");
    let start = line(&home, &format!("start far {flags}")).run();
    let _ = start.expect_code(0);
    let list = line(&home, "list").run().expect_code(0);
    assert!(list.out().contains("made-up"), "{list}");
    let info = line(&home, "info far").run().expect_code(0);
    assert!(info.out().contains("says hello"), "{info}");
    let is_wall = |one: &str| one.starts_with("greeting") && one.ends_with("hello");
    assert!(info.out().lines().any(is_wall), "{info}");
    let _ = line(&home, "kill far").run().expect_code(0);
}

#[test]
fn a_program_without_it_names_it() {
    let home = Home::new();
    let start = line(&home, "start far --backend made-up").run();
    let _ = start.expect_code(0);
    let other = home.line("exec far -- true").run();
    assert_ne!(other.code, 0, "{other}");
    let needs = "needs the backend `made-up`, which this program does not have";
    assert!(other.err().contains(needs), "{other}");
    let _ = line(&home, "kill far").run().expect_code(0);
}

#[test]
fn what_it_cannot_do_is_refused_by_what_it_declares() {
    let home = Home::new();
    for (rest, words) in [
        (
            "--net none",
            "--net has no meaning with the backend `made-up`",
        ),
        ("--workspace live", "--workspace has no meaning"),
        ("--sprite x", "--sprite has no meaning"),
    ] {
        let ran = line(&home, &format!("run --backend made-up {rest} -- true")).run();
        assert_eq!(ran.code, 125, "{ran}");
        assert!(ran.err().contains(words), "{ran}");
    }
    home.write("project/glovebox.toml", "backend = \"made-up\"\n");
    let ran = line(&home, "run -- true").run();
    let words = "only the user's own settings";
    assert!(ran.err().contains(words), "{ran}");
}
