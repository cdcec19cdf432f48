//! Values as the evaluator knows them: data, functions that may be looked into, what a known package was asked to make,
//! and values that are not known, each with the reason.

use crate::problem::ProblemCode;
use oxc_ast::ast::{ArrowFunctionExpression, Class, FormalParameters, Function};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeId;
use oxc_syntax::symbol::SymbolId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A value.
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
    /// A getter of an object, called when a schema is read from it.
    Getter(Rc<Closure<'a>>),
    /// A package, or something in it.
    Import(Rc<ImportPath>),
    /// What a function of a package returned.
    Made(Rc<Made<'a>>),
    /// A property of what a function of a package returned.
    Member(Rc<Made<'a>>, Rc<str>),
    /// Only known when the bundle runs.
    Unknown(Rc<Refusal>),
}

/// A value and where it stands.
#[derive(Clone)]
pub(crate) struct Placed<'a> {
    pub value: Value<'a>,
    pub span: Span,
}

/// A regular expression.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Regex {
    pub pattern: String,
    pub flags: String,
}

/// An object, its keys in order.
#[derive(Clone, Default)]
pub(crate) struct Object<'a> {
    pub entries: Vec<Entry<'a>>,
}

/// A key of an object and its value.
#[derive(Clone)]
pub(crate) struct Entry<'a> {
    pub key: Rc<str>,
    pub key_span: Span,
    pub value: Value<'a>,
    pub span: Span,
    /// Where the same key stood before; the last one counts.
    pub earlier: Option<Span>,
}

impl<'a> Object<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries.iter().find(|entry| &*entry.key == key)
    }

    /// Sets a key, where it stands or at the end, as an assignment does.
    pub(crate) fn set(&mut self, mut entry: Entry<'a>) {
        if let Some(old) = self.entries.iter_mut().find(|old| old.key == entry.key) {
            entry.earlier = Some(old.key_span);
            *old = entry;
        } else {
            self.entries.push(entry);
        }
    }
}

/// A function and what its free names mean.
pub(crate) struct Closure<'a> {
    pub node: FunctionNode<'a>,
    pub frame: Rc<Frame<'a>>,
    /// The whole `name() {...}` of a method, whose text is no expression.
    pub method: Option<Span>,
}

/// A function in the syntax tree.
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

/// The meaning of names in one call of a function; the outermost one is the module.
pub(crate) struct Frame<'a> {
    pub parent: Option<Rc<Frame<'a>>>,
    /// The scope of the function; none for the module.
    pub scope: Option<ScopeId>,
    pub parameters: Vec<(SymbolId, Value<'a>)>,
    /// Values of the names that are declared in it. None while a value is being worked out.
    pub known: RefCell<HashMap<SymbolId, Option<Value<'a>>>>,
}

/// A package and a path of properties in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportPath {
    pub package: Rc<str>,
    /// Without `default`, which bundlers add and remove.
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

    /// `zod` or `zod.object`, for messages.
    pub(crate) fn shown(&self) -> String {
        let mut text = self.package.to_string();
        for name in &self.path {
            text.push('.');
            text.push_str(name);
        }
        text
    }
}

/// What a call made.
pub(crate) struct Made<'a> {
    pub callee: Callee<'a>,
    pub arguments: Vec<Placed<'a>>,
    pub span: Span,
}

/// What was called.
pub(crate) enum Callee<'a> {
    Import(Rc<ImportPath>),
    Method(Rc<Made<'a>>, Rc<str>),
}

impl<'a> Made<'a> {
    /// The package whose function began the chain of calls.
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

/// Why a value is not known.
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

    /// The value as a condition; none when it is not known.
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

    /// What it is, for messages.
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
