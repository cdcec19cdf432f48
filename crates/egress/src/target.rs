//! A host that a connection may go to, with the addresses that were checked.

use crate::name::Name;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take to be connected to, over all its addresses.
const DIAL_WAIT: Duration = Duration::from_secs(15);

/// Where a connection goes.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: Name,
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Target {
    /// Connects to the first of its addresses that answers.
    pub(crate) async fn dial(&self) -> io::Result<TcpStream> {
        let all = async {
            let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
            for address in &self.addresses {
                match TcpStream::connect(SocketAddr::new(*address, self.port)).await {
                    Ok(stream) => {
                        let _ = stream.set_nodelay(true);
                        return Ok(stream);
                    }
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        };
        timeout(DIAL_WAIT, all)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
