//! Recovery after a server that was killed: every unfinished session gets an end, and rows without
//! a session or sandbox are removed.

use super::{App, worker};
use glovebox_agent::{Ending, Event, SessionState};
use glovebox_proto::Fault;
use tracing::info;

/// Messages of the last event of an interrupted session.
const INTERRUPTED: &str = "the server ended while it worked; a message goes on with it, in the same sandbox if that \
    is still there";
const NOT_BEGUN: &str = "the server ended before it began; a message begins it";

impl App {
    /// Removes rows of sessions and sandboxes that do not exist: a row is written before the
    /// session or sandbox it describes.
    pub(super) fn remove_rows_of_nothing(&self) -> Result<(), Fault> {
        for (id, _) in self.owners.sessions()? {
            if self.find(&id)?.is_none() {
                self.owners.remove_session(&id)?;
            }
        }
        let there = self.config.registry.list()?;
        for (name, _) in self.owners.sandboxes()? {
            if !there.iter().any(|entry| entry.name.as_str() == name) {
                self.owners.remove_sandbox(&name)?;
            }
        }
        Ok(())
    }

    /// Logs an end for each session that is marked as running but is not.
    pub(super) fn mark_interrupted(&self) -> Result<(), Fault> {
        for (id, _) in self.owners.sessions()? {
            let Some(info) = self.find(&id)? else {
                continue;
            };
            if info.state != SessionState::Interrupted {
                continue;
            }
            let log = self.log();
            let events = log.events(&id)?;
            let is_marked = events
                .last()
                .is_some_and(|last| matches!(last.event, Event::Ended { .. }));
            if !is_marked {
                let message = if events.is_empty() {
                    NOT_BEGUN
                } else {
                    INTERRUPTED
                };
                log.append(&id, &worker::ended(Ending::Aborted, message))?;
            }
            log.set_state(&id, SessionState::Interrupted)?;
            if !is_marked {
                info!(
                    session_id = id,
                    "session was interrupted by the end of an earlier server"
                );
            }
        }
        Ok(())
    }
}
