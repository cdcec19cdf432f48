//! Backends by name, with their capabilities as data, so that other code asks for a capability and
//! not for a name.
//!
//! Three backends are built in. A program registers further ones at its start
//! ([`crate::backend::register`]). A state file cannot be read if it names a backend that the
//! program lacks.

use super::workspace_mode::WorkspaceMode;
use glovebox_spec::Net;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::OnceLock;

/// Mechanism that isolates a sandbox: native, host, a command that leads to another machine, or one
/// that the program has registered.
#[derive(Clone, Copy)]
pub struct Backend(&'static Declaration);

/// Name and abilities of a backend.
#[derive(Debug)]
pub struct Declaration {
    /// Name in flags, configuration, state files and reports: lower-case letters, digits and
    /// hyphens.
    pub name: &'static str,
    /// A few words for help and completion.
    pub about: &'static str,
    /// General settings that apply to this backend, among those that do not apply to all:
    /// `carrier`, `guest_dir`, `net` and so on.
    pub settings: &'static [&'static str],
    /// Settings among them that the backend requires.
    pub required: &'static [&'static str],
    /// Settings of this backend alone.
    pub options: &'static [BackendOption],
    /// Sources of its key or token. `None` if it needs none.
    pub credential: Option<CredentialSource>,
    /// Permission of a project's file to choose it.
    pub project_choice: ProjectChoice,
    /// Capabilities.
    pub capabilities: Capabilities,
}

/// A setting of a backend. Backends that declare the same name share it.
#[derive(Debug)]
pub struct BackendOption {
    /// Key in configuration files.
    pub name: &'static str,
    /// Flag, without its hyphens.
    pub flag: &'static str,
    /// Environment variable.
    pub variable: &'static str,
    /// Placeholder for its value in the help.
    pub value: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Description for the reference, in Markdown.
    pub meaning: &'static str,
    /// True if its value is a path of this machine.
    pub is_path: bool,
    /// Checks a value. The error is one sentence.
    pub check: fn(&str) -> Result<(), String>,
}

/// Sources of a key or token, which is never given by a flag or by a value of a configuration file.
#[derive(Debug)]
pub struct CredentialSource {
    /// Environment variables; the first that is set is used.
    pub variables: &'static [&'static str],
    /// Name of the option that names a file with the key or token.
    pub file_option: &'static str,
}

/// Permission of a project's file to choose a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectChoice {
    /// Allowed without asking, because no other backend has stronger walls.
    Free,
    /// Allowed after the user has agreed.
    WithConsent,
    /// Forbidden: the backend uses something of the user's that no project may decide about, such
    /// as an account.
    Never,
}

/// Capabilities of a backend.
#[derive(Debug, Serialize)]
pub struct Capabilities {
    /// Machine on which commands run.
    pub place: Place,
    /// Party that keeps up the walls around commands.
    pub walls: Walls,
    /// Location of the sandbox's files.
    pub files: Files,
    /// True if commands start in a directory of the sandbox that holds its copy of the project.
    pub has_own_dir: bool,
    /// Supported modes of the workspace; the first is the default.
    pub workspace_modes: &'static [WorkspaceMode],
    /// True if a sandbox's files stay at a service when its guest ends.
    pub keeps_files: bool,
    /// Place where checkpoints are kept.
    pub checkpoints: CheckpointStore,
    /// True if all sandboxes at one address share a machine and see each other.
    pub shares_machine: bool,
    /// True if all processes of a sandbox can be frozen.
    pub can_freeze: bool,
    /// Networks that can be requested; the first is the default. Empty if the backend does not
    /// control the network.
    pub networks: &'static [Net],
    /// True if commands may be allowed to create namespaces.
    pub can_nest: bool,
    /// True if a broken connection to the guest can be opened again.
    pub can_resume: bool,
    /// Sandboxes that a session may create for its own use.
    pub sub_sandboxes: SubSandboxes,
    /// True if a server can run sessions in such sandboxes.
    pub can_serve: bool,
    /// Resource that a start takes most of.
    pub start: StartCost,
    /// Default deadline for a start, in milliseconds.
    pub start_ms: u64,
}

/// Machine on which commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// This machine.
    Here,
    /// Another machine, or one that must be treated as another.
    Elsewhere,
}

/// Party that keeps up the walls around commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walls {
    /// The kernel of this machine, configured by Glovebox.
    Ours,
    /// A service, by its own statement.
    Theirs,
    /// None that Glovebox knows of.
    None,
}

/// Location of a sandbox's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// Layers on this machine, over the project.
    Layers,
    /// Copy that is transferred over the link.
    Copied,
    /// The project itself.
    InPlace,
}

/// Place where the checkpoints of a sandbox are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointStore {
    /// None can be made.
    None,
    /// This machine, as layers. They can be forked.
    Layers,
    /// The service that runs the machine. They cannot be forked.
    Service,
}

/// Sandboxes that a session may create for its own use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubSandboxes {
    /// With at most the permissions of the session.
    Narrowed,
    /// With exactly the permissions of the session.
    SameAsSession,
    /// None.
    None,
}

/// Resource that a start takes most of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartCost {
    /// Time of this machine's processors.
    Processor,
    /// Waiting for another machine.
    Waiting,
}

/// Name of the directory, in a sandbox's own directory, with the copy of the project. Used by
/// backends that keep the copy on this machine.
pub const COPY_DIR: &str = "tree";

/// Name of the option with the address of a service.
pub const BASE_URL_OPTION: &str = "base_url";
/// Part of an address that is replaced by the sandbox's name, so that each sandbox has its own
/// address.
pub const NAME_IN_URL: &str = "{name}";

/// Default deadline for a start, in milliseconds, unless the backend or the caller sets another.
pub const DEFAULT_START_MS: u64 = 30_000;

const ALL_MODES: &[WorkspaceMode] = &[
    WorkspaceMode::Overlay,
    WorkspaceMode::ReadOnly,
    WorkspaceMode::Copy,
    WorkspaceMode::Live,
    WorkspaceMode::None,
];

static NATIVE: Declaration = Declaration {
    name: "native",
    about: "walls of this machine's kernel",
    settings: &[],
    required: &[],
    options: &[],
    credential: None,
    project_choice: ProjectChoice::Free,
    capabilities: Capabilities {
        place: Place::Here,
        walls: Walls::Ours,
        files: Files::Layers,
        has_own_dir: false,
        workspace_modes: ALL_MODES,
        keeps_files: false,
        checkpoints: CheckpointStore::Layers,
        shares_machine: false,
        can_freeze: true,
        networks: &[Net::None, Net::Egress, Net::Host],
        can_nest: true,
        can_resume: false,
        sub_sandboxes: SubSandboxes::Narrowed,
        can_serve: true,
        start: StartCost::Processor,
        start_ms: DEFAULT_START_MS,
    },
};

static HOST: Declaration = Declaration {
    name: "host",
    about: "no isolation",
    settings: &[],
    required: &[],
    options: &[],
    credential: None,
    project_choice: ProjectChoice::WithConsent,
    capabilities: Capabilities {
        place: Place::Here,
        walls: Walls::None,
        files: Files::InPlace,
        has_own_dir: false,
        workspace_modes: &[WorkspaceMode::Live, WorkspaceMode::None],
        keeps_files: false,
        checkpoints: CheckpointStore::None,
        shares_machine: false,
        can_freeze: false,
        networks: &[],
        can_nest: false,
        can_resume: false,
        sub_sandboxes: SubSandboxes::None,
        can_serve: true,
        start: StartCost::Processor,
        start_ms: DEFAULT_START_MS,
    },
};

static COMMAND: Declaration = Declaration {
    name: "command",
    about: "wherever a command such as `ssh box` leads",
    settings: &["carrier", "guest_dir"],
    required: &["carrier"],
    options: &[],
    credential: None,
    project_choice: ProjectChoice::WithConsent,
    capabilities: Capabilities {
        place: Place::Elsewhere,
        walls: Walls::None,
        files: Files::Copied,
        has_own_dir: false,
        workspace_modes: &[WorkspaceMode::None, WorkspaceMode::Copy],
        keeps_files: false,
        checkpoints: CheckpointStore::None,
        shares_machine: false,
        can_freeze: false,
        networks: &[],
        can_nest: false,
        can_resume: false,
        sub_sandboxes: SubSandboxes::SameAsSession,
        can_serve: true,
        start: StartCost::Waiting,
        start_ms: DEFAULT_START_MS,
    },
};

static BUILT_IN: &[Backend] = &[Backend::NATIVE, Backend::HOST, Backend::COMMAND];
static ALL: OnceLock<Vec<Backend>> = OnceLock::new();

impl Backend {
    /// Namespaces, seccomp, Landlock and cgroups of this machine.
    pub const NATIVE: Self = Self(&NATIVE);
    /// An ordinary process of this machine: no walls at all.
    pub const HOST: Self = Self(&HOST);
    /// Guest at the other end of a command's standard input and output. The option `carrier` holds
    /// the words of the command. The last word must be a POSIX shell, or the command must run a
    /// given command (`ssh box`, `docker exec -i c`), and `sh` is appended.
    pub const COMMAND: Self = Self(&COMMAND);

    /// Creates a backend that another crate declares.
    pub const fn declared(declaration: &'static Declaration) -> Self {
        Self(declaration)
    }

    /// Returns the name in flags, configuration, state files and reports.
    pub const fn as_str(self) -> &'static str {
        self.0.name
    }

    /// Returns a few words for help and completion.
    pub const fn about(self) -> &'static str {
        self.0.about
    }

    /// Returns the capabilities.
    pub const fn capabilities(self) -> &'static Capabilities {
        &self.0.capabilities
    }

    /// Returns true if a general setting that does not apply to all backends applies to this one.
    pub fn takes(self, setting: &str) -> bool {
        self.0.settings.contains(&setting)
    }

    /// Returns true if the backend requires a general setting.
    pub fn requires(self, setting: &str) -> bool {
        self.0.required.contains(&setting)
    }

    /// Returns whether a project's file may choose the backend.
    pub const fn project_choice(self) -> ProjectChoice {
        self.0.project_choice
    }

    /// Returns the settings of this backend alone.
    pub const fn options(self) -> &'static [BackendOption] {
        self.0.options
    }

    /// Returns the sources of the key or token. `None` if the backend needs none.
    pub const fn credential(self) -> Option<&'static CredentialSource> {
        self.0.credential.as_ref()
    }

    /// Returns the settings of all backends of this program. A name that several share appears
    /// once.
    pub fn all_options() -> Vec<&'static BackendOption> {
        let mut found: Vec<&'static BackendOption> = Vec::new();
        for option in Self::all().iter().flat_map(|backend| backend.options()) {
            if !found.iter().any(|known| known.name == option.name) {
                found.push(option);
            }
        }
        found
    }

    /// Returns true if Glovebox isolates the commands with the kernel of this machine.
    pub fn is_walled_here(self) -> bool {
        self.capabilities().walls == Walls::Ours
    }

    /// Returns true if commands run on this machine without any walls.
    pub fn is_unwalled_here(self) -> bool {
        self.capabilities().walls == Walls::None && self.capabilities().place == Place::Here
    }

    /// Returns true if commands run on another machine.
    pub fn is_elsewhere(self) -> bool {
        self.capabilities().place == Place::Elsewhere
    }

    /// Returns true if a sandbox's files are layers on this machine.
    pub fn has_layers(self) -> bool {
        self.capabilities().files == Files::Layers
    }

    /// Returns true if a sandbox's copy of the project lies in the sandbox's own directory on this
    /// machine ([`COPY_DIR`]), where it outlives the guest.
    pub fn keeps_copy_here(self) -> bool {
        self.capabilities().files == Files::Copied && self.is_walled_here()
    }

    /// Returns every backend of this program, in the order of help and completion.
    pub fn all() -> &'static [Self] {
        ALL.get().map_or(BUILT_IN, Vec::as_slice)
    }

    /// Returns the backend of a name. `None` if the program has none of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all()
            .iter()
            .copied()
            .find(|backend| backend.as_str() == name)
    }

    /// Adds backends to the built-in ones. Only the first call has an effect.
    pub(crate) fn add(more: impl Iterator<Item = Self>) {
        let all = BUILT_IN.iter().copied().chain(more).collect();
        // A caller that came before this would have missed the added ones; programs register first.
        let _ = ALL.set(all);
    }
}

impl PartialEq for Backend {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Backend {}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Backend").field(&self.0.name).finish()
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Backend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Backend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "it needs the backend `{}`, which this program does not have",
                name.escape_debug()
            ))
        })
    }
}
