//! Connection limits per user, so that a user at the limit does not exhaust the connections of all
//! others.

use super::places::{Place, Places};
use std::sync::{Arc, OnceLock};

/// Maximum number of client connections at the same time. Readers of events hold theirs open.
pub(crate) const MAX_CONNECTIONS: usize = 4096;
/// Connections that are reserved for administrators.
const KEPT_FOR_ADMIN: usize = 64;
/// Maximum number of connections of one user, and of one user with the scope `admin`.
const MAX_PER_USER: usize = 256;
const MAX_PER_ADMIN: usize = 2048;

/// Connection limits of all users and administrators.
#[derive(Debug)]
pub(crate) struct UserConnections {
    users: Arc<Places>,
    admins: Arc<Places>,
}

/// The slot of one connection. Empty until a request has authenticated its user.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPlace(OnceLock<Place>);

impl Default for UserConnections {
    fn default() -> Self {
        Self {
            users: Places::new(MAX_PER_USER, MAX_CONNECTIONS - KEPT_FOR_ADMIN),
            admins: Places::new(MAX_PER_ADMIN, MAX_CONNECTIONS),
        }
    }
}

impl UserConnections {
    /// Counts a connection for its first user until it ends. Returns false if that user is at the
    /// limit.
    pub(crate) fn keep(&self, connection: &ConnectionPlace, user: &str, is_admin: bool) -> bool {
        if connection.0.get().is_some() {
            return true;
        }
        let places = if is_admin { &self.admins } else { &self.users };
        match places.take(user) {
            // Of two concurrent requests on one connection, the second returns its slot when `set`
            // fails.
            Ok(place) => {
                let _ = connection.0.set(place);
                true
            }
            Err(_) => false,
        }
    }
}
