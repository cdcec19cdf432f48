//! Opens pipes to the guest in one container.

use crate::client::Client;
use crate::failure;
use crate::pipe::{
    EndingKind, PipeEnding, PipeSizes, RemoteCommand, SharedEnding, open, whole_records,
};
use crate::probe::CONTACT_WAIT;
use crate::program::{GuestProgram, Placement};
use crate::script::{quote, start_script};
use crate::wire::{Exec, ReadOutput};
use glovebox_carrier::{Attempt, Connect, ConnectFailure, Pipe, runtime};
use glovebox_proto::{Code, Fault};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time to close the guest's session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Exit codes of a shell that could not execute the guest's program.
const NOT_EXECUTED: [i64; 2] = [126, 127];

/// Transport to one guest of an AIO Sandbox, for [`Connect`].
///
/// The first pipe probes the service, installs the guest's program if it is missing, and starts
/// `guest serve --resume RUN_DIR --lines` in a session of its own, which outlives the pipe. Later
/// pipes run `guest link --lines RUN_DIR` in sessions that end with them.
///
/// Dropping it closes the guest's session, so it must be dropped after the guest has ended or is
/// lost, as the carrier does. That sends a request and blocks for two seconds at most.
#[derive(Debug)]
pub struct Connector {
    client: Client,
    guest: GuestProgram,
    placement: Placement,
    run_dir: String,
    sizes: PipeSizes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of attempts to open the first pipe.
    attempts: u32,
    /// Start of the first attempt.
    began: Option<Instant>,
    started: Option<StartedGuest>,
    /// End of the last pipe.
    ending: SharedEnding,
}

/// Guest that was started.
#[derive(Debug, Clone)]
struct StartedGuest {
    /// Session of the guest's own command.
    session: String,
    /// Path of the guest's program.
    program: String,
    run_dir: String,
}

impl Connector {
    /// Creates the transport to a guest that keeps its socket in `run_dir`, a directory that the
    /// guest creates; if the first pipe must be tried again, in `RUN_DIR-2` and so on. Nothing is
    /// sent.
    pub fn new(
        client: Client,
        guest: GuestProgram,
        placement: Placement,
        run_dir: impl Into<String>,
        sizes: PipeSizes,
    ) -> Self {
        Self {
            client,
            guest,
            placement,
            run_dir: run_dir.into(),
            sizes,
            state: Mutex::default(),
        }
    }

    /// Returns the directory for another attempt to start the guest. It must be a new one: a guest
    /// of an earlier attempt, whose responses were all lost, may hold the previous one.
    fn next_run_dir(&self) -> String {
        let mut state = self.state();
        state.attempts += 1;
        match state.attempts {
            1 => self.run_dir.clone(),
            attempt => format!("{}-{attempt}", self.run_dir),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the guest. Returns its program's path and its command.
    async fn start(
        client: Client,
        guest: GuestProgram,
        placement: Placement,
        run_dir: String,
        session: String,
    ) -> Result<(String, RemoteCommand), ConnectFailure> {
        let started = Self::start_in(&client, &guest, &placement, &run_dir, &session).await;
        if started.is_err() {
            client.close_later(session);
        }
        started
    }

    async fn start_in(
        client: &Client,
        guest: &GuestProgram,
        placement: &Placement,
        run_dir: &str,
        session: &str,
    ) -> Result<(String, RemoteCommand), ConnectFailure> {
        let probe = client.look(session, guest, placement).await?;
        let program = client
            .install_guest(session, guest, placement, &probe)
            .await?;
        let text = start_script(&program, run_dir, placement.cwd.as_deref());
        let command = start_command(client, session, &text, true).await?;
        Ok((program, command))
    }
}

/// Starts a command in a session, exactly once even if the response was lost.
async fn start_command(
    client: &Client,
    session: &str,
    text: &str,
    keeps_session: bool,
) -> Result<RemoteCommand, ConnectFailure> {
    let base = client.base_url();
    let request = Exec {
        session_id: session,
        command: text,
        async_mode: true,
        timeout: None,
        hard_timeout: None,
    };
    let id = match client.exec(&request).await {
        Ok(result) => result.command_id,
        Err(error) if error.is_passing() && !error.is_undone() => {
            // No other client uses this session, so a command that runs in it is this one.
            let request = ReadOutput {
                session_id: session,
                command_id: None,
                offset: 0,
                stderr_offset: 0,
                wait: false,
                wait_timeout: 0.0,
            };
            match client
                .output(&request)
                .await
                .ok()
                .and_then(|output| output.command)
            {
                Some(info) if info.is_running() => info.command_id,
                _ => return Err(error.into_failure(base)),
            }
        }
        Err(error) => return Err(error.into_failure(base)),
    };
    Ok(RemoteCommand {
        session: session.to_owned(),
        id,
        keeps_session,
    })
}

impl Drop for Connector {
    fn drop(&mut self) {
        let Some(StartedGuest { session, .. }) = self.state().started.take() else {
            return;
        };
        let client = self.client.clone();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        // A session that stays can be found by its name.
        let _ = runtime::run_until(deadline, async move { client.close(&session).await });
    }
}

impl Connect for Connector {
    fn connect(&self, attempt: Attempt, deadline: Instant) -> Result<Pipe, ConnectFailure> {
        let client = self.client.clone();
        let command = match attempt {
            Attempt::First => {
                let session = self.placement.session();
                let run_dir = self.next_run_dir();
                let start = Self::start(
                    client,
                    self.guest.clone(),
                    self.placement.clone(),
                    run_dir.clone(),
                    session.clone(),
                );
                let began = *self.state().began.get_or_insert_with(Instant::now);
                let (program, command) = self
                    .block(deadline, start)
                    .map_err(|failure| given_up(failure, began))?;
                self.state().started = Some(StartedGuest {
                    session,
                    program,
                    run_dir,
                });
                command
            }
            Attempt::Again => {
                let (started, ending) = {
                    let state = self.state();
                    (state.started.clone(), Arc::clone(&state.ending))
                };
                let Some(StartedGuest {
                    program, run_dir, ..
                }) = started
                else {
                    let fault = Fault::failed(Code::Internal, "a later pipe before the first");
                    return Err(ConnectFailure::Final(fault));
                };
                self.check_ending(&ending)?;
                let text = format!("exec {} link --lines {}", quote(&program), quote(&run_dir));
                let session = self.placement.session();
                self.block(deadline, async move {
                    start_command(&client, &session, &text, false).await
                })
                .map_err(lost)?
            }
        };
        let ending = SharedEnding::default();
        self.state().ending = Arc::clone(&ending);
        open(
            self.client.clone(),
            command,
            self.sizes,
            whole_records,
            ending,
        )
        .map_err(ConnectFailure::Final)
    }
}

impl Connector {
    fn block<T: Send + 'static>(
        &self,
        deadline: Instant,
        request: impl Future<Output = Result<T, ConnectFailure>> + Send + 'static,
    ) -> Result<T, ConnectFailure> {
        match runtime::run_until(deadline, request) {
            Ok(Some(result)) => result,
            Ok(None) => Err(ConnectFailure::Retry {
                fault: self.client.timed_out(),
                after: None,
            }),
            Err(fault) => Err(ConnectFailure::Final(fault)),
        }
    }

    /// Refuses another attempt if the end of the last pipe shows that none can succeed.
    fn check_ending(&self, ending: &SharedEnding) -> Result<(), ConnectFailure> {
        let ending = ending.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(PipeEnding { kind, reason }) = ending.as_ref() else {
            return Ok(());
        };
        match kind {
            EndingKind::CommandEnded(Some(code)) if NOT_EXECUTED.contains(code) => {
                let base = self.client.base_url();
                let what = format!("the guest is gone from AIO Sandbox at {base}: {reason}");
                Err(ConnectFailure::Final(Fault::lost(Code::LinkLost, what)))
            }
            _ => Ok(()),
        }
    }
}

/// Converts a failure before the guest has started. A service that is unreachable for
/// [`CONTACT_WAIT`] counts as down; one that asks for a pause gets it.
fn given_up(failure: ConnectFailure, began: Instant) -> ConnectFailure {
    match failure {
        ConnectFailure::Retry { fault, after: None } if began.elapsed() >= CONTACT_WAIT => {
            ConnectFailure::Final(fault)
        }
        failure => failure,
    }
}

/// Converts a failure after the guest has started: a permanent one means that the guest is lost.
fn lost(failure: ConnectFailure) -> ConnectFailure {
    match failure {
        ConnectFailure::Final(fault) => ConnectFailure::Final(failure::as_lost(fault)),
        retry @ ConnectFailure::Retry { .. } => retry,
    }
}
