//! `cargo xtask check`: formatting, lints, licences and advisories.

use crate::step::{self, cargo, has_program, is_ci, say};
use anyhow::Result;

/// Runs every check whose tool is installed.
///
/// # Errors
/// At the first check that fails.
pub(crate) fn run() -> Result<()> {
    if cargo(["fmt", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        one("formatting", &["fmt", "--all", "--check"])?;
    } else {
        say("rustfmt is not installed: formatting is not checked");
    }
    if cargo(["clippy", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        one(
            "lints",
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "--deny",
                "warnings",
            ],
        )?;
    } else {
        say("clippy is not installed: lints are not checked");
    }
    if has_program("cargo-deny") {
        // Advisories come over the network; where there is none, the rest is still worth checking.
        let checks: &[&str] = if is_ci() {
            &["licenses", "bans", "sources"]
        } else {
            &["advisories", "licenses", "bans", "sources"]
        };
        one(
            "licences, bans and sources",
            &[&["deny", "check"], checks].concat(),
        )?;
    } else {
        say("cargo-deny is not installed: licences and advisories are not checked");
    }
    Ok(())
}

fn one(title: &str, args: &[&str]) -> Result<()> {
    step::run(title, &mut cargo(args))
}
