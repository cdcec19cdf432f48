//! Problems: an example of every code, and messages about frequent mistakes.

use glovebox_bundle::{
    ExtractOptions, Extraction, Language, MAX_SOURCE_BYTES, ProblemCode, extract,
};

const IMPORTS: &str = "import { createLightfast, createAgent } from 'lightfast';
import { createTool } from 'lightfast/tool';
import { tool, jsonSchema } from 'ai';
import { z } from 'zod';
";

/// Returns a bundle whose agent has these fields.
fn agent(fields: &str) -> String {
    format!(
        "{IMPORTS}export default createLightfast({{ agents: {{ a: createAgent({{ {fields} }}) }} }});"
    )
}

/// Returns a bundle whose agent has one tool.
fn with_tool(declared: &str) -> String {
    agent(&format!(
        "name: 'a', system: 's', model: 'm', tools: {{ t: {declared} }}"
    ))
}

/// Returns a bundle that has a problem of this code.
fn example(code: ProblemCode) -> String {
    let run = |body: &str| {
        with_tool(&format!(
            "tool({{ inputSchema: z.object({{}}), execute: {body} }})"
        ))
    };
    match code {
        ProblemCode::Parse => "const = 1;".to_owned(),
        ProblemCode::TooLarge => " ".repeat(MAX_SOURCE_BYTES + 1),
        ProblemCode::TooDeep => format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
        ProblemCode::NoConfig => "export const x = 1;".to_owned(),
        ProblemCode::ManyConfigs => format!(
            "{IMPORTS}export const a = createLightfast({{ agents: {{}} }});\nexport const b = createLightfast({{ agents: {{}} }});"
        ),
        ProblemCode::NoAgents => format!("{IMPORTS}export default createLightfast({{ agents: {{}} }});"),
        ProblemCode::FieldMissing => agent("name: 'a', system: 's'"),
        ProblemCode::FieldType => agent("name: 'a', system: 7, model: 'm'"),
        ProblemCode::DynamicValue => agent("name: 'a', system: Date.now(), model: 'm'"),
        ProblemCode::Conditional => agent("name: 'a', system: process.env.X ? 'a' : 'b', model: 'm'"),
        ProblemCode::Mutated => format!(
            "{IMPORTS}const c = {{ name: 'a', system: 's', model: 'm' }};\nc.system += 'x';\n\
             export default createLightfast({{ agents: {{ a: createAgent(c) }} }});"
        ),
        ProblemCode::Getter => agent("name: 'a', get system() { return 's' }, model: 'm'"),
        ProblemCode::ComputedKey => agent("name: 'a', [Date.now()]: 's', model: 'm'"),
        ProblemCode::SpreadDynamic => agent("name: 'a', ...process.env, model: 'm'"),
        ProblemCode::ImportUnknown => format!("import {{ x }} from 'other';\n{}", agent("name: 'a', system: x, model: 'm'")),
        ProblemCode::ImportNotAllowed => format!("import fs from 'node:fs';\n{}", run("() => fs.readFileSync('/x')")),
        ProblemCode::SchemaUnsupported => with_tool("tool({ inputSchema: z.object({ f: z.function() }), execute: () => 1 })"),
        ProblemCode::SchemaUnrecognised => with_tool("tool({ inputSchema: 7, execute: () => 1 })"),
        ProblemCode::ToolNoExecute => with_tool("createTool({ description: 'd', inputSchema: z.object({}) })"),
        ProblemCode::ToolNotFunction => run("7"),
        ProblemCode::ToolClosure => format!(
            "{}\nfunction make(key) {{ return tool({{ inputSchema: z.object({{}}), execute: () => key }}) }}",
            with_tool("make(process.env.KEY)")
        ),
        ProblemCode::TypeScript => format!("namespace N {{ export const x = 1 }}\n{}", run("() => N.x")),
        ProblemCode::NameInvalid => agent("name: '', system: 's', model: 'm'"),
        ProblemCode::ReservedKey => format!(
            "{IMPORTS}export default createLightfast({{ agents: {{ constructor: createAgent({{ name: 'a', system: 's', model: 'm' }}) }} }});"
        ),
        // A problem to locate, and an invalid map.
        ProblemCode::SourceMap => format!(
            "{}\n//# sourceMappingURL=data:application/json;base64,e30=",
            agent("name: 'a', system: 's', model: 'm', temperature: 1")
        ),
        ProblemCode::Manifest | ProblemCode::Run => String::new(),
        ProblemCode::Stub => "function createAgent(o) { return o }\nfunction createLightfast(o) { return o }\n\
             export default createLightfast({ agents: { a: createAgent({ name: 'a', system: 's', model: 'm' }) } });"
            .to_owned(),
        ProblemCode::AgentNotRead => format!(
            "import {{ ToolLoopAgent }} from 'ai';\n{}\nexport const other = new ToolLoopAgent({{ model: 'm' }});",
            agent("name: 'a', system: 's', model: 'm'")
        ),
        ProblemCode::Ignored => agent("name: 'a', system: 's', model: 'm', temperature: 1"),
        ProblemCode::SchemaLossy => with_tool(
            "tool({ inputSchema: z.object({ x: z.string().refine((x) => x) }), execute: () => 1 })",
        ),
    }
}

#[test]
fn every_code_has_a_place_a_reason_and_what_to_write_instead() {
    // Manifests and bundles that are run have tests of their own.
    let elsewhere = [ProblemCode::Manifest, ProblemCode::Run];
    let codes = ProblemCode::ALL.iter();
    for &code in codes.filter(|code| !elsewhere.contains(code)) {
        let source = example(code);
        let language = match code {
            ProblemCode::TypeScript => Language::TypeScript,
            _ => Language::JavaScript,
        };
        let extraction = extract(&source, ExtractOptions::from(language))
            .unwrap_or_else(|error| panic!("{code}: {error}"));
        let shown = source.get(..2000).unwrap_or(&source);
        let found = extraction
            .problems
            .iter()
            .find(|problem| problem.code == code);
        let Some(problem) = found else {
            panic!("{code} is not among {:?}:\n{shown}", extraction.problems);
        };
        assert!(problem.line > 0 && problem.column > 0, "{problem:?}");
        assert!(!problem.reason.is_empty(), "{problem:?}");
        assert_eq!(
            extraction.errors().next().is_some(),
            code.is_error(),
            "{:?}",
            extraction.problems
        );
        if code.is_error() {
            assert!(!problem.hint.is_empty(), "{problem:?}");
        }
        // A source that is too large is not read, so it has no snippet.
        if code != ProblemCode::TooLarge {
            let frame = problem.render("x.js");
            assert!(frame.contains('^'), "{frame}");
        }
        let is_of_agent = extraction.bundle.format.is_some() && problem.path.starts_with("agents.");
        assert_eq!(problem.agent.is_some(), is_of_agent, "{problem:?}");
    }
}

fn read(source: &str) -> Extraction {
    extract(source, Language::JavaScript).unwrap_or_else(|error| panic!("{error}"))
}

fn complaints(extraction: &Extraction) -> String {
    let errors = extraction.errors().map(|problem| problem.render("x.js"));
    errors.collect()
}

#[test]
fn what_comes_from_another_file_or_package_is_named() {
    let imports = "import { value } from './other';\nimport { thing } from 'left-pad';";
    for (fields, path, words) in [
        (
            "name: 'a', model: 'm', system: value",
            "agents.a.system",
            "another file, `./other`",
        ),
        (
            "name: 'a', model: value, system: 's'",
            "agents.a.model",
            "another file, `./other`",
        ),
        (
            "name: 'a', model: 'm', system: thing",
            "agents.a.system",
            "the package `left-pad`",
        ),
        (
            "name: 'a', model: 'm', system: 's', tools: value",
            "agents.a.tools",
            "another file",
        ),
        (
            "name: 'a', model: 'm', system: 's', tools: { t: value }",
            "agents.a.tools.t",
            "another file",
        ),
        (
            "name: 'a', model: 'm', system: 's', tools: { t: tool({ inputSchema: value, execute: () => 1 }) }",
            "agents.a.tools.t.inputSchema",
            "another file",
        ),
        (
            "name: 'a', model: 'm', system: 's', tools: { t: tool({ inputSchema: z.object({}), execute: value }) }",
            "agents.a.tools.t.execute",
            "another file",
        ),
    ] {
        let said = complaints(&read(&format!("{imports}\n{}", agent(fields))));
        assert!(
            said.starts_with(&format!("E_IMPORT_UNKNOWN {path} (")) && said.contains(words),
            "{fields}: {said}"
        );
        assert_eq!(
            said.contains("esbuild: bundle"),
            words.contains("file"),
            "{said}"
        );
    }
}

#[test]
fn options_of_agents_that_have_no_effect_are_told() {
    let extraction = read(&format!(
        "import {{ stepCountIs }} from \'ai\';\n{}",
        agent(
            "name: 'a', model: 'm', system: 's', temperature: 0.2, stopWhen: stepCountIs(5), onFinish() {}"
        )
    ));
    assert_eq!(complaints(&extraction), "");
    let told: Vec<(&str, &str)> = extraction
        .warnings()
        .map(|problem| (problem.path.as_str(), problem.reason.as_str()))
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    for ((path, reason), (name, words)) in told.into_iter().zip([
        ("temperature", "has no effect here"),
        ("stopWhen", "left out"),
        ("onFinish", "left out"),
    ]) {
        assert_eq!(path, format!("agents.a.{name}"));
        assert!(reason.contains(words), "{reason}");
    }
}
