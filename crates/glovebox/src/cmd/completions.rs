//! `glovebox completions`: a completion script for a shell.
//!
//! The scripts of bash, zsh and fish call `glovebox __complete` at each completion, so that names
//! of sandboxes are current. The other shells' scripts are generated from the declarations, without
//! names.

use crate::args::{Cli, CompletionsArgs};
use crate::exit::CommandResult;
use crate::render;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

const BASH: &str = include_str!("completions/glovebox.bash");
const ZSH: &str = include_str!("completions/_glovebox");
const FISH: &str = include_str!("completions/glovebox.fish");

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs) -> CommandResult {
    match args.shell {
        Shell::Bash => render::print(BASH)?,
        Shell::Zsh => render::print(ZSH)?,
        Shell::Fish => render::print(FISH)?,
        shell => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible_commands(), "glovebox", &mut script);
            render::print(String::from_utf8_lossy(&script))?;
        }
    }
    Ok(0)
}

/// Returns the declarations without hidden commands, for generated scripts and pages.
pub(super) fn visible_commands() -> Command {
    let whole = Cli::command();
    let mut visible = Command::new("glovebox")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(whole.get_arguments().cloned())
        .subcommands(
            whole
                .get_subcommands()
                .filter(|command| !command.is_hide_set())
                .cloned(),
        );
    if let Some(about) = whole.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(about) = whole.get_long_about() {
        visible = visible.long_about(about.clone());
    }
    if let Some(help) = whole.get_after_help() {
        visible = visible.after_help(help.clone());
    }
    visible
}
