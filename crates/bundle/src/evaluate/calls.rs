//! Calls: of functions of packages, which are kept with their arguments; of local functions that
//! only return a value; of helpers that bundlers generate around modules.

use super::Evaluator;
use crate::limits::MAX_DEPTH;
use crate::problem::ProblemCode;
use crate::provenance;
use crate::source::quoted;
use crate::value::*;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum length of a helper of a bundler.
const MAX_HELPER_BYTES: usize = 1_200;

/// Purpose of a helper that a bundler generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Helper {
    /// Converts between module formats: `__toESM`, `__toCommonJS`, `_interopRequireDefault`.
    Interop,
    /// Defines getters for the exports on an object: `__export`.
    Export,
}

impl<'a> Evaluator<'a> {
    pub(super) fn call_expression(
        &self,
        node: &'a CallExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        if self.is_global(&node.callee, "require") || self.is_require_shim(&node.callee) {
            return self.require(node, frame);
        }
        if let Some(value) = self.builtin(node, frame)? {
            return Ok(value);
        }
        let callee = self.eval(&node.callee, frame);
        match callee {
            Value::Function(closure) => match self.helper(closure.node) {
                Some(Helper::Interop) => self.interop(node, frame),
                Some(Helper::Export) => Ok(Value::Undefined),
                None => {
                    let arguments = self.arguments(&node.arguments, frame)?;
                    Ok(self.call(&closure, arguments, node.span))
                }
            },
            Value::Import(path) if provenance::is_interop(&path) => self.interop(node, frame),
            Value::Import(path) => {
                Self::known_package(&path, node.span)?;
                Ok(Value::Made(Rc::new(Made {
                    callee: Callee::Import(path),
                    arguments: self.arguments(&node.arguments, frame)?,
                    span: node.span,
                })))
            }
            Value::Member(receiver, name) => Ok(Value::Made(Rc::new(Made {
                callee: Callee::Method(receiver, name),
                arguments: self.arguments(&node.arguments, frame)?,
                span: node.span,
            }))),
            Value::Made(made) => {
                // `createOpenAI({...})("gpt-4o")`.
                let name: Rc<str> = "()".into();
                Ok(Value::Made(Rc::new(Made {
                    callee: Callee::Method(made, name),
                    arguments: self.arguments(&node.arguments, frame)?,
                    span: node.span,
                })))
            }
            Value::Unknown(refusal) => {
                let is_global_call =
                    refusal.code == ProblemCode::DynamicValue && refusal.span == node.callee.span();
                Err(if is_global_call {
                    self.dynamic(node.span)
                } else {
                    (*refusal).clone()
                })
            }
            Value::Undefined | Value::Null if node.optional => Ok(Value::Undefined),
            _ => Err(self.dynamic(node.span)),
        }
    }

    /// Evaluates the module that an interop helper is given. A `default` in it is the module itself
    /// anyway.
    fn interop(
        &self,
        node: &'a CallExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        match node.arguments.first() {
            Some(argument) => match argument.as_expression() {
                Some(module) => Ok(self.eval(module, frame)),
                None => Err(self.dynamic(node.span)),
            },
            None => Ok(Value::Undefined),
        }
    }

    /// Evaluates a call at the level of the module.
    pub(crate) fn call_value(&self, node: &'a CallExpression<'a>) -> Value<'a> {
        self.call_expression(node, &self.root())
            .unwrap_or_else(Refusal::value)
    }

    /// Evaluates `new X(...)` at the level of the module.
    pub(crate) fn new_value(&self, node: &'a NewExpression<'a>) -> Value<'a> {
        self.new_expression(node, &self.root())
            .unwrap_or_else(Refusal::value)
    }

    /// True if a callee may come from a package. A cheap test before its evaluation.
    pub(crate) fn may_be_factory(&self, callee: &'a Expression<'a>) -> bool {
        let mut expression = callee;
        loop {
            match expression {
                Expression::StaticMemberExpression(member) => expression = &member.object,
                Expression::SequenceExpression(sequence) => match sequence.expressions.last() {
                    Some(last) => expression = last,
                    None => return false,
                },
                Expression::Identifier(node) => {
                    let Some(symbol) = self.symbol_of(node) else {
                        return provenance::by_name(&node.name).is_some();
                    };
                    let declaration = self.scoping().symbol_declaration(symbol);
                    return match self.semantic.nodes().kind(declaration) {
                        AstKind::Function(_) | AstKind::Class(_) => {
                            provenance::by_name(&node.name).is_some()
                        }
                        AstKind::VariableDeclarator(declarator) => match &declarator.init {
                            Some(
                                Expression::ArrowFunctionExpression(_)
                                | Expression::FunctionExpression(_),
                            ) => provenance::by_name(&node.name).is_some(),
                            Some(_) => true,
                            None => false,
                        },
                        AstKind::FormalParameter(_) => false,
                        _ => true,
                    };
                }
                _ => return false,
            }
        }
    }

    pub(super) fn new_expression(
        &self,
        node: &'a NewExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        match self.eval(&node.callee, frame) {
            Value::Import(path) => {
                Self::known_package(&path, node.span)?;
                Ok(Value::Made(Rc::new(Made {
                    callee: Callee::Import(path),
                    arguments: self.arguments(&node.arguments, frame)?,
                    span: node.span,
                })))
            }
            _ => Err(Refusal::new(
                ProblemCode::DynamicValue,
                node.span,
                format!(
                    "`{}` makes an object by running a class",
                    quoted(self.source.slice(node.span))
                ),
                "Write a plain object.",
            )),
        }
    }

    /// Refuses a function of an unknown package: it may return anything.
    fn known_package(path: &ImportPath, span: Span) -> Result<(), Refusal> {
        if provenance::is_known(&path.package) {
            return Ok(());
        }
        Err(Refusal::new(
            ProblemCode::ImportUnknown,
            span,
            format!(
                "`{}` is a function of the package `{}`, whose result is only known when the bundle runs",
                quoted(&path.shown()),
                quoted(&path.package)
            ),
            "Write the value itself, or make it with functions of lightfast, ai or zod.",
        ))
    }

    /// True if the callee is the function that esbuild generates in place of a missing `require`.
    fn is_require_shim(&self, callee: &Expression<'a>) -> bool {
        let Expression::Identifier(node) = callee else {
            return false;
        };
        let Some(symbol) = self.symbol_of(node) else {
            return false;
        };
        let declaration = self.scoping().symbol_declaration(symbol);
        matches!(self.semantic.nodes().kind(declaration), AstKind::VariableDeclarator(declarator)
            if declarator.span.size() < MAX_HELPER_BYTES as u32
                && self.source.slice(declarator.span).contains("Dynamic require of"))
    }

    fn require(
        &self,
        node: &'a CallExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let refuse = |reason: String| {
            Refusal::new(
                ProblemCode::ImportNotAllowed,
                node.span,
                reason,
                "Let the bundler put the data into the bundle, or import a package by its name.",
            )
        };
        let argument = node
            .arguments
            .first()
            .and_then(|argument| argument.as_expression());
        let Some(argument) = argument else {
            return Err(refuse("`require` without the name of a package".to_owned()));
        };
        match self.eval(argument, frame) {
            Value::Text(name) if name.starts_with('.') || name.starts_with('/') => Err(refuse(
                format!("`{}` is a file that is not in the bundle", quoted(&name)),
            )),
            Value::Text(name) => Ok(Value::Import(Rc::new(ImportPath::new(&name)))),
            _ => Err(refuse(
                "what is required is only known when the bundle runs".to_owned(),
            )),
        }
    }

    pub(super) fn arguments(
        &self,
        nodes: &'a [Argument<'a>],
        frame: &Rc<Frame<'a>>,
    ) -> Result<Vec<Placed<'a>>, Refusal> {
        let mut arguments = Vec::with_capacity(nodes.len());
        for node in nodes {
            if let Argument::SpreadElement(spread) = node {
                match self.eval(&spread.argument, frame) {
                    Value::Array(items) => {
                        self.spend(items.len(), spread.span)?;
                        arguments.extend(items.iter().cloned());
                    }
                    value => return Err(Self::spread_refusal(&value, spread.span)),
                }
            } else {
                let expression = node.to_expression();
                arguments.push(Placed {
                    value: self.eval(expression, frame),
                    span: expression.span(),
                });
            }
        }
        Ok(arguments)
    }

    /// Calls a function and returns its value. The body may declare names, and must end in its only
    /// `return`.
    pub(crate) fn call(
        &self,
        closure: &Closure<'a>,
        arguments: Vec<Placed<'a>>,
        span: Span,
    ) -> Value<'a> {
        let depth = self.calls.get();
        if depth >= MAX_DEPTH {
            return Refusal::new(
                ProblemCode::TooDeep,
                span,
                format!("calls nest deeper than {MAX_DEPTH}"),
                "Write the value itself.",
            )
            .value();
        }
        self.calls.set(depth + 1);
        let value = self
            .call_inner(closure, arguments, span)
            .unwrap_or_else(Refusal::value);
        self.calls.set(depth);
        value
    }

    /// Returns the frame of a call with these arguments.
    pub(crate) fn enter(&self, closure: &Closure<'a>, arguments: Vec<Placed<'a>>) -> Rc<Frame<'a>> {
        let params = closure.node.params();
        let mut parameters = Vec::new();
        let mut arguments = arguments.into_iter();
        for parameter in &params.items {
            let mut value = arguments
                .next()
                .map_or(Value::Undefined, |argument| argument.value);
            if let (Value::Undefined, Some(default)) = (&value, &parameter.initializer) {
                value = self.eval(default, &closure.frame);
            }
            self.bind(&parameter.pattern, value, &closure.frame, &mut parameters);
        }
        if let Some(rest) = &params.rest {
            let value = Value::Array(Rc::new(arguments.collect()));
            self.bind(&rest.rest.argument, value, &closure.frame, &mut parameters);
        }
        let frame = Rc::new(Frame {
            parent: Some(closure.frame.clone()),
            scope: closure.node.scope(),
            parameters,
            known: RefCell::new(HashMap::new()),
        });
        self.frames.borrow_mut().push(frame.clone());
        frame
    }

    fn call_inner(
        &self,
        closure: &Closure<'a>,
        arguments: Vec<Placed<'a>>,
        span: Span,
    ) -> Result<Value<'a>, Refusal> {
        self.spend(1 + arguments.len(), span)?;
        let node = closure.node;
        if !node.is_plain() {
            return Err(Refusal::new(
                ProblemCode::DynamicValue,
                span,
                "an async function or a generator is called for the value",
                "Call a plain function, or write the value itself.",
            )
            .also(node.span(), "the function"));
        }
        let frame = self.enter(closure, arguments);
        let statements = match node {
            FunctionNode::Arrow(arrow) => match arrow.get_expression() {
                Some(expression) => return Ok(self.eval(expression, &frame)),
                None => arrow.body.as_function_body().map(|body| &body.statements),
            },
            FunctionNode::Function(function) => function.body.as_ref().map(|body| &body.statements),
        };
        let Some(statements) = statements else {
            return Ok(Value::Undefined);
        };
        let mut count = ReturnCount(0);
        for statement in statements {
            count.visit_statement(statement);
        }
        match (count.0, statements.last()) {
            (1, Some(Statement::ReturnStatement(last))) => Ok(match &last.argument {
                Some(argument) => self.eval(argument, &frame),
                None => Value::Undefined,
            }),
            (0, _) => Ok(Value::Undefined),
            _ => Err(Refusal::new(
                ProblemCode::DynamicValue,
                span,
                "the function that makes the value decides at run time what it returns",
                "Let it end in one `return`, or write the value itself.",
            )
            .also(node.span(), "the function")),
        }
    }

    /// Recognizes a helper of a bundler by its body: minifiers remove its name.
    fn helper(&self, node: FunctionNode<'a>) -> Option<Helper> {
        let text = self.source.slice(node.span());
        if text.len() > MAX_HELPER_BYTES {
            return None;
        }
        let count = node.params().items.len();
        let is_module_shim = text.contains("__esModule")
            || (text.contains("Object.create(null)") && text.contains(".default"));
        if is_module_shim && (1..=3).contains(&count) {
            return Some(Helper::Interop);
        }
        let is_export = count == 2 && text.contains("get:") && text.contains("enumerable:");
        (is_export && text.contains("for")).then_some(Helper::Export)
    }

    /// True if a function is a helper of a bundler, which does not change the values of its
    /// arguments.
    pub(super) fn is_helper(&self, node: FunctionNode<'a>) -> bool {
        self.helper(node).is_some()
    }

    /// Returns the object of getters in `__export(target, {name: () => value})`.
    pub(crate) fn export_table(
        &self,
        node: &'a CallExpression<'a>,
    ) -> Option<&'a ObjectExpression<'a>> {
        let [_, table] = node.arguments.as_slice() else {
            return None;
        };
        let Some(Expression::ObjectExpression(table)) = table.as_expression() else {
            return None;
        };
        match self.eval(&node.callee, &self.root()) {
            Value::Function(closure) if self.helper(closure.node) == Some(Helper::Export) => {
                Some(table)
            }
            _ => None,
        }
    }
}

/// Counter of the `return` statements of one function.
struct ReturnCount(usize);

impl<'a> Visit<'a> for ReturnCount {
    fn visit_return_statement(&mut self, _: &ReturnStatement<'a>) {
        self.0 += 1;
    }

    fn visit_function(&mut self, _: &Function<'a>, _: ScopeFlags) {}

    fn visit_arrow_function_expression(&mut self, _: &ArrowFunctionExpression<'a>) {}

    fn visit_class(&mut self, _: &Class<'a>) {}
}
