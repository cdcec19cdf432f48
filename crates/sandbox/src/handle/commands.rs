//! Commands of a sandbox: run with captured output, or started as jobs.

use super::{Sandbox, unexpected};
use crate::fault;
use crate::handle::stream::Stream;
use crate::link::Incoming;
use glovebox_proto::{
    Channel, Code, Exec, ExitReport, Fault, JobId, JobInfo, ListeningPort, MAX_PORTS_LISTED, Reply,
    Request, Stdin,
};

/// Captured output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// Report of the command's exit.
    pub report: ExitReport,
    /// Standard output, truncated to the bound.
    pub stdout: Vec<u8>,
    /// Standard error, truncated to the bound.
    pub stderr: Vec<u8>,
    /// True if either was truncated.
    pub truncated: bool,
}

/// Maximum output of each stream that [`Sandbox::exec`] keeps, in bytes.
const CAPTURED_BYTES: usize = 16 << 20;

impl Sandbox {
    /// Returns the ports that servers in the sandbox listen on.
    pub fn ports(&self) -> Result<Vec<ListeningPort>, Fault> {
        match self.call(Request::Ports)? {
            // TRUST: the guest may send more ports than there can be.
            Reply::Ports(mut ports) => {
                ports.truncate(MAX_PORTS_LISTED);
                Ok(ports)
            }
            _ => Err(unexpected("a list of ports")),
        }
    }

    /// Runs a command and captures its output, at most 16 MiB of each stream; the rest is read and
    /// discarded.
    pub fn exec(&self, exec: Exec) -> Result<CommandOutput, Fault> {
        self.exec_with(exec, &[], CAPTURED_BYTES)
    }

    /// As [`Self::exec`] with input, and a maximum of `max_bytes` of each stream. Empty input is an
    /// empty stream if `exec.stdin` says so.
    pub fn exec_with(
        &self,
        mut exec: Exec,
        input: &[u8],
        max_bytes: usize,
    ) -> Result<CommandOutput, Fault> {
        if exec.detach {
            return Err(Fault::failed(
                Code::InvalidArgument,
                "a detached job has no output to capture",
            ));
        }
        if !input.is_empty() {
            exec.stdin = Stdin::Stream;
        }
        exec.stream_output = true;
        let has_input = exec.stdin == Stdin::Stream;
        let mut stream = self.open(Request::Exec(exec))?;
        if !has_input {
            return capture(&mut stream, max_bytes);
        }
        let feed = stream.input();
        std::thread::scope(|scope| {
            // Input that the command does not read is not a failure of the command.
            std::thread::Builder::new()
                .spawn_scoped(scope, move || feed.send(input).and_then(|()| feed.finish()))
                .map_err(|error| fault::plain_io("cannot start a thread", error))?;
            capture(&mut stream, max_bytes)
        })
    }

    /// Returns all jobs, oldest first.
    pub fn jobs(&self) -> Result<Vec<JobInfo>, Fault> {
        match self.call(Request::JobList)? {
            Reply::Jobs(jobs) => Ok(jobs),
            _ => Err(unexpected("a job list")),
        }
    }

    /// Starts a job and returns without waiting for its end.
    pub fn start_job(&self, exec: Exec) -> Result<JobId, Fault> {
        match self.call(Request::Exec(Exec {
            detach: true,
            ..exec
        }))? {
            Reply::Started(job) => Ok(job),
            _ => Err(unexpected("a started job")),
        }
    }
}

fn capture(stream: &mut Stream, max_bytes: usize) -> Result<CommandOutput, Fault> {
    let mut output = [Vec::new(), Vec::new()];
    let mut truncated = false;
    loop {
        match stream.recv() {
            Incoming::Data { channel, bytes, .. } => {
                // TRUST: the guest decides how much it sends, the caller how much is kept.
                let kept = &mut output[usize::from(channel == Channel::Stderr)];
                let room = max_bytes.saturating_sub(kept.len());
                truncated |= bytes.len() > room;
                kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Incoming::Reply(Ok(Reply::Exited(report))) => {
                let [stdout, stderr] = output;
                return Ok(CommandOutput {
                    report,
                    stdout,
                    stderr,
                    truncated,
                });
            }
            Incoming::Reply(Ok(_)) => return Err(unexpected("the end of a command")),
            Incoming::Reply(Err(fault)) => return Err(fault),
        }
    }
}
