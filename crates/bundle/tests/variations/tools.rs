//! Tools in every form, and tools that cannot be read.

use crate::{complaints, tools};
use glovebox_bundle::{Json, ToolKind};

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
