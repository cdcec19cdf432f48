//! Hints on how to avoid a failure, as data. A library states which setting to change; each user
//! interface phrases it.
//!
//! Input: a limit or a setting with the text around it. Output: one sentence in the phrasing of a
//! [`Wording`]: a flag on the command line; elsewhere a name in glovebox.toml or a tool's parameter
//! ([`fmt::Display`]). A remedy is serialized as that sentence in JSON, and as data between
//! Glovebox's own programs.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Limit of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// Memory, in bytes.
    Memory,
    /// Written data, in bytes.
    Disk,
    /// CPU time of all processes together.
    CpuTime,
    /// Number of processes and threads.
    Processes,
    /// Size of one file. The disk limit bounds it as well.
    FileSize,
}

impl Limit {
    /// Every limit, in the order of the enum.
    pub const ALL: &'static [Self] = &[
        Self::Memory,
        Self::Disk,
        Self::CpuTime,
        Self::Processes,
        Self::FileSize,
    ];

    /// Returns the words that precede "limit" in a sentence.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::CpuTime => "CPU time",
            Self::Processes => "process",
            Self::FileSize => "file size",
        }
    }

    /// Returns the setting that changes the limit.
    pub const fn setting(self) -> Setting {
        match self {
            Self::Memory => Setting::Memory,
            Self::Disk => Setting::Disk,
            Self::CpuTime => Setting::CpuTime,
            Self::Processes => Setting::Pids,
            Self::FileSize => Setting::FileSize,
        }
    }
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Setting of a sandbox, or option of one operation, that the user can choose.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Setting { $($(#[doc = $doc])+ $name,)+ }

        impl Setting {
            /// Every setting, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the name in kebab case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

settings! {
    /// Memory limit.
    Memory = "memory",
    /// Limit on written data.
    Disk = "disk",
    /// Limit on CPU time.
    CpuTime = "cpu-time",
    /// Limit on processes and threads.
    Pids = "pids",
    /// Limit on the size of one file.
    FileSize = "file-size",
    /// Storage of written data: disk or memory.
    Layers = "layers",
    /// User ids that exist inside the sandbox.
    Ids = "ids",
    /// Visible part of `/proc`.
    Proc = "proc",
    /// Permission for commands to create namespaces.
    Nested = "nested",
    /// Secret that the egress proxy fills in.
    Secret = "secret",
    /// Network of the sandbox.
    Net = "net",
    /// Mode in which the project appears inside.
    Workspace = "workspace",
    /// Project directory.
    Project = "project",
    /// Path to show or transfer although it is hidden by default.
    Include = "include",
    /// Path to leave out of a transfer.
    Exclude = "exclude",
    /// Copies files while commands run.
    Live = "live",
    /// Checkpoint to start from.
    FromCheckpoint = "from",
    /// Existing sandbox.
    Sandbox = "sandbox",
    /// New git branch for changes.
    Branch = "branch",
    /// New git branch for commits.
    Commits = "commits",
    /// Patch file instead of changed files.
    Patch = "patch",
    /// Model of the agent.
    Model = "model",
    /// Context window of the model, in tokens.
    Window = "window",
    /// Limit on the cost of an agent run.
    MaxCost = "max-cost",
    /// Limit on the tokens of an agent run.
    MaxTokens = "max-tokens",
    /// Limit on the turns of an agent run.
    MaxTurns = "max-turns",
    /// Limit on the time of an agent run.
    MaxTime = "max-time",
    /// File with a server's token.
    TokenFile = "token-file",
    /// Hosts that the sandbox may reach.
    Allow = "allow",
    /// Limit on bytes to and from the network.
    NetBytes = "net-bytes",
    /// Limit on simultaneous connections.
    NetConnections = "net-connections",
    /// Mechanism that isolates the sandbox.
    Backend = "backend",
    /// Command whose standard streams lead to another machine.
    Carrier = "carrier",
    /// Time limit for the start of a sandbox.
    StartTimeout = "start-timeout",
    /// Directory for the guest on the other side of a carrier.
    GuestDir = "guest-dir",
    /// Content of `/`.
    Rootfs = "rootfs",
    /// Host path to mount in the sandbox.
    Grant = "grant",
    /// Environment variable of commands.
    Env = "env",
    /// Directory that receives changes.
    To = "to",
    /// File to send to the model with a task.
    Context = "context",
    /// Suppresses the user's and the project's instruction files for the model.
    NoInstructions = "no-instructions",
    /// Applies changes without a prompt.
    Yes = "yes",
    /// Runs tools on this machine, without a sandbox.
    Local = "local",
    /// Price of tokens.
    Price = "price",
    /// Configuration file of the user.
    Config = "config",
    /// Reads no configuration file.
    NoConfig = "no-config",
    /// Trusts the project's file for this run.
    TrustConfig = "trust-config",
    /// Host name that a server accepts in requests.
    AllowHost = "allow-host",
    /// Engine that runs the tools of bundles.
    BundleEngine = "bundle-engine",
    /// Host from which a server fetches bundles.
    BundleHost = "bundle-host",
    /// Lets a server run without sandboxes.
    UnsafeLocal = "unsafe-local",
    /// Limit on processor time per second.
    Cpus = "cpus",
    /// Memory of the sandboxes of all users together.
    MaxMemory = "max-memory",
    /// Processors of the sandboxes of all users together.
    MaxCpus = "max-cpus",
    /// Disk space of the sandboxes of all users together.
    MaxDisk = "max-disk",
    /// Memory of all sandboxes of one user together.
    MaxMemoryPerUser = "max-memory-per-user",
    /// Processors of all sandboxes of one user together.
    MaxCpusPerUser = "max-cpus-per-user",
    /// Disk space of all sandboxes of one user together.
    MaxDiskPerUser = "max-disk-per-user",
}

impl Setting {
    /// Returns the flag as typed on a command line, with its value.
    pub fn as_flag(self, value: Option<&str>) -> String {
        let flag = match self {
            Self::Project => "-C".to_owned(),
            setting => format!("--{}", setting.name()),
        };
        match value {
            Some(value) if value.contains(' ') => format!("{flag} '{value}'"),
            Some(value) => format!("{flag} {value}"),
            None => flag,
        }
    }

    /// Returns a part that names the setting with a value.
    pub fn of(self, value: impl Into<String>) -> AdvicePart {
        AdvicePart::Setting(self, Some(value.into()))
    }
}

/// Part of a hint's sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdvicePart {
    /// Text that is the same in every user interface.
    Text(String),
    /// Setting, and the value to give it.
    Setting(Setting, Option<String>),
    /// Command of Glovebox, the option to add, and the value to give it.
    Command(String, Setting, Option<String>),
}

impl AdvicePart {
    /// Creates a part from a Glovebox command, such as `glovebox checkpoint NAME`, and an option.
    pub fn command(words: impl Into<String>, option: Setting, value: Option<&str>) -> Self {
        Self::Command(words.into(), option, value.map(str::to_owned))
    }
}

impl From<&str> for AdvicePart {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AdvicePart {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Setting> for AdvicePart {
    fn from(setting: Setting) -> Self {
        Self::Setting(setting, None)
    }
}

/// Hint on how to avoid a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Raise this limit.
    RaiseLimit(Limit),
    /// Any other action, as the parts of a sentence.
    Advice(Vec<AdvicePart>),
}

/// Phrasing of settings, limits and commands in one user interface.
pub trait Wording {
    /// Returns the text for a setting, with the value to give it.
    fn setting(&self, setting: Setting, value: Option<&str>) -> String;

    /// Returns the text that advises to raise a limit.
    fn raise_limit(&self, limit: Limit) -> String;

    /// Returns the text for a Glovebox command with an option. The default fits every interface,
    /// because commands are always typed.
    fn command(&self, words: &str, option: Setting, value: Option<&str>) -> String {
        format!("`{words} {}`", option.as_flag(value))
    }
}

/// Phrasing with the names of glovebox.toml and of tools' parameters, used without a known
/// interface.
struct Names;

impl Wording for Names {
    fn setting(&self, setting: Setting, value: Option<&str>) -> String {
        let name = setting.name().replace('-', "_");
        match value {
            Some(value) => format!("`{name} = \"{value}\"`"),
            None => format!("`{name}`"),
        }
    }

    fn raise_limit(&self, limit: Limit) -> String {
        let setting = self.setting(limit.setting(), None);
        format!("raise the {} limit ({setting})", limit.word())
    }
}

impl Remedy {
    /// Creates advice from the parts of a sentence.
    pub fn advice(parts: impl IntoIterator<Item = AdvicePart>) -> Self {
        Self::Advice(parts.into_iter().collect())
    }

    /// Returns the sentence in the phrasing of a user interface.
    pub fn worded(&self, wording: &dyn Wording) -> String {
        match self {
            Self::RaiseLimit(limit) => wording.raise_limit(*limit),
            Self::Advice(parts) => parts
                .iter()
                .map(|part| match part {
                    AdvicePart::Text(text) => text.clone(),
                    AdvicePart::Setting(setting, value) => {
                        wording.setting(*setting, value.as_deref())
                    }
                    AdvicePart::Command(words, option, value) => {
                        wording.command(words, *option, value.as_deref())
                    }
                })
                .collect(),
        }
    }

    /// Appends a part to the sentence.
    #[must_use]
    pub fn then(self, more: impl Into<AdvicePart>) -> Self {
        let mut parts = match self {
            Self::RaiseLimit(limit) => vec![
                format!("raise the {} limit with ", limit.word()).into(),
                limit.setting().into(),
            ],
            Self::Advice(parts) => parts,
        };
        parts.push(more.into());
        Self::Advice(parts)
    }

    /// Applies `change` to every text, for example to cut it to a length.
    #[must_use]
    pub fn map_texts(self, change: impl Fn(String) -> String) -> Self {
        match self {
            Self::RaiseLimit(limit) => Self::RaiseLimit(limit),
            Self::Advice(parts) => Self::advice(parts.into_iter().map(|part| match part {
                AdvicePart::Text(text) => AdvicePart::Text(change(text)),
                AdvicePart::Setting(setting, value) => {
                    AdvicePart::Setting(setting, value.map(&change))
                }
                AdvicePart::Command(words, option, value) => {
                    AdvicePart::Command(change(words), option, value.map(&change))
                }
            })),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.worded(&Names))
    }
}

impl From<&str> for Remedy {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Self {
        Self::Advice(vec![AdvicePart::Text(text)])
    }
}

impl<const N: usize> From<[AdvicePart; N]> for Remedy {
    fn from(parts: [AdvicePart; N]) -> Self {
        Self::advice(parts)
    }
}

/// Form of a remedy between Glovebox's own programs.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Remedy")]
enum WireRemedy {
    RaiseLimit(Limit),
    Advice(Vec<AdvicePart>),
}

impl Serialize for Remedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        match self.clone() {
            Self::RaiseLimit(limit) => WireRemedy::RaiseLimit(limit),
            Self::Advice(parts) => WireRemedy::Advice(parts),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Remedy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer).map(Self::from);
        }
        Ok(match WireRemedy::deserialize(deserializer)? {
            WireRemedy::RaiseLimit(limit) => Self::RaiseLimit(limit),
            WireRemedy::Advice(parts) => Self::Advice(parts),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Fault};

    fn fault() -> Fault {
        Fault::failed(Code::Io, "no").remedy([
            "leave it out with ".into(),
            Setting::Exclude.of("*.o"),
            ", or raise ".into(),
            Setting::FileSize.into(),
        ])
    }

    #[test]
    fn a_remedy_is_a_string_in_json_and_data_on_the_wire() {
        let fault = fault();
        let json = serde_json::to_value(&fault).unwrap();
        assert_eq!(
            json["remedy"],
            "leave it out with `exclude = \"*.o\"`, or raise `file_size`"
        );
        let from_json: Fault = serde_json::from_value(json).unwrap();
        assert_eq!(
            from_json.remedy.unwrap().to_string(),
            fault.remedy.as_ref().unwrap().to_string()
        );
        let bytes = postcard::to_allocvec(&fault).unwrap();
        assert_eq!(postcard::from_bytes::<Fault>(&bytes).unwrap(), fault);
    }

    #[test]
    fn a_limit_names_its_setting() {
        for limit in Limit::ALL {
            let remedy = Remedy::RaiseLimit(*limit).to_string();
            let name = limit.setting().name().replace('-', "_");
            assert!(remedy.contains(&format!("`{name}`")), "{remedy}");
        }
    }
}
