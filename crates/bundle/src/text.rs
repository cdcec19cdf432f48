//! Strings as JavaScript makes them: formatted numbers, and templates without indentation.

use crate::value::Value;
use oxc_syntax::number::ToJsString;

/// Converts a value to a string; `None` for objects, functions and unknown values.
pub(crate) fn of_value(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Undefined => "undefined".to_owned(),
        Value::Null => "null".to_owned(),
        Value::Boolean(value) => value.to_string(),
        Value::Number(value) => value.to_js_string(),
        Value::Text(text) | Value::BigInt(text) => text.to_string(),
        _ => return None,
    })
}

/// Converts a value to the key of a property.
pub(crate) fn of_key(value: &Value<'_>) -> Option<String> {
    of_value(value)
}

/// Applies the tag `dedent`: removes the indentation that all lines share, and blank ends.
pub(crate) fn dedent(text: &str) -> String {
    let indent = text
        .lines()
        .skip(1)
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.len() - line.trim_start_matches([' ', '\t']).len())
        .min()
        .unwrap_or(0);
    let mut lines = text.split('\n');
    let mut result = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        result.push('\n');
        let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
        result.push_str(&line[blanks.min(indent)..]);
    }
    result.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_javascript_writes_them() {
        for (number, text) in [
            (1.0, "1"),
            (-0.0, "0"),
            (0.1, "0.1"),
            (1e21, "1e+21"),
            (1e-7, "1e-7"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(of_value(&Value::Number(number)).as_deref(), Some(text));
        }
    }

    #[test]
    fn shared_indentation_goes() {
        assert_eq!(dedent("\n    a\n      b\n\n    c\n  "), "a\n  b\n\nc");
        assert_eq!(dedent("a\n  b"), "a\nb");
        assert_eq!(dedent(""), "");
    }
}
