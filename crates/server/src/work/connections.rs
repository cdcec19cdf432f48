//! Places of users' connections: a user who holds as many as there may be leaves those of all others.

use super::places::{Place, Places};
use std::sync::{Arc, OnceLock};

/// Connections of clients at the same time: readers of events stay.
pub(crate) const MAX_CONNECTIONS: usize = 4096;
/// Those that are kept for administrators.
const KEPT_FOR_ADMIN: usize = 64;
/// Connections of one user, and of one with the scope `admin`.
const MAX_PER_USER: usize = 256;
const MAX_PER_ADMIN: usize = 2048;

/// The places of all users.
#[derive(Debug)]
pub(crate) struct UserConnections {
    users: Arc<Places>,
    admins: Arc<Places>,
}

/// The place of one connection, once it has shown whose it is.
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
    /// Gives a connection a place of its first user, until it ends. False if there is none.
    pub(crate) fn keep(&self, connection: &ConnectionPlace, user: &str, is_admin: bool) -> bool {
        if connection.0.get().is_some() {
            return true;
        }
        let places = if is_admin { &self.admins } else { &self.users };
        match places.take(user) {
            // Of two requests at once on one connection, the second gives its place back.
            Ok(place) => {
                let _ = connection.0.set(place);
                true
            }
            Err(_) => false,
        }
    }
}
