//! MCP servers of a run: programs, started as jobs, and remote addresses with their headers.
//!
//! A server's program is a job of a guest like any other command: of the sandbox's guest, or of one
//! without isolation on this machine. So it ends with all its processes, however this process ends.

use crate::Error;
use crate::host;
use crate::spec;
use crate::work::{WorkContext, WorkSession};
use glovebox_agent::{Placement, ServerPlace};
use glovebox_mcp::client::{
    HttpEndpoint, Launch, ProcessLife, ServerProcess, ServerSpec, ServerTransport,
};
use glovebox_proto::{Channel, Code, Exec, Exit, Fault, LogCaps, Reply, Request, Stdin};
use glovebox_sandbox::{Backend, Incoming, Input, Sandbox, SandboxSpec, Stream};
use glovebox_settings::{McpServer, McpTransport, Settings};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes kept of the end of a server's standard error.
const KEPT_BYTES: usize = 2048;
/// Time between asking a server to end and killing it, in milliseconds.
const GRACE_MS: u64 = 500;
/// Maximum time to wait for the end of a server.
const END_WAIT: Duration = Duration::from_secs(3);

/// Servers to start, and the guest without isolation that some of them run in.
pub(super) struct ResolvedServers {
    pub(super) specs: Vec<ServerSpec>,
    pub(super) host: Option<Arc<Sandbox>>,
    /// Optional servers with an invalid definition: name and fault.
    pub(super) broken: Vec<(String, Fault)>,
}

/// Resolves the servers that the settings define.
///
/// # Errors
/// A required server refers to an unset variable or has an invalid header.
pub(super) fn resolve_servers(
    caller: &WorkContext<'_>,
    settings: &Settings,
    project: &Path,
    work: &WorkSession,
) -> Result<ResolvedServers, Error> {
    let is_local = work.placement() == Placement::Local;
    let sandbox = work.sandbox();
    let mut host = None;
    let (mut specs, mut broken) = (Vec::new(), Vec::new());
    for server in settings.servers.iter().map(|server| &server.value) {
        let place = server.place(is_local);
        let way = match &server.way {
            McpTransport::Http { .. } => match address(caller, server) {
                Ok(address) => ServerTransport::Http(address),
                Err(fault) if server.is_required => return Err(fault.into()),
                Err(fault) => {
                    broken.push((server.name.clone(), fault));
                    continue;
                }
            },
            McpTransport::Program { argv, env, .. } => {
                let guest = match place {
                    ServerPlace::Host if !is_local => {
                        if host.is_none() {
                            host = Some(Arc::new(without_walls(caller, project)?));
                        }
                        host.as_ref().unwrap_or(sandbox)
                    }
                    _ => sandbox,
                };
                ServerTransport::Program(Arc::new(Job {
                    sandbox: Arc::clone(guest),
                    exec: Exec {
                        env: spec::command_env(env, caller.host)?,
                        stdin: Stdin::Stream,
                        grace_ms: GRACE_MS,
                        // Output is read as it comes, so no log is kept.
                        log: LogCaps {
                            head_bytes: 0,
                            tail_bytes: 0,
                            spill_bytes: 0,
                        },
                        ..Exec::new(argv.iter().map(String::as_str))
                    },
                }))
            }
        };
        specs.push(ServerSpec {
            name: server.name.clone(),
            place,
            way,
            tools: server.tools.clone(),
            timeout: Duration::from_millis(server.timeout_ms),
            output_bytes: server.max_output_bytes,
            is_trusted: server.trust_annotations,
            is_required: server.is_required,
        });
    }
    Ok(ResolvedServers {
        specs,
        host,
        broken,
    })
}

fn without_walls(caller: &WorkContext<'_>, project: &Path) -> Result<Sandbox, Error> {
    let mut spec = SandboxSpec::new(Backend::HOST);
    spec.jail.env = host::host_environment(caller.host);
    spec.cwd = Some(project.to_owned());
    Ok(caller.registry.create(&spec, None)?)
}

fn address(caller: &WorkContext<'_>, server: &McpServer) -> Result<HttpEndpoint, Fault> {
    let McpTransport::Http {
        url,
        headers,
        bearer,
    } = &server.way
    else {
        let fault = Fault::failed(Code::InvalidArgument, "the server has no address");
        return Err(fault.remedy("give it a url"));
    };
    let wrong = |message: String| {
        let message = format!("the MCP server `{}`: {message}", server.name);
        Fault::failed(Code::InvalidArgument, message)
            .remedy(format!("correct [mcp.{}], or the variable", server.name))
    };
    let value = |header: &str, variable: &str| {
        let value = caller.host.var(variable).and_then(|value| value.to_str());
        // The message does not name the variable: a user may have put a secret in its place.
        value.map(str::to_owned).ok_or_else(|| {
            wrong(format!(
                "the variable that the header `{header}` comes from is not set"
            ))
        })
    };
    let mut found = Vec::new();
    for (header, variable) in headers {
        found.push((header.clone(), value(header, variable)?));
    }
    if let Some(variable) = bearer {
        let token = value("Authorization", variable)?;
        found.push((
            "Authorization".to_owned(),
            format!("Bearer {}", token.trim()),
        ));
    }
    HttpEndpoint::new(url, &found).map_err(wrong)
}

/// Program of a server, as a job of a guest.
#[derive(Debug)]
struct Job {
    sandbox: Arc<Sandbox>,
    exec: Exec,
}

impl Launch for Job {
    fn launch(&self) -> Result<ServerProcess, Fault> {
        let stream = self.sandbox.open(Request::Exec(self.exec.clone()))?;
        let told = Arc::new(JobEnd::default());
        Ok(ServerProcess {
            input: Box::new(JobInput(stream.input())),
            life: Box::new(JobLife {
                input: stream.input(),
                told: Arc::clone(&told),
            }),
            output: Box::new(JobOutput {
                stream,
                told,
                rest: VecDeque::new(),
            }),
        })
    }
}

/// State of a job whose output is being read, shared with its `JobLife`.
#[derive(Debug, Default)]
struct JobEnd {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    errors: VecDeque<u8>,
    ending: Option<String>,
}

impl JobEnd {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, ending: String) {
        self.state().ending.get_or_insert(ending);
        self.changed.notify_all();
    }
}

struct JobInput(Input);

impl Write for JobInput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(bytes);
        sent.map_err(|fault| io::Error::other(fault.message))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for JobInput {
    fn drop(&mut self) {
        let _ = self.0.finish();
    }
}

struct JobOutput {
    stream: Stream,
    told: Arc<JobEnd>,
    rest: VecDeque<u8>,
}

impl Read for JobOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.stream.recv() {
                Incoming::Data {
                    channel: Channel::Stderr,
                    bytes,
                    ..
                } => {
                    // TRUST: a server may write without end; only the last bytes are kept.
                    let mut state = self.told.state();
                    state.errors.extend(bytes);
                    let more = state.errors.len().saturating_sub(KEPT_BYTES);
                    state.errors.drain(..more);
                }
                Incoming::Data { bytes, .. } => self.rest.extend(bytes),
                Incoming::Reply(reply) => {
                    self.told.end(ending(reply));
                    return Ok(0);
                }
            }
        }
        self.rest.read(buffer)
    }
}

impl Drop for JobOutput {
    fn drop(&mut self) {
        // Nothing reads any more. Dropping the stream ends the job.
        self.told.end(String::new());
    }
}

fn ending(reply: Result<Reply, Fault>) -> String {
    match reply {
        Ok(Reply::Exited(exited)) => match exited.exit {
            Exit::Code(code) => format!("it exited with {code}"),
            Exit::Signal(signal) => format!("it was ended by signal {signal}"),
        },
        Ok(_) => "it ended".to_owned(),
        Err(fault) => fault.message,
    }
}

struct JobLife {
    input: Input,
    told: Arc<JobEnd>,
}

impl JobLife {
    fn wait(&self, wait: Duration) -> MutexGuard<'_, State> {
        let state = self.told.state();
        let waited = self
            .told
            .changed
            .wait_timeout_while(state, wait, |state| state.ending.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl ProcessLife for JobLife {
    fn exit_report(&mut self) -> String {
        let state = self.wait(Duration::from_millis(200));
        let errors: Vec<u8> = state.errors.iter().copied().collect();
        let errors = String::from_utf8_lossy(&errors);
        // The last line usually states the cause.
        let last = errors
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty());
        match (&state.ending, last) {
            (Some(ending), Some(last)) => format!("{ending}: {last}"),
            (Some(ending), None) => ending.clone(),
            (None, Some(last)) => last.to_owned(),
            (None, None) => String::new(),
        }
    }
}

impl Drop for JobLife {
    fn drop(&mut self) {
        let _ = self.input.cancel();
        drop(self.wait(END_WAIT));
    }
}
