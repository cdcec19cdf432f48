//! Messages to the host: log records up to a limit, and one result.

use glovebox_js::tool_call::{
    CallError, CallLimits, CallMessage, LogLevel, LogRecord, MAX_LOG_TEXT_BYTES, frame,
};
use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::rc::Rc;

/// Cost of a record besides its text, in bytes.
const RECORD_BYTES: u64 = 16;

/// Writer of frames to standard output. Clones share the limits.
#[derive(Debug, Clone)]
pub(super) struct Output {
    state: Rc<State>,
}

#[derive(Debug)]
struct State {
    log_left: Cell<u64>,
    is_cut: Cell<bool>,
    value: RefCell<String>,
    max_value_bytes: usize,
}

impl Output {
    pub(super) fn new(limits: &CallLimits) -> Self {
        let state = State {
            log_left: Cell::new(limits.log_bytes),
            is_cut: Cell::new(false),
            value: RefCell::default(),
            max_value_bytes: limits.output_bytes as usize,
        };
        Self {
            state: Rc::new(state),
        }
    }

    /// Returns true if another record would be sent.
    pub(super) fn has_log_room(&self) -> bool {
        self.state.log_left.get() > 0
    }

    /// Sends a record, cut to the remaining space. When the limit is reached, one record reports
    /// that, and later ones are dropped.
    pub(super) fn log(&self, level: LogLevel, text: &str) {
        let left = self.state.log_left.get();
        if left == 0 {
            return;
        }
        let max = left.min(MAX_LOG_TEXT_BYTES as u64) as usize;
        let shown = &text[..text.floor_char_boundary(max)];
        self.state
            .log_left
            .set(left.saturating_sub(shown.len() as u64 + RECORD_BYTES));
        self.send(&CallMessage::Log(LogRecord {
            level,
            text: shown.to_owned(),
        }));
        if !self.has_log_room() && !self.state.is_cut.replace(true) {
            self.send(&CallMessage::Log(LogRecord {
                level: LogLevel::Warn,
                text: "[the log is full; the rest is left out]".to_owned(),
            }));
        }
    }

    /// Appends a piece of the result. Returns false if the result becomes too long.
    pub(super) fn emit(&self, piece: &str) -> bool {
        let mut value = self.state.value.borrow_mut();
        if value.len() + piece.len() > self.state.max_value_bytes {
            return false;
        }
        value.push_str(piece);
        true
    }

    /// Sends the collected pieces as the result.
    pub(super) fn succeed(&self, warnings: Vec<String>) {
        let json = self.state.value.take();
        self.send(&CallMessage::Value { json, warnings });
    }

    /// Sends an error as the result.
    pub(super) fn fail(&self, error: CallError) {
        self.send(&CallMessage::Error(error));
    }

    /// Sends one message. Write errors are ignored: a host that does not read any longer terminates
    /// the process.
    #[expect(clippy::unused_self, reason = "only what has the output may send")]
    pub(super) fn send(&self, message: &CallMessage) {
        if let Ok(json) = serde_json::to_vec(message) {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(&frame(&json)).and_then(|()| out.flush());
        }
    }
}
