//! Ports that programs of the sandbox use, from the kernel's tables of its network namespace.

use crate::fault;
use glovebox_proto::Fault;
use rustix::io::Errno;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Tables of TCP (proc_net(5)).
const STREAM_TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Tables of UDP.
const DATAGRAM_TABLES: [&str; 2] = ["/proc/self/net/udp", "/proc/self/net/udp6"];
/// Maximum number of bytes read of a table: about 10,000 sockets.
const MAX_TABLE_BYTES: u64 = 2 << 20;
/// The state of a listening socket (`TCP_LISTEN` of the kernel's tcp_states.h).
const LISTENING: &str = "0A";

/// Socket that uses a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundSocket {
    /// The port.
    pub(crate) port: u16,
    /// Local address.
    pub(crate) address: IpAddr,
    /// Inode number, as in the links of /proc/PID/fd.
    pub(crate) inode: u64,
}

/// Lists the listening TCP sockets, sorted by port.
///
/// # Errors
/// A table cannot be read.
pub(crate) fn listening() -> Result<Vec<BoundSocket>, Fault> {
    let mut found = read_tables(STREAM_TABLES, |state| state == LISTENING)?;
    found.sort_by_key(|found| (found.port, found.address));
    Ok(found)
}

/// Lists the sockets that can cause a port to be in use: listening TCP sockets and all UDP sockets.
///
/// # Errors
/// A table cannot be read.
pub(crate) fn in_use() -> Result<Vec<BoundSocket>, Fault> {
    let mut found = listening()?;
    found.extend(read_tables(DATAGRAM_TABLES, |_| true)?);
    Ok(found)
}

fn read_tables(
    tables: [&str; 2],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<BoundSocket>, Fault> {
    let mut found = Vec::new();
    for path in tables {
        let mut table = String::new();
        let read = fs::File::open(path)
            .and_then(|file| file.take(MAX_TABLE_BYTES).read_to_string(&mut table));
        match read {
            Ok(_) => found.extend(
                table
                    .lines()
                    .skip(1)
                    .filter_map(|line| read_line(line, &is_wanted)),
            ),
            // A kernel without IPv6 has no table for it.
            Err(error) if error.kind() == ErrorKind::NotFound && path != tables[0] => {}
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                return Err(fault::system(errno, &format!("cannot read {path}")));
            }
        }
    }
    Ok(found)
}

/// Parses a line of a table: `sl local_address rem_address st tx_queue:rx_queue tr:tm->when
/// retrnsmt uid timeout inode`, with addresses in hexadecimal words of native byte order.
fn read_line(line: &str, is_wanted: impl Fn(&str) -> bool) -> Option<BoundSocket> {
    let mut fields = line.split_whitespace();
    let (local, state) = (fields.nth(1)?, fields.nth(1)?);
    if !is_wanted(state) {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let word = |at: usize| {
        let text = address.get(at..at + 8)?;
        u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes)
    };
    let address = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (number, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * number)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(BoundSocket {
        port: u16::from_str_radix(port, 16).ok()?,
        address,
        inode: fields.nth(5)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening_in(line: &str) -> Option<BoundSocket> {
        read_line(line, |state| state == LISTENING)
    }

    #[test]
    fn lines_of_listening_sockets_are_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x";
        let socket = listening_in(line).unwrap();
        assert_eq!(
            (socket.port, socket.address.to_string().as_str()),
            (8080, "127.0.0.1")
        );
        assert_eq!(socket.inode, 4711);
        let line = "  1: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 00000000:00000000 \
                    00:00000000 00000000  0 0 12 1 x";
        let socket = listening_in(line).unwrap();
        assert_eq!(
            (socket.address.to_string().as_str(), socket.inode),
            ("::1", 12)
        );
        for other in [
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            "   0: 0100007F:1F90 0100007F:1F91 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x",
            "   0: 01:1F90 00000000:0000 0A 0:0 0:0 0 0 0 1",
            "",
        ] {
            assert_eq!(listening_in(other), None, "{other}");
        }
    }

    #[test]
    fn sockets_of_this_process_are_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening().unwrap().iter().any(|found| found.port == port));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let is_it = |found: &BoundSocket| found.port == port;
        assert!(in_use().unwrap().iter().any(is_it));
    }
}
