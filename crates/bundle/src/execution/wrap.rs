//! Wraps a bundle in a function. Imports of a module become look-ups among the stand-ins, and
//! exports become getters. All other text keeps its line, so that errors name the lines of the
//! bundle.

use crate::report::Report;
use crate::source::Source;
use crate::syntax::{refuse_nesting, refuse_syntax};
use oxc_allocator::Allocator;
use oxc_ast::AstKind;
use oxc_ast::ast::*;
use oxc_parser::{ParseOptions, Parser};
use oxc_semantic::SemanticBuilder;
use oxc_span::{GetSpan, SourceType, Span};
use serde_json::json;
use std::fmt::Write as _;

/// Names of the wrapper, which no bundle uses.
const IMPORT: &str = "__glovebox_import";
const EXPORT: &str = "__glovebox_export";
const DYNAMIC: &str = "__glovebox_dynamic";
const META: &str = "__glovebox_meta";
const DEFAULT: &str = "__glovebox_default";

/// Returns the bundle as a constant of a module; `None` if it cannot be parsed, with the problems
/// in `report`.
pub(crate) fn wrap(source: &Source<'_>, report: &mut Report<'_>) -> Option<String> {
    if refuse_nesting(source.text(), report) {
        return None;
    }
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source.text(), SourceType::unambiguous())
        .with_options(ParseOptions {
            allow_return_outside_function: true,
            ..ParseOptions::default()
        })
        .parse();
    let hint = "Give the file that a bundler made; TypeScript is not run.";
    if refuse_syntax(&parsed, hint, report) {
        return None;
    }
    let program = parsed.program;
    if !program.source_type.is_module() {
        let mut text = source.text().trim_start_matches('\u{feff}').to_owned();
        if let Some(line) = &program.hashbang {
            text = text.replacen(source.slice(line.span), "", 1);
        }
        // Value that a bundle for a web page defines: `var bundle = (() => {...})()`.
        let mut given = Vec::new();
        for statement in &program.body {
            if let Statement::VariableDeclaration(declared) = statement {
                for one in &declared.declarations {
                    if let Some(Expression::CallExpression(call)) = &one.init
                        && call.callee.get_inner_expression().is_function()
                        && let Some(name) = one.id.get_binding_identifier()
                    {
                        given.push(name.name.to_string());
                    }
                }
            }
        }
        let _ = write!(text, "\n;return {{ {} }};", given.join(", "));
        return Some(format!("const bundle = {{ script: {} }};", json!(text)));
    }
    let mut module = ModuleText::default();
    if let Some(line) = &program.hashbang {
        module.replace(line.span, "");
    }
    for statement in &program.body {
        module.statement(statement);
    }
    let built = SemanticBuilder::new()
        .with_build_nodes(true)
        .build(&program);
    for node in built.semantic.nodes().iter() {
        match node.kind() {
            AstKind::ImportExpression(import) => {
                let word = Span::new(import.span.start, import.span.start + 6);
                module.replace(word, DYNAMIC);
            }
            AstKind::ImportMeta(meta) => module.replace(meta.span, META),
            _ => {}
        }
    }
    Some(module.write(source.text()))
}

/// Edits that turn a module into the body of a function.
#[derive(Default)]
struct ModuleText {
    /// Text before the body: imports, and exports of functions, are valid from the start.
    head: String,
    edits: Vec<(Span, String)>,
}

impl ModuleText {
    fn replace(&mut self, span: Span, text: impl Into<String>) {
        self.edits.push((span, text.into()));
    }

    fn export(&mut self, name: &str, value: &str) {
        let _ = write!(
            self.head,
            "{EXPORT}({{ {}: () => {value} }}); ",
            json!(name)
        );
    }

    fn statement(&mut self, statement: &Statement<'_>) {
        match statement {
            Statement::ImportDeclaration(node) => {
                let from = json!(node.source.value.as_str());
                for specifier in node.specifiers.iter().flatten() {
                    let (part, local) = match specifier {
                        ImportDeclarationSpecifier::ImportSpecifier(one) => (
                            format!("[{}]", json!(one.imported.name().as_str())),
                            &one.local,
                        ),
                        ImportDeclarationSpecifier::ImportDefaultSpecifier(one) => {
                            (".default".to_owned(), &one.local)
                        }
                        ImportDeclarationSpecifier::ImportNamespaceSpecifier(one) => {
                            (String::new(), &one.local)
                        }
                    };
                    let _ = write!(self.head, "const {} = {IMPORT}({from}){part}; ", local.name);
                }
                self.replace(node.span, "");
            }
            Statement::ExportAllDeclaration(node) => {
                let from = json!(node.source.value.as_str());
                // `export *` re-exports a package, and declares nothing of the bundle.
                if let Some(name) = &node.exported {
                    self.export(&name.name(), &format!("{IMPORT}({from})"));
                }
                self.replace(node.span, "");
            }
            Statement::ExportFromDeclaration(node) => {
                let from = json!(node.source.value.as_str());
                for one in &node.specifiers {
                    let value = format!("{IMPORT}({from})[{}]", json!(one.local.name().as_str()));
                    self.export(&one.exported.name(), &value);
                }
                self.replace(node.span, "");
            }
            Statement::ExportNamedDeclaration(node) => {
                for one in &node.specifiers {
                    self.export(&one.exported.name(), &one.local.name());
                }
                self.replace(node.span, "");
            }
            Statement::ExportDeclaration(node) => {
                let inner = node.declaration.span();
                let names: Vec<String> = match &node.declaration {
                    Declaration::VariableDeclaration(declared) => declared
                        .declarations
                        .iter()
                        .flat_map(|one| one.id.get_binding_identifiers())
                        .map(|name| name.name.to_string())
                        .collect(),
                    other => other
                        .id()
                        .map(|name| name.name.to_string())
                        .into_iter()
                        .collect(),
                };
                for name in names {
                    self.export(&name, &name);
                }
                self.replace(Span::new(node.span.start, inner.start), "");
            }
            Statement::ExportDefaultDeclaration(node) => self.export_default(node),
            _ => {}
        }
    }

    fn export_default(&mut self, node: &ExportDefaultDeclaration<'_>) {
        let inner = node.declaration.span();
        let before = Span::new(node.span.start, inner.start);
        let name = match &node.declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => function.id.as_ref(),
            ExportDefaultDeclarationKind::ClassDeclaration(class) => class.id.as_ref(),
            _ => None,
        };
        if let Some(name) = name {
            self.export("default", &name.name);
            self.replace(before, "");
            return;
        }
        self.export("default", DEFAULT);
        self.replace(before, format!("const {DEFAULT} = "));
        self.replace(Span::new(node.span.end, node.span.end), ";");
    }

    fn write(mut self, text: &str) -> String {
        self.edits.sort_by_key(|(span, _)| (span.start, span.end));
        let mut body = String::with_capacity(text.len() + self.head.len());
        let mut end = 0;
        for (span, new) in &self.edits {
            let (start, stop) = (span.start as usize, span.end as usize);
            if start < end {
                continue;
            }
            body.push_str(text.get(end..start).unwrap_or_default());
            body.push_str(new);
            // The line ends stay, so that the following lines keep their numbers.
            let old = text.get(start..stop).unwrap_or_default();
            body.extend(old.chars().filter(|c| matches!(c, '\n')));
            end = stop;
        }
        body.push_str(text.get(end..).unwrap_or_default());
        let body = body.trim_start_matches('\u{feff}');
        format!(
            "const bundle = {{ module: async ({IMPORT}, {EXPORT}, {DYNAMIC}, {META}) => {{ 'use strict'; {}{body}\n}} }};",
            self.head
        )
    }
}
