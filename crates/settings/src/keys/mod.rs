//! Table of settings: the single description of each key of `glovebox.toml`.
//!
//! A row has the key's name, variable, flags, default and meaning, its conversion from and to text,
//! and its rule for a project's file. Files, variables, `config explain`, phases of workflows and
//! `docs/reference/configuration.md` use this table, and a test compares the help of the flags to
//! it.
//!
//! A row has no default rule for projects, so a key cannot be added without a decision about them.

mod access;
mod agent;
mod backend_options;
mod isolation;
mod limits;
mod sandbox;
mod serve;
mod sync;
#[cfg(test)]
mod tests;
mod tools;

use super::project_rule::ProjectRule;
use super::raw::{PathContext, RawValue};
use super::{Origin, Settings};
use access::{Access, KeyAccess};
use glovebox_spec::LimitKind;
pub use limits::{limit_flag, limit_keys};

/// Default of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// Value as a file writes it; a string without its quotes.
    Text(&'static str),
    /// Number or switch.
    Plain(&'static str),
    /// Empty list.
    EmptyList,
    /// Description of a default that depends on the machine or is not a value.
    Words(&'static str),
}

/// Key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Name in `glovebox.toml`.
    pub name: &'static str,
    /// Variable that sets the key; `None` for none.
    pub variable: Option<&'static str>,
    /// Flags that set the key, without `--`. The name of a command precedes a flag that only this
    /// command has (`agent model`).
    pub flags: &'static [&'static str],
    /// Default without any source.
    pub default: DefaultValue,
    /// Meaning, in Markdown.
    pub meaning: &'static str,
    /// True if a phase of a workflow may set the key for its own sandbox.
    pub is_for_phases: bool,
    /// Limit that the key sets; `None` for other keys.
    pub limit: Option<LimitKind>,
    /// Rule for a project's own file.
    pub project: ProjectRule,
    access: KeyAccess,
}

impl Key {
    /// Creates a key with neither variable nor flags, whose default is an empty list. The methods
    /// below add them.
    const fn new(
        name: &'static str,
        meaning: &'static str,
        project: ProjectRule,
        access: Access,
    ) -> Self {
        Self::with_access(name, meaning, project, KeyAccess::Field(access))
    }

    const fn with_access(
        name: &'static str,
        meaning: &'static str,
        project: ProjectRule,
        access: KeyAccess,
    ) -> Self {
        Self {
            name,
            variable: None,
            flags: &[],
            default: DefaultValue::EmptyList,
            meaning,
            is_for_phases: false,
            limit: None,
            project,
            access,
        }
    }

    const fn variable(mut self, variable: &'static str) -> Self {
        self.variable = Some(variable);
        self
    }

    const fn flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    const fn default(mut self, default: DefaultValue) -> Self {
        self.default = default;
        self
    }

    const fn limit(mut self, kind: LimitKind) -> Self {
        self.limit = Some(kind);
        self
    }

    const fn for_phases(mut self) -> Self {
        self.is_for_phases = true;
        self
    }

    /// Returns the values of this key as text, each with its origin. A list yields any number of
    /// them.
    pub fn shown<'a>(&self, settings: &'a Settings) -> Vec<(String, &'a Origin)> {
        match &self.access {
            KeyAccess::Field(field) => (field.show)(settings),
            KeyAccess::Option(option) => settings.shown_option(option),
        }
    }
}

/// Returns every key, in the order of `config explain`.
pub fn keys() -> impl Iterator<Item = &'static Key> + Clone {
    [
        sandbox::KEYS,
        sync::KEYS,
        tools::KEYS,
        agent::KEYS,
        limits::KEYS,
        isolation::KEYS,
        serve::KEYS,
        backend_options::keys(),
    ]
    .into_iter()
    .flatten()
}

/// Returns the key with this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}

impl Settings {
    /// Sets `key` from `raw`.
    ///
    /// # Errors
    /// A sentence about the invalid value.
    pub fn apply(
        &mut self,
        key: &str,
        raw: &RawValue,
        place: PathContext<'_>,
        origin: &Origin,
    ) -> Result<(), String> {
        let key = find(key).ok_or_else(|| format!("`{key}` is not a key"))?;
        match &key.access {
            KeyAccess::Field(field) => (field.set)(self, raw, place, origin),
            KeyAccess::Option(option) => self.set_option(option, raw, origin),
        }
    }

    /// Returns the values of `key` as text, each with its origin; empty for an unknown key.
    pub fn shown(&self, key: &str) -> Vec<(String, &Origin)> {
        find(key).map_or_else(Vec::new, |key| key.shown(self))
    }
}
