//! Backends by name, and what each can do: plain data that everybody asks instead of names.
//!
//! Three are built in. A program registers further ones at its start ([`crate::backend::register`]); a state
//! file that names a backend which the program does not have cannot be read.

use super::workspace_mode::WorkspaceMode;
use glovebox_spec::Net;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::OnceLock;

/// What stands behind a sandbox.
#[derive(Clone, Copy)]
pub struct Backend(&'static Declaration);

/// Name and abilities of a backend.
#[derive(Debug)]
pub struct Declaration {
    /// Word of flags, configuration, state files and reports: lower-case letters, digits and hyphens.
    pub name: &'static str,
    /// A few words for help and completion.
    pub about: &'static str,
    /// General settings that mean something to it, where not all do: `carrier`, `guest_dir`, `net` and so on.
    pub settings: &'static [&'static str],
    /// Those of them without which it cannot be used.
    pub required: &'static [&'static str],
    /// Settings of its own.
    pub options: &'static [BackendOption],
    /// Sources of its key or token, where it has one.
    pub credential: Option<CredentialSource>,
    /// Right of a project's file to choose it.
    pub project_choice: ProjectChoice,
    /// Its abilities.
    pub capabilities: Capabilities,
}

/// A setting of a backend. Backends that declare the same name share it.
#[derive(Debug)]
pub struct BackendOption {
    /// Key of configuration files.
    pub name: &'static str,
    /// Flag, without its hyphens.
    pub flag: &'static str,
    /// Variable.
    pub variable: &'static str,
    /// Word for its value in the help.
    pub value: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The same for the reference, in Markdown.
    pub meaning: &'static str,
    /// Whether its value is a path of this machine.
    pub is_path: bool,
    /// Refuses what is no value, in one sentence.
    pub check: fn(&str) -> Result<(), String>,
}

/// Sources of a key or token. It is never a flag and never a value of a file.
#[derive(Debug)]
pub struct CredentialSource {
    /// Variables; the first that is set counts.
    pub variables: &'static [&'static str],
    /// Option that names a file with it.
    pub file_option: &'static str,
}

/// Right of a project's file to choose a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectChoice {
    /// Without asking: no other backend has stronger walls.
    Free,
    /// Once the user has agreed to it.
    WithConsent,
    /// Never: the backend takes something of the user's that no project may decide about, such as an account.
    Never,
}

/// What a backend can do.
#[derive(Debug, Serialize)]
pub struct Capabilities {
    /// Machine on which commands run.
    pub place: Place,
    /// Holder of the walls around commands.
    pub walls: Walls,
    /// Place of the sandbox's files.
    pub files: Files,
    /// Whether commands start in a directory of the sandbox's own, which its copy of the project fills.
    pub has_own_dir: bool,
    /// Ways to the project; the first is the default.
    pub workspace_modes: &'static [WorkspaceMode],
    /// Whether the files of a sandbox stay where they are, not on this machine, when its guest ends.
    pub keeps_files: bool,
    /// Whether all sandboxes at one address share one machine, and see each other.
    pub shares_machine: bool,
    /// Whether all processes can be held still.
    pub can_freeze: bool,
    /// Networks that can be asked for; none where the network is as it is found. The first is the default.
    pub networks: &'static [Net],
    /// Whether commands may be let make namespaces.
    pub can_nest: bool,
    /// Whether a broken connection to the guest is opened again.
    pub can_resume: bool,
    /// Sandboxes that a session may make of its own.
    pub sub_sandboxes: SubSandboxes,
    /// Whether sessions of a server can have such sandboxes.
    pub can_serve: bool,
    /// What a start costs.
    pub start: StartCost,
    /// Default deadline for coming up, in milliseconds.
    pub start_ms: u64,
}

/// Machine on which commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// This machine.
    Here,
    /// Another machine, or one that cannot be told from another.
    Elsewhere,
}

/// Holder of the walls around commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walls {
    /// The kernel of this machine, told by Glovebox.
    Ours,
    /// A service, by its word.
    Theirs,
    /// Nobody that Glovebox knows.
    None,
}

/// Place of a sandbox's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// Layers on this machine, over the project.
    Layers,
    /// A copy that comes and goes over the link.
    Copied,
    /// The project itself.
    InPlace,
}

/// Sandboxes that a session may make of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubSandboxes {
    /// With at most what the session has.
    Narrowed,
    /// With what the session has.
    SameAsSession,
    /// None.
    None,
}

/// What a start costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartCost {
    /// Time of this machine's processors.
    Processor,
    /// Waiting for another machine.
    Waiting,
}

/// Directory of the copy of the project in a sandbox's own directory, with a backend that keeps it here.
pub const COPY_DIR: &str = "tree";

/// Option of backends that are services: the address.
pub const BASE_URL_OPTION: &str = "base_url";
/// Part of an address in whose place a sandbox's name stands, so that each sandbox has an address of its own.
pub const NAME_IN_URL: &str = "{name}";

/// Deadline for coming up unless a backend or the caller says otherwise, in milliseconds.
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
    /// The guest at the other end of any command's standard input and output. The words of the command are
    /// the option `carrier`; its last word must be a POSIX shell, or it must run a given command (`ssh box`,
    /// `docker exec -i c`): then `sh` is appended.
    pub const COMMAND: Self = Self(&COMMAND);

    /// A backend from elsewhere than this crate.
    pub const fn declared(declaration: &'static Declaration) -> Self {
        Self(declaration)
    }

    /// Word of flags, configuration, state files and reports.
    pub const fn as_str(self) -> &'static str {
        self.0.name
    }

    /// A few words for help and completion.
    pub const fn about(self) -> &'static str {
        self.0.about
    }

    /// Its abilities.
    pub const fn capabilities(self) -> &'static Capabilities {
        &self.0.capabilities
    }

    /// Whether this general setting, which is not for all backends, means something to it.
    pub fn takes(self, setting: &str) -> bool {
        self.0.settings.contains(&setting)
    }

    /// Whether it cannot be used without this general setting.
    pub fn requires(self, setting: &str) -> bool {
        self.0.required.contains(&setting)
    }

    /// Right of a project's file to choose it.
    pub const fn project_choice(self) -> ProjectChoice {
        self.0.project_choice
    }

    /// Settings of its own.
    pub const fn options(self) -> &'static [BackendOption] {
        self.0.options
    }

    /// Sources of its key or token, where it has one.
    pub const fn credential(self) -> Option<&'static CredentialSource> {
        self.0.credential.as_ref()
    }

    /// The settings of all backends of this program, each name once.
    pub fn all_options() -> Vec<&'static BackendOption> {
        let mut found: Vec<&'static BackendOption> = Vec::new();
        for option in Self::all().iter().flat_map(|backend| backend.options()) {
            if !found.iter().any(|known| known.name == option.name) {
                found.push(option);
            }
        }
        found
    }

    /// Whether glovebox's own walls on this machine stand around its commands.
    pub fn is_walled_here(self) -> bool {
        self.capabilities().walls == Walls::Ours
    }

    /// Whether its commands run on this machine without any walls.
    pub fn is_unwalled_here(self) -> bool {
        self.capabilities().walls == Walls::None && self.capabilities().place == Place::Here
    }

    /// Whether its commands run on another machine.
    pub fn is_elsewhere(self) -> bool {
        self.capabilities().place == Place::Elsewhere
    }

    /// Whether a sandbox's files are layers on this machine.
    pub fn has_layers(self) -> bool {
        self.capabilities().files == Files::Layers
    }

    /// Whether a sandbox's copy of the project lies in the sandbox's own directory on this machine
    /// ([`COPY_DIR`]), where it outlives the guest.
    pub fn keeps_copy_here(self) -> bool {
        self.capabilities().files == Files::Copied && self.is_walled_here()
    }

    /// Every backend of this program, in the order of help and completion.
    pub fn all() -> &'static [Self] {
        ALL.get().map_or(BUILT_IN, Vec::as_slice)
    }

    /// The backend of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all()
            .iter()
            .copied()
            .find(|backend| backend.as_str() == name)
    }

    /// Adds backends to those that are built in. Only the first call counts.
    pub(crate) fn add(more: impl Iterator<Item = Self>) {
        let all = BUILT_IN.iter().copied().chain(more).collect();
        // Who asked before has seen the built-in ones; nobody asks before a program has begun.
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
