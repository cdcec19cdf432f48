//! Conversion of tools' schemas to JSON Schema 2020-12: schemas of zod, `jsonSchema(...)` of the AI
//! SDK, and plain JSON Schema.
//!
//! The reference is zod's own `toJSONSchema`. Parts that JSON Schema cannot express (`refine`,
//! `transform`) are left out with a warning: the result may accept more than the schema in the
//! bundle, never less.

mod checks;
mod unknown_keys;
mod zod;
mod zod_schema;

use crate::evaluate::Evaluator;
use crate::limits::MAX_DEPTH;
use crate::problem::ProblemCode;
use crate::provenance::{self, Factory};
use crate::value::*;
use crate::{Json, data};
use oxc_span::Span;
use std::rc::Rc;

/// Side of a schema: the input of a tool, or its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Input,
    Output,
}

/// Keywords of JSON Schema. A plain schema must have at least one.
const KEYWORDS: [&str; 12] = [
    "type",
    "properties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "enum",
    "const",
    "$ref",
    "items",
    "additionalProperties",
    "$schema",
];

const UNRECOGNISED_HINT: &str = "Use zod, `jsonSchema({...})` or a plain JSON Schema, and keep zod out of minified \
    bundles (`external: [\"zod\"]`).";

/// Converter from schemas to JSON Schema, with their problems.
pub(crate) struct Converter<'e, 'a> {
    evaluator: &'e Evaluator<'a>,
    side: Side,
    /// Errors and warnings.
    pub(crate) notes: Vec<Refusal>,
    /// Schemas in conversion, outermost first, to detect those that contain themselves; with the
    /// name of the definition if a reference needs one.
    active: Vec<(*const Made<'a>, Option<String>)>,
    definitions: Vec<(String, Json)>,
    depth: u32,
}

impl<'e, 'a> Converter<'e, 'a> {
    pub(crate) const fn new(evaluator: &'e Evaluator<'a>, side: Side) -> Self {
        Self {
            evaluator,
            side,
            notes: Vec::new(),
            active: Vec::new(),
            definitions: Vec::new(),
            depth: 0,
        }
    }

    /// Returns the JSON Schema of a tool's input or output.
    pub(crate) fn convert(&mut self, schema: &Placed<'a>) -> Json {
        let mut json = self.any(schema);
        if !self.definitions.is_empty() {
            let definitions = std::mem::take(&mut self.definitions);
            json.set("$defs", Json::Object(definitions));
        }
        json
    }

    fn any(&mut self, schema: &Placed<'a>) -> Json {
        match &schema.value {
            Value::Unknown(refusal) => {
                self.unknown(schema, refusal);
                Json::object()
            }
            Value::Made(made) if provenance::is_zod(&made.origin().package) => self.zod(made).json,
            Value::Made(made) => match &made.callee {
                Callee::Import(path) => match (provenance::factory(path), made.argument(0)) {
                    (Some(Factory::JsonSchema), Some(inner)) => self.any(inner),
                    _ if path.path.last().is_some_and(|name| {
                        matches!(&**name, "zodSchema" | "asSchema" | "lazySchema")
                    }) =>
                    {
                        match made.argument(0) {
                            Some(inner) => self.any(inner),
                            None => self.unrecognised(schema),
                        }
                    }
                    _ => self.unrecognised(schema),
                },
                Callee::Method(..) => self.unrecognised(schema),
            },
            Value::Object(object) => {
                if !object.entries.is_empty()
                    && !object
                        .entries
                        .iter()
                        .any(|entry| KEYWORDS.contains(&&*entry.key))
                {
                    return self.unrecognised(schema);
                }
                match data::to_json(self.evaluator, schema) {
                    Ok(json) => json,
                    Err(refusal) => {
                        self.notes.push(refusal);
                        Json::object()
                    }
                }
            }
            Value::Boolean(true) => Json::object(),
            Value::Function(closure) => {
                if self.depth >= MAX_DEPTH {
                    return self.too_deep(schema.span);
                }
                self.depth += 1;
                let inner = Placed {
                    value: self.evaluator.call(closure, Vec::new(), schema.span),
                    span: schema.span,
                };
                let json = self.any(&inner);
                self.depth -= 1;
                json
            }
            _ => self.unrecognised(schema),
        }
    }

    /// Reports a schema whose value is unknown. If the reason lies in a function that makes the
    /// schema, that function is most likely zod itself, bundled and minified.
    fn unknown(&mut self, schema: &Placed<'a>, refusal: &Refusal) {
        let is_inside =
            schema.span.start <= refusal.span.start && refusal.span.end <= schema.span.end;
        if is_inside || refusal.code != ProblemCode::DynamicValue {
            self.notes.push(refusal.clone());
            return;
        }
        self.notes.push(
            Refusal::new(
                ProblemCode::SchemaUnrecognised,
                schema.span,
                "the schema is made by functions of the bundle that are not known here",
                UNRECOGNISED_HINT,
            )
            .also(refusal.span, refusal.reason.clone()),
        );
    }

    fn unrecognised(&mut self, schema: &Placed<'a>) -> Json {
        if let Some(imported) = provenance::imported(&schema.value, schema.span) {
            self.notes.push(imported);
            return Json::object();
        }
        self.notes.push(Refusal::new(
            ProblemCode::SchemaUnrecognised,
            schema.span,
            format!("{} is no schema that is known here", schema.value.kind()),
            UNRECOGNISED_HINT,
        ));
        Json::object()
    }

    fn too_deep(&mut self, span: Span) -> Json {
        self.notes.push(Refusal::new(
            ProblemCode::TooDeep,
            span,
            format!("the schema nests deeper than {MAX_DEPTH}"),
            "Make it flatter, or name what repeats with `z.lazy`.",
        ));
        Json::object()
    }

    fn unsupported(&mut self, span: Span, what: &str) -> Json {
        self.notes.push(Refusal::new(
            ProblemCode::SchemaUnsupported,
            span,
            format!("`{what}` cannot be said as a JSON Schema"),
            "Use a type that JSON has: a text, a number, a list, an object.",
        ));
        Json::object()
    }

    /// Warns of a step that changes values, if it would change the input of a tool.
    fn not_applied(&mut self, span: Span, name: &str) {
        if self.side == Side::Input {
            self.lossy(
                span,
                format!("`{name}` is not applied: the tool is given what the model wrote, if it fits as it is"),
            );
        }
    }

    fn lossy(&mut self, span: Span, reason: impl Into<String>) {
        self.notes
            .push(Refusal::new(ProblemCode::SchemaLossy, span, reason, ""));
    }

    /// Converts a value in a schema: a default, a literal, or a member of an enum.
    fn value(&mut self, placed: &Placed<'a>) -> Option<Json> {
        match data::to_json(self.evaluator, placed) {
            Ok(json) => Some(json),
            Err(refusal) => {
                self.notes.push(refusal);
                None
            }
        }
    }

    fn number(&mut self, placed: Option<&Placed<'a>>, span: Span) -> Option<f64> {
        match placed.map(|placed| &placed.value) {
            Some(Value::Number(number)) if number.is_finite() => Some(*number),
            Some(Value::BigInt(digits)) => digits.parse().ok(),
            Some(Value::Unknown(refusal)) => {
                self.notes.push((**refusal).clone());
                None
            }
            _ => {
                self.lossy(span, "the bound is no number and is left out");
                None
            }
        }
    }

    fn text(&mut self, placed: Option<&Placed<'a>>) -> Option<Rc<str>> {
        match placed.map(|placed| &placed.value) {
            Some(Value::Text(text)) => Some(text.clone()),
            Some(Value::Unknown(refusal)) => {
                self.notes.push((**refusal).clone());
                None
            }
            _ => None,
        }
    }
}
