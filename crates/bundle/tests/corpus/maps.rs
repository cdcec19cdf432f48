//! Source maps of esbuild, rollup and terser: problems in a bundle are located in its original
//! files.

use crate::{node, packages};
use glovebox_bundle::{Language, Problem, extract_with_map};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Expected problems: code, file, and the beginning of the original text.
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
        // Without the map, a problem has only its place in the bundle.
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

/// True if a problem is located at the text, or at the first use of the name with which the text
/// begins.
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
    // An import is located at its statement, or at the name of its package.
    let is_there = there.starts_with(text)
        || (line.contains(text) && (there.starts_with("import") || there.starts_with('"')));
    let carets = place.snippet.chars().skip(place.snippet_start as usize);
    let marked: String = carets.take(place.snippet_length as usize).collect();
    is_there && place.file.ends_with(file) && !marked.is_empty() && there.starts_with(&marked)
}

/// True if rollup generated the import: its maps do not contain that.
fn is_written_anew(bundle: &str, code: &str) -> bool {
    code == "E_IMPORT_NOT_ALLOWED" && !bundle.contains("esbuild")
}
