//! What to do about a failure, as data: libraries say what to change, each surface says how that is asked for there.
//!
//! In: what a library knows, a limit or a setting and words around it. Out: one sentence in the words of a surface
//! ([`Wording`]): a flag on the command line, a name in glovebox.toml or a tool's parameter elsewhere ([`fmt::Display`]).
//! In JSON a remedy is that sentence; between our own programs it stays data.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A limit of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// Bytes of memory.
    Memory,
    /// Bytes that may be written.
    Disk,
    /// CPU time of all processes.
    CpuTime,
    /// Processes and threads.
    Processes,
    /// The size of one file, which the limit on disk bounds as well.
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

    /// The limit in a sentence, before the word "limit".
    pub const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::CpuTime => "CPU time",
            Self::Processes => "process",
            Self::FileSize => "file size",
        }
    }

    /// What sets it.
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
        /// What a caller can choose: a setting of a sandbox or an option of one operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Setting { $($(#[doc = $doc])+ $name,)+ }

        impl Setting {
            /// Every setting, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name, in kebab case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

settings! {
    /// The limit on memory.
    Memory = "memory",
    /// The limit on what is written.
    Disk = "disk",
    /// The limit on CPU time.
    CpuTime = "cpu-time",
    /// The limit on processes and threads.
    Pids = "pids",
    /// The limit on the size of one file.
    FileSize = "file-size",
    /// Where what is written lies.
    Layers = "layers",
    /// Which user ids the sandbox has.
    Ids = "ids",
    /// What is seen of `/proc`.
    Proc = "proc",
    /// Whether commands may make namespaces of their own.
    Nested = "nested",
    /// A secret that is filled in outside.
    Secret = "secret",
    /// Which network the sandbox has.
    Net = "net",
    /// How the project is shown.
    Workspace = "workspace",
    /// The project directory.
    Project = "project",
    /// What is shown although it would be hidden.
    Include = "include",
    /// What is left out of a transfer.
    Exclude = "exclude",
    /// A copy while commands run.
    Live = "live",
    /// The checkpoint that something starts from.
    FromCheckpoint = "from",
    /// A sandbox that exists.
    Sandbox = "sandbox",
    /// A new git branch for changes.
    Branch = "branch",
    /// A new git branch for commits.
    Commits = "commits",
    /// A patch in place of changed files.
    Patch = "patch",
    /// The model.
    Model = "model",
    /// The context window of the model.
    Window = "window",
    /// The limit on an agent's cost.
    MaxCost = "max-cost",
    /// The limit on an agent's tokens.
    MaxTokens = "max-tokens",
    /// The limit on an agent's turns.
    MaxTurns = "max-turns",
    /// The limit on an agent's time.
    MaxTime = "max-time",
    /// The file that holds a server's token.
    TokenFile = "token-file",
    /// What a sandbox may reach.
    Allow = "allow",
    /// The limit on bytes to and from the network.
    NetBytes = "net-bytes",
    /// The limit on connections at once.
    NetConnections = "net-connections",
    /// What stands behind a sandbox.
    Backend = "backend",
    /// The command that leads to the other side.
    Carrier = "carrier",
    /// How long a sandbox may take to come up.
    StartTimeout = "start-timeout",
    /// Where the guest is kept on the other side of a carrier.
    GuestDir = "guest-dir",
    /// What `/` shows.
    Rootfs = "rootfs",
    /// A host path that is shown.
    Grant = "grant",
    /// A variable of commands.
    Env = "env",
    /// The directory that changes go to.
    To = "to",
    /// A file that comes along with a task.
    Context = "context",
    /// That files of the user's and the project's tell the model nothing.
    NoInstructions = "no-instructions",
    /// That nobody is asked before changes.
    Yes = "yes",
    /// That tools work on this machine.
    Local = "local",
    /// What tokens cost.
    Price = "price",
    /// The user's configuration file.
    Config = "config",
    /// That no configuration file is read.
    NoConfig = "no-config",
    /// That a project's file is trusted in this run.
    TrustConfig = "trust-config",
    /// A name that a server goes by.
    AllowHost = "allow-host",
    /// What runs the tools of bundles.
    BundleEngine = "bundle-engine",
    /// A host that a server fetches bundles from.
    BundleHost = "bundle-host",
    /// That a server works without sandboxes.
    UnsafeLocal = "unsafe-local",
    /// The limit on processor time per second.
    Cpus = "cpus",
    /// What sandboxes of all users have together.
    MaxMemory = "max-memory",
    /// The same for processors.
    MaxCpus = "max-cpus",
    /// The same for the disk.
    MaxDisk = "max-disk",
    /// What sandboxes of one user have together.
    MaxMemoryPerUser = "max-memory-per-user",
    /// The same for processors.
    MaxCpusPerUser = "max-cpus-per-user",
    /// The same for the disk.
    MaxDiskPerUser = "max-disk-per-user",
}

impl Setting {
    /// Its flag as it is typed, with a value.
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

    /// The setting with a value.
    pub fn of(self, value: impl Into<String>) -> AdvicePart {
        AdvicePart::Setting(self, Some(value.into()))
    }
}

/// A piece of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdvicePart {
    /// Words that hold on every surface.
    Text(String),
    /// A setting, and the value it should have.
    Setting(Setting, Option<String>),
    /// A command of ours, and the option it needs.
    Command(String, Setting, Option<String>),
}

impl AdvicePart {
    /// A command of ours, such as `glovebox checkpoint NAME`, with an option.
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

/// What to do about a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Raise a limit.
    RaiseLimit(Limit),
    /// Do something else, in words.
    Advice(Vec<AdvicePart>),
}

/// How a surface names what can be chosen.
pub trait Wording {
    /// A setting, with the value it should have.
    fn setting(&self, setting: Setting, value: Option<&str>) -> String;

    /// How a limit is raised.
    fn raise_limit(&self, limit: Limit) -> String;

    /// A command of ours with an option: it is typed, whoever reads of it.
    fn command(&self, words: &str, option: Setting, value: Option<&str>) -> String {
        format!("`{words} {}`", option.as_flag(value))
    }
}

/// The words of glovebox.toml and of tools' parameters, which hold where nothing better is known.
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
    /// A sentence with settings in it.
    pub fn advice(parts: impl IntoIterator<Item = AdvicePart>) -> Self {
        Self::Advice(parts.into_iter().collect())
    }

    /// The sentence in the words of a surface.
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

    /// The same, and then more words.
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

    /// The same with every text changed by `change`, such as cut to a length.
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

/// A remedy on the wire between our own programs.
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
