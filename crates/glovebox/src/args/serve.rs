//! Arguments of `serve` and `token`.

use super::past_time::PastTime;
use super::{EngineArg, SandboxArgs};
use clap::{Args, Subcommand, ValueEnum};
use glovebox_runner::HostRule;
use glovebox_server::{AllowedOrigin, BasePath, PreviewDomain, Scope, TrustedProxy};
use glovebox_session::bundle::{AllowedModel, BundleKey};
use glovebox_settings::units::{Cpus, Size, Span};
use glovebox_settings::{LogFormat, LogLevel, SourceDir};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Reach of the hosts that users may open for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OpenedReach {
    /// The public internet
    Public,
}

/// Serve agents' sessions over HTTP, each in a sandbox of its own
#[derive(Debug, Args)]
#[command(
    long_about = "Serve agents' sessions over HTTP, each in a sandbox of its own: tasks are submitted, followed as \
        streams of events, reviewed and taken over by programs. Sessions and their sandboxes outlive the server: one \
        that is started again finds them. The administrator's token is $GLOVEBOX_SERVER_TOKEN, or made for this run \
        and printed; `glovebox token` makes tokens for others.",
    after_help = "Examples:\n  glovebox serve\n  glovebox serve --project . --model anthropic/claude-sonnet-4-5\n  \
        GLOVEBOX_SERVER_TOKEN=... glovebox serve --listen 0.0.0.0:8484 --allow-host example.com:8484"
)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8484")]
    pub listen: SocketAddr,
    /// A model that tasks may name, as PROVIDER/NAME; the first is the usual one
    #[arg(long, value_name = "PROVIDER/NAME")]
    pub model: Vec<String>,
    /// A model for agents of bundles, as they name it: gateway/gpt-4=openai/gpt-4o; those of --model need none
    #[arg(long, value_name = "NAME=PROVIDER/NAME")]
    pub allow_model: Vec<AllowedModel>,
    /// Whose bundles are accepted, as NAME=KEY with an Ed25519 public key in base64; each then needs a signature
    #[arg(long, value_name = "NAME=KEY")]
    pub bundle_key: Vec<BundleKey>,
    /// A host that bundles may be fetched from over HTTPS, in the words of --allow
    #[arg(long, value_name = "HOST")]
    pub bundle_host: Vec<String>,
    /// A host that tools of bundles may reach with `fetch`, in the words of --allow; with TOOL= for tools of that name
    /// only. Without it they have no network
    #[arg(long, value_name = "[TOOL=]HOST[:PORT]")]
    pub bundle_allow: Vec<HostRule>,
    /// Keep a host closed that --bundle-allow would open, for all tools or those of one name
    #[arg(long, value_name = "[TOOL=]HOST[:PORT]", requires = "bundle_allow")]
    pub bundle_deny: Vec<HostRule>,
    /// Certificates in PEM that are believed at both kinds of hosts besides the usual ones
    #[arg(long, value_name = "FILE")]
    pub bundle_ca: Option<PathBuf>,
    /// An engine that requests may name for tools of bundles; quickjs needs no leave
    #[arg(long, value_name = "ENGINE", value_enum)]
    pub bundle_engine: Vec<EngineArg>,
    /// The project that sessions work on; without it they begin with an empty workspace
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// A directory that tasks may name as their workspace, as NAME=DIR; NAME=DIR:ro takes no changes back
    #[arg(long, value_name = "NAME=DIR")]
    pub source: Vec<SourceDir>,
    /// Let the tools work on this machine itself, without walls
    #[arg(long)]
    pub unsafe_local: bool,
    /// Read the administrator's token from a file
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Another name the server may be called by, such as example.com:443
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,
    /// Origin whose pages may call the API with a token, such as `https://app.example.com`
    #[arg(long, value_name = "URL")]
    pub allow_origin: Vec<AllowedOrigin>,
    /// The path below which a proxy serves this server, such as /glovebox; the proxy sends requests with it
    #[arg(long, value_name = "PATH")]
    pub base_path: Option<BasePath>,
    /// Network of proxies that are believed about a client's address and TLS (X-Forwarded-For, X-Forwarded-Proto), such
    /// as 10.0.0.0/8
    #[arg(long, value_name = "CIDR")]
    pub trusted_proxy: Vec<TrustedProxy>,
    /// Hosts that users open for their own sessions by answering a question: `public` for names and addresses of the
    /// public internet [default: none, the administrator opens hosts]
    #[arg(long, value_name = "REACH")]
    pub users_open_hosts: Option<OpenedReach>,
    /// Below which name previews of programs in sandboxes are, such as previews.example.com [default: localhost, at the
    /// port of --listen]
    #[arg(long, value_name = "DOMAIN")]
    pub preview_domain: Option<PreviewDomain>,
    /// Speak TLS with this certificate, in PEM and with its chain
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Sessions that work at the same time [default: 32, or what `max_sandboxes` allows]
    #[arg(long, value_name = "N")]
    pub max_running: Option<u16>,
    /// The same of one user
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub max_running_per_user: u16,
    /// Sessions that wait for their turn
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_queued: u16,
    /// The same of one user
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_queued_per_user: u16,
    /// Sandboxes of one user that run when one more is started for single calls or an MCP client
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub max_sandboxes_per_user: u16,
    /// Memory of all sandboxes that run, by their limits, together; a session waits until its own fits [default: none]
    #[arg(long, value_name = "SIZE")]
    pub max_memory: Option<Size>,
    /// The same of one user [default: none]
    #[arg(long, value_name = "SIZE")]
    pub max_memory_per_user: Option<Size>,
    /// The same of CPU time per second, in processors [default: none]
    #[arg(long, value_name = "N")]
    pub max_cpus: Option<Cpus>,
    /// The same of one user [default: none]
    #[arg(long, value_name = "N")]
    pub max_cpus_per_user: Option<Cpus>,
    /// The same of disk, with what files of stopped sandboxes take [default: none]
    #[arg(long, value_name = "SIZE")]
    pub max_disk: Option<Size>,
    /// The same of one user [default: none]
    #[arg(long, value_name = "SIZE")]
    pub max_disk_per_user: Option<Size>,
    /// Sandboxes that are started ahead, each for one session that begins with an empty workspace
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub pool: u16,
    /// Requests of one user in a second, with bursts of twice as many; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_requests_per_second: u32,
    /// Bytes of one uploaded workspace, unpacked
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub max_upload_bytes: Size,
    /// Bytes of all uploaded workspaces of one user, with 4 KiB more for each entry
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub max_upload_bytes_per_user: Size,
    /// How long an uploaded workspace is kept that nobody uses
    #[arg(long, value_name = "TIME", default_value = "1d")]
    pub upload_ttl: Span,
    /// How long a sandbox that nobody uses goes on; then it stops, and keeps its files
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub idle: Span,
    /// How long a sandbox runs at a stretch; then its session's work ends, and it stops and keeps its files
    #[arg(long, value_name = "TIME", default_value = "1d")]
    pub session_ttl: Span,
    /// How long sessions may go on working when the server is asked to end
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub drain: Span,
    /// The form of the log on standard error: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// How much the log tells: error, warn, info or debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    /// The sandboxes of sessions.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// Print the audit log of `glovebox serve`
#[derive(Debug, Args)]
#[command(
    long_about = "Print the audit log of `glovebox serve`: who did what, when, and what was decided. One JSON object a \
        line, the oldest first; a server may run meanwhile. The guide to the server lists the fields.",
    after_help = "Examples:\n  glovebox audit --since 24h\n  glovebox audit --user ann --since 2026-11-01T00:00:00Z | jq .action"
)]
pub(crate) struct AuditArgs {
    /// Entries from this time on: 2026-11-28T12:00:00Z, or 24h for those of the last day
    #[arg(long, value_name = "TIME")]
    pub since: Option<PastTime>,
    /// Entries before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<PastTime>,
    /// Entries of one user
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

/// Tokens for users of `glovebox serve`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  glovebox token create ann --scope run --scope apply\n  glovebox token list\n  \
        glovebox token revoke ann"
)]
pub(crate) struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: TokenAction,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    Create(TokenCreateArgs),
    List(TokenListArgs),
    Revoke(TokenRevokeArgs),
}

/// Make a token for a user, and print it once
#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// The user
    #[arg(value_name = "USER")]
    pub name: String,
    /// What it is good for: read, run, apply or admin [default: run]
    #[arg(long, value_name = "SCOPE")]
    pub scope: Vec<Scope>,
    /// How long it holds; without it, until it is revoked
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Span>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

/// List the tokens, which are not shown themselves
#[derive(Debug, Args)]
pub(crate) struct TokenListArgs {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

/// Make tokens worthless, at once
#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArgs {
    /// The users
    #[arg(value_name = "USER", required = true)]
    pub names: Vec<String>,
}
