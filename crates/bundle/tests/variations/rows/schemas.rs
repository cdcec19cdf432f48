//! Schemas of tools.

use super::{refused, schema, tool};
use crate::{complaints, tools, with_agent};

#[test]
fn v34_json_schema_as_it_is() {
    let json = "{ type: 'object', properties: { x: { type: 'number' } }, required: ['x'] }";
    let expected = serde_json::json!({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]});
    for fields in [
        format!("inputSchema: jsonSchema({json})"),
        format!("inputSchema: {json}"),
        format!("parameters: jsonSchema({json})"),
        "parameters: z.object({ x: z.number() })".to_owned(),
    ] {
        let tool = tool("", &format!("tool({{ {fields}, execute: () => 1 }})"));
        assert_eq!(
            serde_json::to_value(tool.input_schema).unwrap(),
            expected,
            "{fields}"
        );
    }
}

#[test]
fn v35_zod_by_any_name() {
    for (before, expression) in [
        (
            "import { z as t } from 'zod';",
            "t.object({ x: t.number() })",
        ),
        (
            "import * as zod from 'zod';",
            "zod.object({ x: zod.number() })",
        ),
        (
            "import * as q from 'zod';",
            "q.z.object({ x: q.z.number() })",
        ),
        ("const { object, number } = z;", "object({ x: number() })"),
        (
            "import { object as o, number as n } from 'zod';",
            "o({ x: n() })",
        ),
        ("import d from 'zod';", "d.object({ x: d.number() })"),
        (
            "import { z as v } from 'zod/v4';",
            "v.object({ x: v.number() })",
        ),
        (
            "import { z as v } from 'zod/v3';",
            "v.object({ x: v.number() })",
        ),
        (
            "import * as v from 'zod/mini';",
            "v.object({ x: v.number() })",
        ),
        (
            "// node_modules/zod/v4/classic/external.js\nvar external_exports = {};\n// src/config.ts\n",
            "external_exports.object({ x: external_exports.number() })",
        ),
    ] {
        assert_eq!(
            schema(before, expression),
            serde_json::json!({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}),
            "{before}"
        );
    }
    // The name alone does not make it zod.
    refused(
        &with_agent(
            "const external_exports = { object: (x) => x };",
            "name: 'a', system: 's', model: 'm', tools: { t: tool({ inputSchema: external_exports.object(7), execute: () => 1 }) }",
        ),
        "E_SCHEMA_UNRECOGNISED",
        "agents.a.tools.t.inputSchema",
        "external_exports.object",
    );
}

#[test]
fn v36_schemas_by_name_and_in_parts() {
    let base = "const Base = z.object({ a: z.string(), b: z.number() });";
    let names = |expression: &str| {
        let schema = schema(base, expression);
        let fields = schema["properties"].as_object().unwrap();
        let mut names: Vec<String> = fields.keys().cloned().collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names("Base"), ["a", "b"]);
    assert_eq!(
        names("z.object({ c: z.null() }).extend(Base.shape)"),
        ["a", "b", "c"]
    );
    assert_eq!(names("Base.pick({ a: true })"), ["a"]);
    let shared = schema(base, "z.object({ l: Base, r: Base })");
    assert_eq!(shared["properties"]["l"], shared["properties"]["r"]);
    let tree = schema(
        "const Tree = z.object({ v: z.string(), kids: z.lazy(() => Tree.array()) });",
        "Tree",
    );
    assert_eq!(tree["properties"]["kids"]["items"]["$ref"], "#");
}

#[test]
fn zod_step_that_is_not_applied_is_named() {
    for (expression, named) in [
        ("z.coerce.number()", Some("`coerce`")),
        ("z.coerce.boolean().default(true)", Some("`coerce`")),
        ("z.string().trim()", Some("`trim`")),
        ("z.string().min(1).toLowerCase()", Some("`toLowerCase`")),
        ("z.string().toUpperCase().optional()", Some("`toUpperCase`")),
        ("z.string().normalize()", Some("`normalize`")),
        ("z.string().overwrite((s) => s + '!')", Some("`overwrite`")),
        ("z.number().catch(3)", Some("`catch`")),
        ("z.string().email()", Some("`email`")),
        ("z.url()", Some("`uri`")),
        ("z.ipv4()", Some("`ipv4`")),
        ("z.iso.datetime()", Some("`date-time`")),
        ("z.base64()", Some("`base64`")),
        ("z.hostname()", Some("`hostname`")),
        ("z.array(z.uuid())", Some("`uuid`")),
        ("z.string().min(1).regex(/^a/)", None),
        ("z.number().int().default(3)", None),
        ("z.iso.time()", None),
        ("z.enum(['trim', 'email'])", None),
    ] {
        let extraction = tools(
            "",
            &format!(
                "{{ t: tool({{ inputSchema: z.object({{ x: {expression} }}), execute: () => 1 }}) }}"
            ),
        );
        assert_eq!(complaints(&extraction), "", "{expression}");
        let warned: Vec<_> = extraction
            .warnings()
            .map(|problem| (problem.code.as_str(), problem.reason.as_str()))
            .collect();
        match named {
            Some(named) => assert!(
                matches!(warned.as_slice(), [("W_SCHEMA_LOSSY", reason)] if reason.contains(named)),
                "{expression}: {warned:?}"
            ),
            None => assert_eq!(warned, [], "{expression}"),
        }
    }
}

#[test]
fn v37_checks_that_are_code() {
    for (expression, is_lossy) in [
        ("z.object({ x: z.string().refine((x) => x > 'a') })", true),
        (
            "z.object({ x: z.string().transform((x) => x.length) })",
            true,
        ),
        ("z.object({ x: z.string().describe(TEXT) })", false),
        (
            "z.object({ x: z.number().default(() => Date.now()) })",
            true,
        ),
    ] {
        let extraction = tools(
            "const TEXT = 'about';",
            &format!("{{ t: tool({{ inputSchema: {expression}, execute: () => 1 }}) }}"),
        );
        assert_eq!(complaints(&extraction), "", "{expression}");
        let codes = extraction.warnings().map(|problem| problem.code.as_str());
        assert_eq!(
            codes.collect::<Vec<_>>() == ["W_SCHEMA_LOSSY"],
            is_lossy,
            "{expression}"
        );
        let schema =
            serde_json::to_value(&extraction.bundle.agents[0].tools[0].input_schema).unwrap();
        assert_eq!(schema["properties"]["x"].get("default"), None);
        assert_eq!(
            schema["properties"]["x"].get("description").is_some(),
            !is_lossy
        );
    }
}
