//! Search for the configuration among the exports of a bundle: ECMAScript modules, CommonJS, and
//! the code that bundlers generate from both.

use crate::evaluate::Evaluator;
use crate::problem::ProblemCode;
use crate::provenance::{self, Factory};
use crate::tool::is_tool;
use crate::value::*;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use oxc_syntax::node::NodeId;
use oxc_syntax::operator::LogicalOperator;
use std::rc::Rc;

/// Exports of a bundle.
#[derive(Default)]
pub(crate) struct Exports<'a> {
    /// Calls of `createLightfast`.
    pub configs: Vec<Rc<Made<'a>>>,
    /// Exported tools, in bundles without a configuration.
    pub tools: Object<'a>,
    /// Reasons for unknown exports.
    pub refusals: Vec<Refusal>,
    /// True if the configuration was found without an export.
    pub is_unexported: bool,
}

/// Searches the exports for the configuration or for tools.
pub(crate) fn find<'a>(evaluator: &Evaluator<'a>, program: &'a Program<'a>) -> Exports<'a> {
    let mut exports = Exports::default();
    let root = evaluator.root();
    let mut wrapped = Vec::new();
    for statement in &program.body {
        match statement {
            Statement::ExportDefaultDeclaration(node) => {
                if let Some(expression) = node.declaration.as_expression() {
                    let value = evaluator.eval(expression, &root);
                    exports.add("default", value, expression.span(), 0);
                }
            }
            Statement::ExportNamedDeclaration(node) => {
                for specifier in &node.specifiers {
                    if let ModuleExportName::IdentifierReference(local) = &specifier.local
                        && let Some(symbol) = evaluator.symbol_of(local)
                    {
                        let value = evaluator.symbol(symbol, specifier.span, &root);
                        let name = specifier.exported.name();
                        exports.add(&name, value, specifier.span, 0);
                    }
                }
            }
            Statement::ExportDeclaration(node) => {
                if let Declaration::VariableDeclaration(declaration) = &node.declaration {
                    for declarator in &declaration.declarations {
                        for name in declarator.id.get_binding_identifiers() {
                            if let Some(symbol) = name.symbol_id.get() {
                                let value = evaluator.symbol(symbol, name.span, &root);
                                exports.add(&name.name, value, name.span, 0);
                            }
                        }
                    }
                }
            }
            // A bundle for a web page: `var bundle = (() => {...; return exports})()`.
            Statement::VariableDeclaration(declaration) => {
                for declarator in &declaration.declarations {
                    if let Some(Expression::CallExpression(call)) = &declarator.init
                        && call.callee.get_inner_expression().is_function()
                        && let Some(symbol) = declarator.id.get_symbol_ids().first()
                    {
                        let value = evaluator.symbol(*symbol, declarator.span, &root);
                        wrapped.push((value, declarator.span));
                    }
                }
            }
            Statement::TSExportAssignment(node) => {
                let value = evaluator.eval(&node.expression, &root);
                exports.add("default", value, node.span, 0);
            }
            _ => {}
        }
    }
    common_js(evaluator, &mut exports);
    // Each further search is less certain than the one before, so it is only a fallback.
    if exports.configs.is_empty() && exports.tools.entries.is_empty() {
        for (value, span) in wrapped {
            if let Value::Object(_) = value {
                exports.add("default", value, span, 0);
            }
        }
    }
    if exports.configs.is_empty() && exports.tools.entries.is_empty() {
        universal(evaluator, &mut exports);
    }
    if exports.configs.is_empty() && exports.tools.entries.is_empty() {
        unexported(evaluator, &mut exports);
    }
    exports
}

impl<'a> Exports<'a> {
    fn add(&mut self, name: &str, value: Value<'a>, span: Span, depth: u32) {
        /// Maximum nesting: an export may be an object of exports, and a wrapper has the
        /// configuration in a field.
        const MAX_DEPTH: u32 = 3;
        match value {
            Value::Made(made) if is_config(&made) => {
                let is_new = self.configs.iter().all(|known| known.span != made.span);
                self.configs.extend(is_new.then_some(made));
            }
            Value::Made(made) if is_tool(&made) => self.tools.set(Entry {
                key: name.into(),
                key_span: span,
                value: Value::Made(made),
                span,
                earlier: None,
            }),
            Value::Object(object) if depth < MAX_DEPTH => {
                for entry in &object.entries {
                    self.add(&entry.key, entry.value.clone(), entry.span, depth + 1);
                }
            }
            Value::Unknown(refusal) => self.refusals.push((*refusal).clone()),
            _ => {}
        }
    }
}

fn is_config(made: &Made<'_>) -> bool {
    matches!(&made.callee, Callee::Import(path) if provenance::factory(path) == Some(Factory::Config))
}

/// Adds the exports of `module.exports = ...` and `exports.default = ...`.
fn common_js<'a>(evaluator: &Evaluator<'a>, exports: &mut Exports<'a>) {
    let scoping = evaluator.scoping();
    for name in ["module", "exports"] {
        let Some(references) = scoping.root_unresolved_references().get(name) else {
            continue;
        };
        for &reference in references {
            let node = scoping.get_reference(reference).node_id();
            if let Some((name, assigned)) = export_assignment(evaluator, node, name == "exports")
                && !is_dead(evaluator, node)
            {
                let span = assigned.span();
                let value = assigned_value(evaluator, assigned);
                // Values accumulate, and `exports.default = void 0` before the real assignment adds
                // nothing.
                exports.add(&name, value, span, 0);
            }
        }
    }
}

/// Evaluates the value of an assignment to exports. In UMD, it is the return value of the factory
/// (`module.exports = factory(require("zod"))`), which is an argument of the function around the
/// call.
fn assigned_value<'a>(evaluator: &Evaluator<'a>, assigned: &'a Expression<'a>) -> Value<'a> {
    let root = evaluator.root();
    // A call at the level of the module is a helper of a bundler, such as `__toCommonJS`.
    if let Expression::CallExpression(call) = assigned
        && evaluator.function_of(call.node_id.get()).is_some()
        && let Some(factory) = factory_of(evaluator, call)
    {
        let arguments = call.arguments.iter().map(|argument| Placed {
            value: match argument.as_expression() {
                Some(expression) => evaluator.eval(expression, &root),
                None => Value::Undefined,
            },
            span: argument.span(),
        });
        return evaluator.call(&factory, arguments.collect(), call.span);
    }
    evaluator.eval(assigned, &root)
}

/// Returns the name and the value of an assignment to exports. `node` is its `module` or `exports`.
fn export_assignment<'a>(
    evaluator: &Evaluator<'a>,
    node: NodeId,
    is_exports: bool,
) -> Option<(String, &'a Expression<'a>)> {
    let nodes = evaluator.semantic.nodes();
    let mut target = node;
    let mut name = "default".to_owned();
    if !is_exports {
        target = nodes.parent_id(target);
        let is_module_exports = matches!(nodes.kind(target),
            AstKind::StaticMemberExpression(member) if member.property.name == "exports");
        if !is_module_exports {
            return None;
        }
    }
    let parent = nodes.parent_id(target);
    match nodes.kind(parent) {
        AstKind::StaticMemberExpression(member)
            if member.object.span() == nodes.kind(target).span() =>
        {
            name = member.property.name.to_string();
            target = parent;
        }
        AstKind::ComputedMemberExpression(member) => {
            if let Expression::StringLiteral(key) = &member.expression {
                name = key.value.to_string();
                target = parent;
            }
        }
        _ if is_exports => return None,
        _ => {}
    }
    match nodes.kind(nodes.parent_id(target)) {
        AstKind::AssignmentExpression(assignment)
            if assignment.left.span() == nodes.kind(target).span()
                && assignment.operator.is_assign() =>
        {
            Some((name, &assignment.right))
        }
        _ => None,
    }
}

/// Adds the exports of `factory(exports, require("zod"))` in a UMD bundle (CommonJS, AMD and script
/// at once). The factory is an argument of the function around the call, or assigned before it.
fn universal<'a>(evaluator: &Evaluator<'a>, exports: &mut Exports<'a>) {
    let scoping = evaluator.scoping();
    let nodes = evaluator.semantic.nodes();
    let root = evaluator.root();
    let unresolved = scoping.root_unresolved_references();
    for &reference in unresolved.get("exports").into_iter().flatten() {
        let node = scoping.get_reference(reference).node_id();
        let AstKind::CallExpression(call) = nodes.parent_kind(node) else {
            continue;
        };
        let Some(position) = call
            .arguments
            .iter()
            .position(|argument| argument.span() == nodes.kind(node).span())
        else {
            continue;
        };
        let Some(factory) = factory_of(evaluator, call) else {
            continue;
        };
        let exported = factory.node.params().items.get(position);
        let Some(symbol) = exported
            .and_then(|parameter| parameter.pattern.get_binding_identifier())
            .and_then(|name| name.symbol_id.get())
        else {
            continue;
        };
        let arguments = call.arguments.iter().map(|argument| Placed {
            value: match argument.as_expression() {
                Some(expression) => evaluator.eval(expression, &root),
                None => Value::Undefined,
            },
            span: argument.span(),
        });
        let frame = evaluator.enter(&factory, arguments.collect());
        for reference in scoping.get_resolved_references(symbol) {
            if let Some((name, assigned)) = export_assignment(evaluator, reference.node_id(), true)
            {
                let value = evaluator.eval(assigned, &frame);
                exports.add(&name, value, assigned.span(), 0);
            }
        }
    }
}

/// Returns the function that a call by name calls.
fn factory_of<'a>(
    evaluator: &Evaluator<'a>,
    call: &'a CallExpression<'a>,
) -> Option<Rc<Closure<'a>>> {
    let Expression::Identifier(callee) = &call.callee else {
        return None;
    };
    let scoping = evaluator.scoping();
    let nodes = evaluator.semantic.nodes();
    let root = evaluator.root();
    let symbol = evaluator.symbol_of(callee)?;
    let value = match evaluator.function_of(callee.node_id.get()) {
        None => evaluator.symbol(symbol, callee.span, &root),
        Some(around) => {
            let AstKind::Function(function) = nodes.kind(around) else {
                return None;
            };
            let position = function.params.items.iter().position(|parameter| {
                parameter
                    .pattern
                    .get_binding_identifier()
                    .is_some_and(|name| name.symbol_id.get() == Some(symbol))
            })?;
            let AstKind::CallExpression(outer) = nodes.parent_kind(around) else {
                return None;
            };
            if scoping.symbol_is_mutated(symbol) {
                return None;
            }
            evaluator.eval(outer.arguments.get(position)?.as_expression()?, &root)
        }
    };
    match value {
        Value::Function(closure) => Some(closure),
        _ => None,
    }
}

/// True if a place is never reached: `0 && (module.exports = {...})` only lists the export names
/// for Node.
fn is_dead(evaluator: &Evaluator<'_>, node: NodeId) -> bool {
    let nodes = evaluator.semantic.nodes();
    let span = nodes.kind(node).span();
    nodes.ancestor_kinds(node).any(|kind| match kind {
        AstKind::LogicalExpression(logical) => {
            let is_right = logical.right.span().start <= span.start;
            let truth = match &logical.left {
                Expression::NumericLiteral(number) => Some(number.value != 0.0),
                Expression::BooleanLiteral(value) => Some(value.value),
                _ => None,
            };
            is_right
                && match logical.operator {
                    LogicalOperator::And => truth == Some(false),
                    LogicalOperator::Or => truth == Some(true),
                    LogicalOperator::Coalesce => false,
                }
        }
        _ => false,
    })
}

/// Adds configurations that are not exported in a known way, such as inside a wrapper around the
/// bundle.
fn unexported<'a>(evaluator: &Evaluator<'a>, exports: &mut Exports<'a>) {
    let root = evaluator.root();
    let nodes = evaluator.semantic.nodes();
    for node in nodes.iter() {
        let (callee, span) = match node.kind() {
            AstKind::CallExpression(call) => (&call.callee, call.span),
            AstKind::NewExpression(call) => (&call.callee, call.span),
            _ => continue,
        };
        let is_name = matches!(
            callee,
            Expression::Identifier(_)
                | Expression::StaticMemberExpression(_)
                | Expression::SequenceExpression(_)
        );
        if !is_name || !evaluator.may_be_factory(callee) {
            continue;
        }
        if let Value::Import(path) = evaluator.eval(callee, &root)
            && provenance::factory(&path) == Some(Factory::Config)
        {
            let value = match node.kind() {
                AstKind::CallExpression(call) => evaluator.call_value(call),
                AstKind::NewExpression(call) => evaluator.new_value(call),
                _ => continue,
            };
            exports.add("default", value, span, 0);
            exports.is_unexported = true;
        }
    }
}

/// Returns the refusal of a bundle without a configuration, with a hint.
pub(crate) fn missing(evaluator: &Evaluator<'_>) -> Refusal {
    let text = evaluator.source.text();
    let (reason, hint) = if text.contains("__webpack_require__")
        || text.contains("__webpack_modules__")
    {
        (
            "bundles of webpack keep their modules in functions, which are not looked into",
            "Bundle with esbuild, tsup or rollup.",
        )
    } else {
        (
            "there is no exported `createLightfast({...})` of lightfast, and no exported `tool({...})` of ai",
            "Write `export default createLightfast({agents: {...}})` or `module.exports = createLightfast({...})`, and keep \
             lightfast, ai and zod out of minified bundles (`packages: \"external\"`).",
        )
    };
    Refusal::new(ProblemCode::NoConfig, Span::new(0, 0), reason, hint)
}
