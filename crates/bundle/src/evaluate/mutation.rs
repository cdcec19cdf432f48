//! Detection of writes to objects after their declaration. A value in the configuration must be the
//! one that its declaration shows. Therefore every use of the declared name is checked: assignments
//! to properties, methods that change lists, `Object.assign`, functions that write to their
//! arguments, and aliases.

use super::Evaluator;
use crate::problem::ProblemCode;
use crate::value::*;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use oxc_syntax::node::NodeId;
use oxc_syntax::symbol::SymbolId;
use std::rc::Rc;

/// Methods that change their list.
const MUTATORS: [&str; 9] = [
    "push",
    "pop",
    "shift",
    "unshift",
    "splice",
    "sort",
    "reverse",
    "fill",
    "copyWithin",
];
/// Functions that change their first argument.
const WRITERS: [&str; 6] = [
    "assign",
    "defineProperty",
    "defineProperties",
    "setPrototypeOf",
    "set",
    "deleteProperty",
];

impl<'a> Evaluator<'a> {
    /// Returns the value of a declaration, or a refusal if the bundle writes to it.
    pub(super) fn refuse_mutated(&self, symbol: SymbolId, value: Value<'a>) -> Value<'a> {
        let is_object = match &value {
            Value::Object(_) | Value::Array(_) => true,
            Value::Made(made) => !crate::provenance::is_zod(&made.origin().package),
            _ => false,
        };
        if !is_object {
            return value;
        }
        let mut seen = Vec::new();
        match self.write_to(symbol, &mut seen) {
            Some(write) => {
                let scoping = self.scoping();
                Refusal::new(
                    ProblemCode::Mutated,
                    write,
                    format!(
                        "`{}` is changed after its definition",
                        scoping.symbol_name(symbol)
                    ),
                    "Write the whole object where it is declared, or spread it into a new one.",
                )
                .also(scoping.symbol_span(symbol), "declared here")
                .value()
            }
            None => value,
        }
    }

    /// Returns the place of a write to the object behind a name, if there is one.
    fn write_to(&self, symbol: SymbolId, seen: &mut Vec<SymbolId>) -> Option<Span> {
        const MAX_NAMES: usize = 64;
        if seen.contains(&symbol) || seen.len() >= MAX_NAMES {
            return None;
        }
        seen.push(symbol);
        let scoping = self.scoping();
        let references: Vec<NodeId> = scoping
            .get_resolved_references(symbol)
            .map(oxc_syntax::reference::Reference::node_id)
            .collect();
        references
            .into_iter()
            .find_map(|reference| self.write_through(reference, seen))
    }

    /// Returns the place of a write through one use of a name, or through an alias that the use
    /// creates.
    fn write_through(&self, reference: NodeId, seen: &mut Vec<SymbolId>) -> Option<Span> {
        let nodes = self.semantic.nodes();
        let mut node = reference;
        let mut last_name: Option<&str> = None;
        let mut depth = 0;
        // Walks up the path of properties: `a`, `a.b`, `a.b.c`.
        loop {
            let span = nodes.kind(node).span();
            let parent = nodes.parent_id(node);
            match nodes.kind(parent) {
                AstKind::StaticMemberExpression(member) if member.object.span() == span => {
                    last_name = Some(&member.property.name);
                    depth += 1;
                }
                AstKind::ComputedMemberExpression(member) if member.object.span() == span => {
                    last_name = None;
                    depth += 1;
                }
                AstKind::ChainExpression(_)
                | AstKind::ParenthesizedExpression(_)
                | AstKind::TSAsExpression(_)
                | AstKind::TSNonNullExpression(_)
                | AstKind::TSSatisfiesExpression(_) => {}
                _ => break,
            }
            node = parent;
        }
        let span = nodes.kind(node).span();
        let parent = nodes.parent_id(node);
        let whole = nodes.kind(parent).span();
        match nodes.kind(parent) {
            AstKind::AssignmentExpression(assignment) => {
                if assignment.left.span() == span {
                    // An assignment to the name itself does not change the object.
                    return (depth > 0).then_some(whole);
                }
                let target = match &assignment.left {
                    AssignmentTarget::AssignmentTargetIdentifier(node) => self.symbol_of(node),
                    _ => None,
                };
                self.write_to(target?, seen)
            }
            AstKind::UnaryExpression(unary) => {
                (depth > 0 && unary.operator.is_delete()).then_some(whole)
            }
            AstKind::UpdateExpression(_)
            | AstKind::ArrayAssignmentTarget(_)
            | AstKind::AssignmentTargetWithDefault(_)
            | AstKind::AssignmentTargetPropertyProperty(_) => (depth > 0).then_some(whole),
            AstKind::CallExpression(call) => {
                if call.callee.span() == span {
                    let is_mutator =
                        depth > 0 && last_name.is_some_and(|name| MUTATORS.contains(&name));
                    return is_mutator.then_some(whole);
                }
                self.write_by_call(call, span, seen)
            }
            AstKind::VariableDeclarator(declarator) => {
                if declarator.init.as_ref().map(GetSpan::span) != Some(span) {
                    return None;
                }
                declarator
                    .id
                    .get_symbol_ids()
                    .into_iter()
                    .find_map(|other| self.write_to(other, seen))
            }
            _ => None,
        }
    }

    /// Returns the place where a called function writes to the argument, if it does.
    fn write_by_call(
        &self,
        call: &'a CallExpression<'a>,
        argument: Span,
        seen: &mut Vec<SymbolId>,
    ) -> Option<Span> {
        let index = call
            .arguments
            .iter()
            .position(|other| other.span() == argument)?;
        if let Expression::StaticMemberExpression(member) = &call.callee
            && (self.is_global(&member.object, "Object")
                || self.is_global(&member.object, "Reflect"))
        {
            let is_mark = matches!(
                call.arguments.get(1).and_then(|key| key.as_expression()),
                Some(Expression::StringLiteral(key)) if key.value == "__esModule"
            );
            let is_write =
                index == 0 && !is_mark && WRITERS.contains(&member.property.name.as_str());
            return is_write.then_some(call.span);
        }
        let callee = call.callee.get_inner_expression();
        let function = match callee {
            Expression::FunctionExpression(node) => FunctionNode::Function(node),
            Expression::ArrowFunctionExpression(node) => FunctionNode::Arrow(node),
            Expression::Identifier(node) => {
                let symbol = self.symbol_of(node)?;
                match self.declared_function(symbol) {
                    Some(function) => function,
                    None => return self.write_by_import(symbol, call),
                }
            }
            _ => return None,
        };
        if self.is_helper(function) {
            return None;
        }
        let parameter = function.params().items.get(index)?;
        parameter
            .pattern
            .get_symbol_ids()
            .into_iter()
            .find_map(|symbol| self.write_to(symbol, seen))
    }

    /// Returns the function that a name was declared with.
    fn declared_function(&self, symbol: SymbolId) -> Option<FunctionNode<'a>> {
        let declaration = self.scoping().symbol_declaration(symbol);
        match self.semantic.nodes().kind(declaration) {
            AstKind::Function(node) => Some(FunctionNode::Function(node)),
            AstKind::VariableDeclarator(declarator) => match &declarator.init {
                Some(Expression::FunctionExpression(node)) => Some(FunctionNode::Function(node)),
                Some(Expression::ArrowFunctionExpression(node)) => Some(FunctionNode::Arrow(node)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the place of a call of an unknown package's function, which may write to its
    /// arguments.
    fn write_by_import(&self, symbol: SymbolId, call: &'a CallExpression<'a>) -> Option<Span> {
        let declaration = self.scoping().symbol_declaration(symbol);
        let nodes = self.semantic.nodes();
        let AstKind::ImportDeclaration(import) = nodes.parent_kind(declaration) else {
            return None;
        };
        let path: Rc<str> = import.source.value.as_str().into();
        (!crate::provenance::is_known(&path)).then_some(call.span)
    }
}
