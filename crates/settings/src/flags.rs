//! What flags of a command line, or the fields of a request, say about settings. They are laid on top of files and
//! variables.

use crate::units::{Count, Span};
use crate::{Carrier, Dollars, EnvArg, GrantArg};
use glovebox_agent::Price;
use glovebox_egress::Secret;
use glovebox_sandbox::{Backend, BackendOption, WorkspaceMode};
use glovebox_spec::{Ids, Layers, LimitKind, Net, ProcMode, RootFs};
use std::path::PathBuf;

/// What is said about a sandbox. What is absent is left to the other places.
#[derive(Debug, Clone, Default)]
pub struct SandboxFlags {
    /// What stands behind the sandbox.
    pub backend: Option<Backend>,
    /// The carrier command.
    pub carrier: Option<Carrier>,
    /// Where the guest is kept on the other side of a carrier.
    pub guest_dir: Option<PathBuf>,
    /// Settings of single backends.
    pub backend_options: Vec<(&'static BackendOption, String)>,
    /// What `/` shows inside.
    pub rootfs: Option<RootFs>,
    /// Network reach.
    pub net: Option<Net>,
    /// What may be reached.
    pub allow: Vec<String>,
    /// What of that stays closed.
    pub deny: Vec<String>,
    /// What is filled in on the way out.
    pub secrets: Vec<Secret>,
    /// Host paths shown read-only.
    pub grants: Vec<GrantArg>,
    /// Whether toolchains found in the home are left out.
    pub no_toolchains: bool,
    /// Whether package caches are kept for the next sandbox of the project.
    pub cache: bool,
    /// How the sandbox gets at the project.
    pub workspace: Option<WorkspaceMode>,
    /// Patterns of files that stay out.
    pub exclude: Vec<String>,
    /// Patterns of files that go in although they would be hidden.
    pub include: Vec<String>,
    /// Variables given to commands.
    pub env: Vec<EnvArg>,
    /// How long a sandbox may take to come up.
    pub start_timeout: Option<Span>,
    /// Values of limits, each in the unit that it counts.
    pub limits: Vec<(LimitKind, Option<u64>)>,
    /// Deadline.
    pub timeout: Option<Span>,
    /// Limits that must hold.
    pub require: Vec<LimitKind>,
    /// Whether commands may make namespaces.
    pub nested: bool,
    /// Where written data lives.
    pub layers: Option<Layers>,
    /// Which user ids exist inside.
    pub ids: Option<Ids>,
    /// How much of `/proc` is shown.
    pub proc: Option<ProcMode>,
}

/// What is said about an agent's limits.
#[derive(Debug, Clone, Default)]
pub struct AgentFlags {
    /// `PROVIDER/NAME`.
    pub model: Option<String>,
    /// Context window of the model, in tokens.
    pub window: Option<Count>,
    /// Times the model is asked.
    pub max_turns: Option<Count>,
    /// Wall time.
    pub max_time: Option<Span>,
    /// Tokens sent and received.
    pub max_tokens: Option<Count>,
    /// What may be spent.
    pub max_cost: Option<Dollars>,
    /// What tokens cost.
    pub price: Option<Price>,
}
