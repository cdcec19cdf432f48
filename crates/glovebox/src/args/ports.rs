//! Arguments of `ports` and `expose`.

use clap::Args;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// List the ports that servers of a sandbox listen on
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  glovebox ports work\n  glovebox ports work --json")]
pub(crate) struct PortsArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
}

/// Reach a server of a sandbox from this machine
#[derive(Debug, Args)]
#[command(
    long_about = "Reach a server of a sandbox from this machine.\n\n\
        A port of this machine leads to a port of the sandbox until the command is interrupted or the sandbox ends. \
        Without --listen that is the port of the same number on 127.0.0.1, or a free one when somebody has it.",
    after_help = "Examples:\n  glovebox expose work 3000\n  glovebox expose work 3000 --listen 127.0.0.1:8080\n  \
        glovebox expose work 3000 --json",
    allow_missing_positional = true
)]
pub(crate) struct ExposeArgs {
    /// Address of this machine to listen at, with or without a port; port 0 is a free one
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_listen, default_value = "127.0.0.1")]
    pub listen: Listen,
    /// Print the address as JSON
    #[arg(long)]
    pub json: bool,
    /// The sandbox; `.` is the one of the project you are in [default: .]
    #[arg(value_name = "NAME", default_value = ".", hide_default_value = true)]
    pub name: String,
    /// The port of the server in the sandbox
    #[arg(value_name = "PORT", required = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
}

/// Address and port to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen {
    /// Address of this machine.
    pub address: IpAddr,
    /// Port; 0 for a free one. None: the server's own number, or a free one.
    pub port: Option<u16>,
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Listen {
            address,
            port: None,
        });
    }
    match text.parse::<SocketAddr>() {
        Ok(socket) => Ok(Listen {
            address: socket.ip(),
            port: Some(socket.port()),
        }),
        Err(_) => Err(format!(
            "`{text}` is no address of this machine; write {0}, {0}:8080 or [::1]:8080",
            Ipv4Addr::LOCALHOST
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_with_or_without_a_port() {
        for (text, address, port) in [
            ("127.0.0.1", "127.0.0.1", None),
            ("0.0.0.0:8080", "0.0.0.0", Some(8080)),
            ("[::1]:80", "::1", Some(80)),
            ("::1", "::1", None),
            ("127.0.0.1:0", "127.0.0.1", Some(0)),
        ] {
            let listen = parse_listen(text).unwrap();
            assert_eq!(
                (listen.address.to_string().as_str(), listen.port),
                (address, port),
                "{text}"
            );
        }
        for text in ["", "8080", "localhost", "127.0.0.1:65536", "::1:"] {
            assert!(parse_listen(text).is_err(), "{text}");
        }
    }
}
