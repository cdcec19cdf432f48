//! Arguments of `glovebox config`.

use super::SandboxArgs;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// Show the configuration, and trust projects
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// Actions of `glovebox config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    Explain(Box<ConfigExplainArgs>),
    /// Trust the project's `glovebox.toml` as it is now
    #[command(
        long_about = "Trust the project's `glovebox.toml` as it is now.\n\n\
            The file comes with the project. What it asks for beyond your own settings is refused until you \
            agree: on a terminal you are asked, everywhere else this command says yes. It prints what the file \
            asks for. Trust is for the directory and the content: when the file changes, it is asked for again.",
        after_help = "Examples:\n  glovebox config trust\n  glovebox config trust ~/src/mine"
    )]
    Trust(ProjectArgs),
    /// Trust the project's `glovebox.toml` no more
    Untrust(ProjectArgs),
    Trusted(TrustedArgs),
}

/// Print each value and where it came from
#[derive(Debug, Args)]
pub(crate) struct ConfigExplainArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// What the sandbox would be like.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// A project, by its directory
#[derive(Debug, Args)]
pub(crate) struct ProjectArgs {
    /// The project [default: the one you are in]
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub project: Option<PathBuf>,
}

/// List the project files you trust
#[derive(Debug, Args)]
pub(crate) struct TrustedArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}
