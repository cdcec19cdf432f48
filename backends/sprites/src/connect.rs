//! Pipes to the guest of one Sprite: an exec session with a shell in it, and a conversation with
//! that shell.

use crate::client::Client;
use crate::failure::CallFailure;
use crate::pipe::{ExecEnd, ExecPipe, ExecRequest, ExecTimes};
use glovebox_carrier::{Attempt, Connect, ConnectFailure, Pipe, PipeEnd as _};
use glovebox_proto::{Class, Code, Fault};
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Program that an exec session runs.
const SHELL: &[&str] = &["sh"];
/// Times for which the first session continues without a connection, in order of preference:
/// without a limit, as the guest does; else the longest that the service accepts.
const FIRST_RUNS: [&str; 2] = ["0", "24h"];

/// Talks to a shell over its output and input until the guest has taken its place, and returns the
/// guest's first bytes. Blocks until the deadline at most.
pub type BringUp = Box<dyn Fn(&OwnedFd, &OwnedFd, Instant) -> Result<Vec<u8>, Fault> + Send + Sync>;

/// Transport to the guest of one Sprite.
pub struct SpriteConnect {
    client: Client,
    sprite: String,
    first: BringUp,
    again: BringUp,
    window: Duration,
    times: ExecTimes,
}

impl SpriteConnect {
    /// Creates the transport to an existing Sprite.
    ///
    /// `first` starts the guest from a shell, `again` connects to the running guest. `window` is
    /// the time for which a broken connection may be replaced; a later session continues for as
    /// long without one.
    pub fn new(
        client: Client,
        sprite: impl Into<String>,
        first: BringUp,
        again: BringUp,
        window: Duration,
    ) -> Self {
        Self {
            client,
            sprite: sprite.into(),
            first,
            again,
            window,
            times: ExecTimes::default(),
        }
    }

    /// Sets other times for a connection without traffic.
    #[must_use]
    pub fn times(mut self, times: ExecTimes) -> Self {
        self.times = times;
        self
    }

    fn open(&self, attempt: Attempt, deadline: Instant) -> Result<ExecPipe, CallFailure> {
        let exec = |run_after_disconnect: &str| {
            let request = ExecRequest {
                argv: SHELL,
                run_after_disconnect,
                times: self.times,
            };
            self.client.try_exec(&self.sprite, &request, deadline)
        };
        match attempt {
            Attempt::First => match exec(FIRST_RUNS[0]) {
                Err(failure) if failure.has_status(&[400, 422]) => exec(FIRST_RUNS[1]),
                outcome => outcome,
            },
            Attempt::Again => exec(&format!("{}s", self.window.as_secs().max(1))),
        }
    }

    /// Decides whether another attempt may succeed after no session could be opened.
    fn judge_failure(&self, attempt: Attempt, failure: CallFailure) -> ConnectFailure {
        let sprite = &self.sprite;
        let CallFailure { fault, after, .. } = failure;
        let is_passing = fault.is_retryable;
        if is_passing {
            return ConnectFailure::Retry { fault, after };
        }
        ConnectFailure::Final(match (attempt, fault.code) {
            (Attempt::First, Code::NotFound) => Fault {
                code: Code::SandboxNotFound,
                message: format!("the service has no Sprite `{sprite}`"),
                ..fault
            },
            (Attempt::Again, Code::NotFound) => Fault::lost(
                Code::LinkLost,
                format!("the service says that there is no Sprite `{sprite}` any more"),
            ),
            (Attempt::Again, _) => Fault {
                class: Class::Lost,
                ..fault
            },
            (Attempt::First, _) => fault,
        })
    }

    /// Decides whether another attempt may succeed after the shell did not lead to the guest.
    fn judge_bring_up(
        &self,
        attempt: Attempt,
        mut fault: Fault,
        end: &ExecEnd,
        deadline: Instant,
    ) -> ConnectFailure {
        let reason = end.reason();
        let has_broken = end.exit_code().is_none()
            && (reason.is_some() || attempt == Attempt::Again && Instant::now() >= deadline);
        if fault.code == Code::CarrierFailed {
            let more = reason.map_or_else(String::new, |reason| format!("; {reason}"));
            fault.message = format!("the Sprite `{}`: {}{more}", self.sprite, fault.message);
        }
        ConnectFailure::of_attempt(attempt, fault, has_broken)
    }
}

impl Connect for SpriteConnect {
    fn connect(&self, attempt: Attempt, deadline: Instant) -> Result<Pipe, ConnectFailure> {
        let pipe = self
            .open(attempt, deadline)
            .map_err(|failure| self.judge_failure(attempt, failure))?;
        let ExecPipe {
            socket: reader,
            end,
        } = pipe;
        let writer = reader.try_clone().map_err(|error| {
            ConnectFailure::Final(Fault::failed(
                Code::Io,
                format!("cannot copy a file descriptor: {error}"),
            ))
        })?;
        let bring_up = match attempt {
            Attempt::First => &self.first,
            Attempt::Again => &self.again,
        };
        match bring_up(&reader, &writer, deadline) {
            Ok(early) => Ok(Pipe {
                reader,
                writer,
                early,
                end: Box::new(end),
            }),
            Err(fault) => Err(self.judge_bring_up(attempt, fault, &end, deadline)),
        }
    }
}

impl fmt::Debug for SpriteConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpriteConnect")
            .field("client", &self.client)
            .field("sprite", &self.sprite)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
