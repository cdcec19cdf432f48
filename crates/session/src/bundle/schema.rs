//! Checks arguments and results of a tool against the JSON Schemas that its bundle declares.
//!
//! Schema and value are both untrusted, so the work of a check is bounded in advance: references
//! stay within the schema, none leads back to itself at the same place of the value, and the number
//! of visits to one place of a value is computed for every depth ([`Shape`]).

use glovebox_proto::visible::line_of_text as escape_text;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;

/// Maximum number of parts (subschemas) of a schema.
const MAX_PARTS: usize = 5000;
/// Maximum number of nested parts that apply to the same place of a value.
const MAX_NESTED: usize = 32;
/// Maximum depth of a checked value.
pub(super) const MAX_DEPTH: usize = 32;
/// Maximum number of visits to places of one value.
const MAX_LOOKS: u64 = 2_000_000;
/// Maximum number of steps of one pattern; below, bytes of its compiled form.
const PATTERN_STEPS: usize = 100_000;
const PATTERN_BYTES: usize = 1 << 20;
/// Maximum number of mismatches reported.
const MAX_TOLD: usize = 8;
const MAX_TOLD_CHARS: usize = 300;

/// Difference between a value and its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// JSON pointer to the place; empty for the whole value.
    pub path: String,
    /// Description of the difference.
    pub reason: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "/"
        } else {
            &self.path
        };
        write!(f, "{path}: {}", self.reason)
    }
}

/// Schema that can be checked with bounded work.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    /// Maximum number of visits to one place of a value, by depth of the value.
    looks: Vec<u64>,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// One sentence that names the unsupported or excessive part.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let looks = Shape::read(schema)?.looks();
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(PATTERN_STEPS)
            .size_limit(PATTERN_BYTES);
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(patterns)
            .build(schema)
            .map_err(|error| shown(&error.to_string()))?;
        Ok(Self { validator, looks })
    }

    /// Checks a value against the schema.
    ///
    /// # Errors
    /// The first few [`Mismatch`]es, at least one.
    pub fn check(&self, value: &Value) -> Result<(), Vec<Mismatch>> {
        let (depth, places) = measure(value);
        let looks = self
            .looks
            .get(depth)
            .map(|looks| looks.saturating_mul(places));
        if looks.is_none_or(|looks| looks > MAX_LOOKS) {
            return Err(vec![Mismatch {
                path: String::new(),
                reason: format!("it is too large or nests too deep ({depth} levels) to be checked"),
            }]);
        }
        let errors = self.validator.iter_errors(value).take(MAX_TOLD);
        let found: Vec<Mismatch> = errors
            .map(|error| Mismatch {
                path: shown(error.instance_path().as_str()),
                reason: shown(&error.to_string()),
            })
            .collect();
        if found.is_empty() { Ok(()) } else { Err(found) }
    }
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(MAX_TOLD_CHARS).collect();
    escape_text(&cut)
}

/// Returns the depth of a value and the number of its places. serde_json bounds the depth of parsed
/// values.
fn measure(value: &Value) -> (usize, u64) {
    let mut open = vec![(value, 0)];
    let (mut deepest, mut places) = (0, 0_u64);
    while let Some((value, depth)) = open.pop() {
        deepest = deepest.max(depth);
        places += 1;
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {}
        }
    }
    (deepest, places)
}

/// A part (subschema) of a schema.
#[derive(Debug, Default)]
struct Part {
    /// Parts that apply to the same place of the value.
    here: Vec<usize>,
    /// Groups of parts that apply to places below. At most one part of a group applies to each
    /// place.
    below: Vec<Vec<usize>>,
}

/// Graph of the parts of a schema.
#[derive(Debug)]
struct Shape<'a> {
    root: &'a Value,
    parts: Vec<Part>,
    known: HashMap<*const Value, usize>,
    unread: Vec<&'a Value>,
}

impl<'a> Shape<'a> {
    fn read(root: &'a Value) -> Result<Self, String> {
        let mut shape = Self {
            root,
            parts: Vec::new(),
            known: HashMap::new(),
            unread: Vec::new(),
        };
        shape.part(root);
        while let Some(schema) = shape.unread.pop() {
            if shape.parts.len() > MAX_PARTS {
                return Err(format!("the schema has more than {MAX_PARTS} parts"));
            }
            let part = shape.read_part(schema)?;
            let index = shape.part(schema);
            shape.parts[index] = part;
        }
        shape.check_nesting()?;
        Ok(shape)
    }

    /// Returns the index of a part, which is read later if it is new.
    fn part(&mut self, schema: &'a Value) -> usize {
        let next = self.parts.len();
        let index = *self.known.entry(std::ptr::from_ref(schema)).or_insert(next);
        if index == next {
            self.parts.push(Part::default());
            self.unread.push(schema);
        }
        index
    }

    fn read_part(&mut self, schema: &'a Value) -> Result<Part, String> {
        let mut part = Part::default();
        let Some(fields) = schema.as_object() else {
            return Ok(part);
        };
        let (mut of_names, mut of_items) = (Vec::new(), Vec::new());
        for (key, value) in fields {
            match key.as_str() {
                "$ref" => {
                    let target = self.target(value)?;
                    part.here.push(target);
                }
                "$dynamicRef" | "$recursiveRef" | "$id" | "$anchor" | "$dynamicAnchor" => {
                    return Err(format!(
                        "the schema has `{key}`, which is not supported here"
                    ));
                }
                "allOf" | "anyOf" | "oneOf" => {
                    for one in value.as_array().into_iter().flatten() {
                        part.here.push(self.part(one));
                    }
                }
                "not" | "if" | "then" | "else" => part.here.push(self.part(value)),
                "dependentSchemas" | "dependencies" => {
                    for one in value.as_object().into_iter().flat_map(|map| map.values()) {
                        part.here.push(self.part(one));
                    }
                }
                "properties" => {
                    for one in value.as_object().into_iter().flat_map(|map| map.values()) {
                        of_names.push(self.part(one));
                    }
                }
                "additionalProperties" => of_names.push(self.part(value)),
                "patternProperties" => {
                    for one in value.as_object().into_iter().flat_map(|map| map.values()) {
                        let one = self.part(one);
                        part.below.push(vec![one]);
                    }
                }
                "prefixItems" => {
                    for one in value.as_array().into_iter().flatten() {
                        of_items.push(self.part(one));
                    }
                }
                "items" | "additionalItems" if value.is_array() => {
                    for one in value.as_array().into_iter().flatten() {
                        of_items.push(self.part(one));
                    }
                }
                "items" | "additionalItems" => of_items.push(self.part(value)),
                "contains" | "propertyNames" | "unevaluatedItems" | "unevaluatedProperties" => {
                    let one = self.part(value);
                    part.below.push(vec![one]);
                }
                _ => {}
            }
        }
        part.below.extend([of_names, of_items]);
        Ok(part)
    }

    /// Resolves a reference, which must lead to a part of the same schema.
    fn target(&mut self, reference: &Value) -> Result<usize, String> {
        let text = reference.as_str().unwrap_or_default();
        let found = text
            .strip_prefix('#')
            .filter(|pointer| !pointer.contains('%'))
            .and_then(|pointer| self.root.pointer(pointer));
        match found {
            Some(schema) => Ok(self.part(schema)),
            None => Err(format!(
                "the schema refers to `{}`, which is not in it",
                shown(text)
            )),
        }
    }

    /// Returns an error if parts refer to themselves, or are nested too deep, at one place of a
    /// value.
    fn check_nesting(&self) -> Result<(), String> {
        // Level of a part: the depth of nested parts at the same place. It is known when all of
        // theirs are.
        let mut levels: Vec<Option<usize>> = vec![None; self.parts.len()];
        for _ in 0..=MAX_NESTED {
            for index in 0..self.parts.len() {
                let inner = self.parts[index].here.iter().map(|&one| levels[one]);
                let deepest = inner
                    .into_iter()
                    .try_fold(0, |most, level| Some(most.max(level? + 1)));
                if levels[index].is_none() {
                    levels[index] = deepest;
                }
            }
        }
        let is_fine = levels
            .iter()
            .all(|level| level.is_some_and(|level| level <= MAX_NESTED));
        if is_fine {
            return Ok(());
        }
        Err(format!(
            "the schema refers to itself at the same place, or to more than {MAX_NESTED} parts one after the other"
        ))
    }

    /// Computes the maximum number of visits to one place of a value, for each depth.
    fn looks(&self) -> Vec<u64> {
        let mut before = vec![0_u64; self.parts.len()];
        let mut looks = Vec::with_capacity(MAX_DEPTH + 1);
        for _ in 0..=MAX_DEPTH {
            let mut now: Vec<u64> = self
                .parts
                .iter()
                .map(|part| {
                    let below = part.below.iter().map(|group| {
                        let most = group.iter().map(|&one| before[one]).max();
                        most.unwrap_or(0)
                    });
                    below.fold(1, u64::saturating_add)
                })
                .collect();
            // The visits of nested parts are added until the sums are stable; no part contains
            // itself.
            let own = now.clone();
            for _ in 0..=MAX_NESTED {
                for (index, part) in self.parts.iter().enumerate() {
                    let here = part.here.iter().map(|&one| now[one]);
                    now[index] = here.fold(own[index], u64::saturating_add);
                }
            }
            looks.push(now.first().copied().unwrap_or(u64::MAX));
            before = now;
        }
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::{Duration, Instant};

    fn tree(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({ "a": inner, "b": 1 }))
    }

    #[test]
    fn a_value_is_checked_and_every_wrong_place_is_told() {
        let schema = json!({
            "type": "object",
            "properties": {
                "mode": { "enum": ["md5", "sha256"] },
                "text": { "type": "string", "minLength": 1, "pattern": "^(?!x)[a-z]+$" },
                "list": { "type": "array", "items": { "$ref": "#/$defs/n" } },
            },
            "required": ["mode", "text"],
            "additionalProperties": false,
            "$defs": { "n": { "type": "integer", "minimum": 0 } },
        });
        let schema = Schema::new(&schema).unwrap();
        schema
            .check(&json!({ "mode": "md5", "text": "abc", "list": [1, 2] }))
            .unwrap();
        let wrong =
            schema.check(&json!({ "mode": "sha1", "text": "x", "list": [1, -2], "more": 1 }));
        let mut paths: Vec<String> = wrong.unwrap_err().into_iter().map(|one| one.path).collect();
        paths.sort();
        assert_eq!(paths, ["", "/list/1", "/mode", "/text"]);
        let missing = schema.check(&json!({})).unwrap_err();
        assert!(
            missing.iter().any(|one| one.to_string().contains("mode")),
            "{missing:?}"
        );
    }

    #[test]
    fn what_is_told_of_a_value_shows_no_control_characters_and_is_bounded() {
        let schema =
            Schema::new(&json!({ "type": "object", "additionalProperties": false })).unwrap();
        let told = schema
            .check(&json!({ "\u{1b}[31m\n": "x".repeat(100_000) }))
            .unwrap_err();
        for one in told {
            let text = one.to_string();
            assert!(
                text.len() < 4 * MAX_TOLD_CHARS && !text.contains(['\u{1b}', '\n']),
                "{text:?}"
            );
        }
    }

    #[test]
    fn schemas_that_lead_round_or_elsewhere_are_refused() {
        let chain: Value = (0..100)
            .map(|n| {
                (
                    format!("d{n}"),
                    json!({ "$ref": format!("#/$defs/d{}", n + 1) }),
                )
            })
            .chain([("d100".to_owned(), json!({}))])
            .collect::<serde_json::Map<_, _>>()
            .into();
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#/$defs/a" }], "$defs": { "a": { "anyOf": [{ "$ref": "#" }] } } }),
            json!({ "$ref": "http://127.0.0.1:1/x.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "$ref": "#/$defs/none" }),
            json!({ "$id": "http://a.example/", "$ref": "x" }),
            json!({ "$dynamicRef": "#x" }),
            json!({ "$ref": "#/$defs/d0", "$defs": chain }),
            json!({ "type": 7 }),
            json!({ "pattern": "(" }),
        ] {
            assert!(Schema::new(&schema).is_err(), "{schema}");
        }
    }

    /// Recursion through a property is ordinary; through several branches at once it doubles with
    /// every level.
    #[test]
    fn work_that_doubles_with_every_level_is_refused_before_it_begins() {
        let list = json!({ "type": "object", "properties": { "a": { "$ref": "#" } } });
        Schema::new(&list).unwrap().check(&tree(30)).unwrap();
        let branch = json!({ "properties": { "a": { "$ref": "#" } } });
        let doubling = json!({ "anyOf": [{ "allOf": [branch, { "type": "string" }] }, branch] });
        let schema = Schema::new(&doubling).unwrap();
        schema.check(&tree(5)).unwrap();
        let begun = Instant::now();
        let refused = schema.check(&tree(30)).unwrap_err();
        assert!(refused[0].reason.contains("nests too deep"), "{refused:?}");
        assert!(begun.elapsed() < Duration::from_secs(1));
        // The same without recursion, through definitions.
        let levels: serde_json::Map<String, Value> = (0..31)
            .map(|n| {
                let next =
                    json!({ "properties": { "a": { "$ref": format!("#/$defs/d{}", n + 1) } } });
                (format!("d{n}"), json!({ "allOf": [next, next] }))
            })
            .chain([("d31".to_owned(), json!({}))])
            .collect();
        let schema = Schema::new(&json!({ "$ref": "#/$defs/d0", "$defs": levels })).unwrap();
        assert!(schema.check(&tree(30)).is_err());
    }

    #[test]
    fn a_pattern_cannot_run_for_long() {
        let schema = Schema::new(&json!({ "pattern": "^(?=(a+)+$)(a|a)*$\\1?" })).unwrap();
        let begun = Instant::now();
        let _ = schema.check(&json!(format!("{}b", "a".repeat(5000))));
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(Schema::new(&json!({ "pattern": "(((a{1000}){1000}){1000})" })).is_err());
    }

    /// The deepest check fits the smallest stack that one is made on.
    #[test]
    fn the_deepest_check_fits_the_stack_of_a_thread() {
        let mut schema = json!({ "properties": { "a": { "$ref": "#" } } });
        for _ in 0..MAX_NESTED / 2 {
            schema = json!({ "allOf": [schema] });
        }
        let value = tree(MAX_DEPTH);
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let checked = thread.spawn(move || Schema::new(&schema).unwrap().check(&value).is_ok());
        checked.unwrap().join().unwrap();
    }
}
