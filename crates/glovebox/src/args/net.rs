//! `glovebox net`.

use clap::{Args, Subcommand};

/// See what sandboxes can be allowed to reach
#[derive(Debug, Args)]
#[command(
    long_about = "What sandboxes can be allowed to reach.\n\n\
        A sandbox has no network. With --net egress it reaches the hosts that are listed with --allow, and no others: \
        their names have addresses inside, and connections to those are made outside, by glovebox, which looks the name \
        up, checks the address and that the program asks for no other name there.",
    after_help = "Examples:\n  \
        glovebox net presets\n  \
        glovebox run --net egress --allow npm -- npm install\n  \
        glovebox run --net egress --allow '*.example.com' --allow intranet.example:8443=private -- ./fetch"
)]
pub(crate) struct NetArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: NetAction,
}

/// Actions of `glovebox net`.
#[derive(Debug, Subcommand)]
pub(crate) enum NetAction {
    Presets(NetPresetsArgs),
}

/// List the presets of --allow, with the hosts each stands for
#[derive(Debug, Args)]
pub(crate) struct NetPresetsArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}
