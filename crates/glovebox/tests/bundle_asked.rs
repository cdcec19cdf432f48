//! `--extract=sandbox`: bundles that are run to obtain their declarations, and their attempts to do
//! anything else meanwhile.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use testkit::{Home, filters};

fn file(home: &Home, name: &str, text: &str) -> String {
    let path = home.root().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Agents from a loop, a name from the environment, zod under another name: nothing that can be
/// read from the syntax.
const ASKED: &str = r#"import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { createTool } from "lightfast/tool";
import { z } from "zod";
const agents = {};
let made = 0;
for (const name of ["one", "two"]) {
  const shape = {};
  for (const field of ["a", "b"].slice(0, ++made)) shape[field] = z.number().min(made);
  agents[name] = createAgent({ name, system: `I am ${name}, ${process.env.MOOD ?? "calm"}`, model: "gpt",
    tools: { add: createTool({ description: `Adds for ${name}`, inputSchema: z.object(shape), execute: async (i) => [name, i, made] }) } });
}
export default createLightfast({ agents });
"#;

#[test]
fn a_bundle_that_cannot_be_read_is_run_to_be_asked_where_somebody_says_so() {
    let home = Home::new();
    let path = file(&home, "asked.js", ASKED);
    // A bundle is never run without the flag; the error mentions it.
    let ran = home
        .line(&format!("bundle check {path}"))
        .run()
        .expect_code(2);
    insta::assert_snapshot!(filters(&ran.out(), home.root()), @r#"
    E_MUTATED agents ([ROOT]/asked.js:10:3): `agents` is changed after its definition
        |
     10 |   agents[name] = createAgent({ name, system: `I am ${name}, ${process.env.MOOD ?? "calm"}`, model: "gpt",
        |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       also [ROOT]/asked.js:5:7: declared here
       hint: Write the whole object where it is declared, or spread it into a new one.

    [ROOT]/asked.js: 1 error
    "#);
    insta::assert_snapshot!(ran.shown_err(home.root()), @"note: a bundle that cannot be read without running it can be run in a sandbox and asked what it declares: --extract=sandbox");
    let out = home
        .line(&format!("bundle check {path} --extract=sandbox"))
        .run()
        .expect_code(0)
        .out();
    insta::assert_snapshot!(filters(&out, home.root()), @"
    [ROOT]/asked.js: 2 agents, 2 tools, nothing wrong
      it was run to be asked what it declares, and each tool runs all of it
    AGENT  MODEL  TOOLS
    one    gpt    add
    two    gpt    add
    ");
    let out = home
        .line(&format!("bundle check {path} --extract=sandbox --json"))
        .run()
        .expect_code(0)
        .out();
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["data"]["extracted_by"], "execution");
    let out = home
        .line(&format!(
            "bundle show {path} --agent two --extract=sandbox --json"
        ))
        .run()
        .expect_code(0)
        .out();
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["data"]["agent"]["system"], "I am two, calm");
    assert_eq!(answer["data"]["extracted_by"], "execution");
    let schema = &answer["data"]["agent"]["tools"][0]["input_schema"];
    assert_eq!(schema["properties"]["b"]["minimum"], 2);
    // Arguments are validated against the declared schema, and a tool runs the whole bundle.
    let call = |json: &str, code: i32| {
        let line = [
            "bundle",
            "call",
            &path,
            "add",
            json,
            "--agent",
            "two",
            "--extract=sandbox",
        ];
        home.glovebox(line).run().expect_code(code)
    };
    let out = call(r#"{"a":3,"b":4}"#, 0).out();
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value, serde_json::json!(["two", {"a": 3, "b": 4}, 2]));
    insta::assert_snapshot!(call(r#"{"a":3}"#, 2).shown_err(home.root()), @r#"invalid_arguments: the arguments do not fit the schema of the tool: /: "b" is a required property"#);
    // This way of extraction has limits of its own; it supports neither source maps nor TypeScript.
    let typed = file(&home, "asked.ts", ASKED);
    let out = home
        .line(&format!("bundle check {typed} --extract=sandbox"))
        .run()
        .expect_code(2)
        .out();
    insta::assert_snapshot!(filters(&out, home.root()), @"
    E_RUN ([ROOT]/asked.ts (as it declares itself when it runs):1:1): TypeScript is not run to be asked what it declares
       hint: Give the JavaScript that a bundler made of it.

    [ROOT]/asked.ts: 1 error
    ");
}

/// Tools without an agent; one has a schema in the form of zod 4, included in the bundle.
const ALONE: &str = r#"import { tool } from "ai";
const type = (def) => ({ _zod: { def } });
const choice = type({ type: "enum", entries: { a: "a", b: "b" }, checks: [type({ check: "custom" })] });
const made = {};
for (const name of ["first", "second"]) {
  made[name] = tool({ description: name, inputSchema: type({ type: "object", shape: { choice } }), execute: async (i) => [name, i.choice] });
}
export const first = made.first, second = made.second;
"#;

#[test]
fn a_tool_without_an_agent_is_asked_for_and_called_too() {
    let home = Home::new();
    let path = file(&home, "alone.js", ALONE);
    let out = home
        .line(&format!("bundle check {path} --extract=sandbox"))
        .run()
        .expect_code(0)
        .out();
    // The check of the enum is code.
    insta::assert_snapshot!(filters(&out, home.root()), @r#"
    W_SCHEMA_LOSSY tools.first.inputSchema ([ROOT]/alone.js (as it declares itself when it runs):3:12): `refine` is code and not applied; more is accepted than in the bundle
       |
     3 | const v1 = p1.enum({ a: "a", b: "b" }).refine(() => true);
       |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    W_SCHEMA_LOSSY tools.second.inputSchema ([ROOT]/alone.js (as it declares itself when it runs):3:12): `refine` is code and not applied; more is accepted than in the bundle
       |
     3 | const v1 = p1.enum({ a: "a", b: "b" }).refine(() => true);
       |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    [ROOT]/alone.js: 2 tools, 2 warnings
      it was run to be asked what it declares, and each tool runs all of it
      first, second
    "#);
    let call = |json: &str, code: i32| {
        let line = ["bundle", "call", &path, "second", json, "--extract=sandbox"];
        home.glovebox(line).run().expect_code(code)
    };
    let out = call(r#"{"choice":"b"}"#, 0).out();
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value, serde_json::json!(["second", "b"]));
    let ran = call(r#"{"choice":"c"}"#, 2);
    insta::assert_snapshot!(ran.shown_err(home.root()), @r#"invalid_arguments: the arguments do not fit the schema of the tool: /choice: "c" is not one of "a" or "b""#);
}

/// Each attempt of a bundle while it is extracted ends in an error of its own, and has no other
/// effect.
#[test]
fn a_bundle_that_is_run_to_be_asked_can_do_nothing_but_answer() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tail = "import { createLightfast, createAgent } from 'lightfast';\nexport default createLightfast({ agents: { a: createAgent({ name: 'a', system: String(found), model: 'm' }) } });\n";
    let check = |name: &str, text: &str, code: i32| {
        let path = file(&home, name, text);
        let ran = home
            .glovebox(["bundle", "check", &path, "--extract=sandbox", "--json"])
            .run();
        ran.expect_code(code).out()
    };
    for (name, head, words) in [
        (
            "loop.js",
            "for (;;) {}\nconst found = 1;",
            "two seconds of a processor",
        ),
        (
            "throw.js",
            "throw new TypeError('\\u001b[31mred');\nconst found = 1;",
            "TypeError",
        ),
        (
            "memory.js",
            "const found = []; for (;;) found.push(new Array(1e6).fill(0));",
            "64 MiB",
        ),
        (
            "fetch.js",
            &format!("const found = await fetch('http://127.0.0.1:{port}/');"),
            "E_NETWORK",
        ),
        (
            "files.js",
            "import fs from 'node:fs'; const found = fs.readFileSync('/etc/passwd', 'utf8');",
            "is of a package that is not in the bundle",
        ),
        (
            "import.js",
            "const found = (await import('node:child_process')).execSync('id');",
            "is of a package that is not in the bundle",
        ),
        (
            "wait.js",
            "const found = await new Promise(() => {});",
            "never settled",
        ),
    ] {
        let out = check(name, &format!("{head}\n{tail}"), 2);
        assert!(
            out.contains("E_RUN") && out.contains(words),
            "{name}: {out}"
        );
        assert!(
            !out.contains('\u{1b}') && !out.contains("root:"),
            "{name}: {out}"
        );
    }
    // Its declarations are validated like those of any bundle, even if it has changed built-in
    // objects.
    for (name, text, code) in [
        (
            "name.js",
            "import { createLightfast, createAgent } from 'lightfast'; export default createLightfast({ agents: { ['x'.repeat(300)]: createAgent({ name: 'a', system: 's', model: 'm' }) } });",
            "E_NAME_INVALID",
        ),
        (
            "type.js",
            "import { createLightfast, createAgent } from 'lightfast'; export default createLightfast({ agents: { a: createAgent({ name: 'a', system: Symbol('x'), model: 'm' }) } });",
            "E_DYNAMIC_VALUE",
        ),
        (
            "lie.js",
            "import { createLightfast, createAgent } from 'lightfast'; Array.prototype.join = () => '}); process.exit(0); //'; export default createLightfast({ agents: { a: createAgent({ name: 'a', system: 's', model: 'm' }) } });",
            "E_PARSE",
        ),
        (
            "many.js",
            "import { createLightfast, createAgent } from 'lightfast'; const agents = {}; for (let i = 0; i < 100000; i++) agents['a' + i] = createAgent({ name: 'a', system: 's', model: 'm' }); export default createLightfast({ agents });",
            "E_RUN",
        ),
    ] {
        let out = check(name, text, 2);
        assert!(out.contains(code), "{name}: {out}");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "somebody connected");
    // A bundle declares the same each time.
    let text = format!("const found = [Date.now(), Math.random(), new Date().getTime()];\n{tail}");
    let path = file(&home, "time.js", &text);
    let show = || {
        home.line(&format!("bundle show {path} --extract=sandbox"))
            .run()
            .expect_code(0)
            .out()
    };
    let first = show();
    assert!(first.contains("1735689600000"), "{first}");
    assert_eq!(first, show());
}
