//! Flags of the commands that keep sandboxes in order.

use super::ServiceArgs;
use clap::{Args, Subcommand, ValueHint};
use glovebox_settings::units::Span;
use std::ffi::OsString;
use std::path::PathBuf;

/// End what runs in sandboxes and keep their files
#[derive(Debug, Args)]
#[command(
    long_about = "End what runs in sandboxes and keep their files: `glovebox start NAME` takes one up again where \
        it was, `diff`, `pull` and checkpoints work meanwhile.\n\n\
        Every job is asked to end (SIGTERM) and ended when --grace has passed. A sandbox whose files would go \
        with its processes is left running; `glovebox kill` ends it with all it holds.",
    after_help = "Examples:\n  glovebox stop work\n  glovebox stop --grace 30s work api\n  glovebox start work"
)]
pub(crate) struct StopArgs {
    /// Every sandbox that runs
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// How long jobs have to end by themselves [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<Span>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandboxes
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub names: Vec<String>,
}

/// Remove stopped and lost sandboxes, and what dead ones left
#[derive(Debug, Args)]
#[command(
    long_about = "Remove stopped and lost sandboxes with their files and checkpoints, and what dead ones left \
        behind. What runs stays.\n\n\
        On a terminal it shows what would go and asks; elsewhere it wants --yes. Changes in a sandbox that were \
        not pulled are gone with it.",
    after_help = "Examples:\n  glovebox prune\n  glovebox prune --older-than 7d --yes"
)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Only say what would go
    #[arg(long)]
    pub dry_run: bool,
    /// Only what has been stopped for longer than this
    #[arg(long, value_name = "TIME")]
    pub older_than: Option<Span>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Show what sandboxes take: processors, memory, processes, disk
#[derive(Debug, Args)]
#[command(
    long_about = "Show what sandboxes take: processors over half a second, memory with shared pages divided among \
        those who share them, processes, and files on disk. The guest of a sandbox counts as part of it.",
    after_help = "Examples:\n  glovebox stats\n  glovebox stats --watch work\n  glovebox stats --json"
)]
pub(crate) struct StatsArgs {
    /// Show it again every two seconds until interrupted
    #[arg(short, long)]
    pub watch: bool,
    /// Print the result as JSON (with --watch, one object per line)
    #[arg(long)]
    pub json: bool,
    /// Only these sandboxes [default: all that run]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// Copy files between this machine and a sandbox
#[derive(Debug, Args)]
#[command(
    long_about = "Copy a file or a directory between this machine and a running sandbox. One side is written \
        NAME:PATH; a relative PATH begins at /workspace, one with `~/` in the home there.\n\n\
        What is at the destination is replaced; a directory that is there gets the copy inside it, and `DIR/.` \
        copies what DIR holds. A file keeps its permissions, the files of a directory their executable bit. \
        Links are copied as links and never followed, and one that leads out of a directory stays in the \
        sandbox. Everything you name goes in, also files that the workspace hides.",
    after_help = "Examples:\n  \
        glovebox cp data.csv work:/tmp/data.csv\n  \
        glovebox cp ~/.claude/settings.json work:~/.claude/settings.json\n  \
        glovebox cp work:report.pdf .\n  \
        glovebox cp work:/workspace/dist ./dist\n  \
        glovebox cp fixtures/. work:tests/fixtures"
)]
pub(crate) struct CpArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// What to copy
    #[arg(value_name = "SRC")]
    pub source: OsString,
    /// Where to
    #[arg(value_name = "DST")]
    pub destination: OsString,
}

/// Give a stopped sandbox another name
#[derive(Debug, Args)]
#[command(
    long_about = "Give a stopped sandbox another name. Its files and checkpoints stay; one that runs is stopped \
        first with `glovebox stop`.",
    after_help = "Example:\n  glovebox rename work work-old"
)]
pub(crate) struct RenameArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Its new name
    #[arg(value_name = "NEW")]
    pub new: String,
}

/// List and remove package caches that sandboxes keep
#[derive(Debug, Args)]
#[command(
    long_about = "Package caches that sandboxes keep with --cache.\n\n\
        Inside, the caches of cargo, npm, pip, uv, go and maven show what you have in yours and can be written to; \
        your own are never written. What is written goes with the sandbox. With --cache it is there for the next \
        sandbox of the same project, and for no other, and so is what cargo builds in a `target` that git ignores. \
        Together they take at most 20 GiB; those of projects that were \
        unused for the longest time go first. Without an action, lists them.",
    after_help = "Examples:\n  \
        glovebox run --cache --net egress --allow crates -- cargo fetch\n  \
        glovebox cache\n  \
        glovebox cache prune ~/src/api\n  \
        glovebox cache prune --older-than 30d --yes",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct CacheArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: Option<CacheAction>,
    /// The list.
    #[command(flatten)]
    pub list: CacheListArgs,
}

/// Actions of `glovebox cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheAction {
    List(CacheListArgs),
    Prune(CachePruneArgs),
}

/// List kept package caches: project, size, when they were last used
#[derive(Debug, Args)]
pub(crate) struct CacheListArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Remove kept package caches
#[derive(Debug, Args)]
#[command(
    long_about = "Remove kept package caches. Programs fetch again what they need; your own caches are not touched.\n\n\
        On a terminal it shows what would go and asks; elsewhere it wants --yes. What a sandbox has now stays.",
    after_help = "Examples:\n  glovebox cache prune\n  glovebox cache prune --all --yes\n  glovebox cache prune --older-than 30d"
)]
pub(crate) struct CachePruneArgs {
    /// Those of every project
    #[arg(long, conflicts_with = "project")]
    pub all: bool,
    /// Only those that were not used for longer than this; of every project where none is named
    #[arg(long, value_name = "TIME")]
    pub older_than: Option<Span>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The project [default: the one you are in]
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub project: Option<PathBuf>,
}
