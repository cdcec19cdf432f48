//! Flags of the commands that bring files in and back.

use clap::{Args, ValueHint};
use glovebox_settings::parse_pattern;
use std::ffi::OsString;
use std::path::PathBuf;

/// Show what a sandbox changed
#[derive(Debug, Args)]
#[command(
    long_about = "Show what a sandbox changed in its workspace, as a patch of your files as they are now: \
        what you changed meanwhile is not in it. Where both sides changed the same lines, yours stays, \
        the sandbox's file is FILE.theirs in the patch, and the exit code is 3.\n\n\
        Running, stopped and lost sandboxes can be asked. On a terminal the patch is coloured and what \
        could act on the terminal is escaped; into a file or a pipe it is written exactly, for `git \
        apply`. What stays in the sandbox is listed on standard error with its reason.",
    after_help = "Examples:\n  \
        glovebox diff work\n  \
        glovebox diff work --stat\n  \
        glovebox diff work src/ > src.patch\n  \
        glovebox diff work --json"
)]
pub(crate) struct DiffArgs {
    /// Only count lines, file by file
    #[arg(long, conflicts_with_all = ["patch", "json"])]
    pub stat: bool,
    /// Write the patch (what is done without --stat and --json)
    #[arg(long, conflicts_with = "json")]
    pub patch: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Show what the project's ignore rules cover as well, such as `target/`
    #[arg(long)]
    pub ignored: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
    /// Only these files and directories, relative to where you are in the project
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
}

/// Bring a sandbox's changes back
#[derive(Debug, Args)]
#[command(
    long_about = "Bring a sandbox's changes back to the project it came from.\n\n\
        All of it or nothing: an interrupted or failed pull leaves your files as they were and the \
        sandbox as it is. What you changed meanwhile is compared three ways: changes of different \
        lines of one file are merged; where both sides changed the same lines, yours stays, the \
        sandbox's is put beside it as FILE.theirs, and the exit code is 3. Deletions, renames and the executable bit come along; owners, times and special modes do \
        not. Changes under .git, devices and links that lead out stay in the sandbox and are listed. \
        Files that your machine executes or obeys (CI, hooks, editor and agent settings) are pointed \
        out, and on a terminal asked about.",
    after_help = "Examples:\n  \
        glovebox pull work --dry-run\n  \
        glovebox pull work\n  \
        glovebox pull work --merge\n  \
        glovebox pull work --select\n  \
        glovebox pull work --exclude '*.log' --include dist/\n  \
        glovebox pull work --patch work.patch && git apply work.patch\n  \
        glovebox pull work --branch sandbox/work\n  \
        glovebox pull work --commits\n  \
        glovebox pull --undo\n  \
        glovebox pull work --from /workspace/dist --to ./dist\n  \
        glovebox pull work --from /tmp/report --to ."
)]
pub(crate) struct PullArgs {
    /// Directory or file inside whose changes come back; outside the workspace all of it does, and needs --to [default: /workspace]
    #[arg(long, value_name = "PATH", alias = "vm-path")]
    pub from: Option<PathBuf>,
    /// Directory they are applied to [default: the project the sandbox came from]
    #[arg(long, value_name = "DIR", alias = "destination", value_hint = ValueHint::DirPath)]
    pub to: Option<PathBuf>,
    /// Leave these files in the sandbox; a pattern as in .gitignore
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    pub exclude: Vec<String>,
    /// Take these files although they are excluded; a pattern as in .gitignore
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    pub include: Vec<String>,
    /// Take what the project's ignore rules cover as well, such as `target/`
    #[arg(long)]
    pub ignored: bool,
    /// Show what would be done, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Write the changes to this file, as a patch for `git apply`, and leave your files alone
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["branch", "force", "merge"])]
    pub patch: Option<PathBuf>,
    /// Commit the changes to a new git branch, and leave your files alone
    #[arg(long, value_name = "NAME", conflicts_with_all = ["force", "merge"])]
    pub branch: Option<String>,
    /// Take what was committed inside to this branch of your repository, which is made or moved forward,
    /// and leave your files alone [default: sandbox/NAME]
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["branch", "patch", "force", "merge", "select", "from", "to", "dry_run", "ignored", "exclude", "include"])]
    pub commits: Option<String>,
    /// With --commits: take other branches, tags, stashes and held commits too, each as a branch of its own
    #[arg(long, requires = "commits")]
    pub all: bool,
    /// Put back your files that an apply of the last day replaced or removed and that git does not have
    /// [default: those of the newest apply to the project you are in]
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["commits", "branch", "patch", "force", "merge", "select", "from", "to", "dry_run",
            "ignored", "exclude", "include", "name"])]
    pub undo: Option<String>,
    /// Where both sides changed the same lines, take the sandbox's file and keep yours as FILE.orig; do not ask
    #[arg(long)]
    pub force: bool,
    /// Where both sides changed the same lines, put both into the file, between markers as those of git
    #[arg(long, conflicts_with = "force")]
    pub merge: bool,
    /// Choose on the terminal which changes come back, hunk by hunk
    #[arg(short = 'p', long, conflicts_with_all = ["patch", "branch", "dry_run", "json"])]
    pub select: bool,
    /// Print the result as JSON, and progress as JSON lines on standard error
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
}

/// Bring the project into a sandbox again
#[derive(Debug, Args)]
#[command(
    long_about = "Bring the project into a sandbox again: only what differs from what is there.\n\n\
        A sandbox whose workspace is an overlay sees the project without a push, but programs that watch files \
        inside (vite, tsc -w, node --watch) get no event when you edit on this side. A push writes your changed \
        files inside once more, up to 8 MiB each, and removes those that you removed. Files that the sandbox has \
        changed stay and are named.",
    after_help = "Examples:\n  glovebox push work\n  glovebox push work src/app.ts"
)]
pub(crate) struct PushArgs {
    /// Keep these files out of the sandbox; a pattern as in .gitignore
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    pub exclude: Vec<String>,
    /// Send these files although they would be hidden, such as `.env`; a pattern as in .gitignore
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    pub include: Vec<String>,
    /// Print the result as JSON, and progress as JSON lines on standard error
    #[arg(long)]
    pub json: bool,
    /// The sandbox
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Push only changes at or below these paths; for an overlay, not for a copy
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
}

/// Finish applying what was staged (started by `pull`)
#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// The staging directory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// State directory whose other sandboxes are told
    #[arg(long, value_name = "STATE")]
    pub state: Option<PathBuf>,

    /// Sandbox whose changes these are
    #[arg(long, value_name = "NAME", requires = "state")]
    pub by: Option<String>,
}
