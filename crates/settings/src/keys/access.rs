//! Conversion between text and settings.

use crate::raw::{PathContext, RawValue};
use crate::{Origin, Settings, SourcedValue};
use glovebox_sandbox::BackendOption;
use std::fmt;

/// Conversion between the written form of one setting and its value.
#[derive(Clone, Copy)]
pub(super) struct Access {
    /// Parses a value and sets it. The error is a sentence about the problem.
    pub(super) set: fn(&mut Settings, &RawValue, PathContext<'_>, &Origin) -> Result<(), String>,
    /// Returns the values as text, each with its origin.
    pub(super) show: fn(&Settings) -> Vec<(String, &Origin)>,
}

/// Location of a key's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeyAccess {
    /// Field of the settings.
    Field(Access),
    /// Option of a backend.
    Option(&'static BackendOption),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access(..)")
    }
}

/// Access to a single value: field, parser, and conversion to text (`Display` by default).
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

/// Access to a list whose values accumulate: field, split into items, parser of an item, and
/// conversion to text.
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
