//! Applies a tool's schema to arguments that fit it: inserts defaults and, for zod schemas, drops
//! fields that an object does not declare. Outside Glovebox, zod does the same before `execute`
//! receives its input, and tools rely on it.

use super::schema::{MAX_DEPTH, Mismatch};
use serde_json::{Map, Value};

/// Maximum number of bytes of JSON added to one call: a short list of empty objects must not become
/// a large one.
const MAX_ADDED_BYTES: usize = 1 << 20;
/// Maximum number of references followed in a row.
const MAX_REFERENCES: usize = 8;

/// Inserts the defaults of a schema into a value that fits it. With `drops_unknown`, removes fields
/// that the schema's objects do not declare.
///
/// # Errors
/// The result would be much larger, or nested deeper than a value may be.
pub(super) fn fill_defaults(
    schema: &Value,
    drops_unknown: bool,
    value: &mut Value,
) -> Result<(), Mismatch> {
    let mut filler = Filler {
        root: schema,
        drops_unknown,
        left_bytes: MAX_ADDED_BYTES,
    };
    filler.fill(schema, value, 0).ok_or_else(|| Mismatch {
        path: String::new(),
        reason: format!(
            "with the defaults of its parts it has {MAX_ADDED_BYTES} bytes more, or over {MAX_DEPTH} levels"
        ),
    })
}

struct Filler<'s> {
    root: &'s Value,
    drops_unknown: bool,
    left_bytes: usize,
}

impl<'s> Filler<'s> {
    /// Fills one value. `None` if there is no room for more. The work is bounded by the check
    /// before, which visits the same parts of the schema at the same places of the value. Places
    /// that exist only through defaults are bounded by their bytes and their depth, since a default
    /// may itself be filled by a part that refers back to it.
    fn fill(&mut self, schema: &'s Value, value: &mut Value, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        let Some(parts) = self.resolve(schema).as_object() else {
            return Some(());
        };
        // Each part of `allOf` declares only its own fields.
        let drops_unknown = self.drops_unknown;
        self.drops_unknown = false;
        for one in list(parts, "allOf") {
            self.fill(one, value, depth)?;
        }
        self.drops_unknown = drops_unknown;
        for key in ["anyOf", "oneOf"] {
            let mut fitting = list(parts, key).filter(|one| self.may_fit(one, value));
            // If several alternatives may fit, it is unknown which one is meant.
            if let (Some(only), None) = (fitting.next(), fitting.next()) {
                self.fill(only, value, depth)?;
            }
        }
        match value {
            Value::Object(fields) => self.fill_fields(parts, fields, depth + 1),
            Value::Array(items) => {
                let mut first = list(parts, "prefixItems");
                for item in items {
                    if let Some(schema) = first.next().or_else(|| parts.get("items")) {
                        self.fill(schema, item, depth + 1)?;
                    }
                }
                Some(())
            }
            _ => Some(()),
        }
    }

    fn fill_fields(
        &mut self,
        parts: &'s Map<String, Value>,
        fields: &mut Map<String, Value>,
        depth: usize,
    ) -> Option<()> {
        let declared = parts.get("properties").and_then(Value::as_object);
        if let Some(others) = parts.get("additionalProperties") {
            for (name, value) in fields.iter_mut() {
                if declared.is_none_or(|declared| !declared.contains_key(name)) {
                    self.fill(others, value, depth)?;
                }
            }
        }
        if let Some(declared) = declared
            && self.drops_unknown
            && !parts.contains_key("additionalProperties")
            && !parts.contains_key("allOf")
        {
            fields.retain(|name, _| declared.contains_key(name));
        }
        for (name, schema) in declared.into_iter().flatten() {
            if let Some(value) = fields.get_mut(name) {
                self.fill(schema, value, depth)?;
            } else if let Some(default) = self.default_of(schema) {
                let bytes = name.len() + default.to_string().len();
                self.left_bytes = self.left_bytes.checked_sub(bytes)?;
                fields.insert(name.clone(), default.clone());
            }
        }
        Some(())
    }

    fn default_of(&self, schema: &'s Value) -> Option<&'s Value> {
        schema
            .get("default")
            .or_else(|| self.resolve(schema).get("default"))
    }

    /// Follows the references of a schema.
    fn resolve(&self, schema: &'s Value) -> &'s Value {
        let mut found = schema;
        for _ in 0..MAX_REFERENCES {
            let target = found.get("$ref").and_then(Value::as_str);
            let target = target.and_then(|text| text.strip_prefix('#'));
            match target.and_then(|pointer| self.root.pointer(pointer)) {
                Some(next) => found = next,
                None => break,
            }
        }
        found
    }

    /// Returns true if a value may belong to one of several alternatives, judging by types and
    /// constants.
    fn may_fit(&self, schema: &'s Value, value: &Value) -> bool {
        let schema = self.resolve(schema);
        let is_type = |name: &Value| match name.as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("number" | "integer") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            Some("null") => value.is_null(),
            _ => true,
        };
        let has_type = match schema.get("type") {
            Some(Value::Array(names)) => names.iter().any(is_type),
            Some(name) => is_type(name),
            None => true,
        };
        let declared = schema.get("properties").and_then(Value::as_object);
        let has_constants = declared.into_iter().flatten().all(|(name, schema)| {
            schema
                .get("const")
                .is_none_or(|constant| value.get(name) == Some(constant))
        });
        has_type && has_constants
    }
}

fn list<'s>(parts: &'s Map<String, Value>, key: &str) -> impl Iterator<Item = &'s Value> {
    parts
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_gets_its_default_at_every_place() {
        let schema = json!({
            "type": "object",
            "properties": {
                "mode": { "type": "string", "default": "fast" },
                "deep": { "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } } },
                "list": { "type": "array", "items": { "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } } } },
                "either": { "anyOf": [{ "type": "object", "properties": { "n": { "default": 7 } } }, { "type": "null" }] },
                "shape": { "oneOf": [
                    { "type": "object", "properties": { "kind": { "const": "a" }, "x": { "default": 1 } } },
                    { "type": "object", "properties": { "kind": { "const": "b" }, "y": { "default": 2 } } },
                ] },
                "unclear": { "anyOf": [
                    { "type": "object", "properties": { "x": { "default": 1 } } },
                    { "type": "object", "properties": { "y": { "default": 2 } } },
                ] },
            },
            "allOf": [{ "properties": { "both": { "default": [] } } }],
            "$defs": { "n": { "type": "number", "default": 0 } },
        });
        let mut value = json!({
            "deep": {}, "list": [{}, { "n": 5 }], "either": {}, "shape": { "kind": "b" }, "unclear": {}
        });
        fill_defaults(&schema, false, &mut value).unwrap();
        assert_eq!(
            value,
            json!({
                "mode": "fast", "both": [], "deep": { "n": 0 }, "list": [{ "n": 0 }, { "n": 5 }],
                "either": { "n": 7 }, "shape": { "kind": "b", "y": 2 }, "unclear": {},
            })
        );
        let mut given = json!({ "mode": "slow" });
        fill_defaults(&schema, false, &mut given).unwrap();
        assert_eq!(given, json!({ "mode": "slow", "both": [] }));
    }

    #[test]
    fn defaults_make_no_large_value_of_a_small_one() {
        let schema =
            json!({ "items": { "properties": { "x": { "default": "x".repeat(60_000) } } } });
        let mut value = Value::Array(vec![json!({}); 10]);
        assert!(fill_defaults(&schema, false, &mut value).is_ok());
        let mut value = Value::Array(vec![json!({}); 20]);
        assert!(fill_defaults(&schema, false, &mut value).is_err());
    }

    #[test]
    fn a_default_that_is_filled_by_itself_ends() {
        let schema = json!({
            "allOf": [{ "properties": { "x": { "default": {} } } }],
            "properties": { "x": { "$ref": "#" } },
        });
        assert!(fill_defaults(&schema, false, &mut json!({})).is_err());
    }

    #[test]
    fn fields_that_zod_does_not_know_are_dropped() {
        let schema = json!({
            "type": "object",
            "properties": {
                "plain": { "type": "object", "properties": { "a": {} } },
                "loose": { "type": "object", "properties": { "a": {} }, "additionalProperties": {} },
                "record": { "type": "object", "additionalProperties": { "type": "object", "properties": {} } },
                "either": { "anyOf": [{ "type": "object", "properties": { "a": {} } }, { "type": "null" }] },
                "both": { "allOf": [{ "type": "object", "properties": { "a": {} } }, { "type": "object", "properties": { "b": {} } }] },
                "any": {},
            },
        });
        let inner = json!({ "a": 1, "b": 2 });
        let value = json!({
            "plain": inner, "loose": inner, "record": { "x": inner }, "either": inner, "both": inner, "any": inner, "more": 1,
        });
        let mut given = value.clone();
        fill_defaults(&schema, true, &mut given).unwrap();
        assert_eq!(
            given,
            json!({
                "plain": { "a": 1 }, "loose": inner, "record": { "x": {} }, "either": { "a": 1 }, "both": inner, "any": inner,
            })
        );
        let mut given = value.clone();
        fill_defaults(&schema, false, &mut given).unwrap();
        assert_eq!(given, value);
    }
}
