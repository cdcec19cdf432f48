//! The isolation report: what holds around one sandbox and what does not. Facts only, no praise;
//! every line is something that was done or measured.

use glovebox_egress::MachineProxy;
use glovebox_proto::Facts;
use glovebox_spec::{LimitKind, LimitState, json_path};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Version of the report's JSON shape.
pub const REPORT_VERSION: u32 = 1;
/// Name of its file in the directory of a supervised sandbox.
pub(crate) const REPORT_FILE: &str = "report.json";

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// The backend's word.
    pub backend: String,
    /// The sandbox's name.
    pub name: String,
    /// Kernel release the sandbox runs on; empty when it is not this machine's and not known yet.
    pub kernel: String,
    /// Who commands are, inside and outside.
    pub identity: Identity,
    /// Each wall and how well it holds.
    pub walls: Vec<WallFact>,
    /// Each limit that was asked for and how well it holds.
    pub limits: Vec<LimitFact>,
    /// How listed hosts are reached, where that is not directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkFact>,
    /// Package caches that commands can write to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheFact>,
    /// What the guest sees from inside; `null` before it was asked. From inside: untrusted.
    pub facts: serde_json::Value,
    /// What is weaker than it could be, one sentence each.
    pub degraded: Vec<String>,
    /// How long the steps of coming up took, in microseconds, in order.
    pub timings_us: Vec<(String, u64)>,
}

/// Who commands are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// How ids are arranged, in one or two words: `one id`, `id range`, `caller`, `remote login`.
    pub mode: String,
    /// User id of commands as they see it.
    pub inside_uid: Option<u32>,
    /// The same user id as this machine sees it.
    pub outside_uid: Option<u32>,
    /// Ids set aside for the sandbox on this machine: first and count.
    pub range: Option<(u32, u32)>,
}

/// One wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WallFact {
    /// Its name, such as `filesystem`, `network`, `syscalls`.
    pub name: String,
    /// How well it holds.
    pub state: LimitState,
    /// By what, or why not.
    pub detail: String,
}

/// One limit that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitFact {
    /// Which.
    pub kind: LimitKind,
    /// Its value in the unit of [`Limits`].
    pub value: u64,
    /// How well it holds.
    pub state: LimitState,
    /// By what, or why not.
    pub mechanism: String,
}

/// How listed hosts are reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkFact {
    /// The machine's own proxy: `HOST:PORT (VARIABLE)`, two of them where each kind of connection has another.
    pub upstream: String,
}

/// One package cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheFact {
    /// Its name, such as `cargo-registry` or `npm`.
    pub name: String,
    /// Where it is inside.
    #[serde(with = "json_path")]
    pub target: PathBuf,
    /// Whether what the host has there is shown below.
    pub shows_host: bool,
    /// What becomes of what is written there.
    pub keeping: CacheKeeping,
}

/// What becomes of what a sandbox writes to package caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKeeping {
    /// It goes with the sandbox.
    ThrownAway,
    /// It is there for the next sandbox of the project.
    Kept,
    /// It goes with the sandbox, which shows what was kept: another one of the project adds to that now.
    HeldByAnother,
}

impl CacheKeeping {
    /// In words, for reports.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::ThrownAway => "thrown away with the sandbox",
            Self::Kept => "kept for the next sandbox of the project",
            Self::HeldByAnother => {
                "thrown away with the sandbox: another one of the project keeps its own now"
            }
        }
    }
}

impl Report {
    /// A report with nothing in it yet.
    pub fn new(backend: &str, name: &str) -> Self {
        Self {
            version: REPORT_VERSION,
            backend: backend.to_owned(),
            name: name.to_owned(),
            kernel: String::new(),
            identity: Identity::default(),
            walls: Vec::new(),
            limits: Vec::new(),
            network: None,
            caches: Vec::new(),
            facts: serde_json::Value::Null,
            degraded: Vec::new(),
            timings_us: Vec::new(),
        }
    }

    /// Tells that public hosts are reached through a proxy of the machine.
    pub(crate) fn reach_through(&mut self, upstream: &MachineProxy) {
        let upstream = upstream.to_string();
        if let Some(wall) = self.walls.iter_mut().find(|wall| wall.name == "network") {
            let words = format!("; public ones through this machine's proxy {upstream}");
            wall.detail.push_str(&words);
        }
        self.network = Some(NetworkFact { upstream });
    }

    /// Makes a report of a sandbox whose processes have the caller's user id and kernel; `mode` tells of the identity.
    pub fn of_caller(backend: &str, name: &str, mode: &str) -> Self {
        let uid = Some(rustix::process::geteuid().as_raw());
        Self {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            identity: Identity {
                mode: mode.to_owned(),
                inside_uid: uid,
                outside_uid: uid,
                range: None,
            },
            ..Self::new(backend, name)
        }
    }

    /// Adds a wall.
    pub fn wall(&mut self, name: &str, state: LimitState, detail: impl Into<String>) {
        self.walls.push(WallFact {
            name: name.to_owned(),
            state,
            detail: detail.into(),
        });
    }

    /// Takes in what the guest says about itself.
    pub(crate) fn set_facts(&mut self, facts: &Facts) {
        if self.kernel.is_empty() {
            self.kernel.clone_from(&facts.kernel);
        }
        self.facts = facts_json(facts);
    }

    /// Limits that were asked for and do not hold.
    pub fn absent_limits(&self) -> impl Iterator<Item = &LimitFact> {
        self.limits
            .iter()
            .filter(|limit| limit.state == LimitState::Absent)
    }
}

/// Guest facts as JSON. Paths that are not UTF-8 are shown with replacement characters.
pub(crate) fn facts_json(facts: &Facts) -> serde_json::Value {
    let mut value = serde_json::to_value(facts).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("cwd".to_owned(), String::from_utf8_lossy(&facts.cwd).into());
    }
    value
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sandbox `{}`, backend {}", self.name, self.backend)?;
        if !self.kernel.is_empty() {
            writeln!(f, "kernel {}", self.kernel)?;
        }
        let Identity {
            mode,
            inside_uid,
            outside_uid,
            range,
        } = &self.identity;
        write!(f, "identity: {mode}")?;
        if let Some(uid) = inside_uid {
            write!(f, ", uid {uid} inside")?;
        }
        if let Some(uid) = outside_uid {
            write!(f, ", uid {uid} on this machine")?;
        }
        if let Some((first, count)) = range {
            write!(
                f,
                ", ids {first}-{}",
                u64::from(*first) + u64::from(*count).saturating_sub(1)
            )?;
        }
        writeln!(f)?;
        let width = self
            .walls
            .iter()
            .map(|wall| wall.name.len())
            .max()
            .unwrap_or(0)
            .max(10);
        if !self.walls.is_empty() {
            writeln!(f, "walls:")?;
        }
        for wall in &self.walls {
            let state = wall.state.to_string();
            writeln!(f, "  {:width$}  {state:11}  {}", wall.name, wall.detail)?;
        }
        if !self.limits.is_empty() {
            writeln!(f, "limits:")?;
        }
        for limit in &self.limits {
            let (kind, state) = (limit.kind.as_str(), limit.state.to_string());
            writeln!(
                f,
                "  {kind:width$}  {state:11}  {} ({})",
                limit.value, limit.mechanism
            )?;
        }
        if let Some(first) = self.caches.first() {
            let names: Vec<&str> = self
                .caches
                .iter()
                .map(|cache| cache.name.as_str())
                .collect();
            writeln!(
                f,
                "package caches: {}; what is written there is {}",
                names.join(", "),
                first.keeping.in_words()
            )?;
        }
        if !self.degraded.is_empty() {
            writeln!(f, "weaker than it could be:")?;
        }
        for line in &self.degraded {
            writeln!(f, "  {line}")?;
        }
        if !self.timings_us.is_empty() {
            let steps: Vec<_> = self
                .timings_us
                .iter()
                .map(|(step, us)| format!("{step} {us} us"))
                .collect();
            writeln!(f, "timings: {}", steps.join(", "))?;
        }
        Ok(())
    }
}
