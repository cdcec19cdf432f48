//! Classification of addresses, including IPv4 addresses that are embedded in IPv6 addresses.
//!
//! Input: an address that a name resolved to or that was requested. Output: its kind. Addresses
//! outside the public internet need a rule that allows them. The ranges are those of the registries
//! of special-purpose addresses (RFC 6890), with later additions.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Kind of network that an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressKind {
    /// The public internet.
    Public,
    /// This machine, its networks, or the networks of an organisation.
    Private,
    /// Not a single machine, or a service that hands out credentials of this machine. No rule
    /// allows these.
    Never,
}

/// Returns the kind of an address.
pub fn kind(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => kind_of_v4(address),
        IpAddr::V6(address) => kind_of_v6(address),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> AddressKind {
    let [a, b, c, _] = address.octets();
    let is_metadata = matches!(
        address.octets(),
        [169, 254, 169, 254] | [169, 254, 170, 2 | 23] | [100, 100, 100, 200] | [168, 63, 129, 16]
    );
    if is_metadata || address.is_multicast() || a == 0 || a >= 240 {
        return AddressKind::Never;
    }
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_for_protocols = matches!((a, b, c), (192, 0, 0) | (192, 88, 99));
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    if address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_for_protocols
        || is_benchmark
    {
        return AddressKind::Private;
    }
    AddressKind::Public
}

fn kind_of_v6(address: Ipv6Addr) -> AddressKind {
    let segments = address.segments();
    if let Some(inner) = embedded(address) {
        // The translator and its destination are unknown here. The kind of the inner address
        // decides, so that embedding never makes an address more accessible.
        return match kind_of_v4(inner) {
            // The prefix 64:ff9b:1::/48 is for local use (RFC 8215). Each network chooses where the
            // inner address stands, so that it cannot be located reliably.
            AddressKind::Public if segments[..3] == [0x0064, 0xff9b, 1] => AddressKind::Private,
            kind => kind,
        };
    }
    if address.is_unspecified() || address.is_multicast() {
        return AddressKind::Never;
    }
    // IPv6 addresses of the same metadata services.
    if segments == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]
        || segments == [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
    {
        return AddressKind::Never;
    }
    // Global unicast is 2000::/3, without the ranges for documentation and for protocols.
    let is_global = segments[0] & 0xe000 == 0x2000;
    let is_documentation = segments[0] == 0x2001 && segments[1] == 0x0db8
        || segments[0] == 0x3fff && segments[1] < 0x1000;
    let is_for_protocols = segments[0] == 0x2001 && segments[1] < 0x0200;
    if is_global && !is_documentation && !is_for_protocols {
        AddressKind::Public
    } else {
        AddressKind::Private
    }
}

/// Returns the IPv4 address that an IPv6 address embeds: mapped and compatible (RFC 4291), NAT64
/// (RFC 6052, 8215), 6to4 (RFC 3056), Teredo (RFC 4380), ISATAP (RFC 5214). `None` if it embeds
/// none.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let at = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        // `::` and `::1` look like compatible addresses, but are the unspecified and the loopback
        // address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x0064, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x0064, 0xff9b, 1, _, _, _, high, low]
        | [_, _, _, _, 0 | 0x0200, 0x5efe, high, low]
        | [0x2002, high, low, ..] => Some(at(high, low)),
        [0x2001, 0, .., high, low] => Some(at(!high, !low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_internet_is_told_from_the_rest() {
        let kinds = [
            (
                AddressKind::Public,
                &[
                    "1.1.1.1",
                    "93.184.216.34",
                    "2606:4700::1111",
                    "2002:101:101::",
                ][..],
            ),
            (
                AddressKind::Private,
                &[
                    "127.0.0.1",
                    "127.9.9.9",
                    "10.0.0.1",
                    "172.16.0.1",
                    "172.31.255.255",
                    "192.168.1.1",
                    "169.254.1.1",
                    "100.64.0.1",
                    "192.0.0.8",
                    "192.0.2.1",
                    "198.18.0.1",
                    "198.51.100.1",
                    "203.0.113.1",
                    "::1",
                    "fe80::1",
                    "fc00::1",
                    "fd12::1",
                    "2001:db8::1",
                    "3fff::1",
                    "2001:2::1",
                    "::ffff:127.0.0.1",
                    "::127.0.0.1",
                    "64:ff9b::10.0.0.1",
                    "64:ff9b:1::10.0.0.1",
                    "64:ff9b:1:a00:0:100:808:808",
                    "2002:7f00:1::",
                    "2002:a00:1::",
                    "2001:0:1:2:3:4:80ff:fffe",
                    "fe80::5efe:10.0.0.1",
                    "2606:4700::5efe:10.0.0.1",
                    "::ffff:0:10.0.0.1",
                    "4000::1",
                    "100::1",
                ][..],
            ),
            (
                AddressKind::Never,
                &[
                    "0.0.0.0",
                    "0.1.2.3",
                    "224.0.0.1",
                    "239.1.1.1",
                    "240.0.0.1",
                    "255.255.255.255",
                    "169.254.169.254",
                    "100.100.100.200",
                    "168.63.129.16",
                    "::",
                    "ff02::1",
                    "::ffff:169.254.169.254",
                    "64:ff9b::169.254.169.254",
                    "2002:a9fe:a9fe::",
                    "fd00:ec2::254",
                ][..],
            ),
        ];
        for (want, addresses) in kinds {
            for text in addresses {
                assert_eq!(kind(text.parse().unwrap()), want, "{text}");
            }
        }
    }
}
