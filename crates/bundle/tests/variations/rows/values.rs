//! Values: names, keys, strings, conditions, mutations.

use super::{AGENTS, REQUIRES, accepted, refused, schema, warned};
use crate::{IMPORTS, complaints, read, system, tools, with_agent};

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
    // A function is defined from the start of its scope, a variable is not.
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

/// A name inside `with` may be a property of the object.
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

/// Code in a string is not evaluated: its result is unknown, and a warning says that it may change
/// values.
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
