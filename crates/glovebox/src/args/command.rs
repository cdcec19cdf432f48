//! Flags of the commands themselves.

use super::{SandboxArgs, ServiceArgs};
use clap::{Args, ValueHint};
use clap_complete::Shell;
use glovebox_settings::units::Span;
use glovebox_settings::{EnvArg, one_of};
use std::ffi::OsString;
use std::path::PathBuf;

/// Run one command in a sandbox of its own
#[derive(Debug, Args)]
#[command(
    long_about = "Run one command in a sandbox of its own.\n\n\
        The git repository you are in, or the directory you are in where there is none, appears inside as \
        /workspace, and the command starts where you are. It reads and writes there freely; \
        your files stay as they are until you take the changes over: on a terminal you are asked when it \
        has ended, --apply auto and --sync-on-success take them without asking, --patch writes them to a \
        file. Where nobody is asked and nothing was said, changes are parked for a day, with a line that \
        says how to take them; --apply discard drops them. Standard input, output and error are the \
        command's own; so is the exit code. A failure of glovebox itself exits \
        125, a timeout 124, a change that conflicts with your own 3 if the command succeeded.",
    after_help = "Examples:\n  \
        glovebox run -- npm test\n  \
        glovebox run --memory 2GiB --timeout 10m -- cargo test --offline\n  \
        glovebox run --apply auto -- sed -i s/foo/bar/ src/main.c\n  \
        glovebox run --patch fix.patch -- ./agent.sh\n  \
        glovebox run -- bash\n  \
        glovebox run --keep try -- make\n  \
        cat data.csv | glovebox run -- python3 clean.py > clean.csv"
)]
pub(crate) struct RunArgs {
    /// Start the command in this directory inside [default: where you are, below /workspace]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Make all three streams a terminal; without it each that is a terminal here is one inside
    #[arg(short, long)]
    pub tty: bool,
    /// Give the command no terminal, only streams
    #[arg(long, conflicts_with = "tty")]
    pub no_tty: bool,
    /// Give the command this descriptor of yours, 3 or above; those that its arguments name as /dev/fd/N it has
    /// anyway. Can be given several times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub fd: Vec<i32>,
    /// Keep the sandbox under this name when the command has ended
    #[arg(long, value_name = "NAME")]
    pub keep: Option<String>,
    /// Take the changes over when the command has ended: ask, auto or discard [default: ask on a
    /// terminal, otherwise park them for a day]
    #[arg(long, value_name = "WHEN", value_parser = parse_apply, help_heading = "Workspace")]
    pub apply: Option<Apply>,
    /// Write the changes to this file, as a patch for `git apply`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Workspace")]
    pub patch: Option<PathBuf>,
    /// Take the changes over if the command succeeds
    #[arg(long, conflicts_with = "apply", help_heading = "Workspace")]
    pub sync_on_success: bool,
    /// Take over what the project's ignore rules cover as well, such as `target/`
    #[arg(long, help_heading = "Workspace")]
    pub ignored: bool,
    /// Print what would be done, step by step, and stop
    #[arg(long)]
    pub explain: bool,
    /// Print one JSON object when it has ended, with what it wrote
    #[arg(long, conflicts_with_all = ["tty", "explain"])]
    pub json: bool,
    /// Write the isolation report (JSON) to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
    /// Command and arguments; nothing is interpreted by a shell
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// What the sandbox is like.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// Start a named sandbox that stays
#[derive(Debug, Args)]
#[command(
    long_about = "Start a named sandbox that stays until it is killed.\n\n\
        If one of this name runs already with the same settings, it is used: `start` is safe to repeat. \
        With other settings it is an error that names them. Its files live on disk; its processes live as long as it runs.",
    after_help = "Examples:\n  \
        glovebox start work\n  \
        glovebox exec work -- npm ci\n  \
        glovebox attach work\n  \
        glovebox kill work"
)]
pub(crate) struct StartArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Its name: lower-case letters, digits, `-` and `_`
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What the sandbox is like.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// List sandboxes
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Run a command in a named sandbox
#[derive(Debug, Args)]
#[command(
    long_about = "Run a command in a named sandbox.\n\n\
        Flags of glovebox come before NAME or before `--`; everything after the command's first word \
        belongs to the command. On a terminal the command has one. Elsewhere its standard input is empty \
        unless --stdin is given, so a command that asks a question fails at once instead of hanging.",
    after_help = "Examples:\n  \
        glovebox exec work -- ls -la\n  \
        glovebox exec work npm test\n  \
        glovebox exec --stdin work -- tar x < files.tar\n  \
        glovebox exec --json --timeout 60s work -- make check"
)]
pub(crate) struct ExecArgs {
    /// Start the command in this directory inside [default: /workspace]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Give the command a variable: with a value, or with the one you have
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]", value_parser = super::sandbox::variable_parser())]
    pub env: Vec<EnvArg>,
    /// End the command after this time (exit code 124)
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Make all three streams a terminal; without it each that is a terminal here is one inside
    #[arg(short, long, conflicts_with = "json")]
    pub tty: bool,
    /// Give the command no terminal, only streams
    #[arg(long, conflicts_with = "tty")]
    pub no_tty: bool,
    /// Give the command this descriptor of yours, 3 or above; those that its arguments name as /dev/fd/N it has
    /// anyway. Can be given several times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub fd: Vec<i32>,
    /// Leave processes running that outlive the command
    #[arg(long)]
    pub keep_background: bool,
    /// Print one JSON object when it has ended
    #[arg(long)]
    pub json: bool,
    /// With --json: print output as JSON lines while it arrives
    #[arg(long, requires = "json")]
    pub stream: bool,
    /// The sandbox
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Command and arguments; nothing is interpreted by a shell
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Open a terminal in a named sandbox
#[derive(Debug, Args)]
#[command(
    long_about = "Open a terminal in a named sandbox, or follow one of its jobs.\n\n\
        Comes back to the youngest job with a terminal that nobody looks at, such as one of `exec` that was left \
        with Ctrl-\\, or else opens a shell.\n\n\
        Ctrl-\\ detaches and leaves what runs there running. The terminal is given back as it was: also \
        its screen, cursor, colours and mouse. Typed twice, Ctrl-\\ is one for the program.",
    after_help = "Examples:\n  glovebox attach work\n  glovebox attach work --job 3"
)]
pub(crate) struct AttachArgs {
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
    /// Follow this job instead of opening a shell
    #[arg(long, value_name = "JOB", value_parser = parse_job)]
    pub job: Option<u32>,
}

/// End sandboxes and remove what they hold
#[derive(Debug, Args)]
#[command(
    long_about = "End sandboxes and remove what they hold: processes, files, mounts.\n\n\
        Killing one that is already gone is no error. With --job only that job of one sandbox is ended, with \
        everything it started; `glovebox stop` ends what runs and keeps the files.",
    after_help = "Examples:\n  glovebox kill work\n  glovebox kill --all\n  glovebox kill work --job 3"
)]
pub(crate) struct KillArgs {
    /// Every sandbox
    #[arg(long, conflicts_with_all = ["names", "job"])]
    pub all: bool,
    /// Only this job of the sandbox, which stays (`glovebox logs NAME` lists jobs)
    #[arg(long, value_name = "JOB", value_parser = parse_job)]
    pub job: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandboxes
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub names: Vec<String>,
}

/// Show what the jobs of a sandbox wrote
#[derive(Debug, Args)]
#[command(long_about = "Show what the jobs of a sandbox wrote.\n\n\
        Without JOB, lists the jobs. On a terminal, colours are kept and whatever else could act on the \
        terminal is shown escaped, as `diff` does; into a file or a pipe, and with --raw, output is written \
        exactly, as far as it is kept.")]
pub(crate) struct LogsArgs {
    /// Keep printing until the job ends
    #[arg(short, long)]
    pub follow: bool,
    /// Only standard output
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Only standard error
    #[arg(long)]
    pub stderr: bool,
    /// Print JSON (lines when following)
    #[arg(long)]
    pub json: bool,
    /// Write to a terminal exactly what the job wrote, which the terminal then obeys
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
    /// Number of the job
    #[arg(value_name = "JOB", value_parser = parse_job)]
    pub job: Option<u32>,
}

/// Show what is known about a sandbox
#[derive(Debug, Args)]
#[command(
    long_about = "Show what is known about a sandbox: its walls, limits and jobs, facts only."
)]
pub(crate) struct InfoArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
}

/// Check what this machine can do, and find what was left behind
#[derive(Debug, Args)]
#[command(
    long_about = "Check everything the native sandbox needs by doing it, name what is missing and how to \
        get it, and find what dead sandboxes left behind."
)]
pub(crate) struct DoctorArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Remove what dead sandboxes left behind
    #[arg(long)]
    pub fix: bool,
}

/// See it work on a sample project, with nothing at stake
#[derive(Debug, Args)]
#[command(
    long_about = "See it work on a sample project, with nothing at stake.\n\n\
        Writes a tiny project with a bug to a temporary directory, lets an agent with recorded answers \
        fix it in a sandbox, shows the change and applies it to a copy; then lets a destructive command \
        loose in there, and shows that the files outside did not change. Needs no network and no key."
)]
pub(crate) struct DemoArgs {
    /// Use your own model (its key in the environment) instead of recorded answers
    #[arg(long)]
    pub live: bool,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  glovebox completions bash > ~/.local/share/bash-completion/completions/glovebox"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Own one named sandbox (started by `start`)
#[derive(Debug, Args)]
pub(crate) struct SuperviseArgs {
    /// The state directory
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// The sandbox
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Write the manual pages (used when packaging)
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where to write them
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Decision whether `run` applies changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apply {
    /// After a question to the user.
    Ask,
    /// In any case.
    Auto,
    /// Never: the changes are discarded with the sandbox.
    Discard,
}

pub(super) fn parse_apply(text: &str) -> Result<Apply, String> {
    match text {
        "ask" => Ok(Apply::Ask),
        "auto" => Ok(Apply::Auto),
        // The former name, for existing scripts.
        "discard" | "never" => Ok(Apply::Discard),
        _ => Err(format!(
            "`{text}` is not a way to take changes over; use {}",
            one_of(&["ask", "auto", "discard"])
        )),
    }
}

fn parse_job(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not the number of a job; `glovebox logs NAME` lists them")
    })
}
