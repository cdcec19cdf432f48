//! Address of this machine in its network, for tests that need an address that is not loopback's.

use std::net::{IpAddr, UdpSocket};

/// Returns the address of this machine in its network; nothing is sent to find it. None if there is
/// none.
pub fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}
