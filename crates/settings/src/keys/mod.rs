//! The table of settings: everything there is to say about each key of `glovebox.toml`, once.
//!
//! A row has the key's name, its variable, its flags, what it is without any of them, what it means, how a text
//! becomes the setting and the setting a text, and what it needs when a project's file sets it. What files, variables,
//! `config explain`, phases of workflows and `docs/reference/configuration.md` know about settings comes from here; a
//! test holds the help of the flags to it.
//!
//! A row has no default rule for projects: a key cannot be added without a decision about them.

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

/// What a setting is when nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// This value, as a file writes it; a text without its quotes.
    Text(&'static str),
    /// This number or switch.
    Plain(&'static str),
    /// An empty list.
    EmptyList,
    /// It depends, or is no value; in words.
    Words(&'static str),
}

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Its name in `glovebox.toml`.
    pub name: &'static str,
    /// The variable that sets it.
    pub variable: Option<&'static str>,
    /// The flags that set it, without `--`; those of one command alone after its name (`agent model`).
    pub flags: &'static [&'static str],
    /// What it is without any of them.
    pub default: DefaultValue,
    /// What it means, in Markdown.
    pub meaning: &'static str,
    /// Whether a phase of a workflow may set it for its own sandbox.
    pub is_for_phases: bool,
    /// The limit that it is, when it is one.
    pub limit: Option<LimitKind>,
    /// What it needs in a project's own file.
    pub project: ProjectRule,
    access: KeyAccess,
}

impl Key {
    /// A key of files alone whose default is an empty list; the methods below say otherwise.
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

    /// The values of this key as text, each with its origin; lists may have none or many.
    pub fn shown<'a>(&self, settings: &'a Settings) -> Vec<(String, &'a Origin)> {
        match &self.access {
            KeyAccess::Field(field) => (field.show)(settings),
            KeyAccess::Option(option) => settings.shown_option(option),
        }
    }
}

/// Every key, in the order `config explain` prints them.
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

/// The key of this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}

impl Settings {
    /// Sets `key` from `raw`.
    ///
    /// # Errors
    /// One sentence on what is wrong with the value.
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

    /// The values of `key` as text, each with its origin; lists may have none or many.
    pub fn shown(&self, key: &str) -> Vec<(String, &Origin)> {
        find(key).map_or_else(Vec::new, |key| key.shown(self))
    }
}
