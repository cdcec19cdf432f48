//! Places for connections: many for clients that have shown the token, few and short ones for all others.
//!
//! A connection begins without a place of its own. It has [`AUTHENTICATION_WAIT`] to make a request with the
//! token; when more than [`MAX_UNAUTHENTICATED`] wait for that, the oldest is closed, but none before it had
//! [`EVICTION_AGE`]: until then no other one is accepted. Of one address, [`MAX_PER_ADDRESS`] wait at most, and its next
//! one is closed. So whoever has no token holds no place that a client could have, and a client, which sends its
//! request at once, gets through.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections that have not shown the token yet.
const MAX_UNAUTHENTICATED: usize = 128;
/// Those of one address.
const MAX_PER_ADDRESS: usize = 16;
/// Bits of an IPv6 address that tell networks apart: whoever has one address has all those of its network.
const NETWORK_BITS: u32 = 64;
/// How long a connection may take to show the token.
const AUTHENTICATION_WAIT: Duration = Duration::from_secs(5);
/// How long it has for that at least, however many others come.
const EVICTION_AGE: Duration = Duration::from_millis(250);
/// How long a full list is left alone before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// All places.
#[derive(Debug)]
pub struct Connections {
    authenticated: Arc<Semaphore>,
    waiting: Mutex<WaitingList>,
}

/// Connections without the token, the oldest first.
#[derive(Debug, Default)]
struct WaitingList {
    next_id: u64,
    entries: VecDeque<WaitingEntry>,
}

#[derive(Debug)]
struct WaitingEntry {
    id: u64,
    /// The network that it comes from; none for one that many clients share.
    network: Option<IpAddr>,
    since: Instant,
    evicted: CancellationToken,
}

/// One connection. It leaves its place when dropped.
#[derive(Debug)]
pub struct Connection {
    connections: Arc<Connections>,
    id: u64,
    evicted: CancellationToken,
    permit: OnceLock<OwnedSemaphorePermit>,
}

impl Connections {
    /// `max_authenticated` clients at the same time.
    pub fn new(max_authenticated: usize) -> Arc<Self> {
        Arc::new(Self {
            authenticated: Arc::new(Semaphore::new(max_authenticated)),
            waiting: Mutex::default(),
        })
    }

    /// Waits until there is room for one more connection without the token.
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

    /// Lets a connection in, unless too many of its address wait. `address` is `None` where many clients share it, as
    /// they do this machine's own and a proxy's.
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

    /// Takes a connection off the waiting list; false when it is not on it any more.
    fn remove_waiting(&self, id: u64) -> bool {
        let mut waiting = self.waiting();
        let at = waiting.entries.iter().position(|entry| entry.id == id);
        at.and_then(|at| waiting.entries.remove(at)).is_some()
    }
}

/// The address of IPv4, or the network of IPv6.
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
    /// Gives the connection a client's place, because it has shown the token; false when there is none left.
    pub fn authenticate(&self) -> bool {
        if self.permit.get().is_some() {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.connections.authenticated).try_acquire_owned() else {
            return false;
        };
        // One that was evicted in this moment is closed anyway.
        self.connections.remove_waiting(self.id) && self.permit.set(permit).is_ok()
    }

    /// Waits until the connection has had its chance to show the token; never ends once it has.
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
            // A client is no longer one of those.
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
