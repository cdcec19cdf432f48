//! Usage errors in our own form: one message, one hint, the right exit code.

use crate::exit::{self, CommandError};
use crate::render;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::json;
use std::ffi::{OsStr, OsString};

/// Prints an error of the parser and returns the exit code: 0 for help and version, 125 for `run`
/// or `exec` (their other codes belong to the command), else 2.
pub(crate) fn explain(error: &clap::Error, argv: &[OsString]) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe ends us with the code of SIGPIPE, as any tool.
            if error.print().is_err() {
                exit::BROKEN_PIPE
            } else {
                0
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            render::say(error.render().to_string().trim_end());
            2
        }
        _ => {
            let (message, hint) = sentences(error, verb(argv));
            let error = CommandError::usage(message, hint);
            // Flags were not parsed, so --quiet is unknown; errors are printed in any case.
            render::say(format_args!(
                "error: {}",
                render::escape_text(&error.fault.message)
            ));
            render::say(format_args!(
                "hint: {}",
                error
                    .fault
                    .remedy
                    .as_ref()
                    .map(render::in_flags)
                    .unwrap_or_default()
            ));
            if is_for_program(argv) {
                // The arguments were not understood, so the text above is printed as well.
                let _ = render::print(render::failure(&error, &json!({})));
            }
            if is_stand_in(verb(argv)) {
                error.stand_in_code()
            } else {
                error.exit_code()
            }
        }
    }
}

/// Returns true if `--json` was typed before any `--`, and so not for the command that `run` and
/// `exec` stand in for.
fn is_for_program(argv: &[OsString]) -> bool {
    let own = argv.iter().take_while(|word| *word != "--");
    own.into_iter().any(|word| word == "--json")
}

fn is_stand_in(verb: Option<&OsStr>) -> bool {
    verb.is_some_and(|verb| verb == "run" || verb == "exec")
}

/// Returns the command word: the first argument that is neither a global flag nor its value.
fn verb(argv: &[OsString]) -> Option<&OsStr> {
    let mut args = argv.iter().skip(1);
    while let Some(arg) = args.next() {
        if arg == "-C" || arg == "--config" {
            args.next();
        } else if !arg.as_encoded_bytes().starts_with(b"-") {
            return Some(arg);
        }
    }
    None
}

/// Translates an error of the parser into one message and one hint.
fn sentences(error: &clap::Error, verb: Option<&OsStr>) -> (String, String) {
    let verb = verb.and_then(OsStr::to_str).filter(|verb| is_command(verb));
    let context = |kind| error.get(kind).map(ToString::to_string);
    let help = || match verb {
        Some(verb) => format!("`glovebox {verb} --help` shows the flags and examples"),
        None => "`glovebox --help` shows the commands".to_owned(),
    };
    match (
        error.kind(),
        context(ContextKind::InvalidArg),
        context(ContextKind::InvalidValue),
    ) {
        // Our own value parsers return the message and, after a semicolon, the hint.
        (ErrorKind::ValueValidation, Some(arg), _) => {
            let said = std::error::Error::source(error)
                .map(ToString::to_string)
                .unwrap_or_default();
            let (wrong, right) = said
                .split_once("; ")
                .map_or((said.clone(), help()), |(wrong, right)| {
                    (wrong.to_owned(), right.to_owned())
                });
            (format!("{}: {wrong}", flag(&arg)), right)
        }
        (ErrorKind::InvalidValue, Some(arg), Some(value)) if !value.is_empty() => {
            let valid = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(words)) => words.iter().map(String::as_str).collect(),
                _ => Vec::new(),
            };
            (
                format!("{}: `{value}` is none of its values", flag(&arg)),
                format!("use {}", glovebox_settings::one_of(&valid)),
            )
        }
        (ErrorKind::UnknownArgument, Some(arg), _) => {
            let hint = match (context(ContextKind::SuggestedArg), verb) {
                (Some(known), _) => format!("did you mean `{}`?", flag(&known)),
                (None, Some(verb)) if is_stand_in(Some(OsStr::new(verb))) => format!(
                    "flags of the command come after its name or after `--`; `glovebox {verb} --help` shows ours"
                ),
                (None, _) => help(),
            };
            (format!("there is no argument `{arg}` here"), hint)
        }
        (ErrorKind::InvalidSubcommand, ..) => {
            let word = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            let hint = match error.get(ContextKind::SuggestedSubcommand) {
                Some(ContextValue::Strings(words)) => {
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    format!("did you mean {}?", glovebox_settings::one_of(&words))
                }
                _ => help(),
            };
            (format!("there is no command `{word}`"), hint)
        }
        (ErrorKind::MissingRequiredArgument, ..) => {
            let missing = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(words)) => words
                    .iter()
                    .map(|word| flag(word))
                    .collect::<Vec<_>>()
                    .join(", "),
                _ => "something".to_owned(),
            };
            (format!("{missing} is missing"), help())
        }
        _ => {
            // The first paragraph of the parser's own text.
            let rendered = error.render().to_string();
            let first = rendered
                .trim_start_matches("error: ")
                .lines()
                .map(str::trim)
                .take_while(|line| !line.is_empty());
            (first.collect::<Vec<_>>().join(" "), help())
        }
    }
}

/// Returns `--memory` for `--memory <SIZE>`, `NAME` for `<NAME>...`.
fn flag(arg: &str) -> String {
    let word = arg.split_whitespace().next().unwrap_or(arg);
    if word.starts_with('-') {
        word.to_owned()
    } else {
        word.trim_end_matches('.')
            .trim_matches(['<', '>', '[', ']'])
            .to_owned()
    }
}

fn is_command(word: &str) -> bool {
    use clap::CommandFactory;
    crate::args::Cli::command()
        .get_subcommands()
        .any(|command| {
            !command.is_hide_set()
                && (command.get_name() == word
                    || command.get_all_aliases().any(|alias| alias == word))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(Into::into).collect()
    }

    #[test]
    fn the_command_word_is_found_behind_global_flags() {
        for (line, want) in [
            ("glovebox run --x", Some("run")),
            ("glovebox -C run exec", Some("exec")),
            ("glovebox -q --config f -v list", Some("list")),
            ("glovebox --nonsense", None),
        ] {
            assert_eq!(verb(&words(line)), want.map(OsStr::new), "{line}");
        }
    }

    #[test]
    fn arguments_are_named_as_they_are_typed() {
        for (arg, want) in [
            ("--memory <SIZE>", "--memory"),
            ("<NAME>...", "NAME"),
            ("[NAME]", "NAME"),
            ("-x", "-x"),
        ] {
            assert_eq!(flag(arg), want);
        }
    }
}
