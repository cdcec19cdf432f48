//! Values of command-line flags, or of the fields of a request. They take precedence over files and
//! variables.

use crate::units::{Count, Span};
use crate::{Carrier, Dollars, EnvArg, GrantArg};
use glovebox_agent::Price;
use glovebox_egress::Secret;
use glovebox_sandbox::{Backend, BackendOption, WorkspaceMode};
use glovebox_spec::{Ids, Layers, LimitKind, Net, ProcMode, RootFs};
use glovebox_workspace::GitHistory;
use std::path::PathBuf;

/// Flags about a sandbox. An absent value leaves the setting to the other sources.
#[derive(Debug, Clone, Default)]
pub struct SandboxFlags {
    /// Mechanism that isolates the sandbox.
    pub backend: Option<Backend>,
    /// Carrier command.
    pub carrier: Option<Carrier>,
    /// Directory for the guest on the other side of a carrier.
    pub guest_dir: Option<PathBuf>,
    /// Options of single backends.
    pub backend_options: Vec<(&'static BackendOption, String)>,
    /// Content of `/` in the sandbox.
    pub rootfs: Option<RootFs>,
    /// Network of the sandbox.
    pub net: Option<Net>,
    /// Hosts that the sandbox may reach.
    pub allow: Vec<String>,
    /// Exceptions from `allow`.
    pub deny: Vec<String>,
    /// Secrets that the egress proxy fills in.
    pub secrets: Vec<Secret>,
    /// Host paths to mount read-only.
    pub grants: Vec<GrantArg>,
    /// True to leave out the toolchains of the user's home.
    pub no_toolchains: bool,
    /// True to keep package caches for the next sandbox of the project.
    pub cache: bool,
    /// Access of the sandbox to the project.
    pub workspace: Option<WorkspaceMode>,
    /// Part of the repository's history that a copy on another machine gets.
    pub git: Option<GitHistory>,
    /// Patterns of files that are not sent to the sandbox.
    pub exclude: Vec<String>,
    /// Patterns of files that are sent although they are hidden by default.
    pub include: Vec<String>,
    /// Environment variables of commands.
    pub env: Vec<EnvArg>,
    /// Time limit for the start of a sandbox.
    pub start_timeout: Option<Span>,
    /// Limits with their values, each in its own unit; a value of `None` for no limit.
    pub limits: Vec<(LimitKind, Option<u64>)>,
    /// Deadline of commands.
    pub timeout: Option<Span>,
    /// Limits that must hold.
    pub require: Vec<LimitKind>,
    /// True if commands may create namespaces.
    pub nested: bool,
    /// Storage of written data.
    pub layers: Option<Layers>,
    /// User ids that exist inside.
    pub ids: Option<Ids>,
    /// Visible part of `/proc`.
    pub proc: Option<ProcMode>,
}

/// Flags about the agent.
#[derive(Debug, Clone, Default)]
pub struct AgentFlags {
    /// Model as `PROVIDER/NAME`.
    pub model: Option<String>,
    /// Context window of the model, in tokens.
    pub window: Option<Count>,
    /// Most requests to the model.
    pub max_turns: Option<Count>,
    /// Most wall-clock time.
    pub max_time: Option<Span>,
    /// Most tokens, sent and received together.
    pub max_tokens: Option<Count>,
    /// Most cost.
    pub max_cost: Option<Dollars>,
    /// Price of tokens.
    pub price: Option<Price>,
}
