//! Arguments of `bundle`.

use clap::{Args, Subcommand};
use glovebox_session::bundle::AllowedModel;
use std::path::PathBuf;

/// Agents and tools that a JavaScript file declares
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  glovebox bundle run agents.js --agent assistant --allow-model gateway/gpt-4=openai/gpt-4o \
        \"say hello\""
)]
pub(crate) struct BundleArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: BundleAction,
}

/// What to do with a bundle.
#[derive(Debug, Subcommand)]
pub(crate) enum BundleAction {
    Run(BundleRunArgs),
}

/// Run an agent of a bundle, with the tools of the bundle and nothing else
#[derive(Debug, Args)]
#[command(
    long_about = "Run an agent of a bundle. Its configuration is read from the syntax tree without running the file; \
        only a tool that the model calls is run, alone, in a sandbox without network and files. The agent has the \
        tools of its bundle and nothing else.",
    after_help = "Examples:\n  glovebox bundle run agents.js --agent assistant --allow-model gateway/gpt-4=openai/gpt-4o \
        \"say hello\"\n  glovebox bundle run agents.js --model anthropic/claude-sonnet-4-5 --json \"say hello\""
)]
pub(crate) struct BundleRunArgs {
    /// The bundle: a JavaScript file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What the agent is to do; `-` reads it from standard input
    #[arg(value_name = "INPUT")]
    pub input: String,
    /// The agent, by its key; not needed where the bundle has one only
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The model, as PROVIDER/NAME, whatever the agent names
    #[arg(long, value_name = "PROVIDER/NAME")]
    pub model: Option<String>,
    /// A model that the agent may name: gateway/gpt-4=openai/gpt-4o
    #[arg(long, value_name = "NAME=PROVIDER/NAME", conflicts_with = "model")]
    pub allow_model: Vec<AllowedModel>,
    /// A session of the agent that goes on with INPUT
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Write each event as a line of JSON, and the outcome as the last one
    #[arg(long)]
    pub json: bool,
}
