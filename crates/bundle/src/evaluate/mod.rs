//! The evaluator: works out values from the syntax tree without running anything.
//!
//! It knows a closed list of forms (literals, templates, objects, lists, spreads, member access, conditions that are
//! constant, calls of plain local functions, a few pure functions of the language) and what the functions of known
//! packages are asked to make. Everything else is [`Value::Unknown`] with the reason, which is an error only where the
//! value is needed. Names are looked up when they are needed, so that statements beside them never matter, unless they
//! write what is read (`mutation`). Steps, depth and texts are bounded.

mod bindings;
mod builtins;
mod calls;
mod enums;
mod members;
mod mutation;
mod shapes;

use crate::erase::Erasure;
use crate::limits::{FUEL, MAX_TEXT_BYTES};
use crate::problem::ProblemCode;
use crate::source::{Source, quoted};
use crate::text;
use crate::value::*;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_semantic::{Scoping, Semantic};
use oxc_span::{GetSpan, Span};
use oxc_syntax::node::NodeId;
use oxc_syntax::operator::{BinaryOperator, LogicalOperator, UnaryOperator};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Deepest nesting of expressions. Each level takes stack.
const MAX_EXPRESSION_DEPTH: u32 = 2_000;

/// Works out values of one bundle.
pub(crate) struct Evaluator<'a> {
    pub semantic: &'a Semantic<'a>,
    pub source: &'a Source<'a>,
    /// The source without its types, when it is TypeScript.
    pub erasure: Option<Erasure>,
    root: Rc<Frame<'a>>,
    fuel: Cell<u32>,
    depth: Cell<u32>,
    calls: Cell<u32>,
    /// All frames, so that their values, which may refer to the frame, can be let go.
    frames: RefCell<Vec<Rc<Frame<'a>>>>,
    /// Files that a bundler has put together, by where they begin.
    files: Vec<(u32, &'a str)>,
    warnings: RefCell<Vec<(ProblemCode, Span, String)>>,
    /// Names and `import(...)` by where they stand.
    places: OnceCell<Vec<(u32, NodeId)>>,
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
        }
    }

    /// The names and `import(...)` in a part of the source.
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

    /// The frame of the module.
    pub(crate) fn root(&self) -> Rc<Frame<'a>> {
        self.root.clone()
    }

    /// What was noticed while values were worked out.
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
    /// When it is used up.
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

    /// The value of an expression.
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

    /// The value of an expression that must be known.
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
                    return Err(lone_surrogate(node.span));
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

    /// The refusal of a form that is not on the list.
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

    /// Bounds the length of a text that is made.
    fn made_text(&self, text: String, span: Span) -> Result<String, Refusal> {
        self.spend(text.len() / 256, span)?;
        if text.len() > MAX_TEXT_BYTES {
            return Err(Refusal::new(
                ProblemCode::TooLarge,
                span,
                format!("the text is longer than {MAX_TEXT_BYTES} bytes"),
                "Shorten it.",
            ));
        }
        Ok(text)
    }

    fn template(
        &self,
        node: &'a TemplateLiteral<'a>,
        frame: &Rc<Frame<'a>>,
        is_raw: bool,
    ) -> Result<String, Refusal> {
        let mut made = String::new();
        for (index, quasi) in node.quasis.iter().enumerate() {
            if quasi.lone_surrogates {
                return Err(lone_surrogate(quasi.span));
            }
            match quasi.value.cooked {
                Some(cooked) if !is_raw => made.push_str(&cooked),
                _ => made.push_str(&quasi.value.raw),
            }
            let Some(expression) = node.expressions.get(index) else {
                continue;
            };
            let value = self.known(expression, frame)?;
            let Some(part) = text::of_value(&value) else {
                return Err(Refusal::new(
                    ProblemCode::DynamicValue,
                    expression.span(),
                    format!("{} cannot be put into a text here", value.kind()),
                    "Put a text or a number there.",
                ));
            };
            made.push_str(&part);
            made = self.made_text(made, node.span)?;
        }
        Ok(made)
    }

    fn tagged_template(
        &self,
        node: &'a TaggedTemplateExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        if self.is_global_member(&node.tag, "String", "raw") {
            let made = self.template(&node.quasi, frame, true)?;
            return Ok(Value::Text(made.into()));
        }
        match self.known(&node.tag, frame)? {
            Value::Import(path) if crate::provenance::is_dedent(&path) => {
                let made = self.template(&node.quasi, frame, false)?;
                Ok(Value::Text(text::dedent(&made).into()))
            }
            _ => Err(self.dynamic(node.span)),
        }
    }

    fn array(
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

    fn spread_refusal(value: &Value<'a>, span: Span) -> Refusal {
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

    fn eval_object(&self, node: &'a ObjectExpression<'a>, frame: &Rc<Frame<'a>>) -> Value<'a> {
        self.object(node, frame).unwrap_or_else(Refusal::value)
    }

    fn object(
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
                // rollup's namespaces: an object without a prototype, which is no field.
                ObjectPropertyKind::ObjectProperty(property)
                    if property.key.is_specific_static_name("__proto__")
                        && !property.computed
                        && matches!(property.value, Expression::NullLiteral(_)) => {}
                ObjectPropertyKind::ObjectProperty(property) => {
                    object.set(self.property(property, frame)?);
                }
            }
            // Setting a key looks at all before it.
            self.spend(object.entries.len() / 64, node.span)?;
        }
        Ok(Value::Object(Rc::new(object)))
    }

    /// What spreading a value into an object adds; none when that is not known.
    fn spread(value: &Value<'a>, span: Span) -> Result<Option<Rc<Object<'a>>>, Refusal> {
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

    fn property(
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

    /// The name of a property.
    fn property_key(
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

    /// Decides a condition.
    fn condition(&self, test: &Value<'a>, test_span: Span, whole: Span) -> Result<bool, Refusal> {
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

    fn logical(
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

    /// A chain of operators. It leans to the left and may be long, so it is walked and not called down.
    fn binary(
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
        // A text grows in place, or a long chain would copy it each time.
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

    fn arithmetic(
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

    fn unary(
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

/// The refusal of a getter, a setter or `__proto__`.
pub(crate) fn getter(span: Span) -> Refusal {
    Refusal::new(
        ProblemCode::Getter,
        span,
        "a getter, a setter or `__proto__` is code or changes what the object is",
        "Write a plain property.",
    )
}

fn lone_surrogate(span: Span) -> Refusal {
    Refusal::new(
        ProblemCode::DynamicValue,
        span,
        "the text has one half of a surrogate pair, which is no character",
        "Write the whole character.",
    )
}
