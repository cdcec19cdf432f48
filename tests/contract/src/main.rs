//! Servers with the contracts of services that sandboxes may run on; commands run for real, as the
//! current user.

mod aio;
mod sprite_cli;
mod sprites;

use clap::{Parser, Subcommand};
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

/// Command line of the program.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    service: Service,
}

/// The service whose contract is kept.
#[derive(Debug, Subcommand)]
enum Service {
    /// An AIO Sandbox: one container with files and commands.
    Aio(aio::Options),
    /// Sprites of Fly: machines with names.
    Sprites(sprites::Options),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    // Under another name it is the program that users of a service have.
    let mut words = std::env::args();
    let name = words.next().unwrap_or_default();
    let name = Path::new(&name).file_name().and_then(OsStr::to_str);
    if let Some(form) = name.and_then(sprite_cli::Form::of_program) {
        let words: Vec<String> = words.collect();
        let code = sprite_cli::run(form, &words).await;
        // A thread may wait for input that never comes.
        std::process::exit(code.into());
    }
    match Arguments::parse().service {
        Service::Aio(options) => aio::serve(options).await?,
        Service::Sprites(options) => sprites::serve(options).await?,
    }
    Ok(ExitCode::SUCCESS)
}
