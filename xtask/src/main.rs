//! Developer commands: `cargo xtask test`, `check`, `bench`, `fuzz`, `dist`, `web`, `requirements`.
//!
//! Each is a list of steps. A step is announced and runs an ordinary command. If the command fails,
//! the command line to repeat it is printed, and no later step runs.

mod bench;
mod check;
mod clients;
mod dist;
mod files;
mod fuzz;
mod heard;
mod kernel;
mod licences;
mod musl;
mod packages;
mod projects;
mod requirements;
mod step;
mod test;
mod web;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what the tests need, build, and run all of them; as root also as an ordinary user
    Test(test::TestArgs),
    /// Formatting, lints, the table of requirements, licences and advisories
    Check,
    /// Measure against plain spawn, bubblewrap and crun, and store the result
    Bench(bench::BenchArgs),
    /// Fuzz the decoders for a while (needs cargo-fuzz; takes a nightly toolchain where there is one)
    Fuzz(fuzz::FuzzArgs),
    /// Release binary, manual pages and completions in target/dist, as a tar and as a Debian package
    Dist(dist::DistArgs),
    /// Check and build the web interface, whose built files are committed; or try it in a browser
    Web(web::WebArgs),
    /// Write the page of the requirements and the tests that show them
    Requirements,
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Check => check::run(),
        Task::Bench(args) => bench::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Web(args) => web::run(&args),
        Task::Requirements => requirements::write(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            step::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
