//! A terminal next to pipes and files: the command has it as `/dev/tty`, and each standard stream
//! that is the terminal outside is one inside.
//!
//! Until the command asks for keys, this process leaves the terminal's mode and keys alone: another
//! program may be reading them. The kernel reports the request: it stops a process that reads or
//! changes its terminal from the background.

use super::input::{self, Pump};
use super::output::write_all;
use super::terminal::{self, RawMode};
use crate::exit::CommandError;
use glovebox_proto::{ExtraStream, JobId, Request};
use glovebox_sandbox::{Incoming, Input, Sandbox};
use rustix::process::{Signal, kill_current_process_group};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Command's terminal that is not all of its standard streams.
#[derive(Debug)]
pub(super) struct SharedTerminal {
    keys: Input,
    screen: JoinHandle<()>,
    /// Relay of keys and raw mode. None until the command has asked for keys.
    taken: Option<(Pump, RawMode)>,
}

impl SharedTerminal {
    /// Starts to display output of the job's terminal that no standard stream carries.
    ///
    /// # Errors
    /// The link is lost, or no thread can be started.
    pub(super) fn begin(sandbox: &Arc<Sandbox>, job: JobId) -> Result<Self, CommandError> {
        let stream = ExtraStream::Terminal;
        let mut stream = sandbox.open(Request::JobStream { job, stream })?;
        let keys = stream.input();
        let show = move || {
            // A terminal that accepts no further output, or a job without one, ends the display
            // only: the command's reply reports the end.
            while let Incoming::Data { bytes, .. } = stream.recv() {
                terminal::observe(&bytes);
                let _ = write_all(terminal::device(), &bytes);
            }
        };
        let screen = std::thread::Builder::new()
            .name("screen".to_owned())
            .stack_size(64 << 10)
            .spawn(show)
            .map_err(|error| CommandError::io("start a thread", &error))?;
        Ok(Self {
            keys,
            screen,
            taken: None,
        })
    }

    /// Gives mode and keys of the terminal to the command, which has asked for them. If this
    /// process is in the background it stops first, as the command would.
    ///
    /// # Errors
    /// There is no terminal, or no thread can be started.
    pub(super) fn hand_over(&mut self) -> Result<(), CommandError> {
        if terminal::is_background() {
            let _ = kill_current_process_group(Signal::TTIN);
        }
        if self.taken.is_none() {
            let raw = RawMode::enter()?;
            let pump = input::pass(self.keys.clone(), terminal::device(), None)?;
            self.taken = Some((pump, raw));
        }
        Ok(())
    }

    /// Displays the remaining output, and restores the terminal. The job must have ended.
    pub(super) fn end(self) {
        // Restore the terminal last: output that arrives later could change it again.
        if let Some((pump, raw)) = self.taken {
            drop(pump);
            let _ = self.screen.join();
            drop(raw);
        } else {
            let _ = self.screen.join();
            terminal::undo_changes();
        }
    }
}
