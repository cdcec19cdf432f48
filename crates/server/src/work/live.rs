//! A session that waits or works: what can be said to it, and what it says.

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

/// Messages that wait for the end of what the agent does.
const MAX_MESSAGES: usize = 16;

/// A session that waits or works.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub id: String,
    pub user: String,
    pub hub: Arc<Hub>,
    pub approvals: Arc<Approvals>,
    pub is_cancelled: Arc<AtomicBool>,
    /// True if the server's end ended it.
    is_cut: AtomicBool,
    /// Its ids, and those of the request that it works for.
    pub span: Span,
    control: Mutex<Control>,
}

#[derive(Default)]
struct Control {
    on_stop: Option<OnStop>,
    stops: u32,
    /// The limit of the server's that it has reached, and since when.
    limit: Option<(String, Instant)>,
    messages: VecDeque<String>,
    /// Whether nothing that is said now is heard any more.
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

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The agent is told when it has ended what it does.
    Later,
    /// Too many wait.
    Full,
    /// The session does not work any more.
    Over,
}

impl LiveSession {
    /// One whose log ends with the event `last`.
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

    /// Asks it to end.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.stop();
    }

    /// Ends it because the server ends.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.cancel();
    }

    /// Returns true if the server's end ended it.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Ends what it does now; messages that wait are told to it then.
    pub(crate) fn stop(&self) {
        let mut control = self.control();
        control.stops += 1;
        let stops = control.stops;
        if let Some(on_stop) = &control.on_stop {
            on_stop(StopWish::Asked(stops));
        }
    }

    /// Asks it to end because a limit of the server's was reached: since when it has been asked to.
    pub(crate) fn end_at_limit(&self, why: &str) -> Instant {
        let mut control = self.control();
        if let Some((_, since)) = control.limit {
            return since;
        }
        let since = Instant::now();
        control.limit = Some((why.to_owned(), since));
        // Nothing that waits for the user waits any longer.
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(on_stop) = &control.on_stop {
            on_stop(StopWish::Limit(why.to_owned()));
        }
        since
    }

    /// Whether it ends because of a limit of the server's.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.control().limit.is_some()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// From now on `on_stop` hears of wishes to end.
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

    /// The end of that: how many wishes there were.
    pub(crate) fn unwatch_stop(&self) -> u32 {
        let mut control = self.control();
        control.on_stop = None;
        // One who cancels wants it to end, and not to be asked for more.
        if self.is_cancelled() {
            u32::MAX
        } else {
            control.stops
        }
    }

    /// Keeps a message until the agent can hear it.
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

    /// The next message. Without one nothing more is heard if `is_last`.
    pub(crate) fn next_message(&self, is_last: bool) -> Option<String> {
        let mut control = self.control();
        let message = control.messages.pop_front();
        control.is_over |= is_last && message.is_none();
        message
    }

    /// Nothing more is heard; what waited is told.
    pub(crate) fn end(&self) {
        let mut control = self.control();
        control.is_over = true;
        control.messages.clear();
        drop(control);
        self.hub.close();
    }
}
