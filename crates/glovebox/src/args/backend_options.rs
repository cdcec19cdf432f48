//! Flags of the options that backends declare. They are known at run time only, so their declaration is by hand.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use glovebox_sandbox::Backend;

/// Words of options, by the name of the option.
#[derive(Debug, Clone, Default)]
pub(crate) struct BackendOptionArgs(Vec<(&'static str, Vec<String>)>);

impl BackendOptionArgs {
    /// The options that were given.
    pub(crate) fn given(&self) -> &[(&'static str, Vec<String>)] {
        &self.0
    }
}

impl FromArgMatches for BackendOptionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Self::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for option in Backend::all_options() {
            if let Ok(Some(words)) = matches.try_get_many::<String>(option.flag) {
                self.0.push((option.name, words.cloned().collect()));
            }
        }
        Ok(())
    }
}

impl Args for BackendOptionArgs {
    fn augment_args(mut command: Command) -> Command {
        for option in Backend::all_options() {
            let action = if option.is_list {
                ArgAction::Append
            } else {
                ArgAction::Set
            };
            let check = |text: &str| (option.check)(text).map(|()| text.to_owned());
            command = command.arg(
                Arg::new(option.flag)
                    .long(option.flag)
                    .value_name(option.value)
                    .help(option.help)
                    .action(action)
                    .value_parser(check)
                    .help_heading("Sandbox"),
            );
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
