//! Places of the configuration in a bundle, and models of agents.

use crate::{complaints, read, with_agent};
use glovebox_bundle::{ProblemCode, ToolSignature};

#[test]
fn the_example_of_the_requirements_is_read() {
    for imports in [
        "const { createLightfast, createAgent } = require('lightfast');\nconst { gateway } = require('@ai-sdk/gateway');",
        // A host that provides the functions as globals.
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

#[test]
fn umd_with_a_default_export_is_read() {
    let make = "const t = async ({ n }) => n; \
        var lf = client.createLightfast({ agents: { a: agent.createAgent({ name: 'a', system: 's', model: 'm', tools: { t } }) } });";
    for source in [
        // rollup with `exports: "auto"`.
        format!(
            "(function (global, factory) {{
  typeof exports === 'object' && typeof module !== 'undefined' ? module.exports = factory(require('lightfast/client'), require('lightfast/agent')) :
  typeof define === 'function' && define.amd ? define(['lightfast/client', 'lightfast/agent'], factory) :
  (global = typeof globalThis !== 'undefined' ? globalThis : global || self, global.x = factory(global.client, global.agent));
}})(this, (function (client, agent) {{ 'use strict'; {make} return lf; }}));"
        ),
        // The same, minified.
        format!(
            "!function(e,t){{\"object\"==typeof exports&&\"undefined\"!=typeof module?module.exports=t(require(\"lightfast/client\"),require(\"lightfast/agent\")):(e=e||self).x=t(e.client,e.agent)}}(this,function(client,agent){{{make}return lf}});"
        ),
    ] {
        let extraction = read(&source);
        assert_eq!(complaints(&extraction), "", "{source}");
        assert_eq!(extraction.bundle.agents[0].tools.len(), 1, "{source}");
        assert!(
            extraction
                .problems
                .iter()
                .all(|problem| problem.code != ProblemCode::Ignored),
            "{:?}",
            extraction.problems
        );
    }
}

/// Returns the agents in `W_AGENT_NOT_READ` of a bundle that also has a tool.
fn unread(source: &str) -> Vec<String> {
    let source = format!(
        "import {{ tool, generateText, ToolLoopAgent, Experimental_Agent as Agent }} from 'ai';\n\
         import * as ai from 'ai'; import {{ openai }} from '@ai-sdk/openai'; import {{ z }} from 'zod';\n\
         import {{ Agent as Other, createReactAgent }} from 'agents';\n\
         export const t = tool({{ inputSchema: z.object({{ model: z.string() }}), execute: async (x) => x }});\n{source}"
    );
    let extraction = read(&source);
    assert_eq!(complaints(&extraction), "", "{source}");
    assert_eq!(extraction.bundle.tools.len(), 1, "{source}");
    let unread = extraction
        .problems
        .iter()
        .filter(|problem| problem.code == ProblemCode::AgentNotRead);
    unread.map(|problem| problem.path.clone()).collect()
}

#[test]
fn agent_of_another_library_is_named_and_left_out() {
    for source in [
        "export const a = new ToolLoopAgent({ model: openai('m'), instructions: 'i', tools: { t } });",
        "const a = new ToolLoopAgent({ model: openai('m') }); export { a };",
        "export const a = new ai.ToolLoopAgent({ tools: { t } });",
        "export const a = new Agent({ system: 's' });",
        "export const a = new Other({ name: 'x', instructions: 'i' });",
        "export const a = createReactAgent({ tools: [t] });",
        "const base = { model: 'm' }; export const a = new Other({ ...base, name: 'x' });",
        "const base = { model: 'm' }; export const a = new Other(base);",
        "export const all = { a: new Other({ tools: {} }) };",
        "export const a = () => new ToolLoopAgent({ model: 'm' });",
        "export function a() { return new ToolLoopAgent({ model: 'm' }); }",
        "const a = new ToolLoopAgent({ model: 'm' }); export const POST = (request) => a.stream(request);",
    ] {
        assert_eq!(unread(source), ["a"], "{source}");
    }
    for source in [
        "",
        "export const m = openai('gpt', { tools: {} });",
        "export const s = z.object({ tools: z.string(), system: z.string() });",
        "export const ask = async (x) => generateText({ model: openai('m'), system: 's' });",
        "class Local { constructor(x) { this.x = x } } export const a = new Local({ model: 'm' });",
        "export const a = new Other({ name: 'x' });",
    ] {
        assert_eq!(unread(source), [""; 0], "{source}");
    }
}

#[test]
fn bundle_with_unread_agents_alone_is_refused_and_names_them() {
    let extraction = read(
        "import { ToolLoopAgent } from 'ai'; export const a = new ToolLoopAgent({ model: 'm' });",
    );
    let codes: Vec<_> = extraction
        .problems
        .iter()
        .map(|problem| problem.code)
        .collect();
    assert_eq!(codes, [ProblemCode::NoConfig, ProblemCode::AgentNotRead]);
}
