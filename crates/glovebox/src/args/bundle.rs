//! Arguments of `glovebox bundle`.

use clap::{Args, Subcommand, ValueEnum};
use glovebox_runner::{Engine, HostRule};
use glovebox_session::bundle::AllowedModel;
use glovebox_settings::units::Span;
use std::path::PathBuf;

/// Agents and tools that a JavaScript file declares
#[derive(Debug, Args)]
#[command(
    long_about = "Agents and tools that a JavaScript or TypeScript file declares.\n\n\
        What they are is read from the syntax of the file. Nothing of it is run for that: not its top level, not its \
        imports. The file is read in a process that can open no file, reach no network and start no program.",
    after_help = "Examples:\n  \
        glovebox bundle check agents.js\n  \
        glovebox bundle show agents.js --agent support --tool search\n  \
        glovebox bundle run agents.js --agent support --allow-model gateway/gpt-4=openai/gpt-4o \"say hello\""
)]
pub(crate) struct BundleArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: BundleAction,
}

/// Actions of `glovebox bundle`.
#[derive(Debug, Subcommand)]
pub(crate) enum BundleAction {
    Check(BundleCheckArgs),
    Dev(BundleDevArgs),
    Show(BundleShowArgs),
    Call(BundleCallArgs),
    Run(BundleRunArgs),
}

/// The file, and how it is read.
#[derive(Debug, Args)]
pub(crate) struct BundleFile {
    /// The bundle: JavaScript, or TypeScript where the name ends in `.ts`, `.mts` or `.cts`; a manifest of several where it
    /// ends in `.json`; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Refuse schemas that JSON Schema cannot say in full, such as `refine`, instead of warning of them
    #[arg(long)]
    pub strict_schema: bool,
    /// The bundle's source map, so that problems name the files it was made from; `auto` is the file beside the bundle
    /// that the bundle names. A map inside of the bundle counts without it
    #[arg(long, value_name = "FILE")]
    pub source_map: Option<PathBuf>,
    /// How it is found out what the bundle declares: from its syntax, or by running it in a sandbox
    #[arg(long, value_name = "WAY", value_enum, default_value_t)]
    pub extract: ExtractArg,
}

/// How it is found out what a bundle declares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExtractArg {
    /// Nothing of it runs
    #[default]
    Syntax,
    /// It is run, without files and network, and asked; its tools then run all of it
    Sandbox,
}

/// What runs the code of a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    /// In a process that can only compute
    #[default]
    Quickjs,
    /// In Node, where its modules, `Intl` and WebAssembly are
    Node,
}

impl EngineArg {
    /// Returns the runner's engine.
    pub(crate) const fn engine(self) -> Engine {
        match self {
            Self::Quickjs => Engine::Quickjs,
            Self::Node => Engine::Node,
        }
    }
}

/// Which hosts the code of a tool can reach.
#[derive(Debug, Args)]
pub(crate) struct BundleHosts {
    /// Let tools reach a host with `fetch`, `*.` and a name for all below it, or a preset such as npm. Ports 80 and 443
    /// without one; public addresses only, unless =private or =ADDRESS. With TOOL= it holds for tools of that name only.
    /// Without it they have no network
    #[arg(long, value_name = "[TOOL=]HOST[:PORT]")]
    pub allow: Vec<HostRule>,
    /// Keep a host closed that `--allow` would open, for all tools or those of one name
    #[arg(long, value_name = "[TOOL=]HOST[:PORT]", requires = "allow")]
    pub deny: Vec<HostRule>,
}

/// Say what is wrong with a bundle, all at once
#[derive(Debug, Args)]
#[command(
    long_about = "Say what is wrong with a bundle, all at once: each error with its code, the field, the place in \
        the file, the reason, and what to write instead. The exit code is 2 when there is an error, and 0 when there \
        are only warnings.",
    after_help = "Examples:\n  \
        glovebox bundle check agents.js\n  \
        glovebox bundle check src/agents.ts --strict-schema --json"
)]
pub(crate) struct BundleCheckArgs {
    /// The bundle.
    #[command(flatten)]
    pub bundle: BundleFile,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Check a bundle again each time its file is saved
#[derive(Debug, Args)]
#[command(
    long_about = "Check a bundle, and check it again each time its file is saved, until Ctrl-C: for the terminal beside \
        your editor. Give the file that a bundler writes and let the bundler watch too (`esbuild --watch`), or a single \
        TypeScript file as it is. With --json each check is one line.\n\n\
        It also serves a page at an address of this machine that it prints: the problems as of the last save, and the \
        tools of the bundle to try, each call alone in a sandbox. The address has a code in it; whoever has it can call the \
        tools until the command ends.",
    after_help = "Examples:\n  \
        glovebox bundle dev src/agents.ts\n  \
        glovebox bundle dev dist/agents.js --strict-schema"
)]
pub(crate) struct BundleDevArgs {
    /// The bundle.
    #[command(flatten)]
    pub bundle: BundleFile,
    /// What tools that are tried can reach.
    #[command(flatten)]
    pub hosts: BundleHosts,
    /// Port of the page on this machine; without it one that is free
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub port: u16,
    /// Print each check as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Show what a bundle declares, and the code a tool would run
#[derive(Debug, Args)]
#[command(
    long_about = "Show what a bundle declares: its agents with model, prompt and tools. With --tool also the schema of \
        the tool's input and the code that runs when it is called: its function and the declarations that the function \
        needs, nothing else of the file.",
    after_help = "Examples:\n  \
        glovebox bundle show agents.js\n  \
        glovebox bundle show agents.js --agent support\n  \
        glovebox bundle show agents.js --agent support --tool search --json"
)]
pub(crate) struct BundleShowArgs {
    /// The bundle.
    #[command(flatten)]
    pub bundle: BundleFile,
    /// Show this agent only, by its key in `agents`
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Show this tool, with its schema and code
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Call one tool of a bundle, once
#[derive(Debug, Args)]
#[command(
    long_about = "Call one tool of a bundle, once, as an agent of it would: the arguments are checked against the tool's \
        schema, its code runs alone in a sandbox without files and without network but for the hosts of --allow, and the \
        result is checked too. Nothing else of the file is run.",
    after_help = "Exit codes: 0 with a result; 1 the tool threw or its result does not fit; 2 the bundle or the arguments are \
        wrong; 4 no sandbox can be had; 5 a limit on memory, processor or output; 6 there is no such tool; 124 it took \
        too long.\n\nExamples:\n  \
        glovebox bundle call agents.js search '{\"query\":\"cats\"}'\n  \
        echo '{\"query\":\"cats\"}' | glovebox bundle call agents.js search - --agent support --json\n  \
        glovebox bundle call agents.js weather '{\"city\":\"Oslo\"}' --allow weather=api.example.com"
)]
pub(crate) struct BundleCallArgs {
    /// The bundle.
    #[command(flatten)]
    pub bundle: BundleFile,
    /// The tool, by its name
    #[arg(value_name = "TOOL")]
    pub tool: String,
    /// Its arguments, a JSON object; `-` reads them from standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    /// The agent that has the tool, by its key; not needed where one has it only
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// What runs the tool: quickjs, or the Node of this machine in a sandbox with its programs
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t)]
    pub engine: EngineArg,
    /// How long the call may take, at most 30s [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// What it can reach.
    #[command(flatten)]
    pub hosts: BundleHosts,
    /// Print the result as JSON, with log, time and memory
    #[arg(long)]
    pub json: bool,
}

/// Run an agent of a bundle, with the tools of the bundle and nothing else
#[derive(Debug, Args)]
#[command(
    long_about = "Run an agent of a bundle. Its configuration is read from the syntax tree without running the file; \
        only a tool that the model calls is run, alone, in a sandbox without files and without network but for the hosts \
        of --allow. The agent has the tools of its bundle and nothing else.",
    after_help = "Examples:\n  glovebox bundle run agents.js --agent assistant --allow-model gateway/gpt-4=openai/gpt-4o \
        \"say hello\"\n  glovebox bundle run agents.js --model anthropic/claude-sonnet-4-5 --json \"say hello\""
)]
pub(crate) struct BundleRunArgs {
    /// The bundle: a JavaScript file, or a manifest of several
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
    /// How it is found out what the bundle declares: from its syntax, or by running it in a sandbox
    #[arg(long, value_name = "WAY", value_enum, default_value_t)]
    pub extract: ExtractArg,
    /// A model that the agent may name: gateway/gpt-4=openai/gpt-4o
    #[arg(long, value_name = "NAME=PROVIDER/NAME", conflicts_with = "model")]
    pub allow_model: Vec<AllowedModel>,
    /// What runs the tools: quickjs, or the Node of this machine in a sandbox with its programs
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t)]
    pub engine: EngineArg,
    /// What they can reach.
    #[command(flatten)]
    pub hosts: BundleHosts,
    /// A session of the agent that goes on with INPUT
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Write each event as a line of JSON, and the outcome as the last one
    #[arg(long)]
    pub json: bool,
}
