//! The JSON objects of `--json`, one documented shape for all commands (requirement R025):
//!
//! ```json
//! {"version": 1, "success": true, "message": "...", "data": {...}, "error": null}
//! ```
//!
//! `docs/reference/json.md` describes `data` of each command.

use super::remedy::in_flags;
use crate::exit::CommandError;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Version of the shape. Fields are only ever added; anything else changes it.
pub(crate) const VERSION: u32 = 1;

/// A result. `success` is the command's, when one was run.
pub(crate) fn envelope(is_success: bool, message: &str, data: &Value) -> String {
    line(&json!({
        "version": VERSION,
        "success": is_success,
        "message": message,
        "data": data,
        "error": null,
    }))
}

/// A failure, with what is known anyway.
pub(crate) fn failure(error: &CommandError, data: &Value) -> String {
    let fault = &error.fault;
    let mut told = json!({
        "class": fault.class.to_string(),
        "code": error.code().as_str(),
        "message": fault.message,
        "remedy": fault.remedy.as_ref().map(in_flags),
        "retryable": fault.is_retryable,
    });
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

/// `name` as text; when the bytes are not UTF-8 also `name_b64`, exact.
pub(crate) fn output_fields(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let is_exact = matches!(text, Cow::Borrowed(_));
    object.insert(name.to_owned(), text.into());
    if !is_exact {
        object.insert(format!("{name}_b64"), base64(bytes).into());
    }
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0u32, |group, &byte| group << 8 | u32::from(byte))
            << (8 * (3 - chunk.len()));
        for index in 0..4 {
            let sextet = group >> (18 - 6 * index) & 0x3f;
            text.push(if index <= chunk.len() {
                char::from(ALPHABET[sextet as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_agrees_with_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn bytes_that_are_no_text_come_along_exactly() {
        let mut object = Map::new();
        output_fields(&mut object, "stdout", b"ok");
        output_fields(&mut object, "stderr", b"\xff");
        assert_eq!(
            Value::Object(object),
            json!({"stdout": "ok", "stderr": "\u{fffd}", "stderr_b64": "/w=="})
        );
    }
}
