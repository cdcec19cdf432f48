//! Random schemas: the conversion equals that of zod 4 and its mini, and for zod 3 that of
//! `zod-to-json-schema`.

use crate::comparable::{comparable, comparable_3};
use crate::{node, packages};
use glovebox_bundle::{Language, extract};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;

#[test]
fn schemas_are_what_zod_says() {
    let Some(packages) = packages() else {
        testkit::skip!("needs the bundlers in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let out = tempfile::tempdir().unwrap();
    node("schemas.mjs", &packages, out.path());
    let written = fs::read(out.path().join("schemas.json")).unwrap();
    let written: Value = serde_json::from_slice(&written).unwrap();
    let mut wrong = Vec::new();
    for (version, normal) in [
        ("4", comparable as fn(&Value) -> Value),
        ("mini", comparable),
        ("3", comparable_3),
    ] {
        let schemas = written[version].as_array().unwrap();
        assert!(schemas.len() >= 200, "{} of zod {version}", schemas.len());
        for schema in schemas {
            let expression = schema["expression"].as_str().unwrap();
            if let Some(difference) = difference(version, expression, schema, normal) {
                wrong.push(format!("zod {version}: {expression}\n{difference}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} schemas differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn difference(
    version: &str,
    expression: &str,
    schema: &Value,
    normal: fn(&Value) -> Value,
) -> Option<String> {
    let import = match version {
        "3" => "import { z } from 'zod/v3';",
        "mini" => "import * as z from 'zod/mini';",
        _ => "import { z } from 'zod';",
    };
    let source = format!(
        "import {{ tool }} from 'ai'; {import}\n\
         export const t = tool({{ inputSchema: {expression}, outputSchema: {expression}, execute: () => 1 }});"
    );
    let extraction = extract(&source, Language::JavaScript).unwrap();
    let mut text = String::new();
    for problem in extraction.errors() {
        text.push_str(&problem.render("bundle.js"));
    }
    let [tool] = extraction.bundle.tools.as_slice() else {
        return Some(text + "  not read");
    };
    let output = tool.output_schema.as_ref();
    for (side, read) in [("input", Some(&tool.input_schema)), ("output", output)] {
        // The converter for zod 3 has no sides.
        if version == "3" && side == "output" {
            continue;
        }
        let (read, said) = (serde_json::to_value(read).unwrap(), &schema[side]);
        if normal(&read) != normal(said) {
            let _ = write!(
                text,
                "  {side}\n    zod  {}\n    read {}",
                normal(said),
                normal(&read)
            );
        }
    }
    (!text.is_empty()).then_some(text)
}
