//! Keys of settings that belong to single backends: one for each option that a backend of this program declares.

use super::access::Access;
use super::{DefaultValue, Key};
use crate::project_rule::ProjectRule::UserOnly;
use crate::raw::RawValue;
use crate::{Origin, Settings, SourcedValue};
use glovebox_sandbox::{Backend, BackendOption};
use std::slice;
use std::sync::OnceLock;

/// Those keys. Backends are registered before anybody asks.
pub(super) fn keys() -> &'static [Key] {
    static KEYS: OnceLock<Vec<Key>> = OnceLock::new();
    KEYS.get_or_init(|| Backend::all_options().into_iter().map(key).collect())
}

fn key(option: &'static BackendOption) -> Key {
    let mut key = Key::new(option.name, option.meaning, UserOnly, UNUSED)
        .variable(option.variable)
        .flags(slice::from_ref(&option.flag))
        .default(DefaultValue::Words("none"));
    key.option = Some(option);
    key
}

/// Values of options go by the name of the option.
const UNUSED: Access = Access {
    set: |_, _, _, _| Err("it belongs to a backend".to_owned()),
    show: |_| Vec::new(),
};

impl Settings {
    /// Gives an option the words that were written.
    pub(super) fn set_option(
        &mut self,
        option: &'static BackendOption,
        raw: &RawValue,
        origin: &Origin,
    ) -> Result<(), String> {
        let words: Vec<String> = match raw {
            RawValue::Many(words) if option.is_list => words.clone(),
            raw => vec![raw.one()?.to_owned()],
        };
        for word in &words {
            (option.check)(word)?;
        }
        let value = SourcedValue {
            value: words,
            origin: origin.clone(),
        };
        self.backend_options.insert(option.name, value);
        Ok(())
    }

    /// The words of an option, each with its origin.
    pub(super) fn shown_option(&self, option: &BackendOption) -> Vec<(String, &Origin)> {
        let Some(found) = self.backend_options.get(option.name) else {
            return Vec::new();
        };
        let words = found.value.iter();
        words.map(|word| (word.clone(), &found.origin)).collect()
    }
}
