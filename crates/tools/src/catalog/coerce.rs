//! Conversion of arguments as models send them to the types of the schema, where only one reading
//! is possible: `null` for an absent argument, `"2"` for a number, `"true"` for a boolean, a list
//! as text. All other values stay unchanged, and parsing refuses those that do not fit.

use serde_json::{Map, Number, Value};

/// Converts `value` to the types of `schema`, which `super::schema` made.
pub(super) fn coerce(schema: &Value, value: &mut Value) {
    match schema["type"].as_str() {
        Some("object") => {
            parse_text(value, Value::is_object);
            if let Value::Object(arguments) = value {
                coerce_properties(schema, arguments);
            }
        }
        Some("array") => {
            parse_text(value, Value::is_array);
            if let Value::Array(items) = value {
                for item in items {
                    coerce(&schema["items"], item);
                }
            }
        }
        Some("integer") => {
            parse_text(value, Value::is_number);
            if let Some(whole) = as_whole(value) {
                *value = Value::Number(whole);
            }
        }
        Some("number") => parse_text(value, Value::is_number),
        Some("boolean") => {
            let word = value.as_str().map(str::trim);
            if let Some(word) = word.map(str::to_ascii_lowercase)
                && let Ok(truth) = word.parse()
            {
                *value = Value::Bool(truth);
            }
        }
        _ => {}
    }
}

fn coerce_properties(schema: &Value, arguments: &mut Map<String, Value>) {
    let required = schema["required"].as_array();
    let is_required =
        |name: &String| required.is_some_and(|names| names.iter().any(|word| word == name));
    arguments.retain(|name, value| !value.is_null() || is_required(name));
    for (name, value) in arguments {
        coerce(&schema["properties"][name], value);
    }
}

/// Replaces a string that contains JSON of the wanted type by the parsed value.
fn parse_text(value: &mut Value, is_wanted: fn(&Value) -> bool) {
    if let Some(text) = value.as_str()
        && let Ok(parsed) = serde_json::from_str::<Value>(text)
        && is_wanted(&parsed)
    {
        *value = parsed;
    }
}

/// Returns a floating-point number without a fraction (`2.0`) as an integer.
fn as_whole(value: &Value) -> Option<Number> {
    /// Largest value up to which every integer has an exact `f64` (2^53).
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value
        .as_f64()
        .filter(|_| !value.is_i64() && !value.is_u64())?;
    (number.fract() == 0.0 && number.abs() <= MAX_EXACT).then(|| Number::from(number as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn coerced(mut value: Value) -> Value {
        let schema = json!({
            "type": "object",
            "required": ["path"],
            "properties": {
                "path": { "type": "string" },
                "limit": { "type": "integer" },
                "all": { "type": "boolean" },
                "edits": { "type": "array", "items": {
                    "type": "object",
                    "properties": { "line": { "type": "integer" } },
                } },
            },
        });
        coerce(&schema, &mut value);
        value
    }

    #[test]
    fn what_can_be_read_in_one_way_is() {
        for (sent, meant) in [
            (json!({ "limit": "2" }), json!({ "limit": 2 })),
            (json!({ "limit": 2.0 }), json!({ "limit": 2 })),
            (json!({ "limit": "-2" }), json!({ "limit": -2 })),
            (json!({ "limit": null }), json!({})),
            (json!({ "all": "True" }), json!({ "all": true })),
            (
                json!({ "edits": "[{\"line\": \"3\"}]" }),
                json!({ "edits": [{ "line": 3 }] }),
            ),
            (json!("{\"limit\": 1}"), json!({ "limit": 1 })),
        ] {
            assert_eq!(coerced(sent), meant);
        }
    }

    #[test]
    fn everything_else_stays_as_it_was_sent() {
        for sent in [
            json!({ "path": "2" }),
            json!({ "path": "true" }),
            json!({ "path": "null" }),
            json!({ "path": null }),
            json!({ "limit": "two" }),
            json!({ "limit": 2.5 }),
            json!({ "limit": "" }),
            json!({ "limit": true }),
            json!({ "limit": "[2]" }),
            json!({ "limit": u64::MAX }),
            json!({ "all": 1 }),
            json!({ "all": "yes" }),
            json!({ "edits": "x" }),
            json!({ "unknown": "2" }),
            json!([1]),
        ] {
            assert_eq!(coerced(sent.clone()), sent);
        }
    }
}
