//! Isolation report: the walls and limits of one sandbox and whether they hold. Every line is
//! something that was done or measured.

use crate::link_meter::LinkStats;
use glovebox_egress::MachineProxy;
use glovebox_proto::Facts;
use glovebox_spec::{LimitKind, LimitState, json_path};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Version of the report's JSON schema.
pub const REPORT_VERSION: u32 = 1;
/// Name of the report file in the directory of a supervised sandbox.
pub(crate) const REPORT_FILE: &str = "report.json";

/// Isolation report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Name of the backend.
    pub backend: String,
    /// Name of the sandbox.
    pub name: String,
    /// Kernel release that the sandbox runs on. Empty if it is that of another machine and not
    /// known yet.
    pub kernel: String,
    /// User ids of commands, inside and outside.
    pub identity: Identity,
    /// Walls and whether each holds.
    pub walls: Vec<WallFact>,
    /// Limits that the spec sets and whether each holds.
    pub limits: Vec<LimitFact>,
    /// Proxy through which allowed hosts are reached. `None` if they are reached directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkFact>,
    /// Counters of the link to the guest. `None` unless the link outlives broken connections, and
    /// in a report that was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkStats>,
    /// Package caches that commands can write to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheFact>,
    /// Facts from the guest, untrusted; `null` before the guest was asked.
    pub facts: serde_json::Value,
    /// Weaknesses of this sandbox, one sentence each.
    pub degraded: Vec<String>,
    /// Durations of the steps of the start, in microseconds, in order.
    pub timings_us: Vec<(String, u64)>,
}

/// User ids of commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Arrangement of ids, in one or two words: `one id`, `id range`, `caller`, `remote login`.
    pub mode: String,
    /// User id of commands as they see it. `None` if it is unknown.
    pub inside_uid: Option<u32>,
    /// The same user id as this machine sees it. `None` if it is unknown.
    pub outside_uid: Option<u32>,
    /// Ids reserved for the sandbox on this machine: first and count. `None` if it has no range.
    pub range: Option<(u32, u32)>,
}

/// State of one wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WallFact {
    /// Name, such as `filesystem`, `network`, `syscalls`.
    pub name: String,
    /// State of enforcement.
    pub state: LimitState,
    /// Mechanism, or the reason for which the wall does not hold.
    pub detail: String,
}

/// State of one limit that the spec sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitFact {
    /// Limit.
    pub kind: LimitKind,
    /// Value, in the unit of [`Limits`](glovebox_spec::Limits).
    pub value: u64,
    /// State of enforcement.
    pub state: LimitState,
    /// Mechanism, or the reason for which the limit does not hold.
    pub mechanism: String,
}

/// Proxy through which allowed hosts are reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkFact {
    /// Proxy of the machine as `HOST:PORT (VARIABLE)`; two of them if TLS and other connections use
    /// different ones.
    pub upstream: String,
}

/// Package cache that commands can write to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheFact {
    /// Name, such as `cargo-registry` or `npm`.
    pub name: String,
    /// Path inside.
    #[serde(with = "json_path")]
    pub target: PathBuf,
    /// True if the host's cache is visible below it.
    pub shows_host: bool,
    /// Treatment of files that commands write to it.
    pub keeping: CacheKeeping,
}

/// Treatment of files that a sandbox writes to package caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKeeping {
    /// They are removed with the sandbox.
    ThrownAway,
    /// They are kept for the next sandbox of the project.
    Kept,
    /// They are removed with the sandbox, which sees the files that were kept before: another
    /// sandbox of the project is adding to them now.
    HeldByAnother,
}

impl CacheKeeping {
    /// Returns the words for reports.
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
    /// Creates a report with no facts.
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
            link: None,
            caches: Vec::new(),
            facts: serde_json::Value::Null,
            degraded: Vec::new(),
            timings_us: Vec::new(),
        }
    }

    /// Records that public hosts are reached through a proxy of the machine.
    pub(crate) fn reach_through(&mut self, upstream: &MachineProxy) {
        let upstream = upstream.to_string();
        if let Some(wall) = self.walls.iter_mut().find(|wall| wall.name == "network") {
            let words = format!("; public ones through this machine's proxy {upstream}");
            wall.detail.push_str(&words);
        }
        self.network = Some(NetworkFact { upstream });
    }

    /// Creates a report for a sandbox whose processes have the caller's user id and kernel. `mode`
    /// is [`Identity::mode`].
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

    /// Adds the state of a wall.
    pub fn wall(&mut self, name: &str, state: LimitState, detail: impl Into<String>) {
        self.walls.push(WallFact {
            name: name.to_owned(),
            state,
            detail: detail.into(),
        });
    }

    /// Stores the facts that the guest reports about itself.
    pub(crate) fn set_facts(&mut self, facts: &Facts) {
        if self.kernel.is_empty() {
            self.kernel.clone_from(&facts.kernel);
        }
        self.facts = facts_json(facts);
    }

    /// Returns the limits that the spec sets and that do not hold.
    pub fn absent_limits(&self) -> impl Iterator<Item = &LimitFact> {
        self.limits
            .iter()
            .filter(|limit| limit.state == LimitState::Absent)
    }
}

/// Converts facts of the guest to JSON. Bytes of paths that are not UTF-8 become replacement
/// characters.
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
