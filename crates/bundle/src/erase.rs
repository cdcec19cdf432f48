//! Erasure of TypeScript's types. Type syntax is overwritten with spaces: every other byte, line
//! and column keeps its place, and the rest is JavaScript as its author wrote it. Syntax that has
//! an effect at run time (enums, namespaces, parameter properties...) would need a translation. It
//! is kept and listed, and a tool that uses it is refused.

use oxc_allocator::Allocator;
use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_parser::{ParseOptions, Parser};
use oxc_span::{GetSpan, SourceType, Span};
use oxc_syntax::scope::ScopeFlags;

/// Source with its types erased.
pub(crate) struct Erasure {
    code: String,
    untranslated: Vec<UntranslatedSyntax>,
}

/// Syntax that cannot be erased.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UntranslatedSyntax {
    /// Place of the syntax.
    pub span: Span,
    /// Name of the syntax, for messages.
    pub what: &'static str,
    /// Hint about an alternative.
    pub hint: &'static str,
}

impl Erasure {
    /// Erases the types of a source that is valid TypeScript.
    pub(crate) fn new(source: &str) -> Self {
        let allocator = Allocator::default();
        // Parentheses are kept in the tree: types end before or after them.
        let parsed = Parser::new(&allocator, source, SourceType::ts())
            .with_options(ParseOptions {
                preserve_parens: true,
                allow_return_outside_function: true,
                ..ParseOptions::default()
            })
            .parse();
        let mut eraser = Eraser {
            source,
            code: source.as_bytes().to_vec(),
            ends: Vec::new(),
            separators: Vec::new(),
            untranslated: Vec::new(),
        };
        eraser.visit_program(&parsed.program);
        eraser.finish()
    }

    /// Returns the JavaScript of a part of the source.
    pub(crate) fn slice(&self, span: Span) -> &str {
        self.code
            .get(span.start as usize..span.end as usize)
            .unwrap_or_default()
    }

    /// Returns the syntax in a part of the source that cannot be erased.
    pub(crate) fn untranslated_in(&self, span: Span) -> impl Iterator<Item = &UntranslatedSyntax> {
        self.untranslated
            .iter()
            .filter(move |found| span.start <= found.span.start && found.span.end <= span.end)
    }
}

struct Eraser<'s> {
    source: &'s str,
    code: Vec<u8>,
    /// Last bytes of statements. If the type at the end of a statement without semicolon is erased,
    /// the statement could continue in the next line; the byte then becomes a semicolon.
    ends: Vec<usize>,
    /// First bytes of erased statements and members, where a semicolon separates the neighbours.
    separators: Vec<usize>,
    untranslated: Vec<UntranslatedSyntax>,
}

impl Eraser<'_> {
    fn finish(mut self) -> Erasure {
        for end in self.ends {
            if let (Some(byte), Some(was)) =
                (self.code.get_mut(end), self.source.as_bytes().get(end))
                && *byte == b' '
                && *was != b' '
            {
                *byte = b';';
            }
        }
        for start in self.separators {
            if let Some(byte) = self.code.get_mut(start) {
                *byte = b';';
            }
        }
        Erasure {
            // Whole characters are overwritten with characters of one byte, so this is valid UTF-8.
            code: String::from_utf8_lossy(&self.code).into_owned(),
            untranslated: self.untranslated,
        }
    }

    /// Overwrites a part of the source, except its line ends.
    fn blank(&mut self, start: u32, end: u32) {
        if let Some(bytes) = self.code.get_mut(start as usize..end as usize) {
            for byte in bytes {
                if !matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
    }

    /// Overwrites a part of the source, including its line ends, where JavaScript allows none.
    fn blank_line_ends_too(&mut self, start: u32, end: u32) {
        if let Some(bytes) = self.code.get_mut(start as usize..end as usize) {
            bytes.fill(b' ');
        }
    }

    /// Overwrites a statement, or a member of a class.
    fn blank_whole(&mut self, span: Span) {
        self.blank(span.start, span.end);
        self.separators.push(span.start as usize);
    }

    /// Overwrites the character `mark` if it follows `from`, after white space and comments.
    fn blank_mark(&mut self, from: u32, mark: char) {
        let rest = self.source.get(from as usize..).unwrap_or_default();
        // A computed key ends before its bracket.
        let skipped = skip_trivia(rest.strip_prefix(']').unwrap_or(rest));
        if skipped.starts_with(mark) {
            let start = (self.source.len() - skipped.len()) as u32;
            self.blank(start, start + 1);
        }
    }

    /// Overwrites TypeScript's modifiers of a member, or before `class`. Returns true if one of
    /// them stands at `start`.
    fn blank_modifiers(&mut self, start: u32, end: u32) -> bool {
        let Some(text) = self.source.get(start as usize..end as usize) else {
            return false;
        };
        let mut rest = text;
        let mut is_first_erased = false;
        loop {
            rest = skip_trivia(rest);
            let length = rest
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(rest.len());
            let Some(word) = rest.get(..length).filter(|word| !word.is_empty()) else {
                return is_first_erased;
            };
            let at = start + (text.len() - rest.len()) as u32;
            if matches!(
                word,
                "public" | "private" | "protected" | "readonly" | "override" | "abstract"
            ) {
                is_first_erased |= at == start;
                self.blank(at, at + length as u32);
            }
            rest = rest.get(length..).unwrap_or_default();
        }
    }

    /// Overwrites the modifiers and marks of a member of a class.
    fn member(&mut self, span: Span, key: &PropertyKey<'_>, needs_separator: bool) {
        let is_first_erased = self.blank_modifiers(span.start, key.span().start);
        if is_first_erased && needs_separator {
            self.separators.push(span.start as usize);
        }
        self.blank_mark(key.span().end, '?');
        self.blank_mark(key.span().end, '!');
    }

    fn refuse(&mut self, span: Span, what: &'static str, hint: &'static str) {
        self.untranslated
            .push(UntranslatedSyntax { span, what, hint });
    }
}

/// Returns the text after leading white space and comments.
fn skip_trivia(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        rest = if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("//") {
            let end = comment.find(['\n', '\r', '\u{2028}', '\u{2029}']);
            end.and_then(|end| comment.get(end..)).unwrap_or_default()
        } else {
            return rest;
        };
    }
}

impl<'a> Visit<'a> for Eraser<'_> {
    fn visit_statement(&mut self, it: &Statement<'a>) {
        walk::walk_statement(self, it);
        if matches!(
            it,
            Statement::ExpressionStatement(_)
                | Statement::VariableDeclaration(_)
                | Statement::ReturnStatement(_)
                | Statement::ThrowStatement(_)
                | Statement::DoWhileStatement(_)
        ) {
            self.ends.push((it.span().end as usize).saturating_sub(1));
        }
    }

    fn visit_variable_declaration(&mut self, it: &VariableDeclaration<'a>) {
        if it.declare {
            self.blank_whole(it.span);
        } else {
            walk::walk_variable_declaration(self, it);
        }
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            self.blank_mark(it.id.span().end, '!');
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        if it.declare || it.body.is_none() {
            self.blank_whole(it.span);
        } else {
            walk::walk_function(self, it, flags);
        }
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        walk::walk_arrow_function_expression(self, it);
        // JavaScript allows no line end after `async`, nor between parameters and arrow.
        if let Some(types) = &it.type_parameters {
            self.blank_line_ends_too(types.span.start, it.params.span.start);
        }
        if let Some(returned) = &it.return_type {
            self.blank_line_ends_too(it.params.span.end, returned.span.end);
        }
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.refuse(
                it.span,
                "a parameter that declares a property",
                "Declare the property in the class and set it in the constructor.",
            );
        }
        if it.optional {
            self.blank_mark(it.pattern.span().end, '?');
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        self.blank(it.span.start, it.span.end);
        self.blank_mark(it.span.end, ',');
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        if it.declare {
            return self.blank_whole(it.span);
        }
        if it.r#abstract {
            let end = it
                .id
                .as_ref()
                .map_or(it.body.span.start, |id| id.span.start);
            self.blank_modifiers(it.span.start, end);
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let before = self.source.get(..first.span.start as usize);
            if let Some(before) = before.and_then(|text| text.trim_end().strip_suffix("implements"))
            {
                self.blank(before.len() as u32, last.span.end);
            } else {
                self.refuse(
                    first.span,
                    "a comment after `implements`",
                    "Put the comment before the class.",
                );
            }
        }
        walk::walk_class(self, it);
    }

    fn visit_ts_class_implements(&mut self, _: &TSClassImplements<'a>) {}

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        // An overload, or an abstract method.
        if it.value.body.is_none() {
            return self.blank_whole(it.span);
        }
        self.member(it.span, &it.key, it.computed || it.value.generator);
        walk::walk_method_definition(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        if it.declare || it.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition {
            return self.blank_whole(it.span);
        }
        self.member(it.span, &it.key, it.computed);
        self.ends.push((it.span.end as usize).saturating_sub(1));
        walk::walk_property_definition(self, it);
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        if it.r#type == AccessorPropertyType::TSAbstractAccessorProperty {
            return self.blank_whole(it.span);
        }
        self.refuse(
            it.span,
            "an `accessor`",
            "Write a getter and a setter, or a plain property.",
        );
    }

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse(
            it.span,
            "a decorator",
            "Call the function that it stands for, or compile the bundle first.",
        );
    }

    fn visit_ts_index_signature(&mut self, it: &TSIndexSignature<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_interface_declaration(&mut self, it: &TSInterfaceDeclaration<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_type_alias_declaration(&mut self, it: &TSTypeAliasDeclaration<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_global_declaration(&mut self, it: &TSGlobalDeclaration<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_external_module_declaration(&mut self, it: &TSExternalModuleDeclaration<'a>) {
        self.blank_whole(it.span);
    }

    fn visit_ts_namespace_declaration(&mut self, it: &TSNamespaceDeclaration<'a>) {
        if it.declare {
            return self.blank_whole(it.span);
        }
        self.refuse(
            it.span,
            "a namespace",
            "Write an object, or functions beside each other.",
        );
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        if it.declare {
            return self.blank_whole(it.span);
        }
        self.refuse(
            it.span,
            "an enum inside a function",
            "Write it at the top of the file, or as a constant object.",
        );
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        self.refuse(it.span, "`import ... =`", "Write `import ... from`.");
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blank(it.span.start, it.span.end);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank(it.span.start, it.span.end);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank(it.span.start, it.span.end);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.blank(it.expression.span().end, it.span.end);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.blank(it.expression.span().end, it.span.end);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.blank(it.expression.span().end, it.span.end);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        // If erased, `() => <T>{}` would become a function with an empty body.
        self.refuse(it.span, "`<Type>value`", "Write `value as Type`.");
        self.visit_expression(&it.expression);
    }
}
