//! `glovebox completions`: a completion script, from the same declarations as the help.

use crate::args::{Cli, CompletionsArgs};
use crate::exit::CommandResult;
use crate::render;
use clap::CommandFactory;

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "glovebox", &mut script);
    render::print(String::from_utf8_lossy(&script))?;
    Ok(0)
}
