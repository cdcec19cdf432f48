//! Settings from every source, each value with its origin.
//!
//! Input: files, the user's environment as a value ([`Surroundings`]), flags. Output: [`Settings`],
//! or a [`SettingsError`]. The crate reads no environment variable of its process, prints nothing,
//! and knows no exit codes.
//!
//! Later sources win: defaults, the user's file, the project's file, `GLOVEBOX_*` variables, flags.
//! Files are strict: an unknown key is an error that names the nearest known key.
//!
//! The project's own file comes with the project and is untrusted. It may ask for less than the
//! user's settings give. A value that asks for more needs the user's consent to the content of the
//! file (`glovebox config trust`, or `--trust-config` for one run). Each key declares its rule
//! ([`Key::project`]); outside a native sandbox more keys need consent.

mod agent;
mod defaults;
mod error;
mod file;
mod flags;
mod keys;
mod limits;
mod machine;
mod policy;
mod project_env;
mod project_file;
mod project_rule;
#[cfg(test)]
mod project_tests;
mod raw;
mod resolve;
mod serve;
mod servers;
mod sources;
mod surroundings;
mod sync;
mod toolset_network;
pub mod trust;
pub mod units;
mod values;
mod workflow;

pub use agent::{Agent, Dollars, Mode, window};
pub use error::SettingsError;
pub use file::FILE_NAME as PROJECT_FILE_NAME;
pub use file::digest as file_digest;
pub use flags::{AgentFlags, SandboxFlags};
pub use keys::{DefaultValue, Key, keys, limit_flag, limit_keys};
pub use limits::{LimitSettings, limit_text, parse_limit_value};
pub use policy::Tools;
pub use project_file::{Consent, Demand, ProjectFile, Reach};
pub use project_rule::{Judge, ProjectRule};
pub use resolve::{Sources, resolve};
pub use serve::{LogFormat, LogLevel, Quota, Serve, ServeFlags};
pub use servers::{McpServer, McpTransport};
pub use sources::SourceDir;
pub use surroundings::Surroundings;
pub use sync::{Sync, texts};
pub use values::{
    Carrier, EnvArg, GrantArg, ids_word, layers_word, net_word, one_of, parse_backend, parse_git,
    parse_guest_dir, parse_ids, parse_layers, parse_limit, parse_net, parse_pattern, parse_proc,
    parse_reach, parse_rootfs, parse_start_timeout, parse_workspace, proc_word, split_words,
};
pub use workflow::{Phase, Workflow};

use crate::units::{Count, Span};
use glovebox_egress::Secret;
use glovebox_sandbox::{Backend, DEFAULT_START_MS, WorkspaceMode};
use glovebox_spec::{Ids, Layers, LimitKind, Net, ProcMode, RootFs};
use glovebox_workspace::GitHistory;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built-in default.
    Default,
    /// Configuration file of the user.
    UserFile(PathBuf),
    /// Configuration file of the project.
    ProjectFile(PathBuf),
    /// `GLOVEBOX_*` variable with this name.
    Variable(&'static str),
    /// Flag with this name, without `--`.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::UserFile(path) | Self::ProjectFile(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// Value with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcedValue<T> {
    /// Value.
    pub value: T,
    /// Source of the value.
    pub origin: Origin,
}

impl<T> SourcedValue<T> {
    const fn default(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }

    fn set(&mut self, value: T, origin: &Origin) {
        *self = Self {
            value,
            origin: origin.clone(),
        };
    }
}

/// All settings, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Mechanism that isolates the sandbox.
    pub backend: SourcedValue<Backend>,
    /// Words of the carrier command; empty for none.
    pub carrier: SourcedValue<Vec<String>>,
    /// Directory for the guest on the other side of a carrier; `None` to let the start find one
    /// there.
    pub guest_dir: SourcedValue<Option<PathBuf>>,
    /// Backends to choose from, in order of preference; at most one if there is no choice.
    pub backend_order: Vec<Backend>,
    /// Options of single backends, by option name.
    pub backend_options: BTreeMap<&'static str, SourcedValue<String>>,
    /// Content of `/` in the sandbox.
    pub rootfs: SourcedValue<RootFs>,
    /// Network of the sandbox.
    pub net: SourcedValue<Net>,
    /// Hosts that the sandbox may reach with network `egress`: rules and presets.
    pub allow: Vec<SourcedValue<String>>,
    /// Exceptions from `allow`.
    pub deny: Vec<SourcedValue<String>>,
    /// Secrets that the egress proxy fills in: their declarations, without values.
    pub secrets: Vec<SourcedValue<Secret>>,
    /// Time limit for the start of a sandbox; never unlimited.
    pub start_timeout: SourcedValue<Span>,
    /// Host paths to mount read-only.
    pub grants: Vec<SourcedValue<GrantArg>>,
    /// True to mount the toolchains of the user's home.
    pub toolchains: SourcedValue<bool>,
    /// True to keep package caches for the next sandbox of the project.
    pub cache: SourcedValue<bool>,
    /// Environment variables of commands.
    pub env: Vec<SourcedValue<EnvArg>>,
    /// Access of the sandbox to the project; `None` for the default of the backend.
    pub workspace: SourcedValue<Option<WorkspaceMode>>,
    /// Part of the repository's history that a copy on another machine gets.
    pub git: SourcedValue<GitHistory>,
    /// Files to send to the sandbox and to bring back.
    pub sync: Sync,
    /// Settings of the agent.
    pub agent: Agent,
    /// All limits except the deadline.
    pub limits: LimitSettings,
    /// Deadline; `None` if no source sets it, so that the command's own default applies.
    pub timeout: SourcedValue<Option<Span>>,
    /// Limits that must hold.
    pub require: Vec<SourcedValue<LimitKind>>,
    /// Storage of written data.
    pub layers: SourcedValue<Layers>,
    /// User ids that exist inside.
    pub ids: SourcedValue<Ids>,
    /// Visible part of `/proc`.
    pub proc: SourcedValue<ProcMode>,
    /// True if commands may create namespaces.
    pub nested: SourcedValue<bool>,
    /// Most sandboxes that may exist at once.
    pub max_sandboxes: SourcedValue<Count>,
    /// State directory; `None` for the default location.
    pub state: SourcedValue<Option<PathBuf>>,
    /// MCP servers whose tools an agent has.
    pub servers: Vec<SourcedValue<McpServer>>,
    /// User of a server to whom the caches of its sandboxes belong. Neither a file nor a flag sets
    /// it.
    pub cache_owner: Option<String>,
    /// Settings of the server that `serve` starts.
    pub serve: Serve,
    /// Directories that tasks of `serve` may name.
    pub sources: Vec<SourcedValue<SourceDir>>,
    /// Toolsets, and the rules of their use.
    pub tools: Tools,
    /// Workflows by name.
    pub workflows: Vec<SourcedValue<Workflow>>,
    /// The project's own file, with its demands for consent; `None` if there is none.
    pub project_file: Option<ProjectFile>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            backend: SourcedValue::default(Backend::NATIVE),
            carrier: SourcedValue::default(Vec::new()),
            guest_dir: SourcedValue::default(None),
            backend_order: Vec::new(),
            backend_options: BTreeMap::new(),
            rootfs: SourcedValue::default(RootFs::Host),
            net: SourcedValue::default(Net::None),
            allow: Vec::new(),
            deny: Vec::new(),
            secrets: Vec::new(),
            grants: Vec::new(),
            toolchains: SourcedValue::default(true),
            cache: SourcedValue::default(false),
            env: Vec::new(),
            workspace: SourcedValue::default(None),
            git: SourcedValue::default(GitHistory::Head),
            sync: Sync::default(),
            agent: Agent::default(),
            limits: LimitSettings::default(),
            start_timeout: SourcedValue::default(Span(Some(DEFAULT_START_MS))),
            timeout: SourcedValue::default(None),
            require: Vec::new(),
            layers: SourcedValue::default(Layers::Disk),
            ids: SourcedValue::default(Ids::Auto),
            proc: SourcedValue::default(ProcMode::Masked),
            nested: SourcedValue::default(false),
            max_sandboxes: SourcedValue::default(Count(Some(64))),
            state: SourcedValue::default(None),
            servers: Vec::new(),
            cache_owner: None,
            serve: Serve::default(),
            sources: Vec::new(),
            tools: Tools::default(),
            workflows: Vec::new(),
            project_file: None,
        }
    }
}

impl Settings {
    /// Applies flags, which override all other sources.
    pub fn lay_flags(&mut self, flags: &SandboxFlags) {
        fn lay<T: Clone>(setting: &mut SourcedValue<T>, flag: Option<&T>, name: &'static str) {
            if let Some(value) = flag {
                setting.set(value.clone(), &Origin::Flag(name));
            }
        }
        fn add<T: Clone>(list: &mut Vec<SourcedValue<T>>, flags: &[T], name: &'static str) {
            list.extend(flags.iter().map(|value| SourcedValue {
                value: value.clone(),
                origin: Origin::Flag(name),
            }));
        }
        lay(&mut self.backend, flags.backend.as_ref(), "backend");
        if flags.backend.is_some() {
            // A flag names one backend, which leaves no choice.
            self.backend_order.clear();
        }
        lay(
            &mut self.start_timeout,
            flags.start_timeout.as_ref(),
            "start-timeout",
        );
        lay(
            &mut self.guest_dir,
            flags.guest_dir.clone().map(Some).as_ref(),
            "guest-dir",
        );
        lay(&mut self.rootfs, flags.rootfs.as_ref(), "rootfs");
        lay(&mut self.net, flags.net.as_ref(), "net");
        for (kind, value) in &flags.limits {
            let flag = Origin::Flag(limit_flag(*kind));
            self.limits.set(*kind, *value, &flag);
        }
        lay(
            &mut self.timeout,
            flags.timeout.map(Some).as_ref(),
            "timeout",
        );
        lay(&mut self.layers, flags.layers.as_ref(), "layers");
        lay(&mut self.ids, flags.ids.as_ref(), "ids");
        lay(&mut self.proc, flags.proc.as_ref(), "proc");
        lay(
            &mut self.nested,
            flags.nested.then_some(true).as_ref(),
            "nested",
        );
        lay(
            &mut self.cache,
            flags.cache.then_some(true).as_ref(),
            "cache",
        );
        lay(
            &mut self.toolchains,
            flags.no_toolchains.then_some(false).as_ref(),
            "no-toolchains",
        );
        lay(
            &mut self.carrier,
            flags
                .carrier
                .as_ref()
                .map(|carrier| carrier.0.clone())
                .as_ref(),
            "carrier",
        );
        for (option, value) in &flags.backend_options {
            self.lay_option(option, value.clone(), &Origin::Flag(option.flag));
        }
        add(&mut self.allow, &flags.allow, "allow");
        add(&mut self.deny, &flags.deny, "deny");
        add(&mut self.secrets, &flags.secrets, "secret");
        add(&mut self.grants, &flags.grants, "grant");
        add(&mut self.env, &flags.env, "env");
        add(&mut self.require, &flags.require, "require");
        lay(
            &mut self.workspace,
            flags.workspace.map(Some).as_ref(),
            "workspace",
        );
        lay(&mut self.git, flags.git.as_ref(), "git");
        add(&mut self.sync.push_exclude, &flags.exclude, "exclude");
        add(&mut self.sync.push_include, &flags.include, "include");
    }

    /// Selects the first backend of the user's order that `can_start` accepts; the last one is
    /// selected without a check. Returns the first backend of the order if another one was
    /// selected, else `None`.
    pub fn choose_backend(&mut self, can_start: impl Fn(Backend) -> bool) -> Option<Backend> {
        let order = std::mem::take(&mut self.backend_order);
        let (&last, others) = order.split_last()?;
        let taken = others
            .iter()
            .copied()
            .find(|one| can_start(*one))
            .unwrap_or(last);
        self.backend.value = taken;
        order.first().copied().filter(|first| *first != taken)
    }

    /// Returns the access of the sandbox to the project that results from all settings.
    pub fn workspace_mode(&self) -> WorkspaceMode {
        let modes = self.backend.value.capabilities().workspace_modes;
        match self.workspace.value {
            Some(mode) => mode,
            None if !self.sync.enabled.value => WorkspaceMode::None,
            None => modes.first().copied().unwrap_or(WorkspaceMode::None),
        }
    }

    /// Returns true if the sandbox's files stay on this machine when it stops. Equals
    /// [`glovebox_sandbox::SandboxSpec::has_layers_on_disk`], for callers that have no spec yet.
    pub fn has_layers_on_disk(&self) -> bool {
        self.backend.value.has_layers() && self.layers.value == Layers::Disk
    }

    /// Returns true if the sandbox's files stay when it stops. Equals
    /// [`glovebox_sandbox::SandboxSpec::keeps_files`], for callers that have no spec yet.
    pub fn keeps_files(&self) -> bool {
        self.has_layers_on_disk() || self.backend.value.capabilities().keeps_files
    }

    /// Returns true if changes to the workspace can be collected from the sandbox.
    pub fn can_collect(&self) -> bool {
        match self.workspace_mode() {
            WorkspaceMode::Overlay | WorkspaceMode::Copy => true,
            WorkspaceMode::Live | WorkspaceMode::ReadOnly | WorkspaceMode::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_and_are_named_as_the_origin() {
        let mut settings = Settings::default();
        let flags = SandboxFlags {
            limits: vec![(LimitKind::Memory, None)],
            no_toolchains: true,
            ..SandboxFlags::default()
        };
        settings.lay_flags(&flags);
        assert_eq!(
            settings.limits.get(LimitKind::Memory),
            &SourcedValue {
                value: None,
                origin: Origin::Flag("memory")
            }
        );
        assert!(!settings.toolchains.value);
        assert_eq!(settings.limits.get(LimitKind::Cpu).origin, Origin::Default);
    }
}
