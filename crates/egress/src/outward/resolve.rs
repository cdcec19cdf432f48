//! Resolves names to addresses that may be dialled.
//!
//! If a name were looked up again for the connection, it could lead elsewhere by then (DNS
//! rebinding). Therefore the checked addresses are cached for a short time, and connections go to
//! these addresses.

use crate::policy::address::{AddressKind, kind};
use crate::policy::name::{Host, Name};
use crate::policy::rule::{Reach, Rule};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The machine's hosts file, hosts(5).
const HOSTS: &str = "/etc/hosts";
/// Maximum number of bytes that are read of [`HOSTS`].
const MAX_HOSTS_BYTES: u64 = 4 << 20;
/// Time for which addresses are cached.
const KEPT: Duration = Duration::from_secs(30);
/// Maximum time for a lookup by the host's resolver.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time for a lookup if a proxy of the machine may know the name.
const PROXY_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 16;
/// Maximum number of cached names.
const MAX_KEPT: usize = 1000;

/// Source of addresses for names.
pub trait Resolve: Send + Sync + std::fmt::Debug {
    /// Returns the addresses of a name. May block.
    ///
    /// # Errors
    /// Errors of the system's resolver.
    fn addresses(&self, name: &Name) -> io::Result<Vec<IpAddr>>;
}

/// The host's own resolver, preceded by `/etc/hosts` (hosts(5)).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn addresses(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
        // The hosts file is read here because it lists names without the root's dot that is
        // appended below. Names of a VPN or of a container's `--add-host` are found only in it.
        let listed = addresses_in_hosts(&read_hosts(), name);
        if !listed.is_empty() {
            return Ok(listed);
        }
        // The trailing dot makes the name absolute, so that no search list (resolv.conf(5))
        // applies.
        let found = (format!("{name}."), 0).to_socket_addrs()?;
        Ok(found.map(|found| found.ip()).collect())
    }
}

/// Returns the text of the hosts file, or an empty string if it cannot be read. It is read for
/// every lookup because it may change; results are cached anyway.
fn read_hosts() -> String {
    let mut text = Vec::new();
    let _ = File::open(HOSTS).and_then(|file| file.take(MAX_HOSTS_BYTES).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the addresses of the lines that list `name`, in the order of the lines.
fn addresses_in_hosts(text: &str, name: &Name) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split('#').next()?.split_ascii_whitespace();
            let address = fields.next()?.parse().ok()?;
            fields
                .any(|listed| listed.eq_ignore_ascii_case(name.as_str()))
                .then_some(address)
        })
        .collect()
}

/// Reason for which a host has no address that may be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveError {
    /// All addresses of the host are of a kind that the rule does not allow.
    Forbidden,
    /// The name does not resolve.
    Unknown,
    /// The resolver of this machine did not answer in time.
    NoAnswer,
}

/// Resolver with a short-lived cache.
#[derive(Debug)]
pub struct Resolver {
    source: Arc<dyn Resolve>,
    kept: Mutex<HashMap<Name, (Instant, Vec<IpAddr>)>>,
}

impl Resolver {
    /// Creates a resolver that looks names up in `source`.
    pub fn new(source: Arc<dyn Resolve>) -> Self {
        Self {
            source,
            kept: Mutex::default(),
        }
    }

    /// Returns the addresses that may be dialled for `host` under `rule`; at least one.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn targets(&self, host: &Host, rule: &Rule) -> Result<Vec<IpAddr>, ResolveError> {
        self.targets_within(host, rule, PATIENCE).await
    }

    /// Returns addresses like [`Self::targets`] for a host that a proxy of the machine may resolve.
    /// The lookup has less time, and a name that is not found is cached as unknown, so that not
    /// every connection waits for the resolver.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub(crate) async fn targets_beside_proxy(
        &self,
        host: &Host,
        rule: &Rule,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        let found = self.targets_within(host, rule, PROXY_PATIENCE).await;
        if let (Err(ResolveError::Unknown | ResolveError::NoAnswer), Host::Name(name)) =
            (&found, host)
        {
            self.keep(name, Vec::new());
        }
        found
    }

    async fn targets_within(
        &self,
        host: &Host,
        rule: &Rule,
        patience: Duration,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        if let Reach::Pinned(address) = rule.reach() {
            return Ok(vec![address]);
        }
        let found = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.look_up(name, patience).await?,
        };
        // An address that a rule lists literally may be private: its author chose it.
        let is_listed = matches!(host, Host::Address(_)) && rule.matches_host(host);
        let may_be_private = is_listed || rule.reach() == Reach::Private;
        let is_fine = |address: &IpAddr| match kind_from_here(*address) {
            AddressKind::Public => true,
            AddressKind::Private => may_be_private,
            AddressKind::Never => false,
        };
        if found.is_empty() {
            return Err(ResolveError::Unknown);
        }
        let fine: Vec<_> = found
            .into_iter()
            .filter(is_fine)
            .take(MAX_ADDRESSES)
            .collect();
        if fine.is_empty() {
            return Err(ResolveError::Forbidden);
        }
        Ok(fine)
    }

    /// Returns all addresses of a host, including those that may not be dialled.
    pub(crate) async fn all(&self, host: &Host) -> Vec<IpAddr> {
        let mut found = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.look_up(name, PATIENCE).await.unwrap_or_default(),
        };
        found.truncate(MAX_ADDRESSES);
        found
    }

    async fn look_up(&self, name: &Name, patience: Duration) -> Result<Vec<IpAddr>, ResolveError> {
        if let Some(addresses) = self.find_kept(name) {
            return Ok(addresses);
        }
        let (source, asked) = (Arc::clone(&self.source), name.clone());
        let asking = tokio::task::spawn_blocking(move || source.addresses(&asked));
        let found = tokio::time::timeout(patience, asking)
            .await
            .map_err(|_| ResolveError::NoAnswer)?
            .ok()
            .and_then(Result::ok)
            .ok_or(ResolveError::Unknown)?;
        Ok(self.keep(name, found))
    }

    /// Caches `found` and returns the cached addresses. If a concurrent lookup has cached other
    /// addresses, these are returned, so that all connections use the same ones.
    fn keep(&self, name: &Name, found: Vec<IpAddr>) -> Vec<IpAddr> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        let (_, addresses) = kept.entry(name.clone()).or_insert((Instant::now(), found));
        addresses.clone()
    }

    fn find_kept(&self, name: &Name) -> Option<Vec<IpAddr>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (when, addresses) = kept.get(name)?;
        if when.elapsed() < KEPT {
            return Some(addresses.clone());
        }
        kept.remove(name);
        None
    }
}

/// Returns the kind of an address as seen from this machine: an address of this machine is private
/// even if it is public. A connection from here to it would pass firewalls, as one to loopback
/// does.
pub(crate) fn kind_from_here(address: IpAddr) -> AddressKind {
    match kind(address) {
        AddressKind::Public if is_of_this_machine(address) => AddressKind::Private,
        kind => kind,
    }
}

/// Returns true if this machine has the address. The kernel chooses an address as the source of a
/// connection to itself. Connecting a UDP socket sends no packet (udp(7)).
fn is_of_this_machine(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let reached_from = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    reached_from().is_ok_and(|local| local.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Answers public at first and this machine from then on, as one does who wants to get in (rebinding).
    #[derive(Debug, Default)]
    struct Rebinding(AtomicUsize);

    impl Resolve for Rebinding {
        fn addresses(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
            let text = match (name.as_str(), self.0.fetch_add(1, Ordering::Relaxed)) {
                ("mixed.example", _) => {
                    return Ok(vec![
                        "127.0.0.1".parse().unwrap(),
                        "1.1.1.1".parse().unwrap(),
                    ]);
                }
                ("none.example", _) => return Err(io::ErrorKind::NotFound.into()),
                (_, 0) => "1.1.1.1",
                _ => "127.0.0.1",
            };
            Ok(vec![text.parse().unwrap()])
        }
    }

    fn targets(resolver: &Resolver, rule: &str, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let host = Host::parse(host).unwrap();
        runtime.block_on(resolver.targets(&host, &rule.parse().unwrap()))
    }

    #[test]
    fn hosts_file_lists_whole_names_in_any_case() {
        let text = "127.0.0.1 localhost\n# 10.0.0.9 db.example\n10.0.0.1\tDB.Example db # main\n\
                    nonsense db.example\nfd00::1 db.example\n10.0.0.2 old.db.example\n";
        let found = |name: &str| addresses_in_hosts(text, &Name::parse(name).unwrap());
        let addresses = |list: &[&str]| -> Vec<IpAddr> {
            list.iter()
                .map(|address| address.parse().unwrap())
                .collect()
        };
        assert_eq!(found("db.example"), addresses(&["10.0.0.1", "fd00::1"]));
        assert_eq!(found("old.db.example"), addresses(&["10.0.0.2"]));
        assert_eq!(found("main"), addresses(&[]));
        assert_eq!(found("example"), addresses(&[]));
    }

    #[test]
    fn what_was_checked_is_what_is_dialled() {
        let resolver = Resolver::new(Arc::new(Rebinding::default()));
        let public: IpAddr = "1.1.1.1".parse().unwrap();
        for _ in 0..3 {
            assert_eq!(
                targets(&resolver, "a.example", "a.example"),
                Ok(vec![public])
            );
        }
        assert_eq!(
            targets(&resolver, "b.example", "b.example"),
            Err(ResolveError::Forbidden)
        );
        assert_eq!(
            targets(&resolver, "mixed.example", "mixed.example"),
            Ok(vec![public])
        );
        assert_eq!(
            targets(&resolver, "none.example", "none.example"),
            Err(ResolveError::Unknown)
        );
    }

    #[test]
    fn private_addresses_take_a_rule_that_says_so() {
        let resolver = Resolver::new(Arc::new(Rebinding(AtomicUsize::new(1))));
        let own: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(
            targets(&resolver, "a.example", "a.example"),
            Err(ResolveError::Forbidden)
        );
        assert_eq!(
            targets(&resolver, "a.example=private", "a.example"),
            Ok(vec![own])
        );
        assert_eq!(
            targets(&resolver, "c.example=127.0.0.1", "c.example"),
            Ok(vec![own])
        );
        assert_eq!(
            targets(&resolver, "127.0.0.1:80", "127.0.0.1"),
            Ok(vec![own])
        );
    }

    #[test]
    fn this_machine_knows_its_own_addresses() {
        for (text, is_own) in [
            ("127.0.0.1", true),
            ("1.1.1.1", false),
            ("192.0.2.1", false),
            ("2606:4700::1111", false),
        ] {
            assert_eq!(is_of_this_machine(text.parse().unwrap()), is_own, "{text}");
        }
        assert_eq!(
            kind_from_here("1.1.1.1".parse().unwrap()),
            AddressKind::Public
        );
    }
}
