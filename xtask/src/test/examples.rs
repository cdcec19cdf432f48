//! Which packages have examples in their documentation that can be run.
//!
//! `cargo test --doc` compiles everything once more to find out, which takes two minutes where there are none.

use crate::step;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// What a block of code may be called and still be run or compiled (rustdoc book, "Documentation tests"). Any other
/// word makes it text.
const RUNNABLE: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];

/// Directories of packages with such examples, in alphabetical order.
///
/// # Errors
/// When a source file cannot be read.
pub(super) fn packages_with_examples() -> Result<Vec<PathBuf>> {
    let root = step::root();
    let mut packages = vec![root.join("testkit")];
    for entry in fs::read_dir(root.join("crates"))? {
        packages.push(entry?.path());
    }
    packages.sort();
    let mut found = Vec::new();
    for package in packages {
        if has_example_below(&package.join("src"))? {
            found.push(package);
        }
    }
    Ok(found)
}

fn has_example_below(dir: &Path) -> Result<bool> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let has_example = if path.is_dir() {
            has_example_below(&path)?
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            has_example(&fs::read_to_string(&path).with_context(|| path.display().to_string())?)
        } else {
            false
        };
        if has_example {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a comment of documentation in a source text has a block of code that is run.
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
            is_inside && words.split(',').all(|word| RUNNABLE.contains(&word.trim()))
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
