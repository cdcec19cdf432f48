//! Flags of limits: one for each row of the settings' table that is a limit.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use glovebox_settings::{DefaultValue, Key, limit_keys, parse_limit_value};
use glovebox_spec::{LimitKind, LimitUnit};

/// Limits on the command line; an absent flag leaves the value to the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitArgs {
    /// Values in the limit's own unit. None: no limit.
    pub values: Vec<(LimitKind, Option<u64>)>,
}

/// Returns the limits that have a flag, with its name and its help.
fn flags() -> impl Iterator<Item = (LimitKind, &'static str, String)> {
    limit_keys().filter_map(|(kind, key)| Some((kind, *key.flags.first()?, help_of(key))))
}

/// Returns the meaning and the default of a key as help of a flag, without the marks of Markdown.
fn help_of(key: &Key) -> String {
    let default = match key.default {
        DefaultValue::Text(text) | DefaultValue::Plain(text) => text.to_owned(),
        DefaultValue::Words(words) => words.replace(['`', '"'], ""),
        DefaultValue::EmptyList => "none".to_owned(),
    };
    let mut letters = key.meaning.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    let meaning: String = first.into_iter().chain(letters).collect();
    format!("{} [default: {default}]", meaning.replace('`', ""))
}

impl Args for LimitArgs {
    fn augment_args(command: Command) -> Command {
        flags().fold(command, |command, (kind, flag, help)| {
            command.arg(
                Arg::new(flag)
                    .long(flag)
                    .value_name(match kind.unit() {
                        LimitUnit::Bytes | LimitUnit::BytesPerSecond => "SIZE",
                        LimitUnit::CpuMillis | LimitUnit::Count => "N",
                        LimitUnit::Milliseconds => "TIME",
                    })
                    .value_parser(move |text: &str| parse_limit_value(kind, text))
                    .help(help)
                    .help_heading("Limits"),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = flags().filter_map(|(kind, flag, _)| {
            let value = matches.get_one::<Option<u64>>(flag)?;
            Some((kind, *value))
        });
        self.values = given.collect();
        Ok(())
    }
}
