//! Manifests of lightfast's compiler: bundles that match their entries, and messages about those
//! that do not.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use glovebox_bundle::{Language, Manifest, Problem, ProblemCode, extract};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

const CODE: &str = "import { createLightfast } from 'lightfast/client';
import { createAgent } from 'lightfast/agent';
export default createLightfast({ agents: { a: createAgent({ name: 'a', system: 's', model: 'gpt' }) } });";

/// The code of a function body that the compiler wraps.
const INNER: &str = "const { createLightfast, createAgent } = require('lightfast');
const agents = { a: createAgent({ name: 'a', system: 's', model: 'gpt' }) };

return { default: createLightfast({ agents }) };";

fn digits(content: &str, count: usize) -> String {
    let digest = Sha256::digest(content.as_bytes());
    let text = digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    text[..count].to_owned()
}

fn wrapped(code: &str) -> String {
    let lines: Vec<String> = code.split('\n').map(|line| format!("  {line}")).collect();
    format!(
        "// Lightfast Agent Bundle\n\n// Original compiled config\nconst compiledConfig = (() => {{\n{}\n}})();\n\n\
         // Bundle export format\nexport default {{\n  id: \"a\",\n  config: compiledConfig.default || compiledConfig,\n  \
         async execute(params, context) {{ return globalThis.__lightfastRuntime.execute(this.config, params, context); }}\n}};\n",
        lines.join("\n")
    )
}

fn entry(bundle: &str) -> Value {
    json!({"id": "a", "hash": digits(bundle, 8), "file": "bundles/a.js", "size": bundle.len(), "tools": [], "models": ["gpt"]})
}

fn manifest(entries: &Value) -> String {
    let whole = json!({"version": "1.0.0", "compiledAt": "2025-11-01T00:00:00.000Z", "compilerVersion": "0.2.1", "bundles": entries});
    serde_json::to_string_pretty(&whole).unwrap()
}

/// Returns the problems of a bundle and its entry in a manifest.
fn check(entry: &Value, bundle: &str) -> Vec<Problem> {
    let text = manifest(&json!([entry]));
    let manifest = match Manifest::parse(text.as_bytes()) {
        Ok(manifest) => manifest,
        Err(problems) => return problems,
    };
    let extraction = extract(bundle, Language::JavaScript).unwrap();
    assert_eq!(extraction.errors().count(), 0, "{:?}", extraction.problems);
    manifest.check(&manifest.bundles[0], bundle.as_bytes(), &extraction.bundle)
}

/// Returns the codes and paths of problems.
fn told(problems: &[Problem]) -> Vec<(&str, &str)> {
    let told = problems
        .iter()
        .map(|problem| (problem.code.as_str(), problem.path.as_str()));
    told.collect()
}

#[test]
fn a_bundle_that_is_what_its_manifest_says_is_taken() {
    assert_eq!(check(&entry(CODE), CODE), []);
    // The whole digest, and a digest of the code before it was wrapped.
    let mut whole = entry(CODE);
    whole["hash"] = digits(CODE, 64).to_uppercase().into();
    assert_eq!(check(&whole, CODE), []);
    let bundle = wrapped(INNER);
    let mut inner = entry(&bundle);
    inner["hash"] = digits(INNER, 8).into();
    assert_eq!(check(&inner, &bundle), []);
    let apart = format!(
        "// Lightfast Agent Bundle - a\n\n// Target agent identifier for this bundle\nexport const targetAgentId = \"a\";\n\n{CODE}\n\n\
         // Target agent extraction function\nexport function getTargetAgent() {{ return null; }}\n"
    );
    let mut inner = entry(&apart);
    inner["hash"] = digits(CODE, 8).into();
    assert_eq!(check(&inner, &apart), []);
    // All agents in one bundle.
    let mut all = entry(CODE);
    all["id"] = "main".into();
    assert_eq!(check(&all, CODE), []);
}

#[test]
fn what_is_not_as_the_manifest_says_is_told() {
    let other = CODE.replace("'s'", "'t'");
    assert_eq!(
        told(&check(&entry(CODE), &other)),
        [("E_MANIFEST", "bundles.0.hash")]
    );
    let longer = format!("{CODE}\n");
    let problems = check(&entry(CODE), &longer);
    let mut both = told(&problems);
    both.sort_unstable();
    assert_eq!(
        both,
        [
            ("E_MANIFEST", "bundles.0.hash"),
            ("E_MANIFEST", "bundles.0.size")
        ]
    );
    let mut changed = entry(CODE);
    changed["id"] = "b".into();
    assert_eq!(
        told(&check(&changed, CODE)),
        [("E_MANIFEST", "bundles.0.id")]
    );
    // The tools and models of an entry are ignored, with a warning.
    let mut changed = entry(CODE);
    changed["tools"] = json!(["search"]);
    changed["models"] = json!(["other"]);
    let problems = check(&changed, CODE);
    let mut both = told(&problems);
    both.sort_unstable();
    assert_eq!(
        both,
        [
            ("W_IGNORED", "bundles.0.models"),
            ("W_IGNORED", "bundles.0.tools")
        ]
    );
    let tools = problems
        .iter()
        .find(|problem| problem.path.ends_with("tools"))
        .unwrap();
    assert!(
        tools.reason.contains("`search`, the bundle has none"),
        "{problems:?}"
    );
}

#[test]
fn what_is_no_manifest_is_refused_with_its_place() {
    for (change, path) in [
        (json!({"file": "../a.js"}), "bundles.0.file"),
        (json!({"file": "/etc/passwd"}), "bundles.0.file"),
        (json!({"file": "bundles/./a.js"}), "bundles.0.file"),
        (json!({"file": "bundles\\a.js"}), "bundles.0.file"),
        (json!({"file": ""}), "bundles.0.file"),
        (json!({"hash": "1234"}), "bundles.0.hash"),
        (json!({"hash": "zzzzzzzz"}), "bundles.0.hash"),
        (json!({"id": ""}), "bundles.0.id"),
        (json!({"size": -1}), "bundles.0.size"),
        (json!({"tools": "x"}), "bundles.0.tools"),
    ] {
        let mut changed = entry(CODE);
        let (key, value) = change.as_object().unwrap().iter().next().unwrap();
        changed[key] = value.clone();
        let text = manifest(&json!([changed]));
        let problems = Manifest::parse(text.as_bytes()).unwrap_err();
        assert_eq!(told(&problems), [("E_MANIFEST", path)], "{change}");
        let line = text.lines().nth(problems[0].line as usize - 1).unwrap();
        assert!(
            line.contains(key) && !problems[0].hint.is_empty(),
            "{line}: {problems:?}"
        );
    }
    let mut missing = entry(CODE);
    missing.as_object_mut().unwrap().remove("file");
    for text in [
        "",
        "{",
        "[]",
        "{\"version\": 1}",
        "\u{feff}{}",
        &manifest(&json!([missing])),
        &manifest(&json!([7])),
        &manifest(&json!({})),
        &" ".repeat(2 << 20),
    ] {
        let problems = Manifest::parse(text.as_bytes()).unwrap_err();
        assert_eq!(problems[0].code, ProblemCode::Manifest, "{text:.40}");
    }
    assert!(Manifest::parse(b"\xff").is_err());
    let twice = manifest(&json!([entry(CODE), entry(CODE)]));
    let problems = Manifest::parse(twice.as_bytes()).unwrap_err();
    assert_eq!(told(&problems), [("E_MANIFEST", "bundles.1.id")]);
    assert_eq!(problems[0].also.len(), 1);
}

#[test]
fn an_agent_is_in_its_own_bundle_or_in_the_one_of_all() {
    for (ids, agent, expected) in [
        ("main", None, Some("main")),
        ("main", Some("b"), Some("main")),
        ("main a", Some("a"), Some("a")),
        ("a main", Some("b"), Some("main")),
        ("a main", None, None),
        ("a", Some("b"), None),
        ("a", Some("main"), None),
    ] {
        let entries: Vec<Value> = ids
            .split(' ')
            .map(|id| {
                let mut one = entry(CODE);
                one["id"] = id.into();
                one
            })
            .collect();
        let text = manifest(&json!(entries));
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        let found = manifest.bundle_of(agent);
        assert_eq!(
            found.map(|bundle| bundle.id.as_str()),
            expected,
            "{ids} {agent:?}"
        );
    }
}
