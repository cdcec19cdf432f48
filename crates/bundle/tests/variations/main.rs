//! What a bundle may be written like, and what is refused with which code and where.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use glovebox_bundle::{Extraction, Json, Language, ProblemCode, ToolKind, ToolSignature, extract};
use std::fmt::Write;

const IMPORTS: &str = r#"import { createLightfast } from "lightfast/client";
import { createAgent } from "lightfast/agent";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import { tool, jsonSchema } from "ai";
import { z } from "zod";
"#;

fn read(source: &str) -> Extraction {
    extract(source, Language::JavaScript).unwrap()
}

fn complaints(extraction: &Extraction) -> String {
    extraction
        .errors()
        .fold(String::new(), |mut text, problem| {
            let _ = writeln!(text, "{}", problem.render("bundle.js"));
            text
        })
}

/// A bundle around one agent; `before` stands above it, `fields` in it.
fn with_agent(before: &str, fields: &str) -> String {
    format!(
        "{IMPORTS}{before}\nconst agent = createAgent({{ {fields} }});\n\
         export default createLightfast({{ agents: {{ a: agent }} }});\n"
    )
}

/// The system prompt that an expression gives.
fn system(before: &str, expression: &str) -> Result<String, String> {
    let source = with_agent(
        before,
        &format!("name: 'a', model: gateway('m'), system: {expression}"),
    );
    let extraction = read(&source);
    match extraction.bundle.agents.first() {
        Some(agent) if extraction.errors().next().is_none() => Ok(agent.system.clone()),
        _ => Err(complaints(&extraction)),
    }
}

#[test]
fn the_example_of_the_requirements_is_read() {
    for imports in [
        "const { createLightfast, createAgent } = require('lightfast');\nconst { gateway } = require('@ai-sdk/gateway');",
        // A host that gives the functions as globals.
        "",
    ] {
        let extraction = read(&format!(
            "{imports}
const myTool = (input) => ({{ doubled: input.x * 2 }});
throw new Error('never reached here');
for (;;) {{}}
module.exports = createLightfast({{
  agents: {{
    assistant: createAgent({{
      name: 'assistant', system: 'You are helpful', model: gateway('gpt-4'), tools: {{ myTool }},
    }}),
  }},
}});"
        ));
        assert_eq!(complaints(&extraction), "");
        let agent = &extraction.bundle.agents[0];
        assert_eq!(
            (agent.key.as_str(), agent.name.as_str()),
            ("assistant", "assistant")
        );
        assert_eq!(agent.system, "You are helpful");
        assert_eq!(agent.model.provider.as_deref(), Some("gateway"));
        assert_eq!(agent.model.name, "gpt-4");
        let tool = &agent.tools[0];
        assert_eq!(
            (tool.name.as_str(), tool.signature),
            ("myTool", ToolSignature::Function)
        );
        assert_eq!(
            tool.slice.as_ref().unwrap().code,
            "export default ((input) => ({ doubled: input.x * 2 }));\n"
        );
    }
}

#[test]
fn texts_are_worked_out() {
    for (before, expression, expected) in [
        ("", "'x'", "x"),
        ("", "`a\\`b`", "a`b"),
        (
            "const N = 3;",
            "`n=${N} ${1 + 2} ${true} ${null}`",
            "n=3 3 true null",
        ),
        ("", "'a' + 'b' + 1 + 2", "ab12"),
        ("", "1 + 2 + 'x'", "3x"),
        ("", "['a', 'b'].join('\\n')", "a\nb"),
        ("", "String.raw`a\\n`", "a\\n"),
        ("", "'  x '.trim().toUpperCase()", "X"),
        ("const c = { p: { q: ['u', 'v'] } };", "c.p.q[1]", "v"),
        ("const c = { p: 'x' };", "c?.p", "x"),
        ("const c = { p: 'x' };", "c['p']", "x"),
        ("let c = 'x';", "c", "x"),
        ("var c; c = 'x';", "c", "x"),
        (
            "const { p = 'd', q: { r } } = { q: { r: 'x' } };",
            "p + r",
            "dx",
        ),
        ("const [, s] = ['a', 'b'];", "s", "b"),
        ("const f = (n) => `hi ${n}`;", "f('you')", "hi you"),
        (
            "function f(a, b = 'd') { const c = a + b; return c; }",
            "f('x')",
            "xd",
        ),
        ("", "true ? 'a' : 'b'", "a"),
        ("", "!1 ? 'a' : 'b'", "b"),
        ("", "false || 'x'", "x"),
        ("", "null ?? 'x'", "x"),
        ("", "void 0 ?? 'x'", "x"),
        ("", "(0, 'x')", "x"),
        (
            "var M = ((M2) => { M2['A'] = 'a'; return M2; })(M || {});",
            "M.A",
            "a",
        ),
        (
            "var M = (e => (e.A = 'a', e.B = 'b', e))(M || {});",
            "M.B",
            "b",
        ),
        (
            "var M; (function (M) { M[M['A'] = 0] = 'A'; })(M || (M = {}));",
            "M[M.A]",
            "A",
        ),
        ("const o = Object.freeze({ a: 'x' });", "o.a", "x"),
        (
            "const o = Object.assign({}, { a: 'x' }, { a: 'y' });",
            "o.a",
            "y",
        ),
        (
            "const o = Object.fromEntries(['k'].map((n) => [n, n + '!']));",
            "o.k",
            "k!",
        ),
        ("const o = JSON.parse('{\"a\": \"x\"}');", "o.a", "x"),
        (
            "const base = { a: 'x' }; const o = { ...base, ...(false), a: 'y' };",
            "o.a",
            "y",
        ),
        (
            "import dedent from 'dedent';",
            "dedent`\n    a\n      b\n  `",
            "a\n  b",
        ),
        ("class P { static text = 'x'; }", "P.text", "x"),
        ("if (!1) { other.x = 1 }", "'x'", "x"),
        ("await fetch('x');", "'x'", "x"),
    ] {
        assert_eq!(
            system(before, expression).as_deref(),
            Ok(expected),
            "{before} {expression}"
        );
    }
}

#[test]
fn what_is_only_known_at_run_time_is_refused() {
    for (before, expression, code) in [
        ("", "process.env.PROMPT", "E_DYNAMIC_VALUE"),
        ("", "Date.now() + ''", "E_DYNAMIC_VALUE"),
        ("", "Math.random() + ''", "E_DYNAMIC_VALUE"),
        ("", "process.env.X ? 'a' : 'b'", "E_CONDITIONAL"),
        ("", "process.env.X ?? 'b'", "E_CONDITIONAL"),
        ("", "process.env.X || 'b'", "E_CONDITIONAL"),
        (
            "import { make } from 'other';",
            "make('x')",
            "E_IMPORT_UNKNOWN",
        ),
        ("const o = { a: 'x' }; o.a = 'y';", "o.a", "E_MUTATED"),
        (
            "const o = { a: 'x' }; const p = o; p.a = 'y';",
            "o.a",
            "E_MUTATED",
        ),
        (
            "const o = { a: 'x' }; Object.assign(o, { a: 'y' });",
            "o.a",
            "E_MUTATED",
        ),
        ("const o = { a: 'x' }; delete o.a;", "o.a", "E_MUTATED"),
        ("const o = ['x']; o.push('y');", "o[0]", "E_MUTATED"),
        (
            "const o = { a: 'x' }; function f(t) { t.a = 'y'; } f(o);",
            "o.a",
            "E_MUTATED",
        ),
        (
            "import { f } from 'other'; const o = { a: 'x' }; f(o);",
            "o.a",
            "E_MUTATED",
        ),
        ("let c = 'x'; c = 'y';", "c", "E_MUTATED"),
        ("let c = 'x'; c += 'y';", "c", "E_MUTATED"),
        ("let c; if (x) c = 'y';", "c", "E_MUTATED"),
        ("const o = { get a() { return 'x'; } };", "o.a", "E_GETTER"),
        ("const o = { __proto__: { a: 'x' } };", "o.a", "E_GETTER"),
        (
            "const p = null; const o = { __proto__: p, a: 'x' };",
            "o.a",
            "E_GETTER",
        ),
        ("const o = { [f()]: 'x' };", "o.a", "E_COMPUTED_KEY"),
        ("const o = { ...process.env };", "o.a", "E_SPREAD_DYNAMIC"),
        (
            "const o = { ...(process.env.X && { a: 'x' }) };",
            "o.a",
            "E_SPREAD_DYNAMIC",
        ),
        ("", "(await import('./x.js')).default", "E_DYNAMIC_VALUE"),
        ("", "require('./x.json').a", "E_IMPORT_NOT_ALLOWED"),
        ("", "require(name).a", "E_IMPORT_NOT_ALLOWED"),
        (
            "import d from './x.json' with { type: 'json' };",
            "d.a",
            "E_IMPORT_NOT_ALLOWED",
        ),
        (
            "function f(a) { if (a) return 'x'; return 'y'; }",
            "f(1)",
            "E_DYNAMIC_VALUE",
        ),
        (
            "async function f() { return 'x'; }",
            "f()",
            "E_DYNAMIC_VALUE",
        ),
        ("class P { text = 'x'; }", "new P().text", "E_DYNAMIC_VALUE"),
        ("const f = () => f();", "f()", "E_TOO_DEEP"),
        ("const c = c2 + 'x', c2 = 'y';", "c", "E_DYNAMIC_VALUE"),
        ("", "'a' + '\\ud800'", "E_DYNAMIC_VALUE"),
        ("", "42", "E_FIELD_TYPE"),
        ("", "undefined", "E_FIELD_TYPE"),
        ("", "['a', 'b']", "E_FIELD_TYPE"),
        ("", "eval('x')", "E_DYNAMIC_VALUE"),
        (
            "const p = new Proxy({ a: 'x' }, {});",
            "p.a",
            "E_DYNAMIC_VALUE",
        ),
    ] {
        let complaint = system(before, expression).unwrap_err();
        assert!(
            complaint.starts_with(&format!("{code} agents.a.system (bundle.js:")),
            "{before} {expression}: {complaint}"
        );
        assert!(complaint.contains("hint: "), "{complaint}");
    }
}

#[test]
fn an_error_says_what_where_and_what_to_write() {
    let source = with_agent(
        "",
        "name: 'a', system: 's',\n  model: process.env.PROD ? gateway('x') : gateway('y')",
    );
    let extraction = read(&source);
    assert_eq!(
        complaints(&extraction),
        "E_CONDITIONAL agents.a.model (bundle.js:9:10): the value depends on `process.env.PROD`, which is only known when the \
         bundle runs\n   |\n 9 |   model: process.env.PROD ? gateway('x') : gateway('y') });\n   |          \
         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n   hint: Write one value, or declare two agents or tools.\n\n"
    );
}

#[test]
fn all_errors_come_at_once() {
    let source = with_agent(
        "const o = { a: 'x' }; o.a = 'y';",
        "name: 7, system: o.a, model: process.env.M, tools: { t: tool({ inputSchema: 1, execute: 2 }) }",
    );
    let extraction = read(&source);
    let codes: Vec<&str> = extraction
        .errors()
        .map(|problem| problem.code.as_str())
        .collect();
    assert_eq!(
        codes,
        [
            "E_MUTATED",
            "E_FIELD_TYPE",
            "E_DYNAMIC_VALUE",
            "E_SCHEMA_UNRECOGNISED",
            "E_TOOL_NOT_FUNCTION"
        ],
        "{}",
        complaints(&extraction)
    );
    assert_eq!(extraction.bundle.agents, []);
}

#[test]
fn exports_are_found_in_every_form() {
    let config =
        "createLightfast({ agents: { a: createAgent({ name: 'a', system: 's', model: 'm' }) } })";
    let require = "const { createLightfast } = require('lightfast'); const { createAgent } = require('lightfast/agent');";
    let imports = "import { createLightfast, createAgent, Lightfast } from 'lightfast';";
    for source in [
        format!("{require} module.exports = {config};"),
        format!("{require} module.exports = {{ default: {config} }};"),
        format!("{require} exports.default = void 0; var c = {config}; exports.default = c;"),
        format!("{require} Object.defineProperty(exports, '__esModule', {{ value: true }}); exports.default = {config};"),
        format!("{require} module.exports = {config}; 0 && (module.exports = {{ agents }});"),
        format!("{imports} export default {config};"),
        format!("{imports} const c = {config}; export {{ c as default }};"),
        format!("{imports} export const lightfast = {config};"),
        format!("{imports} export default new Lightfast({{ agents: {{ a: createAgent({{ name: 'a', system: 's', model: 'm' }}) }} }});"),
        format!("{imports} const compiledConfig = (() => {{ const c = {config}; return {{ default: c }}; }})(); export default {{ id: 'x', hash: 'y', config: compiledConfig.default || compiledConfig, async execute() {{}} }};"),
        format!("var x = (() => {{ {require} return {config}; }})();"),
        format!("(function () {{ {require} {config}; }})();"),
        format!("(function (r, f) {{ module.exports = f(); }})(this, function () {{ {require} return {config}; }});"),
        format!("(function (g, f) {{ typeof exports === 'object' ? f(exports, require('lightfast')) : f(g.b = {{}}, g.l); }})(this, function (exports, l) {{ const {{ createLightfast, createAgent }} = l; exports.default = {config}; }});"),
        format!("var g, f; g = this, f = function (e, l) {{ const {{ createLightfast, createAgent }} = l; e.default = {config}; }}, 'object' == typeof exports ? f(exports, require('lightfast')) : f((g = self).b = {{}}, g.l);"),
        "import { createLightfast as a, createAgent as b } from 'lightfast'; export default a({ agents: { a: b({ name: 'a', system: 's', model: 'm' }) } });".to_owned(),
        "import * as l from 'lightfast'; export default l.createLightfast({ agents: { a: l.createAgent({ name: 'a', system: 's', model: 'm' }) } });".to_owned(),
        format!("function createLightfast(c) {{ return c }} function createAgent(c) {{ return c }} module.exports = {config};"),
        format!("#!/usr/bin/env node\n{require}\r\n/* c */ module.exports = {config}; // end\n<!-- html"),
        format!("\u{feff}{require} module.exports = {config};"),
    ] {
        let extraction = read(&source);
        assert_eq!(complaints(&extraction), "", "{source}");
        assert_eq!(extraction.bundle.agents.len(), 1, "{source}");
    }
}

#[test]
fn configurations_that_cannot_be_read_are_named() {
    let one =
        "createLightfast({ agents: { a: createAgent({ name: 'a', system: 's', model: 'm' }) } })";
    for (source, code) in [
        ("", "E_NO_CONFIG"),
        ("const x = ;", "E_PARSE"),
        ("export default <div/>;", "E_PARSE"),
        (
            "import { createLightfast } from 'lightfast'; export default createLightfast({});",
            "E_NO_AGENTS",
        ),
        (
            "import { createLightfast } from 'lightfast'; export default createLightfast({ agents: {} });",
            "E_NO_AGENTS",
        ),
        (
            "import { createLightfast } from 'other'; export default createLightfast({ agents: {} });",
            "E_IMPORT_UNKNOWN",
        ),
        (
            "import { createLightfast } from 'lightfast'; export default createLightfast();",
            "E_FIELD_MISSING",
        ),
        (
            "import { createLightfast } from 'lightfast'; export default createLightfast(7);",
            "E_FIELD_TYPE",
        ),
        (
            "var __webpack_modules__ = {}; function __webpack_require__() {}",
            "E_NO_CONFIG",
        ),
    ] {
        let extraction = read(source);
        let codes: Vec<&str> = extraction
            .errors()
            .map(|problem| problem.code.as_str())
            .collect();
        assert!(codes.contains(&code), "{source}: {codes:?}");
    }
    let two = format!(
        "import {{ createLightfast, createAgent }} from 'lightfast'; export const x = {one}; export const y = {one};"
    );
    assert_eq!(
        read(&two).errors().next().unwrap().code,
        ProblemCode::ManyConfigs
    );
}

#[test]
fn models_are_read_in_every_form() {
    for (before, expression, expected) in [
        ("", "'gpt-4'", Ok((None, "gpt-4"))),
        ("const M = 'x';", "gateway(M)", Ok((Some("gateway"), "x"))),
        (
            "import { openai } from '@ai-sdk/openai';",
            "openai('gpt-4o')",
            Ok((Some("openai"), "gpt-4o")),
        ),
        (
            "import { openai } from '@ai-sdk/openai';",
            "openai.chat('gpt-4o')",
            Ok((Some("openai"), "gpt-4o")),
        ),
        (
            "import { createOpenAI } from '@ai-sdk/openai'; const p = createOpenAI({ apiKey: process.env.K });",
            "p('x')",
            Ok((Some("openai"), "x")),
        ),
        (
            "import { wrapLanguageModel } from 'ai';",
            "wrapLanguageModel({ model: gateway('x'), middleware: m })",
            Ok((Some("gateway"), "x")),
        ),
        ("", "7", Err("E_FIELD_TYPE")),
        ("", "gateway(process.env.M)", Err("E_DYNAMIC_VALUE")),
        (
            "import { x } from 'other';",
            "x('gpt')",
            Err("E_IMPORT_UNKNOWN"),
        ),
    ] {
        let extraction = read(&with_agent(
            before,
            &format!("name: 'a', system: 's', model: {expression}"),
        ));
        match expected {
            Ok((provider, name)) => {
                assert_eq!(complaints(&extraction), "", "{expression}");
                let model = &extraction.bundle.agents[0].model;
                assert_eq!(
                    (model.provider.as_deref(), model.name.as_str()),
                    (provider, name)
                );
            }
            Err(code) => {
                assert_eq!(
                    extraction.errors().next().unwrap().code.as_str(),
                    code,
                    "{expression}"
                );
            }
        }
    }
    let missing = read(&with_agent("", "name: 'a', system: 's'"));
    assert_eq!(
        missing.errors().next().unwrap().code,
        ProblemCode::FieldMissing
    );
}

/// Agents' tools from an expression.
fn tools(before: &str, expression: &str) -> Extraction {
    read(&with_agent(
        before,
        &format!("name: 'a', system: 's', model: 'm', tools: {expression}"),
    ))
}

#[test]
fn tools_are_read_in_every_form() {
    let t = "createTool({ description: 'd', inputSchema: z.object({ x: z.number() }), execute: async (i) => i })";
    for (before, expression, name) in [
        ("", format!("{{ t: {t} }}"), "t"),
        ("", format!("{{ 'my-tool': {t} }}"), "my-tool"),
        ("", format!("{{ 7: {t} }}"), "7"),
        ("", format!("{{ größe: {t} }}"), "größe"),
        ("const N = 'n';", format!("{{ [N]: {t} }}"), "n"),
        ("", format!("(ctx) => ({{ t: {t} }})"), "t"),
        ("", format!("(ctx) => {{ const made = {t}; return {{ t: made }}; }}"), "t"),
        ("const more = { t: createTool({ description: 'd', inputSchema: z.object({ x: z.number() }), execute(i) { return i } }) };", "{ ...more }".to_owned(), "t"),
        ("", "{ t: (ctx) => tool({ description: 'd', inputSchema: z.object({ x: z.number() }), execute: async (i) => i }) }".to_owned(), "t"),
        ("", "{ t: tool({ description: 'd', parameters: z.object({ x: z.number() }), execute: async (i) => i }) }".to_owned(), "t"),
        ("", "{ t: tool({ description: 'd', inputSchema: jsonSchema({ type: 'object', properties: { x: { type: 'number' } }, required: ['x'] }), execute: async (i) => i }) }".to_owned(), "t"),
        ("", "{ t: { description: 'd', inputSchema: { type: 'object', properties: { x: { type: 'number' } }, required: ['x'] }, execute: async (i) => i } }".to_owned(), "t"),
        ("const api = { run: async (i) => i };", "{ t: tool({ description: 'd', inputSchema: z.object({ x: z.number() }), execute: api.run }) }".to_owned(), "t"),
        ("class Api { static async run(i) { return i } }", "{ t: tool({ description: 'd', inputSchema: z.object({ x: z.number() }), execute: Api.run }) }".to_owned(), "t"),
    ] {
        let extraction = tools(before, &expression);
        assert_eq!(complaints(&extraction), "", "{expression}");
        let tool = &extraction.bundle.agents[0].tools[0];
        assert_eq!(tool.name, name);
        assert_eq!(tool.description.as_deref(), Some("d"));
        assert!(tool.executable && tool.slice.is_some());
        assert_eq!(
            serde_json::to_value(&tool.input_schema).unwrap(),
            serde_json::json!({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}),
            "{expression}"
        );
    }
    let client = tools("", "{ t: tool({ inputSchema: z.object({}) }) }");
    let tool = &client.bundle.agents[0].tools[0];
    assert_eq!((tool.kind, tool.executable), (ToolKind::Client, false));
    let provider = tools(
        "import { openai } from '@ai-sdk/openai';",
        "{ web: openai.tools.webSearch({ size: 'high' }) }",
    );
    let tool = &provider.bundle.agents[0].tools[0];
    assert_eq!((tool.kind, tool.executable), (ToolKind::Provider, false));
    assert_eq!(tool.options, [("size".to_owned(), Json::from("high"))]);
}

#[test]
fn tools_that_cannot_be_read_are_refused() {
    let with = |execute: &str| {
        format!("{{ t: tool({{ inputSchema: z.object({{}}), execute: {execute} }}) }}")
    };
    for (before, expression, code) in [
        ("", "(ctx) => ctx.x ? {} : {}".to_owned(), "E_CONDITIONAL"),
        ("", "process.env.TOOLS".to_owned(), "E_DYNAMIC_VALUE"),
        ("const t = {};  t.x = 1;", "t".to_owned(), "E_MUTATED"),
        ("", "{ t: 7 }".to_owned(), "E_FIELD_TYPE"),
        (
            "",
            "{ t: createTool({ inputSchema: z.object({}) }) }".to_owned(),
            "E_TOOL_NO_EXECUTE",
        ),
        (
            "",
            "{ t: tool({ execute: async () => 1 }) }".to_owned(),
            "E_FIELD_MISSING",
        ),
        (
            "",
            "{ '': tool({ inputSchema: z.object({}) }) }".to_owned(),
            "E_NAME_INVALID",
        ),
        (
            "",
            "{ 'a\\nb': tool({ inputSchema: z.object({}) }) }".to_owned(),
            "E_NAME_INVALID",
        ),
        (
            "",
            format!(
                "{{ {}: tool({{ inputSchema: z.object({{}}) }}) }}",
                "x".repeat(300)
            ),
            "E_NAME_INVALID",
        ),
        (
            "",
            "{ constructor: tool({ inputSchema: z.object({}) }) }".to_owned(),
            "E_RESERVED_KEY",
        ),
        (
            "",
            "{ ['__proto__']: tool({ inputSchema: z.object({}) }) }".to_owned(),
            "E_RESERVED_KEY",
        ),
        ("", with("'x'"), "E_TOOL_NOT_FUNCTION"),
        ("", with("process.exit"), "E_DYNAMIC_VALUE"),
        (
            "const f = (i) => i;",
            with("f.bind(null, 1)"),
            "E_DYNAMIC_VALUE",
        ),
        (
            "import fs from 'node:fs';",
            with("() => fs.readFileSync('/etc/passwd')"),
            "E_IMPORT_NOT_ALLOWED",
        ),
        (
            "",
            with("async () => (await import('node:fs')).x"),
            "E_IMPORT_NOT_ALLOWED",
        ),
        (
            "",
            with("() => require('child_process')"),
            "E_IMPORT_NOT_ALLOWED",
        ),
        ("", with("(i) => require(i.x)"), "E_IMPORT_NOT_ALLOWED"),
        (
            "import fs from 'fs'; const helper = () => fs.x;",
            with("() => helper()"),
            "E_IMPORT_NOT_ALLOWED",
        ),
        (
            "",
            with("(i) => z.string().parse(i)"),
            "E_IMPORT_NOT_ALLOWED",
        ),
        (
            "",
            "(ctx) => ({ t: tool({ inputSchema: z.object({}), execute: () => ctx.user }) })"
                .to_owned(),
            "E_TOOL_CLOSURE",
        ),
        (
            "const make = (key) => tool({ inputSchema: z.object({}), execute: () => key });",
            "{ t: make(process.env.KEY) }".to_owned(),
            "E_TOOL_CLOSURE",
        ),
    ] {
        let extraction = tools(before, &expression);
        let codes: Vec<&str> = extraction
            .errors()
            .map(|problem| problem.code.as_str())
            .collect();
        assert_eq!(
            codes.first(),
            Some(&code),
            "{expression}: {}",
            complaints(&extraction)
        );
    }
    let chain = tools(
        "import fs from 'fs'; const helper = () => fs.x;",
        &with("() => helper()"),
    );
    assert!(
        complaints(&chain).contains("execute -> helper -> fs -> fs"),
        "{}",
        complaints(&chain)
    );
}

#[test]
fn a_slice_has_what_the_tool_needs_and_nothing_else() {
    let extraction = tools(
        "import { createHash } from 'node:crypto';
console.log('never');
const unused = 1;
const TABLE = { a: 1 };
TABLE.b = 2;
let counter = 0;
function helper(x) { counter++; return inner(x) + TABLE.b; }
const inner = (x) => createHash('sha256').update(x).digest('hex');
class Box { #v = 1; get() { return this.#v } }
Box.size = 3;
process.exit(1);",
        "{ t: tool({ inputSchema: z.object({}), async execute(i) { return [helper(i), new Box().get(), fetch] } }) }",
    );
    assert_eq!(complaints(&extraction), "");
    let slice = extraction.bundle.agents[0].tools[0].slice.clone().unwrap();
    assert_eq!(
        slice.code,
        "import { createHash } from \"node:crypto\";
const TABLE = { a: 1 };
TABLE.b = 2;
let counter = 0;
function helper(x) { counter++; return inner(x) + TABLE.b; }
const inner = (x) => createHash('sha256').update(x).digest('hex');
class Box { #v = 1; get() { return this.#v } }
Box.size = 3;
export default Object.values({ async execute(i) { return [helper(i), new Box().get(), fetch] } })[0];
"
    );
    assert_eq!(slice.modules, ["node:crypto"]);
    assert_eq!(slice.globals, ["fetch"]);
    assert_eq!(slice.state, ["counter"]);
    assert!(
        extraction
            .warnings()
            .any(|problem| problem.reason.contains("counter"))
    );
}

#[test]
fn arguments_of_the_function_around_a_tool_are_carried_as_data() {
    let extraction = tools(
        "const make = (prefix, { list }) => tool({ inputSchema: z.object({}), execute: () => prefix + list[0] });",
        "{ t: make('a\"\u{2028}', { list: ['x'] }) }",
    );
    assert_eq!(complaints(&extraction), "");
    let slice = extraction.bundle.agents[0].tools[0].slice.clone().unwrap();
    assert!(
        slice.code.starts_with(
            "const prefix = \"a\\\"\u{2028}\";\nconst list = JSON.parse(\"[\\\"x\\\"]\");\n"
        ),
        "{}",
        slice.code
    );
}

#[test]
fn a_name_is_that_of_its_scope() {
    // Two functions of one name; the old extractor took the wrong one.
    let extraction = tools(
        "function pick() { return 'outer'; }
const made = (() => { function pick() { return 'inner'; } return tool({ inputSchema: z.object({}), execute: () => pick() }); })();",
        "{ t: made }",
    );
    assert_eq!(complaints(&extraction), "");
    let slice = extraction.bundle.agents[0].tools[0].slice.clone().unwrap();
    assert!(
        slice.code.contains("'inner'") && !slice.code.contains("'outer'"),
        "{}",
        slice.code
    );
}

#[test]
fn bounds_end_what_has_no_end() {
    let big = "x".repeat(glovebox_bundle::MAX_SOURCE_BYTES + 1);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut doubled = "const a0 = ['x'];".to_owned();
    for index in 1..60 {
        let _ = write!(doubled, "const a{index} = [...a{0}, ...a{0}];", index - 1);
    }
    let mut shared = "const b0 = { x: 'y' };".to_owned();
    for index in 1..60 {
        let _ = write!(
            shared,
            "const b{index} = {{ l: b{0}, r: b{0} }};",
            index - 1
        );
    }
    let mut grown = "const c0 = 'xxxxxxxxxxxxxxxx';".to_owned();
    for index in 1..60 {
        let _ = write!(grown, "const c{index} = c{0} + c{0};", index - 1);
    }
    for (source, code) in [
        (big, "E_TOO_LARGE"),
        (deep, "E_TOO_DEEP"),
        (
            with_agent(&doubled, "name: 'a', system: a59.join(''), model: 'm'"),
            "E_TOO_DEEP",
        ),
        (
            with_agent(
                &shared,
                "name: 'a', system: 's', model: 'm', tools: { t: tool({ inputSchema: { type: 'object', properties: b59 } }) }",
            ),
            "E_TOO_DEEP",
        ),
        (
            with_agent(&grown, "name: 'a', system: c59, model: 'm'"),
            "E_TOO_LARGE",
        ),
        (
            with_agent(
                &format!("const s = '{}';", "x".repeat(1_000_000)),
                "name: 'a', system: s, model: 'm', extra: s",
            ),
            "E_TOO_LARGE",
        ),
    ] {
        let extraction = read(&source);
        let codes: Vec<&str> = extraction
            .errors()
            .map(|problem| problem.code.as_str())
            .collect();
        assert!(
            codes.contains(&code),
            "{codes:?}: {}",
            complaints(&extraction)
        );
    }
}

#[test]
fn keys_that_repeat_and_names_that_differ_are_told() {
    let source = format!(
        "{IMPORTS}const one = (name) => createAgent({{ name, system: name, model: 'm' }});
export default createLightfast({{ agents: {{ a: one('x'), a: one('y') }} }});"
    );
    let extraction = read(&source);
    assert_eq!(complaints(&extraction), "");
    assert_eq!(extraction.bundle.agents[0].name, "y");
    assert!(
        extraction
            .warnings()
            .any(|problem| problem.reason.contains("declared twice"))
    );
}
