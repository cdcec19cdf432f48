//! Places of the configuration, and wrappers of bundlers.

use super::{AGENTS, REQUIRES, accepted, warned};
use crate::{IMPORTS, complaints, read};
use glovebox_bundle::{Language, extract};

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
    // Code that TypeScript 5.9 generates for `import * as zod_1`.
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
fn v28_wrappers_of_bundlers() {
    let config = format!("createLightfast({AGENTS})");
    // An IIFE around everything, rollup's IIFE, and UMD.
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
