//! Normal form of JSON Schemas, which removes the intended differences from zod.

use serde_json::{Map, Value, json};

/// Returns the normal form of a schema. zod's versions themselves differ in these points.
pub(crate) fn comparable(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return match value {
            Value::Array(items) => items.iter().map(comparable).collect(),
            other => other.clone(),
        };
    };
    let mut fields: Map<String, Value> = fields
        .iter()
        .map(|(key, value)| (key.clone(), comparable(value)))
        .collect();
    // Names of zod's internal checks, not formats of JSON Schema.
    if matches!(
        fields.get("format").and_then(Value::as_str),
        Some("starts_with" | "ends_with" | "includes" | "regex" | "lowercase" | "uppercase")
    ) {
        fields.remove("format");
    }
    // zod also writes a format as a pattern.
    if fields.contains_key("format") && fields.get("pattern").is_some_and(Value::is_string) {
        fields.remove("pattern");
    }
    // `{"anyOf": [{"type": "boolean"}, {"type": "null"}]}` equals `{"type": ["boolean", "null"]}`,
    // in any order.
    let types = match (fields.get("anyOf"), fields.get("type")) {
        (Some(Value::Array(options)), None) => options.iter().map(bare_types).collect(),
        (None, Some(Value::Array(types))) => Some(vec![types.clone()]),
        (None, Some(name @ Value::String(_))) => Some(vec![vec![name.clone()]]),
        _ => None,
    };
    if let Some(types) = types {
        let mut types: Vec<String> = types
            .concat()
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        types.sort();
        types.dedup();
        fields.remove("anyOf");
        fields.insert("type".to_owned(), types.into());
    }
    Value::Object(fields)
}

/// Returns the types of a schema that has no other keyword.
fn bare_types(schema: &Value) -> Option<Vec<Value>> {
    let fields = schema.as_object()?;
    match fields.get("type")? {
        _ if fields.len() != 1 => None,
        Value::Array(types) => Some(types.clone()),
        name => Some(vec![name.clone()]),
    }
}

/// Returns the normal form of a schema of zod 3, whose converter writes an older JSON Schema.
pub(crate) fn comparable_3(value: &Value) -> Value {
    comparable(&modern(value))
}

/// Converts an older JSON Schema, and removes keywords that we write and zod 3 does not.
fn modern(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return match value {
            Value::Array(items) => items.iter().map(modern).collect(),
            other => other.clone(),
        };
    };
    let mut fields: Map<String, Value> = fields
        .iter()
        .map(|(key, value)| (key.clone(), modern(value)))
        .collect();
    // The older form has the list in `items`, and the schema of further items in `additionalItems`.
    if fields.get("items").is_some_and(Value::is_array)
        && let Some(items) = fields.remove("items")
    {
        fields.insert("prefixItems".to_owned(), items);
        let rest = fields.remove("additionalItems");
        fields.insert("items".to_owned(), rest.unwrap_or(json!(false)));
    }
    // An empty schema accepts everything.
    for word in ["additionalProperties", "items"] {
        if matches!(fields.get(word), Some(value) if *value == json!({}) || *value == json!(true)) {
            fields.remove(word);
        }
    }
    // Keys are always strings.
    if fields.get("propertyNames") == Some(&json!({"type": "string"})) {
        fields.remove("propertyNames");
    }
    // zod 3 accepts every integer, zod 4 those that JavaScript represents exactly.
    for word in ["minimum", "maximum"] {
        if fields.get(word).and_then(Value::as_i64).map(i64::abs) == Some(9_007_199_254_740_991) {
            fields.remove(word);
        }
    }
    // In zod 3, descriptions move to the enclosing schema. Those of zod 4 are compared.
    if fields.get("description").is_some_and(Value::is_string) {
        fields.remove("description");
    }
    // `.*` at an end has no effect.
    if let Some(Value::String(pattern)) = fields.get_mut("pattern") {
        let bare = pattern.strip_prefix(".*").unwrap_or(pattern);
        *pattern = bare.strip_suffix(".*").unwrap_or(bare).to_owned();
    }
    // The older form writes a union of literals as `enum`.
    if let Some(Value::Array(options)) = fields.get("anyOf")
        && let Some(values) = options
            .iter()
            .map(|option| option.get("const").cloned())
            .collect::<Option<Vec<_>>>()
    {
        let types = options
            .iter()
            .filter_map(|option| option.get("type").cloned());
        let types: Vec<Value> = types.collect();
        let mut values = values;
        values.dedup();
        fields.remove("anyOf");
        fields.insert("enum".to_owned(), values.into());
        fields.insert("type".to_owned(), types.into());
    }
    // The older form writes `oneOf` as `anyOf`.
    if let Some(options) = fields.remove("oneOf") {
        fields.insert("anyOf".to_owned(), options);
    }
    Value::Object(fields)
}
