//! JSON schemas of tool arguments, with the keywords that every model provider accepts.
//!
//! In: the argument type of a tool. Out: a JSON schema with only those keywords that the tool
//! definitions of OpenAI, Gemini and Anthropic have in common: one `type` per value, no `$ref`, no
//! `format`, no `null`. A provider refuses the whole request for an unknown keyword, such as
//! `"format": "uint64"`.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Returns the schema of the arguments of a tool.
pub(super) fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    keep_common_keywords(&mut schema);
    // The doc comment of the type is for readers of the code; the tool has its own description.
    schema.remove("description");
    schema.to_value()
}

fn keep_common_keywords(schema: &mut Schema) {
    schema.remove("title");
    schema.remove("format");
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    // Optional arguments are those that are not in `required`. `null` is still accepted for them.
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
            // The doc comment of the argument is more specific than that of its type.
            if schema.get(key).is_none() {
                schema.insert(key.clone(), value.clone());
            }
        }
    }
    transform_subschemas(&mut keep_common_keywords, schema);
}
