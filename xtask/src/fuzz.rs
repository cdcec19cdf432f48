//! `cargo xtask fuzz`: coverage-guided fuzzing of the decoders.

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

/// Fuzzes each target for a while.
///
/// # Errors
/// When a target finds something, or the tools are missing.
pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    let dir = step::root().join("fuzz");
    if !dir.join("Cargo.toml").exists() {
        bail!("there are no fuzz targets in this tree");
    }
    if !has_program("cargo-fuzz") {
        bail!(
            "cargo-fuzz is not installed; get it with `cargo install cargo-fuzz`, and a nightly toolchain with rustup"
        );
    }
    let fuzz = |words: &[&str]| {
        // The variable of the toolchain that runs this would win over `+nightly`.
        let mut command: Command = cargo(["+nightly", "fuzz"]);
        command
            .args(words)
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO");
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
        step::run(
            &format!("fuzz {target}"),
            &mut fuzz(&["run", &target, "--", &limit]),
        )?;
    }
    Ok(())
}
