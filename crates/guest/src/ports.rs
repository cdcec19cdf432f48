//! Which ports servers of the sandbox listen on, from the kernel's tables of its network namespace.

use crate::fault;
use glovebox_proto::{Fault, ListeningPort, MAX_PORTS_LISTED, Reply};
use rustix::io::Errno;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The tables (proc_net(5)).
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Most bytes of a table that are read: about 10,000 sockets.
const MAX_TABLE_BYTES: u64 = 2 << 20;
/// The state of a listening socket (`TCP_LISTEN` of the kernel's tcp_states.h).
const LISTENING: &str = "0A";

/// Lists them, by number.
pub(crate) fn listening() -> Result<Reply, Fault> {
    let mut found = Vec::new();
    for path in TABLES {
        let mut table = String::new();
        let read = fs::File::open(path)
            .and_then(|file| file.take(MAX_TABLE_BYTES).read_to_string(&mut table));
        match read {
            Ok(_) => found.extend(table.lines().skip(1).filter_map(read_line)),
            // A kernel without IPv6 has no file for it.
            Err(error) if error.kind() == ErrorKind::NotFound && path != TABLES[0] => {}
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                return Err(fault::system(errno, &format!("cannot read {path}")));
            }
        }
    }
    found.sort_by_key(|found| (found.port, found.address));
    found.truncate(MAX_PORTS_LISTED);
    Ok(Reply::Ports(found))
}

/// Reads a line of a table: `sl local_address rem_address st ...`, the addresses in hexadecimal words of the
/// machine's byte order.
fn read_line(line: &str) -> Option<ListeningPort> {
    let mut fields = line.split_whitespace();
    let (local, state) = (fields.nth(1)?, fields.nth(1)?);
    if state != LISTENING {
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
    Some(ListeningPort {
        port: u16::from_str_radix(port, 16).ok()?,
        address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_listening_sockets_are_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x";
        let socket = read_line(line).unwrap();
        assert_eq!(
            (socket.port, socket.address.to_string().as_str()),
            (8080, "127.0.0.1")
        );
        let line = "  1: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 00000000:00000000 \
                    00:00000000 00000000  0 0 12 1 x";
        assert_eq!(read_line(line).unwrap().address.to_string(), "::1");
        for other in [
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            "   0: 0100007F:1F90 0100007F:1F91 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x",
            "   0: 01:1F90 00000000:0000 0A 0:0 0:0 0 0 0 1",
            "",
        ] {
            assert_eq!(read_line(other), None, "{other}");
        }
    }

    #[test]
    fn a_socket_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let Ok(Reply::Ports(ports)) = listening() else {
            panic!("no ports");
        };
        assert!(ports.iter().any(|found| found.port == port));
    }
}
