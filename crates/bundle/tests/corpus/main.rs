//! Comparison of extractions with Node and zod.
//!
//! `bundles` tests bundles of real bundlers, `schemas` tests random schemas; `build.mjs` and
//! `schemas.mjs` make both and record what Node saw. `cargo xtask test` installs the packages.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bundles;
mod comparable;
mod maps;
mod schemas;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of npm packages that `cargo xtask test` installs.
fn packages() -> Option<PathBuf> {
    let mark = testkit::installed("bundlers/node_modules/esbuild/package.json")?;
    Some(mark.ancestors().nth(3)?.to_owned())
}

/// Runs a script of the corpus with Node.
fn node(script: &str, packages: &Path, out: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(script);
    let ended = Command::new("node")
        .arg(script)
        .args([packages, out])
        .output()
        .unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}
