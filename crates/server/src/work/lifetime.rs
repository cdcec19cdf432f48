//! Maximum running time of a sandbox, even while a session works in it.
//!
//! When a sandbox reaches it, the session that works in the sandbox ends first, with an event that
//! gives the reason. Then the sandbox stops and keeps its files. The next use starts it again, with
//! a new running time.

use super::{App, LiveSession};
use glovebox_proto::Fault;
use glovebox_sandbox::{Name, SandboxState};
use glovebox_settings::units::Span;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tracing::warn;

/// Minimum and maximum interval between checks for old sandboxes.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Time for a session to end by itself and write its last events.
const END_WAIT: Duration = Duration::from_secs(30);

/// Formats a time for messages.
pub(super) fn shown(time: Duration) -> String {
    let ms = u64::try_from(time.as_millis()).ok();
    Span(ms).to_string()
}

impl App {
    /// Ends sandboxes that run for longer than allowed, until the server ends.
    pub(crate) async fn end_old_sandboxes(self: Arc<Self>) {
        // In proportion to the limit, so that a short one is not overrun by much.
        let pause = (self.config.session_ttl / 4).clamp(LOOK.0, LOOK.1);
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.end.cancelled() => return,
            }
            let app = Arc::clone(&self);
            // A fault or a panic must not end this loop; the next check tries again.
            let looked = tokio::task::spawn_blocking(move || app.look_for_old_sandboxes()).await;
            if let Ok(Err(fault)) = looked {
                warn!(
                    problem = fault.message,
                    "old sandboxes could not be looked for"
                );
            }
        }
    }

    fn look_for_old_sandboxes(&self) -> Result<(), Fault> {
        let ttl = self.config.session_ttl;
        let reason = format!(
            "it has run for {}, the longest that a sandbox runs here",
            shown(ttl)
        );
        for (name, _) in self.owners.sandboxes()? {
            let Ok(name) = Name::parse(&name) else {
                continue;
            };
            if !self.has_run_for(&name, ttl)? {
                continue;
            }
            // The session ends first, so that its log gets the reason; a later round stops the
            // sandbox.
            let since = self
                .session_at_work(&name)?
                .map(|live| live.end_at_limit(&format!("its sandbox is stopped: {reason}")));
            if since.is_none_or(|since: Instant| since.elapsed() > END_WAIT) {
                self.idle.remove(&name);
                self.stop_sandbox(&name, &reason);
            }
        }
        Ok(())
    }

    fn has_run_for(&self, name: &Name, time: Duration) -> Result<bool, Fault> {
        let registry = &self.config.registry;
        let entry = registry.entry(name)?;
        if entry.is_none_or(|entry| entry.state != SandboxState::Ready) {
            return Ok(false);
        }
        let started = registry.last_started(name);
        // A clock that was set back gives no age.
        let age = started.and_then(|started| SystemTime::now().duration_since(started).ok());
        Ok(age.is_some_and(|age| age >= time))
    }

    /// Returns the session that works in a sandbox. A session that waits in the queue does not
    /// count.
    fn session_at_work(&self, name: &Name) -> Result<Option<Arc<LiveSession>>, Fault> {
        let all: Vec<Arc<LiveSession>> = self.live_sessions().values().map(Arc::clone).collect();
        for live in all {
            let info = self.find(&live.id)?;
            let is_over_it =
                info.is_some_and(|info| info.sandbox.as_deref() == Some(name.as_str()));
            if is_over_it && self.queue_place(&live.id).is_none() {
                return Ok(Some(live));
            }
        }
        Ok(None)
    }
}
