//! A terminal beside pipes and files: the command has it as `/dev/tty`, and each standard stream that is the terminal
//! outside is one inside.
//!
//! Until the command asks for keys, the terminal's mode and its keys are left alone, for another program may be
//! reading them. The kernel tells when it asks: a process that is not in the foreground of its terminal is stopped
//! when it reads or changes it.

use super::input::{self, Pump};
use super::output::write_all;
use super::terminal::{self, RawMode};
use crate::exit::CommandError;
use glovebox_proto::{ExtraStream, JobId, Request};
use glovebox_sandbox::{Incoming, Input, Sandbox};
use rustix::process::{Signal, kill_current_process_group};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A command's terminal that is not all of its standard streams.
#[derive(Debug)]
pub(super) struct SharedTerminal {
    keys: Input,
    screen: JoinHandle<()>,
    /// Since the command has asked for keys.
    taken: Option<(Pump, RawMode)>,
}

impl SharedTerminal {
    /// Begins to show what the job writes to its terminal where no standard stream does.
    ///
    /// # Errors
    /// The link is lost, or no thread can be started.
    pub(super) fn begin(sandbox: &Arc<Sandbox>, job: JobId) -> Result<Self, CommandError> {
        let stream = ExtraStream::Terminal;
        let mut stream = sandbox.open(Request::JobStream { job, stream })?;
        let keys = stream.input();
        let show = move || {
            // A terminal that takes nothing any more, or a job without one: the command's reply tells what follows.
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

    /// The command has asked for the terminal: it gets mode and keys. In the background this process is stopped for
    /// that, as the command would be.
    ///
    /// # Errors
    /// No thread can be started.
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

    /// Shows the last of what was written, and gives the terminal back. The job must have ended.
    pub(super) fn end(self) {
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
