//! Shell in a terminal of a sandbox, for user interfaces that display one.
//!
//! The shell is an ordinary command: dropping [`Terminal`], or losing the connection to the
//! sandbox, ends it with all its processes.

use crate::Error;
use crate::sync::copied;
use glovebox_proto::{Exec, ExitReport, Fault, JobId, Reply, Request, Stdin, WindowSize};
use glovebox_sandbox::{Incoming, Input, Name, Sandbox};
use serde_bytes::ByteBuf;
use std::sync::{Arc, OnceLock};

/// Script that starts bash if there is one. Its name distinguishes this terminal's job from all
/// others.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash; exec sh";
/// Terminal type, supported by most terminal emulators.
const TERM: &str = "xterm-256color";

/// Shell in a terminal.
#[derive(Debug)]
pub struct Terminal {
    stream: glovebox_sandbox::Stream,
    input: TerminalInput,
}

/// Keyboard and window size of a terminal, usable from another thread. It does not keep the shell
/// alive.
#[derive(Debug, Clone)]
pub struct TerminalInput {
    sandbox: Arc<Sandbox>,
    input: Input,
    argv: Arc<[ByteBuf]>,
    job: Arc<OnceLock<JobId>>,
}

/// Event of a terminal.
#[derive(Debug)]
pub enum TerminalEvent {
    /// Output of programs. Receiving it allows them to write more.
    Output(Vec<u8>),
    /// The shell has ended or was lost. No event follows.
    Ended(Result<ExitReport, Fault>),
}

impl Terminal {
    /// Starts a shell in the start directory of `sandbox`.
    ///
    /// # Errors
    /// The command cannot be sent. An error of the start is reported as the end of the shell.
    pub fn open(sandbox: &Arc<Sandbox>, size: WindowSize) -> Result<Self, Error> {
        let mut exec = Exec {
            cwd: copied::start_dir(sandbox),
            stdin: Stdin::Stream,
            pty: Some(size),
            stream_output: true,
            ..Exec::new(["sh", "-c", SHELL, Name::random("terminal").as_str()])
        };
        exec.env.push(glovebox_proto::EnvVar {
            name: ByteBuf::from("TERM"),
            value: ByteBuf::from(TERM),
        });
        // The log is never read later, so it needs no file.
        exec.log.spill_bytes = 0;
        let argv = exec.argv.clone().into();
        let stream = sandbox.open(Request::Exec(exec))?;
        let input = TerminalInput {
            sandbox: Arc::clone(sandbox),
            input: stream.input(),
            argv,
            job: Arc::default(),
        };
        Ok(Self { stream, input })
    }

    /// Returns the keyboard.
    pub fn input(&self) -> TerminalInput {
        self.input.clone()
    }

    /// Waits for the next event. Blocks.
    pub fn next_event(&mut self) -> TerminalEvent {
        match self.stream.recv() {
            Incoming::Data { bytes, .. } => TerminalEvent::Output(bytes),
            Incoming::Reply(Ok(Reply::Exited(report))) => TerminalEvent::Ended(Ok(report)),
            Incoming::Reply(Ok(_)) => TerminalEvent::Ended(Err(Fault::lost(
                glovebox_proto::Code::Protocol,
                "the guest answered something else than the end of a command",
            ))),
            Incoming::Reply(Err(fault)) => TerminalEvent::Ended(Err(fault)),
        }
    }
}

impl TerminalInput {
    /// Sends keyboard input. Blocks while the shell accepts none.
    ///
    /// # Errors
    /// The shell has ended.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.input.send(bytes)
    }

    /// Sets the window size and notifies the programs.
    ///
    /// # Errors
    /// The shell has ended.
    pub fn resize(&self, size: WindowSize) -> Result<(), Fault> {
        let Some(job) = self.find_job()? else {
            return Ok(());
        };
        let request = Request::JobResize { job, size };
        self.sandbox.call(request).map(drop)
    }

    /// Ends the shell; [`Terminal::next_event`] still returns its end.
    pub fn hang_up(&self) {
        // If this fails, the shell has ended already.
        let _ = self.input.cancel();
    }

    /// Finds the job of the shell. The reply that contains its id comes only at the end, so the job
    /// list is searched.
    fn find_job(&self) -> Result<Option<JobId>, Fault> {
        if let Some(job) = self.job.get() {
            return Ok(Some(*job));
        }
        let jobs = self.sandbox.jobs()?;
        let found = jobs.iter().find(|job| *job.argv == *self.argv);
        Ok(found.map(|found| *self.job.get_or_init(|| found.job)))
    }
}
