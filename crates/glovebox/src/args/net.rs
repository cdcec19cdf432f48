//! Arguments of `net`.

use clap::{Args, Subcommand};
use glovebox_settings::units::{Count, Size, Span};

/// See and change what sandboxes can reach
#[derive(Debug, Args)]
#[command(
    long_about = "See and change what sandboxes can reach.\n\n\
        A sandbox has no network. With --net egress it reaches the hosts that are listed with --allow, and no others: \
        their names have addresses inside, and connections to those are made outside, by glovebox, which looks the name \
        up, checks the address and that the program asks for no other name there.",
    after_help = "Examples:\n  \
        glovebox net presets\n  \
        glovebox run --net egress --allow npm -- npm install\n  \
        glovebox start --net egress --allow npm work\n  \
        glovebox net log work\n  \
        glovebox net allow work api.example.com --for 10m\n  \
        glovebox net limit work --bytes 200MiB\n  \
        glovebox net test work https://api.example.com/"
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
    Show(NetShowArgs),
    Log(NetLogArgs),
    Allow(NetAllowArgs),
    Limit(NetLimitArgs),
    Test(NetTestArgs),
}

impl NetAction {
    /// Returns the name of the command's sandbox, and true if the output is JSON. None for a
    /// command without a sandbox.
    pub(crate) const fn sandbox(&mut self) -> Option<(&mut String, bool)> {
        match self {
            Self::Presets(_) => None,
            Self::Show(args) => Some((&mut args.name, args.json)),
            Self::Log(args) => Some((&mut args.name, args.json)),
            Self::Allow(args) => Some((&mut args.name, args.json)),
            Self::Limit(args) => Some((&mut args.name, args.json)),
            Self::Test(args) => Some((&mut args.name, args.json)),
        }
    }
}

/// List the presets of --allow, with the hosts each stands for
#[derive(Debug, Args)]
pub(crate) struct NetPresetsArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// List the rules of a running sandbox, and how long each holds
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  glovebox net show work\n  glovebox net show work --json")]
pub(crate) struct NetShowArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
}

/// Show what a running sandbox asked for, and what was decided
#[derive(Debug, Args)]
#[command(
    long_about = "Show what a running sandbox asked for: which host, whether it was allowed or refused, by which rule, \
        what the connection carried, and why it could not be made. The newest is last; the latest 2000 are kept, as long \
        as the sandbox runs.",
    after_help = "Examples:\n  glovebox net log work\n  glovebox net log work --follow\n  glovebox net log work --json"
)]
pub(crate) struct NetLogArgs {
    /// Go on with what comes, until the sandbox ends
    #[arg(short, long)]
    pub follow: bool,
    /// Print the result as JSON (lines when following)
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
}

/// Let a running sandbox reach further hosts
#[derive(Debug, Args)]
#[command(
    long_about = "Let a running sandbox of --net egress reach further hosts, at once. They stay open until the sandbox \
        stops, or for as long as --for says; connections that are open then stay open. What --deny closes stays closed.",
    after_help = "Examples:\n  \
        glovebox net allow work api.example.com\n  \
        glovebox net allow work npm '*.example.com' --for 10m\n  \
        glovebox net allow work db.test:5432=192.0.2.1"
)]
pub(crate) struct NetAllowArgs {
    /// How long, such as 10m [default: until the sandbox stops]
    #[arg(long = "for", value_name = "TIME")]
    pub lifetime: Option<Span>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Hosts and presets, as --allow takes them
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<String>,
}

/// Show the limits of a running sandbox's network, and change them
#[derive(Debug, Args)]
#[command(
    long_about = "Show what a running sandbox of --net egress may carry and has carried, and change the limits, at once and \
        until the sandbox stops; a limit that is not named stays. A limit on bytes counts what was carried before too. \
        Connections that are open stay so when fewer are allowed.",
    after_help = "Examples:\n  \
        glovebox net limit work\n  \
        glovebox net limit work --bytes 200MiB --connections 16\n  \
        glovebox net limit work --rate none"
)]
pub(crate) struct NetLimitArgs {
    /// Bytes to and from the network together, such as 200MiB, or none
    #[arg(long, value_name = "SIZE")]
    pub bytes: Option<Size>,
    /// Connections at once, or none
    #[arg(long, value_name = "N")]
    pub connections: Option<Count>,
    /// Bytes per second to and from the network, such as 1MiB, or none
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<Size>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
}

/// Try whether a running sandbox would reach a host, and whether this machine does
#[derive(Debug, Args)]
#[command(
    long_about = "Say what would become of a connection of a running sandbox, by which rule, and where the name leads; \
        if it is allowed, connect there from this machine. Nothing is sent. The exit code is 0 when the host was reached, \
        and 1 when it was not.",
    after_help = "Examples:\n  \
        glovebox net test work https://registry.npmjs.org/left-pad\n  \
        glovebox net test work db.test:5432"
)]
pub(crate) struct NetTestArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in
    #[arg(value_name = "NAME")]
    pub name: String,
    /// A URL, or a host with or without a port (443 without)
    #[arg(value_name = "URL")]
    pub url: String,
}
