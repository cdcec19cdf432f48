//! What a call gives back.

use serde_json::{Map, Value};

/// The result of a call that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// For the model: bounded, control characters made visible.
    pub text: String,
    /// For programs: exit, times, counts, paths.
    pub facts: Map<String, Value>,
    /// Whether what was asked for did not succeed, such as a command that exits with 1.
    pub is_error: bool,
}

impl Outcome {
    /// Something that went well.
    pub(crate) fn ok(text: impl Into<String>, facts: Value) -> Self {
        let facts = match facts {
            Value::Object(facts) => facts,
            _ => Map::new(),
        };
        Self {
            text: text.into(),
            facts,
            is_error: false,
        }
    }
}
