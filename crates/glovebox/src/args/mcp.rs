//! Arguments of `mcp`.

use super::SandboxArgs;
use clap::Args;
use glovebox_settings::units::Span;
use glovebox_tools::ToolPrefix;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Lend the tools to an agent, over the Model Context Protocol
#[derive(Debug, Args)]
#[command(
    long_about = "Lend the tools to an agent that speaks the Model Context Protocol, over standard input and \
        output, or over HTTP. Every client works in a sandbox of its own over the project; what it changes is \
        kept there under a name that the client is told, for `glovebox diff` and `glovebox pull`. Over standard \
        input and output the next client of the project goes on where the last one stopped.",
    after_help = "Examples:\n  claude mcp add glovebox -- glovebox mcp\n  \
        glovebox mcp --toolset review --net egress --allow npm\n  glovebox mcp --sandbox work\n  \
        GLOVEBOX_MCP_TOKEN=... glovebox mcp --http 127.0.0.1:8722"
)]
pub(crate) struct McpArgs {
    /// Use this sandbox, which must run, for all clients
    #[arg(long, value_name = "NAME")]
    pub sandbox: Option<String>,
    /// Which tools there are, and whether they may write [default: implement]
    #[arg(long, value_name = "TOOLSET")]
    pub toolset: Option<String>,
    /// A word before the names of the tools, for a host that adds none: up to 16 letters, digits, - and _
    #[arg(long, value_name = "WORD")]
    pub prefix: Option<ToolPrefix>,
    /// Longest that a call waits for a command, which then goes on as a job [default: 45s]
    #[arg(long, value_name = "TIME")]
    pub max_wait: Option<Span>,
    /// Begin with an empty change set, and leave what an earlier client of this project has changed
    #[arg(long, conflicts_with_all = ["sandbox", "http"])]
    pub fresh: bool,
    /// Serve many clients over HTTP at http://ADDR/mcp; port 0 takes a free one
    #[arg(long, value_name = "ADDR", help_heading = "HTTP")]
    pub http: Option<SocketAddr>,
    /// Read the token clients must show from a file; else it is $GLOVEBOX_MCP_TOKEN, or one made for this run
    #[arg(long, value_name = "FILE", requires = "http", help_heading = "HTTP")]
    pub token_file: Option<PathBuf>,
    /// Let every program of this machine in, without a token
    #[arg(
        long,
        requires = "http",
        conflicts_with = "token_file",
        help_heading = "HTTP"
    )]
    pub no_token: bool,
    /// Another name the server may be called by, such as example.com:443
    #[arg(long, value_name = "HOST", requires = "http", help_heading = "HTTP")]
    pub allow_host: Vec<String>,
    /// A web origin that may call the server, such as https://example.com:443
    #[arg(long, value_name = "ORIGIN", requires = "http", help_heading = "HTTP")]
    pub allow_origin: Vec<String>,
    /// Clients at the same time [default: 16]
    #[arg(long, value_name = "N", requires = "http", help_heading = "HTTP")]
    pub max_clients: Option<u16>,
    /// A client that says nothing for so long is gone [default: 30m]
    #[arg(long, value_name = "TIME", requires = "http", help_heading = "HTTP")]
    pub idle: Option<Span>,
    /// The sandbox of each client.
    #[command(flatten)]
    pub own: SandboxArgs,
}
