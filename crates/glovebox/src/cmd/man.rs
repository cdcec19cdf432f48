//! `glovebox __man`: manual pages, from the same declarations as the help.

use crate::args::{Cli, ManArgs};
use crate::exit::{CommandError, CommandResult};
use clap::CommandFactory;

/// Writes one page per command.
pub(crate) fn run(args: &ManArgs) -> CommandResult {
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(|error| {
        CommandError::io(
            format!("write manual pages to {}", args.dir.display()),
            &error,
        )
    })?;
    Ok(0)
}
