//! Attempts of commands to use a network that their sandbox does not have, for the report of a
//! failed command.
//!
//! In: the questions to the sandbox's own [`Resolver`], and the kernel's counters of packets
//! without a route in the sandbox's network namespace. All commands of a sandbox share that
//! namespace, so a count belongs to the time in which a command ran, not to the command.

use crate::resolver::{AskedCount, AskedNames, Resolver};
use rustix::fd::OwnedFd;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Counter tables per address family, and the function that reads the number of attempts from each.
const TABLES: [(&str, ReadCount); 2] = [
    ("/proc/self/net/snmp", read_ipv4),
    ("/proc/self/net/snmp6", read_ipv6),
];
type ReadCount = fn(&str) -> Option<u64>;
/// Bytes read of a table. The counters are in its first lines, within 1 KiB.
const TABLE_BYTES: usize = 4096;

/// Counts at the start of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetworkMark {
    asked: Option<AskedCount>,
    /// Packets without a route; `None` if the kernel offers no counter.
    unrouted: Option<u64>,
}

/// Attempts since a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkNews {
    /// Names looked up; `None` if there were none or the sandbox has no resolver of its own.
    pub(crate) names: Option<AskedNames>,
    /// Number of connection attempts to outside addresses.
    pub(crate) connections: u64,
}

/// Watcher of a sandbox that has no network, or one that reaches only some names.
#[derive(Debug)]
pub(crate) struct NetworkUse {
    /// The sandbox's resolver; `None` if another process answers name lookups.
    resolver: Option<Resolver>,
    counters: Counters,
    /// Counter as read while no command ran.
    unrouted: Option<u64>,
    /// True if no command has started since `unrouted` was read.
    is_current: bool,
}

impl NetworkUse {
    /// Creates a watcher. `socket` is the bound socket of the resolver in the sandbox's network
    /// namespace.
    pub(crate) fn new(socket: Option<OwnedFd>) -> Self {
        Self {
            resolver: socket.map(Resolver::new),
            counters: Counters::open(),
            unrouted: None,
            is_current: false,
        }
    }

    pub(crate) const fn resolver(&self) -> Option<&Resolver> {
        self.resolver.as_ref()
    }

    /// Answers the questions that have arrived.
    pub(crate) fn answer_questions(&mut self) {
        if let Some(resolver) = &mut self.resolver {
            resolver.answer_questions();
        }
    }

    /// Reads the counters while no command runs, so that the start of the next one is not delayed.
    pub(crate) fn read_idle(&mut self) {
        if !std::mem::replace(&mut self.is_current, true) {
            self.unrouted = self.counters.read();
        }
    }

    /// Returns the counts at the start of a command.
    pub(crate) fn mark(&mut self) -> NetworkMark {
        if !std::mem::take(&mut self.is_current) {
            self.unrouted = self.counters.read();
        }
        NetworkMark {
            asked: self.resolver.as_ref().map(Resolver::asked),
            unrouted: self.unrouted,
        }
    }

    /// Returns the attempts since `then`; `None` if there were none.
    pub(crate) fn news_since(&mut self, then: NetworkMark) -> Option<NetworkNews> {
        // A question whose sender did not wait may still be in the socket.
        self.answer_questions();
        let connections = match (then.unrouted, self.counters.read()) {
            (Some(then), Some(now)) => now.saturating_sub(then),
            _ => 0,
        };
        let news = NetworkNews {
            names: self
                .resolver
                .as_ref()
                .zip(then.asked)
                .and_then(|(resolver, then)| resolver.asked_since(then)),
            connections,
        };
        (news.names.is_some() || news.connections > 0).then_some(news)
    }
}

/// Counter tables of this network namespace. They stay open and are read with one call each,
/// because they are read after every command: opening them and reading in pieces took four times as
/// long.
#[derive(Debug)]
struct Counters(Vec<(File, ReadCount)>);

impl Counters {
    fn open() -> Self {
        // A kernel without IPv6 has no table for it.
        let open = |(path, read)| File::open(path).ok().map(|table| (table, read));
        Self(TABLES.into_iter().filter_map(open).collect())
    }

    /// Returns how many packets of this network namespace had no route; `None` if no counter can be
    /// read.
    fn read(&self) -> Option<u64> {
        let counts = self.0.iter().filter_map(|(table, read_count)| {
            let mut buffer = [0; TABLE_BYTES];
            let length = table.read_at(&mut buffer, 0).ok()?;
            read_count(std::str::from_utf8(buffer.get(..length)?).ok()?)
        });
        counts.reduce(u64::saturating_add)
    }
}

/// Parses `OutNoRoutes` from a line of names and a line of values (proc_net(5)).
fn read_ipv4(table: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Ip:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names
        .split_whitespace()
        .position(|name| name == "OutNoRoutes")?;
    values.split_whitespace().nth(column)?.parse().ok()
}

/// Parses `Ip6OutNoRoutes` from lines of a name and a value.
fn read_ipv6(table: &str) -> Option<u64> {
    table.lines().find_map(|line| {
        let value = line.strip_prefix("Ip6OutNoRoutes")?;
        value.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read_by_name() {
        let table = "Ip: Forwarding OutRequests OutNoRoutes ReasmFails\nIp: 1 20 7 0\nIcmp: InMsgs\nIcmp: 3\n";
        assert_eq!(read_ipv4(table), Some(7));
        assert_eq!(read_ipv4("Ip: Forwarding\nIp: 1\n"), None);
        assert_eq!(read_ipv4("Ip: OutNoRoutes\n"), None);
        let table = "Ip6InReceives   \t4\nIp6OutNoRoutes                  \t9\n";
        assert_eq!(read_ipv6(table), Some(9));
        assert_eq!(read_ipv6(""), None);
    }

    #[test]
    fn this_kernel_counts_what_has_no_route() {
        assert!(Counters::open().read().is_some());
    }
}
