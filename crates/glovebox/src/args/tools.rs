//! Arguments of `tools`, `call` and `why`.

use clap::Args;

/// List the tools an agent is given, or show one
#[derive(Debug, Args)]
#[command(
    long_about = "List the tools that work inside a sandbox and the toolsets there are, or show one tool with \
        all its arguments. `glovebox call` uses them, `glovebox mcp` lends them to an agent."
)]
pub(crate) struct ToolsArgs {
    /// Print names, descriptions and argument schemas as JSON
    #[arg(long)]
    pub json: bool,
    /// Show the tools of this toolset only
    #[arg(long, value_name = "TOOLSET")]
    pub toolset: Option<String>,
    /// Show only this one
    #[arg(value_name = "TOOL")]
    pub tool: Option<String>,
}

/// Use a tool in a sandbox
#[derive(Debug, Args)]
#[command(
    long_about = "Use a tool in a sandbox, as an agent would. Without --sandbox it has a sandbox of its own over \
        the project you are in; when something was changed there, or a command still runs, that sandbox stays \
        under the name that is printed. The exit code is 0 when the tool did what was asked for, 1 when it did \
        not (a command that failed, a text that is not there), 3 when the policy refused.",
    after_help = "Examples:\n  glovebox call Read '{\"path\":\"src/main.rs\"}'\n  \
        glovebox call Bash '{\"command\":\"make test\",\"wait_ms\":500}' --sandbox work\n  \
        echo '{\"pattern\":\"TODO\"}' | glovebox call Grep - --json"
)]
pub(crate) struct CallArgs {
    /// Use this sandbox, which must run
    #[arg(long, value_name = "NAME")]
    pub sandbox: Option<String>,
    /// Use no sandbox: no walls, the tool works on your own files at once
    #[arg(long, conflicts_with = "sandbox")]
    pub local: bool,
    /// Which tools may be used, and whether they may write [default: implement]
    #[arg(long, value_name = "TOOLSET")]
    pub toolset: Option<String>,
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

/// Explain why a call was made or refused
#[derive(Debug, Args)]
#[command(
    long_about = "Explain which rule let a call through or refused it, and where that rule was written. The \
        id of a call is in its result and in every refusal. Without one, the latest decisions are listed."
)]
pub(crate) struct WhyArgs {
    /// Print the decision as JSON
    #[arg(long)]
    pub json: bool,
    /// The call
    #[arg(value_name = "CALL_ID")]
    pub call: Option<String>,
}
