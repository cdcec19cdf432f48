//! Schemas of tool arguments, in the words that every model provider understands.
//!
//! In: the argument type of a tool. Out: a JSON schema of only those keywords that OpenAI's, Gemini's
//! and Anthropic's tool definitions have in common: one `type` per value, no `$ref`, no `format`, no
//! `null`. Providers refuse a whole request for a keyword they do not know, such as `"format": "uint64"`.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Schema of the arguments of a tool.
pub(super) fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    keep_common_keywords(&mut schema);
    // The documentation of the type is for readers of the code, and no part of the contract.
    schema.remove("description");
    schema.to_value()
}

fn keep_common_keywords(schema: &mut Schema) {
    schema.remove("title");
    schema.remove("format");
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    // An optional argument is one that is not in `required`; `null` is taken for it all the same.
    if let Some(Value::Array(types)) = schema.get("type")
        && let [only] = &*types
            .iter()
            .filter(|kind| *kind != "null")
            .cloned()
            .collect::<Vec<_>>()
    {
        schema.insert("type".to_owned(), only.clone());
    }
    if let Some(Value::Array(choices)) = schema.get("anyOf")
        && let [Value::Object(only)] = &*choices
            .iter()
            .filter(|choice| choice["type"] != "null")
            .cloned()
            .collect::<Vec<_>>()
    {
        schema.remove("anyOf");
        for (key, value) in only {
            // The documentation of the argument is closer to its use than that of its type.
            if schema.get(key).is_none() {
                schema.insert(key.clone(), value.clone());
            }
        }
    }
    transform_subschemas(&mut keep_common_keywords, schema);
}
