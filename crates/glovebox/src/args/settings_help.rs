//! Test that the help of flags agrees with the table of settings.

use super::Cli;
use clap::{Arg, Command, CommandFactory as _};
use glovebox_settings::{DefaultValue, Key, keys};

/// Returns the flag that a row names: a flag of the command before it, or of `run`.
fn flag_of(cli: &Command, named: &str) -> Arg {
    let (command, flag) = named.rsplit_once(' ').unwrap_or(("run", named));
    let command = cli
        .find_subcommand(command)
        .unwrap_or_else(|| panic!("there is no command `{command}`"));
    command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(flag))
        .cloned()
        .unwrap_or_else(|| panic!("`{}` has no --{flag}", command.get_name()))
}

/// Returns the default that the help of a flag names. None if it names none.
fn default_in_help(arg: &Arg) -> Option<String> {
    let help = arg.get_long_help().or_else(|| arg.get_help())?.to_string();
    // The text is wrapped in the source; compare it without the line breaks.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, default) = help.rsplit_once("[default: ")?;
    Some(default.trim_end_matches(']').to_owned())
}

/// Returns true if a flag takes the setting's value, so that its help must name the default.
fn takes_the_value(key: &Key, arg: &Arg) -> bool {
    arg.get_action().takes_values()
        && arg.get_long() != Some("sandbox")
        && arg.get_long() != Some("phase")
        && key.name != "toolset"
}

#[test]
fn every_flag_of_a_setting_is_there_and_names_its_default() {
    let cli = Cli::command();
    for key in keys() {
        for named in key.flags {
            let arg = flag_of(&cli, named);
            if !takes_the_value(key, &arg) {
                continue;
            }
            let said = default_in_help(&arg);
            match key.default {
                DefaultValue::Text(text) | DefaultValue::Plain(text) => {
                    let said = said.unwrap_or_default();
                    let first = said.split([',', ';']).next().unwrap_or_default();
                    assert_eq!(first, text, "--{named}: the help says `{said}`");
                }
                DefaultValue::EmptyList => assert_eq!(said, None, "--{named}"),
                // Words are for people, in the help as in the reference.
                DefaultValue::Words(_) => {}
            }
        }
    }
}
