//! Values of the evaluator: data, functions that can be evaluated, calls of known packages'
//! functions, and unknown values with the reason.

use crate::problem::ProblemCode;
use oxc_ast::ast::{ArrowFunctionExpression, Class, FormalParameters, Function};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeId;
use oxc_syntax::symbol::SymbolId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Value of an expression.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    Undefined,
    Null,
    Boolean(bool),
    Number(f64),
    Text(Rc<str>),
    BigInt(Rc<str>),
    Regex(Rc<Regex>),
    Array(Rc<Vec<Placed<'a>>>),
    Object(Rc<Object<'a>>),
    Function(Rc<Closure<'a>>),
    Class(&'a Class<'a>, Rc<Frame<'a>>),
    /// Getter of an object, called when a schema is read from the object.
    Getter(Rc<Closure<'a>>),
    /// A package, or a member of one.
    Import(Rc<ImportPath>),
    /// Call of a package's function, kept symbolically.
    Made(Rc<Made<'a>>),
    /// Property of the result of a package's function.
    Member(Rc<Made<'a>>, Rc<str>),
    /// Value that is known only when the bundle runs.
    Unknown(Rc<Refusal>),
}

/// Value and its place.
#[derive(Clone)]
pub(crate) struct Placed<'a> {
    pub value: Value<'a>,
    pub span: Span,
}

/// Regular expression.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Regex {
    pub pattern: String,
    pub flags: String,
}

/// Object, with its keys in order.
#[derive(Clone, Default)]
pub(crate) struct Object<'a> {
    pub entries: Vec<Entry<'a>>,
}

/// Key of an object and its value.
#[derive(Clone)]
pub(crate) struct Entry<'a> {
    pub key: Rc<str>,
    pub key_span: Span,
    pub value: Value<'a>,
    pub span: Span,
    /// Place of an earlier entry of the same key. The last one counts.
    pub earlier: Option<Span>,
}

impl<'a> Object<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries.iter().find(|entry| &*entry.key == key)
    }

    /// Sets a key in place, or appends it, as an assignment does.
    pub(crate) fn set(&mut self, mut entry: Entry<'a>) {
        if let Some(old) = self.entries.iter_mut().find(|old| old.key == entry.key) {
            entry.earlier = Some(old.key_span);
            *old = entry;
        } else {
            self.entries.push(entry);
        }
    }
}

/// Function, and the frame of its free names.
pub(crate) struct Closure<'a> {
    pub node: FunctionNode<'a>,
    pub frame: Rc<Frame<'a>>,
    /// Place of the whole `name() {...}` of a method, whose text is no expression.
    pub method: Option<Span>,
}

/// Function in the syntax tree.
#[derive(Clone, Copy)]
pub(crate) enum FunctionNode<'a> {
    Arrow(&'a ArrowFunctionExpression<'a>),
    Function(&'a Function<'a>),
}

impl<'a> FunctionNode<'a> {
    pub(crate) fn params(self) -> &'a FormalParameters<'a> {
        match self {
            Self::Arrow(node) => &node.params,
            Self::Function(node) => &node.params,
        }
    }

    pub(crate) fn scope(self) -> Option<ScopeId> {
        match self {
            Self::Arrow(node) => node.scope_id.get(),
            Self::Function(node) => node.scope_id.get(),
        }
    }

    pub(crate) fn span(self) -> Span {
        match self {
            Self::Arrow(node) => node.span(),
            Self::Function(node) => node.span(),
        }
    }

    pub(crate) const fn is_plain(self) -> bool {
        match self {
            Self::Arrow(node) => !node.r#async,
            Self::Function(node) => !node.r#async && !node.generator,
        }
    }
}

/// Values of names in one call of a function. The outermost frame is the module.
pub(crate) struct Frame<'a> {
    pub parent: Option<Rc<Frame<'a>>>,
    /// Scope of the function; `None` for the module.
    pub scope: Option<ScopeId>,
    pub parameters: Vec<(SymbolId, Value<'a>)>,
    /// Values of the names declared in the scope; `None` while a value is being evaluated.
    pub known: RefCell<HashMap<SymbolId, Option<Value<'a>>>>,
}

/// Package and a path of properties in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportPath {
    pub package: Rc<str>,
    /// Path without `default`, which bundlers add and remove.
    pub path: Vec<Rc<str>>,
}

impl ImportPath {
    pub(crate) fn new(package: &str) -> Self {
        Self {
            package: package.into(),
            path: Vec::new(),
        }
    }

    pub(crate) fn member(&self, name: &str) -> Self {
        let mut path = self.path.clone();
        if name != "default" {
            path.push(name.into());
        }
        Self {
            package: self.package.clone(),
            path,
        }
    }

    /// Returns `zod` or `zod.object`, for messages.
    pub(crate) fn shown(&self) -> String {
        let mut text = self.package.to_string();
        for name in &self.path {
            text.push('.');
            text.push_str(name);
        }
        text
    }
}

/// Call of a package's function, or of a method of its result.
pub(crate) struct Made<'a> {
    pub callee: Callee<'a>,
    pub arguments: Vec<Placed<'a>>,
    pub span: Span,
}

/// Callee of such a call.
pub(crate) enum Callee<'a> {
    Import(Rc<ImportPath>),
    Method(Rc<Made<'a>>, Rc<str>),
}

impl<'a> Made<'a> {
    /// Returns the package's function that began the chain of calls.
    pub(crate) fn origin(&self) -> &ImportPath {
        let mut made = self;
        loop {
            match &made.callee {
                Callee::Import(path) => return path,
                Callee::Method(receiver, _) => made = receiver,
            }
        }
    }

    pub(crate) fn argument(&self, index: usize) -> Option<&Placed<'a>> {
        self.arguments.get(index)
    }
}

/// Reason for an unknown value, as a problem without its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: ProblemCode,
    pub span: Span,
    pub reason: String,
    pub hint: String,
    pub also: Vec<(Span, String)>,
}

impl Refusal {
    pub(crate) fn new(
        code: ProblemCode,
        span: Span,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            code,
            span,
            reason: reason.into(),
            hint: hint.into(),
            also: Vec::new(),
        }
    }

    pub(crate) fn also(mut self, span: Span, reason: impl Into<String>) -> Self {
        self.also.push((span, reason.into()));
        self
    }

    pub(crate) fn value<'a>(self) -> Value<'a> {
        Value::Unknown(Rc::new(self))
    }
}

impl Value<'_> {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Returns the value as a condition; `None` if it is unknown.
    pub(crate) fn truth(&self) -> Option<bool> {
        Some(match self {
            Self::Undefined | Self::Null => false,
            Self::Boolean(value) => *value,
            Self::Number(value) => *value != 0.0 && !value.is_nan(),
            Self::Text(text) => !text.is_empty(),
            Self::BigInt(digits) => &**digits != "0",
            Self::Unknown(_) | Self::Member(..) => return None,
            _ => true,
        })
    }

    /// Returns the kind of value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Null => "null",
            Self::Boolean(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::BigInt(_) => "a BigInt",
            Self::Regex(_) => "a regular expression",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
            Self::Function(_) => "a function",
            Self::Class(..) => "a class",
            Self::Getter(_) => "a getter",
            Self::Import(_) | Self::Made(_) | Self::Member(..) => "a value of a package",
            Self::Unknown(_) => "a value that is only known when the bundle runs",
        }
    }
}
