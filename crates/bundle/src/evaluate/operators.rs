//! Operators and conditions. A condition must be known.

use super::Evaluator;
use crate::limits::MAX_TEXT_BYTES;
use crate::problem::ProblemCode;
use crate::source::quoted;
use crate::text;
use crate::value::*;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use oxc_syntax::operator::{BinaryOperator, LogicalOperator, UnaryOperator};
use std::rc::Rc;

impl<'a> Evaluator<'a> {
    /// Evaluates a condition to true or false.
    ///
    /// # Errors
    /// If the condition is not known.
    pub(super) fn condition(
        &self,
        test: &Value<'a>,
        test_span: Span,
        whole: Span,
    ) -> Result<bool, Refusal> {
        if let Some(truth) = test.truth() {
            return Ok(truth);
        }
        let reason = match test {
            Value::Unknown(inner) if inner.code == ProblemCode::DynamicValue => {
                format!("the value depends on {}", inner.reason)
            }
            Value::Unknown(inner) if inner.code != ProblemCode::Conditional => {
                return Err((**inner).clone());
            }
            _ => format!(
                "the value depends on `{}`, which is only known when the bundle runs",
                quoted(self.source.slice(test_span))
            ),
        };
        Err(Refusal::new(
            ProblemCode::Conditional,
            whole,
            reason,
            "Write one value, or declare two agents or tools.",
        ))
    }

    pub(super) fn logical(
        &self,
        node: &'a LogicalExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let left = self.eval(&node.left, frame);
        let takes_right = match node.operator {
            LogicalOperator::Coalesce => match &left {
                Value::Undefined | Value::Null => true,
                Value::Unknown(_) | Value::Member(..) => {
                    self.condition(&left, node.left.span(), node.span)?
                }
                _ => false,
            },
            LogicalOperator::Or => !self.condition(&left, node.left.span(), node.span)?,
            LogicalOperator::And => self.condition(&left, node.left.span(), node.span)?,
        };
        Ok(if takes_right {
            self.eval(&node.right, frame)
        } else {
            left
        })
    }

    /// Evaluates a chain of binary operators. A chain nests to the left and may be long: a loop
    /// avoids deep recursion.
    pub(super) fn binary(
        &self,
        expression: &'a Expression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let mut chain = Vec::new();
        let mut first = expression;
        while let Expression::BinaryExpression(node) = first {
            chain.push(node);
            first = &node.left;
        }
        let mut value = self.known(first, frame)?;
        // The text grows in place. Otherwise a long chain would copy it at each operator.
        let mut grown: Option<String> = None;
        for node in chain.into_iter().rev() {
            self.spend(1, node.span)?;
            let right = self.known(&node.right, frame)?;
            if node.operator == BinaryOperator::Addition {
                let is_text = grown.is_some()
                    || matches!(value, Value::Text(_))
                    || matches!(right, Value::Text(_));
                if is_text {
                    let left = match grown.take() {
                        Some(text) => Some(text),
                        None => text::of_value(&value),
                    };
                    let (Some(mut left), Some(right)) = (left, text::of_value(&right)) else {
                        return Err(self.dynamic(node.span));
                    };
                    left.push_str(&right);
                    self.spend(right.len() / 256, node.span)?;
                    if left.len() > MAX_TEXT_BYTES {
                        self.made_text(left, node.span)?;
                        return Err(self.dynamic(node.span));
                    }
                    grown = Some(left);
                    continue;
                }
            }
            if let Some(text) = grown.take() {
                value = Value::Text(text.into());
            }
            value = self.arithmetic(node, &value, &right)?;
        }
        Ok(match grown {
            Some(text) => Value::Text(text.into()),
            None => value,
        })
    }

    pub(super) fn arithmetic(
        &self,
        node: &'a BinaryExpression<'a>,
        left: &Value<'a>,
        right: &Value<'a>,
    ) -> Result<Value<'a>, Refusal> {
        use BinaryOperator as B;
        let is_same = |left: &Value<'a>, right: &Value<'a>| match (left, right) {
            (Value::Text(a), Value::Text(b)) => Some(a == b),
            (Value::Number(a), Value::Number(b)) => Some((a - b) == 0.0),
            (Value::Boolean(a), Value::Boolean(b)) => Some(a == b),
            (Value::Null, Value::Null) | (Value::Undefined, Value::Undefined) => Some(true),
            (Value::Null | Value::Undefined, _) | (_, Value::Null | Value::Undefined) => {
                match (left, right) {
                    (Value::Import(_) | Value::Member(..), _)
                    | (_, Value::Import(_) | Value::Member(..)) => None,
                    _ => Some(false),
                }
            }
            _ => None,
        };
        let value = match (node.operator, left, right) {
            (B::StrictEquality, left, right) => is_same(left, right).map(Value::Boolean),
            (B::StrictInequality, left, right) => {
                is_same(left, right).map(|same| Value::Boolean(!same))
            }
            (B::Equality | B::Inequality, left, right) => {
                let is_nothing =
                    |value: &Value<'a>| matches!(value, Value::Null | Value::Undefined);
                let same = if is_nothing(left) && is_nothing(right) {
                    Some(true)
                } else if std::mem::discriminant(left) == std::mem::discriminant(right) {
                    is_same(left, right)
                } else if is_nothing(left) || is_nothing(right) {
                    Some(false)
                } else {
                    None
                };
                same.map(|same| Value::Boolean(same == (node.operator == B::Equality)))
            }
            (operator, Value::Number(a), Value::Number(b)) => match operator {
                B::Addition => Some(Value::Number(a + b)),
                B::Subtraction => Some(Value::Number(a - b)),
                B::Multiplication => Some(Value::Number(a * b)),
                B::Division => Some(Value::Number(a / b)),
                B::Remainder => Some(Value::Number(a % b)),
                B::Exponential => Some(Value::Number(a.powf(*b))),
                B::LessThan => Some(Value::Boolean(a < b)),
                B::LessEqualThan => Some(Value::Boolean(a <= b)),
                B::GreaterThan => Some(Value::Boolean(a > b)),
                B::GreaterEqualThan => Some(Value::Boolean(a >= b)),
                _ => None,
            },
            _ => None,
        };
        value.ok_or_else(|| self.dynamic(node.span))
    }

    pub(super) fn unary(
        &self,
        node: &'a UnaryExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        if node.operator == UnaryOperator::Void {
            return Ok(Value::Undefined);
        }
        let value = self.known(&node.argument, frame)?;
        let made = match (node.operator, &value) {
            (UnaryOperator::LogicalNot, value) => value.truth().map(|truth| Value::Boolean(!truth)),
            (UnaryOperator::UnaryNegation, Value::Number(number)) => Some(Value::Number(-number)),
            (UnaryOperator::UnaryPlus, Value::Number(number)) => Some(Value::Number(*number)),
            (UnaryOperator::UnaryNegation, Value::BigInt(digits)) => {
                Some(Value::BigInt(format!("-{digits}").into()))
            }
            (UnaryOperator::Typeof, value) => {
                let name = match value {
                    Value::Undefined => "undefined",
                    Value::Boolean(_) => "boolean",
                    Value::Number(_) => "number",
                    Value::Text(_) => "string",
                    Value::BigInt(_) => "bigint",
                    Value::Function(_) | Value::Class(..) => "function",
                    Value::Null | Value::Array(_) | Value::Object(_) | Value::Regex(_) => "object",
                    _ => return Err(self.dynamic(node.span)),
                };
                Some(Value::text(name))
            }
            _ => None,
        };
        made.ok_or_else(|| self.dynamic(node.span))
    }
}
