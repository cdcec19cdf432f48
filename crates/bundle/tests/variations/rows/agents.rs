//! Agents, their models and names, and other code in the file.

use super::{accepted, refused, warned};
use crate::{IMPORTS, complaints, read, tools, with_agent};
use glovebox_bundle::{Language, extract};

#[test]
fn v20_tools_as_a_function() {
    let t = "tool({ inputSchema: z.object({}), execute: () => 1 })";
    let extraction = tools("", &format!("ctx => ({{ t: {t} }})"));
    assert_eq!(complaints(&extraction), "");
    assert_eq!(extraction.bundle.agents[0].tools[0].name, "t");
    refused(
        &with_agent(
            "",
            &format!(
                "name: 'a', system: 's', model: 'm', tools: (ctx) => {{ if (ctx.admin) {{ return {{ t: {t} }}; }} return {{}}; }}"
            ),
        ),
        "E_DYNAMIC_VALUE",
        "agents.a.tools",
        "(ctx)",
    );
}

#[test]
fn v23_models() {
    let openai = "import { openai } from '@ai-sdk/openai';\nimport { wrapLanguageModel } from 'ai';\nconst MODEL = 'm';";
    for (model, provider) in [
        ("'m'", None),
        ("gateway(\"m\")", Some("gateway")),
        ("openai(\"m\")", Some("openai")),
        ("gateway(MODEL)", Some("gateway")),
        (
            "wrapLanguageModel({ model: gateway(\"m\"), middleware: [] })",
            Some("gateway"),
        ),
    ] {
        let extraction = accepted(&with_agent(
            openai,
            &format!("name: 'a', system: 's', model: {model}"),
        ));
        let read = &extraction.bundle.agents[0].model;
        assert_eq!(
            (read.provider.as_deref(), read.name.as_str()),
            (provider, "m")
        );
    }
    refused(
        &with_agent("", "name: 'a', system: 's', model: 7"),
        "E_FIELD_TYPE",
        "agents.a.model",
        "7",
    );
    refused(
        &with_agent("", "name: 'a', system: 's'"),
        "E_FIELD_MISSING",
        "agents.a.model",
        "createAgent",
    );
}

#[test]
fn v26_agents_from_functions() {
    let source = |before: &str, call: &str| {
        format!("{IMPORTS}{before}\nexport default createLightfast({{ agents: {{ a: {call} }} }});")
    };
    let extraction = accepted(&source(
        "const makeAgent = (name) => createAgent({ name, system: `s ${name}`, model: 'm' });",
        "makeAgent('x')",
    ));
    assert_eq!(extraction.bundle.agents[0].system, "s x");
    refused(
        &source(
            "function makeAgent(name) { let system = ''; for (const c of name) { system += c; }\n return createAgent({ name, system, model: 'm' }); }",
            "makeAgent('x')",
        ),
        "E_MUTATED",
        "agents.a.system",
        "system += c",
    );
    refused(
        &source("import { makeAgent } from 'other';", "makeAgent('x')"),
        "E_IMPORT_UNKNOWN",
        "agents.a",
        "makeAgent('x')",
    );
}

#[test]
fn v27_agents_from_lists() {
    let agent = "createAgent({ name: n, system: n, model: 'm' })";
    refused(
        &format!(
            "{IMPORTS}const agents = {{}};\nfor (const n of ['a', 'b']) agents[n] = {agent};\nexport default createLightfast({{ agents }});"
        ),
        "E_MUTATED",
        "agents",
        "agents[n] =",
    );
    let extraction = accepted(&format!(
        "{IMPORTS}const names = ['a', 'b'];\nexport default createLightfast({{ agents: Object.fromEntries(names.map((n) => [n, {agent}])) }});"
    ));
    assert_eq!(extraction.bundle.agents.len(), 2);
}

#[test]
fn v43_what_stands_at_the_top_never_runs() {
    for before in [
        "await fetch('https://example.com');",
        "throw new Error('no');",
        "for (;;) {}",
        "console.log('x'); process.exit(1);",
    ] {
        accepted(&with_agent(before, "name: 'a', system: 's', model: 'm'"));
    }
    refused(
        &with_agent(
            "const text = await load();",
            "name: 'a', system: text, model: 'm'",
        ),
        "E_DYNAMIC_VALUE",
        "agents.a.system",
        "await load()",
    );
}

#[test]
fn v44_a_source_map_inside() {
    let inside = |bytes: usize| {
        let bundle = with_agent("", "name: 'a', system: 's', model: 'm'");
        let map = "A".repeat(bytes);
        accepted(&format!(
            "{bundle}//# sourceMappingURL=data:application/json;base64,{map}\n"
        ))
    };
    // The map is not part of the source, and is not parsed without a problem to locate.
    assert_eq!(inside(10 << 20).problems, []);
    assert_eq!(inside(glovebox_bundle::MAX_MAP_BYTES).problems, []);
    let wrong = with_agent("", "name: 'a', system: 7, model: 'm'");
    for (map, words) in [
        ("A".repeat(glovebox_bundle::MAX_MAP_BYTES), "more than"),
        ("!".to_owned(), "cannot be used"),
        ("e30=".to_owned(), "missing field"),
    ] {
        let extraction = read(&format!(
            "{wrong}//# sourceMappingURL=data:application/json;base64,{map}"
        ));
        assert!(complaints(&extraction).starts_with("E_FIELD_TYPE agents.a.system (bundle.js:"));
        let told = extraction
            .warnings()
            .find(|problem| problem.code.as_str() == "W_SOURCE_MAP");
        assert!(told.unwrap().reason.contains(words), "{told:?}");
    }
}

#[test]
fn v45_names() {
    let one = "createAgent({ name: 'other', system: 's', model: 'm' })";
    let source = |agents: &str| {
        format!("{IMPORTS}export default createLightfast({{ agents: {{ {agents} }} }});")
    };
    let extraction = accepted(&source(&format!("a: {one}, a: {one}")));
    assert_eq!(extraction.bundle.agents.len(), 1);
    warned(&extraction, "declared twice");
    assert_eq!(extraction.bundle.agents[0].name, "other");
    let long = "x".repeat(300);
    for key in [
        "''",
        "'a\\nb'",
        long.as_str(),
        "'\");process.exit();//\\u0000'",
    ] {
        let extraction = read(&source(&format!("{key}: {one}")));
        let said = complaints(&extraction);
        assert!(said.starts_with("E_NAME_INVALID"), "{key}: {said}");
    }
    for name in ["''", "'a\\nb'", &format!("'{long}'")] {
        let extraction = read(&with_agent(
            "",
            &format!("name: {name}, system: 's', model: 'm'"),
        ));
        let said = complaints(&extraction);
        assert!(
            said.starts_with("E_NAME_INVALID agents.a.name"),
            "{name}: {said}"
        );
    }
}

#[test]
fn v48_types_decorators_and_jsx() {
    let typed = "import { createLightfast, createAgent } from 'lightfast';
function logged(value: unknown, context: ClassMethodDecoratorContext) {}
class Api { @logged run(x: number): number { return x; } }
const system: string = 's' as const;
export default createLightfast({ agents: { a: createAgent({ name: 'a', system, model: 'm' }) } });";
    let extraction = extract(typed, Language::TypeScript).unwrap();
    assert_eq!(complaints(&extraction), "");
    assert_eq!(extraction.bundle.agents[0].system, "s");
    let jsx = with_agent(
        "const view = <div>hello</div>;",
        "name: 'a', system: 's', model: 'm'",
    );
    refused(&jsx, "E_PARSE", "", "<div>");
    // Types in a JavaScript file: the hint names the extension.
    let extraction = read(typed);
    assert!(
        complaints(&extraction).contains("`.ts`"),
        "{}",
        complaints(&extraction)
    );
}
