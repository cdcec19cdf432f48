//! One connection to a server: a program's standard input and output, or HTTP, spoken to by the SDK.

use super::overrun::{BoundedRequests, Lines, Overrun};
use super::{MAX_MESSAGE_BYTES, ServerSpec, ServerTransport, remote};
use glovebox_proto::{Code, Fault, visible};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, Tool};
use rmcp::service::{Peer, RoleClient, RunningService, ServiceError, serve_client};
use rmcp::transport::async_rw::AsyncRwTransport;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread;
use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio_util::io::SyncIoBridge;

/// Pages of tools that are asked for.
const MAX_PAGES: usize = 32;
/// Tools that are looked at.
const MAX_LISTED: usize = 512;
/// Characters of what a server says that are quoted in a failure.
const MAX_QUOTED_CHARS: usize = 400;
/// Between program and protocol.
const BUFFER_BYTES: usize = 64 << 10;
/// Closing a connection.
const CLOSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Starts a server's program, as often as it is needed.
pub trait Launch: Debug + Send + Sync {
    /// Starts it once. May block.
    ///
    /// # Errors
    /// Whatever keeps it from running.
    fn launch(&self) -> Result<ServerProcess, Fault>;
}

/// A program that runs.
pub struct ServerProcess {
    /// Its standard input.
    pub input: Box<dyn Write + Send>,
    /// Its standard output.
    pub output: Box<dyn Read + Send>,
    /// Ends it when dropped; may be asked how it went.
    pub life: Box<dyn ProcessLife>,
}

impl Debug for ServerProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ends(..)")
    }
}

/// A program's life. Dropping it ends the program with all that it started; that may block.
pub trait ProcessLife: Send + Sync {
    /// How it ended, if it has, and the end of what it wrote to standard error.
    fn exit_report(&mut self) -> String;
}

/// A connection.
pub(super) struct Link {
    service: RunningService<RoleClient, ClientConfig>,
    life: Option<Box<dyn ProcessLife>>,
    overrun: Overrun,
}

impl Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link(..)")
    }
}

impl Link {
    /// Connects, and agrees with the server on how to speak.
    pub(super) async fn open(spec: &ServerSpec) -> Result<Self, Fault> {
        let client = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("glovebox", env!("CARGO_PKG_VERSION")),
        );
        let overrun = Overrun::default();
        match &spec.way {
            ServerTransport::Program(program) => {
                let program = Arc::clone(program);
                let launched = tokio::task::spawn_blocking(move || program.launch())
                    .await
                    .map_err(|error| Fault::failed(Code::Internal, error.to_string()))?;
                let ends = launched.map_err(|mut fault| {
                    fault.message = format!(
                        "the MCP server `{}` does not start: {}",
                        spec.name, fault.message
                    );
                    fault
                })?;
                let mut life = ends.life;
                let (read, write) = carry(ends.input, ends.output, &overrun)?;
                let transport = AsyncRwTransport::new_client(read, write)
                    .with_max_line_length(MAX_MESSAGE_BYTES);
                let transport = BoundedRequests::new(transport, &overrun);
                let served = tokio::time::timeout(spec.timeout, serve_client(client, transport));
                match served.await {
                    Ok(Ok(service)) => Ok(Self {
                        service,
                        life: Some(life),
                        overrun,
                    }),
                    Ok(Err(error)) => {
                        let words = said(&error.to_string(), &mut *life, &overrun);
                        end(life).await;
                        Err(spec.broken("does not start", &words))
                    }
                    Err(_) => {
                        end(life).await;
                        Err(spec.too_late("was started"))
                    }
                }
            }
            ServerTransport::Http(address) => {
                let transport = BoundedRequests::new(remote::transport(address)?, &overrun);
                let served = tokio::time::timeout(spec.timeout, serve_client(client, transport));
                match served.await {
                    Ok(Ok(service)) => Ok(Self {
                        service,
                        life: None,
                        overrun,
                    }),
                    Ok(Err(error)) => {
                        Err(spec.broken("is not to be had", &address.hide(&error.to_string())))
                    }
                    Err(_) => Err(spec.too_late("was connected to")),
                }
            }
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.service.is_closed() && !self.service.peer().is_transport_closed()
    }

    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.service.peer().clone()
    }

    /// The tools it has, as many as anybody looks at.
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, ServiceError> {
        let mut tools = Vec::new();
        let mut next = None;
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(next);
            let listed = self.service.peer().list_tools(Some(page)).await?;
            tools.extend(listed.tools);
            next = listed.next_cursor;
            if next.is_none() || tools.len() > MAX_LISTED {
                break;
            }
        }
        tools.truncate(MAX_LISTED);
        Ok(tools)
    }

    /// What went wrong, with the program's last words.
    pub(super) fn failed(&mut self, spec: &ServerSpec, what: &str, error: &ServiceError) -> Fault {
        let error = match &spec.way {
            ServerTransport::Http(address) => address.hide(&error.to_string()),
            ServerTransport::Program(_) => error.to_string(),
        };
        match (&mut self.life, self.overrun.told()) {
            (_, Some(overrun)) => spec.broken(what, overrun),
            (Some(life), None) => spec.broken(what, &said(&error, &mut **life, &self.overrun)),
            (None, None) => spec.broken(what, &error),
        }
    }

    /// Says goodbye and ends the program.
    pub(super) async fn close(mut self) {
        let _ = self.service.close_with_timeout(CLOSE).await;
        if let Some(life) = self.life.take() {
            end(life).await;
        }
    }
}

async fn end(life: Box<dyn ProcessLife>) {
    let _ = tokio::task::spawn_blocking(move || drop(life)).await;
}

/// The program's own words say more than that its end of the line is closed.
fn said(error: &str, life: &mut dyn ProcessLife, overrun: &Overrun) -> String {
    if let Some(overrun) = overrun.told() {
        return overrun.to_owned();
    }
    let words = life.exit_report();
    if words.is_empty() {
        return error.to_owned();
    }
    words
}

/// What a server said, in one bounded line.
pub(super) fn quote(text: &str) -> String {
    let line = visible::line_of_text(text.trim());
    match line.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// Carries bytes between a program and the protocol, on two threads that end with either.
fn carry(
    input: Box<dyn Write + Send>,
    output: Box<dyn Read + Send>,
    overrun: &Overrun,
) -> Result<(DuplexStream, DuplexStream), Fault> {
    let handle = Handle::current();
    let (read, fill) = tokio::io::duplex(BUFFER_BYTES);
    let (write, drain) = tokio::io::duplex(BUFFER_BYTES);
    let mut fill = SyncIoBridge::new_with_handle(fill, handle.clone());
    let mut drain = SyncIoBridge::new_with_handle(drain, handle);
    let mut output = Lines::new(output, overrun);
    let mut input = input;
    spawn("mcp-output", move || {
        let _ = io::copy(&mut output, &mut fill);
        let _ = fill.shutdown();
    })?;
    spawn("mcp-input", move || {
        let _ = io::copy(&mut drain, &mut input);
    })?;
    Ok((read, write))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    let spawned = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 << 10)
        .spawn(work);
    spawned.map(drop).map_err(|error| {
        Fault::failed(Code::Busy, format!("no thread for an MCP server: {error}")).retryable()
    })
}
