//! Flags of the options that backends declare. The options are known at run time only, so the flags
//! are declared without derive.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use glovebox_sandbox::{Backend, BackendOption};
use glovebox_settings::{SandboxFlags, parse_backend};

/// A service whose machines are asked about.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServiceArgs {
    /// Instead of what is on this machine: what the service of this backend holds
    #[arg(long, value_name = "BACKEND", value_parser = parse_backend)]
    pub backend: Option<Backend>,
    #[command(flatten)]
    options: BackendOptionArgs,
}

impl ServiceArgs {
    /// Returns true if the command is about a service instead of this machine.
    pub(crate) fn is_given(&self) -> bool {
        self.backend.is_some() || !self.options.given().is_empty()
    }

    /// Returns the settings that these flags set.
    pub(crate) fn to_flags(&self) -> SandboxFlags {
        SandboxFlags {
            backend: self.backend,
            backend_options: self.options.given().to_vec(),
            ..SandboxFlags::default()
        }
    }
}

/// Options on the command line, with their values.
#[derive(Debug, Clone, Default)]
pub(crate) struct BackendOptionArgs(Vec<(&'static BackendOption, String)>);

impl BackendOptionArgs {
    /// Returns the options on the command line.
    pub(crate) fn given(&self) -> &[(&'static BackendOption, String)] {
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
            let Ok(Some(values)) = matches.try_get_many::<String>(option.flag) else {
                continue;
            };
            let values: Vec<&str> = values.map(String::as_str).collect();
            let value = values.join(" ");
            if values.len() > 1 && (option.check)(&value).is_err() {
                let message = format!("--{} was given several times\n", option.flag);
                return Err(Error::raw(ErrorKind::ArgumentConflict, message));
            }
            self.0.push((option, value));
        }
        Ok(())
    }
}

impl Args for BackendOptionArgs {
    fn augment_args(mut command: Command) -> Command {
        for option in Backend::all_options() {
            let check = |text: &str| (option.check)(text).map(|()| text.to_owned());
            command = command.arg(
                Arg::new(option.flag)
                    .long(option.flag)
                    .value_name(option.value)
                    .help(option.help)
                    .value_parser(check)
                    // An option that accepts a list joins its values.
                    .action(ArgAction::Append)
                    .help_heading("Sandbox"),
            );
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
