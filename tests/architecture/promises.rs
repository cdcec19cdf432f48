//! Each promise of `SPECIFICATION.md` and `SECURITY.md` has an id of its own and names tests that exist and are run.
//!
//! A row is read from every table whose first column is `id`. Its tests are what stands in backticks in its column
//! `tests`: `FILE::TEST`, a file or a directory of which every test counts, a fuzz target, or the name of a bench.

use crate::{root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const DOCUMENTS: [&str; 2] = ["SPECIFICATION.md", "SECURITY.md"];

/// Beginning of the ids of `SECURITY.md`, which no other document uses.
const SECURITY: &str = "SEC-";

/// Promises that no test holds yet: id and reason. An entry whose row has tests fails the test.
const UNTESTED: &[(&str, &str)] = &[(
    "CMD-13",
    "there is no released version yet whose output could be compared; each command's tests read its fields",
)];

/// Suite of checks that run on each backend. A check of its list is a test.
const CONFORMANCE: &str = "tests/conformance/";

/// Row of a table of promises.
#[derive(Debug)]
struct Row {
    id: String,
    /// Heading under which the row stands.
    section: String,
    tests: Vec<String>,
}

/// Returns the cells of a line of a table. `\|` within a cell separates nothing.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|').trim_end_matches('|');
    let line = line.replace("\\|", "\u{0}");
    let cells = line
        .split('|')
        .map(|cell| cell.trim().replace('\u{0}', "|"));
    cells.collect()
}

/// Returns the texts in backticks.
fn quoted(cell: &str) -> Vec<String> {
    let parts = cell.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// Reads the rows of all tables of promises in a document.
fn rows(document: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut section = String::new();
    // Number of the column with the tests, while a table of promises is read.
    let mut column = None;
    for line in document.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut section);
        }
        if !line.starts_with('|') {
            column = None;
            continue;
        }
        let cells = cells(line);
        if cells[0] == "id" {
            column = cells.iter().position(|cell| cell == "tests");
            assert!(column.is_some(), "{section}: no column `tests`: {line}");
            continue;
        }
        let Some(column) = column else { continue };
        if !cells[0].starts_with("---") {
            rows.push(Row {
                id: cells[0].clone(),
                section: section.clone(),
                tests: cells
                    .get(column)
                    .map(|cell| quoted(cell))
                    .unwrap_or_default(),
            });
        }
    }
    rows
}

/// Returns the prefix of a well-formed id, such as `PULL` or `SEC-GIT`. `None` for anything else.
fn prefix(id: &str) -> Option<&str> {
    let (prefix, number) = id.rsplit_once('-')?;
    let word = prefix.strip_prefix(SECURITY).unwrap_or(prefix);
    let is_word = word.len() >= 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_number = number.len() >= 2 && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_word && is_number).then_some(prefix)
}

/// Files that may hold tests, with their paths relative to the root.
type Files = BTreeMap<String, String>;

/// Returns the attributes and comments of the function that line `at` declares.
fn attributes<'t>(lines: &[&'t str], at: usize) -> Vec<&'t str> {
    let above = lines[..at].iter().rev().map(|line| line.trim());
    // An attribute may take several lines, so only the end of the item before ends the search.
    above
        .take_while(|line| !line.is_empty() && !line.ends_with(['{', '}', ';']))
        .collect()
}

/// Says why a function of a Rust file is no test that is run.
fn check_function(files: &Files, file: &str, function: &str) -> Result<(), &'static str> {
    let lines: Vec<&str> = files[file].lines().collect();
    let declaration = format!("fn {function}(");
    let at = lines.iter().position(|line| {
        let line = line.trim_start().trim_start_matches("pub(crate) ");
        line.trim_start_matches("async ").starts_with(&declaration)
    });
    let attributes = attributes(&lines, at.ok_or("there is no such function")?);
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return Err("it is ignored");
    }
    if attributes.iter().any(|line| line.starts_with("#[test]")) {
        return Ok(());
    }
    let module = file.strip_prefix(CONFORMANCE).unwrap_or_default();
    let entry = format!("{}::{function},", module.trim_end_matches(".rs"));
    let list = files.get("tests/conformance/main.rs");
    let is_listed = list.is_some_and(|list| list.lines().any(|line| line.trim() == entry));
    is_listed.then_some(()).ok_or("it is no test")
}

/// Says why a title of a file of the web interface is no test that is run.
fn check_title(text: &str, title: &str) -> Result<(), &'static str> {
    let is_test = |line: &str| {
        let call = line.trim_start();
        let call = call.strip_prefix("it(").or(call.strip_prefix("test("));
        call.is_some_and(|call| call.starts_with(&format!("\"{title}\"")))
    };
    let found = text.lines().any(is_test);
    found.then_some(()).ok_or("there is no such test")
}

/// Returns true if a Rust file has a test that is run.
fn has_test(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_run = |at: usize| {
        let after = lines[at + 1..]
            .iter()
            .take_while(|line| line.starts_with("#["));
        lines[at] == "#[test]" && !after.copied().any(|line| line.starts_with("#[ignore"))
    };
    (0..lines.len()).any(is_run)
}

/// Says why a reference of a row leads to no test that is run.
fn check_reference(files: &Files, reference: &str) -> Result<(), &'static str> {
    if let Some((file, name)) = reference.split_once("::") {
        let text = files.get(file).ok_or("there is no such file")?;
        if Path::new(file)
            .extension()
            .is_some_and(|ending| ending == "rs")
        {
            return check_function(files, file, name);
        }
        return check_title(text, name);
    }
    if !reference.contains('/') {
        let bench = format!("benches/src/{reference}.rs");
        let is_bench = files.contains_key(&bench);
        return is_bench.then_some(()).ok_or("there is no such bench");
    }
    if reference.starts_with("fuzz/fuzz_targets/") {
        let is_target = files.contains_key(reference);
        return is_target
            .then_some(())
            .ok_or("there is no such fuzz target");
    }
    let below = format!("{reference}/");
    let has_tests = files
        .iter()
        .filter(|(path, _)| **path == reference || path.starts_with(&below))
        .any(|(_, text)| has_test(text));
    has_tests.then_some(()).ok_or("it has no test")
}

/// Lists what is wrong with documents, given the files and the ids of promises without a test.
fn problems(documents: &[(&str, &str)], files: &Files, untested: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut ids = BTreeSet::new();
    let mut without_tests = BTreeSet::new();
    for (name, text) in documents {
        // Section of each prefix, and prefix of each section.
        let mut sections = BTreeMap::new();
        let mut prefixes = BTreeMap::new();
        for row in rows(text) {
            let id = row.id.as_str();
            let Some(prefix) = prefix(id) else {
                problems.push(format!("{name}: `{id}` is not a well-formed id"));
                continue;
            };
            if prefix.starts_with(SECURITY) != (*name == DOCUMENTS[1]) {
                problems.push(format!("{name}: {id} belongs into the other document"));
            }
            if !ids.insert(id.to_owned()) {
                problems.push(format!("{name}: there are two rows {id}"));
            }
            let section = sections
                .entry(prefix.to_owned())
                .or_insert(row.section.clone());
            let usual = prefixes
                .entry(row.section.clone())
                .or_insert(prefix.to_owned());
            if *section != row.section || usual != prefix {
                problems.push(format!("{name}: {id} stands under \"{}\"", row.section));
            }
            if row.tests.is_empty() {
                without_tests.insert(id.to_owned());
            }
            for test in &row.tests {
                if let Err(problem) = check_reference(files, test) {
                    problems.push(format!("{name}: {id}: {test}: {problem}"));
                }
            }
        }
    }
    for id in &without_tests {
        if !untested.contains(&id.as_str()) {
            problems.push(format!("{id} names no test and has no reason for it"));
        }
    }
    for id in untested {
        if !without_tests.contains(*id) {
            problems.push(format!("{id} is no row without a test any more"));
        }
    }
    problems
}

/// Adds the tests of the web interface to `files`.
fn add_web_tests(dir: &Path, root: &Path, files: &mut Files) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_web_tests(&path, root, files);
            continue;
        }
        let relative = path.strip_prefix(root).unwrap().to_string_lossy();
        if relative.contains(".test.") || relative.contains(".spec.") {
            files.insert(relative.into_owned(), fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn promises_have_unique_ids_and_tests_that_run() {
    let mut files = sources();
    for dir in ["web/src", "web/e2e"] {
        add_web_tests(&root().join(dir), &root(), &mut files);
    }
    let texts = DOCUMENTS.map(|name| fs::read_to_string(root().join(name)).unwrap());
    let documents: Vec<(&str, &str)> = DOCUMENTS
        .into_iter()
        .zip(texts.iter().map(String::as_str))
        .collect();
    let count: usize = documents.iter().map(|(_, text)| rows(text).len()).sum();
    assert!(count > 400, "only {count} promises were read");
    for (id, reason) in UNTESTED {
        assert!(!reason.is_empty(), "{id} has no reason");
    }
    let untested: Vec<&str> = UNTESTED.iter().map(|(id, _)| *id).collect();
    let problems = problems(&documents, &files, &untested);
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        let ignored = "#[test]\n#[ignore = \"slow\"]\nfn slow() {}\n";
        let files = [
            (
                "tests/a.rs",
                "#[test]\n#[expect(\n    clippy::x,\n    reason = \"y\"\n)]\nfn holds() {}\n\
                 \nfn helper() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn slow() {}\n",
            ),
            ("tests/b/ignored.rs", ignored),
            ("tests/conformance/main.rs", "    files::listed,\n"),
            (
                "tests/conformance/files.rs",
                "pub(crate) fn listed() {}\npub(crate) fn unlisted() {}\n",
            ),
            (
                "web/src/a.test.ts",
                "  it(\"shows | all\", () => {\n  it.skip(\"rests\", () => {\n",
            ),
            ("benches/src/exec.rs", ""),
            ("fuzz/fuzz_targets/egress.rs", ""),
        ];
        let owned = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        BTreeMap::from(owned)
    }

    /// Returns a section with a table of promises.
    fn section(heading: &str, rows: &[&str]) -> String {
        let head = "| id | promise | tests |\n| --- | --- | --- |";
        format!("## {heading}\n\n{head}\n{}\n\n", rows.join("\n"))
    }

    fn problems_of(document: &str) -> Vec<String> {
        problems(&[(DOCUMENTS[0], document)], &files(), &[])
    }

    #[test]
    fn row_with_each_kind_of_test_has_no_problem() {
        for test in [
            "tests/a.rs::holds",
            "tests/a.rs",
            "tests/conformance/files.rs::listed",
            "web/src/a.test.ts::shows \\| all",
            "exec",
            "fuzz/fuzz_targets/egress.rs",
        ] {
            let row = format!("| PULL-07 | a \\| b | `{test}` |");
            let found = problems_of(&section("Changes", &[&row]));
            assert!(found.is_empty(), "{test}: {found:?}");
        }
        let other = "| what | tests |\n| --- | --- |\n| not a promise | `nowhere` |\n";
        assert!(problems_of(other).is_empty());
    }

    #[test]
    fn row_without_a_test_that_runs_is_named() {
        for (test, problem) in [
            ("tests/c.rs::holds", "there is no such file"),
            ("tests/a.rs::goes", "there is no such function"),
            ("tests/a.rs::slow", "it is ignored"),
            ("tests/a.rs::helper", "it is no test"),
            ("tests/conformance/files.rs::unlisted", "it is no test"),
            ("tests/b", "it has no test"),
            ("tests/c.rs", "it has no test"),
            ("web/src/a.test.ts::rests", "there is no such test"),
            ("unknown", "there is no such bench"),
            ("fuzz/fuzz_targets/a.rs", "there is no such fuzz target"),
        ] {
            let row = format!("| PULL-07 | a | `exec`<br>`{test}` |");
            let found = problems_of(&section("Changes", &[&row]));
            assert_eq!(
                found,
                [format!("SPECIFICATION.md: PULL-07: {test}: {problem}")]
            );
        }
    }

    #[test]
    fn row_without_tests_needs_a_reason_while_it_has_none() {
        let document = section("Changes", &["| PULL-07 | a | [not yet tested] |"]);
        let with = |untested: &[&str]| problems(&[(DOCUMENTS[0], &document)], &files(), untested);
        assert_eq!(
            with(&[]),
            ["PULL-07 names no test and has no reason for it"]
        );
        assert!(with(&["PULL-07"]).is_empty());
        let stale = "GIT-01 is no row without a test any more";
        assert_eq!(with(&["PULL-07", "GIT-01"]), [stale]);
    }

    #[test]
    fn ids_that_are_malformed_repeated_or_misplaced_are_named() {
        for id in ["PULL", "pull-07", "PULL-7", "P-07", "PULL-0a", "SEC-07-GIT"] {
            let found = problems_of(&section("Changes", &[&format!("| {id} | a | `exec` |")]));
            let expected = format!("SPECIFICATION.md: `{id}` is not a well-formed id");
            assert_eq!(found, [expected]);
        }
        let row = |id: &str| format!("| {id} | a | `exec` |");
        let twice = section("Changes", &[&row("PULL-07"), &row("PULL-07")]);
        let expected = "SPECIFICATION.md: there are two rows PULL-07";
        assert_eq!(problems_of(&twice), [expected]);
        let mixed = section("Changes", &[&row("PULL-07"), &row("GIT-01")]);
        let expected = "SPECIFICATION.md: GIT-01 stands under \"Changes\"";
        assert_eq!(problems_of(&mixed), [expected]);
        let foreign = section("Git", &[&row("SEC-GIT-01")]);
        let expected = "SPECIFICATION.md: SEC-GIT-01 belongs into the other document";
        assert_eq!(problems_of(&foreign), [expected]);
    }
}
