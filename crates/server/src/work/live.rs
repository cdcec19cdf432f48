//! A session that is queued or running: its control by users and by the server.

use super::approvals::Approvals;
use super::hub::Hub;
use crate::log::session_span;
use glovebox_session::agent::{OnStop, StopWish};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::Span;

/// Maximum number of messages that wait until the agent has finished its current work.
const MAX_MESSAGES: usize = 16;

/// A session that is queued or running.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub id: String,
    pub user: String,
    pub hub: Arc<Hub>,
    pub approvals: Arc<Approvals>,
    pub is_cancelled: Arc<AtomicBool>,
    /// True if the session ended because the server ended.
    is_cut: AtomicBool,
    /// Span with the ids of the session and of the request that started its work.
    pub span: Span,
    control: Mutex<Control>,
}

#[derive(Default)]
struct Control {
    on_stop: Option<OnStop>,
    stops: u32,
    /// Reason of the server's limit that the session reached, and the time at which it was asked to
    /// end.
    limit: Option<(String, Instant)>,
    messages: VecDeque<String>,
    /// True if the session accepts no further messages.
    is_over: bool,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Control({} stops, {} messages)",
            self.stops,
            self.messages.len()
        )
    }
}

/// Outcome of sending a message to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The agent receives the message when it has finished its current work.
    Later,
    /// Too many messages are waiting.
    Full,
    /// The session accepts no further messages.
    Over,
}

impl LiveSession {
    /// Creates a session whose log ends with the event `last`.
    pub(crate) fn new(id: &str, user: &str, last: u64) -> Arc<Self> {
        Arc::new(Self {
            id: id.to_owned(),
            user: user.to_owned(),
            hub: Arc::new(Hub::new(last)),
            approvals: Arc::default(),
            is_cancelled: Arc::default(),
            is_cut: AtomicBool::default(),
            span: session_span(id, user),
            control: Mutex::default(),
        })
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the session; a waiting question ends unanswered.
    pub(crate) fn cancel(&self) {
        // Set before the handler is called: one that is registered in between finds it in
        // `watch_stop`.
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.stop();
    }

    /// Cancels the session because the server ends.
    pub(crate) fn cut(&self) {
        // Set first: the worker reads it as soon as the session is cancelled.
        self.is_cut.store(true, Ordering::Relaxed);
        self.cancel();
    }

    /// Returns true if the session ended because the server ended.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Stops the agent's current work. Messages that wait are delivered afterwards.
    pub(crate) fn stop(&self) {
        let mut control = self.control();
        control.stops += 1;
        let stops = control.stops;
        if let Some(on_stop) = &control.on_stop {
            on_stop(StopWish::Asked(stops));
        }
    }

    /// Asks the session to end because it reached a limit of the server. Returns the time of the
    /// first such request.
    pub(crate) fn end_at_limit(&self, why: &str) -> Instant {
        let mut control = self.control();
        if let Some((_, since)) = control.limit {
            return since;
        }
        let since = Instant::now();
        control.limit = Some((why.to_owned(), since));
        // Questions to the user must end too, or the session would wait for their answers.
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(on_stop) = &control.on_stop {
            on_stop(StopWish::Limit(why.to_owned()));
        }
        since
    }

    /// Returns true if the session ends because of a limit of the server.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.control().limit.is_some()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Registers `on_stop`, which is called for each request to stop. Calls it at once if the
    /// session is already cancelled or at a limit.
    pub(crate) fn watch_stop(&self, on_stop: OnStop) {
        let mut control = self.control();
        if let Some((why, _)) = &control.limit {
            on_stop(StopWish::Limit(why.clone()));
        } else if self.is_cancelled() {
            on_stop(StopWish::Asked(1));
        } else {
            control.stops = 0;
        }
        control.on_stop = Some(on_stop);
    }

    /// Unregisters the stop handler. Returns the number of stop requests since it was registered.
    pub(crate) fn unwatch_stop(&self) -> u32 {
        let mut control = self.control();
        control.on_stop = None;
        // A cancelled session must end and not ask for another message.
        if self.is_cancelled() {
            u32::MAX
        } else {
            control.stops
        }
    }

    /// Queues a message until the agent can receive it.
    pub(crate) fn say(&self, text: String) -> Heard {
        let mut control = self.control();
        if control.is_over {
            return Heard::Over;
        }
        if control.messages.len() >= MAX_MESSAGES {
            return Heard::Full;
        }
        control.messages.push_back(text);
        Heard::Later
    }

    /// Takes the next message. If there is none and `is_last` is true, the session accepts no more
    /// messages.
    pub(crate) fn next_message(&self, is_last: bool) -> Option<String> {
        let mut control = self.control();
        let message = control.messages.pop_front();
        control.is_over |= is_last && message.is_none();
        message
    }

    /// Ends the session: it accepts no further messages, waiting messages are dropped, and readers
    /// see the end.
    pub(crate) fn end(&self) {
        let mut control = self.control();
        control.is_over = true;
        control.messages.clear();
        drop(control);
        self.hub.close();
    }
}
