//! Detection of agents of other libraries (`new ToolLoopAgent({...})`). They are not read, but each
//! is reported.

use crate::evaluate::Evaluator;
use crate::problem::ProblemCode;
use crate::provenance;
use crate::report::Report;
use crate::source::quoted;
use crate::value::{ImportPath, Refusal, Value};
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use oxc_syntax::node::NodeId;
use std::rc::Rc;

/// Properties of an agent. An object with one of them is taken for a declaration.
const AGENT_PROPERTIES: [&str; 4] = ["model", "instructions", "system", "tools"];

const HINT: &str = "Declare it with `createAgent({name, system, model, tools})` of lightfast, in an exported \
    `createLightfast({agents: {...}})`.";

/// Warns of every agent that a constructor of another library makes, at the level of the module or
/// as the return value of an exported function. Agents that other functions make at run time are
/// not declarations.
pub(crate) fn warn_of_unread_agents(evaluator: &Evaluator<'_>, report: &mut Report<'_>) {
    for node in evaluator.semantic.nodes().iter() {
        let (callee, arguments, span, is_new) = match node.kind() {
            AstKind::NewExpression(new) => (&new.callee, &new.arguments, new.span, true),
            AstKind::CallExpression(call) => (&call.callee, &call.arguments, call.span, false),
            _ => continue,
        };
        // The cheap tests come first: they exclude most calls of a bundle.
        if !is_name(callee)
            || !arguments
                .iter()
                .any(|argument| describes_agent(evaluator, argument))
            || !is_declared(evaluator, node.id())
        {
            continue;
        }
        let Value::Import(path) = evaluator.eval(callee, &evaluator.root()) else {
            continue;
        };
        if is_read_elsewhere(&path, is_new) {
            continue;
        }
        let (name, place) = declared_name(evaluator, node.id()).unwrap_or_default();
        let reason = format!(
            "the agent that `{}` of `{}` makes is not read and left out",
            quoted(path.path.last().map_or("default", |name| name)),
            quoted(&path.package)
        );
        let mut refusal = Refusal::new(ProblemCode::AgentNotRead, span, reason, HINT);
        if let Some(place) = place {
            refusal = refusal.also(place, "its name");
        }
        report.add(&name, &refusal);
    }
}

fn is_name(callee: &Expression<'_>) -> bool {
    matches!(
        callee,
        Expression::Identifier(_)
            | Expression::StaticMemberExpression(_)
            | Expression::SequenceExpression(_)
    )
}

/// True for functions whose calls are read or refused elsewhere, or that make no agent: tools and
/// schemas of known packages, models, and the functions of `ai` that ask a model.
fn is_read_elsewhere(path: &Rc<ImportPath>, is_new: bool) -> bool {
    let package = &*path.package;
    let name = path.path.last().map_or("", |name| &**name);
    provenance::factory(path).is_some()
        || provenance::is_zod(package)
        || provenance::is_model_provider(package)
        || provenance::is_lightfast(package)
        || (package == "ai" && !is_new && !name.to_ascii_lowercase().contains("agent"))
}

/// True for an object with a property of an agent, in place or through a name.
fn describes_agent<'a>(evaluator: &Evaluator<'a>, argument: &'a Argument<'a>) -> bool {
    let Some(expression) = argument.as_expression() else {
        return false;
    };
    if let Expression::ObjectExpression(object) = expression.get_inner_expression() {
        let is_named = object.properties.iter().any(|property| match property {
            ObjectPropertyKind::ObjectProperty(property) => property
                .key
                .static_name()
                .is_some_and(|name| AGENT_PROPERTIES.contains(&&*name)),
            ObjectPropertyKind::SpreadProperty(_) => false,
        });
        let has_spread = object
            .properties
            .iter()
            .any(|property| matches!(property, ObjectPropertyKind::SpreadProperty(_)));
        if is_named || !has_spread {
            return is_named;
        }
    } else if !matches!(expression, Expression::Identifier(_)) {
        return false;
    }
    match evaluator.eval(expression, &evaluator.root()) {
        Value::Object(fields) => AGENT_PROPERTIES
            .iter()
            .any(|name| fields.get(name).is_some()),
        _ => false,
    }
}

/// True at the level of the module, inside the functions that bundlers wrap around one, and for the
/// return value of a function at the level of the module.
fn is_declared(evaluator: &Evaluator<'_>, node: NodeId) -> bool {
    let nodes = evaluator.semantic.nodes();
    let mut inside = node;
    while let Some(function) = evaluator.function_of(inside) {
        let is_outermost = evaluator.function_of(function).is_none();
        let is_reached =
            is_wrapper(evaluator, function) || is_outermost && returns(evaluator, function, node);
        if !is_reached {
            return false;
        }
        inside = function;
    }
    // Members of classes are excluded: their code runs only when the class is used.
    !nodes
        .ancestor_kinds(node)
        .any(|kind| matches!(kind, AstKind::Class(_)))
}

/// True for a function that is called, or passed to a call, in place: `(() => {...})()`, UMD,
/// `__commonJS({...})`.
fn is_wrapper(evaluator: &Evaluator<'_>, function: NodeId) -> bool {
    let nodes = evaluator.semantic.nodes();
    let span = nodes.kind(function).span();
    match nodes.parent_kind(function) {
        AstKind::CallExpression(call) => {
            let is_called = call.callee.span() == span;
            is_called || call.callee.get_inner_expression().is_function()
        }
        AstKind::ObjectProperty(property) => {
            matches!(&property.key, PropertyKey::StringLiteral(file)
            if file.value.contains('/') || file.value.contains('.'))
        }
        AstKind::AssignmentExpression(_) => true,
        _ => false,
    }
}

/// True if a named function, which is no field such as `execute`, returns the value of this node.
fn returns(evaluator: &Evaluator<'_>, function: NodeId, node: NodeId) -> bool {
    let nodes = evaluator.semantic.nodes();
    if matches!(
        nodes.parent_kind(function),
        AstKind::ObjectProperty(_) | AstKind::CallExpression(_) | AstKind::NewExpression(_)
    ) {
        return false;
    }
    match nodes.parent_kind(node) {
        AstKind::ReturnStatement(_) | AstKind::ArrowFunctionExpression(_) => true,
        // The body of `() => new Agent({...})` is an expression statement.
        AstKind::ExpressionStatement(_) => {
            matches!(nodes.kind(function), AstKind::ArrowFunctionExpression(arrow)
                if arrow.get_expression().is_some())
        }
        _ => false,
    }
}

/// Returns the name of the variable, field or function that holds an agent, and its place.
fn declared_name(evaluator: &Evaluator<'_>, node: NodeId) -> Option<(String, Option<Span>)> {
    for kind in evaluator.semantic.nodes().ancestor_kinds(node) {
        match kind {
            AstKind::VariableDeclarator(declarator) => {
                let name = declarator.id.get_binding_identifier()?;
                return Some((name.name.to_string(), Some(name.span)));
            }
            AstKind::ObjectProperty(property) => {
                let name = property.key.static_name()?;
                return Some((name.to_string(), Some(property.key.span())));
            }
            AstKind::Function(function) if function.id.is_some() => {
                let name = function.id.as_ref()?;
                return Some((name.name.to_string(), Some(name.span)));
            }
            AstKind::ExportDefaultDeclaration(_) => return Some(("default".to_owned(), None)),
            _ => {}
        }
    }
    None
}
