//! Events of one running session, for any number of readers at any speed.
//!
//! ```text
//! observer -> publish -> kept events (in the log; the newest also here)
//!                     -> pieces: what comes before the next kept event and is not in the log
//! reader   <- next(cursor): what follows the cursor, from here or from the log
//! ```
//!
//! The id of a kept event is its position in the log, such as `12`; the third piece after it has
//! the id `12.3`. A reader that reconnects with the last id it saw misses no kept event and sees no
//! event twice. Pieces are parts of a message that is still being written. The next kept event
//! holds the whole message, so the oldest pieces are dropped when there are too many.

use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum number of kept events held in memory, for readers that keep up.
const MAX_NEWEST: usize = 64;
/// Maximum number of pieces after the last kept event.
const MAX_PIECES: usize = 1024;
/// Maximum bytes of these pieces.
const MAX_PIECE_BYTES: usize = 1 << 20;

/// Position among the events of a session: after the kept event `seq` and the piece `piece` that
/// followed it. Piece 0 stands for the kept event itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Cursor {
    pub seq: u64,
    pub piece: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.piece {
            0 => write!(f, "{}", self.seq),
            piece => write!(f, "{}.{piece}", self.seq),
        }
    }
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |_| format!("`{text}` is not the id of an event, which looks like `12` or `12.3`");
        let (seq, piece) = text.split_once('.').unwrap_or((text, "0"));
        Ok(Self {
            seq: seq.parse().map_err(wrong)?,
            piece: piece.parse().map_err(wrong)?,
        })
    }
}

/// An event as sent to a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub at: Cursor,
    pub kind: &'static str,
    pub json: Arc<str>,
}

/// Answer to a reader's request for the events after a cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Events that follow the cursor.
    Events(Vec<Sent>),
    /// Kept events follow that are only in the log.
    InLog,
    /// No event follows yet; the reader waits for a change.
    Wait,
    /// No event follows, and the session has ended.
    Over,
}

/// Events of one running session.
#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    newest: VecDeque<Sent>,
    pieces: VecDeque<Sent>,
    piece_bytes: usize,
    next_piece: u64,
    is_over: bool,
}

impl Hub {
    /// Creates the hub of a session whose log ends with the event `last`.
    pub(crate) fn new(last: u64) -> Self {
        Self {
            state: Mutex::new(State {
                last,
                next_piece: 1,
                ..State::default()
            }),
            changed: watch::Sender::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes an event that is in the log at `seq`. Drops the pieces before it.
    pub(crate) fn publish_kept(&self, seq: u64, kind: &'static str, json: &Value) {
        let mut state = self.state();
        state.last = seq;
        state.pieces.clear();
        state.piece_bytes = 0;
        state.next_piece = 1;
        if state.newest.len() == MAX_NEWEST {
            state.newest.pop_front();
        }
        let at = Cursor { seq, piece: 0 };
        let json = json.to_string().into();
        state.newest.push_back(Sent { at, kind, json });
        drop(state);
        self.changed.send_replace(());
    }

    /// Publishes an event that is not in the log.
    pub(crate) fn publish_piece(&self, kind: &'static str, json: &Value) {
        let json: Arc<str> = json.to_string().into();
        let mut state = self.state();
        let at = Cursor {
            seq: state.last,
            piece: state.next_piece,
        };
        state.next_piece += 1;
        state.piece_bytes += json.len();
        state.pieces.push_back(Sent { at, kind, json });
        while state.pieces.len() > MAX_PIECES || state.piece_bytes > MAX_PIECE_BYTES {
            let Some(oldest) = state.pieces.pop_front() else {
                break;
            };
            state.piece_bytes -= oldest.json.len();
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Marks the end of the events and wakes all readers.
    pub(crate) fn close(&self) {
        self.state().is_over = true;
        self.changed.send_replace(());
    }

    /// Returns the events after `after`, at most `limit`. Does not wait.
    pub(crate) fn next(&self, after: Cursor, limit: usize) -> Next {
        let state = self.state();
        if after.seq < state.last {
            let is_here = state
                .newest
                .front()
                .is_some_and(|oldest| oldest.at.seq <= after.seq + 1);
            if !is_here {
                return Next::InLog;
            }
            let newer = state.newest.iter().filter(|sent| sent.at > after);
            return Next::Events(newer.take(limit).cloned().collect());
        }
        let newer = state.pieces.iter().filter(|sent| sent.at > after);
        let newer: Vec<Sent> = newer.take(limit).cloned().collect();
        match (newer.is_empty(), state.is_over) {
            (false, _) => Next::Events(newer),
            (true, true) => Next::Over,
            (true, false) => Next::Wait,
        }
    }

    /// Returns a receiver that is notified of every change from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ids(next: Next) -> Vec<String> {
        match next {
            Next::Events(events) => events.iter().map(|sent| sent.at.to_string()).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        for text in ["0", "12", "12.3"] {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
        for text in ["", "-1", "1.2.3", "x", "99999999999999999999"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice() {
        let hub = Hub::new(0);
        let from = |text: &str| text.parse::<Cursor>().unwrap();
        assert_eq!(hub.next(Cursor::default(), 9), Next::Wait);
        hub.publish_kept(1, "started", &json!({}));
        hub.publish_piece("text", &json!("a"));
        hub.publish_piece("text", &json!("b"));
        assert_eq!(ids(hub.next(from("0"), 9)), ["1"]);
        assert_eq!(ids(hub.next(from("1"), 9)), ["1.1", "1.2"]);
        assert_eq!(ids(hub.next(from("1.1"), 9)), ["1.2"]);
        hub.publish_kept(2, "answered", &json!({}));
        // The kept event replaces the pieces before it.
        assert_eq!(ids(hub.next(from("1.1"), 9)), ["2"]);
        assert_eq!(hub.next(from("2"), 9), Next::Wait);
        hub.close();
        assert_eq!(ids(hub.next(from("0"), 9)), ["1", "2"]);
        assert_eq!(hub.next(from("2"), 9), Next::Over);
    }

    #[test]
    fn what_is_no_longer_here_is_in_the_log_and_memory_is_bounded() {
        let hub = Hub::new(5);
        assert_eq!(hub.next(Cursor::default(), 9), Next::InLog);
        for seq in 6..200 {
            hub.publish_kept(seq, "said", &json!({}));
        }
        assert_eq!(hub.next("7".parse::<Cursor>().unwrap(), 9), Next::InLog);
        assert_eq!(
            ids(hub.next("197".parse::<Cursor>().unwrap(), 9)),
            ["198", "199"]
        );
        for _ in 0..3000 {
            hub.publish_piece("text", &json!("x".repeat(2000)));
        }
        let state = hub.state();
        assert!(state.piece_bytes <= MAX_PIECE_BYTES && state.pieces.len() <= MAX_PIECES);
        assert!(state.newest.len() <= MAX_NEWEST);
    }
}
