//! Source maps as esbuild, rollup and terser write them: what is refused in a bundle is found where its author wrote it.

use crate::{node, packages};
use glovebox_bundle::{Language, Problem, extract_with_map};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// What is refused: code, file, and the text of its author that it begins with.
const REFUSED: [(&str, &str, &str); 3] = [
    ("E_DYNAMIC_VALUE", "broken.ts", "Date.now()"),
    ("E_CONDITIONAL", "broken.ts", "process.env.PRODUCTION ?"),
    ("E_IMPORT_NOT_ALLOWED", "tools.ts", "fs from \"node:fs\""),
];

#[test]
fn problems_are_placed_in_the_files_of_their_author() {
    let Some(packages) = packages() else {
        testkit::skip!("needs the bundlers in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let out = tempfile::tempdir().unwrap();
    node("maps.mjs", &packages, out.path());
    let index = fs::read(out.path().join("index.json")).unwrap();
    let bundles: Vec<Value> = serde_json::from_slice(&index).unwrap();
    assert_eq!(bundles.len(), 18);
    let mut wrong = String::new();
    for bundle in &bundles {
        let name = bundle["file"].as_str().unwrap();
        let source = fs::read_to_string(out.path().join(name)).unwrap();
        let map = bundle["map"]
            .as_str()
            .map(|map| fs::read(out.path().join(map)).unwrap());
        let extraction = extract_with_map(&source, map.as_deref(), Language::JavaScript).unwrap();
        for (code, file, text) in REFUSED {
            let found = extraction
                .errors()
                .find(|problem| problem.code.as_str() == code);
            let is_right = found.is_some_and(|problem| {
                if is_written_anew(name, code) {
                    return problem.original.is_none();
                }
                is_placed(problem, out.path(), file, text)
            });
            if !is_right {
                let _ = writeln!(
                    wrong,
                    "{name}: {code} is not at `{text}` of {file}: {:?}",
                    extraction.problems
                );
            }
        }
        // Without the map, the place is that in the bundle and nothing else.
        if map.is_some() {
            let extraction = extract_with_map(&source, None, Language::JavaScript).unwrap();
            assert!(
                extraction
                    .problems
                    .iter()
                    .all(|problem| problem.original.is_none())
            );
        }
    }
    assert_eq!(wrong, "");
}

/// Whether a problem is where the text stands, or where the name that the text begins with is first used.
fn is_placed(problem: &Problem, out: &Path, file: &str, text: &str) -> bool {
    let Some(place) = &problem.original else {
        return false;
    };
    let written = fs::read_to_string(out.join("src").join(file)).unwrap();
    let line = written
        .lines()
        .nth(place.line as usize - 1)
        .unwrap_or_default();
    let there: String = line.chars().skip(place.column as usize - 1).collect();
    // An import is placed at its statement, or at the name of its package.
    let is_there = there.starts_with(text)
        || (line.contains(text) && (there.starts_with("import") || there.starts_with('"')));
    let carets = place.snippet.chars().skip(place.snippet_start as usize);
    let marked: String = carets.take(place.snippet_length as usize).collect();
    is_there && place.file.ends_with(file) && !marked.is_empty() && there.starts_with(&marked)
}

/// rollup writes imports of its own, which its maps say nothing of.
fn is_written_anew(bundle: &str, code: &str) -> bool {
    code == "E_IMPORT_NOT_ALLOWED" && !bundle.contains("esbuild")
}
