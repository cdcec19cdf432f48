//! Code of tools.

use super::{refused, tool, warned};
use crate::{complaints, tools, with_agent};
use glovebox_bundle::ToolKind;

#[test]
fn v38_code_in_every_form() {
    for (before, fields, code) in [
        ("", "execute(i) { return i; }", "execute(i) { return i; }"),
        ("", "execute: async (i) => i", "async (i) => i"),
        (
            "const run = async (i) => i;",
            "execute: run",
            "async (i) => i",
        ),
        (
            "const api = { run: (i) => i };",
            "execute: api.run",
            "(i) => i",
        ),
        (
            "class Api { static run(i) { return i; } }",
            "execute: Api.run",
            "run(i) { return i; }",
        ),
        (
            "",
            "execute: async function* (i) { yield 1; yield i; }",
            "async function* (i)",
        ),
        (
            "",
            "async *execute(i) { yield i; }",
            "async *execute(i) { yield i; }",
        ),
    ] {
        let tool = tool(
            before,
            &format!("tool({{ inputSchema: z.object({{}}), {fields} }})"),
        );
        assert!(tool.executable, "{fields}");
        let slice = tool.slice.unwrap();
        assert!(slice.code.contains(code), "{fields}: {}", slice.code);
    }
    let client = tool("", "tool({ inputSchema: z.object({}) })");
    assert_eq!((client.kind, client.executable), (ToolKind::Client, false));
}

#[test]
fn v39_what_a_tool_needs() {
    let tool = tool(
        "const TABLE = { a: 1 };
const PATTERN = /^x+$/u;
var Mode = ((M) => { M['On'] = 'on'; return M; })(Mode || {});
class Box { #v = 7; get v() { return this.#v; } }
function helper(x) { return TABLE[x] ?? new Box().v; }
const never = 1;",
        "tool({ inputSchema: z.object({}), execute: (i) => [helper(i.x), PATTERN.test(i.x), Mode.On] })",
    );
    let code = tool.slice.unwrap().code;
    for part in [
        "const TABLE",
        "const PATTERN",
        "M['On'] = 'on'",
        "#v = 7",
        "function helper",
    ] {
        assert!(code.contains(part), "{part}: {code}");
    }
    assert!(!code.contains("never"), "{code}");
}

#[test]
fn v40_arguments_of_the_function_around_a_tool() {
    let make =
        "const makeTool = (apiKey) => tool({ inputSchema: z.object({}), execute: () => apiKey });";
    let tool = tool(make, "makeTool('k1')");
    assert!(tool.slice.unwrap().code.contains("const apiKey = \"k1\";"));
    let extraction = tools(make, "{ t: makeTool(process.env.KEY) }");
    let said = complaints(&extraction);
    assert!(
        said.starts_with("E_TOOL_CLOSURE agents.a.tools.t.execute"),
        "{said}"
    );
}

#[test]
fn v41_state_of_the_module() {
    let extraction = tools(
        "let counter = 0;",
        "{ t: tool({ inputSchema: z.object({}), execute: () => ++counter }) }",
    );
    assert_eq!(complaints(&extraction), "");
    warned(&extraction, "nothing of it is kept between calls");
}

#[test]
fn v42_imports_of_files() {
    refused(
        &with_agent(
            "import data from './x.json' with { type: 'json' };",
            "name: 'a', model: 'm', system: data.s",
        ),
        "E_IMPORT_NOT_ALLOWED",
        "agents.a.system",
        "import data",
    );
    refused(
        &with_agent("", "name: 'a', model: 'm', system: require('./x.json').s"),
        "E_IMPORT_NOT_ALLOWED",
        "agents.a.system",
        "require('./x.json')",
    );
    refused(
        &with_agent(
            "",
            "name: 'a', system: 's', model: 'm', tools: { t: tool({ inputSchema: z.object({}), execute: async () => (await import(\"node:fs\")).x }) }",
        ),
        "E_IMPORT_NOT_ALLOWED",
        "agents.a.tools.t.execute",
        "import(\"node:fs\")",
    );
}

#[test]
fn v50_tools_of_providers() {
    let tool = tool(
        "import { openai } from '@ai-sdk/openai';",
        "openai.tools.webSearch()",
    );
    assert_eq!((tool.kind, tool.executable), (ToolKind::Provider, false));
    assert!(tool.slice.is_none());
}
