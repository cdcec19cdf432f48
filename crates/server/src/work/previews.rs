//! Programs in sandboxes that listen on a port: their ports, and connections to them for previews.
//!
//! A preview never starts a sandbox: in one that has stopped no program listens.

use super::App;
use super::places::{Place, Places};
use glovebox_proto::{Code, Fault, ListeningPort};
use glovebox_sandbox::{Name, PortConnection, SandboxState};
use glovebox_session::Error;
use std::sync::Arc;

/// Maximum number of preview connections at the same time; each takes two threads. There is also a
/// limit per user, and one per port of a sandbox, so that a page with many connections leaves some
/// for the user's other previews.
const MAX_CONNECTIONS: usize = 256;
const MAX_CONNECTIONS_PER_USER: usize = 64;
const MAX_CONNECTIONS_PER_PREVIEW: usize = 32;

/// Limits of preview connections.
#[derive(Debug)]
pub(crate) struct PreviewPlaces {
    by_preview: Arc<Places>,
    by_user: Arc<Places>,
}

/// Slot of one preview connection. It is free again when this is dropped with the connection.
#[derive(Debug)]
pub(crate) struct PreviewPlace {
    _of_preview: Place,
    _of_user: Place,
}

impl Default for PreviewPlaces {
    fn default() -> Self {
        Self {
            by_preview: Places::new(MAX_CONNECTIONS_PER_PREVIEW, usize::MAX),
            by_user: Places::new(MAX_CONNECTIONS_PER_USER, MAX_CONNECTIONS),
        }
    }
}

impl PreviewPlaces {
    /// Takes a slot for a connection of `user` to the preview. None if no slot is free.
    pub(crate) fn take(&self, user: &str, preview: &str) -> Option<PreviewPlace> {
        // The key contains the user: others who may see the preview take none of the owner's slots.
        let of_preview = self.by_preview.take(&format!("{preview} {user}")).ok()?;
        let of_user = self.by_user.take(user).ok()?;
        Some(PreviewPlace {
            _of_preview: of_preview,
            _of_user: of_user,
        })
    }
}

impl App {
    /// Returns the ports that commands of a sandbox listen on. None if the sandbox does not run.
    /// Looking does not count as a use of the sandbox.
    pub(crate) fn listening_ports(&self, name: &Name) -> Result<Option<Vec<ListeningPort>>, Error> {
        let registry = &self.config.registry;
        if let Some(opened) = self.connected_sandbox(name) {
            return Ok(Some(
                registry.ports_of_commands(name, opened.work.sandbox())?,
            ));
        }
        if !self.is_running(name)? {
            return Ok(None);
        }
        let sandbox = registry.connect(name)?;
        Ok(Some(registry.ports_of_commands(name, &sandbox)?))
    }

    /// Connects to the program that listens on a port of a sandbox's loopback.
    ///
    /// # Errors
    /// `sandbox-not-running` if the sandbox has stopped.
    pub(crate) fn connect_port(
        &self,
        name: &Name,
        port: u16,
        place: PreviewPlace,
    ) -> Result<PortConnection, Error> {
        if self.connected_sandbox(name).is_none() && !self.is_running(name)? {
            let fault = Fault::failed(
                Code::SandboxNotRunning,
                "the sandbox has stopped, and with it every program in it",
            );
            let remedy =
                "say something to the session, or open its terminal, and start the program again";
            return Err(fault.remedy(remedy).into());
        }
        let opened = self.open_sandbox(name)?;
        Ok(opened.work.sandbox().connect_port(port, place)?)
    }

    fn is_running(&self, name: &Name) -> Result<bool, Error> {
        match self.config.registry.entry(name)? {
            Some(entry) => Ok(entry.state == SandboxState::Ready),
            None => Err(Error::no_sandbox(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_preview_and_one_user_leave_places_to_others() {
        let places = PreviewPlaces::default();
        let fill = |user: &str, preview: &str| -> Vec<PreviewPlace> {
            std::iter::from_fn(|| places.take(user, preview)).collect()
        };
        let first = fill("ann", "80-s-a");
        assert_eq!(first.len(), MAX_CONNECTIONS_PER_PREVIEW);
        let second = fill("ann", "81-s-a");
        assert_eq!(first.len() + second.len(), MAX_CONNECTIONS_PER_USER);
        assert!(places.take("ann", "82-s-a").is_none());
        assert_eq!(fill("bob", "80-s-a").len(), MAX_CONNECTIONS_PER_PREVIEW);
        drop(first);
        assert!(places.take("ann", "82-s-a").is_some());
    }
}
