//! Keys of single backends: one for each option that a registered backend declares.

use super::access::KeyAccess;
use super::{DefaultValue, Key};
use crate::project_rule::ProjectRule::UserOnly;
use crate::raw::RawValue;
use crate::{Origin, Settings, SourcedValue};
use glovebox_sandbox::{Backend, BackendOption};
use std::slice;
use std::sync::OnceLock;

/// Returns these keys. All backends must be registered before the first call, which fixes the list.
pub(super) fn keys() -> &'static [Key] {
    static KEYS: OnceLock<Vec<Key>> = OnceLock::new();
    KEYS.get_or_init(|| Backend::all_options().into_iter().map(key).collect())
}

fn key(option: &'static BackendOption) -> Key {
    let access = KeyAccess::Option(option);
    Key::with_access(option.name, option.meaning, UserOnly, access)
        .variable(option.variable)
        .flags(slice::from_ref(&option.flag))
        .default(DefaultValue::Words("none"))
}

impl Settings {
    /// Parses and sets an option.
    pub(super) fn set_option(
        &mut self,
        option: &'static BackendOption,
        raw: &RawValue,
        origin: &Origin,
    ) -> Result<(), String> {
        let value = raw.one()?.to_owned();
        (option.check)(&value)?;
        self.lay_option(option, value, origin);
        Ok(())
    }

    /// Sets an option to a value that was checked.
    pub(crate) fn lay_option(
        &mut self,
        option: &'static BackendOption,
        value: String,
        origin: &Origin,
    ) {
        let value = SourcedValue {
            value,
            origin: origin.clone(),
        };
        self.backend_options.insert(option.name, value);
    }

    /// Returns the value of an option with its origin; empty if it is not set.
    pub(super) fn shown_option(&self, option: &BackendOption) -> Vec<(String, &Origin)> {
        let found = self.backend_options.get(option.name);
        found
            .map(|found| (found.value.clone(), &found.origin))
            .into_iter()
            .collect()
    }
}
