//! Properties of values.

use super::{Evaluator, getter};
use crate::problem::ProblemCode;
use crate::provenance;
use crate::source::quoted;
use crate::text;
use crate::value::*;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use std::rc::Rc;

impl<'a> Evaluator<'a> {
    pub(super) fn member_expression(
        &self,
        node: &'a MemberExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let object = self.eval(node.object(), frame);
        if let Value::Unknown(refusal) = &object {
            return Err(self.whole_path(node, refusal));
        }
        if node.optional() && matches!(object, Value::Undefined | Value::Null) {
            return Ok(Value::Undefined);
        }
        let key: Rc<str> = match node {
            MemberExpression::StaticMemberExpression(member) => {
                member.property.name.as_str().into()
            }
            MemberExpression::ComputedMemberExpression(member) => {
                let key = self.known(&member.expression, frame)?;
                match text::of_key(&key) {
                    Some(key) => key.into(),
                    None => return Err(self.dynamic(member.span)),
                }
            }
            MemberExpression::PrivateFieldExpression(member) => {
                return Err(self.dynamic(member.span));
            }
        };
        self.member(&object, &key, node.span())
    }

    /// Returns the refusal for a property of an unknown value. For a global, it names the whole
    /// path (`process.env.MODEL`).
    fn whole_path(&self, node: &'a MemberExpression<'a>, inner: &Refusal) -> Refusal {
        let is_global = node.object().span() == inner.span
            && inner.code == ProblemCode::DynamicValue
            && inner.reason.starts_with('`');
        if !is_global {
            return inner.clone();
        }
        Refusal::new(
            ProblemCode::DynamicValue,
            node.span(),
            format!(
                "`{}`, which is only known when the bundle runs",
                quoted(self.source.slice(node.span()))
            ),
            inner.hint.clone(),
        )
    }

    pub(super) fn chain(
        &self,
        node: &'a ChainExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        match &node.expression {
            ChainElement::CallExpression(call) => self.call_expression(call, frame),
            ChainElement::TSNonNullExpression(inner) => Ok(self.eval(&inner.expression, frame)),
            element => match element.as_member_expression() {
                Some(member) => self.member_expression(member, frame),
                None => Err(self.dynamic(node.span)),
            },
        }
    }

    /// Returns the property `key` of a value.
    pub(crate) fn member(
        &self,
        object: &Value<'a>,
        key: &str,
        span: Span,
    ) -> Result<Value<'a>, Refusal> {
        if key == "__proto__" {
            return Err(getter(span));
        }
        match object {
            Value::Unknown(refusal) => Err((**refusal).clone()),
            Value::Object(object) => match object.get(key) {
                Some(entry) => match &entry.value {
                    Value::Getter(_) => Err(getter(entry.key_span).also(span, "read here")),
                    value => Ok(value.clone()),
                },
                None => Ok(Value::Undefined),
            },
            Value::Array(items) => {
                if key == "length" {
                    return Ok(Value::Number(items.len() as f64));
                }
                match key.parse::<usize>() {
                    Ok(index) => Ok(items
                        .get(index)
                        .map_or(Value::Undefined, |item| item.value.clone())),
                    Err(_) => Err(self.dynamic(span)),
                }
            }
            Value::Text(text) if key == "length" => {
                Ok(Value::Number(text.encode_utf16().count() as f64))
            }
            Value::Import(path) => Ok(Value::Import(Rc::new(path.member(key)))),
            Value::Made(made) => self.made_member(made, key, span),
            Value::Class(class, frame) => self.static_member(class, frame, key, span),
            Value::Undefined | Value::Null => Err(Refusal::new(
                ProblemCode::DynamicValue,
                span,
                format!("`{key}` is read from {}, which fails", object.kind()),
                "Read it from an object.",
            )),
            _ => Err(self.dynamic(span)),
        }
    }

    /// Returns a property of a package's value. Parts of schemas are evaluated, all others stay
    /// symbolic.
    fn made_member(
        &self,
        made: &Rc<Made<'a>>,
        key: &str,
        span: Span,
    ) -> Result<Value<'a>, Refusal> {
        if provenance::is_zod(&made.origin().package) {
            match key {
                "shape" => return Ok(Value::Object(Rc::new(self.shape(made, span)?))),
                "enum" | "Enum" | "Values" => {
                    if let Some(names) = enum_names(made) {
                        let mut object = Object::default();
                        for item in names.iter() {
                            if let Value::Text(name) = &item.value {
                                object.set(Entry {
                                    key: name.clone(),
                                    key_span: item.span,
                                    value: item.value.clone(),
                                    span: item.span,
                                    earlier: None,
                                });
                            }
                        }
                        return Ok(Value::Object(Rc::new(object)));
                    }
                }
                "options" => {
                    if let Some(names) = enum_names(made) {
                        return Ok(Value::Array(names));
                    }
                }
                _ => {}
            }
        }
        Ok(Value::Member(made.clone(), key.into()))
    }

    fn static_member(
        &self,
        class: &'a Class<'a>,
        frame: &Rc<Frame<'a>>,
        key: &str,
        span: Span,
    ) -> Result<Value<'a>, Refusal> {
        for element in &class.body.body {
            match element {
                ClassElement::MethodDefinition(method)
                    if method.r#static
                        && method.key.is_specific_static_name(key)
                        && !method.computed =>
                {
                    if method.kind != MethodDefinitionKind::Method {
                        return Err(getter(method.span));
                    }
                    return Ok(Self::function(
                        FunctionNode::Function(&method.value),
                        frame,
                        Some(method.span),
                    ));
                }
                ClassElement::PropertyDefinition(property)
                    if property.r#static
                        && property.key.is_specific_static_name(key)
                        && !property.computed =>
                {
                    return Ok(match &property.value {
                        Some(value) => self.eval(value, frame),
                        None => Value::Undefined,
                    });
                }
                _ => {}
            }
        }
        Err(self.dynamic(span))
    }
}

/// Returns the names of `z.enum([...])`.
fn enum_names<'a>(made: &Made<'a>) -> Option<Rc<Vec<Placed<'a>>>> {
    let Callee::Import(path) = &made.callee else {
        return None;
    };
    if provenance::zod_function(path)? != "enum" {
        return None;
    }
    match &made.argument(0)?.value {
        Value::Array(names) => Some(names.clone()),
        _ => None,
    }
}
