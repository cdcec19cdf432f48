//! `glovebox __man`: manual pages, generated from the declarations of the command line.

use super::completions::visible_commands;
use crate::args::ManArgs;
use crate::exit::{CommandError, CommandResult};

/// Writes one page per command.
pub(crate) fn run(args: &ManArgs) -> CommandResult {
    clap_mangen::generate_to(visible_commands(), &args.dir).map_err(|error| {
        CommandError::io(
            format!("write manual pages to {}", args.dir.display()),
            &error,
        )
    })?;
    Ok(0)
}
