//! Built-in functions that are evaluated. The list is closed: all are pure, and their results
//! depend on known values only.

use super::Evaluator;
use crate::text;
use crate::value::*;
use oxc_ast::ast::*;
use oxc_span::Span;
use std::rc::Rc;

impl<'a> Evaluator<'a> {
    /// True if an expression is the global of this name.
    pub(crate) fn is_global(&self, expression: &Expression<'a>, name: &str) -> bool {
        matches!(expression, Expression::Identifier(node)
            if node.name == name && self.symbol_of(node).is_none())
    }

    /// True if an expression is `OBJECT.NAME` of a global object.
    pub(super) fn is_global_member(
        &self,
        expression: &Expression<'a>,
        object: &str,
        name: &str,
    ) -> bool {
        matches!(expression, Expression::StaticMemberExpression(member)
            if member.property.name == name && self.is_global(&member.object, object))
    }

    /// Evaluates a call of a built-in function; `None` if it is not on the list.
    pub(super) fn builtin(
        &self,
        node: &'a CallExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Option<Value<'a>>, Refusal> {
        if self.is_global(&node.callee, "String") {
            let arguments = self.arguments(&node.arguments, frame)?;
            let text = arguments
                .first()
                .and_then(|argument| text::of_value(&argument.value));
            return Ok(text.map(|text| Value::Text(text.into())));
        }
        let Expression::StaticMemberExpression(member) = &node.callee else {
            return Ok(None);
        };
        let name = member.property.name.as_str();
        if self.is_global(&member.object, "Object") {
            let arguments = self.arguments(&node.arguments, frame)?;
            return self.object_function(name, &arguments, node.span).map(Some);
        }
        if self.is_global(&member.object, "JSON") && name == "parse" {
            let arguments = self.arguments(&node.arguments, frame)?;
            return match arguments.as_slice() {
                [
                    Placed {
                        value: Value::Text(text),
                        ..
                    },
                ] => self.parse_json(text, node.span).map(Some),
                [
                    Placed {
                        value: Value::Unknown(refusal),
                        ..
                    },
                    ..,
                ] => Err((**refusal).clone()),
                _ => Err(self.dynamic(node.span)),
            };
        }
        if !METHODS.contains(&name) {
            return Ok(None);
        }
        match self.eval(&member.object, frame) {
            Value::Text(text) => {
                let arguments = self.arguments(&node.arguments, frame)?;
                self.text_method(&text, name, &arguments, node.span)
                    .map(Some)
            }
            Value::Array(items) => {
                let arguments = self.arguments(&node.arguments, frame)?;
                self.array_method(&items, name, &arguments, node.span)
                    .map(Some)
            }
            _ => Ok(None),
        }
    }

    fn object_function(
        &self,
        name: &str,
        arguments: &[Placed<'a>],
        span: Span,
    ) -> Result<Value<'a>, Refusal> {
        let first = arguments
            .first()
            .map_or(&Value::Undefined, |first| &first.value);
        if let Value::Unknown(refusal) = first {
            return Err((**refusal).clone());
        }
        let placed = |value| Placed { value, span };
        match (name, first) {
            ("freeze" | "seal" | "preventExtensions", value) => Ok(value.clone()),
            // `Object.defineProperty(x, "__esModule", ...)` marks a module, and changes nothing
            // that is read.
            ("defineProperty", value)
                if matches!(arguments.get(1), Some(Placed { value: Value::Text(key), .. })
                    if matches!(&**key, "__esModule" | "name")) =>
            {
                Ok(value.clone())
            }
            ("assign", Value::Object(target)) => {
                let mut made = (**target).clone();
                self.spend(made.entries.len(), span)?;
                for argument in arguments.iter().skip(1) {
                    match Self::spread(&argument.value, argument.span)? {
                        Some(more) => {
                            self.spend(more.entries.len(), span)?;
                            for entry in &more.entries {
                                made.set(entry.clone());
                            }
                        }
                        None => return Err(Self::spread_refusal(&argument.value, argument.span)),
                    }
                }
                Ok(Value::Object(Rc::new(made)))
            }
            ("keys", Value::Object(object)) => {
                self.spend(object.entries.len(), span)?;
                let keys = object
                    .entries
                    .iter()
                    .map(|entry| placed(Value::Text(entry.key.clone())));
                Ok(Value::Array(Rc::new(keys.collect())))
            }
            ("values" | "entries", Value::Object(object)) => {
                self.spend(object.entries.len(), span)?;
                let mut items = Vec::new();
                for entry in &object.entries {
                    if let Value::Getter(_) = entry.value {
                        return Err(super::getter(entry.key_span));
                    }
                    let value = entry.value.clone();
                    items.push(placed(if name == "values" {
                        value
                    } else {
                        Value::Array(Rc::new(vec![
                            placed(Value::Text(entry.key.clone())),
                            Placed {
                                value,
                                span: entry.span,
                            },
                        ]))
                    }));
                }
                Ok(Value::Array(Rc::new(items)))
            }
            ("fromEntries", Value::Array(items)) => {
                let mut made = Object::default();
                self.spend(items.len(), span)?;
                for item in items.iter() {
                    let pair = match &item.value {
                        Value::Array(pair) => pair,
                        Value::Unknown(refusal) => return Err((**refusal).clone()),
                        _ => return Err(self.dynamic(span)),
                    };
                    let [key, value] = pair.as_slice() else {
                        return Err(self.dynamic(span));
                    };
                    let Some(name) = text::of_key(&key.value) else {
                        return Err(self.dynamic(span));
                    };
                    made.set(Entry {
                        key: name.into(),
                        key_span: key.span,
                        value: value.value.clone(),
                        span: value.span,
                        earlier: None,
                    });
                }
                Ok(Value::Object(Rc::new(made)))
            }
            _ => Err(self.dynamic(span)),
        }
    }

    fn parse_json(&self, text: &str, span: Span) -> Result<Value<'a>, Refusal> {
        self.spend(text.len() / 8, span)?;
        match serde_json::from_str::<crate::Json>(text) {
            Ok(json) => Ok(from_json(&json, span)),
            Err(_) => Err(self.dynamic(span)),
        }
    }

    fn text_method(
        &self,
        text: &str,
        name: &str,
        arguments: &[Placed<'a>],
        span: Span,
    ) -> Result<Value<'a>, Refusal> {
        self.spend(text.len() / 256, span)?;
        let made = match (name, arguments) {
            ("trim", []) => text.trim().to_owned(),
            ("trimStart", []) => text.trim_start().to_owned(),
            ("trimEnd", []) => text.trim_end().to_owned(),
            ("toUpperCase", []) => text.to_uppercase(),
            ("toLowerCase", []) => text.to_lowercase(),
            ("concat", parts) => {
                let mut made = text.to_owned();
                for part in parts {
                    match text::of_value(&part.value) {
                        Some(part) => made.push_str(&part),
                        None => return Err(self.dynamic(span)),
                    }
                }
                made
            }
            _ => return Err(self.dynamic(span)),
        };
        Ok(Value::Text(self.made_text(made, span)?.into()))
    }

    fn array_method(
        &self,
        items: &Rc<Vec<Placed<'a>>>,
        name: &str,
        arguments: &[Placed<'a>],
        span: Span,
    ) -> Result<Value<'a>, Refusal> {
        self.spend(items.len(), span)?;
        match (name, arguments) {
            ("join", rest) => {
                let separator = match rest.first().map(|argument| &argument.value) {
                    None | Some(Value::Undefined) => ",".to_owned(),
                    Some(Value::Text(separator)) => separator.to_string(),
                    Some(Value::Unknown(refusal)) => return Err((**refusal).clone()),
                    Some(_) => return Err(self.dynamic(span)),
                };
                let mut made = String::new();
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        made.push_str(&separator);
                    }
                    match &item.value {
                        Value::Undefined | Value::Null => {}
                        Value::Unknown(refusal) => return Err((**refusal).clone()),
                        value => match text::of_value(value) {
                            Some(part) => made.push_str(&part),
                            None => return Err(self.dynamic(span)),
                        },
                    }
                    if made.len() > crate::limits::MAX_TEXT_BYTES {
                        break;
                    }
                }
                Ok(Value::Text(self.made_text(made, span)?.into()))
            }
            ("concat", parts) => {
                let mut made = (**items).clone();
                for part in parts {
                    match &part.value {
                        Value::Array(more) => {
                            self.spend(more.len(), span)?;
                            made.extend(more.iter().cloned());
                        }
                        Value::Unknown(refusal) => return Err((**refusal).clone()),
                        _ => made.push(part.clone()),
                    }
                }
                Ok(Value::Array(Rc::new(made)))
            }
            (
                "map",
                [
                    Placed {
                        value: Value::Function(closure),
                        ..
                    },
                ],
            ) => {
                let mut made = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let index = Placed {
                        value: Value::Number(index as f64),
                        span,
                    };
                    made.push(Placed {
                        value: self.call(closure, vec![item.clone(), index], span),
                        span: item.span,
                    });
                }
                Ok(Value::Array(Rc::new(made)))
            }
            _ => Err(self.dynamic(span)),
        }
    }
}

/// Methods of strings and arrays that are evaluated.
const METHODS: [&str; 8] = [
    "trim",
    "trimStart",
    "trimEnd",
    "toUpperCase",
    "toLowerCase",
    "concat",
    "join",
    "map",
];

fn from_json<'a>(json: &crate::Json, span: Span) -> Value<'a> {
    use crate::Json;
    match json {
        Json::Null => Value::Null,
        Json::Boolean(value) => Value::Boolean(*value),
        Json::Number(value) => Value::Number(*value),
        Json::String(text) => Value::text(text),
        Json::Array(items) => Value::Array(Rc::new(
            items
                .iter()
                .map(|item| Placed {
                    value: from_json(item, span),
                    span,
                })
                .collect(),
        )),
        Json::Object(entries) => {
            let mut object = Object::default();
            for (key, value) in entries {
                object.set(Entry {
                    key: key.as_str().into(),
                    key_span: span,
                    value: from_json(value, span),
                    span,
                    earlier: None,
                });
            }
            Value::Object(Rc::new(object))
        }
    }
}
