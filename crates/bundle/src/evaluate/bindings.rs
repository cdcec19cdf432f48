//! Names: resolution to declarations, and the values of declarations.

use super::Evaluator;
use crate::problem::ProblemCode;
use crate::provenance;
use crate::value::*;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use oxc_syntax::node::NodeId;
use oxc_syntax::symbol::SymbolId;
use std::rc::Rc;

impl<'a> Evaluator<'a> {
    /// Returns the declaration that a name refers to; `None` for a global.
    pub(crate) fn symbol_of(&self, node: &IdentifierReference<'a>) -> Option<SymbolId> {
        let reference = node.reference_id.get()?;
        self.scoping().get_reference(reference).symbol_id()
    }

    pub(super) fn identifier(
        &self,
        node: &'a IdentifierReference<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        if self.is_in_with(node.span) {
            return Err(Refusal::new(
                ProblemCode::DynamicValue,
                node.span,
                format!(
                    "`{}` stands in a `with`, so it may be a property of anything",
                    node.name
                ),
                "Write the names out, without `with`.",
            ));
        }
        match self.symbol_of(node) {
            Some(symbol) => {
                if self.is_before_declaration(node, symbol) {
                    return Err(Refusal::new(
                        ProblemCode::DynamicValue,
                        node.span,
                        format!("`{}` is used before it has a value", node.name),
                        "Move its declaration up.",
                    ));
                }
                Ok(self.symbol(symbol, node.span, frame))
            }
            None => self.global(node),
        }
    }

    fn global(&self, node: &IdentifierReference<'a>) -> Result<Value<'a>, Refusal> {
        match node.name.as_str() {
            "undefined" => return Ok(Value::Undefined),
            "NaN" => return Ok(Value::Number(f64::NAN)),
            "Infinity" => return Ok(Value::Number(f64::INFINITY)),
            _ => {}
        }
        if let Some(path) = provenance::by_name(&node.name) {
            self.warn(
                ProblemCode::Stub,
                node.span,
                format!(
                    "`{}` is not imported and not declared; it is taken for the one of `{}`",
                    node.name, path.package
                ),
            );
            return Ok(Value::Import(Rc::new(path)));
        }
        Err(Refusal::new(
            ProblemCode::DynamicValue,
            node.span,
            format!("`{}`, which is only known when the bundle runs", node.name),
            "Write the value itself.",
        ))
    }

    /// True if a name is read above its declaration, in the same function.
    fn is_before_declaration(&self, node: &IdentifierReference<'a>, symbol: SymbolId) -> bool {
        let nodes = self.semantic.nodes();
        let declaration = self.scoping().symbol_declaration(symbol);
        let AstKind::VariableDeclarator(declarator) = nodes.kind(declaration) else {
            return false;
        };
        declarator.init.is_some()
            && node.span.end <= declarator.span.start
            && self.function_of(node.node_id.get()) == self.function_of(declaration)
    }

    /// True if `this` at a node is that of the module: undefined, or the empty object of its
    /// exports.
    pub(super) fn is_of_module(&self, node: NodeId) -> bool {
        let nodes = self.semantic.nodes();
        !nodes
            .ancestor_kinds(node)
            .any(|kind| matches!(kind, AstKind::Function(_) | AstKind::Class(_)))
    }

    /// True if a place lies in the body of a `with`.
    fn is_in_with(&self, span: Span) -> bool {
        let bodies = self.with_bodies.get_or_init(|| {
            if !self.source.text().contains("with") {
                return Vec::new();
            }
            let nodes = self.semantic.nodes().iter();
            let bodies = nodes.filter_map(|node| match node.kind() {
                AstKind::WithStatement(with) => Some(with.body.span()),
                _ => None,
            });
            bodies.collect()
        });
        bodies
            .iter()
            .any(|body| body.start <= span.start && span.end <= body.end)
    }

    /// Warns of `eval` that runs when the bundle is loaded and may change values that were read.
    pub(crate) fn warn_of_eval(&self) {
        let unresolved = self.scoping().root_unresolved_references();
        let nodes = self.semantic.nodes();
        for &reference in unresolved.get("eval").into_iter().flatten() {
            let node = self.scoping().get_reference(reference).node_id();
            if let AstKind::CallExpression(call) = nodes.parent_kind(node)
                && call.callee.span() == nodes.kind(node).span()
                && self.function_of(node).is_none()
            {
                let reason =
                    "`eval` may change values that were read here: its code is not looked at";
                self.warn(ProblemCode::Ignored, call.span, reason.to_owned());
            }
        }
    }

    /// Returns the function around a node; `None` at the level of the module.
    pub(crate) fn function_of(&self, node: NodeId) -> Option<NodeId> {
        let nodes = self.semantic.nodes();
        nodes.ancestor_ids(node).find(|&id| {
            matches!(
                nodes.kind(id),
                AstKind::Function(_) | AstKind::ArrowFunctionExpression(_)
            )
        })
    }

    /// Returns the value of a declaration, evaluated once per frame.
    pub(crate) fn symbol(&self, symbol: SymbolId, used: Span, frame: &Rc<Frame<'a>>) -> Value<'a> {
        let home = self.home(symbol, frame);
        if let Some((_, value)) = home.parameters.iter().find(|(id, _)| *id == symbol) {
            return value.clone();
        }
        if let Some(known) = home.known.borrow().get(&symbol) {
            return known.clone().unwrap_or_else(|| {
                Refusal::new(
                    ProblemCode::DynamicValue,
                    used,
                    format!(
                        "`{}` is used in its own value",
                        self.scoping().symbol_name(symbol)
                    ),
                    "Write a value that does not need itself.",
                )
                .value()
            });
        }
        // Marks the evaluation as running: a value that refers to itself is refused instead of
        // recursing without end.
        home.known.borrow_mut().insert(symbol, None);
        let value = self.declared(symbol, &home).unwrap_or_else(Refusal::value);
        let value = self.refuse_mutated(symbol, value);
        home.known.borrow_mut().insert(symbol, Some(value.clone()));
        value
    }

    /// Returns the frame that holds the value of a declaration.
    fn home(&self, symbol: SymbolId, frame: &Rc<Frame<'a>>) -> Rc<Frame<'a>> {
        let scoping = self.scoping();
        let declared_in = scoping.symbol_scope_id(symbol);
        let mut frame = frame.clone();
        loop {
            let Some(scope) = frame.scope else {
                return frame;
            };
            if scoping.scope_is_descendant_of(declared_in, scope) || declared_in == scope {
                return frame;
            }
            match &frame.parent {
                Some(parent) => frame = parent.clone(),
                None => return frame,
            }
        }
    }

    fn declared(&self, symbol: SymbolId, frame: &Rc<Frame<'a>>) -> Result<Value<'a>, Refusal> {
        let scoping = self.scoping();
        let nodes = self.semantic.nodes();
        let name = scoping.symbol_name(symbol);
        let span = scoping.symbol_span(symbol);
        if let Some(path) = self.bundled_package(span.start, name) {
            self.warn(
                ProblemCode::Stub,
                span,
                format!(
                    "`{}` is part of the bundle; it was recognised by the comment that names its file",
                    path.package
                ),
            );
            return Ok(Value::Import(Rc::new(path)));
        }
        let declaration = scoping.symbol_declaration(symbol);
        match nodes.kind(declaration) {
            AstKind::VariableDeclarator(declarator) => self.variable(symbol, declarator, frame),
            AstKind::Function(node) => {
                if let Some(path) = self.local_stub(symbol, node.params.items.len(), span) {
                    return Ok(Value::Import(Rc::new(path)));
                }
                Ok(Self::function(FunctionNode::Function(node), frame, None))
            }
            AstKind::Class(node) => {
                if let Some(path) = self.local_stub(symbol, 1, span) {
                    return Ok(Value::Import(Rc::new(path)));
                }
                Ok(Value::Class(node, frame.clone()))
            }
            AstKind::TSEnumDeclaration(node) => self.ts_enum(node, frame),
            AstKind::ImportSpecifier(_)
            | AstKind::ImportDefaultSpecifier(_)
            | AstKind::ImportNamespaceSpecifier(_) => Ok(self.imported(declaration)),
            AstKind::FormalParameter(_) | AstKind::FormalParameterRest(_) => Err(Refusal::new(
                ProblemCode::DynamicValue,
                span,
                format!(
                    "`{name}`, which is an argument of a function and only known when it is called"
                ),
                "Write the value itself.",
            )),
            _ => Err(self.dynamic(span)),
        }
    }

    /// Returns the package whose file a place belongs to, if the bundle contains packages.
    fn bundled_package(&self, offset: u32, name: &str) -> Option<ImportPath> {
        let index = self.files.partition_point(|(start, _)| *start <= offset);
        let (_, file) = self.files.get(index.checked_sub(1)?)?;
        if !file.contains("node_modules/") {
            return None;
        }
        provenance::bundled(file, name)
    }

    /// Returns the package's function that a function of the bundle stands for: it has the same
    /// name, takes parameters and is called.
    fn local_stub(&self, symbol: SymbolId, parameters: usize, span: Span) -> Option<ImportPath> {
        let name = self.scoping().symbol_name(symbol);
        let path = provenance::by_name(name)?;
        let nodes = self.semantic.nodes();
        let is_called = || {
            self.scoping()
                .get_resolved_references(symbol)
                .any(|reference| match nodes.parent_kind(reference.node_id()) {
                    AstKind::CallExpression(call) => {
                        call.callee.span() == nodes.kind(reference.node_id()).span()
                    }
                    AstKind::NewExpression(_) => true,
                    _ => false,
                })
        };
        if parameters == 0 || !is_called() {
            return None;
        }
        self.warn(
            ProblemCode::Stub,
            span,
            format!(
                "`{name}` is declared in the bundle; it is taken for the one of `{}`",
                path.package
            ),
        );
        Some(path)
    }

    fn imported(&self, specifier: NodeId) -> Value<'a> {
        let nodes = self.semantic.nodes();
        let AstKind::ImportDeclaration(declaration) = nodes.parent_kind(specifier) else {
            return self.dynamic(nodes.kind(specifier).span()).value();
        };
        if declaration.with_clause.is_some() {
            return Refusal::new(
                ProblemCode::ImportNotAllowed,
                declaration.span,
                format!(
                    "`{}` is imported with attributes, as data that is not in the bundle",
                    declaration.source.value
                ),
                "Let the bundler put the data into the bundle.",
            )
            .value();
        }
        let package = ImportPath::new(&declaration.source.value);
        let path = match nodes.kind(specifier) {
            AstKind::ImportSpecifier(node) => package.member(&node.imported.name()),
            _ => package,
        };
        Value::Import(Rc::new(path))
    }

    fn variable(
        &self,
        symbol: SymbolId,
        declarator: &'a VariableDeclarator<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let scoping = self.scoping();
        let name = scoping.symbol_name(symbol);
        if let Some(init) = &declarator.init {
            if let Some(write) = self.first_write(symbol) {
                return Err(Self::written_again(name, write, declarator.span));
            }
            if let Expression::ArrowFunctionExpression(node) = init
                && let Some(path) =
                    self.local_stub(symbol, node.params.items.len(), declarator.span)
            {
                return Ok(Value::Import(Rc::new(path)));
            }
            if let Expression::FunctionExpression(node) = init
                && let Some(path) =
                    self.local_stub(symbol, node.params.items.len(), declarator.span)
            {
                return Ok(Value::Import(Rc::new(path)));
            }
            if let Expression::CallExpression(call) = init
                && let Some(value) = self.enum_call(call, symbol, frame)?
            {
                return Ok(value);
            }
            if let Expression::ObjectExpression(object) = init
                && object.properties.is_empty()
                && let Some(exports) = self.export_object(symbol, frame)
            {
                return Ok(exports);
            }
            let value = self.eval(init, frame);
            if let BindingPattern::BindingIdentifier(_) = &declarator.id {
                return Ok(value);
            }
            let mut bound = Vec::new();
            self.bind(&declarator.id, value, frame, &mut bound);
            let found = bound.into_iter().find(|(id, _)| *id == symbol);
            return match found {
                Some((_, value)) => Ok(value),
                None => Err(self.dynamic(declarator.span)),
            };
        }
        self.assigned_once(symbol, declarator, frame)
    }

    /// Evaluates the exports in `var x_exports = {}; __export(x_exports, {name: () => value})`,
    /// which esbuild generates for modules.
    fn export_object(&self, symbol: SymbolId, frame: &Rc<Frame<'a>>) -> Option<Value<'a>> {
        let nodes = self.semantic.nodes();
        let table =
            self.scoping()
                .get_resolved_references(symbol)
                .find_map(|reference| match nodes.parent_kind(reference.node_id()) {
                    AstKind::CallExpression(call) => self.export_table(call),
                    _ => None,
                })?;
        let Value::Object(getters) = self.eval_object(table, frame) else {
            return None;
        };
        let mut exports = (*getters).clone();
        for entry in &mut exports.entries {
            if let Value::Function(getter) = &entry.value {
                entry.value = self.call(&getter.clone(), Vec::new(), entry.span);
            }
        }
        Some(Value::Object(Rc::new(exports)))
    }

    /// Evaluates `let x; x = value;`, and enums as TypeScript and bundlers compile them.
    fn assigned_once(
        &self,
        symbol: SymbolId,
        declarator: &'a VariableDeclarator<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        let scoping = self.scoping();
        let nodes = self.semantic.nodes();
        let name = scoping.symbol_name(symbol);
        let mut writes = scoping
            .get_resolved_references(symbol)
            .filter(|reference| reference.is_write());
        let (Some(write), None) = (writes.next(), writes.next()) else {
            return match self.first_write(symbol) {
                Some(write) => Err(Self::written_again(name, write, declarator.span)),
                None => Ok(Value::Undefined),
            };
        };
        let node = write.node_id();
        if let AstKind::AssignmentExpression(assignment) = nodes.parent_kind(node)
            && assignment.operator.is_assign()
        {
            if let Some(value) = self.enum_argument(node, symbol, frame)? {
                return Ok(value);
            }
            let is_straight = nodes
                .ancestor_ids(node)
                .skip(1)
                .map(|id| nodes.kind(id))
                .find(|kind| {
                    !matches!(
                        kind,
                        AstKind::ExpressionStatement(_)
                            | AstKind::SequenceExpression(_)
                            | AstKind::AssignmentExpression(_)
                    )
                })
                .is_some_and(|kind| matches!(kind, AstKind::Program(_) | AstKind::FunctionBody(_)));
            let declaration = scoping.symbol_declaration(symbol);
            if is_straight && self.function_of(node) == self.function_of(declaration) {
                return Ok(self.eval(&assignment.right, frame));
            }
        }
        Err(Self::written_again(
            name,
            nodes.kind(node).span(),
            declarator.span,
        ))
    }

    fn first_write(&self, symbol: SymbolId) -> Option<Span> {
        self.scoping()
            .get_resolved_references(symbol)
            .find(|reference| reference.is_write())
            .map(|reference| self.semantic.nodes().kind(reference.node_id()).span())
    }

    fn written_again(name: &str, write: Span, declared: Span) -> Refusal {
        Refusal::new(
            ProblemCode::Mutated,
            write,
            format!("`{name}` is given a value in more than one place or under a condition"),
            "Declare it once, with `const`.",
        )
        .also(declared, "declared here")
    }

    /// Binds the names of a pattern to the parts of a value.
    pub(super) fn bind(
        &self,
        pattern: &'a BindingPattern<'a>,
        value: Value<'a>,
        frame: &Rc<Frame<'a>>,
        bound: &mut Vec<(SymbolId, Value<'a>)>,
    ) {
        match pattern {
            BindingPattern::BindingIdentifier(node) => {
                if let Some(symbol) = node.symbol_id.get() {
                    bound.push((symbol, value));
                }
            }
            BindingPattern::AssignmentPattern(node) => {
                let value = match value {
                    Value::Undefined => self.eval(&node.right, frame),
                    value => value,
                };
                self.bind(&node.left, value, frame, bound);
            }
            BindingPattern::ObjectPattern(node) => {
                let mut taken: Vec<Rc<str>> = Vec::new();
                for property in &node.properties {
                    let part = match self.property_key(&property.key, property.computed, frame) {
                        Ok(key) => {
                            let part = self
                                .member(&value, &key, property.span)
                                .unwrap_or_else(Refusal::value);
                            taken.push(key);
                            part
                        }
                        Err(refusal) => refusal.value(),
                    };
                    self.bind(&property.value, part, frame, bound);
                }
                if let Some(rest) = &node.rest {
                    let part = match &value {
                        Value::Object(object) => {
                            let mut left = (**object).clone();
                            left.entries.retain(|entry| !taken.contains(&entry.key));
                            Value::Object(Rc::new(left))
                        }
                        _ => self.dynamic(rest.span).value(),
                    };
                    self.bind(&rest.argument, part, frame, bound);
                }
            }
            BindingPattern::ArrayPattern(node) => {
                let items = match &value {
                    Value::Array(items) => Ok(items.clone()),
                    Value::Unknown(refusal) => Err((**refusal).clone()),
                    _ => Err(self.dynamic(node.span)),
                };
                for (index, element) in node.elements.iter().enumerate() {
                    let Some(element) = element else { continue };
                    let part = match &items {
                        Ok(items) => items
                            .get(index)
                            .map_or(Value::Undefined, |item| item.value.clone()),
                        Err(refusal) => refusal.clone().value(),
                    };
                    self.bind(element, part, frame, bound);
                }
                if let Some(rest) = &node.rest {
                    let part = match &items {
                        Ok(items) => Value::Array(Rc::new(
                            items.iter().skip(node.elements.len()).cloned().collect(),
                        )),
                        Err(refusal) => refusal.clone().value(),
                    };
                    self.bind(&rest.argument, part, frame, bound);
                }
            }
        }
    }
}
