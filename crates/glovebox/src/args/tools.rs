//! Arguments of `tools` and `call`.

use clap::Args;

/// List the tools an agent is given, or show one
#[derive(Debug, Args)]
#[command(
    long_about = "List the tools that work inside a sandbox, or show one with all its arguments. `glovebox \
        call` uses them."
)]
pub(crate) struct ToolsArgs {
    /// Print names, descriptions and argument schemas as JSON
    #[arg(long)]
    pub json: bool,
    /// Show only this one
    #[arg(value_name = "TOOL")]
    pub tool: Option<String>,
}

/// Use a tool in a sandbox
#[derive(Debug, Args)]
#[command(
    long_about = "Use a tool in a sandbox, as an agent would. The exit code is 0 when it did what was asked \
        for, 1 when it did not (a command that failed, a text that is not there).",
    after_help = "Examples:\n  glovebox call Read '{\"path\":\"src/main.rs\"}' --sandbox work\n  \
        glovebox call Bash '{\"command\":\"make test\",\"wait_ms\":500}' --sandbox work\n  \
        echo '{\"pattern\":\"TODO\"}' | glovebox call Grep - --sandbox work --json"
)]
pub(crate) struct CallArgs {
    /// The sandbox
    #[arg(long, value_name = "NAME")]
    pub sandbox: String,
    /// Print the result as JSON: the text, and facts for programs
    #[arg(long)]
    pub json: bool,
    /// The tool, by its name or an alias
    #[arg(value_name = "TOOL")]
    pub tool: String,
    /// Its arguments as a JSON object; `-` reads them from standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    pub arguments: String,
}
