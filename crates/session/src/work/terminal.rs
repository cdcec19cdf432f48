//! A shell at a terminal of a sandbox, for user interfaces that show one.
//!
//! The shell is a command like any other: whoever drops [`Terminal`], or loses the connection to the sandbox, ends it
//! with all that it has started.

use crate::Error;
use crate::sync::copied;
use glovebox_proto::{Exec, ExitReport, Fault, JobId, Reply, Request, Stdin, WindowSize};
use glovebox_sandbox::{Incoming, Input, Name, Sandbox};
use serde_bytes::ByteBuf;
use std::sync::{Arc, OnceLock};

/// Bash where there is one. The name of the script tells this terminal's job from all others.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash; exec sh";
/// What a terminal understands that nobody has described more closely.
const TERM: &str = "xterm-256color";

/// A shell at a terminal.
#[derive(Debug)]
pub struct Terminal {
    stream: glovebox_sandbox::Stream,
    input: TerminalInput,
}

/// The keyboard of a terminal and the size of its window, for another thread. It does not keep the shell alive.
#[derive(Debug, Clone)]
pub struct TerminalInput {
    sandbox: Arc<Sandbox>,
    input: Input,
    argv: Arc<[ByteBuf]>,
    job: Arc<OnceLock<JobId>>,
}

/// What comes from a terminal.
#[derive(Debug)]
pub enum TerminalEvent {
    /// What programs wrote. Taking it lets them write more.
    Output(Vec<u8>),
    /// The shell has ended, or was lost. Nothing follows.
    Ended(Result<ExitReport, Fault>),
}

impl Terminal {
    /// Starts a shell where commands of `sandbox` begin.
    ///
    /// # Errors
    /// Whatever keeps a command from being sent; what keeps it from starting is its end.
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
        // Nobody reads it later: what was shown was shown.
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

    /// Its keyboard.
    pub fn input(&self) -> TerminalInput {
        self.input.clone()
    }

    /// Waits for what comes next.
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
    /// Types; blocks while the shell takes nothing.
    ///
    /// # Errors
    /// When the shell has ended.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.input.send(bytes)
    }

    /// Tells programs that the window has another size.
    ///
    /// # Errors
    /// When the shell has ended.
    pub fn resize(&self, size: WindowSize) -> Result<(), Fault> {
        let Some(job) = self.find_job()? else {
            return Ok(());
        };
        let request = Request::JobResize { job, size };
        self.sandbox.call(request).map(drop)
    }

    /// Ends the shell; its end still comes.
    pub fn hang_up(&self) {
        // What cannot be told of it any more has ended.
        let _ = self.input.cancel();
    }

    /// The answer to the request tells the job's number, and comes when the shell has ended; the list tells it now.
    fn find_job(&self) -> Result<Option<JobId>, Fault> {
        if let Some(job) = self.job.get() {
            return Ok(Some(*job));
        }
        let jobs = self.sandbox.jobs()?;
        let found = jobs.iter().find(|job| *job.argv == *self.argv);
        Ok(found.map(|found| *self.job.get_or_init(|| found.job)))
    }
}
