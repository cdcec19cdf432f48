//! Flags of the commands about checkpoints.

use clap::{Args, Subcommand};

/// Keep the files of a sandbox as they are now, to go back to
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    long_about = "Keep the files of a named sandbox as they are now, to go back to or to fork from.\n\n\
        It takes the same few milliseconds however much there is, but the sandbox must be \
        idle. The logs of ended jobs stay. While jobs run, --live copies what was written since the last \
        checkpoint instead and lets them go on.",
    after_help = "Examples:\n  \
        glovebox checkpoint work --comment 'before the upgrade'\n  \
        glovebox checkpoint --live work\n  \
        glovebox checkpoints work\n  \
        glovebox restore work v1\n  \
        glovebox checkpoint delete work v1"
)]
pub(crate) struct CheckpointArgs {
    /// What can be done instead.
    #[command(subcommand)]
    pub action: Option<CheckpointAction>,
    /// Say what it is about
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Copy what was written, while everything inside is held still
    #[arg(long)]
    pub live: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
}

/// What can be done with a checkpoint besides making one.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointAction {
    Delete(CheckpointDeleteArgs),
}

/// A checkpoint of a sandbox, and how to answer.
#[derive(Debug, Args)]
pub(crate) struct OneCheckpoint {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
    /// The checkpoint
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Forget a checkpoint; the sandbox and its forks stay as they are
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct CheckpointDeleteArgs {
    /// Which one.
    #[command(flatten)]
    pub one: OneCheckpoint,
}

/// List the checkpoints of a sandbox
#[derive(Debug, Args)]
pub(crate) struct CheckpointsArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
}

/// Take a sandbox back to a checkpoint
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    long_about = "Take a sandbox back to a checkpoint.\n\n\
        What was written since is thrown away, and what runs inside is ended. Later checkpoints stay."
)]
pub(crate) struct RestoreArgs {
    /// Which one.
    #[command(flatten)]
    pub one: OneCheckpoint,
}

/// Start another sandbox with the files of one
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    long_about = "Start another sandbox with the files of one.\n\n\
        The two share what was written so far and go their own ways from there. Without --from, a \
        checkpoint of NAME is made first, as `glovebox checkpoint` does.",
    after_help = "Examples:\n  \
        glovebox fork work try-a\n  \
        glovebox fork --from v2 work try-b"
)]
pub(crate) struct ForkArgs {
    /// Begin with this checkpoint
    #[arg(long, value_name = "ID")]
    pub from: Option<String>,
    /// Make it, and leave it stopped
    #[arg(long)]
    pub no_start: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
    /// Name of the new one
    #[arg(value_name = "NEW")]
    pub new: String,
}
