//! Flags that describe a sandbox, shared by all commands that start one.

use super::backend_options::BackendOptionArgs;
use super::limits::LimitArgs;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use glovebox_egress::Secret;
use glovebox_sandbox::{Backend, WorkspaceMode};
use glovebox_settings::units::Span;
use glovebox_settings::{
    Carrier, EnvArg, GrantArg, SandboxFlags, parse_backend, parse_git, parse_guest_dir, parse_ids,
    parse_layers, parse_limit, parse_net, parse_pattern, parse_proc, parse_reach, parse_rootfs,
    parse_start_timeout, parse_workspace,
};
use glovebox_spec::{Ids, Layers, LimitKind, Net, ProcMode, RootFs};
use glovebox_workspace::GitHistory;
use std::path::PathBuf;
use std::str::FromStr;

/// Returns the help of `--backend`, with the backends of this program.
fn backend_help() -> String {
    let words: Vec<String> = Backend::all()
        .iter()
        .map(|backend| format!("{} ({})", backend.as_str(), backend.about()))
        .collect();
    format!(
        "What stands behind the sandbox: {} [default: {}]",
        words.join(", "),
        Backend::NATIVE
    )
}

/// Flags that describe a sandbox. Absent flags leave the value to the configuration.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxArgs {
    #[arg(long, value_name = "BACKEND", value_parser = parse_backend, help = backend_help())]
    pub backend: Option<Backend>,
    /// With `--backend command`: the command whose stdin and stdout lead to the other side, such as
    /// `ssh box`; with `--backend sprites`: `websocket` or `cli`, the service's own program
    #[arg(long, value_name = "COMMAND", value_parser = Carrier::from_str)]
    pub carrier: Option<Carrier>,
    /// How long it may take to come up, such as 2m for a carrier that connects slowly [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_start_timeout)]
    pub start_timeout: Option<Span>,
    /// With `--backend command`: keep the guest in this directory on the other side, where the login's own lets no program
    /// run or has no room
    #[arg(long, value_name = "DIR", value_parser = parse_guest_dir)]
    pub guest_dir: Option<PathBuf>,
    #[command(flatten)]
    pub backend_options: BackendOptionArgs,
    /// What / shows inside: host (programs only), host-all (weaker) or dir:PATH [default: host]
    #[arg(long, value_name = "ROOTFS", value_parser = parse_rootfs)]
    pub rootfs: Option<RootFs>,
    /// Network: none, egress (listed hosts only) or host (all of it, no wall) [default: none]
    #[arg(long, value_name = "NET", value_parser = parse_net)]
    pub net: Option<Net>,
    /// With `--net egress`: let it reach a host, `*.` and a name for all below it, or a preset such as npm
    /// (`glovebox net presets`). Ports 80 and 443 without one; public addresses only, unless =private or =ADDRESS
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_reach)]
    pub allow: Vec<String>,
    /// With `--net egress`: keep a host closed that `--allow` would open
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_reach)]
    pub deny: Vec<String>,
    /// With `--net egress`: give commands a placeholder of a secret of yours. Its value is filled in outside, in headers
    /// of requests to these hosts (HOST,HOST) over TLS; FROM is env:VARIABLE or file:PATH
    #[arg(long = "secret", value_name = "NAME=FROM@HOST", value_parser = Secret::from_str)]
    pub secrets: Vec<Secret>,
    /// Show a host path inside, read-only
    #[arg(long = "grant", value_name = "PATH[:TARGET]", value_parser = GrantArg::from_str)]
    pub grants: Vec<GrantArg>,
    /// Leave out language toolchains found in your home
    #[arg(long)]
    pub no_toolchains: bool,
    /// Keep caches of package managers, and cargo's `target`, for the next sandbox of this project (`glovebox cache`)
    #[arg(long)]
    pub cache: bool,
    /// The project inside: overlay (changes stay in the sandbox), read-only, copy, live (no wall:
    /// changes are yours at once) or none [default: overlay; none with `--backend command`]
    #[arg(long, value_name = "MODE", value_parser = parse_workspace, help_heading = "Workspace")]
    pub workspace: Option<WorkspaceMode>,
    /// Of the repository, in a copy on another machine: head (the commit that is checked out,
    /// without history) or full (all local branches and tags) [default: head]
    #[arg(long, value_name = "HISTORY", value_parser = parse_git, help_heading = "Workspace")]
    pub git: Option<GitHistory>,
    /// Hide files of the project from the sandbox; a pattern as in .gitignore
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern, help_heading = "Workspace")]
    pub exclude: Vec<String>,
    /// Show files that would be hidden, such as `.env`; a pattern as in .gitignore
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern, help_heading = "Workspace")]
    pub include: Vec<String>,
    /// Give the command a variable: with a value, or with the one you have
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]", value_parser = variable_parser())]
    pub env: Vec<EnvArg>,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Time until it is ended [default: none]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub timeout: Option<Span>,
    /// Limits that must be enforced.
    #[arg(long, value_name = "LIMIT", value_delimiter = ',', value_parser = parse_limit, help_heading = "Limits")]
    #[arg(help = format!("Fail when this limit cannot be enforced here: {}", LimitKind::NAMES.join(", ")))]
    pub require: Vec<LimitKind>,
    /// Let commands make namespaces of their own, for programs that bring a sandbox along, such as
    /// bubblewrap, Codex or a browser. Weaker: much more of the kernel can be reached
    #[arg(long, help_heading = "Advanced")]
    pub nested: bool,
    /// Where written data lives: disk or memory [default: disk]
    #[arg(long, value_name = "WHERE", value_parser = parse_layers, help_heading = "Advanced")]
    pub layers: Option<Layers>,
    /// User ids inside: auto, single or range [default: auto]
    #[arg(long, value_name = "IDS", value_parser = parse_ids, help_heading = "Advanced")]
    pub ids: Option<Ids>,
    /// How much of /proc is shown: masked, pids or none [default: masked]
    #[arg(long, value_name = "MODE", value_parser = parse_proc, help_heading = "Advanced")]
    pub proc: Option<ProcMode>,
}

impl SandboxArgs {
    /// Returns the settings that these flags set.
    pub(crate) fn to_flags(&self) -> SandboxFlags {
        let Self {
            backend,
            carrier,
            start_timeout,
            guest_dir,
            backend_options,
            rootfs,
            net,
            allow,
            deny,
            secrets,
            grants,
            no_toolchains,
            cache,
            workspace,
            git,
            exclude,
            include,
            env,
            limits,
            timeout,
            require,
            nested,
            layers,
            ids,
            proc,
        } = self.clone();
        SandboxFlags {
            backend,
            carrier,
            start_timeout,
            guest_dir,
            backend_options: backend_options.given().to_vec(),
            rootfs,
            net,
            allow,
            deny,
            secrets,
            grants,
            no_toolchains,
            cache,
            workspace,
            git,
            exclude,
            include,
            env,
            limits: limits.values,
            timeout,
            require,
            nested,
            layers,
            ids,
            proc,
        }
    }
}

/// Reads variables, whose values need not be text.
pub(super) fn variable_parser() -> impl TypedValueParser<Value = EnvArg> {
    OsStringValueParser::new().try_map(|text| EnvArg::parse(&text))
}
