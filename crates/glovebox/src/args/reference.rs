//! Test that writes `docs/reference/commands.md` from the declarations of the commands, and
//! compares it.

use super::{Cli, SandboxArgs};
use clap::{Arg, Args as _, Command, CommandFactory as _};
use glovebox_sandbox::Backend;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// Chapters, and the commands of each in the order in which a reader needs them.
const CHAPTERS: &[(&str, &[&str])] = &[
    (
        "One command, or a sandbox that stays",
        &[
            "run", "start", "exec", "attach", "list", "stop", "kill", "prune", "rename", "stats",
            "cp", "logs", "info",
        ],
    ),
    ("Changes", &["diff", "pull", "push"]),
    (
        "Checkpoints",
        &[
            "checkpoint",
            "checkpoint delete",
            "checkpoints",
            "restore",
            "fork",
        ],
    ),
    (
        "Network and caches",
        &[
            "net presets",
            "net show",
            "net log",
            "net allow",
            "net limit",
            "net test",
            "ports",
            "expose",
            "cache",
            "cache list",
            "cache prune",
        ],
    ),
    (
        "Agents and tools",
        &[
            "agent",
            "sessions list",
            "sessions show",
            "sessions export",
            "sessions resume",
            "sessions fork",
            "sessions delete",
            "replay",
            "tools",
            "call",
            "why",
            "mcp",
        ],
    ),
    (
        "Bundles and the server",
        &[
            "bundle check",
            "bundle dev",
            "bundle show",
            "bundle call",
            "bundle run",
            "serve",
            "token create",
            "token list",
            "token revoke",
            "audit",
        ],
    ),
    (
        "This machine",
        &[
            "doctor",
            "demo",
            "init",
            "config explain",
            "config trust",
            "config untrust",
            "config trusted",
            "completions",
            "help",
        ],
    ),
];

const INTRODUCTION: &str = "\
# Commands

<!-- Generated from the declarations of the commands; GLOVEBOX_TEST_BLESS=1 cargo test --package glovebox reference -->

What `glovebox help COMMAND` says, in one place. `run`, `start`, `agent`, `mcp`, `serve` and `config explain` also take the
flags of [settings](configuration.md) that say what a sandbox is like. With `--json` a command prints [one object](json.md).
`.` as a sandbox is the one of the project you are in. `glovebox --version` names version and commit, `-h` and `--help` are
short and long help of every command. Every command takes

";

/// Lists the commands that can be typed, by their words after `glovebox`.
fn commands(command: &Command, words: &str, found: &mut Vec<(String, Command)>) {
    let mut has_below = false;
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        if below.get_name() == "help" && !words.is_empty() {
            continue;
        }
        has_below = true;
        let name = format!("{words} {}", below.get_name());
        commands(below, name.trim_start(), found);
    }
    let is_typed_alone = !has_below || !command.is_subcommand_required_set();
    if is_typed_alone && !words.is_empty() {
        found.push((words.to_owned(), command.clone()));
    }
}

fn longs(command: &Command) -> BTreeSet<String> {
    let long = |arg: &Arg| arg.get_long().map(str::to_owned);
    command.get_arguments().filter_map(long).collect()
}

fn flag_row(arg: &Arg) -> Option<String> {
    if arg.is_positional() || arg.is_hide_set() {
        return None;
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // In the form of help: `-e, --env <NAME[=VALUE]>`.
    let shown = arg.to_string();
    let short = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(_)) => format!("-{short}, "),
        _ => String::new(),
    };
    Some(format!(
        "| `{short}{}` | {} |\n",
        shown.trim_end_matches("..."),
        help.replace('|', "\\|")
    ))
}

fn table(args: impl IntoIterator<Item = String>) -> String {
    let rows: String = args.into_iter().collect();
    if rows.is_empty() {
        return rows;
    }
    format!("| flag | meaning |\n| --- | --- |\n{rows}\n")
}

fn reference() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut all = Vec::new();
    commands(&cli, "", &mut all);
    let is_global = |arg: &&Arg| arg.is_global_set();
    let mut text = INTRODUCTION.to_owned();
    text += &table(cli.get_arguments().filter(is_global).filter_map(flag_row));
    let of_settings = longs(&SandboxArgs::augment_args(Command::new("settings")));
    let mut written = 0;
    for (chapter, names) in CHAPTERS {
        let _ = write!(text, "## {chapter}\n\n");
        for name in *names {
            let (_, command) = all
                .iter()
                .find(|(found, _)| found == name)
                .unwrap_or_else(|| panic!("there is no command `{name}`"));
            written += 1;
            let own = longs(command);
            let takes_settings = of_settings.is_subset(&own);
            let is_own = |arg: &&Arg| {
                let long = arg.get_long().unwrap_or_default();
                let is_of_settings = takes_settings && of_settings.contains(long);
                !arg.is_global_set() && !is_of_settings && !matches!(long, "help" | "version")
            };
            let about = command.get_long_about().or_else(|| command.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let usage = command.clone().render_usage().to_string();
            let usage = usage.trim_start_matches("Usage: ").trim();
            let _ = write!(text, "### {name}\n\n`{usage}`\n\n{}\n\n", about.trim());
            text += &table(command.get_arguments().filter(is_own).filter_map(flag_row));
        }
    }
    let missing: Vec<&String> = all
        .iter()
        .map(|(name, _)| name)
        .filter(|name| {
            !CHAPTERS
                .iter()
                .any(|(_, names)| names.contains(&name.as_str()))
        })
        .collect();
    assert!(missing.is_empty(), "in no chapter: {missing:?}");
    assert_eq!(written, all.len(), "a command stands in two chapters");
    text.trim_end().to_owned() + "\n"
}

#[test]
fn the_reference_of_commands_is_what_is_declared() {
    glovebox_sandbox::backend::register(crate::standard_backends());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    if std::env::var_os("GLOVEBOX_TEST_BLESS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference(),
        "run this test with GLOVEBOX_TEST_BLESS=1 to write docs/reference/commands.md anew"
    );
}

#[test]
fn the_reference_of_settings_has_those_of_backends() {
    glovebox_sandbox::backend::register(crate::standard_backends());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let text = std::fs::read_to_string(path).unwrap();
    let options = Backend::all_options();
    assert!(options.len() >= 5);
    for option in options {
        let row = format!(
            "| `{}` | `{}` | `--{}` |",
            option.name, option.variable, option.flag
        );
        assert!(text.contains(&row), "{row}");
    }
}
