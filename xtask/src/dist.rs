//! `cargo xtask dist`: what a package contains, in `target/dist`.

use crate::musl;
use crate::step::{self, cargo, say};
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

const SHELLS: [(&str, &str); 3] = [
    ("bash", "glovebox.bash"),
    ("zsh", "_glovebox"),
    ("fish", "glovebox.fish"),
];

/// Builds the release binary and everything that is made from its declarations.
///
/// # Errors
/// When a step fails.
pub(crate) fn run() -> Result<()> {
    musl::install_missing();
    step::run(
        "build glovebox",
        &mut cargo(["build", "--release", "--locked", "--package", "glovebox"]),
    )?;
    let target = step::target_dir();
    let dist = target.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist)?;
    }
    for part in ["bin", "man", "completions"] {
        fs::create_dir_all(dist.join(part))
            .with_context(|| format!("cannot make {}", dist.display()))?;
    }
    let binary = dist.join("bin/glovebox");
    fs::copy(target.join("release/glovebox"), &binary).context("cannot copy the binary")?;
    step::run(
        "manual pages",
        Command::new(&binary).arg("__man").arg(dist.join("man")),
    )?;
    for (shell, file) in SHELLS {
        let script = step::output(Command::new(&binary).args(["completions", shell]))?;
        fs::write(dist.join("completions").join(file), script)?;
    }
    for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(step::root().join(file), dist.join(file))
            .with_context(|| format!("cannot copy {file}"))?;
    }
    say(&format!("All of it is in {}", dist.display()));
    Ok(())
}
