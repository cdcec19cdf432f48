//! The JSON objects of `--json`, one documented shape for all commands (requirement R025):
//!
//! ```json
//! {"version": 1, "success": true, "message": "...", "data": {...}, "error": null}
//! ```
//!
//! `docs/reference/json.md` describes `data` of each command.

use super::remedy::in_flags;
use crate::exit::CommandError;
use serde_json::{Value, json};

/// Version of the shape. Adding a field keeps it; any other change increments it.
pub(crate) const VERSION: u32 = 1;

/// Returns the line for a result. `is_success` is the outcome of the executed command, if there was
/// one.
pub(crate) fn envelope(is_success: bool, message: &str, data: &Value) -> String {
    line(&json!({
        "version": VERSION,
        "success": is_success,
        "message": message,
        "data": data,
        "error": null,
    }))
}

/// Returns the line for a failure, with the data that is known nevertheless.
pub(crate) fn failure(error: &CommandError, data: &Value) -> String {
    let fault = &error.fault;
    let mut told = json!({
        "class": fault.class.to_string(),
        "code": error.code().as_str(),
        "message": fault.message,
        "remedy": fault.remedy.as_ref().map(in_flags),
        "retryable": fault.is_retryable,
    });
    if !error.details.is_empty() {
        told["details"] = json!(error.details);
    }
    if let Some((direction, stage)) = error.at {
        told["direction"] = direction.to_string().into();
        told["stage"] = stage.to_string().into();
        told["cause"] = fault.code.as_str().into();
    }
    line(&json!({
        "version": VERSION,
        "success": false,
        "message": fault.message,
        "data": data,
        "error": told,
    }))
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}
