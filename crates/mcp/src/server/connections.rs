//! Places for connections: many for clients that have shown the token, few and short ones for all
//! others.
//!
//! A new connection waits without a place. Within [`AUTHENTICATION_WAIT`] it must make a request
//! with the token. When [`MAX_UNAUTHENTICATED`] connections wait, the oldest is closed, but not
//! before it has waited for [`EVICTION_AGE`]; until then no other connection is accepted. At most
//! [`MAX_PER_ADDRESS`] connections of one address wait, and further ones are closed. So peers
//! without the token cannot take the places of clients, and a client, which sends its request at
//! once, gets through.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Maximum number of connections that have not shown the token yet.
const MAX_UNAUTHENTICATED: usize = 128;
/// Maximum number of such connections from one address.
const MAX_PER_ADDRESS: usize = 16;
/// Length of the IPv6 prefix that counts as one address, in bits. A host can use every address of
/// its network.
const NETWORK_BITS: u32 = 64;
/// Maximum time for a connection to show the token.
const AUTHENTICATION_WAIT: Duration = Duration::from_secs(5);
/// Minimum time for a connection to show the token, even if the list is full.
const EVICTION_AGE: Duration = Duration::from_millis(250);
/// Interval at which a full list is checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Places of a server's connections.
#[derive(Debug)]
pub struct Connections {
    authenticated: Arc<Semaphore>,
    waiting: Mutex<WaitingList>,
}

/// Connections that have not shown the token, oldest first.
#[derive(Debug, Default)]
struct WaitingList {
    next_id: u64,
    entries: VecDeque<WaitingEntry>,
}

#[derive(Debug)]
struct WaitingEntry {
    id: u64,
    /// Network of the peer. `None` for an address that many clients share.
    network: Option<IpAddr>,
    since: Instant,
    evicted: CancellationToken,
}

/// Accepted connection. Dropping it frees its place.
#[derive(Debug)]
pub struct Connection {
    connections: Arc<Connections>,
    id: u64,
    evicted: CancellationToken,
    permit: OnceLock<OwnedSemaphorePermit>,
}

impl Connections {
    /// Creates places for `max_authenticated` clients at the same time.
    pub fn new(max_authenticated: usize) -> Arc<Self> {
        Arc::new(Self {
            authenticated: Arc::new(Semaphore::new(max_authenticated)),
            waiting: Mutex::default(),
        })
    }

    /// Waits until another connection without the token can be accepted. Evicts the oldest one if
    /// the list is full.
    pub async fn wait_for_room(&self) {
        loop {
            {
                let mut waiting = self.waiting();
                if waiting.entries.len() < MAX_UNAUTHENTICATED {
                    return;
                }
                let is_due = |oldest: &WaitingEntry| oldest.since.elapsed() >= EVICTION_AGE;
                if waiting.entries.front().is_some_and(is_due)
                    && let Some(oldest) = waiting.entries.pop_front()
                {
                    oldest.evicted.cancel();
                    return;
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Admits a connection. `None` if too many of its address wait. `address` is `None` for an
    /// address that many clients share, such as loopback and a proxy's.
    pub fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Arc<Connection>> {
        let evicted = CancellationToken::new();
        let network = address.map(network_of);
        let mut waiting = self.waiting();
        let same = |entry: &&WaitingEntry| entry.network.is_some() && entry.network == network;
        if waiting.entries.iter().filter(same).count() >= MAX_PER_ADDRESS {
            return None;
        }
        let id = waiting.next_id;
        waiting.next_id += 1;
        waiting.entries.push_back(WaitingEntry {
            id,
            network,
            since: Instant::now(),
            evicted: evicted.clone(),
        });
        drop(waiting);
        Some(Arc::new(Connection {
            connections: Arc::clone(self),
            id,
            evicted,
            permit: OnceLock::new(),
        }))
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingList> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a connection from the waiting list. Returns false if it is not on the list.
    fn remove_waiting(&self, id: u64) -> bool {
        let mut waiting = self.waiting();
        let at = waiting.entries.iter().position(|entry| entry.id == id);
        at.and_then(|at| waiting.entries.remove(at)).is_some()
    }
}

/// Returns an IPv4 address unchanged, or the network of an IPv6 address.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - NETWORK_BITS);
            IpAddr::V6((u128::from(address) & mask).into())
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl Connection {
    /// Gives a client's place to the connection, which has shown the token. Returns false if there
    /// is none left.
    pub fn authenticate(&self) -> bool {
        if self.permit.get().is_some() {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.connections.authenticated).try_acquire_owned() else {
            return false;
        };
        // A connection that was evicted meanwhile is being closed.
        self.connections.remove_waiting(self.id) && self.permit.set(permit).is_ok()
    }

    /// Completes when the connection is evicted or its time to show the token is over. Never
    /// completes after the token was shown.
    pub async fn unauthenticated_end(&self) {
        tokio::select! {
            () = self.evicted.cancelled() => return,
            () = tokio::time::sleep(AUTHENTICATION_WAIT) => {}
        }
        if !self.connections.remove_waiting(self.id) && !self.evicted.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.remove_waiting(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_AUTHENTICATED: usize = 16;

    #[test]
    fn the_oldest_without_the_token_makes_room_and_clients_stay() {
        super::super::stdio::runtime().unwrap().block_on(async {
            let connections = Connections::new(MAX_AUTHENTICATED);
            let client = connections.admit(None).unwrap();
            assert!(client.authenticate() && client.authenticate());
            let begin = Instant::now();
            let mut strangers = Vec::new();
            for _ in 0..MAX_UNAUTHENTICATED {
                connections.wait_for_room().await;
                strangers.push(connections.admit(None).unwrap());
            }
            assert!(strangers.iter().all(|one| !one.evicted.is_cancelled()));
            connections.wait_for_room().await;
            assert!(begin.elapsed() >= EVICTION_AGE);
            let evicted = |one: &Arc<Connection>| one.evicted.is_cancelled();
            assert!(evicted(&strangers[0]) && !strangers[0].authenticate());
            assert!(!strangers[1..].iter().any(evicted) && !evicted(&client));
            drop(strangers);
            assert!(connections.waiting().entries.is_empty());
            assert!(connections.admit(None).unwrap().authenticate());
        });
    }

    #[test]
    fn many_of_one_address_keep_out_their_own_next_one_only() {
        let connections = Connections::new(MAX_AUTHENTICATED);
        let from = |text: &str| connections.admit(Some(text.parse().unwrap()));
        for (many, same, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
        ] {
            let mut held: Vec<_> = (0..MAX_PER_ADDRESS).map(|_| from(many).unwrap()).collect();
            assert!(from(same).is_none(), "{same}");
            assert!(from(other).is_some() && connections.admit(None).is_some());
            // A client with a place does not count as waiting.
            assert!(held[0].authenticate());
            held.push(from(same).unwrap());
            assert!(from(many).is_none());
        }
    }

    #[test]
    fn clients_are_bounded_and_leave_their_places() {
        let connections = Connections::new(MAX_AUTHENTICATED);
        let clients: Vec<_> = (0..MAX_AUTHENTICATED)
            .map(|_| connections.admit(None).unwrap())
            .inspect(|client| assert!(client.authenticate()))
            .collect();
        let late = connections.admit(None).unwrap();
        assert!(!late.authenticate());
        drop(clients);
        assert!(late.authenticate());
    }
}
