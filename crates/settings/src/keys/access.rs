//! How a text becomes a setting, and a setting a text.

use crate::raw::{PathContext, RawValue};
use crate::{Origin, Settings, SourcedValue};
use glovebox_sandbox::BackendOption;
use std::fmt;

/// The way from what is written to one setting and back.
#[derive(Clone, Copy)]
pub(super) struct Access {
    /// Parses a value and sets it. The error is one sentence on what is wrong with the value.
    pub(super) set: fn(&mut Settings, &RawValue, PathContext<'_>, &Origin) -> Result<(), String>,
    /// The values as text, each with its origin.
    pub(super) show: fn(&Settings) -> Vec<(String, &Origin)>,
}

/// The way to a key's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeyAccess {
    /// By a field of the settings.
    Field(Access),
    /// By the name of a backend's option.
    Option(&'static BackendOption),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access(..)")
    }
}

/// One value: its field, its parser, and how it is shown (as it displays itself when left out).
macro_rules! one {
    ($($field:ident).+, $parse:expr) => {
        one!($($field).+, $parse, ToString::to_string)
    };
    ($($field:ident).+, $parse:expr, $text:expr) => {
        crate::keys::access::Access {
            set: |settings, raw, _, origin| {
                let value = $parse(raw.one()?)?;
                settings.$($field).+.set(value, origin);
                Ok(())
            },
            show: |settings| crate::keys::access::show_one(&settings.$($field).+, $text),
        }
    };
}

/// A list that adds up: its field, the parser of one item, and how items are split and shown.
macro_rules! list {
    ($($field:ident).+, $split:ident, $parse:expr, $text:expr) => {
        crate::keys::access::Access {
            set: |settings, raw, place, origin| {
                for text in raw.$split() {
                    let value = $parse(text, place)?;
                    settings.$($field).+.push(crate::SourcedValue {
                        value,
                        origin: origin.clone(),
                    });
                }
                Ok(())
            },
            show: |settings| crate::keys::access::show_many(&settings.$($field).+, $text),
        }
    };
}

pub(super) use {list, one};

pub(super) fn show_one<T>(
    setting: &SourcedValue<T>,
    text: impl Fn(&T) -> String,
) -> Vec<(String, &Origin)> {
    vec![(text(&setting.value), &setting.origin)]
}

pub(super) fn show_many<T>(
    list: &[SourcedValue<T>],
    text: impl Fn(&T) -> String,
) -> Vec<(String, &Origin)> {
    list.iter()
        .map(|item| (text(&item.value), &item.origin))
        .collect()
}
