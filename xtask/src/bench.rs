//! `cargo xtask bench`: measurements compared with plain spawn, bubblewrap and crun, in one run.

use crate::step::{self, cargo};
use crate::{clients, musl, packages};
use anyhow::{Result, bail};
use clap::Args;

/// Options of `cargo xtask bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Install nothing
    #[arg(long)]
    no_install: bool,
    /// Fail when a promise of SPECIFICATION.md is broken
    #[arg(long)]
    check: bool,
    /// Store the results in benches/results.json, and make docs/benchmarks.md and the tables of SPECIFICATION.md anew
    #[arg(long)]
    publish: bool,
    /// Passed on to the benches
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Runs the benches, which print a table and store JSON.
///
/// # Errors
/// If they cannot be built, or fail.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    if !args.no_install {
        packages::install_missing()?;
        musl::install_missing();
        clients::install_rivals();
    }
    if !step::root().join("benches/Cargo.toml").exists() {
        bail!("there are no benches in this tree");
    }
    let binary = step::build_shipped()?;
    let mut benches = cargo([
        "run",
        "--locked",
        "--profile",
        step::SHIPPED_PROFILE,
        "--package",
        "glovebox-benches",
        "--",
    ]);
    if args.check {
        benches.arg("--check");
    }
    if args.publish {
        benches.arg("--publish").arg(step::root());
    }
    benches
        .args(&args.args)
        .env("GLOVEBOX_TEST_BIN", binary)
        .env("GLOVEBOX_BENCH_RIVALS", clients::rivals());
    step::run("measure", &mut benches)
}
