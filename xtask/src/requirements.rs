//! `tests/requirements.toml`: requirements of the documents behind Glovebox, and the tests that
//! demonstrate them.
//!
//! `cargo xtask check` refuses a row with a test that does not exist or is never run. `cargo xtask
//! requirements` writes the reference page. The run of the tests checks that no named test is
//! skipped: CI runs every suite, and a skip there is a failure.

use crate::step::root;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const TABLE: &str = "tests/requirements.toml";
const PAGE: &str = "docs/reference/requirements.md";
/// File with the list of the checks that run on each backend.
const CHECKS: &str = "tests/conformance/main.rs";
/// Number of the last requirement. Each from 1 on has a row.
const LAST: usize = 232;
/// Maximum length of a sentence, in characters.
const SENTENCE: usize = 100;

/// Requirement, as a row of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Statement of the requirement.
    says: String,
    /// Tests that demonstrate it, each as `FILE::FUNCTION`.
    #[serde(default)]
    tests: Vec<String>,
    /// Reason why the requirement does not apply. `None` if it does.
    not_needed: Option<String>,
}

type Rows = BTreeMap<String, Row>;

/// Checks the table and the page.
///
/// # Errors
/// All problems of the table, one per line; otherwise a page that differs from the table.
pub(crate) fn check() -> Result<()> {
    let rows = read()?;
    if fs::read_to_string(root().join(PAGE)).unwrap_or_default() != page(&rows) {
        bail!("{PAGE} is not what {TABLE} says: run `cargo xtask requirements`");
    }
    Ok(())
}

/// Writes the page.
///
/// # Errors
/// All problems of the table, one per line; otherwise a page that cannot be written.
pub(crate) fn write() -> Result<()> {
    fs::write(root().join(PAGE), page(&read()?)).with_context(|| format!("cannot write {PAGE}"))
}

/// Reads and checks the table.
fn read() -> Result<Rows> {
    let text =
        fs::read_to_string(root().join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    let rows = toml::from_str(&text).with_context(|| format!("cannot understand {TABLE}"))?;
    let mut sources = HashMap::new();
    let problems = problems(&rows, |file| source(&mut sources, file));
    if !problems.is_empty() {
        bail!("{TABLE}:\n  {}", problems.join("\n  "));
    }
    Ok(rows)
}

/// Returns the text of a file, which is read once. `None` if there is no such file.
fn source(sources: &mut HashMap<String, Option<String>>, file: &str) -> Option<String> {
    sources
        .entry(file.to_owned())
        .or_insert_with(|| fs::read_to_string(root().join(file)).ok())
        .clone()
}

/// Lists the problems of the rows. `source` returns the text of a file.
fn problems(rows: &Rows, mut source: impl FnMut(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let wanted: Vec<String> = (1..=LAST).map(|number| format!("R{number:03}")).collect();
    for id in wanted.iter().filter(|id| !rows.contains_key(*id)) {
        problems.push(format!("{id} has no row"));
    }
    for (id, row) in rows {
        if !wanted.contains(id) {
            problems.push(format!("{id} is no requirement"));
        }
        if row.says.is_empty() || row.says.chars().count() > SENTENCE {
            problems.push(format!("{id}: `says` has 1 to {SENTENCE} characters"));
        }
        let is_reasoned = row.not_needed.as_ref().is_some_and(|why| !why.is_empty());
        if is_reasoned != row.tests.is_empty() {
            problems.push(format!("{id} has either `tests` or `not_needed`"));
        }
        for test in &row.tests {
            if let Err(problem) = find(test, &mut source) {
                problems.push(format!("{id}: {test}: {problem}"));
            }
        }
    }
    problems
}

/// Checks that a test exists and runs: a function with `#[test]`, or a check in the list of the
/// conformance suite.
fn find(test: &str, source: &mut impl FnMut(&str) -> Option<String>) -> Result<(), &'static str> {
    let (file, function) = test.split_once("::").ok_or("it is no FILE::FUNCTION")?;
    let text = source(file).ok_or("there is no such file")?;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declaration = format!("fn {function}(");
    let at = lines
        .iter()
        .position(|line| {
            let line = line.trim_start_matches("pub(crate) ");
            line.trim_start_matches("async ").starts_with(&declaration)
        })
        .ok_or("there is no such function")?;
    let attributes: Vec<&&str> = lines
        .iter()
        .take(at)
        .rev()
        .take_while(|line| line.starts_with('#') || line.starts_with("//"))
        .collect();
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return Err("it is ignored");
    }
    let is_test = attributes
        .iter()
        .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
    if is_test || is_listed(file, function, &source(CHECKS).unwrap_or_default()) {
        return Ok(());
    }
    Err("it is no test")
}

/// Returns true if the list of checks has a function of a file.
fn is_listed(file: &str, function: &str, checks: &str) -> bool {
    let module = Path::new(file)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let entry = format!("{module}::{function},");
    Path::new(file).parent() == Path::new(CHECKS).parent()
        && checks.lines().any(|line| line.trim() == entry)
}

/// Renders the reference page.
fn page(rows: &Rows) -> String {
    let mut page = String::from(
        "# Requirements\n\n\
        What the documents behind Glovebox ask for, and the tests that show it. The table is made from \
        `tests/requirements.toml` (`cargo xtask requirements`). Tests below `tests/conformance` run on every backend, \
        `tests/flow/remote.rs` on each remote one.\n\n\
        | id | what is asked for | tests, or why there is none |\n| --- | --- | --- |\n",
    );
    for (id, row) in rows {
        let shown = row.not_needed.clone().unwrap_or_else(|| {
            let tests: Vec<String> = row.tests.iter().map(|test| format!("`{test}`")).collect();
            tests.join("<br>")
        });
        let _ = writeln!(page, "| {id} | {} | {shown} |", row.says);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::{CHECKS, LAST, Row, Rows, problems};

    /// Rows without problems.
    fn rows() -> Rows {
        let row = |number| {
            let row = Row {
                says: "files come back".to_owned(),
                tests: vec!["tests/a.rs::files_come_back".to_owned()],
                not_needed: None,
            };
            (format!("R{number:03}"), row)
        };
        (1..=LAST).map(row).collect()
    }

    fn source(file: &str) -> Option<String> {
        let text = match file {
            "tests/a.rs" => {
                "#[test]\nfn files_come_back() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn slow() {}\n\nfn helper() {}\n"
            }
            "tests/conformance/files.rs" => {
                "pub(crate) fn listed(f: &F) {}\npub(crate) fn unlisted(f: &F) {}\n"
            }
            CHECKS => "    files::listed,\n",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn problems_with(change: impl FnOnce(&mut Row)) -> Vec<String> {
        let mut rows = rows();
        change(rows.get_mut("R007").unwrap());
        problems(&rows, source)
    }

    fn problems_of(test: &str) -> Vec<String> {
        problems_with(|row| row.tests = vec![test.to_owned()])
    }

    #[test]
    fn rows_with_a_test_or_a_reason_are_right() {
        assert!(problems(&rows(), source).is_empty());
        assert!(problems_of("tests/conformance/files.rs::listed").is_empty());
        let reasoned = problems_with(|row| {
            row.tests.clear();
            row.not_needed = Some("no tar is called".to_owned());
        });
        assert!(reasoned.is_empty(), "{reasoned:?}");
    }

    #[test]
    fn row_without_a_test_that_runs_is_named() {
        for (test, problem) in [
            ("tests/b.rs::files_come_back", "there is no such file"),
            ("tests/a.rs::files_go", "there is no such function"),
            ("tests/a.rs::slow", "it is ignored"),
            ("tests/a.rs::helper", "it is no test"),
            ("tests/conformance/files.rs::unlisted", "it is no test"),
            ("files_come_back", "it is no FILE::FUNCTION"),
        ] {
            assert_eq!(problems_of(test), [format!("R007: {test}: {problem}")]);
        }
        let both = problems_with(|row| row.not_needed = Some("no".to_owned()));
        assert_eq!(both, ["R007 has either `tests` or `not_needed`"]);
        let empty = problems_with(|row| row.tests.clear());
        assert_eq!(empty, ["R007 has either `tests` or `not_needed`"]);
    }

    #[test]
    fn missing_and_foreign_rows_are_named() {
        let mut rows = rows();
        let row = rows.remove("R100").unwrap();
        rows.insert("R233".to_owned(), row);
        assert_eq!(
            problems(&rows, source),
            ["R100 has no row", "R233 is no requirement"]
        );
    }
}
