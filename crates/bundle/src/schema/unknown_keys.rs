//! Treatment of fields that an object schema of zod does not name: dropped, refused, kept, or
//! checked.
//!
//! By default they are dropped. `strict`, `passthrough`, `loose`, `strip` and `catchall` change
//! that. Schemas derived from an object inherit its treatment; `merge` inherits from its argument.
//! In zod 3, a `catchall` takes precedence over the others until the next `catchall`; in zod 4 and
//! its mini, the last call counts.

use crate::provenance;
use crate::value::*;
use std::rc::Rc;

/// Treatment of fields that an object does not name.
#[derive(Clone)]
pub(super) enum UnknownKeys<'a> {
    /// They are dropped.
    Stripped,
    /// They are an error.
    Refused,
    /// They are kept.
    Kept,
    /// They must match a schema, and are kept.
    Checked(Placed<'a>),
}

/// True if a method of an object, or a function of zod/mini, derives another object.
pub(super) fn makes_object(name: &str) -> bool {
    matches!(
        name,
        "extend"
            | "safeExtend"
            | "augment"
            | "merge"
            | "pick"
            | "omit"
            | "partial"
            | "required"
            | "strict"
            | "nonstrict"
            | "passthrough"
            | "loose"
            | "strip"
            | "catchall"
    )
}

/// Returns the treatment of an object. Walks the chain of calls that made the object from its end.
pub(super) fn of<'a>(made: &Rc<Made<'a>>) -> UnknownKeys<'a> {
    let is_version_3 = made.origin().package.starts_with("zod/v3");
    let mut made = made.clone();
    // Treatment by the later steps, which an earlier `catchall` would override.
    let mut said: Option<UnknownKeys<'a>> = None;
    let mut is_catchall_undone = false;
    loop {
        let (name, receiver, rest) = match &made.callee {
            Callee::Method(receiver, name) => (name.to_string(), Some(receiver.clone()), 0),
            Callee::Import(path) => {
                let name = provenance::zod_function(path).unwrap_or_default();
                match name.as_str() {
                    "strictObject" => return said.unwrap_or(UnknownKeys::Refused),
                    "looseObject" => return said.unwrap_or(UnknownKeys::Kept),
                    _ => {}
                }
                // zod/mini has functions in place of zod's methods.
                let receiver = match made.argument(0).map(|argument| &argument.value) {
                    Some(Value::Made(receiver)) if makes_object(&name) => Some(receiver.clone()),
                    _ => None,
                };
                (name, receiver, 1)
            }
        };
        let Some(receiver) = receiver else {
            return said.unwrap_or(UnknownKeys::Stripped);
        };
        let argument = made.argument(rest);
        let word = match name.as_str() {
            "strict" => Some(UnknownKeys::Refused),
            "passthrough" | "loose" | "nonstrict" => Some(UnknownKeys::Kept),
            "strip" => Some(UnknownKeys::Stripped),
            "catchall" => match argument {
                Some(argument) if is_never(argument) && is_version_3 => {
                    is_catchall_undone = true;
                    None
                }
                Some(argument) if is_never(argument) => Some(UnknownKeys::Refused),
                Some(_) if is_catchall_undone => None,
                Some(argument) => return UnknownKeys::Checked(argument.clone()),
                None => None,
            },
            "merge" => match argument.map(|argument| &argument.value) {
                Some(Value::Made(other)) => {
                    made = other.clone();
                    continue;
                }
                _ => None,
            },
            _ => None,
        };
        match word {
            Some(word) if !is_version_3 => return word,
            Some(word) => said = said.or(Some(word)),
            None => {}
        }
        made = receiver;
    }
}

fn is_never(placed: &Placed<'_>) -> bool {
    let Value::Made(made) = &placed.value else {
        return false;
    };
    matches!(&made.callee, Callee::Import(path)
        if provenance::zod_function(path).as_deref() == Some("never"))
}
