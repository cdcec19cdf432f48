//! Flags of explanations and completions.

use clap::Args;
use std::ffi::OsString;

/// Explain a command with examples
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  glovebox help\n  glovebox help run\n  glovebox help config trust"
)]
pub(crate) struct HelpArgs {
    /// The command, and its subcommand where it has any
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Print what could follow on a command line (used by the completion scripts)
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// The words after `glovebox`; the last one is being typed
    #[arg(value_name = "WORD", last = true)]
    pub words: Vec<OsString>,
}
