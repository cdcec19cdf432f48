//! Settings of `serve` itself: its log, and resources that all sandboxes share.

use super::units::{Cpus, Size};
use super::values::word;
use super::{Origin, Settings, SourcedValue};
use std::str::FromStr;

/// Format of the server's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of words and `key=value` pairs, for people.
    Text,
    /// JSON object on each line, for programs.
    Json,
}

impl LogFormat {
    /// Returns the word in flags and configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        word(
            text,
            "a form of the log",
            &[Self::Text, Self::Json].map(|form| (form.as_str(), form)),
        )
    }
}

/// Amount of detail in the server's log. Each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Failures of the server.
    Error,
    /// Events that an operator should examine.
    Warn,
    /// Changes: sessions, sandboxes, calls, requests.
    Info,
    /// Every request, and the start of each call.
    Debug,
}

impl LogLevel {
    /// Returns the word in flags and configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        word(
            text,
            "a level of the log",
            &[Self::Error, Self::Warn, Self::Info, Self::Debug]
                .map(|level| (level.as_str(), level)),
        )
    }
}

/// Settings of the server itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serve {
    /// Format of the log.
    pub log_format: SourcedValue<LogFormat>,
    /// Amount of detail in the log.
    pub log_level: SourcedValue<LogLevel>,
    /// Resources of all sandboxes together.
    pub quota: Quota,
    /// Resources of all sandboxes of one user together.
    pub quota_per_user: Quota,
}

/// Most resources of several sandboxes together, summed over the limits of each. A value of `None`
/// is no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Memory of running sandboxes.
    pub memory: SourcedValue<Size>,
    /// CPU time per second of running sandboxes.
    pub cpus: SourcedValue<Cpus>,
    /// Disk space, stopped sandboxes included.
    pub disk: SourcedValue<Size>,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            memory: SourcedValue::default(Size(None)),
            cpus: SourcedValue::default(Cpus(None)),
            disk: SourcedValue::default(Size(None)),
        }
    }
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            log_format: SourcedValue::default(LogFormat::Text),
            log_level: SourcedValue::default(LogLevel::Info),
            quota: Quota::default(),
            quota_per_user: Quota::default(),
        }
    }
}

/// Flags about the server itself.
#[derive(Debug, Clone, Default)]
pub struct ServeFlags {
    /// Format of the log.
    pub log_format: Option<LogFormat>,
    /// Amount of detail in the log.
    pub log_level: Option<LogLevel>,
    /// Memory of all sandboxes together.
    pub max_memory: Option<Size>,
    /// Memory of all sandboxes of one user together.
    pub max_memory_per_user: Option<Size>,
    /// CPU time per second of all sandboxes together.
    pub max_cpus: Option<Cpus>,
    /// CPU time per second of all sandboxes of one user together.
    pub max_cpus_per_user: Option<Cpus>,
    /// Disk space of all sandboxes together.
    pub max_disk: Option<Size>,
    /// Disk space of all sandboxes of one user together.
    pub max_disk_per_user: Option<Size>,
}

impl Settings {
    /// Applies the flags of `serve`, which override all other sources.
    pub fn lay_serve_flags(&mut self, flags: &ServeFlags) {
        fn lay<T: Copy>(setting: &mut SourcedValue<T>, flag: Option<T>, name: &'static str) {
            if let Some(value) = flag {
                setting.set(value, &Origin::Flag(name));
            }
        }
        let serve = &mut self.serve;
        lay(&mut serve.log_format, flags.log_format, "log-format");
        lay(&mut serve.log_level, flags.log_level, "log-level");
        let (all, user) = (&mut serve.quota, &mut serve.quota_per_user);
        lay(&mut all.memory, flags.max_memory, "max-memory");
        lay(&mut all.cpus, flags.max_cpus, "max-cpus");
        lay(&mut all.disk, flags.max_disk, "max-disk");
        let per_user = (flags.max_memory_per_user, "max-memory-per-user");
        lay(&mut user.memory, per_user.0, per_user.1);
        let per_user = (flags.max_cpus_per_user, "max-cpus-per-user");
        lay(&mut user.cpus, per_user.0, per_user.1);
        let per_user = (flags.max_disk_per_user, "max-disk-per-user");
        lay(&mut user.disk, per_user.0, per_user.1);
    }
}
