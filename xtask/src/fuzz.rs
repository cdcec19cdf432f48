//! `cargo xtask fuzz`: coverage-guided fuzzing of decoders, and of edits, rules and arguments.

use crate::step::{self, cargo, has_program};
use anyhow::{Result, bail};
use clap::Args;
use std::process::Command;

/// Options of `cargo xtask fuzz`.
#[derive(Debug, Args)]
pub(crate) struct FuzzArgs {
    /// The target; all of them when it is left out
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Returns the command `cargo +nightly WORD`.
fn nightly(word: &str) -> Command {
    // The toolchain that runs this program sets these variables, and they would override
    // `+nightly`.
    let mut command = cargo(["+nightly", word]);
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}

/// Returns true if rustup is installed and has a nightly toolchain.
fn has_nightly() -> bool {
    nightly("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Fuzzes each target for the given time.
///
/// # Errors
/// If a target finds something, or a tool is missing.
pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    let dir = step::root().join("fuzz");
    if !dir.join("Cargo.toml").exists() {
        bail!("there are no fuzz targets in this tree");
    }
    if !has_program("cargo-fuzz") {
        bail!("cargo-fuzz is not installed; get it with `cargo install cargo-fuzz`");
    }
    let has_nightly = has_nightly();
    let fuzz = |words: &[&str]| {
        if has_nightly {
            let mut command = nightly("fuzz");
            command.args(words);
            return command;
        }
        // Sanitizers are unstable compiler flags. With RUSTC_BOOTSTRAP the stable compiler accepts
        // them.
        let mut command = cargo(["fuzz"]);
        command.args(words).env("RUSTC_BOOTSTRAP", "1");
        command
    };
    let targets = match &args.target {
        Some(target) => vec![target.clone()],
        None => step::output(&mut fuzz(&["list"]))?
            .lines()
            .map(str::to_owned)
            .collect(),
    };
    let limit = format!("-max_total_time={}", args.seconds);
    for target in targets {
        let mut run = fuzz(&["run", &target, "--", &limit]);
        // SQLite has two static tables of one name, which the sanitizer takes for a double
        // definition.
        run.env("ASAN_OPTIONS", "detect_odr_violation=0");
        step::run(&format!("fuzz {target}"), &mut run)?;
    }
    Ok(())
}
