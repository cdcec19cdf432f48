//! Fields of zod's objects, with the effects of `extend`, `pick`, `partial` and similar methods.

use super::Evaluator;
use crate::problem::ProblemCode;
use crate::provenance;
use crate::value::*;
use oxc_span::Span;
use std::rc::Rc;

impl<'a> Evaluator<'a> {
    /// Returns the fields of an object schema.
    pub(crate) fn shape(&self, made: &Rc<Made<'a>>, span: Span) -> Result<Object<'a>, Refusal> {
        self.spend(1, span)?;
        match &made.callee {
            Callee::Import(path) => {
                let name = provenance::zod_function(path).unwrap_or_default();
                match name.as_str() {
                    "object" | "strictObject" | "looseObject" => match made.argument(0) {
                        Some(Placed {
                            value: Value::Object(fields),
                            ..
                        }) => Ok((**fields).clone()),
                        Some(Placed {
                            value: Value::Unknown(refusal),
                            ..
                        }) => Err((**refusal).clone()),
                        None => Ok(Object::default()),
                        Some(other) => Err(no_shape(other.span)),
                    },
                    // zod/mini has functions in place of zod's methods.
                    "extend" | "safeExtend" | "merge" | "pick" | "omit" | "partial"
                    | "required" | "catchall" => match made.arguments.split_first() {
                        Some((
                            Placed {
                                value: Value::Made(receiver),
                                ..
                            },
                            rest,
                        )) => self.derived_shape(receiver, &name, rest, span),
                        _ => Err(no_shape(made.span)),
                    },
                    _ => Err(no_shape(made.span)),
                }
            }
            Callee::Method(receiver, name) => {
                self.derived_shape(receiver, name, &made.arguments, span)
            }
        }
    }

    fn derived_shape(
        &self,
        receiver: &Rc<Made<'a>>,
        name: &str,
        arguments: &[Placed<'a>],
        span: Span,
    ) -> Result<Object<'a>, Refusal> {
        let mut fields = self.shape(receiver, span)?;
        let first = arguments.first();
        match name {
            "extend" | "safeExtend" | "augment" => {
                let more = match first.map(|first| &first.value) {
                    Some(Value::Object(more)) => more.clone(),
                    Some(Value::Unknown(refusal)) => return Err((**refusal).clone()),
                    _ => return Err(no_shape(span)),
                };
                self.spend(more.entries.len(), span)?;
                for entry in &more.entries {
                    fields.set(entry.clone());
                }
            }
            "merge" => {
                let Some(Value::Made(other)) = first.map(|first| &first.value) else {
                    return Err(no_shape(span));
                };
                for entry in self.shape(other, span)?.entries {
                    fields.set(entry);
                }
            }
            "pick" | "omit" => {
                let names = mask(first, span)?.unwrap_or_default();
                fields
                    .entries
                    .retain(|entry| names.contains(&entry.key) == (name == "pick"));
            }
            "partial" | "required" => {
                let names = mask(first, span)?;
                let method: Rc<str> = if name == "partial" {
                    "optional"
                } else {
                    "nonoptional"
                }
                .into();
                for entry in &mut fields.entries {
                    let is_meant = names
                        .as_ref()
                        .is_none_or(|names| names.contains(&entry.key));
                    if let (true, Value::Made(schema)) = (is_meant, &entry.value) {
                        entry.value = Value::Made(Rc::new(Made {
                            callee: Callee::Method(schema.clone(), method.clone()),
                            arguments: Vec::new(),
                            span: entry.span,
                        }));
                    }
                }
            }
            _ => {}
        }
        Ok(fields)
    }
}

/// Returns the names in `{a: true, b: true}`; `None` without an argument.
fn mask(argument: Option<&Placed<'_>>, span: Span) -> Result<Option<Vec<Rc<str>>>, Refusal> {
    match argument.map(|argument| &argument.value) {
        None | Some(Value::Undefined) => Ok(None),
        Some(Value::Object(object)) => {
            let names = object
                .entries
                .iter()
                .filter(|entry| entry.value.truth() == Some(true))
                .map(|entry| entry.key.clone());
            Ok(Some(names.collect()))
        }
        Some(Value::Unknown(refusal)) => Err((**refusal).clone()),
        Some(_) => Err(no_shape(span)),
    }
}

fn no_shape(span: Span) -> Refusal {
    Refusal::new(
        ProblemCode::SchemaUnrecognised,
        span,
        "the fields of this schema are not known here",
        "Write `z.object({...})` with its fields.",
    )
}
