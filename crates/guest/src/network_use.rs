//! What commands tried over a network that their sandbox does not have: facts for the report of one that failed.
//!
//! In: the questions of the sandbox's own [`Resolver`], and the kernel's counters of packets for which there was no
//! route, of the sandbox's network namespace. All commands of a sandbox share that namespace, so a fact is about
//! the time in which a command ran, not about the command.

use crate::resolver::{AskedCount, AskedNames, Resolver};
use rustix::fd::OwnedFd;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// The kernel's tables per address family, and how to read the number of attempts in each.
const TABLES: [(&str, ReadCount); 2] = [
    ("/proc/self/net/snmp", read_ipv4),
    ("/proc/self/net/snmp6", read_ipv6),
];
type ReadCount = fn(&str) -> Option<u64>;
/// How much of a table is read. What is looked for stands in its first lines, within 1 KiB.
const TABLE_BYTES: usize = 4096;

/// What had been tried at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetworkMark {
    asked: Option<AskedCount>,
    /// `None` where the kernel does not tell.
    unrouted: Option<u64>,
}

/// What was tried since then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkNews {
    /// Names that were asked for.
    pub(crate) names: Option<AskedNames>,
    /// Connections that were tried to addresses outside.
    pub(crate) connections: u64,
}

/// Watches a sandbox without network, or with one that reaches some names only.
#[derive(Debug)]
pub(crate) struct NetworkUse {
    /// `None` where somebody else answers questions for names.
    resolver: Option<Resolver>,
    counters: Counters,
    /// The counter as it was read while nothing ran.
    unrouted: Option<u64>,
    /// No command has started since that was read.
    is_current: bool,
}

impl NetworkUse {
    /// For a bound socket, where questions for names arrive, of the sandbox's own network namespace.
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

    /// Reads the counters while no command runs, so that the start of the next one need not wait for that.
    pub(crate) fn read_idle(&mut self) {
        if !std::mem::replace(&mut self.is_current, true) {
            self.unrouted = self.counters.read();
        }
    }

    /// The state of things at the start of a command.
    pub(crate) fn mark(&mut self) -> NetworkMark {
        if !std::mem::take(&mut self.is_current) {
            self.unrouted = self.counters.read();
        }
        NetworkMark {
            asked: self.resolver.as_ref().map(Resolver::asked),
            unrouted: self.unrouted,
        }
    }

    /// What was tried since `then`; `None` for nothing.
    pub(crate) fn news_since(&mut self, then: NetworkMark) -> Option<NetworkNews> {
        // A question that nobody waited for may still be there.
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

/// The tables of this network namespace. They stay open, and one call reads each: they are read after every command,
/// and to look them up and read them piece by piece took four times as long.
#[derive(Debug)]
struct Counters(Vec<(File, ReadCount)>);

impl Counters {
    fn open() -> Self {
        // A kernel without IPv6 has no file for it.
        let open = |(path, read)| File::open(path).ok().map(|table| (table, read));
        Self(TABLES.into_iter().filter_map(open).collect())
    }

    /// How often the kernel had no route for what this network namespace wanted to send.
    fn read(&self) -> Option<u64> {
        let counts = self.0.iter().filter_map(|(table, read_count)| {
            let mut buffer = [0; TABLE_BYTES];
            let length = table.read_at(&mut buffer, 0).ok()?;
            read_count(std::str::from_utf8(buffer.get(..length)?).ok()?)
        });
        counts.reduce(u64::saturating_add)
    }
}

/// `OutNoRoutes` of two lines of names and values (proc_net(5)).
fn read_ipv4(table: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Ip:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names
        .split_whitespace()
        .position(|name| name == "OutNoRoutes")?;
    values.split_whitespace().nth(column)?.parse().ok()
}

/// `Ip6OutNoRoutes` of lines of a name and a value.
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
