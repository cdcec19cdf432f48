//! Detection of packages that have runnable examples in their documentation.
//!
//! `cargo test --doc` compiles every package once more to find out, which takes two minutes for
//! packages without examples.

use crate::files::files;
use crate::step;
use anyhow::Result;
use std::fs;
use std::path::PathBuf;

/// Labels with which a code block is still compiled or run (rustdoc book, "Documentation tests").
/// Any other label makes it text.
const RUNNABLE: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];

/// Returns the directories of packages with such examples, in alphabetical order.
///
/// # Errors
/// If a source file cannot be read.
pub(super) fn packages_with_examples() -> Result<Vec<PathBuf>> {
    let root = step::root();
    let mut packages = vec![root.join("testkit")];
    for entry in fs::read_dir(root.join("crates"))? {
        packages.push(entry?.path());
    }
    packages.sort();
    let mut found = Vec::new();
    for package in packages {
        let sources = files(&package.join("src"))?;
        let mut texts = sources
            .values()
            .map(|source| String::from_utf8_lossy(source));
        if texts.any(|text| has_example(&text)) {
            found.push(package);
        }
    }
    Ok(found)
}

fn is_runnable(word: &str) -> bool {
    RUNNABLE.contains(&word) || word.starts_with("edition")
}

/// Returns true if a doc comment of a source file has a code block that is compiled or run.
fn has_example(source: &str) -> bool {
    let mut is_inside = false;
    source
        .lines()
        .filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("///")
                .or_else(|| line.strip_prefix("//!"))
        })
        .filter_map(|text| text.trim_start().strip_prefix("```"))
        .any(|words| {
            is_inside = !is_inside;
            is_inside && words.split(',').all(|word| is_runnable(word.trim()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_runs_is_an_example_and_text_is_none() {
        for example in [
            "/// ```\n/// assert!(true);\n/// ```\n",
            "    //! ```no_run\n    //! loop {}\n    //! ```\n",
            "/// ```text\n/// a\n/// ```\n/// ```rust,should_panic\n/// ```\n",
            "/// ```rust,edition2021\n/// ```\n",
        ] {
            assert!(has_example(example), "{example}");
        }
        for none in [
            "",
            "// ```\n// no documentation\n// ```\n",
            "/// ```text\n/// a diagram\n/// ```\nfn f() {}\n",
            "/// ```ignore\n/// let a\n/// ```\n",
        ] {
            assert!(!has_example(none), "{none}");
        }
    }
}
