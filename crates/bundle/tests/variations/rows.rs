//! The variations of how bundles are written, one test each, by number: those that are read, with what is read, and
//! those that are refused, with code and place. Numbers that are missing were never given.

use crate::{IMPORTS, complaints, read, system, tools, with_agent};
use glovebox_bundle::{Extraction, Language, ToolKind, extract};

/// One agent `a` whose prompt is `s`, as the argument of `createLightfast`.
const AGENTS: &str =
    "{ agents: { a: createAgent({ name: 'a', system: 's', model: gateway('m') }) } }";

/// CommonJS in place of `IMPORTS`.
const REQUIRES: &str = "const { createLightfast } = require('lightfast/client');
const { createAgent } = require('lightfast/agent');
const { createTool } = require('lightfast/tool');
const { gateway } = require('@ai-sdk/gateway');
const { tool, jsonSchema } = require('ai');
const { z } = require('zod');
";

/// The bundle is read without an error, and has this agent.
#[track_caller]
fn accepted(source: &str) -> Extraction {
    let extraction = read(source);
    assert_eq!(complaints(&extraction), "", "{source}");
    assert!(
        extraction
            .bundle
            .agents
            .iter()
            .any(|agent| agent.key == "a"),
        "{source}"
    );
    extraction
}

/// The bundle is refused with this code first, at this line and column, and the complaint says what to write.
#[track_caller]
fn refused(source: &str, code: &str, path: &str, text: &str) {
    let extraction = read(source);
    let said = complaints(&extraction);
    let Some(problem) = extraction
        .errors()
        .find(|problem| problem.code.as_str() == code && problem.path == path)
    else {
        panic!("no {code} at `{path}` in {source}\n{said}");
    };
    let line = source.lines().nth(problem.line as usize - 1).unwrap();
    let there: String = line.chars().skip(problem.column as usize - 1).collect();
    assert!(there.starts_with(text), "{there} is not at {text}: {said}");
    assert!(
        !problem.hint.is_empty() && !problem.snippet.is_empty(),
        "{said}"
    );
}

/// A warning has these words.
#[track_caller]
fn warned(extraction: &Extraction, words: &str) {
    let mut reasons = extraction.warnings().map(|problem| &problem.reason);
    assert!(
        reasons.any(|reason| reason.contains(words)),
        "{words}: {:?}",
        extraction.problems
    );
}

/// The only tool of the only agent.
#[track_caller]
fn tool(before: &str, declared: &str) -> glovebox_bundle::Tool {
    let extraction = tools(before, &format!("{{ t: {declared} }}"));
    assert_eq!(complaints(&extraction), "", "{before} {declared}");
    extraction.bundle.agents[0].tools[0].clone()
}

/// The schema that a zod expression gives.
#[track_caller]
fn schema(before: &str, expression: &str) -> serde_json::Value {
    let declared = format!("tool({{ inputSchema: {expression}, execute: () => 1 }})");
    serde_json::to_value(tool(before, &declared).input_schema).unwrap()
}

#[test]
fn v01_module_exports() {
    accepted(&format!(
        "{REQUIRES}module.exports = createLightfast({AGENTS});"
    ));
}

#[test]
fn v02_exports_default_and_the_mark_of_a_module() {
    accepted(&format!(
        "{REQUIRES}module.exports = {{ default: createLightfast({AGENTS}) }};"
    ));
    accepted(&format!(
        "{REQUIRES}Object.defineProperty(exports, '__esModule', {{ value: true }});\nexports.default = createLightfast({AGENTS});"
    ));
}

#[test]
fn v03_getters_of_esbuild() {
    accepted(&format!(
        "var __defProp = Object.defineProperty;
var __getOwnPropDesc = Object.getOwnPropertyDescriptor;
var __getOwnPropNames = Object.getOwnPropertyNames;
var __hasOwnProp = Object.prototype.hasOwnProperty;
var __export = (target, all) => {{ for (var name in all) __defProp(target, name, {{ get: all[name], enumerable: true }}); }};
var __copyProps = (to, from, except, desc) => {{ if (from && typeof from === 'object') {{ for (let key of __getOwnPropNames(from)) if (!__hasOwnProp.call(to, key) && key !== except) __defProp(to, key, {{ get: () => from[key], enumerable: !(desc = __getOwnPropDesc(from, key)) || desc.enumerable }}); }} return to; }};
var __toCommonJS = (mod) => __copyProps(__defProp({{}}, '__esModule', {{ value: true }}), mod);
var config_exports = {{}};
__export(config_exports, {{ default: () => config_default }});
module.exports = __toCommonJS(config_exports);
{REQUIRES}var config_default = createLightfast({AGENTS});"
    ));
}

#[test]
fn v04_an_annotation_is_no_second_export() {
    accepted(&format!(
        "{REQUIRES}var hash = 1;\nmodule.exports = createLightfast({AGENTS});\n0 && (module.exports = {{ hash }});"
    ));
}

#[test]
fn v05_calls_through_a_sequence() {
    accepted(
        "var import_client = require('lightfast/client');
var import_agent = require('lightfast/agent');
var import_gateway = require('@ai-sdk/gateway');
module.exports = (0, import_client.createLightfast)({ agents: { a: (0, import_agent.createAgent)({ name: 'a', system: 's', model: (0, import_gateway.gateway)('m') }) } });",
    );
}

#[test]
fn v06_interop_of_esbuild_babel_and_typescript() {
    let with = |helper: &str, import: &str, used: &str| {
        let source = format!(
            "\"use strict\";\n{helper}\nconst zod_1 = {import};\n{REQUIRES}\
             module.exports = createLightfast({{ agents: {{ a: createAgent({{ name: 'a', system: 's', model: 'm', tools: {{ t: tool({{ inputSchema: {used}.object({{ x: {used}.number() }}), execute: () => 1 }}) }} }}) }} }});"
        );
        let extraction = accepted(&source);
        let schema = &extraction.bundle.agents[0].tools[0].input_schema;
        assert_eq!(
            serde_json::to_value(schema).unwrap()["properties"]["x"]["type"],
            "number",
            "{source}"
        );
    };
    let interop =
        "function _interopRequireDefault(e) { return e && e.__esModule ? e : { default: e }; }";
    with(
        interop,
        "_interopRequireDefault(require('zod'))",
        "zod_1.default",
    );
    let default = "var __importDefault = (this && this.__importDefault) || function (mod) {
    return (mod && mod.__esModule) ? mod : { \"default\": mod };
};";
    with(default, "__importDefault(require('zod'))", "zod_1.default");
    // What TypeScript 5.9 writes for `import * as zod_1`.
    let star = "var __createBinding = (this && this.__createBinding) || (Object.create ? (function(o, m, k, k2) {
    if (k2 === undefined) k2 = k;
    var desc = Object.getOwnPropertyDescriptor(m, k);
    if (!desc || (\"get\" in desc ? !m.__esModule : desc.writable || desc.configurable)) {
      desc = { enumerable: true, get: function() { return m[k]; } };
    }
    Object.defineProperty(o, k2, desc);
}) : (function(o, m, k, k2) {
    if (k2 === undefined) k2 = k;
    o[k2] = m[k];
}));
var __setModuleDefault = (this && this.__setModuleDefault) || (Object.create ? (function(o, v) {
    Object.defineProperty(o, \"default\", { enumerable: true, value: v });
}) : function(o, v) {
    o[\"default\"] = v;
});
var __importStar = (this && this.__importStar) || (function () {
    var ownKeys = function(o) {
        ownKeys = Object.getOwnPropertyNames || function (o) {
            var ar = [];
            for (var k in o) if (Object.prototype.hasOwnProperty.call(o, k)) ar[ar.length] = k;
            return ar;
        };
        return ownKeys(o);
    };
    return function (mod) {
        if (mod && mod.__esModule) return mod;
        var result = {};
        if (mod != null) for (var k = ownKeys(mod), i = 0; i < k.length; i++) if (k[i] !== \"default\") __createBinding(result, mod, k[i]);
        __setModuleDefault(result, mod);
        return result;
    };
})();";
    with(star, "__importStar(require('zod'))", "zod_1");
    let tslib = "const tslib_1 = require('tslib');";
    with(
        tslib,
        "tslib_1.__importDefault(require('zod'))",
        "zod_1.default",
    );
    with(tslib, "tslib_1.__importStar(require('zod'))", "zod_1");
    with("", "require('zod')", "zod_1.default");
}

#[test]
fn v07_exports_of_modules() {
    let config = format!("createLightfast({AGENTS})");
    accepted(&format!("{IMPORTS}export default {config};"));
    accepted(&format!(
        "{IMPORTS}const b = {config};\nexport {{ b as default }};"
    ));
    accepted(&format!("{IMPORTS}export const lightfast = {config};"));
    let assigned = format!("{IMPORTS}const c = {config};\nexport = c;");
    let extraction = extract(&assigned, Language::TypeScript).unwrap();
    assert_eq!(complaints(&extraction), "");
    assert_eq!(extraction.bundle.agents.len(), 1);
}

#[test]
fn v08_names_that_a_minifier_gives() {
    accepted(
        "import{createAgent as s}from\"lightfast/agent\";import{createLightfast as t}from\"lightfast/client\";import{gateway as e}from\"@ai-sdk/gateway\";var a=s({name:\"a\",system:\"s\",model:e(\"m\")}),r=t({agents:{a}});export{r as default};",
    );
}

#[test]
fn v09_parts_by_name() {
    let source = format!(
        "{IMPORTS}const description = 'd';
const inputSchema = z.object({{ x: z.string() }});
const t = createTool({{ description, inputSchema, execute: async (i) => i }});
const tools = {{ t }};
var a = createAgent({{ name: 'a', system: 's', model: gateway('m'), tools }});
const agents = {{ a }};
export default createLightfast({{ agents }});"
    );
    let extraction = accepted(&source);
    let tool = &extraction.bundle.agents[0].tools[0];
    assert_eq!(tool.description.as_deref(), Some("d"));
}

#[test]
fn v10_use_before_definition() {
    // A function is there from the start, a variable is not.
    assert_eq!(
        system(
            "const text = late();\nfunction late() { return 's'; }",
            "text"
        )
        .unwrap(),
        "s"
    );
    refused(
        &with_agent(
            "const text = late;\nvar late = 's';",
            "name: 'a', model: 'm', system: text",
        ),
        "E_DYNAMIC_VALUE",
        "agents.a.system",
        "late;",
    );
}

#[test]
fn v12_keys_as_they_may_be_written() {
    let t = "tool({ inputSchema: z.object({}), execute: () => 1 })";
    let extraction = tools(
        &format!("const hash = {t};"),
        &format!("{{ hash, 'my-tool': {t}, 7: {t}, größe: {t}, '\\u0061b': {t} }}"),
    );
    assert_eq!(complaints(&extraction), "");
    let tools = extraction.bundle.agents[0].tools.iter();
    let mut names: Vec<&str> = tools.map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["7", "ab", "größe", "hash", "my-tool"]);
}

#[test]
fn v13_computed_keys() {
    let source = |key: &str| {
        format!(
            "{IMPORTS}const NAME = 'a';\nconst Names = {{ A: 'a' }};
export default createLightfast({{ agents: {{ [{key}]: createAgent({{ name: 'a', system: 's', model: 'm' }}) }} }});"
        )
    };
    for key in ["NAME", "Names.A", "'' + 'a'", "`a`"] {
        accepted(&source(key));
    }
    refused(&source("f()"), "E_COMPUTED_KEY", "agents", "f()");
}

#[test]
fn v14_spreads() {
    let source = |fields: &str| {
        format!(
            "{IMPORTS}const base = {{ name: 'b', system: 's', model: 'm' }};
export default createLightfast({{ agents: {{ a: createAgent({fields}) }} }});"
        )
    };
    let name = |fields| accepted(&source(fields)).bundle.agents[0].name.clone();
    assert_eq!(name("{ ...base, name: 'x' }"), "x");
    assert_eq!(name("{ name: 'x', ...base }"), "b");
    assert_eq!(name("{ ...base, ...(false), ...(null) }"), "b");
    refused(
        &source("{ ...base, ...(process.env.X && { name: 'x' }) }"),
        "E_SPREAD_DYNAMIC",
        "agents.a",
        "...(process.env.X",
    );
}

#[test]
fn v15_templates() {
    assert_eq!(system("", "`plain`").unwrap(), "plain");
    assert_eq!(system("const N = 2;", "`n ${N}`").unwrap(), "n 2");
    assert_eq!(
        system("", "`first \\`tick\\`\n  second \\${no}`").unwrap(),
        "first `tick`\n  second ${no}"
    );
    assert_eq!(
        system(
            "import dedent from 'dedent';",
            "dedent`\n    a\n      ${1}\n  `"
        )
        .unwrap(),
        "a\n  1"
    );
}

#[test]
fn v16_texts_put_together() {
    assert_eq!(system("", "'a' + \"b\" + 1").unwrap(), "ab1");
    assert_eq!(system("", "['a', 'b'].join(\"\\n\")").unwrap(), "a\nb");
    assert_eq!(system("", "String.raw`a\\n`").unwrap(), "a\\n");
    assert_eq!(system("", "[].concat(['a'], 'b').join()").unwrap(), "a,b");
}

#[test]
fn v17_enums() {
    for (declared, used, expected) in [
        (
            "var Mode = ((Mode2) => { Mode2[\"A\"] = \"a\"; return Mode2; })(Mode || {});",
            "Mode.A",
            "a",
        ),
        (
            "var Mode=(e=>(e.A=\"a\",e.B=\"b\",e))(Mode||{});",
            "Mode.B",
            "b",
        ),
        (
            "var Mode; (function (Mode) { Mode[Mode[\"Low\"] = 0] = \"Low\"; Mode[Mode[\"High\"] = 10] = \"High\"; })(Mode || (Mode = {}));",
            "Mode[10] + Mode.High",
            "High10",
        ),
    ] {
        assert_eq!(system(declared, used).unwrap(), expected, "{declared}");
    }
    let numbers =
        "var L = ((L2) => { L2[L2.A = 1] = 'A'; L2[L2.B = 2] = 'B'; return L2; })(L || {});";
    assert_eq!(
        schema(numbers, "z.object({ l: z.nativeEnum(L) })")["properties"]["l"]["enum"],
        serde_json::json!([1, 2])
    );
}

#[test]
fn v19_comments_and_other_marks() {
    accepted(&format!(
        "#!/usr/bin/env node\n{REQUIRES}module.exports = /* c */ /* @__PURE__ */ createLightfast(/* d */ {AGENTS}) // end\r\n;<!-- html\n--> html\n"
    ));
    accepted(
        &format!("\u{feff}{REQUIRES}module.exports = createLightfast({AGENTS});")
            .replace('\n', "\r\n"),
    );
    let extraction = tools(
        "",
        "{ /* old: tool({ inputSchema: z.object({}) }), */ t: tool({ inputSchema: z.object({}), execute: () => 1 }) // u: tool({})\n }",
    );
    assert_eq!(complaints(&extraction), "");
    assert_eq!(extraction.bundle.agents[0].tools.len(), 1);
    assert_eq!(system("", "'a\u{2028}b'").unwrap(), "a\u{2028}b");
}

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
fn v21_conditions_of_the_environment() {
    for model in [
        "process.env.X ? gateway('a') : gateway('b')",
        "process.env.M ?? \"gpt-4\"",
        "process.env.M || 'x'",
    ] {
        refused(
            &with_agent("", &format!("name: 'a', system: 's', model: {model}")),
            "E_CONDITIONAL",
            "agents.a.model",
            model,
        );
    }
}

#[test]
fn v22_conditions_that_are_constant() {
    assert_eq!(system("", "!0 ? 's' : process.env.X").unwrap(), "s");
    assert_eq!(system("", "false || 's'").unwrap(), "s");
    assert_eq!(
        system("let text = 's';\nif (!1) { console.log(text.x); }", "text").unwrap(),
        "s"
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
fn v24_getters_setters_and_prototypes() {
    for (fields, text) in [
        (
            "name: 'a', model: 'm', get system() { return 's'; }",
            "system",
        ),
        (
            "name: 'a', model: 'm', system: 's', set other(x) {}",
            "other",
        ),
        (
            "name: 'a', model: 'm', system: 's', __proto__: base",
            "__proto__",
        ),
    ] {
        let source = with_agent("const base = {};", fields);
        let extraction = read(&source);
        let found = extraction
            .errors()
            .find(|problem| problem.code.as_str() == "E_GETTER");
        let problem = found.unwrap_or_else(|| panic!("{fields}: {}", complaints(&extraction)));
        let line = source.lines().nth(problem.line as usize - 1).unwrap();
        assert!(
            line[problem.column as usize - 1..].starts_with(text),
            "{line}"
        );
    }
}

#[test]
fn v25_changes_after_the_definition() {
    let t = "tool({ inputSchema: z.object({}), execute: () => 1 })";
    let source = |change: &str| {
        format!(
            "{IMPORTS}const more = {{ u: {t} }};
const tools = {{ t: {t} }};
const a = createAgent({{ name: 'a', system: 's', model: 'm', tools }});
const alias = tools;
const agents = {{ a }};
export default createLightfast({{ agents }});
{change}"
        )
    };
    accepted(&source(""));
    for (change, path) in [
        ("a.system += 'x';", "agents.a"),
        ("tools.extra = more.u;", "agents.a.tools"),
        ("Object.assign(tools, more);", "agents.a.tools"),
        ("alias.extra = more.u;", "agents.a.tools"),
        ("delete alias.t;", "agents.a.tools"),
        ("(({ t: 1 })), ([tools.t] = [1]);", "agents.a.tools"),
        ("agents.b = a;", "agents"),
    ] {
        let extraction = read(&source(change));
        let found = extraction.errors().any(|problem| {
            problem.code.as_str() == "E_MUTATED" && problem.path == path && problem.line > 10
        });
        assert!(found, "{change}: {}", complaints(&extraction));
    }
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
fn v28_wrappers_of_bundlers() {
    let config = format!("createLightfast({AGENTS})");
    // An IIFE around all, the one of rollup, UMD.
    accepted(&format!(
        "(() => {{ {REQUIRES} module.exports = {config}; }})();"
    ));
    accepted(&format!(
        "var x=function(e){{'use strict';{REQUIRES}const t={config};return e.default=t,Object.defineProperty(e,'__esModule',{{value:!0}}),e}}({{}});"
    ));
    accepted(&format!(
        "var x = (function (exports) {{ 'use strict'; {REQUIRES} const t = {config}; exports.default = t; return exports; }})({{}});"
    ));
    accepted(&format!(
        "(function (global, factory) {{ typeof exports === 'object' && typeof module !== 'undefined' ? factory(exports, require('lightfast/client'), require('lightfast/agent'), require('@ai-sdk/gateway')) : typeof define === 'function' && define.amd ? define(['exports', 'lightfast/client'], factory) : (global = global || self, factory(global.b = {{}}, global.c, global.d, global.e)); }})(this, (function (exports, client, agent, g) {{ 'use strict'; const createLightfast = client.createLightfast, createAgent = agent.createAgent, gateway = g.gateway; exports.default = {config}; }}));"
    ));
    let packed = format!(
        "/******/ (() => {{ var __webpack_modules__ = ({{ 1: ((module, __unused, __webpack_require__) => {{ const l = __webpack_require__(2); module.exports = l.createLightfast({AGENTS}); }}) }}); var __webpack_module_cache__ = {{}}; function __webpack_require__(id) {{ var module = {{ exports: {{}} }}; __webpack_modules__[id](module, module.exports, __webpack_require__); return module.exports; }} module.exports = __webpack_require__(1); }})();"
    );
    let extraction = read(&packed);
    let said = complaints(&extraction);
    assert!(
        extraction
            .errors()
            .any(|problem| problem.code.as_str() == "E_NO_CONFIG"
                && problem.hint.contains("esbuild")),
        "{said}"
    );
}

#[test]
fn v29_the_class() {
    accepted(&format!(
        "import {{ Lightfast }} from 'lightfast';\n{IMPORTS}export default new Lightfast({AGENTS});"
    ));
}

#[test]
fn v30_the_older_wrapper() {
    accepted(&format!(
        "const compiledConfig = (() => {{ {REQUIRES} const c = createLightfast({AGENTS}); return {{ default: c }}; }})();
export default {{ id: \"a\", hash: \"01234567\", metadata: {{ \"id\": \"a\", \"tools\": [] }}, config: compiledConfig.default || compiledConfig, async execute(params, context) {{ const runtime = globalThis.__lightfastRuntime; return runtime.execute(this.config, params, context); }} }};"
    ));
}

#[test]
fn v31_stand_ins() {
    let extraction = accepted(&format!(
        "const createLightfast = (c) => c;\nfunction createAgent(o) {{ return {{ ...o, stub: true }}; }}\nconst gateway = (name) => ({{ name }});\nmodule.exports = createLightfast({AGENTS});"
    ));
    for name in ["createLightfast", "createAgent", "gateway"] {
        warned(&extraction, &format!("`{name}` is declared in the bundle"));
    }
}

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
    // A name alone is no zod.
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
    // It is no part of the source, and nobody looks at it while there is nothing to place.
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
    // Types in a file that says it is JavaScript: the hint names the way out.
    let extraction = read(typed);
    assert!(
        complaints(&extraction).contains("`.ts`"),
        "{}",
        complaints(&extraction)
    );
}

#[test]
fn v49_chains_fields_and_patterns() {
    assert_eq!(
        system("const cfg = { system: 's' };", "cfg?.system").unwrap(),
        "s"
    );
    refused(
        &with_agent(
            "class Config { system = 's'; }\nconst cfg = new Config();",
            "name: 'a', model: 'm', system: cfg.system",
        ),
        "E_DYNAMIC_VALUE",
        "agents.a.system",
        "new Config()",
    );
    assert_eq!(
        system("const base = {};\nconst { system = 's' } = base;", "system").unwrap(),
        "s"
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

/// A value inside of `with` may be a property of anything.
#[test]
fn names_inside_of_with_are_not_known() {
    refused(
        &format!(
            "{REQUIRES}const text = 's';\nwith (globalThis.options) {{\n  module.exports = createLightfast({{ agents: {{ a: createAgent({{ name: 'a', model: 'm', system: text }}) }} }});\n}}"
        ),
        "E_DYNAMIC_VALUE",
        "",
        "createLightfast({",
    );
}

/// Code that is a text is never looked into: what it makes is not known, and that it may change values is told.
#[test]
fn code_in_texts_is_not_known() {
    refused(
        &with_agent(
            "",
            "name: 'a', model: 'm', system: new Function('return 1')()",
        ),
        "E_DYNAMIC_VALUE",
        "agents.a.system",
        "new Function",
    );
    refused(
        &with_agent("", "name: 'a', model: 'm', system: eval('1 + 1')"),
        "E_DYNAMIC_VALUE",
        "agents.a.system",
        "eval(",
    );
    let changed = accepted(&with_agent(
        "let text = 's';\neval(\"text = 'other'\");",
        "name: 'a', model: 'm', system: text",
    ));
    warned(&changed, "`eval`");
}
