//! What is read from a bundle, beside what Node and zod say themselves.
//!
//! `bundles` has bundles as builders make them, `schemas` schemas at random; `build.mjs` and `schemas.mjs` make both and
//! write down what Node saw. The packages come from `cargo xtask test`.

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

/// The directory of npm packages that `cargo xtask test` installs.
fn packages() -> Option<PathBuf> {
    let mark = testkit::installed("bundlers/node_modules/esbuild/package.json")?;
    Some(mark.ancestors().nth(3)?.to_owned())
}

/// Runs a script of the corpus under Node.
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
