//! Servers with the contracts of services that sandboxes may run on; commands run for real, as the
//! current user.

mod aio;

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
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().service {
        Service::Aio(options) => aio::serve(options).await,
    }
}
