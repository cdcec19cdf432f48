//! Tests of `bundle check`, `show`, `call`, `run` and `dev`: declarations, problems, and the
//! confinement of the extraction process.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Home, ModelServer, Step, filters};

const GOOD: &str = "const { createLightfast, createAgent } = require('lightfast');
const { createTool } = require('lightfast/tool');
const { gateway } = require('@ai-sdk/gateway');
const { z } = require('zod');
const FACTOR = 2;
const double = createTool({
  description: 'Doubles', inputSchema: z.object({ x: z.number() }), execute: async ({ x }) => x * FACTOR,
});
throw new Error('the top level runs');
module.exports = createLightfast({ agents: { assistant: createAgent({
  name: 'assistant', system: 'You are helpful', model: gateway('gpt-4'), tools: { double },
}) } });
";

const BAD: &str = "import { createLightfast } from 'lightfast/client';
import { createAgent } from 'lightfast/agent';
export default createLightfast({ agents: { x: createAgent({
  name: 'x',
  system: Date.now() + '',
  model: process.env.PROD ? 'a' : 'b',
}) } });
";

fn file(home: &Home, name: &str, text: &str) -> String {
    let path = home.root().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_good_bundle_is_said_to_be_good_and_shown() {
    let home = Home::new();
    let path = file(&home, "good.js", GOOD);
    let out = home
        .line(&format!("bundle check {path}"))
        .run()
        .expect_code(0)
        .out();
    insta::assert_snapshot!(filters(&out, home.root()), @"
    [ROOT]/good.js: 1 agent, 1 tool, nothing wrong
    AGENT      MODEL            TOOLS
    assistant  gpt-4 (gateway)  double
    ");
    let out = home
        .line(&format!("bundle show {path} --tool double"))
        .run()
        .expect_code(0)
        .out();
    for words in ["Doubles", "\"type\": \"number\"", "const FACTOR = 2;"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    assert!(!out.contains("throw"), "{out}");
    let ran = home
        .line(&format!("bundle show {path} --tool triple"))
        .run()
        .expect_code(6);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: the bundle has no tool `triple`
    hint: there are: double
    ");
}

#[test]
fn all_errors_come_at_once_with_exit_code_2() {
    let home = Home::new();
    let path = file(&home, "bad.js", BAD);
    let out = home
        .line(&format!("bundle check {path}"))
        .run()
        .expect_code(2)
        .out();
    insta::assert_snapshot!(filters(&out, home.root()), @"
    E_DYNAMIC_VALUE agents.x.system ([ROOT]/bad.js:5:11): `Date.now()` is only known when the bundle runs
       |
     5 |   system: Date.now() + '',
       |           ^^^^^^^^^^
       hint: Write the value itself: a text, a number, a list, an object, or a constant that is one.

    E_CONDITIONAL agents.x.model ([ROOT]/bad.js:6:10): the value depends on `process.env.PROD`, which is only known when the bundle runs
       |
     6 |   model: process.env.PROD ? 'a' : 'b',
       |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       hint: Write one value, or declare two agents or tools.

    [ROOT]/bad.js: 2 errors
    ");
    let out = home
        .line(&format!("bundle check {path} --json"))
        .run()
        .expect_code(2)
        .out();
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["success"], false);
    let errors = answer["data"]["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2);
    assert_eq!(errors[1]["code"], "E_CONDITIONAL");
    assert_eq!(
        (&errors[1]["line"], &errors[1]["column"]),
        (&6.into(), &10.into())
    );
}

/// A map of one segment: line 1, column 1 of the bundle is line 2, column 3 of `src/agents.ts`.
const MAP: &str = r#"{"version":3,"sources":["src/agents.ts"],"sourcesContent":["// made\n  nothing at all\n"],"names":[],"mappings":"AACE"}"#;

#[test]
fn errors_are_placed_by_a_source_map_that_is_given_or_lies_beside() {
    let home = Home::new();
    let path = file(
        &home,
        "dist.js",
        "export default 7;\n//# sourceMappingURL=dist.js.map\n",
    );
    let map = file(&home, "dist.js.map", MAP);
    let check = |flags: &str| home.line(&format!("bundle check {path} {flags}")).run();
    // A file is never read only because a bundle names it.
    let shown = |flags: &str| filters(&check(flags).expect_code(2).out(), home.root());
    insta::assert_snapshot!(shown(""), @r#"
    E_NO_CONFIG ([ROOT]/dist.js:1:1): there is no exported `createLightfast({...})` of lightfast, and no exported `tool({...})` of ai
       |
     1 | export default 7;
       | ^
       hint: Write `export default createLightfast({agents: {...}})` or `module.exports = createLightfast({...})`, and keep lightfast, ai and zod out of minified bundles (`packages: "external"`).

    [ROOT]/dist.js: 1 error
    "#);
    let given = shown(&format!("--source-map {map}"));
    insta::assert_snapshot!(given, @r#"
    E_NO_CONFIG (src/agents.ts:2:3, in the bundle [ROOT]/dist.js:1:1): there is no exported `createLightfast({...})` of lightfast, and no exported `tool({...})` of ai
       |
     2 |   nothing at all
       |   ^^^^^^^
       hint: Write `export default createLightfast({agents: {...}})` or `module.exports = createLightfast({...})`, and keep lightfast, ai and zod out of minified bundles (`packages: "external"`).

    [ROOT]/dist.js: 1 error
    "#);
    assert_eq!(shown("--source-map auto"), given);
    let out = check("--source-map auto --json").expect_code(2).out();
    let answer: Value = serde_json::from_str(&out).unwrap();
    let error = &answer["data"]["errors"][0];
    assert_eq!((&error["line"], &error["column"]), (&1.into(), &1.into()));
    assert_eq!(error["original"]["file"], "src/agents.ts");
    assert_eq!(
        (&error["original"]["line"], &error["original"]["column"]),
        (&2.into(), &3.into())
    );
    // Only a regular file in the bundle's own directory is accepted, not a symbolic link.
    fs::create_dir(home.root().join("inner")).unwrap();
    std::os::unix::fs::symlink(&map, home.root().join("inner/link.map")).unwrap();
    let refused = |named: &str| {
        let text = format!("export default 7;\n//# sourceMappingURL={named}\n");
        let path = file(&home, "inner/dist.js", &text);
        let ran = home
            .line(&format!("bundle check {path} --source-map auto"))
            .run();
        assert!(!ran.out().contains("agents.ts"), "{named}: {ran}");
        ran.failure(home.root())
    };
    let named = [
        "../dist.js.map",
        "https://example.com/x.map",
        "inner",
        "missing.map",
    ];
    insta::assert_snapshot!(named.map(refused).join("\n"), @"
    error: the source map `../dist.js.map` is no file beside the bundle, so it is not read
    hint: name the file yourself: --source-map FILE
    error: the source map `https://example.com/x.map` is no file beside the bundle, so it is not read
    hint: name the file yourself: --source-map FILE
    error: cannot read the source map inner: No such file or directory
    hint: give the map that the bundler wrote, such as dist/agents.js.map
    error: cannot read the source map missing.map: No such file or directory
    hint: give the map that the bundler wrote, such as dist/agents.js.map
    ");
    // C libraries word the error for a symbolic link differently.
    let link = refused("link.map");
    assert!(link.contains("read the source map"), "{link}");
    let ran = home
        .line(&format!(
            "bundle check {} --source-map auto",
            file(&home, "no.js", "1")
        ))
        .run()
        .expect_code(2);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: the bundle names no file as its source map
    hint: leave out --source-map for a map inside of the bundle, or name the file: --source-map dist/agents.js.map
    ");
    // An invalid map is reported and otherwise ignored.
    let wrong = file(&home, "wrong.map", "{}");
    insta::assert_snapshot!(shown(&format!("--source-map {wrong}")), @r#"
    E_NO_CONFIG ([ROOT]/dist.js:1:1): there is no exported `createLightfast({...})` of lightfast, and no exported `tool({...})` of ai
       |
     1 | export default 7;
       | ^
       hint: Write `export default createLightfast({agents: {...}})` or `module.exports = createLightfast({...})`, and keep lightfast, ai and zod out of minified bundles (`packages: "external"`).

    W_SOURCE_MAP ([ROOT]/dist.js:1:1): the source map cannot be used, so places are those in the bundle: JSON parsing error: missing field `version` at line 1 column 2
       |
     1 | export default 7;
       | ^

    [ROOT]/dist.js: 1 error, 1 warning
    "#);
}

#[test]
fn a_manifest_stands_for_the_bundles_that_it_names() {
    let home = Home::new();
    fs::create_dir_all(home.root().join("bundles")).unwrap();
    let bundle = |name: &str, tool: &str| {
        format!(
            "import {{ createLightfast, createAgent }} from 'lightfast';\nimport {{ createTool }} from 'lightfast/tool';\n\
             import {{ z }} from 'zod';\nconst {tool} = createTool({{ description: 'd', inputSchema: z.object({{}}), execute: () => '{tool} of {name}' }});\n\
             export default createLightfast({{ agents: {{ {name}: createAgent({{ name: '{name}', system: 's', model: 'gpt', tools: {{ {tool} }} }}) }} }});\n"
        )
    };
    let texts = [
        ("one", bundle("one", "greet")),
        ("two", bundle("two", "part")),
    ];
    let entries: Vec<Value> = texts
        .iter()
        .map(|(name, text)| {
            let digest = Sha256::digest(text);
            let hash = format!("{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
            let place = format!("bundles/{name}.{hash}.js");
            file(&home, &place, text);
            serde_json::json!({"id": name, "hash": hash, "file": place, "size": text.len(), "tools": [], "models": []})
        })
        .collect();
    let write = |entries: &[Value]| {
        let whole = serde_json::json!({"version": "1.0.0", "compiledAt": "2025-11-01", "compilerVersion": "0.2.1", "bundles": entries});
        file(
            &home,
            "manifest.json",
            &serde_json::to_string_pretty(&whole).unwrap(),
        )
    };
    let path = write(&entries);
    let out = home
        .line(&format!("bundle check {path}"))
        .run()
        .expect_code(0)
        .out();
    insta::assert_snapshot!(filters(&out, home.root()), @"
    [ROOT]/manifest.json: 2 agents, 2 tools, nothing wrong
    AGENT  MODEL  TOOLS
    one    gpt    greet
    two    gpt    part
    ");
    let out = home
        .line(&format!("bundle show {path} --tool part"))
        .run()
        .expect_code(0)
        .out();
    assert!(out.contains("part of two"), "{out}");
    let out = home
        .line(&format!("bundle call {path} greet --agent one"))
        .run()
        .expect_code(0)
        .out();
    assert_eq!(out.trim(), "\"greet of one\"");
    let out = home
        .line(&format!("bundle check {path} --json"))
        .run()
        .expect_code(0)
        .out();
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["data"]["manifest"]["bundles"][1]["id"], "two");
    let ran = home
        .line(&format!("bundle run {path} hello --model openai/x"))
        .run()
        .expect_code(2);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: the manifest has several bundles
    hint: name one with --agent: one, two
    ");
    // A bundle with another content than the manifest says, and one outside its directory.
    let place = entries[1]["file"].as_str().unwrap();
    file(&home, place, &texts[1].1.replace("part of", "PART OF"));
    let ran = home
        .line(&format!("bundle check {path}"))
        .run()
        .expect_code(2);
    let checked = filters(&ran.out(), home.root());
    insta::assert_snapshot!(checked, @r#"
    E_MANIFEST bundles.1.hash ([ROOT]/manifest.json:16:15): the file is another one: its SHA-256 does not begin with 32030bda, and neither does that of the code inside of it
        |
     16 |       "hash": "32030bda",
        |               ^^^^^^^^^^
       hint: Compile the bundles again, with their manifest.

    [ROOT]/manifest.json: 1 error
    "#);
    let ran = home
        .line(&format!("bundle call {path} greet --agent one"))
        .run()
        .expect_code(2);
    assert_eq!(filters(&ran.out(), home.root()), checked);
    let ran = home
        .line(&format!(
            "bundle run {path} hello --agent two --model openai/x"
        ))
        .run()
        .expect_code(2);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: nothing of [ROOT]/manifest.json is run: the file is another one: its SHA-256 does not begin with 32030bda, and neither does that of the code inside of it
    hint: `glovebox bundle check [ROOT]/manifest.json` shows where
    ");
    let mut elsewhere = entries.clone();
    elsewhere[0]["file"] = "bundles/link.js".into();
    let target = home.root().join(entries[0]["file"].as_str().unwrap());
    std::os::unix::fs::symlink(target, home.root().join("bundles/link.js")).unwrap();
    let path = write(&elsewhere[..1]);
    let out = home
        .line(&format!("bundle check {path}"))
        .run()
        .expect_code(2)
        .out();
    assert!(
        out.contains("E_MANIFEST bundles.0.file") && out.contains("cannot be read"),
        "{out}"
    );
}

/// The process that extracts a bundle, inspected from outside while it waits for the first byte.
#[test]
fn who_reads_a_bundle_can_do_nothing_else() {
    let mut child = Command::new(testkit::binary())
        .arg("__extract")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let proc = Path::new("/proc").join(child.id().to_string());
    let status = || fs::read_to_string(proc.join("status")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !status().contains("Seccomp:\t2") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let told = status();
    let limits = fs::read_to_string(proc.join("limits")).unwrap();
    let open = fs::read_dir(proc.join("fd")).unwrap().count();
    // The end of its input ends it.
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(told.contains("Seccomp:\t2"), "{told}");
    assert!(told.contains("NoNewPrivs:\t1"), "{told}");
    assert_eq!(open, 3);
    for (name, soft) in [
        ("Max open files", "3"),
        ("Max file size", "0"),
        ("Max processes", "0"),
        ("Max core file size", "0"),
        ("Max cpu time", "10"),
        ("Max address space", "3221225472"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let found = line[name.len()..].split_whitespace().next();
        assert_eq!(found, Some(soft), "{line}");
    }
}

const CALLED: &str = r#"import { createTool } from "lightfast/tool";
import { createLightfast } from "lightfast/client";
import { createAgent } from "lightfast/agent";
import { gateway } from "@ai-sdk/gateway";
import { z } from "zod";
const double = createTool({ description: "Doubles", inputSchema: z.object({ x: z.number() }),
  execute: async ({ x }) => { console.log("got", x); return { twice: x * 2 }; } });
const loop = createTool({ description: "Loops", inputSchema: z.object({}), execute: () => { for (;;) {} } });
const fails = createTool({ description: "Throws", inputSchema: z.object({}),
  execute: () => { throw new TypeError("\u001b[31mred"); } });
throw new Error("the top level runs");
export default createLightfast({ agents: { a: createAgent({
  name: "a", system: "s", model: gateway("gpt-4"), tools: { double, loop, fails } }) } });
"#;

/// Allocating and freeing much memory uses no system call that the filter refuses: texts with
/// escapes are copied.
#[test]
fn a_bundle_with_many_texts_is_read_to_its_end() {
    let home = Home::new();
    for count in [500, 5000, 30_000] {
        let texts: Vec<String> = (0..count)
            .map(|number| format!("var text{number} = \"\\u00e9{number}\";\n"))
            .collect();
        let texts = texts.concat();
        let path = file(&home, "texts.js", &format!("{texts}{GOOD}"));
        let out = home
            .line(&format!("bundle check {path}"))
            .run()
            .expect_code(0)
            .out();
        assert!(out.contains("nothing wrong"), "{count}: {out}");
    }
}

/// Calls as a user types them, with their output and exit codes.
#[test]
fn one_tool_is_called_and_each_ending_has_its_code() {
    let home = Home::new();
    let path = file(&home, "tools.js", CALLED);
    let call = |rest: &[&str], code: i32| {
        let ran = home
            .glovebox(["bundle", "call", &path].iter().chain(rest))
            .run()
            .expect_code(code);
        format!("{}---\n{}", ran.out(), ran.err())
    };
    insta::assert_snapshot!(call(&["double", r#"{"x":21}"#], 0), @r#"
    {
      "twice": 42
    }
    ---
    log: got 21
    "#);
    insta::assert_snapshot!(call(&["double", r#"{"x":"a"}"#], 2), @r#"
    ---
    invalid_arguments: the arguments do not fit the schema of the tool: /x: "a" is not of type "number"
    "#);
    insta::assert_snapshot!(call(&["loop", "--timeout", "300ms"], 124), @r"
    ---
    timeout: the tool took longer than 300 ms
    ");
    insta::assert_snapshot!(call(&["nothing"], 6), @r"
    ---
    error: the bundle has no tool `nothing`
    hint: there are: double, loop, fails
    ");
    insta::assert_snapshot!(call(&["loop", "--timeout", "none"], 2), @r"
    ---
    error: a call takes at most 30 s
    hint: give --timeout a time up to 30s
    ");
    // An error that a tool throws cannot control the terminal.
    let thrown = call(&["fails"], 1);
    assert!(
        thrown.contains(r"tool_error: TypeError: \x1b[31mred"),
        "{thrown}"
    );
    let answer = call(&["double", "-", "--json"], 2);
    assert!(answer.contains("arguments are not JSON"), "{answer}");
    let json = home
        .glovebox(["bundle", "call", &path, "double", "-", "--json"])
        .input(r#"{"x":1}"#)
        .run()
        .expect_code(0)
        .out();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["data"]["result"], serde_json::json!({ "twice": 2 }));
    assert_eq!(json["data"]["log"][0]["text"], "got 1");
}

#[test]
fn a_tool_that_needs_node_runs_in_it() {
    let home = Home::new();
    let tool = "createTool({ description: 'd', inputSchema: z.object({ x: z.number() }), execute: async ({ x }) => ({ words: new Intl.NumberFormat('de-DE').format(x) }) })";
    let text = GOOD.replace(
        "tools: { double }",
        &format!("tools: {{ double, words: {tool} }}"),
    );
    let path = file(&home, "intl.js", &text);
    let call = |args: &str| {
        home.line(&format!(
            "bundle call {path} words {{\"x\":1234.5}} --json {args}"
        ))
        .run()
    };
    let told: Value = serde_json::from_str(&call("").expect_code(1).out()).unwrap();
    assert_eq!(told["data"]["kind"], "tool_error", "{told}");
    let told: Value = serde_json::from_str(&call("--engine node").expect_code(0).out()).unwrap();
    assert_eq!(told["data"]["result"]["words"], "1.234,5", "{told}");
    assert_eq!(told["data"]["engine"], "node");
    let refused = home
        .line(&format!("bundle call {path} words {{}} --engine node"))
        .run()
        .expect_code(2);
    insta::assert_snapshot!(refused.shown_err(home.root()), @r#"invalid_arguments: the arguments do not fit the schema of the tool: /: "x" is a required property"#);
}

/// Starts a server on loopback that sends one response. Returns its port.
fn answer_ok() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    port
}

#[test]
fn a_tool_reaches_granted_hosts_and_its_caller_is_told_what_opens_others() {
    let home = Home::new();
    let text = GOOD.replace(
        "x: z.number() }), execute: async ({ x }) => x * FACTOR",
        "url: z.string() }), execute: async ({ url }) => (await fetch(url)).text()",
    );
    let path = file(&home, "fetching.js", &text);
    let port = answer_ok();
    let call = |url: &str, args: &[&str]| {
        let input = serde_json::json!({ "url": url }).to_string();
        home.glovebox(["bundle", "call", &path, "double", &input])
            .args(args)
            .run()
    };
    let url = format!("http://api.example:{port}/");
    let refused = call(&url, &[]).expect_code(1).err();
    assert!(refused.contains("E_NETWORK"), "{refused}");
    let rule = format!("api.example:{port}=127.0.0.1");
    for engine in ["quickjs", "node"] {
        let allowed = ["--allow", &rule, "--engine", engine];
        assert_eq!(call(&url, &allowed).expect_code(0).out(), "\"ok\"\n");
        let refused = call("http://other.example/", &allowed).expect_code(1).err();
        assert!(
            refused.contains("refused: other.example")
                && refused.contains("(unlisted); `--allow double=other.example` opens it"),
            "{engine}: {refused}"
        );
    }
    let denied = ["--allow", &rule, "--deny", "api.example", "--json"];
    let told: Value = serde_json::from_str(&call(&url, &denied).expect_code(1).out()).unwrap();
    assert_eq!(
        told["data"]["refused_hosts"][0]["reason"], "denied",
        "{told}"
    );
    let wrong = call(&url, &["--allow", "nmp"]).expect_code(2);
    insta::assert_snapshot!(wrong.failure(home.root()), @"
    error: --allow: `nmp` is neither a host nor a preset (crates, debian, github, gitlab, go, maven, npm, pypi, rubygems, ubuntu)
    hint: `glovebox bundle --help` shows the flags and examples
    ");
    // A rule for one tool, and one for a tool that does not exist.
    let own = format!("double={rule}");
    for engine in ["quickjs", "node"] {
        let ran = call(&url, &["--allow", &own, "--engine", engine]).expect_code(0);
        assert_eq!((ran.out().as_str(), ran.err().as_str()), ("\"ok\"\n", ""));
        let other = [
            "--allow",
            "other=b.example",
            "--allow",
            &format!("third={rule}"),
        ];
        let refused = call(&url, &other).expect_code(1).err();
        let warning = "warning: no tool of the bundle has the name that --allow or --deny has before `=`: `other`, `third`";
        assert_eq!(refused.matches(warning).count(), 1, "{refused}");
        let opener = format!("`--allow double=api.example:{port}` opens it");
        assert!(refused.contains(&opener), "{refused}");
    }
    let unclear = call(&url, &["--allow", "double=10.0.0.1"]).expect_code(2);
    insta::assert_snapshot!(unclear.failure(home.root()), @"
    error: --allow: `double=10.0.0.1` can be read in two ways: write `double=10.0.0.1:443` for what the tool `double` may reach, or `double:443=10.0.0.1` for where the host `double` is
    hint: `glovebox bundle --help` shows the flags and examples
    ");
    let told = call(
        &url,
        &["--allow", &own, "--deny", "double=api.example", "--json"],
    );
    let told: Value = serde_json::from_str(&told.expect_code(1).out()).unwrap();
    assert_eq!(
        told["data"]["refused_hosts"][0]["remedy"],
        "whoever runs the tool can leave out that `--deny`",
        "{told}"
    );
    call(&url, &["--deny", "a.example"]).expect_code(2);
}

#[test]
fn tools_of_typescript_run_without_their_types_in_both_engines() {
    let home = Home::new();
    let text = r#"import { createLightfast } from "lightfast/client";
import { createAgent } from "lightfast/agent";
import { createTool } from "lightfast/tool";
import { z } from "zod";
enum Unit { Metre = "m", Foot = "ft" }
interface Length { value: number; unit: Unit }
abstract class Scale<T extends Unit> {
  protected readonly factors: Record<string, number> = { [Unit.Metre]: 1 }
  private ["foot"]?: number = 0.3048
  abstract of(unit: T): number
}
class Known extends Scale<Unit> implements Iterable<Unit> {
  override of(unit: Unit): number { return unit === Unit.Foot ? this["foot"]! : this.factors[unit]! }
  *[Symbol.iterator](): Iterator<Unit> { yield* Object.values(Unit) as Unit[] }
}
function scale(length: number): number
function scale(length: Length): number
function scale(length: any): number {
  const { value, unit } = length as Length
  ;[value].forEach((one: number) => one)
  return value * new Known().of(unit)
}
const convert = createTool({
  description: "Metres of a length",
  inputSchema: z.object({ value: z.number(), unit: z.nativeEnum(Unit) }),
  execute: async <T extends Length>(length: T, _context?: unknown): Promise<{ metres: number; units: Unit[] }> =>
    ({ metres: scale(length), units: [...new Known()] } satisfies { metres: number; units: Unit[] }),
});
const refused = createTool({
  description: "d", inputSchema: z.object({}),
  execute: () => Hidden.x,
});
export default createLightfast({ agents: { a: createAgent({ name: "a", system: "s", model: "m", tools: { convert } }) } });
"#;
    let path = file(&home, "agents.ts", text);
    for engine in ["quickjs", "node"] {
        let told = home
            .glovebox([
                "bundle",
                "call",
                &path,
                "convert",
                r#"{"value":10,"unit":"ft"}"#,
            ])
            .args(["--engine", engine, "--json"])
            .run()
            .expect_code(0)
            .out();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(
            told["data"]["result"],
            serde_json::json!({ "metres": 3.048, "units": ["m", "ft"] })
        );
    }
    let text = text
        .replace("tools: { convert }", "tools: { refused }")
        .replace(
            "enum Unit",
            "namespace Hidden { export const x = 1 }\nenum Unit",
        );
    let path = file(&home, "refused.ts", &text);
    let said = home
        .line(&format!("bundle call {path} refused {{}}"))
        .run()
        .expect_code(2)
        .out();
    insta::assert_snapshot!(filters(&said, home.root()), @"
    E_TYPESCRIPT agents.a.tools.refused.execute ([ROOT]/refused.ts:5:1): the tool uses a namespace, which is more than a type: only types are taken out before it runs
       |
     5 | namespace Hidden { export const x = 1 }
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       hint: Write an object, or functions beside each other.

    [ROOT]/refused.ts: 1 error
    ");
}

/// An agent of a bundle, with a model that calls its tool and then reports the result.
#[test]
fn an_agent_runs_with_its_own_tool_and_the_model_that_is_allowed() {
    let home = Home::new();
    let text = GOOD
        .replace(
            "x: z.number() })",
            "x: z.number(), by: z.number().default(10) })",
        )
        .replace(
            "async ({ x }) => x * FACTOR",
            "async ({ x, by }) => ({ product: x * FACTOR * by })",
        )
        .replace(
            "model: gateway('gpt-4'),",
            "model: gateway('gpt-4'), temperature: 0.1,",
        );
    let path = file(&home, "good.js", &text);
    let server = ModelServer::start([
        Step::call("double", r#"{"x":"three"}"#),
        Step::call("double", r#"{"x":3}"#),
        Step::text("It is 60."),
    ]);
    let run = |args: &[&str]| {
        home.glovebox(["bundle", "run", &path])
            .args(args)
            .env("OPENAI_BASE_URL", server.url())
            .run()
    };
    // No model replaces one that the user has not allowed.
    let refused = run(&["double 3"]).expect_code(3);
    insta::assert_snapshot!(refused.failure(home.root()), @"
    error: the agent `assistant` wants the model `gateway/gpt-4`, which is not allowed here
    hint: say what stands for it with `--allow-model NAME=PROVIDER/NAME`, or name one with `--model PROVIDER/NAME`
    ");
    let ran = run(&["--allow-model", "gateway/gpt-4=openai/scripted", "double 3"]).expect_code(0);
    insta::assert_snapshot!(ran.out(), @"It is 60.");
    insta::assert_snapshot!(ran.said("W_IGNORED", home.root()), @"glovebox: W_IGNORED agents.assistant.temperature: `temperature` has no effect here: whoever runs the agent decides how its model is asked");
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    let body: Value = serde_json::from_str(&asked[2].body).unwrap();
    assert_eq!(body["model"], "scripted");
    let tools: Vec<&Value> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["function"]["name"])
        .collect();
    assert_eq!(tools, ["double"]);
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages[0]["content"], "You are helpful");
    let results: Vec<&str> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    insta::assert_snapshot!(results[0], @r#"the arguments do not fit the schema of the tool: /x: "three" is not of type "number""#);
    assert_eq!(results[1], r#"{"product":60}"#);
}

#[test]
fn a_bundle_is_checked_again_when_it_is_saved() {
    let home = Home::new();
    let path = file(&home, "agents.js", GOOD);
    let mut child = Command::new(testkit::binary())
        .args(["bundle", "dev", &path, "--json"])
        .env("GLOVEBOX_STATE", home.state())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["success"], true);
    fs::write(&path, BAD).unwrap();
    let told = next();
    assert_eq!(told["success"], false);
    assert_eq!(told["data"]["errors"].as_array().unwrap().len(), 2);
    // Save as editors do: write a file next to it, then rename it over the old one.
    let beside = file(&home, "agents.js~", GOOD);
    fs::rename(beside, &path).unwrap();
    assert_eq!(next()["success"], true);
    child.kill().unwrap();
    child.wait().unwrap();
    home.line("bundle dev -").run().expect_code(2);
    home.line("bundle dev nothing.js").run().expect_code(6);
}
