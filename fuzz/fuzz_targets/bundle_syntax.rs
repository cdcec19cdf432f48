//! Bundles made of random syntax trees, in the forms that the extractor knows and in others: never a crash or an endless
//! evaluation, each error with a place, and the code of a tool that was cut out is JavaScript again.
#![no_main]

use glovebox_bundle::{Language, ProblemCode, extract};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::fmt::Write as _;

/// Names that are bound, imported, or neither.
const NAMES: [&str; 16] = [
    "a", "b", "c", "tools", "z", "createTool", "createAgent", "createLightfast", "gateway", "tool", "jsonSchema", "Object",
    "String", "JSON", "undefined", "process",
];
const KEYS: [&str; 16] = [
    "agents", "name", "system", "model", "tools", "description", "inputSchema", "parameters", "execute", "outputSchema", "a",
    "__proto__", "constructor", "'two words'", "7", "then",
];
const MEMBERS: [&str; 24] = [
    "string", "number", "object", "array", "optional", "min", "max", "enum", "describe", "default", "extend", "pick", "union",
    "lazy", "shape", "join", "map", "trim", "freeze", "assign", "fromEntries", "raw", "a", "length",
];
const OPERATORS: [&str; 12] = ["+", "-", "*", "??", "||", "&&", "===", "<", "in", "instanceof", ",", "**"];

#[derive(Debug, Arbitrary)]
enum Expr {
    Name(u8),
    Text(String),
    Number(i32),
    Word(u8),
    Template(Vec<Expr>),
    List(Vec<Expr>),
    Object(Vec<(Key, Expr)>),
    Member(Box<Expr>, u8),
    Index(Box<Expr>, Box<Expr>),
    Call(Box<Expr>, Vec<Expr>),
    New(Box<Expr>, Vec<Expr>),
    Arrow(u8, Box<Expr>),
    Function(u8, Vec<Statement>),
    Binary(u8, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    Assign(u8, Box<Expr>),
    Not(Box<Expr>),
    Void,
    Await(Box<Expr>),
    Tagged(Box<Expr>, String),
    Class(u8, Box<Expr>),
    Agent(Vec<(Key, Expr)>),
    Tool(Vec<(Key, Expr)>),
}

#[derive(Debug, Arbitrary)]
enum Key {
    Name(u8),
    Computed(Box<Expr>),
    Spread,
    Getter(u8),
    Method(u8),
}

#[derive(Debug, Arbitrary)]
enum Statement {
    Const(u8, Expr),
    Let(u8, Expr),
    Function(u8, u8, Vec<Statement>),
    Expr(Expr),
    Return(Expr),
    If(Expr, Vec<Statement>),
    For(u8, Expr, Vec<Statement>),
    Class(u8, Expr),
    Enum(u8, u8),
    Export(u8),
}

fn pick<'a>(words: &[&'a str], number: u8) -> &'a str {
    words[usize::from(number) % words.len()]
}

fn list(out: &mut String, items: &[Expr], depth: u32) {
    for item in items {
        expr(out, item, depth);
        out.push(',');
    }
}

fn properties(out: &mut String, items: &[(Key, Expr)], depth: u32) {
    out.push('{');
    for (key, value) in items {
        match key {
            Key::Name(name) => {
                let _ = write!(out, "{}:", pick(&KEYS, *name));
            }
            Key::Computed(key) => {
                out.push('[');
                expr(out, key, depth);
                out.push_str("]:");
            }
            Key::Spread => out.push_str("..."),
            Key::Getter(name) => {
                let _ = write!(out, "get {}(){{return ", pick(&KEYS, *name));
            }
            Key::Method(name) => {
                let _ = write!(out, "{}(a,b){{return ", pick(&KEYS, *name));
            }
        }
        expr(out, value, depth);
        out.push_str(if matches!(key, Key::Getter(_) | Key::Method(_)) { "}," } else { "," });
    }
    out.push('}');
}

fn expr(out: &mut String, node: &Expr, depth: u32) {
    if depth == 0 || out.len() > 20_000 {
        out.push('1');
        return;
    }
    let depth = depth - 1;
    out.push('(');
    match node {
        Expr::Name(name) => out.push_str(pick(&NAMES, *name)),
        Expr::Text(text) => {
            let _ = write!(out, "{}", serde_json::Value::from(text.as_str()));
        }
        Expr::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Expr::Word(word) => out.push_str(pick(&["true", "false", "null", "this", "12n", "/a/u", "-0", "1e999"], *word)),
        Expr::Template(parts) => {
            out.push('`');
            for part in parts {
                out.push_str("x${");
                expr(out, part, depth);
                out.push('}');
            }
            out.push('`');
        }
        Expr::List(items) => {
            out.push('[');
            list(out, items, depth);
            out.push(']');
        }
        Expr::Object(items) => properties(out, items, depth),
        Expr::Member(of, name) => {
            expr(out, of, depth);
            let _ = write!(out, ".{}", pick(&MEMBERS, *name));
        }
        Expr::Index(of, index) => {
            expr(out, of, depth);
            out.push('[');
            expr(out, index, depth);
            out.push(']');
        }
        Expr::Call(callee, arguments) => {
            expr(out, callee, depth);
            out.push('(');
            list(out, arguments, depth);
            out.push(')');
        }
        Expr::New(callee, arguments) => {
            out.push_str("new ");
            expr(out, callee, depth);
            out.push('(');
            list(out, arguments, depth);
            out.push(')');
        }
        Expr::Arrow(name, body) => {
            let _ = write!(out, "({})=>", pick(&["a", "b", "{a}", "[a,b]", "a=1", "...c", ""], *name));
            expr(out, body, depth);
        }
        Expr::Function(kind, body) => {
            out.push_str(pick(&["function(a)", "async function(a)", "function*(a)", "async function*(a,b)"], *kind));
            block(out, body, depth);
        }
        Expr::Binary(operator, left, right) => {
            expr(out, left, depth);
            let _ = write!(out, " {} ", pick(&OPERATORS, *operator));
            expr(out, right, depth);
        }
        Expr::Choice(condition, yes, no) => {
            expr(out, condition, depth);
            out.push('?');
            expr(out, yes, depth);
            out.push(':');
            expr(out, no, depth);
        }
        Expr::Assign(name, value) => {
            let _ = write!(out, "{}=", pick(&["a", "b.a", "tools.c", "c[0]"], *name));
            expr(out, value, depth);
        }
        Expr::Not(of) => {
            out.push('!');
            expr(out, of, depth);
        }
        Expr::Void => out.push_str("void 0"),
        Expr::Await(of) => {
            out.push_str("await ");
            expr(out, of, depth);
        }
        Expr::Tagged(tag, text) => {
            expr(out, tag, depth);
            let text: String = text.chars().filter(|c| !matches!(c, '`' | '\\' | '$')).collect();
            let _ = write!(out, "`{text}`");
        }
        Expr::Class(name, value) => {
            let _ = write!(out, "class {{ static {} = ", pick(&["a", "#b", "c"], *name));
            expr(out, value, depth);
            out.push('}');
        }
        Expr::Agent(items) => {
            out.push_str("createAgent(");
            properties(out, items, depth);
            out.push(')');
        }
        Expr::Tool(items) => {
            out.push_str("createTool(");
            properties(out, items, depth);
            out.push(')');
        }
    }
    out.push(')');
}

fn block(out: &mut String, statements: &[Statement], depth: u32) {
    out.push('{');
    for one in statements {
        statement(out, one, depth, false);
    }
    out.push('}');
}

fn statement(out: &mut String, node: &Statement, depth: u32, is_top: bool) {
    if depth == 0 || out.len() > 20_000 {
        return;
    }
    match node {
        Statement::Const(name, value) | Statement::Let(name, value) => {
            let word = if matches!(node, Statement::Const(..)) { "const" } else { "var" };
            let _ = write!(out, "{word} {} = ", pick(&["a", "b", "c", "tools", "{a}", "[b,c]"], *name));
            expr(out, value, depth);
        }
        Statement::Function(name, kind, body) => {
            let _ = write!(out, "{} {}(a,b)", pick(&["function", "async function"], *kind), pick(&["a", "b", "c"], *name));
            block(out, body, depth - 1);
        }
        Statement::Expr(value) => expr(out, value, depth),
        Statement::Return(value) if !is_top => {
            out.push_str("return ");
            expr(out, value, depth);
        }
        Statement::Return(value) => {
            out.push_str("module.exports = ");
            expr(out, value, depth);
        }
        Statement::If(condition, body) => {
            out.push_str("if ");
            expr(out, condition, depth);
            block(out, body, depth - 1);
        }
        Statement::For(name, of, body) => {
            let _ = write!(out, "for (const {} of ", pick(&["a", "b"], *name));
            expr(out, of, depth);
            out.push(')');
            block(out, body, depth - 1);
        }
        Statement::Class(name, value) => {
            let _ = write!(out, "class {} {{ static a = ", pick(&["a", "b", "c"], *name));
            expr(out, value, depth);
            out.push('}');
        }
        Statement::Enum(name, value) => {
            let _ = write!(out, "var {0};(function(e){{e[e[\"A\"]={1}]=\"A\"}})({0}||({0}={{}}))", pick(&["a", "b", "c"], *name), value);
        }
        Statement::Export(name) if is_top => {
            let _ = write!(out, "export {{ {0} as d{0} }}", pick(&["a", "b", "c"], *name));
        }
        Statement::Export(_) => {}
    }
    out.push_str(";\n");
}

#[derive(Debug, Arbitrary)]
struct Program {
    before: Vec<Statement>,
    agent: Vec<(Key, Expr)>,
    tool: Vec<(Key, Expr)>,
    execute: Expr,
    input: Expr,
    after: Vec<Statement>,
    is_typescript: bool,
}

fuzz_target!(|program: Program| {
    let mut text = String::from(
        "import { createLightfast } from \"lightfast/client\";\nimport { createAgent } from \"lightfast/agent\";\n\
         import { createTool } from \"lightfast/tool\";\nimport { gateway } from \"@ai-sdk/gateway\";\n\
         import { tool, jsonSchema } from \"ai\";\nimport { z } from \"zod\";\n",
    );
    for one in &program.before {
        statement(&mut text, one, 6, true);
    }
    text.push_str("const fuzzed = createTool({ description: \"t\", inputSchema: ");
    expr(&mut text, &program.input, 6);
    text.push_str(", execute: ");
    expr(&mut text, &program.execute, 6);
    text.push_str(", ...");
    properties(&mut text, &program.tool, 6);
    text.push_str("});\nexport default createLightfast({ agents: { one: createAgent({ name: \"one\", system: \"s\", model: gateway(\"m\"), tools: { fuzzed }, ...");
    properties(&mut text, &program.agent, 6);
    text.push_str("}) } });\n");
    for one in &program.after {
        statement(&mut text, one, 6, true);
    }
    let language = if program.is_typescript { Language::TypeScript } else { Language::JavaScript };
    let read = extract(&text, language).expect("there is a thread for it");
    let is_wrong = read.errors().next().is_some();
    for agent in &read.bundle.agents {
        for slice in agent.tools.iter().filter_map(|tool| tool.slice.as_ref()) {
            let again = extract(&slice.code, Language::JavaScript).expect("there is a thread for it");
            let broken = again.problems.iter().find(|problem| problem.code == ProblemCode::Parse);
            assert!(is_wrong || broken.is_none(), "{broken:?}\n{}\n--- of\n{text}", slice.code);
        }
    }
});
