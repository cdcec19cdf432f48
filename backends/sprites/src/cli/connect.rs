//! Pipes to the guest of one Sprite through the program `sprite`: a shell on its standard streams.

use super::Cli;
use super::program::failure;
use crate::connect::BringUp;
use glovebox_carrier::{Attempt, Connect, ConnectFailure, Pipe, PipeEnd, show_message};
use glovebox_proto::{Code, Fault};
use std::fmt;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of bytes kept of standard error, from its end.
const STDERR_BYTES: usize = 600;
/// Maximum wait for the exit code of a program whose output has ended.
const EXIT_WAIT: Duration = Duration::from_millis(500);
/// Interval between two checks for it.
const EXIT_PAUSE: Duration = Duration::from_millis(5);

/// Transport to the guest of one Sprite, through the program.
pub struct CliConnect {
    cli: Arc<Cli>,
    sprite: String,
    first: BringUp,
    again: BringUp,
}

impl CliConnect {
    /// Creates the transport to an existing Sprite. `first` starts the guest from a shell, `again`
    /// connects to the running guest.
    pub fn new(cli: Arc<Cli>, sprite: impl Into<String>, first: BringUp, again: BringUp) -> Self {
        Self {
            cli,
            sprite: sprite.into(),
            first,
            again,
        }
    }

    fn open(&self) -> io::Result<(Session, OwnedFd, OwnedFd)> {
        let mut command = self.cli.shell(&self.sprite);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let words = Arc::new(Mutex::new(Vec::new()));
        let session = Session {
            child: Mutex::new(child),
            words: Arc::clone(&words),
        };
        let (Some(input), Some(output), Some(mut errors)) = streams else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        thread::Builder::new()
            .name("sprite-stderr".to_owned())
            .spawn(move || {
                let mut piece = [0; 512];
                while let Ok(count @ 1..) = errors.read(&mut piece) {
                    let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
                    words.extend_from_slice(&piece[..count]);
                    let surplus = words.len().saturating_sub(STDERR_BYTES);
                    words.drain(..surplus);
                }
            })?;
        Ok((session, output.into(), input.into()))
    }
}

/// Decides whether another attempt may succeed after the program did not reach the guest.
fn judge(attempt: Attempt, fault: Fault, session: &Session) -> ConnectFailure {
    let code = session.exit_code();
    let told = failure("exec", code, &session.last_words());
    let fault = match (told.code, code) {
        (Code::NotAuthenticated, _) => told,
        (_, Some(_)) if fault.code == Code::CarrierFailed => told,
        _ => fault,
    };
    let has_chance = attempt == Attempt::Again && fault.code == Code::CarrierFailed;
    ConnectFailure::of_attempt(attempt, fault, has_chance)
}

impl Connect for CliConnect {
    fn connect(&self, attempt: Attempt, deadline: Instant) -> Result<Pipe, ConnectFailure> {
        let (session, reader, writer) = self
            .open()
            .map_err(|error| ConnectFailure::Final(self.cli.no_start(&error)))?;
        let bring_up = match attempt {
            Attempt::First => &self.first,
            Attempt::Again => &self.again,
        };
        match bring_up(&reader, &writer, deadline) {
            Ok(early) => Ok(Pipe {
                reader,
                writer,
                early,
                end: Box::new(session),
            }),
            Err(fault) => Err(judge(attempt, fault, &session)),
        }
    }
}

impl fmt::Debug for CliConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CliConnect")
            .field("cli", &self.cli)
            .field("sprite", &self.sprite)
            .finish_non_exhaustive()
    }
}

/// A running program. Dropping this ends the program, and so the connection.
#[derive(Debug)]
struct Session {
    child: Mutex<Child>,
    words: Arc<Mutex<Vec<u8>>>,
}

impl Session {
    /// Returns the exit code of the program. None unless it ends by itself within [`EXIT_WAIT`].
    fn exit_code(&self) -> Option<i32> {
        let deadline = Instant::now() + EXIT_WAIT;
        loop {
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            match child.try_wait() {
                Ok(Some(status)) => return status.code(),
                Ok(None) if Instant::now() < deadline => drop(child),
                _ => return None,
            }
            thread::sleep(EXIT_PAUSE);
        }
    }

    /// Returns the end of the program's standard error.
    fn last_words(&self) -> String {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&words).into_owned()
    }
}

impl PipeEnd for Session {
    fn reason(&self) -> Option<String> {
        let code = self.exit_code()?;
        let words = self.last_words();
        let words = show_message(words.as_bytes());
        Some(format!(
            "`sprite exec` ended with exit code {code}: {words}"
        ))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Its streams are closed by now, so the program relays the remaining bytes and ends. Give
        // it that time: they may tell the guest to end.
        let _ = self.exit_code();
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // `kill` does nothing if the program has ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}
