//! Slicing: extracts the code of one tool, which is its function, the declarations it uses directly
//! or indirectly, and the statements that complete them (`Table.x = ...`, enums). All of it is text
//! of the bundle, in its order. The rest is left out, so a call of the tool does not run the
//! bundle's top-level code.

use crate::Json;
use crate::data;
use crate::evaluate::Evaluator;
use crate::limits::MAX_SLICE_BYTES;
use crate::model::Slice;
use crate::problem::ProblemCode;
use crate::source::quoted;
use crate::value::*;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use oxc_syntax::node::NodeId;
use oxc_syntax::symbol::SymbolId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Modules that are available to tools.
const MODULES: [&str; 4] = ["crypto", "node:crypto", "node:util", "util"];

/// Names that every JavaScript engine defines.
const LANGUAGE: [&str; 56] = [
    "AggregateError",
    "Array",
    "ArrayBuffer",
    "Atomics",
    "BigInt",
    "BigInt64Array",
    "BigUint64Array",
    "Boolean",
    "DataView",
    "Date",
    "Error",
    "EvalError",
    "Float32Array",
    "Float64Array",
    "Function",
    "Infinity",
    "Int16Array",
    "Int32Array",
    "Int8Array",
    "Intl",
    "Iterator",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "Proxy",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "SharedArrayBuffer",
    "String",
    "Symbol",
    "SyntaxError",
    "TypeError",
    "URIError",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "Uint8ClampedArray",
    "WeakMap",
    "WeakRef",
    "WeakSet",
    "arguments",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "globalThis",
    "isFinite",
    "isNaN",
    "undefined",
];

/// Extracts the code of a function from the bundle.
///
/// # Errors
/// All parts that cannot be extracted.
pub(crate) fn cut<'a>(
    evaluator: &Evaluator<'a>,
    closure: &Closure<'a>,
) -> Result<Slice, Vec<Refusal>> {
    let mut cutter = Cutter {
        evaluator,
        closure,
        parts: BTreeMap::new(),
        names: HashMap::new(),
        queue: Vec::new(),
        modules: BTreeSet::new(),
        globals: BTreeSet::new(),
        state: BTreeSet::new(),
        refusals: Vec::new(),
    };
    let export = cutter.root();
    cutter.run();
    if !cutter.refusals.is_empty() {
        return Err(cutter.refusals);
    }
    let mut code = String::new();
    for text in cutter.parts.values() {
        code.push_str(text);
        code.push('\n');
    }
    code.push_str(&export);
    code.push('\n');
    if code.len() > MAX_SLICE_BYTES {
        return Err(vec![Refusal::new(
            ProblemCode::TooLarge,
            closure.node.span(),
            format!(
                "the code of the tool, with what it needs, is longer than {MAX_SLICE_BYTES} bytes"
            ),
            "Let it use less of what the bundle carries along.",
        )]);
    }
    Ok(Slice {
        code,
        modules: cutter.modules.into_iter().collect(),
        globals: cutter.globals.into_iter().collect(),
        state: cutter.state.into_iter().collect(),
    })
}

struct Cutter<'e, 'a> {
    evaluator: &'e Evaluator<'a>,
    closure: &'e Closure<'a>,
    /// Text of the extracted parts, by offset.
    parts: BTreeMap<u32, String>,
    names: HashMap<String, SymbolId>,
    /// Parts whose names are not resolved yet, with the path of names that leads to them.
    queue: Vec<(Span, String)>,
    modules: BTreeSet<String>,
    globals: BTreeSet<String>,
    state: BTreeSet<String>,
    refusals: Vec<Refusal>,
}

impl<'a> Cutter<'_, 'a> {
    /// Returns the function as the default export.
    fn root(&mut self) -> String {
        let span = self.closure.node.span();
        if let FunctionNode::Function(node) = self.closure.node
            && node.is_declaration()
            && let Some(id) = &node.id
            && let Some(symbol) = id.symbol_id.get()
        {
            self.need(symbol, "execute");
            return format!("export default {};", id.name);
        }
        if let Some(method) = self.closure.method {
            self.queue.push((method, "execute".to_owned()));
            let text = self.expression(method);
            let text = text.strip_prefix("static ").unwrap_or(&text);
            return format!("export default Object.values({{ {text} }})[0];");
        }
        self.queue.push((span, "execute".to_owned()));
        format!("export default ({});", self.expression(span))
    }

    /// Returns the JavaScript of a part of the bundle. Reports TypeScript syntax that cannot be
    /// erased.
    fn code(&mut self, span: Span) -> String {
        let Some(erasure) = &self.evaluator.erasure else {
            return self.evaluator.source.slice(span).to_owned();
        };
        for found in erasure.untranslated_in(span) {
            self.refusals.push(Refusal::new(
                ProblemCode::TypeScript,
                found.span,
                format!(
                    "the tool uses {}, which is more than a type: only types are taken out before it runs",
                    found.what
                ),
                found.hint,
            ));
        }
        erasure.slice(span).to_owned()
    }

    /// Returns the JavaScript of an expression or a member, without the semicolons of erased types.
    fn expression(&mut self, span: Span) -> String {
        let code = self.code(span);
        let is_apart = |c: char| c == ';' || c.is_whitespace();
        code.trim_matches(is_apart).to_owned()
    }

    fn run(&mut self) {
        while let Some((span, way)) = self.queue.pop() {
            if let Err(refusal) = self.evaluator.spend(1, span) {
                self.refusals.push(refusal);
                return;
            }
            self.uses(span, &way);
        }
    }

    /// Resolves every name in a part.
    fn uses(&mut self, span: Span, way: &str) {
        let scoping = self.evaluator.scoping();
        for used in self.evaluator.names_in(span) {
            match used {
                UsedName::Symbol(symbol) => {
                    let declared = scoping.symbol_span(symbol);
                    if !(span.start <= declared.start && declared.end <= span.end) {
                        self.need(symbol, way);
                    }
                }
                UsedName::Global(name, node) => self.global(&name, node, way),
                UsedName::Import(node) => self.dynamic_import(node, way),
            }
        }
    }

    fn global(&mut self, name: &str, node: NodeId, way: &str) {
        if name == "require" {
            if let AstKind::CallExpression(call) = self.evaluator.semantic.nodes().parent_kind(node)
                && call.callee.span() == self.evaluator.semantic.nodes().kind(node).span()
            {
                match call.arguments.first().and_then(|argument| argument.as_expression()) {
                    Some(Expression::StringLiteral(module)) => {
                        self.module(&module.value, call.span, way);
                    }
                    _ => self.refusals.push(Refusal::new(
                        ProblemCode::ImportNotAllowed,
                        call.span,
                        format!("the tool requires a module whose name is only known when it runs ({way})"),
                        "Name the module.",
                    )),
                }
            }
            return;
        }
        if !LANGUAGE.contains(&name) {
            self.globals.insert(name.to_owned());
        }
    }

    fn dynamic_import(&mut self, node: NodeId, way: &str) {
        let AstKind::ImportExpression(import) = self.evaluator.semantic.nodes().kind(node) else {
            return;
        };
        match &import.source {
            Expression::StringLiteral(module) => {
                self.module(&module.value, import.span, way);
            }
            _ => self.refusals.push(Refusal::new(
                ProblemCode::ImportNotAllowed,
                import.span,
                format!("the tool imports a module whose name is only known when it runs ({way})"),
                "Name the module.",
            )),
        }
    }

    fn module(&mut self, name: &str, span: Span, way: &str) -> bool {
        if MODULES.contains(&name) {
            self.modules.insert(name.to_owned());
            return true;
        }
        let hint = if crate::provenance::is_zod(name) {
            "Let the bundler put zod into the bundle, or check the input without it: it was checked already."
        } else {
            "Tools have `node:crypto` and `node:util`. Let the bundler put other packages into the bundle."
        };
        self.refusals.push(Refusal::new(
            ProblemCode::ImportNotAllowed,
            span,
            format!(
                "the code of the tool uses `{}` ({way} -> {})",
                quoted(name),
                quoted(name)
            ),
            hint,
        ));
        false
    }

    /// Adds the declaration of a name.
    fn need(&mut self, symbol: SymbolId, way: &str) {
        let scoping = self.evaluator.scoping();
        let name = scoping.symbol_name(symbol).to_owned();
        match self.names.get(&name) {
            Some(known) if *known == symbol => return,
            Some(other) => {
                let refusal = Refusal::new(
                    ProblemCode::ToolClosure,
                    scoping.symbol_span(symbol),
                    format!("the tool uses two different declarations named `{name}` ({way})"),
                    "Give one of them another name.",
                );
                self.refusals
                    .push(refusal.also(scoping.symbol_span(*other), "the other one"));
                return;
            }
            None => self.names.insert(name.clone(), symbol),
        };
        let way = format!("{way} -> {name}");
        let first = scoping.symbol_declaration(symbol);
        self.declaration(first, symbol, &name, &way);
        // A function may have overloads, and a class an interface of the same name.
        for other in scoping.symbol_redeclarations(symbol) {
            if other.declaration != first {
                self.declaration(other.declaration, symbol, &name, &way);
            }
        }
        self.writes(symbol, &name, &way);
    }

    fn declaration(&mut self, node: NodeId, symbol: SymbolId, name: &str, way: &str) {
        let nodes = self.evaluator.semantic.nodes();
        let kind = nodes.kind(node);
        match kind {
            AstKind::VariableDeclarator(declarator) => {
                let AstKind::VariableDeclaration(declaration) = nodes.parent_kind(node) else {
                    return self.closure_value(symbol, name, way);
                };
                let outer = nodes.parent_id(nodes.parent_id(node));
                let is_loop = matches!(
                    nodes.kind(outer),
                    AstKind::ForStatement(_)
                        | AstKind::ForInStatement(_)
                        | AstKind::ForOfStatement(_)
                );
                if is_loop {
                    let span = nodes.kind(outer).span();
                    let text = self.code(span);
                    return self.part(span, text, way);
                }
                let keyword = declaration.kind.as_str();
                let text = format!("{keyword} {};", self.code(declarator.span));
                self.part(declarator.span, text, way);
            }
            AstKind::Function(_)
            | AstKind::Class(_)
            | AstKind::TSNamespaceDeclaration(_)
            | AstKind::TSImportEqualsDeclaration(_) => {
                let span = kind.span();
                let text = self.code(span);
                self.part(span, text, way);
            }
            AstKind::TSEnumDeclaration(_) => self.enumeration(symbol, kind.span(), name),
            AstKind::TSInterfaceDeclaration(_) | AstKind::TSTypeAliasDeclaration(_) => {}
            AstKind::ImportSpecifier(_)
            | AstKind::ImportDefaultSpecifier(_)
            | AstKind::ImportNamespaceSpecifier(_) => self.import(node, name, way),
            _ => self.closure_value(symbol, name, way),
        }
    }

    fn part(&mut self, span: Span, text: String, way: &str) {
        if self.parts.insert(span.start, text).is_none() {
            self.queue.push((span, way.to_owned()));
        }
    }

    fn import(&mut self, node: NodeId, name: &str, way: &str) {
        let nodes = self.evaluator.semantic.nodes();
        let AstKind::ImportDeclaration(declaration) = nodes.parent_kind(node) else {
            return;
        };
        let module = declaration.source.value.as_str();
        if !self.module(module, declaration.span, way) {
            return;
        }
        let what = match nodes.kind(node) {
            AstKind::ImportSpecifier(specifier) => {
                let text = self.evaluator.source.slice(specifier.span);
                let text = text.strip_prefix("type ").unwrap_or(text);
                format!("{{ {text} }}")
            }
            AstKind::ImportNamespaceSpecifier(_) => format!("* as {name}"),
            _ => name.to_owned(),
        };
        let text = format!("import {what} from \"{module}\";");
        self.parts.insert(nodes.kind(node).span().start, text);
    }

    /// Adds an enum of TypeScript, as an object.
    fn enumeration(&mut self, symbol: SymbolId, span: Span, name: &str) {
        if !self
            .evaluator
            .scoping()
            .symbol_redeclarations(symbol)
            .is_empty()
        {
            self.refusals.push(Refusal::new(
                ProblemCode::TypeScript,
                span,
                format!("the tool uses `{name}`, an enum with several declarations"),
                "Declare all members at once.",
            ));
            return;
        }
        let placed = Placed {
            value: self.evaluator.symbol(symbol, span, &self.evaluator.root()),
            span,
        };
        match data::to_json(self.evaluator, &placed) {
            Ok(json) => {
                self.parts.insert(span.start, constant(name, &json));
            }
            Err(refusal) => self.refusals.push(refusal),
        }
    }

    /// Adds a constant for a parameter of a function around the tool, with its value in the call.
    fn closure_value(&mut self, symbol: SymbolId, name: &str, way: &str) {
        let scoping = self.evaluator.scoping();
        let span = scoping.symbol_span(symbol);
        let mut frame = Some(&self.closure.frame);
        while let Some(current) = frame {
            if let Some((_, value)) = current.parameters.iter().find(|(id, _)| *id == symbol) {
                match value {
                    Value::Function(inner) if inner.method.is_none() => {
                        let inner = inner.node.span();
                        let text = format!("const {name} = {};", self.expression(inner));
                        self.parts.insert(span.start, text);
                        self.queue.push((inner, way.to_owned()));
                        return;
                    }
                    Value::Undefined => {
                        self.parts
                            .insert(span.start, format!("const {name} = undefined;"));
                        return;
                    }
                    // A universal bundle requires packages before it calls its factory.
                    Value::Import(path) if path.path.len() <= 1 => {
                        if self.module(&path.package, span, way) {
                            let what = match path.path.first() {
                                Some(member) => format!("{{ {member} as {name} }}"),
                                None => format!("* as {name}"),
                            };
                            let text = format!("import {what} from \"{}\";", path.package);
                            self.parts.insert(span.start, text);
                        }
                        return;
                    }
                    value => {
                        let placed = Placed {
                            value: value.clone(),
                            span,
                        };
                        if let Ok(json) = data::to_json(self.evaluator, &placed) {
                            self.parts.insert(span.start, constant(name, &json));
                            return;
                        }
                    }
                }
                break;
            }
            frame = current.parent.as_ref();
        }
        self.refusals.push(Refusal::new(
            ProblemCode::ToolClosure,
            span,
            format!("the tool uses `{name}`, which is only known when the function around it is called ({way})"),
            "Make it a constant, or take it from the input or the second argument of `execute`.",
        ));
    }

    /// Adds the statements that complete a declaration, and records the name if functions change it
    /// later.
    fn writes(&mut self, symbol: SymbolId, name: &str, way: &str) {
        let scoping = self.evaluator.scoping();
        let declared_in = self
            .evaluator
            .function_of(scoping.symbol_declaration(symbol));
        for reference in scoping.get_resolved_references(symbol) {
            let node = reference.node_id();
            let is_write = reference.is_write() || self.writes_through(node);
            if !is_write {
                continue;
            }
            if self.evaluator.function_of(node) == declared_in {
                self.statement(node, way);
            } else {
                self.state.insert(name.to_owned());
            }
        }
    }

    /// True if a use of a name writes to the object behind it.
    fn writes_through(&self, reference: NodeId) -> bool {
        let nodes = self.evaluator.semantic.nodes();
        let mut node = reference;
        let mut depth = 0;
        loop {
            let span = nodes.kind(node).span();
            let parent = nodes.parent_id(node);
            match nodes.kind(parent) {
                AstKind::StaticMemberExpression(member) if member.object.span() == span => {
                    depth += 1;
                }
                AstKind::ComputedMemberExpression(member) if member.object.span() == span => {
                    depth += 1;
                }
                AstKind::AssignmentExpression(assignment) => {
                    return depth > 0 && assignment.left.span() == span;
                }
                AstKind::UpdateExpression(_) => return depth > 0,
                AstKind::CallExpression(call) => {
                    return depth == 0 && self.is_finishing(call, span);
                }
                AstKind::LogicalExpression(_) => {}
                _ => return false,
            }
            node = parent;
        }
    }

    /// True for `(function (E) {...})(E || (E = {}))`, `Object.defineProperty(X, ...)`,
    /// `__export(x, {...})`.
    fn is_finishing(&self, call: &'a CallExpression<'a>, argument: Span) -> bool {
        let Some(index) = call
            .arguments
            .iter()
            .position(|other| other.span() == argument)
        else {
            return false;
        };
        match call.callee.get_inner_expression() {
            Expression::FunctionExpression(_) | Expression::ArrowFunctionExpression(_) => true,
            Expression::StaticMemberExpression(member) => {
                index == 0
                    && self.evaluator.is_global(&member.object, "Object")
                    && (member.property.name.starts_with("define")
                        || matches!(member.property.name.as_str(), "assign" | "setPrototypeOf"))
            }
            Expression::Identifier(node) => {
                index == 0
                    && (node.name.starts_with("__") || self.evaluator.export_table(call).is_some())
            }
            _ => false,
        }
    }

    /// Adds the statement around a write, if it is on the level of declarations.
    fn statement(&mut self, node: NodeId, way: &str) {
        let nodes = self.evaluator.semantic.nodes();
        let mut inner = node;
        loop {
            let parent = nodes.parent_id(inner);
            if matches!(
                nodes.kind(parent),
                AstKind::Program(_) | AstKind::FunctionBody(_)
            ) {
                break;
            }
            if parent == inner {
                return;
            }
            inner = parent;
        }
        let kind = nodes.kind(inner);
        let is_statement = matches!(
            kind,
            AstKind::ExpressionStatement(_)
                | AstKind::ForStatement(_)
                | AstKind::ForInStatement(_)
                | AstKind::ForOfStatement(_)
                | AstKind::WhileStatement(_)
                | AstKind::DoWhileStatement(_)
                | AstKind::IfStatement(_)
                | AstKind::BlockStatement(_)
                | AstKind::TryStatement(_)
                | AstKind::SwitchStatement(_)
        );
        if is_statement {
            let span = kind.span();
            let text = self.code(span);
            self.part(span, text, way);
        }
    }
}

/// Name in a part of the source.
pub(crate) enum UsedName {
    Symbol(SymbolId),
    Global(String, NodeId),
    /// `import(...)`.
    Import(NodeId),
}

impl Evaluator<'_> {
    /// Returns the names that a part of the source reads or writes.
    fn names_in(&self, span: Span) -> Vec<UsedName> {
        let nodes = self.semantic.nodes();
        let scoping = self.scoping();
        let mut names = Vec::new();
        for &(_, node) in self.places_in(span) {
            match nodes.kind(node) {
                AstKind::IdentifierReference(identifier) => {
                    let Some(reference) = identifier.reference_id.get() else {
                        continue;
                    };
                    let reference = scoping.get_reference(reference);
                    if !reference.is_value() {
                        continue;
                    }
                    names.push(match reference.symbol_id() {
                        Some(symbol) => UsedName::Symbol(symbol),
                        None => UsedName::Global(identifier.name.to_string(), node),
                    });
                }
                AstKind::ImportExpression(_) => names.push(UsedName::Import(node)),
                _ => {}
            }
        }
        names
    }
}

/// Returns the declaration of a constant.
fn constant(name: &str, json: &Json) -> String {
    let text = serde_json::to_string(json).unwrap_or_default();
    // In a parsed string, `__proto__` is an ordinary key.
    match json {
        Json::Object(_) | Json::Array(_) => {
            let quoted = serde_json::to_string(&text).unwrap_or_default();
            format!("const {name} = JSON.parse({quoted});")
        }
        _ => format!("const {name} = {text};"),
    }
}
