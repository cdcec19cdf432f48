//! Connection to a server over a program's standard input and output or over HTTP. The SDK speaks
//! the protocol.

use super::overrun::{BoundedRequests, Overrun, read_lines};
use super::{ServerSpec, ServerTransport, remote};
use crate::message::result_value;
use crate::transport::{MAX_WAITING, ReadTransport};
use glovebox_proto::{Code, Fault, visible};
use rmcp::model::{
    CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientRequest, Implementation,
    ListToolsRequest, PaginatedRequestParams, RequestId, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, Peer, PeerRequestOptions, RoleClient, RunningService, ServiceError,
    serve_client,
};
use serde_json::Value;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread;
use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::io::SyncIoBridge;

/// Maximum number of pages that are requested of the list of tools.
const MAX_PAGES: usize = 32;
/// Maximum number of tools that are read from the list.
const MAX_LISTED: usize = 512;
/// Maximum number of characters of a server's message that a fault quotes.
const MAX_QUOTED_CHARS: usize = 400;
/// Size of the buffer between the SDK and the program's standard input, in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// Parsing a message recurses once per level of JSON, up to 128 levels.
const READER_STACK_BYTES: usize = 2 << 20;
const WRITER_STACK_BYTES: usize = 256 << 10;
/// Maximum time for closing a connection.
const CLOSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Starter of a server's program. Called again after the program has ended.
pub trait Launch: Debug + Send + Sync {
    /// Starts the program once. May block.
    ///
    /// # Errors
    /// The reason why the program does not run.
    fn launch(&self) -> Result<ServerProcess, Fault>;
}

/// Running program of a server.
pub struct ServerProcess {
    /// Standard input of the program.
    pub input: Box<dyn Write + Send>,
    /// Standard output of the program.
    pub output: Box<dyn Read + Send>,
    /// Handle that ends the program when dropped.
    pub life: Box<dyn ProcessLife>,
}

impl Debug for ServerProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ends(..)")
    }
}

/// Owner of a running program. Dropping it ends the program with all its descendants, and may
/// block.
pub trait ProcessLife: Send + Sync {
    /// Describes how the program ended, with the end of its standard error. Empty if nothing is
    /// known.
    fn exit_report(&mut self) -> String;
}

/// Open connection.
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
    /// Connects, and negotiates the protocol with the server.
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
                let transport = carry(ends.input, ends.output, &overrun)?;
                let transport = BoundedRequests::new(transport, &overrun);
                let served = tokio::time::timeout(spec.timeout, serve_client(client, transport));
                match served.await {
                    Ok(Ok(service)) => Ok(Self {
                        service,
                        life: Some(life),
                        overrun,
                    }),
                    Ok(Err(error)) => {
                        let words = said(&introduction_failure(&error), &mut *life, &overrun);
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
                        let words = address.hide(&introduction_failure(&error));
                        Err(spec.broken("is not to be had", &words))
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

    /// Lists the server's tools, at most [`MAX_LISTED`], as the server writes them.
    pub(super) async fn tools(&self) -> Result<Vec<Value>, ServiceError> {
        let mut tools = Vec::new();
        let mut next = None;
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(next);
            let request = ListToolsRequest::with_param(page);
            let request = ClientRequest::ListToolsRequest(request);
            let listed = self.service.peer().send_request(request).await?;
            let mut listed = result_value(listed).unwrap_or_default();
            let Some(Value::Array(page)) = listed.get_mut("tools").map(Value::take) else {
                return Err(ServiceError::UnexpectedResponse);
            };
            tools.extend(page);
            next = listed["nextCursor"].as_str().map(str::to_owned);
            if next.is_none() || tools.len() > MAX_LISTED {
                break;
            }
        }
        tools.truncate(MAX_LISTED);
        Ok(tools)
    }

    /// Returns the fault of a failed request, with the limit that the server exceeded or the
    /// program's last words.
    pub(super) fn failed(&mut self, spec: &ServerSpec, what: &str, error: &ServiceError) -> Fault {
        let error = match &spec.way {
            ServerTransport::Http(address) => address.hide(&failure(error)),
            ServerTransport::Program(_) => failure(error),
        };
        match (&mut self.life, self.overrun.told()) {
            (_, Some(overrun)) => spec.broken(what, overrun),
            (Some(life), None) => spec.broken(what, &said(&error, &mut **life, &self.overrun)),
            (None, None) => spec.broken(what, &error),
        }
    }

    /// Closes the connection and ends the program.
    pub(super) async fn close(mut self) {
        let _ = self.service.close_with_timeout(CLOSE).await;
        if let Some(life) = self.life.take() {
            end(life).await;
        }
    }
}

/// Sends a request and waits for its result. Dropping the future notifies the server of the
/// cancellation.
pub(super) async fn request(
    peer: &Peer<RoleClient>,
    request: ClientRequest,
) -> Result<ServerResult, ServiceError> {
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_cancellable_request(request, options).await?;
    let mut abandoned = AbandonedRequest {
        peer: peer.clone(),
        id: Some(handle.id.clone()),
    };
    let result = handle.await_response().await;
    abandoned.id = None;
    result
}

/// Request without a reply yet. Dropping it sends a cancellation to the server.
struct AbandonedRequest {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for AbandonedRequest {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let cancelled = CancelledNotificationParam::new(Some(id), None);
            // Fails only if the connection has ended.
            let _ = peer.notify_cancelled(cancelled).await;
        });
    }
}

/// Describes a failed request without the words of libraries.
fn failure(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => error.message.to_string(),
        ServiceError::TransportSend(error) => {
            format!("a message cannot be sent: {}", deepest(&*error.error))
        }
        ServiceError::TransportClosed => "the connection has ended".to_owned(),
        ServiceError::UnexpectedResponse => "`tools` of its answer is not understood".to_owned(),
        ServiceError::Timeout { .. } => "it does not answer".to_owned(),
        ServiceError::Cancelled { .. } => "the request was given up".to_owned(),
        _ => "the connection has failed".to_owned(),
    }
}

/// Describes a failed initialization without the words of libraries.
fn introduction_failure(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::JsonRpcError(error) => error.message.to_string(),
        ClientInitializeError::TransportError { error, .. } => {
            format!("a message cannot be sent: {}", deepest(&*error.error))
        }
        ClientInitializeError::ConnectionClosed(_) => "the connection has ended".to_owned(),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it speaks no version of the protocol that is known here".to_owned()
        }
        ClientInitializeError::Cancelled => "the introduction was given up".to_owned(),
        _ => "its answer to `initialize` is not understood".to_owned(),
    }
}

/// Returns the innermost cause. The outer ones repeat it in the words of libraries.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

async fn end(life: Box<dyn ProcessLife>) {
    let _ = tokio::task::spawn_blocking(move || drop(life)).await;
}

/// Prefers the program's own last words: they say more than that the pipe was closed.
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

/// Quotes a server's text in one bounded, escaped line.
pub(super) fn quote(text: &str) -> String {
    let line = visible::line_of_text(text.trim());
    match line.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// Connects a program to the SDK with two threads. They end with the program or the connection.
fn carry(
    input: Box<dyn Write + Send>,
    output: Box<dyn Read + Send>,
    overrun: &Overrun,
) -> Result<ReadTransport<RoleClient, DuplexStream>, Fault> {
    let (messages, incoming) = mpsc::channel(MAX_WAITING);
    let (write, drain) = tokio::io::duplex(BUFFER_BYTES);
    let mut drain = SyncIoBridge::new_with_handle(drain, Handle::current());
    let overrun = overrun.clone();
    let mut input = input;
    spawn("mcp-output", READER_STACK_BYTES, move || {
        read_lines(output, &messages, &overrun);
    })?;
    spawn("mcp-input", WRITER_STACK_BYTES, move || {
        let _ = io::copy(&mut drain, &mut input);
    })?;
    Ok(ReadTransport::new(incoming, write))
}

fn spawn(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), Fault> {
    let spawned = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(stack_bytes)
        .spawn(work);
    spawned.map(drop).map_err(|error| {
        Fault::failed(Code::Busy, format!("no thread for an MCP server: {error}")).retryable()
    })
}
