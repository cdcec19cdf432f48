//! Client side: tools of other MCP servers, as another source of an agent's tools.
//!
//! ```text
//! specs     where each server is: a program that the caller starts, or an address
//! start     connect, list the tools, keep those that are allowed and fit; once at the start of a
//!           run; a broken server is left out, unless it is required
//! call      permit -> the server, within a time limit -> text and images, truncated once
//! death     noticed at the next call, which connects again; a call is never repeated
//! ```
//!
//! TRUST: everything that a server sends is bounded before it is kept: its messages (`overrun`),
//! its definitions (`definitions`), its results (`answer`). A server is only asked for tools, and
//! is offered nothing: no files, no model, no questions to the user.

mod answer;
mod definitions;
mod http;
mod link;
mod overrun;
mod remote;

pub use link::{Launch, ProcessLife, ServerProcess};
pub use remote::{HttpEndpoint, check_url};

use crate::message::{UNREAD, result_value};
use definitions::OfferedTool;
use glovebox_agent::{ServerPlace, ToolDefinition, ToolOutput, ToolServer, Tools};
use glovebox_proto::{Code, Fault};
use glovebox_tools::policy::{CallId, Permit, PermitRequest};
use http::{NO_EFFECT, UNKNOWN_EFFECT};
use link::Link;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ErrorCode, ErrorData};
use rmcp::service::ServiceError;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Mutex;

/// Maximum size of a message of a server, in bytes.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Interval at which a call checks for its cancellation.
const WATCH: Duration = Duration::from_millis(25);
/// Maximum time for closing the connections of all servers together.
const GOODBYE: Duration = Duration::from_secs(2);

/// Configuration of a server.
#[derive(Debug)]
pub struct ServerSpec {
    /// Name, with which the names of its tools begin
    /// ([`glovebox_tools::policy::check_server_name`]).
    pub name: String,
    /// Place where the server runs.
    pub place: ServerPlace,
    /// Transport to the server.
    pub way: ServerTransport,
    /// Tools to use, by their names at the server. `None` for all.
    pub tools: Option<Vec<String>>,
    /// Maximum time for the start, and for each call.
    pub timeout: Duration,
    /// Maximum size of the text of one result, in bytes.
    pub output_bytes: usize,
    /// True if the server's own statement counts about which of its tools change nothing.
    pub is_trusted: bool,
    /// True if a run must not start without the server.
    pub is_required: bool,
}

/// Result of starting servers.
#[derive(Debug)]
pub struct StartedServers {
    /// Servers that were started.
    pub servers: Servers,
    /// Notes for people about tools that were left out.
    pub left_out: Vec<String>,
    /// Servers that could not be started and are not required, by name, with the reason.
    pub broken: Vec<(String, Fault)>,
}

/// Transport to a server.
#[derive(Debug, Clone)]
pub enum ServerTransport {
    /// A program, over its standard input and output.
    Program(Arc<dyn Launch>),
    /// Streamable HTTP.
    Http(HttpEndpoint),
}

/// All servers of one run. Dropping it ends them, if no copy from [`Self::with_permit`] is left.
/// The drop blocks for up to two seconds.
pub struct Servers {
    servers: Vec<Arc<Server>>,
    permit: Option<Arc<dyn Permit>>,
    runtime: Arc<WaitingRuntime>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.servers.iter().map(|server| &server.spec.name);
        f.debug_list().entries(names).finish()
    }
}

/// Server that was started successfully at least once.
#[derive(Debug)]
struct Server {
    spec: ServerSpec,
    tools: Vec<OfferedTool>,
    link: Mutex<Option<Link>>,
}

/// Threads of the asynchronous side.
#[derive(Debug)]
struct WaitingRuntime(Option<Runtime>);

impl WaitingRuntime {
    fn handle(&self) -> Result<&Handle, Fault> {
        let runtime = self.0.as_ref().map(Runtime::handle);
        runtime.ok_or_else(|| Fault::failed(Code::Internal, "the servers have been left"))
    }
}

impl Drop for WaitingRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Servers {
    /// Starts all servers concurrently, and blocks until each has started or failed.
    ///
    /// # Errors
    /// The fault of the first required server that cannot be started, with the end of its standard
    /// error; `cancelled`.
    pub fn start(specs: Vec<ServerSpec>, cancel: &AtomicBool) -> Result<StartedServers, Fault> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| {
                Fault::failed(
                    Code::Busy,
                    format!("MCP servers cannot be waited for: {error}"),
                )
            })?;
        let starting: Vec<_> = specs
            .into_iter()
            .map(|spec| {
                let (name, is_required) = (spec.name.clone(), spec.is_required);
                (name, is_required, runtime.spawn(Server::start(spec)))
            })
            .collect();
        let mut all = Self {
            servers: Vec::new(),
            permit: None,
            runtime: Arc::new(WaitingRuntime(Some(runtime))),
        };
        let (mut notes, mut broken) = (Vec::new(), Vec::new());
        let handle = all.runtime.handle()?.clone();
        handle.block_on(async {
            for (name, is_required, start) in starting {
                let started = tokio::select! {
                    started = start => started,
                    () = until(cancel) => return Err(cancelled()),
                };
                let started = started.map_err(|error| {
                    Fault::failed(
                        Code::Internal,
                        format!("a server's start broke down: {error}"),
                    )
                })?;
                match started {
                    Ok((server, left_out)) => {
                        notes.extend(left_out);
                        all.servers.push(Arc::new(server));
                    }
                    Err(fault) if is_required => return Err(fault),
                    Err(fault) => broken.push((name, fault)),
                }
            }
            Ok(())
        })?;
        Ok(StartedServers {
            servers: all,
            left_out: notes,
            broken,
        })
    }

    /// Returns the same servers, with `permit` asked before every call.
    #[must_use]
    pub fn with_permit(&self, permit: Arc<dyn Permit>) -> Self {
        Self {
            servers: self.servers.clone(),
            permit: Some(permit),
            runtime: Arc::clone(&self.runtime),
        }
    }

    /// Returns the name and place of every server.
    pub fn labels(&self) -> Vec<ToolServer> {
        self.servers.iter().map(|server| server.label()).collect()
    }

    fn find(&self, name: &str) -> Option<(&Arc<Server>, &OfferedTool)> {
        self.servers.iter().find_map(|server| {
            let mut tools = server.tools.iter();
            let tool = tools.find(|tool| tool.definition.name == name)?;
            Some((server, tool))
        })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let Ok(handle) = self.runtime.handle() else {
            return;
        };
        let last: Vec<Server> = std::mem::take(&mut self.servers)
            .into_iter()
            .filter_map(Arc::into_inner)
            .collect();
        let links: Vec<Link> = last
            .into_iter()
            .filter_map(|server| server.link.into_inner())
            .collect();
        if links.is_empty() {
            return;
        }
        let leaving: Vec<_> = links
            .into_iter()
            .map(|link| handle.spawn(link.close()))
            .collect();
        let all = async {
            for leave in leaving {
                let _ = leave.await;
            }
        };
        // `timeout` needs the runtime's timer, so it is made inside.
        let _ = handle.block_on(async { tokio::time::timeout(GOODBYE, all).await });
    }
}

impl Tools for Servers {
    fn definitions(&self) -> Vec<ToolDefinition> {
        self.servers
            .iter()
            .flat_map(|server| &server.tools)
            .map(|tool| tool.definition.clone())
            .collect()
    }

    fn own_name(&self, name: &str) -> Option<String> {
        self.find(name)
            .map(|(_, tool)| tool.definition.name.clone())
    }

    fn is_read_only(&self, name: &str) -> Option<bool> {
        self.find(name)
            .map(|(_, tool)| tool.definition.is_read_only)
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        let (server, tool) = self.find(name).ok_or_else(|| {
            Fault::failed(Code::NotFound, format!("no server has a tool `{name}`"))
        })?;
        let arguments = match arguments {
            Value::Null => Map::new(),
            Value::Object(arguments) => arguments,
            _ => {
                let message = format!("the arguments of {name} are no JSON object");
                return Err(Fault::failed(Code::InvalidArgument, message));
            }
        };
        let mut id = None;
        if let Some(permit) = &self.permit {
            permit.permit(&PermitRequest {
                call: id.insert(CallId::random()),
                tool: &tool.definition.name,
                arguments: &Value::Object(arguments.clone()),
                is_nested: false,
                asker: None,
                cancel,
            })?;
        }
        let params = CallToolRequestParams::new(tool.name.clone()).with_arguments(arguments);
        let handle = self.runtime.handle()?;
        let answer = handle.block_on(async {
            tokio::select! {
                answer = server.call(params) => answer,
                // Dropping the other branch notifies the server of the cancellation.
                () = until(cancel) => Err(cancelled()),
            }
        })?;
        let output = answer::output(&answer, server.spec.output_bytes);
        let mut output = output.map_err(|field| server.spec.not_understood(field))?;
        let label = server.label();
        output.facts.insert("server".to_owned(), label.name.into());
        let place = label.place.as_str();
        output.facts.insert("placement".to_owned(), place.into());
        if let Some(id) = id {
            // Identifier that `glovebox why` takes.
            output.facts.insert("call".to_owned(), id.as_str().into());
        }
        Ok(output)
    }
}

impl Server {
    async fn start(spec: ServerSpec) -> Result<(Self, Vec<String>), Fault> {
        let mut link = Link::open(&spec).await?;
        let listed = tokio::time::timeout(spec.timeout, link.tools()).await;
        let listed = match listed {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => return Err(link.failed(&spec, "did not tell its tools", &error)),
            Err(_) => return Err(spec.too_late("was asked for its tools")),
        };
        let (tools, left_out) = definitions::take(&spec, &listed);
        let server = Self {
            tools,
            link: Mutex::new(Some(link)),
            spec,
        };
        Ok((server, left_out))
    }

    fn label(&self) -> ToolServer {
        self.spec.label()
    }

    async fn call(&self, params: CallToolRequestParams) -> Result<Value, Fault> {
        let spec = &self.spec;
        // The lock is held only while a connection is opened, so that calls run at the same time.
        let peer = {
            let mut held = self.link.lock().await;
            if let Some(link) = held.take_if(|link| !link.is_alive()) {
                link.close().await;
            }
            match &mut *held {
                Some(link) => link.peer(),
                // The connection died since the last call, so this call has had no effect yet.
                none => none.insert(Link::open(spec).await?).peer(),
            }
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let called = tokio::time::timeout(spec.timeout, link::request(&peer, request)).await;
        match called {
            Ok(Ok(result)) => result_value(result).ok_or_else(|| spec.not_understood("result")),
            // The server is alive, and its connection is kept for the next call.
            Ok(Err(ServiceError::McpError(error))) => Err(spec.refused(&error)),
            Ok(Err(ServiceError::UnexpectedResponse)) => Err(spec.not_understood("result")),
            Ok(Err(error)) => {
                let link = self.link.lock().await.take();
                let Some(mut link) = link else {
                    return Err(spec.broken("is gone", "its connection has ended"));
                };
                let fault = link.failed(spec, "was lost during this call", &error);
                link.close().await;
                Err(fault.remedy(
                    "whether the call had an effect is not known: look before you make it again; the next call \
                     starts the server anew",
                ))
            }
            Err(_) => Err(spec.too_late("was called")),
        }
    }
}

impl ServerSpec {
    fn label(&self) -> ToolServer {
        ToolServer {
            name: self.name.clone(),
            place: self.place,
        }
    }

    /// Fault for a call that was made and whose result is malformed.
    fn not_understood(&self, field: &str) -> Fault {
        let message = format!(
            "the MCP server `{}` made the call, and `{field}` of its answer is not understood",
            self.name
        );
        Fault::failed(Code::Protocol, message)
            .remedy("look what the call did before you make it again")
    }

    /// Fault for an error with which the server replied to a call.
    // TRUST: the message quotes the server.
    fn refused(&self, error: &ErrorData) -> Fault {
        let words = match &self.way {
            ServerTransport::Http(address) => address.hide(&error.message),
            ServerTransport::Program(_) => error.message.to_string(),
        };
        match error.code {
            NO_EFFECT => self
                .broken("did not take the call", &words)
                .remedy("the call had no effect"),
            UNKNOWN_EFFECT => self.broken("failed during this call", &words).remedy(
                "whether the call had an effect is not known: look before you make it again",
            ),
            UNREAD => {
                let message = format!(
                    "the MCP server `{}` made the call, and its answer cannot be read: {}",
                    self.name,
                    link::quote(&words)
                );
                Fault::failed(Code::Protocol, message)
                    .remedy("look what the call did before you make it again")
            }
            code => Fault::failed(
                match code {
                    ErrorCode::INVALID_PARAMS => Code::InvalidArgument,
                    ErrorCode::METHOD_NOT_FOUND => Code::NotFound,
                    _ => Code::Unavailable,
                },
                format!(
                    "the MCP server `{}` refused the call: {}",
                    self.name,
                    link::quote(&words)
                ),
            ),
        }
    }

    // TRUST: `why` may quote the server.
    fn broken(&self, what: &str, why: &str) -> Fault {
        let message = format!(
            "the MCP server `{}` {what}: {}",
            self.name,
            link::quote(why)
        );
        // Never of class `lost`: that means the loss of the sandbox, and ends the run.
        Fault::failed(Code::Unavailable, message)
    }

    fn too_late(&self, what: &str) -> Fault {
        let (name, seconds) = (&self.name, self.timeout.as_secs_f32());
        let message = format!("the MCP server `{name}` {what} and did not answer in {seconds} s");
        Fault::failed(Code::TimedOut, message).remedy(format!(
            "if it needs longer, the user can raise `timeout` in [mcp.{name}]"
        ))
    }
}

async fn until(cancel: &AtomicBool) {
    while !cancel.load(Ordering::Relaxed) {
        tokio::time::sleep(WATCH).await;
    }
}

fn cancelled() -> Fault {
    Fault::failed(Code::Cancelled, "the call was given up")
}
