//! Commands of a sandbox: run and captured, or started as jobs.

use super::{Sandbox, unexpected};
use crate::fault;
use crate::handle::stream::Stream;
use crate::link::Incoming;
use glovebox_proto::{
    Channel, Code, Exec, ExitReport, Fault, JobId, JobInfo, ListeningPort, MAX_PORTS_LISTED, Reply,
    Request, Stdin,
};

/// A command's captured output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// How it ended.
    pub report: ExitReport,
    /// Standard output up to the cap.
    pub stdout: Vec<u8>,
    /// Standard error up to the cap.
    pub stderr: Vec<u8>,
    /// Whether something was cut off.
    pub truncated: bool,
}

/// Output kept per stream by [`Sandbox::exec`].
const CAPTURED_BYTES: usize = 16 << 20;

impl Sandbox {
    /// Which ports servers of the sandbox listen on.
    pub fn ports(&self) -> Result<Vec<ListeningPort>, Fault> {
        match self.call(Request::Ports)? {
            // TRUST: a guest may send more than there can be.
            Reply::Ports(mut ports) => {
                ports.truncate(MAX_PORTS_LISTED);
                Ok(ports)
            }
            _ => Err(unexpected("a list of ports")),
        }
    }

    /// Runs a command and captures its output, at most 16 MiB per stream; what is beyond is read
    /// and thrown away.
    pub fn exec(&self, exec: Exec) -> Result<CommandOutput, Fault> {
        self.exec_with(exec, &[], CAPTURED_BYTES)
    }

    /// [`Self::exec`] with input, and another cap in bytes per stream. Empty input is an empty
    /// stream if `exec.stdin` says so.
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
            // Input that the command does not take is no failure of the command.
            std::thread::Builder::new()
                .spawn_scoped(scope, move || feed.send(input).and_then(|()| feed.finish()))
                .map_err(|error| fault::plain_io("cannot start a thread", error))?;
            capture(&mut stream, max_bytes)
        })
    }

    /// All jobs, oldest first.
    pub fn jobs(&self) -> Result<Vec<JobInfo>, Fault> {
        match self.call(Request::JobList)? {
            Reply::Jobs(jobs) => Ok(jobs),
            _ => Err(unexpected("a job list")),
        }
    }

    /// Starts a job and leaves it running.
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
                // TRUST: how much comes is up to the guest; what is kept is up to the caller.
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
