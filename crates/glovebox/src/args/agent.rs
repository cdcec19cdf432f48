//! Arguments of `agent`, `sessions`, `replay` and `init`.

use super::{Apply, SandboxArgs};
use clap::{Args, Subcommand, ValueHint};
use glovebox_agent::{ModelName, Price};
use glovebox_sandbox::Backend;
use glovebox_settings::units::{Count, Span};
use glovebox_settings::{AgentFlags, Dollars, parse_backend};
use std::path::PathBuf;

/// Give an agent a task
#[derive(Debug, Args)]
#[command(
    long_about = "Give an agent a task and watch it work.\n\n\
        The model thinks outside; its tools work in one place, chosen once and printed first. With \
        --sandbox they work in a sandbox on your project: the agent may do anything in there, you see \
        what it changed when it is done and take it over or not. Without, they work on your files, and \
        you are asked before each call that changes something.\n\n\
        The model is named with --model, or follows from ANTHROPIC_API_KEY, OPENAI_API_KEY, \
        GEMINI_API_KEY; ANTHROPIC_BASE_URL, OPENAI_BASE_URL and so on lead to another server, such as \
        one of your own. Keys stay outside the sandbox.\n\n\
        Exit codes: 0 the agent says it is done, 1 it failed, 2 wrong usage, 3 refused or in conflict \
        with your own changes, 4 the sandbox was lost, 5 a limit was reached, 130 interrupted.",
    after_help = "Examples:\n  \
        glovebox agent --sandbox \"make the tests pass\"\n  \
        glovebox agent --sandbox --apply auto --max-turns 30 \"update the changelog\"\n  \
        glovebox agent --local \"rename the function parse to read\"\n  \
        glovebox agent --sandbox --phase plan - < task.md\n  \
        glovebox agent --sandbox --workflow change \"add a flag for colours\"\n  \
        OPENAI_BASE_URL=http://localhost:8000 glovebox agent --sandbox --model openai/qwen3 \"...\""
)]
pub(crate) struct AgentArgs {
    /// Let the tools work in a sandbox: native, or another backend
    #[arg(
        long = "sandbox",
        value_name = "BACKEND",
        value_parser = parse_backend,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = Backend::NATIVE.as_str(),
        conflicts_with_all = ["local", "backend"]
    )]
    pub in_sandbox: Option<Backend>,
    /// Let the tools work on your files; you are asked before each change
    #[arg(long, conflicts_with_all = ["backend", "keep", "apply", "no_sync"])]
    pub local: bool,
    /// The model: PROVIDER/NAME, or replay:FILE for recorded answers
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    pub model: Option<String>,
    /// What kind of work: research, plan or review (nothing is changed), implement, or another toolset
    #[arg(long, value_name = "PHASE")]
    pub phase: Option<String>,
    /// Phases one after the other, as [[workflow]] in glovebox.toml defines them
    #[arg(long, value_name = "NAME", conflicts_with = "phase")]
    pub workflow: Option<String>,
    /// Do not ask before changes (without a sandbox)
    #[arg(long)]
    pub yes: bool,
    /// Take the changes over when the agent is done: ask, auto or discard [default: ask on a terminal;
    /// otherwise the sandbox is kept if something changed]
    #[arg(long, value_name = "WHEN", value_parser = super::command::parse_apply)]
    pub apply: Option<Apply>,
    /// Keep the sandbox under this name
    #[arg(long, value_name = "NAME")]
    pub keep: Option<String>,
    /// Do not show the project to the agent
    #[arg(long)]
    pub no_sync: bool,
    /// Give the agent this file to work with, without it being part of the project
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub context: Option<PathBuf>,
    /// Tell the model nothing of AGENTS.md and CLAUDE.md, neither the project's nor your own
    #[arg(long)]
    pub no_instructions: bool,
    /// Say what would be synced, started and allowed, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print events as JSON lines
    #[arg(long)]
    pub json: bool,
    /// What is to be done; `-` reads it from standard input
    #[arg(value_name = "TASK")]
    pub task: String,
    /// How far it may go.
    #[command(flatten)]
    pub limits: AgentLimitArgs,
    /// What the sandbox is like.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// How far an agent may go.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Agent limits")]
pub(crate) struct AgentLimitArgs {
    /// Tokens the model can be told at once: when they are nearly used up, a summary stands for what is old
    /// [default: by its server, or by the model; 200000 for one that is not known]
    #[arg(long, value_name = "N", value_parser = glovebox_settings::window)]
    pub window: Option<Count>,
    /// Times the model is asked [default: 100]
    #[arg(long, value_name = "N")]
    pub max_turns: Option<Count>,
    /// Wall time [default: 1h]
    #[arg(long, value_name = "TIME")]
    pub max_time: Option<Span>,
    /// Tokens sent and received [default: 5000000]
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<Count>,
    /// US dollars; needs a model whose price is known, or --price [default: none]
    #[arg(long, value_name = "DOLLARS")]
    pub max_cost: Option<Dollars>,
    /// US dollars for a million tokens sent and received, such as 3/15, and read from and written to a cache,
    /// such as 3/15/0.3/3.75 [default: by the model]
    #[arg(long, value_name = "IN/OUT", value_parser = Price::parse)]
    pub price: Option<Price>,
}

impl AgentLimitArgs {
    /// Returns the settings that these flags set, with the model.
    pub(crate) fn to_flags(&self, model: Option<&str>) -> AgentFlags {
        AgentFlags {
            model: model.map(str::to_owned),
            window: self.window,
            max_turns: self.max_turns,
            max_time: self.max_time,
            max_tokens: self.max_tokens,
            max_cost: self.max_cost,
            price: self.price,
        }
    }
}

/// See and go on with what agents did
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: SessionsAction,
}

/// Actions of `glovebox sessions`.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsAction {
    List(SessionsListArgs),
    Show(SessionArgs),
    Export(SessionExportArgs),
    Resume(ResumeArgs),
    Fork(SessionForkArgs),
    Delete(SessionDeleteArgs),
}

/// List sessions, the newest first
#[derive(Debug, Args)]
pub(crate) struct SessionsListArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Show a session: its task, what was said and which tools were called
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The session, the beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub session: String,
}

/// Print the kept events of a session as JSON lines
#[derive(Debug, Args)]
#[command(
    long_about = "Print the kept events of a session as JSON lines, one event per line, on standard output.\n\n\
        What is printed can be played again with --model replay:FILE.",
    after_help = "Examples:\n  \
        glovebox sessions export last > fix.jsonl\n  \
        glovebox agent --sandbox --model replay:fix.jsonl TASK"
)]
pub(crate) struct SessionExportArgs {
    /// The session, the beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub session: String,
}

/// Go on with a session
#[derive(Debug, Args)]
#[command(
    long_about = "Go on with a session after its last event, in the sandbox it had.\n\n\
        A session that broke off goes on by itself; one that was done needs a further task. A sandbox \
        that was stopped or lost its supervisor is started again on the files it had.",
    after_help = "Examples:\n  glovebox sessions resume last\n  glovebox sessions resume last \"now the docs\""
)]
pub(crate) struct ResumeArgs {
    /// The model: PROVIDER/NAME, or replay:FILE [default: the one it had]
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    pub model: Option<String>,
    /// Do not ask before changes (without a sandbox)
    #[arg(long)]
    pub yes: bool,
    /// Take the changes over when the agent is done: ask, auto or discard
    #[arg(long, value_name = "WHEN", value_parser = super::command::parse_apply)]
    pub apply: Option<Apply>,
    /// Tell the model nothing of AGENTS.md and CLAUDE.md, neither the project's nor your own
    #[arg(long)]
    pub no_instructions: bool,
    /// Print events as JSON lines
    #[arg(long)]
    pub json: bool,
    /// The session, the beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub session: String,
    /// What is to be done further
    #[arg(value_name = "TASK")]
    pub task: Option<String>,
    /// How far it may go.
    #[command(flatten)]
    pub limits: AgentLimitArgs,
}

/// Copy a session, to go on from it in another way
#[derive(Debug, Args)]
#[command(long_about = "Copy a session, to go on from it in another way.\n\n\
        What was said and done is copied, the files are not: the copy goes on in a sandbox of its own, on the \
        project as it is then, and the model is told so. With --at, where files had been changed up to there, \
        that is refused unless --without-files says that it is meant.")]
pub(crate) struct SessionForkArgs {
    /// Only the events up to this number, as `sessions show` prints them
    #[arg(long, value_name = "EVENT")]
    pub at: Option<u64>,
    /// Go on without the files as they were at that event
    #[arg(long)]
    pub without_files: bool,
    /// The session, the beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub session: String,
}

/// Forget sessions, and end the sandboxes that were made for them
#[derive(Debug, Args)]
pub(crate) struct SessionDeleteArgs {
    /// The sessions
    #[arg(value_name = "SESSION", required = true)]
    pub sessions: Vec<String>,
}

/// Run a session again with its recorded answers, and compare
#[derive(Debug, Args)]
#[command(
    long_about = "Run a session again: the recorded answers, a fresh sandbox on the project as it is now, \
        no network and no model. The first tool call that comes to something else is reported, and the \
        exit code is then 1. Nothing is taken over."
)]
pub(crate) struct ReplayArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Play it on the files of this directory, rather than on those of the session's project
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// The session, the beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub session: String,
}

/// Write a glovebox.toml that fits the project
#[derive(Debug, Args)]
#[command(
    long_about = "Write a commented glovebox.toml that fits the project you are in. One that is there \
        already is left alone unless --force is given."
)]
pub(crate) struct InitArgs {
    /// Replace the one that is there
    #[arg(long)]
    pub force: bool,
    /// Print it instead of writing it
    #[arg(long)]
    pub print: bool,
}

fn parse_model(text: &str) -> Result<String, String> {
    match text.strip_prefix("replay:") {
        Some("") => Err("`replay:` names no file; write replay:FILE".to_owned()),
        Some(_) => Ok(text.to_owned()),
        None => ModelName::parse(text).map(|_| text.to_owned()),
    }
}
