//! Bundles of real bundlers: the extraction equals the declaration that Node sees when it runs the
//! bundle.
//!
//! esbuild, tsup, rollup and terser build `sources` as modules, CommonJS and scripts, plain and
//! minified, with zod inside and outside. Each bundle is also wrapped and run by Node in place of a
//! sandbox; all of them then report what Node sees.

use crate::comparable::comparable;
use crate::{node, packages};
use glovebox_bundle::{Agent, ExtractedBy, Extraction, Language, ProblemCode, Tool, extract, wrap};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

#[test]
fn what_is_read_is_what_node_sees() {
    let Some(packages) = packages() else {
        testkit::skip!("needs the bundlers in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let out = tempfile::tempdir().unwrap();
    node("build.mjs", &packages, out.path());
    let index = fs::read(out.path().join("index.json")).unwrap();
    let bundles: Vec<Value> = serde_json::from_slice(&index).unwrap();
    assert!(bundles.len() > 250, "{} bundles", bundles.len());
    let mut wrong = Vec::new();
    for bundle in &bundles {
        let file = bundle["file"].as_str().unwrap();
        let source = fs::read_to_string(out.path().join(file)).unwrap();
        let extraction = extract(&source, Language::JavaScript).unwrap();
        if let Err(reason) = compare(bundle, &extraction) {
            wrong.push(format!("{file}: {reason}"));
        }
    }
    wrong.extend(asked(&bundles, out.path(), &packages));
    assert!(
        wrong.is_empty(),
        "{} of {} bundles:\n{}",
        wrong.len(),
        bundles.len(),
        wrong.join("\n")
    );
}

/// Returns the differences in the declarations of bundles that are run, and in the results of their
/// tools.
fn asked(bundles: &[Value], out: &Path, packages: &Path) -> Vec<String> {
    let directory = out.join("asked");
    fs::create_dir(&directory).unwrap();
    let (mut wrong, mut wrapped) = (Vec::new(), Vec::new());
    for bundle in bundles {
        let file = bundle["file"].as_str().unwrap();
        let source = fs::read_to_string(out.join(file)).unwrap();
        match wrap(&source) {
            Ok(module) => {
                let run = directory.join(format!("{file}.run.mjs"));
                fs::write(run, module.declaration()).unwrap();
                wrapped.push((bundle, file, module));
            }
            Err(problems) => wrong.push(format!("{file}: {}", problems[0].render(file))),
        }
    }
    node("run.mjs", &directory, packages);
    let calls = out.join("calls");
    fs::create_dir(&calls).unwrap();
    for (bundle, file, module) in &wrapped {
        let text = fs::read_to_string(directory.join(format!("{file}.declared"))).unwrap();
        let extraction = module.complete(extract(&text, Language::JavaScript).unwrap());
        assert_eq!(extraction.bundle.extracted_by, ExtractedBy::Execution);
        if let Err(reason) = compare_declared(bundle, &extraction) {
            wrong.push(format!("{file}, asked: {reason}\n{text}"));
        } else if bundle["source"] == "greeter" {
            let slice = extraction.bundle.agents[0].tools[0].slice.as_ref().unwrap();
            fs::write(calls.join(format!("{file}.mjs")), &slice.code).unwrap();
            let call = format!(
                "import f from './{file}.mjs';\nexport default async () => JSON.stringify(await f({{ name: 'Ann' }}, {{}}));"
            );
            fs::write(calls.join(format!("{file}.run.mjs")), call).unwrap();
        }
    }
    node("run.mjs", &calls, packages);
    for (bundle, file, _) in &wrapped {
        if bundle["source"] == "greeter" {
            let said =
                fs::read_to_string(calls.join(format!("{file}.declared"))).unwrap_or_default();
            if said != "{\"hello\":\"Ann\"}" {
                wrong.push(format!("{file}, called: {said}"));
            }
        }
    }
    wrong
}

fn compare(bundle: &Value, extraction: &Extraction) -> Result<(), String> {
    let errors: Vec<_> = extraction.errors().collect();
    if is_beyond_recognition(bundle) {
        // Refused for this reason only, with a hint.
        let is_told = !errors.is_empty()
            && errors.iter().all(|problem| {
                problem.code == ProblemCode::SchemaUnrecognised && problem.hint.contains("external")
            });
        return if is_told {
            Ok(())
        } else {
            Err(format!("is not refused as it should be: {errors:?}"))
        };
    }
    if is_taken_apart(bundle) {
        return match errors.first() {
            Some(first) if matches!(first.code, ProblemCode::Mutated | ProblemCode::NoConfig) => {
                Ok(())
            }
            first => Err(format!("is not refused as it should be: {first:?}")),
        };
    }
    compare_declared(bundle, extraction)
}

fn compare_declared(bundle: &Value, extraction: &Extraction) -> Result<(), String> {
    let errors: Vec<_> = extraction.errors().collect();
    if let Some(first) = errors.first() {
        return Err(format!("{} errors: {}", errors.len(), first.render("")));
    }
    let read = json!({
        "agents": extraction.bundle.agents.iter().map(agent).collect::<Vec<_>>(),
        "tools": sorted(&extraction.bundle.tools),
        "metadata": extraction.bundle.metadata,
    });
    let (read, declared) = (comparable(&read), comparable(&bundle["declared"]));
    if read == declared {
        return Ok(());
    }
    Err(format!("\n  declared {declared}\n  read     {read}"))
}

/// True if zod is inside the bundle but not recognizable. It is recognized by the comments with
/// which esbuild names files; names that were shortened or comments that were removed leave no sign
/// of it.
fn is_beyond_recognition(bundle: &Value) -> bool {
    bundle["zod"] == "inside"
        && (bundle["minified"] == true
            || bundle["builder"] == "rollup"
            || bundle["builder"] == "terser")
}

/// True if terser has inlined esbuild's `__toESM` and `__toCommonJS`: `(mod = require("zod"),
/// target = ...)`. It assigns such names in several places. The evaluator does not follow that, and
/// refuses the schema or the export.
fn is_taken_apart(bundle: &Value) -> bool {
    let imports_all = ["agents_with_sdk_tools", "mini", "sdk"];
    bundle["builder"] == "terser"
        && bundle["format"] == "iife"
        && imports_all.iter().any(|source| bundle["source"] == *source)
}

fn agent(agent: &Agent) -> Value {
    json!({
        "key": agent.key,
        "name": agent.name,
        "system": agent.system,
        "model": agent.model,
        "tools": agent.tools.iter().map(tool).collect::<Vec<_>>(),
        "options": agent.options,
    })
}

fn tool(tool: &Tool) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "executable": tool.executable,
    })
}

/// Returns the tools in the order of their names: exports have no order.
fn sorted(tools: &[Tool]) -> Value {
    let mut tools: Vec<&Tool> = tools.iter().collect();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools.into_iter().map(tool).collect()
}
