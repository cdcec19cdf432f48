//! With `--json` every failure of every command is one object on standard output.

use serde_json::Value;
use testkit::{Home, Ran};

/// Returns the usage line of every command that has `--json`, from the generated reference.
fn usages() -> Vec<&'static str> {
    let reference = include_str!("../../../docs/reference/commands.md");
    reference
        .split("\n### ")
        .filter(|section| section.contains("| `--json` |"))
        .filter_map(|section| section.split_once("`glovebox ")?.1.lines().next())
        .collect()
}

/// Returns the words of a command line: the command, `--json`, and a value for every required
/// argument.
fn words(usage: &str) -> Vec<&str> {
    let (arguments, mut words): (Vec<&str>, Vec<&str>) = usage
        .trim_end_matches('`')
        .split_whitespace()
        .partition(|word| word.starts_with(['[', '<']));
    words.push("--json");
    let is_needed = |word: &&str| word.starts_with('<') || word.ends_with("...");
    words.extend(arguments.into_iter().filter(is_needed).map(|word| {
        if word == "<PORT>" {
            "3000"
        } else {
            "none-such"
        }
    }));
    words
}

fn assert_told(ran: &Ran, line: &[&str]) {
    let object: Value = serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{line:?}: {error}\n{ran}"));
    assert_eq!(object["success"], false, "{line:?}\n{ran}");
    let error = &object["error"];
    for field in ["class", "code", "message"] {
        assert!(error[field].is_string(), "{line:?}: {field}\n{ran}");
    }
    assert_ne!(ran.code, 0, "{line:?}\n{ran}");
}

#[test]
fn a_configuration_that_is_not_there_is_told_as_an_object_by_every_command() {
    let home = Home::new();
    let usages = usages();
    assert!(usages.len() > 40, "{usages:?}");
    for usage in usages {
        // The only command that reads no configuration: its output is part of the program.
        if usage.starts_with("net presets") {
            continue;
        }
        let line = words(usage);
        let ran = home
            .glovebox(["--config", "/no/such/glovebox.toml"])
            .args(&line)
            .run();
        assert_told(&ran, &line);
    }
}

#[test]
fn a_flag_that_no_command_has_is_told_as_an_object_by_every_command() {
    let home = Home::new();
    for usage in usages() {
        let mut line = words(usage);
        let verb = line.iter().position(|word| *word == "--json").unwrap_or(0);
        line.insert(verb, "--nonsense");
        let ran = home.glovebox(&line).run();
        assert_told(&ran, &line);
        assert!(ran.err().contains("--nonsense"), "{line:?}\n{ran}");
    }
}

#[test]
fn what_is_not_there_has_one_exit_code() {
    let home = Home::new();
    for line in [
        "bundle check none-such.js",
        "checkpoints none-such",
        "cp none-such:/etc/passwd .",
        "diff none-such",
        "expose none-such 3000",
        "info none-such",
        "logs none-such",
        "net show none-such",
        "ports none-such",
        "pull none-such",
        "replay none-such",
        "sessions show none-such",
        "stats none-such",
        "stop none-such",
        "token revoke none-such",
        "why none-such",
    ] {
        let ran = home.line(line).run();
        assert_eq!(ran.code, 6, "{line}\n{ran}");
    }
}
