//! Sets the program's version: that of the package, and in optimised builds the commit it was built
//! from.
//!
//! A debug build names no commit, so that a new commit does not cause a rebuild. `GLOVEBOX_COMMIT`
//! names one if the source is not a repository.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=GLOVEBOX_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let is_debug = std::env::var_os("PROFILE").is_some_and(|profile| profile == "debug");
    let commit = match std::env::var("GLOVEBOX_COMMIT") {
        Ok(commit) => Some(commit),
        Err(_) if is_debug => None,
        Err(_) => repository_commit(),
    };
    let version = commit.map_or_else(
        || version.to_owned(),
        |commit| format!("{version} ({commit})"),
    );
    println!("cargo::rustc-env=GLOVEBOX_VERSION={version}");
}

/// Returns the commit of the repository whose top is this workspace. None if there is none.
fn repository_commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(root)
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // A source tree inside another repository has no commit of ours.
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?)
        .canonicalize()
        .ok()?
        != root.canonicalize().ok()?
    {
        return None;
    }
    for name in ["HEAD", "logs/HEAD", "index"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    git(&[
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ])
}
