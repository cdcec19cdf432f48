//! Output of the program: complete lines from any thread.

use glovebox_js::{ScriptEvent, ScriptMessage};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// Writer of lines to standard output. Clones share one lock.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineWriter {
    turn: Arc<Mutex<()>>,
}

impl LineWriter {
    /// Writes one event of a script. Ends the program if the host does not read any longer.
    pub(crate) fn say(&self, token: &str, word: ScriptEvent) {
        let said = ScriptMessage {
            token: token.to_owned(),
            word,
        };
        let Ok(mut line) = serde_json::to_vec(&said) else {
            self.leave();
        };
        line.push(b'\n');
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = std::io::stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            self.leave();
        }
    }

    /// Ends the program.
    #[expect(clippy::unused_self, reason = "only whoever can speak may leave")]
    pub(crate) fn leave(&self) -> ! {
        std::process::exit(1)
    }
}
