//! List and object literals: elements, properties, keys, spreads.

use super::Evaluator;
use crate::problem::ProblemCode;
use crate::text;
use crate::value::*;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use std::rc::Rc;

impl<'a> Evaluator<'a> {
    pub(super) fn array(
        &self,
        node: &'a ArrayExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let mut items = Vec::with_capacity(node.elements.len());
        for element in &node.elements {
            match element {
                ArrayExpressionElement::SpreadElement(spread) => {
                    let value = self.eval(&spread.argument, frame);
                    let Value::Array(more) = value else {
                        return Err(Self::spread_refusal(&value, spread.span));
                    };
                    self.spend(more.len(), spread.span)?;
                    items.extend(more.iter().cloned());
                }
                ArrayExpressionElement::Elision(hole) => items.push(Placed {
                    value: Value::Undefined,
                    span: hole.span,
                }),
                _ => {
                    let expression = element.to_expression();
                    items.push(Placed {
                        value: self.eval(expression, frame),
                        span: expression.span(),
                    });
                }
            }
        }
        Ok(Value::Array(Rc::new(items)))
    }

    pub(super) fn spread_refusal(value: &Value<'a>, span: Span) -> Refusal {
        let hint = "Spread an object or a list that is written out.";
        match value {
            Value::Unknown(inner) => {
                let mut refusal = (**inner).clone();
                if matches!(
                    inner.code,
                    ProblemCode::DynamicValue | ProblemCode::Conditional
                ) {
                    refusal.code = ProblemCode::SpreadDynamic;
                    hint.clone_into(&mut refusal.hint);
                    refusal.span = span;
                }
                refusal
            }
            value => Refusal::new(
                ProblemCode::SpreadDynamic,
                span,
                format!(
                    "{} is spread, whose content is not known here",
                    value.kind()
                ),
                hint,
            ),
        }
    }

    pub(super) fn eval_object(
        &self,
        node: &'a ObjectExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Value<'a> {
        self.object(node, frame).unwrap_or_else(Refusal::value)
    }

    pub(super) fn object(
        &self,
        node: &'a ObjectExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let mut object = Object::default();
        for property in &node.properties {
            match property {
                ObjectPropertyKind::SpreadProperty(spread) => {
                    let value = self.eval(&spread.argument, frame);
                    match Self::spread(&value, spread.span)? {
                        Some(more) => {
                            self.spend(more.entries.len(), spread.span)?;
                            for entry in &more.entries {
                                object.set(entry.clone());
                            }
                        }
                        None => return Err(Self::spread_refusal(&value, spread.span)),
                    }
                }
                // Namespaces of rollup: `__proto__: null` creates an object without a prototype,
                // and is no field.
                ObjectPropertyKind::ObjectProperty(property)
                    if property.key.is_specific_static_name("__proto__")
                        && !property.computed
                        && matches!(property.value, Expression::NullLiteral(_)) => {}
                ObjectPropertyKind::ObjectProperty(property) => {
                    object.set(self.property(property, frame)?);
                }
            }
            // `set` searches all earlier keys.
            self.spend(object.entries.len() / 64, node.span)?;
        }
        Ok(Value::Object(Rc::new(object)))
    }

    /// Returns the entries that spreading a value adds to an object; `None` if they are not known.
    pub(super) fn spread(value: &Value<'a>, span: Span) -> Result<Option<Rc<Object<'a>>>, Refusal> {
        Ok(match value {
            Value::Object(object) => {
                if let Some(entry) = object
                    .entries
                    .iter()
                    .find(|entry| matches!(entry.value, Value::Getter(_)))
                {
                    return Err(getter(entry.key_span).also(span, "spread here"));
                }
                Some(object.clone())
            }
            Value::Undefined
            | Value::Null
            | Value::Boolean(_)
            | Value::Number(_)
            | Value::Function(_) => Some(Rc::default()),
            _ => None,
        })
    }

    pub(super) fn property(
        &self,
        property: &'a ObjectProperty<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Entry<'a>, Refusal> {
        let key_span = property.key.span();
        let key = self.property_key(&property.key, property.computed, frame)?;
        if &*key == "__proto__" && !property.computed && !property.shorthand {
            return Err(getter(key_span));
        }
        let value = match property.kind {
            PropertyKind::Set => return Err(getter(key_span)),
            PropertyKind::Get => match &property.value {
                Expression::FunctionExpression(node) => Value::Getter(Rc::new(Closure {
                    node: FunctionNode::Function(node),
                    frame: frame.clone(),
                    method: None,
                })),
                _ => return Err(getter(key_span)),
            },
            PropertyKind::Init => match &property.value {
                Expression::FunctionExpression(node) if property.method => {
                    Self::function(FunctionNode::Function(node), frame, Some(property.span))
                }
                value => self.eval(value, frame),
            },
        };
        Ok(Entry {
            key,
            key_span,
            value,
            span: property.value.span(),
            earlier: None,
        })
    }

    /// Evaluates the name of a property.
    pub(super) fn property_key(
        &self,
        key: &'a PropertyKey<'a>,
        is_computed: bool,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Rc<str>, Refusal> {
        if !is_computed && let Some(name) = key.static_name() {
            return Ok((*name).into());
        }
        let Some(expression) = key.as_expression() else {
            return Err(self.dynamic(key.span()));
        };
        let value = self.eval(expression, frame);
        match text::of_key(&value) {
            Some(name) => Ok(name.into()),
            None => Err(Refusal::new(
                ProblemCode::ComputedKey,
                key.span(),
                match &value {
                    Value::Unknown(inner) => format!("the key is not known: {}", inner.reason),
                    value => format!("{} cannot be a key here", value.kind()),
                },
                "Write the key as a text, or as a constant that is one.",
            )),
        }
    }
}

/// Returns the refusal of a getter, a setter or `__proto__`.
pub(crate) fn getter(span: Span) -> Refusal {
    Refusal::new(
        ProblemCode::Getter,
        span,
        "a getter, a setter or `__proto__` is code or changes what the object is",
        "Write a plain property.",
    )
}
