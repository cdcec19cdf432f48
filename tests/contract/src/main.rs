//! Servers with the contracts of services that sandboxes may run on; commands run for real, as the
//! current user.

mod aio;
mod sprites;

use clap::{Parser, Subcommand};

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
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().service {
        Service::Aio(options) => aio::serve(options).await,
        Service::Sprites(options) => sprites::serve(options).await,
    }
}
