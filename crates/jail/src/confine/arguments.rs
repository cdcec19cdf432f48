//! Addresses in the arguments of calls about sockets. Pure functions on bytes that a process wrote.

use rustix::io::Errno;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// Maximum length of an address in bytes (`struct sockaddr_storage`).
pub(super) const MAX_ADDRESS_BYTES: usize = 128;
/// Lengths of `sockaddr_in`, of `sockaddr_in6` without its last field, which the kernel takes too,
/// and of `sockaddr_nl`.
const V4_BYTES: usize = 16;
const V6_BYTES: usize = 24;
const NETLINK_BYTES: usize = 12;

/// Address of a socket, as a call names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    Unspecified,
    V4(SocketAddrV4),
    V6(Ipv6Addr, u16),
    Netlink { port: u32, groups: u32 },
}

/// Side of a sandbox's loopback: each has an address that stands for 127.0.0.1 or for ::1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    V4,
    V6,
}

/// Parses a socket address.
///
/// # Errors
/// `INVAL` if it is too short; `AFNOSUPPORT` for a family that no socket of a sandbox has.
pub(super) fn parse_address(bytes: &[u8]) -> Result<Address, Errno> {
    let family = bytes.first_chunk::<2>().ok_or(Errno::INVAL)?;
    let has = |len: usize| {
        if bytes.len() < len {
            Err(Errno::INVAL)
        } else {
            Ok(())
        }
    };
    let port = || u16::from_be_bytes([bytes[2], bytes[3]]);
    let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_UNSPEC => Ok(Address::Unspecified),
        libc::AF_INET => {
            has(V4_BYTES)?;
            let address = Ipv4Addr::from(word(4));
            Ok(Address::V4(SocketAddrV4::new(address, port())))
        }
        libc::AF_INET6 => {
            has(V6_BYTES)?;
            let mut address = [0; 16];
            address.copy_from_slice(&bytes[8..24]);
            Ok(Address::V6(Ipv6Addr::from(address), port()))
        }
        libc::AF_NETLINK => {
            has(NETLINK_BYTES)?;
            Ok(Address::Netlink {
                port: u32::from_ne_bytes(word(4)),
                groups: u32::from_ne_bytes(word(8)),
            })
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// Returns the side of the sandbox's loopback that an IPv4 address means. `own_v6` is the address
/// that stands for ::1. `None` for an address that is not of the loopback.
pub(super) fn side_of_v4(address: Ipv4Addr, own_v6: Ipv4Addr) -> Option<Side> {
    if address == own_v6 {
        Some(Side::V6)
    } else if address.is_loopback() || address.is_unspecified() {
        Some(Side::V4)
    } else {
        None
    }
}

/// Returns the side of the sandbox's loopback that an IPv6 address means. `any` is the side of `::`.
pub(super) fn side_of_v6(address: Ipv6Addr, own_v6: Ipv4Addr, any: Side) -> Option<Side> {
    if address.is_unspecified() {
        Some(any)
    } else if address.is_loopback() {
        Some(Side::V6)
    } else {
        side_of_v4(address.to_ipv4_mapped()?, own_v6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let v4 = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let expected = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080);
        assert_eq!(parse_address(&v4), Ok(Address::V4(expected)));
        assert_eq!(parse_address(&v4[..15]), Err(Errno::INVAL));
        assert_eq!(parse_address(&v4[..1]), Err(Errno::INVAL));
        assert_eq!(parse_address(&[0, 0]), Ok(Address::Unspecified));
        let mut v6 = [0; 28];
        v6[0] = 10;
        v6[2..4].copy_from_slice(&80_u16.to_be_bytes());
        v6[23] = 1;
        assert_eq!(parse_address(&v6), Ok(Address::V6(Ipv6Addr::LOCALHOST, 80)));
        assert_eq!(parse_address(&v6[..23]), Err(Errno::INVAL));
        assert_eq!(parse_address(&[40, 0, 0, 0]), Err(Errno::AFNOSUPPORT));
    }

    #[test]
    fn only_loopback_addresses_have_a_side() {
        let own_v6 = Ipv4Addr::new(127, 64, 0, 2);
        let v4 = |text: &str| side_of_v4(text.parse().unwrap(), own_v6);
        let v6 = |text: &str| side_of_v6(text.parse().unwrap(), own_v6, Side::V4);
        assert_eq!(v4("127.0.0.1"), Some(Side::V4));
        assert_eq!(v4("127.64.0.2"), Some(Side::V6));
        assert_eq!(v4("0.0.0.0"), Some(Side::V4));
        for outside in [
            "10.0.0.1",
            "128.0.0.1",
            "126.255.255.255",
            "0.0.0.1",
            "198.18.0.1",
        ] {
            assert_eq!(v4(outside), None, "{outside}");
            assert_eq!(v6(&format!("::ffff:{outside}")), None, "{outside}");
        }
        assert_eq!(v6("::1"), Some(Side::V6));
        assert_eq!(v6("::"), Some(Side::V4));
        assert_eq!(v6("::ffff:127.0.0.1"), Some(Side::V4));
        for outside in ["::127.0.0.1", "fe80::1", "64:ff9b::7f00:1", "2002:7f00:1::"] {
            assert_eq!(v6(outside), None, "{outside}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_address_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
            let _ = parse_address(&bytes);
        }
    }
}
