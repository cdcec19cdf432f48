//! Enums: those of TypeScript, and the code that compilers and minifiers generate for them.

use super::Evaluator;
use crate::text;
use crate::value::*;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use oxc_syntax::node::NodeId;
use oxc_syntax::symbol::SymbolId;
use std::rc::Rc;

impl<'a> Evaluator<'a> {
    /// Evaluates `enum Mode { A = "a" }`.
    pub(super) fn ts_enum(
        &self,
        node: &'a TSEnumDeclaration<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let mut object = Object::default();
        let mut next = 0.0;
        for member in &node.body.members {
            let name = member.id.static_name();
            let value = match &member.initializer {
                Some(initializer) => self.known(initializer, frame)?,
                None => Value::Number(next),
            };
            if let Value::Number(number) = value {
                next = number + 1.0;
            }
            set_member(&mut object, &name, value, member.span);
        }
        Ok(Value::Object(Rc::new(object)))
    }

    /// Evaluates `var Mode = ((Mode2) => {...; return Mode2})(Mode || {})`, also minified. `None`
    /// if the call has another form.
    pub(super) fn enum_call(
        &self,
        call: &'a CallExpression<'a>,
        symbol: SymbolId,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Option<Value<'a>>, Refusal> {
        let [argument] = call.arguments.as_slice() else {
            return Ok(None);
        };
        let Some(Expression::LogicalExpression(either)) = argument.as_expression() else {
            return Ok(None);
        };
        let is_own = either
            .left
            .get_identifier_reference()
            .and_then(|node| self.symbol_of(node))
            == Some(symbol);
        let is_empty = match &either.right {
            Expression::ObjectExpression(object) => object.properties.is_empty(),
            Expression::AssignmentExpression(assignment) => {
                matches!(&assignment.right, Expression::ObjectExpression(object) if object.properties.is_empty())
            }
            _ => false,
        };
        if !is_own || !is_empty {
            return Ok(None);
        }
        let (params, statements) = match call.callee.get_inner_expression() {
            Expression::FunctionExpression(node) => (
                &node.params,
                node.body.as_ref().map(|body| &body.statements),
            ),
            Expression::ArrowFunctionExpression(node) => {
                if let Some(expression) = node.get_expression() {
                    let mut object = Object::default();
                    let Some(parameter) = parameter(&node.params) else {
                        return Ok(None);
                    };
                    self.enum_step(expression, parameter, &mut object, frame)?;
                    return Ok(Some(Value::Object(Rc::new(object))));
                }
                (
                    &node.params,
                    node.body.as_function_body().map(|body| &body.statements),
                )
            }
            _ => return Ok(None),
        };
        let (Some(parameter), Some(statements)) = (parameter(params), statements) else {
            return Ok(None);
        };
        let mut object = Object::default();
        for statement in statements {
            match statement {
                Statement::ExpressionStatement(node) => {
                    self.enum_step(&node.expression, parameter, &mut object, frame)?;
                }
                Statement::ReturnStatement(node) => {
                    if let Some(argument) = &node.argument {
                        self.enum_step(argument, parameter, &mut object, frame)?;
                    }
                }
                statement => return Err(self.dynamic(statement.span())),
            }
        }
        Ok(Some(Value::Object(Rc::new(object))))
    }

    /// Evaluates `var Mode; (function (Mode) {...})(Mode || (Mode = {}))`. `write` is the name in
    /// the inner assignment.
    pub(super) fn enum_argument(
        &self,
        write: NodeId,
        symbol: SymbolId,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Option<Value<'a>>, Refusal> {
        let nodes = self.semantic.nodes();
        for kind in nodes.ancestor_kinds(write).take(4) {
            if let AstKind::CallExpression(call) = kind {
                return self.enum_call(call, symbol, frame);
            }
        }
        Ok(None)
    }

    /// Evaluates one step of the function: `E["A"] = "a"`, `E[E["A"] = 0] = "A"`, a sequence of
    /// those, or `E`.
    fn enum_step(
        &self,
        expression: &'a Expression<'a>,
        parameter: SymbolId,
        object: &mut Object<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<(), Refusal> {
        match expression {
            Expression::SequenceExpression(node) => {
                for expression in &node.expressions {
                    self.enum_step(expression, parameter, object, frame)?;
                }
                Ok(())
            }
            Expression::Identifier(node) if self.symbol_of(node) == Some(parameter) => Ok(()),
            Expression::AssignmentExpression(node) if node.operator.is_assign() => {
                let key = match &node.left {
                    AssignmentTarget::StaticMemberExpression(member)
                        if self.is_symbol(&member.object, parameter) =>
                    {
                        member.property.name.to_string()
                    }
                    AssignmentTarget::ComputedMemberExpression(member)
                        if self.is_symbol(&member.object, parameter) =>
                    {
                        if let Expression::AssignmentExpression(_) = &member.expression {
                            // `set_member` of the inner assignment sets both directions.
                            return self.enum_step(&member.expression, parameter, object, frame);
                        }
                        let key = self.known(&member.expression, frame)?;
                        text::of_key(&key).ok_or_else(|| self.dynamic(member.span))?
                    }
                    _ => return Err(self.dynamic(node.span)),
                };
                let value = self.enum_value(&node.right, parameter, object, frame)?;
                set_member(object, &key, value, node.span);
                Ok(())
            }
            expression => Err(self.dynamic(expression.span())),
        }
    }

    /// Evaluates the value of a member, which may refer to earlier members.
    fn enum_value(
        &self,
        expression: &'a Expression<'a>,
        parameter: SymbolId,
        object: &Object<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        if let Expression::StaticMemberExpression(member) = expression
            && self.is_symbol(&member.object, parameter)
        {
            return object
                .get(&member.property.name)
                .map(|entry| entry.value.clone())
                .ok_or_else(|| self.dynamic(member.span));
        }
        self.known(expression, frame)
    }

    fn is_symbol(&self, expression: &Expression<'a>, symbol: SymbolId) -> bool {
        expression
            .get_identifier_reference()
            .and_then(|node| self.symbol_of(node))
            == Some(symbol)
    }
}

fn parameter(params: &FormalParameters<'_>) -> Option<SymbolId> {
    let [parameter] = params.items.as_slice() else {
        return None;
    };
    parameter.pattern.get_binding_identifier()?.symbol_id.get()
}

/// Sets a member. A number also gets an entry back to its name, as in TypeScript.
fn set_member<'a>(object: &mut Object<'a>, name: &str, value: Value<'a>, span: Span) {
    let entry = |key: &str, value| Entry {
        key: key.into(),
        key_span: span,
        value,
        span,
        earlier: None,
    };
    if let Value::Number(_) = value
        && let Some(back) = text::of_value(&value)
    {
        object.set(entry(&back, Value::text(name)));
    }
    object.set(entry(name, value));
}
