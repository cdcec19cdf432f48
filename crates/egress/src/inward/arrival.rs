//! Determines the destination of an accepted connection: the host that a stand-in address
//! represents, or the host that the program names to the proxy port.

use crate::inward::http_proxy::{self, ProxyRequest};
use crate::inward::socks;
use crate::peek::peek;
use crate::policy::name::Host;
use crate::relay;
use crate::relay::http_relay::{self, Requests};
use crate::relay::pump::reset;
use crate::state::ProxyState;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum time for a program to name its destination to the proxy port.
const ASKING_WAIT: Duration = Duration::from_secs(30);

/// Carries one accepted connection, which was made to `wanted`, until it ends.
pub(crate) async fn carry(stream: TcpStream, wanted: SocketAddrV4, state: &Arc<ProxyState>) {
    let _ = stream.set_nodelay(true);
    // Errors are not reported here: each end sees that the other broke off.
    let _ = if wanted == state.proxy() {
        carry_asked(stream, state).await
    } else {
        let host = state.host_at(*wanted.ip());
        let shown = host.as_ref().map_or_else(String::new, Host::to_string);
        if let Ok(target) = state.target(host, &shown, wanted.port()).await {
            relay::carry_to(stream, None, &target, state).await
        } else {
            reset(&stream);
            Ok(())
        }
    };
}

/// Carries a connection that was made to the proxy port. Its first byte tells SOCKS from HTTP.
async fn carry_asked(mut stream: TcpStream, state: &Arc<ProxyState>) -> io::Result<()> {
    let asking = async {
        let mut first = [0; 1];
        if peek(&stream, &mut first, 0).await? == 0 {
            return Ok(None);
        }
        if first == [socks::VERSION] {
            let connected = socks::serve(&mut stream, state).await?;
            return Ok(connected.map(|(target, server)| ProxyRequest::Tunnel(target, server)));
        }
        http_proxy::serve(&mut stream, state).await
    };
    let asked = timeout(ASKING_WAIT, asking).await;
    match asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
        Some(ProxyRequest::Tunnel(target, server)) => {
            relay::carry_to(stream, server, &target, state).await
        }
        Some(ProxyRequest::Request(target)) => {
            http_relay::carry(stream, None, &target, Requests::One, state).await
        }
        None => Ok(()),
    }
}
