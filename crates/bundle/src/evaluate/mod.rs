//! Evaluator: computes values from the syntax tree without running any code.
//!
//! It knows a closed list of forms (literals, templates, objects, lists, spreads, member access,
//! constant conditions, calls of plain local functions, a few pure built-in functions), and records
//! the calls of known packages' functions. Everything else is [`Value::Unknown`] with the reason,
//! which is an error only if the value is needed. Names are evaluated on demand: other statements
//! have no influence, unless they write to a value that is read (`mutation`). Steps, depth and
//! texts are bounded.

mod bindings;
mod builtins;
mod calls;
mod enums;
mod members;
mod mutation;
mod objects;
mod operators;
mod shapes;
mod texts;

pub(crate) use objects::getter;

use crate::erase::Erasure;
use crate::limits::FUEL;
use crate::problem::ProblemCode;
use crate::source::{Source, quoted};
use crate::value::*;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_semantic::{Scoping, Semantic};
use oxc_span::{GetSpan, Span};
use oxc_syntax::node::NodeId;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum nesting of expressions. Each level takes stack.
const MAX_EXPRESSION_DEPTH: u32 = 2_000;

/// Evaluator of one bundle.
pub(crate) struct Evaluator<'a> {
    pub semantic: &'a Semantic<'a>,
    pub source: &'a Source<'a>,
    /// Source with its types erased; `None` for JavaScript.
    pub erasure: Option<Erasure>,
    root: Rc<Frame<'a>>,
    fuel: Cell<u32>,
    depth: Cell<u32>,
    calls: Cell<u32>,
    /// All frames. Their values may refer back to the frame; `drop` breaks these cycles, or they
    /// would leak.
    frames: RefCell<Vec<Rc<Frame<'a>>>>,
    /// Offsets and names of the files that a bundler has joined, from its comments.
    files: Vec<(u32, &'a str)>,
    warnings: RefCell<Vec<(ProblemCode, Span, String)>>,
    /// Offsets of names and `import(...)`, in order.
    places: OnceCell<Vec<(u32, NodeId)>>,
    with_bodies: OnceCell<Vec<Span>>,
}

impl Drop for Evaluator<'_> {
    fn drop(&mut self) {
        for frame in self.frames.borrow().iter() {
            frame.known.borrow_mut().clear();
        }
    }
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(
        semantic: &'a Semantic<'a>,
        source: &'a Source<'a>,
        erasure: Option<Erasure>,
    ) -> Self {
        let root = Rc::new(Frame {
            parent: None,
            scope: None,
            parameters: Vec::new(),
            known: RefCell::new(HashMap::new()),
        });
        let files = semantic
            .comments()
            .iter()
            .filter_map(|comment| {
                let text = source.slice(comment.content_span()).trim();
                let is_path = !text.contains(' ')
                    && text.contains('/')
                    && [".js", ".mjs", ".cjs", ".ts", ".mts"]
                        .iter()
                        .any(|extension| text.ends_with(extension));
                is_path.then_some((comment.span.start, text))
            })
            .collect();
        Self {
            semantic,
            source,
            erasure,
            frames: RefCell::new(vec![root.clone()]),
            root,
            fuel: Cell::new(FUEL),
            depth: Cell::new(0),
            calls: Cell::new(0),
            files,
            warnings: RefCell::new(Vec::new()),
            places: OnceCell::new(),
            with_bodies: OnceCell::new(),
        }
    }

    /// Returns the names and `import(...)` in a part of the source.
    pub(crate) fn places_in(&self, span: Span) -> &[(u32, NodeId)] {
        let places = self.places.get_or_init(|| {
            let mut places: Vec<(u32, NodeId)> = self
                .semantic
                .nodes()
                .iter()
                .filter(|node| {
                    matches!(
                        node.kind(),
                        AstKind::IdentifierReference(_) | AstKind::ImportExpression(_)
                    )
                })
                .map(|node| (node.kind().span().start, node.id()))
                .collect();
            places.sort_unstable_by_key(|(start, _)| *start);
            places
        });
        let first = places.partition_point(|(start, _)| *start < span.start);
        let last = places.partition_point(|(start, _)| *start < span.end);
        places.get(first..last).unwrap_or_default()
    }

    pub(crate) fn scoping(&self) -> &'a Scoping {
        self.semantic.scoping()
    }

    /// Returns the frame of the module.
    pub(crate) fn root(&self) -> Rc<Frame<'a>> {
        self.root.clone()
    }

    /// Returns the warnings so far, and clears them.
    pub(crate) fn take_warnings(&self) -> Vec<(ProblemCode, Span, String)> {
        self.warnings.take()
    }

    pub(crate) fn warn(&self, code: ProblemCode, span: Span, reason: String) {
        let mut warnings = self.warnings.borrow_mut();
        if !warnings
            .iter()
            .any(|(other, _, text)| *other == code && *text == reason)
        {
            warnings.push((code, span, reason));
        }
    }

    /// Takes steps from the fuel.
    ///
    /// # Errors
    /// `E_TOO_DEEP` if the fuel is used up.
    pub(crate) fn spend(&self, steps: usize, span: Span) -> Result<(), Refusal> {
        let left = self.fuel.get();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.fuel.set(left.saturating_sub(steps));
        if left >= steps {
            return Ok(());
        }
        Err(Refusal::new(
            ProblemCode::TooDeep,
            span,
            format!("reading the configuration takes more than {FUEL} steps"),
            "Write values out, with fewer spreads and calls.",
        ))
    }

    /// Evaluates an expression. Never fails: a refusal becomes an unknown value.
    pub(crate) fn eval(&self, expression: &'a Expression<'a>, frame: &Rc<Frame<'a>>) -> Value<'a> {
        let span = expression.span();
        if let Err(refusal) = self.spend(1, span) {
            return refusal.value();
        }
        let depth = self.depth.get();
        if depth >= MAX_EXPRESSION_DEPTH {
            return Refusal::new(
                ProblemCode::TooDeep,
                span,
                format!("the value nests deeper than {MAX_EXPRESSION_DEPTH} levels"),
                "Write the value flatter.",
            )
            .value();
        }
        self.depth.set(depth + 1);
        let value = self
            .expression(expression, frame)
            .unwrap_or_else(Refusal::value);
        self.depth.set(depth);
        value
    }

    /// Evaluates an expression whose value must be known.
    fn known(
        &self,
        expression: &'a Expression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        match self.eval(expression, frame) {
            Value::Unknown(refusal) => Err((*refusal).clone()),
            value => Ok(value),
        }
    }

    fn expression(
        &self,
        expression: &'a Expression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        use Expression as E;
        Ok(match expression {
            E::BooleanLiteral(node) => Value::Boolean(node.value),
            E::NullLiteral(_) => Value::Null,
            E::NumericLiteral(node) => Value::Number(node.value),
            E::BigIntLiteral(node) => Value::BigInt(node.value.as_str().into()),
            E::RegExpLiteral(node) => Value::Regex(Rc::new(Regex {
                pattern: node.regex.pattern.text.to_string(),
                flags: node.regex.flags.to_string(),
            })),
            E::StringLiteral(node) => {
                if node.lone_surrogates {
                    return Err(texts::lone_surrogate(node.span));
                }
                Value::text(&node.value)
            }
            E::TemplateLiteral(node) => Value::Text(self.template(node, frame, false)?.into()),
            E::TaggedTemplateExpression(node) => self.tagged_template(node, frame)?,
            E::Identifier(node) => self.identifier(node, frame)?,
            E::ArrayExpression(node) => self.array(node, frame)?,
            E::ObjectExpression(node) => self.object(node, frame)?,
            E::ArrowFunctionExpression(node) => {
                Self::function(FunctionNode::Arrow(node), frame, None)
            }
            E::FunctionExpression(node) => {
                Self::function(FunctionNode::Function(node), frame, None)
            }
            E::ClassExpression(node) => Value::Class(node, frame.clone()),
            E::CallExpression(node) => self.call_expression(node, frame)?,
            E::NewExpression(node) => self.new_expression(node, frame)?,
            E::ChainExpression(node) => self.chain(node, frame)?,
            E::StaticMemberExpression(_) | E::ComputedMemberExpression(_) => {
                self.member_expression(expression.to_member_expression(), frame)?
            }
            E::ConditionalExpression(node) => {
                let test = self.eval(&node.test, frame);
                if self.condition(&test, node.test.span(), node.span)? {
                    self.eval(&node.consequent, frame)
                } else {
                    self.eval(&node.alternate, frame)
                }
            }
            E::LogicalExpression(node) => self.logical(node, frame)?,
            E::BinaryExpression(_) => self.binary(expression, frame)?,
            E::UnaryExpression(node) => self.unary(node, frame)?,
            E::SequenceExpression(node) => match node.expressions.last() {
                Some(last) => self.eval(last, frame),
                None => Value::Undefined,
            },
            E::ParenthesizedExpression(node) => self.eval(&node.expression, frame),
            E::TSAsExpression(node) => self.eval(&node.expression, frame),
            E::TSSatisfiesExpression(node) => self.eval(&node.expression, frame),
            E::TSTypeAssertion(node) => self.eval(&node.expression, frame),
            E::TSNonNullExpression(node) => self.eval(&node.expression, frame),
            E::TSInstantiationExpression(node) => self.eval(&node.expression, frame),
            E::AssignmentExpression(node) if node.operator.is_assign() => {
                self.eval(&node.right, frame)
            }
            E::ThisExpression(node) if self.is_of_module(node.node_id.get()) => Value::Undefined,
            E::AwaitExpression(node) => {
                return Err(Refusal::new(
                    ProblemCode::DynamicValue,
                    node.span,
                    "the value is awaited, which is only known when the bundle runs",
                    "Write the value itself.",
                ));
            }
            E::ImportExpression(node) => {
                return Err(Refusal::new(
                    ProblemCode::ImportNotAllowed,
                    node.span,
                    "the value comes from an `import()` that is only done when the bundle runs",
                    "Import it at the top of the file, or write the value itself.",
                ));
            }
            _ => return Err(self.dynamic(expression.span())),
        })
    }

    /// Returns the refusal of a form that is not on the list.
    fn dynamic(&self, span: Span) -> Refusal {
        Refusal::new(
            ProblemCode::DynamicValue,
            span,
            format!(
                "`{}` is only known when the bundle runs",
                quoted(self.source.slice(span))
            ),
            "Write the value itself: a text, a number, a list, an object, or a constant that is one.",
        )
    }

    pub(crate) fn function(
        node: FunctionNode<'a>,
        frame: &Rc<Frame<'a>>,
        method: Option<Span>,
    ) -> Value<'a> {
        Value::Function(Rc::new(Closure {
            node,
            frame: frame.clone(),
            method,
        }))
    }
}
