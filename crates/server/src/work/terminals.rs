//! Terminals that are open: so many of one user, and so many at all.

use super::App;
use glovebox_proto::{Code, Fault, WindowSize};
use glovebox_sandbox::Name;
use glovebox_session::Error;
use glovebox_session::work::Terminal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MAX_TERMINALS: usize = 128;
const MAX_TERMINALS_PER_USER: usize = 16;

/// How many terminals each user has open.
#[derive(Debug, Default)]
pub(crate) struct Terminals {
    open: Mutex<HashMap<String, usize>>,
}

/// The place of one terminal among them, until it is dropped.
#[derive(Debug)]
struct TerminalPlace {
    user: String,
    terminals: Arc<Terminals>,
}

/// An open terminal.
#[derive(Debug)]
pub(crate) struct OpenTerminal {
    pub terminal: Terminal,
    _place: TerminalPlace,
}

impl Terminals {
    fn open(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_place(self: &Arc<Self>, user: &str) -> Result<TerminalPlace, Fault> {
        let mut open = self.open();
        let of_all: usize = open.values().sum();
        let of_user = open.entry(user.to_owned()).or_default();
        if *of_user >= MAX_TERMINALS_PER_USER || of_all >= MAX_TERMINALS {
            let fault = Fault::failed(Code::Busy, "too many terminals are open");
            return Err(fault.remedy("close one, and try again").retryable());
        }
        *of_user += 1;
        Ok(TerminalPlace {
            user: user.to_owned(),
            terminals: Arc::clone(self),
        })
    }
}

impl Drop for TerminalPlace {
    fn drop(&mut self) {
        let mut open = self.terminals.open();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

impl App {
    /// A shell for `user` in a sandbox, which is started again if it has stopped.
    pub(crate) fn open_terminal(
        &self,
        user: &str,
        name: &Name,
        size: WindowSize,
    ) -> Result<OpenTerminal, Error> {
        let place = self.terminals.take_place(user)?;
        let opened = self.open_sandbox(name)?;
        let terminal = Terminal::open(opened.work.sandbox(), size)?;
        Ok(OpenTerminal {
            terminal,
            _place: place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_all_places() {
        let terminals = Arc::<Terminals>::default();
        let of_ann: Vec<_> = std::iter::from_fn(|| terminals.take_place("ann").ok()).collect();
        assert_eq!(of_ann.len(), MAX_TERMINALS_PER_USER);
        let of_bob = terminals.take_place("bob").unwrap();
        let others: Vec<_> = (0..)
            .map_while(|n| terminals.take_place(&n.to_string()).ok())
            .collect();
        assert_eq!(others.len(), MAX_TERMINALS - MAX_TERMINALS_PER_USER - 1);
        drop((of_ann, of_bob, others));
        terminals.take_place("ann").unwrap();
    }
}
