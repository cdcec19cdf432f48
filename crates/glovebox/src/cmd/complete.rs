//! `glovebox __complete`: candidates for the next word of a command line, for the completion
//! scripts.
//!
//! In: the words typed so far; the last one is being typed. Out: one line with what the shell
//! itself adds (`files`, `directories`, `commands` or `nothing`), then one candidate per line, with
//! a tab before its description. Commands and flags come from the declarations of the command line,
//! so only existing and visible ones are offered; names come from the state directory, which is
//! only read.

use super::Cx;
use crate::args::{Cli, CompleteArgs};
use crate::exit::CommandResult;
use crate::render;
use clap::{Arg, ArgAction, Command, CommandFactory, ValueHint};
use glovebox_sandbox::{Backend, Registry, SandboxState};
use glovebox_spec::LimitKind;
use std::fmt::Write as _;

/// Values of flags whose parsers are functions that cannot list them.
const FLAG_WORDS: &[(&str, &[&str])] = &[
    ("rootfs", &["host", "host-all", "dir:"]),
    ("net", &["none", "egress", "host"]),
    (
        "workspace",
        &["overlay", "read-only", "copy", "live", "none"],
    ),
    ("layers", &["disk", "memory"]),
    ("ids", &["auto", "single", "range"]),
    ("proc", &["masked", "pids", "none"]),
    ("require", &LimitKind::NAMES),
    ("apply", &["ask", "auto", "discard"]),
];

/// Candidates that the shell adds by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShellPart {
    Nothing,
    Files,
    Directories,
    Commands,
}

impl ShellPart {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Files => "files",
            Self::Directories => "directories",
            Self::Commands => "commands",
        }
    }
}

/// A word that could be typed here, and its description.
type Candidate = (String, String);

/// Prints the candidates.
pub(crate) fn run(cx: &Cx, args: &CompleteArgs) -> CommandResult {
    let words: Vec<String> = args
        .words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let (last, before) = words
        .split_last()
        .map_or(("", words.as_slice()), |(last, before)| {
            (last.as_str(), before)
        });
    let mut root = Cli::command();
    root.build();
    let registry = || existing_registry(cx);
    let (part, candidates) = complete(&root, before, last, &|kind, typed| {
        names(kind, typed, &registry)
    });
    let mut text = format!("{}\n", part.as_str());
    for (word, meaning) in candidates {
        let _ = writeln!(text, "{word}\t{meaning}");
    }
    render::print(text)?;
    Ok(0)
}

/// Opens the registry, or returns None if there is no state yet: a completion must not create
/// directories.
fn existing_registry(cx: &Cx) -> Option<Registry> {
    let settings = cx.settings(None).ok()?;
    let state_dir = cx.state_dir(&settings).ok()?;
    state_dir.join("sandboxes").is_dir().then_some(())?;
    cx.registry(&settings).ok()
}

/// Returns the names of existing objects, by the kind of value.
fn names(kind: &str, typed: &[String], registry: &dyn Fn() -> Option<Registry>) -> Vec<Candidate> {
    let sandboxes = |suffix: &str, is_wanted: fn(SandboxState) -> bool| {
        let entries = registry().and_then(|registry| registry.list().ok());
        entries
            .unwrap_or_default()
            .into_iter()
            .filter(|entry| is_wanted(entry.state))
            .map(|entry| (format!("{}{suffix}", entry.name), entry.state.to_string()))
            .collect()
    };
    match kind {
        "NAME" => sandboxes("", |_| true),
        "STOPPED" => sandboxes("", |state| {
            matches!(state, SandboxState::Stopped | SandboxState::Lost)
        }),
        "SRC" | "DST" => sandboxes(":", |state| state == SandboxState::Ready),
        "ID" => {
            let found = typed
                .first()
                .and_then(|name| super::name(name).ok())
                .and_then(|name| registry()?.checkpoints(&name).ok());
            found
                .map(|found| found.list)
                .unwrap_or_default()
                .into_iter()
                .map(|one| {
                    (
                        one.id,
                        render::escape_text(&one.comment.unwrap_or_default()),
                    )
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the candidates for `last` after the words `before`.
fn complete(
    root: &Command,
    before: &[String],
    last: &str,
    names: &dyn Fn(&str, &[String]) -> Vec<Candidate>,
) -> (ShellPart, Vec<Candidate>) {
    let mut command = root;
    let mut typed: Vec<String> = Vec::new();
    let mut wanting: Option<&Arg> = None;
    let mut is_verbatim = false;
    for word in before {
        // Some shells split `--flag=value` into three words.
        if word == "=" && wanting.is_some() {
            continue;
        }
        if wanting.take().is_some() {
            continue;
        }
        if is_verbatim || !word.starts_with('-') || word == "-" {
            let subcommand = command
                .find_subcommand(word)
                .filter(|_| typed.is_empty() && !is_verbatim);
            if let Some(found) = subcommand {
                command = found;
            } else {
                typed.push(word.clone());
                // Words after the command to run belong to that command.
                is_verbatim |=
                    positional(command, typed.len() - 1).is_some_and(Arg::is_trailing_var_arg_set);
            }
        } else if word == "--" {
            is_verbatim = true;
        } else if let Some(long) = word.strip_prefix("--") {
            wanting = (!long.contains('='))
                .then(|| flag(command, |arg| arg.get_long() == Some(long)))
                .flatten()
                .filter(|arg| takes_value(arg));
        } else {
            let letter = word.chars().next_back();
            wanting = flag(command, |arg| arg.get_short() == letter).filter(|arg| takes_value(arg));
        }
    }
    let value = last.strip_prefix('=').unwrap_or(last);
    if let Some(arg) = wanting {
        let (part, found) = values(command, arg, &typed, names);
        return (part, matching(found, value));
    }
    if !is_verbatim
        && let Some((long, value)) = last
            .strip_prefix("--")
            .and_then(|last| last.split_once('='))
    {
        let Some(arg) = flag(command, |arg| arg.get_long() == Some(long)) else {
            return (ShellPart::Nothing, Vec::new());
        };
        let found = matching(values(command, arg, &typed, names).1, value);
        let whole = |(word, meaning)| (format!("--{long}={word}"), meaning);
        return (ShellPart::Nothing, found.into_iter().map(whole).collect());
    }
    if !is_verbatim && last.starts_with('-') {
        let flags = command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .filter_map(|arg| Some((format!("--{}", arg.get_long()?), meaning(arg.get_help()))));
        return (ShellPart::Nothing, matching(flags.collect(), last));
    }
    let mut found: Vec<Candidate> = Vec::new();
    // `help` itself takes commands as arguments.
    let is_help = command.get_name() == "help";
    let parent = if is_help {
        typed
            .iter()
            .try_fold(root, |at, word| at.find_subcommand(word))
    } else {
        (typed.is_empty() && !is_verbatim).then_some(command)
    };
    for subcommand in parent.into_iter().flat_map(Command::get_subcommands) {
        if !subcommand.is_hide_set() {
            found.push((
                subcommand.get_name().to_owned(),
                meaning(subcommand.get_about()),
            ));
        }
    }
    let mut part = ShellPart::Nothing;
    if let Some(arg) = positional(command, typed.len()).filter(|_| !is_help) {
        let (own, more) = values(command, arg, &typed, names);
        part = own;
        found.extend(more);
    }
    (part, matching(found, last))
}

fn flag(command: &Command, is_it: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    command.get_arguments().find(|arg| is_it(arg))
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Returns the positional argument for the word with this index.
fn positional(command: &Command, index: usize) -> Option<&Arg> {
    let mut last = None;
    for (at, arg) in command.get_positionals().enumerate() {
        if at == index {
            return Some(arg);
        }
        last = Some(arg);
    }
    last.filter(|arg| matches!(arg.get_action(), ArgAction::Append))
}

/// Returns the candidates for the value of an argument.
fn values(
    command: &Command,
    arg: &Arg,
    typed: &[String],
    names: &dyn Fn(&str, &[String]) -> Vec<Candidate>,
) -> (ShellPart, Vec<Candidate>) {
    let long = arg.get_long().unwrap_or_default();
    if let Some((_, words)) = FLAG_WORDS.iter().find(|(name, _)| *name == long) {
        let words = words.iter().map(|word| ((*word).to_owned(), String::new()));
        return (ShellPart::Nothing, words.collect());
    }
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let words = possible
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| (value.get_name().to_owned(), meaning(value.get_help())));
        return (ShellPart::Nothing, words.collect());
    }
    let kind = arg
        .get_value_names()
        .and_then(|names| names.first())
        .map_or("", |name| name.as_str());
    if kind == "BACKEND" {
        let words = Backend::all()
            .iter()
            .map(|backend| (backend.as_str().to_owned(), backend.about().to_owned()));
        return (ShellPart::Nothing, words.collect());
    }
    let kind = match (command.get_name(), kind, long) {
        // A new name cannot be completed; the name of a stopped sandbox can be started again.
        ("start" | "rename", "NAME", "") => "STOPPED",
        (_, "NAME", long) if !long.is_empty() => "",
        (_, kind, _) => kind,
    };
    let part = match (arg.get_value_hint(), kind) {
        (ValueHint::CommandWithArguments, _) if typed.len() <= first_command_word(command) => {
            ShellPart::Commands
        }
        // The parser gives the hint `AnyPath` for directories too.
        (ValueHint::DirPath, _) | (_, "DIR") => ShellPart::Directories,
        (ValueHint::CommandWithArguments | ValueHint::FilePath | ValueHint::AnyPath, _)
        | (_, "FILE" | "PATH" | "PATH[:TARGET]" | "SRC" | "DST") => ShellPart::Files,
        _ => ShellPart::Nothing,
    };
    (part, names(kind, typed))
}

/// Returns the number of words before the command to run.
fn first_command_word(command: &Command) -> usize {
    command
        .get_positionals()
        .position(Arg::is_trailing_var_arg_set)
        .unwrap_or(0)
}

fn matching(candidates: Vec<Candidate>, typed: &str) -> Vec<Candidate> {
    let begins = |(word, _): &Candidate| word.starts_with(typed);
    candidates.into_iter().filter(begins).collect()
}

/// Returns the first line of a help text.
fn meaning(help: Option<&clap::builder::StyledStr>) -> String {
    let text = help.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn ask(line: &str) -> (ShellPart, Vec<String>) {
        let mut root = Cli::command();
        root.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().unwrap();
        let names = |kind: &str, typed: &[String]| match kind {
            "NAME" | "STOPPED" => vec![("work".to_owned(), String::new())],
            "ID" => vec![(format!("v1-of-{}", typed[0]), String::new())],
            "SRC" | "DST" => vec![("work:".to_owned(), String::new())],
            _ => Vec::new(),
        };
        let (part, found) = complete(&root, before, last, &names);
        (part, found.into_iter().map(|(word, _)| word).collect())
    }

    #[test]
    fn commands_flags_values_and_names_are_offered_where_they_may_stand() {
        for (line, part, words) in [
            (
                "chec",
                ShellPart::Nothing,
                &["checkpoint", "checkpoints"][..],
            ),
            ("-C /tmp attac", ShellPart::Nothing, &["attach"]),
            (
                "run --net ",
                ShellPart::Nothing,
                &["none", "egress", "host"],
            ),
            ("run --net=h", ShellPart::Nothing, &["--net=host"]),
            ("run --net = h", ShellPart::Nothing, &["host"]),
            ("run --no-too", ShellPart::Nothing, &["--no-toolchains"]),
            ("exec ", ShellPart::Nothing, &["work"]),
            ("exec work ", ShellPart::Commands, &[]),
            ("exec -i work -- ", ShellPart::Commands, &[]),
            ("exec work ls ", ShellPart::Files, &[]),
            ("run -- make --he", ShellPart::Files, &[]),
            ("start ", ShellPart::Nothing, &["work"]),
            ("run --keep ", ShellPart::Nothing, &[]),
            ("restore work ", ShellPart::Nothing, &["v1-of-work"]),
            ("kill work wo", ShellPart::Nothing, &["work"]),
            ("help config tru", ShellPart::Nothing, &["trust", "trusted"]),
            ("completions zs", ShellPart::Nothing, &["zsh"]),
            ("-C ", ShellPart::Directories, &[]),
            ("__", ShellPart::Nothing, &[]),
        ] {
            assert_eq!(
                ask(line),
                (part, words.iter().map(|&word| word.to_owned()).collect()),
                "{line}"
            );
        }
        assert!(!ask("").1.iter().any(|word| word.starts_with('_')));
    }

    #[test]
    fn words_of_flags_are_those_their_parsers_take() {
        for (flag, words) in FLAG_WORDS {
            for word in *words {
                let word = if *word == "dir:" { "dir:/x" } else { word };
                let argv = ["glovebox", "run", &format!("--{flag}"), word, "--", "true"];
                assert!(Cli::try_parse_from(argv).is_ok(), "--{flag} {word}");
            }
        }
    }
}
