//! Open terminals, limited per user and in total.

use super::App;
use super::places::{Place, Places};
use glovebox_proto::{Fault, WindowSize};
use glovebox_sandbox::Name;
use glovebox_session::Error;
use glovebox_session::work::Terminal;
use std::sync::Arc;

const MAX_TERMINALS: usize = 128;
const MAX_TERMINALS_PER_USER: usize = 16;

/// An open terminal.
#[derive(Debug)]
pub(crate) struct OpenTerminal {
    pub terminal: Terminal,
    _place: Place,
}

/// Creates the limits of open terminals.
pub(super) fn terminal_places() -> Arc<Places> {
    Places::new(MAX_TERMINALS_PER_USER, MAX_TERMINALS)
}

impl App {
    /// Opens a shell for `user` in a sandbox. A stopped sandbox is started again.
    ///
    /// # Errors
    /// `busy` or `unavailable` if too many terminals are open.
    pub(crate) fn open_terminal(
        &self,
        user: &str,
        name: &Name,
        size: WindowSize,
    ) -> Result<OpenTerminal, Error> {
        let place = self.terminals.take(user).map_err(|no_place| {
            let fault = Fault::failed(no_place.code(), "too many terminals are open");
            fault.remedy("close one, and try again").retryable()
        })?;
        let opened = self.open_sandbox(name)?;
        let terminal = Terminal::open(opened.work.sandbox(), size)?;
        Ok(OpenTerminal {
            terminal,
            _place: place,
        })
    }
}
