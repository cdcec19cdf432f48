//! Schema of zod in conversion, and combinations of several.

use crate::Json;
use crate::value::*;
use std::rc::Rc;

/// Schema of zod in conversion to JSON Schema.
pub(super) struct ZodSchema<'a> {
    pub json: Json,
    /// True if an object may omit the field, in the input and in the output.
    pub is_optional_in: bool,
    pub is_optional_out: bool,
    pub patterns: Vec<String>,
    /// Object whose fields are not written yet.
    pub fields: Option<Rc<Made<'a>>>,
}

impl ZodSchema<'_> {
    pub(super) const fn new(json: Json) -> Self {
        Self {
            json,
            is_optional_in: false,
            is_optional_out: false,
            patterns: Vec::new(),
            fields: None,
        }
    }

    pub(super) fn typed(name: &str) -> Self {
        let mut json = Json::object();
        json.set("type", name.into());
        Self::new(json)
    }

    pub(super) fn has_type(&self, name: &str) -> bool {
        self.json.get("type") == Some(&name.into())
    }
}

pub(super) fn reference(target: &str) -> Json {
    let mut json = Json::object();
    json.set("$ref", target.into());
    json
}

pub(super) fn array_of<'a>(items: Json) -> ZodSchema<'a> {
    let mut schema = ZodSchema::typed("array");
    schema.json.set("items", items);
    schema
}

pub(super) fn enum_of<'a>(members: Vec<Json>) -> ZodSchema<'a> {
    let mut schema = ZodSchema::new(Json::object());
    if let Some(name @ ("string" | "number")) = shared_type(&members) {
        schema.json.set("type", name.into());
    }
    schema.json.set("enum", Json::Array(members));
    schema
}

pub(super) fn either<'a>(word: &str, options: Vec<ZodSchema<'a>>) -> ZodSchema<'a> {
    let mut schema = ZodSchema::new(Json::object());
    schema.is_optional_in = options.iter().any(|option| option.is_optional_in);
    schema.is_optional_out = options.iter().any(|option| option.is_optional_out);
    let options = options.into_iter().map(|option| option.json).collect();
    schema.json.set(word, Json::Array(options));
    schema
}

pub(super) fn both<'a>(left: ZodSchema<'a>, right: ZodSchema<'a>) -> ZodSchema<'a> {
    if let Some(json) = merge_objects(&left.json, &right.json) {
        return ZodSchema::new(json);
    }
    let mut all = Vec::new();
    for side in [left, right] {
        match side.json {
            // An intersection of intersections becomes one list.
            Json::Object(mut entries) if entries.len() == 1 && entries[0].0 == "allOf" => {
                if let Json::Array(more) = entries.remove(0).1 {
                    all.extend(more);
                }
            }
            json => all.push(json),
        }
    }
    let mut schema = ZodSchema::new(Json::object());
    schema.json.set("allOf", Json::Array(all));
    schema
}

/// Merges two objects into one with the fields of both; `None` if they have other keywords. In an
/// `allOf`, two objects that refuse unknown fields would refuse each other's fields; zod refuses
/// only fields that neither names.
fn merge_objects(left: &Json, right: &Json) -> Option<Json> {
    let mut merged = Json::object();
    merged.set("type", "object".into());
    let mut properties = Json::object();
    let mut required = Vec::new();
    let mut are_closed = true;
    for side in [left, right] {
        let Json::Object(entries) = side else {
            return None;
        };
        let mut is_closed = false;
        for (word, value) in entries {
            match (word.as_str(), value) {
                ("type", Json::String(name)) if name == "object" => {}
                ("properties", Json::Object(fields)) => {
                    for (name, field) in fields {
                        let field = match properties.get(name) {
                            None => field.clone(),
                            Some(other) if other == field => field.clone(),
                            Some(other) => {
                                let mut all = Json::object();
                                all.set("allOf", Json::Array(vec![other.clone(), field.clone()]));
                                all
                            }
                        };
                        properties.set(name, field);
                    }
                }
                ("required", Json::Array(names)) => {
                    for name in names {
                        if !required.contains(name) {
                            required.push(name.clone());
                        }
                    }
                }
                ("additionalProperties", Json::Boolean(false)) => is_closed = true,
                _ => return None,
            }
        }
        side.get("properties")?;
        are_closed &= is_closed;
    }
    merged.set("properties", properties);
    if !required.is_empty() {
        merged.set("required", Json::Array(required));
    }
    if are_closed {
        merged.set("additionalProperties", Json::Boolean(false));
    }
    Some(merged)
}

/// Returns the type that all values share.
pub(super) fn shared_type(values: &[Json]) -> Option<&'static str> {
    let of = |value: &Json| match value {
        Json::Null => Some("null"),
        Json::Boolean(_) => Some("boolean"),
        Json::Number(_) => Some("number"),
        Json::String(_) => Some("string"),
        _ => None,
    };
    let first = of(values.first()?)?;
    values
        .iter()
        .all(|value| of(value) == Some(first))
        .then_some(first)
}
