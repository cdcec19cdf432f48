//! The Model Context Protocol, over standard input and output or over streamable HTTP.
//!
//! ```text
//! client   tools/list   the definitions of the toolset, with annotations
//!          tools/call   a thread -> Hands::call; progress while it waits, a cancellation reaches it
//!          resources    glovebox://changes (a patch), glovebox://jobs/ID (the log of a command)
//! end      pipe closed, session deleted or idle, signal -> calls end, the session is closed
//! ```
//!
//! A client's session is opened when it is first needed and closed when the client is gone, however it went.
//! The protocol is that of the official SDK (`rmcp`). Versions without sessions are not offered: a sandbox
//! belongs to a session.

mod accept;
mod ask;
mod calls;
mod cancel;
mod connections;
mod endpoint;
mod guard;
mod handler;
mod http;
mod lines;
mod pool;
mod resource;
mod stdio;

pub use connections::{Connection, Connections};
pub use endpoint::{EndpointOptions, HttpAnswer, HttpService};
pub use guard::{Token, has_local_origin, usual_hosts};
pub use http::{HttpOptions, check_reach, serve as serve_http};
pub use pool::Closing;
pub use stdio::serve as serve_stdio;

use glovebox_proto::Fault;
use glovebox_tools::policy::Toolset;
use glovebox_tools::{ToolOutcome, ToolPrefix, ToolSession};
use serde_json::Value;
use std::fmt::Debug;

/// Opens the sessions of clients.
pub trait SessionFactory: Debug + Send + Sync {
    /// Opens a session for one more client, which calls itself `client`. May take its time; is called on a thread that
    /// may block.
    ///
    /// # Errors
    /// Whatever keeps it from being opened; the client is told.
    fn open_session(&self, client: Option<&str>) -> Result<Box<dyn Session>, Fault>;

    /// The tools clients are shown.
    fn toolset(&self) -> &Toolset;

    /// What stands before the names of tools. Sessions have the same.
    fn prefix(&self) -> ToolPrefix {
        ToolPrefix::default()
    }

    /// What a client is told about where its tools work.
    fn instructions(&self) -> String;
}

/// What one client works in. Dropping it closes it; that may block.
pub trait Session: Debug + Send + Sync {
    /// The tools, working here.
    fn tools(&self) -> &ToolSession;

    /// The sandbox's name.
    fn name(&self) -> String;

    /// What a client's model is told once, after its first call.
    fn notice(&self) -> Option<String>;

    /// What was changed, as a patch; at most `max_bytes`.
    ///
    /// # Errors
    /// Where changes cannot be told, or are more than that.
    fn changes(&self, max_bytes: usize) -> Result<Vec<u8>, Fault>;

    /// A call of `tool` begins, for whoever counts them. What this gives is told the end.
    fn call_began(&self, _tool: &str, _arguments: &Value) -> Box<dyn CallRecord> {
        Box::new(NoRecord)
    }
}

/// A call that somebody counts.
pub trait CallRecord: Send {
    /// It has ended.
    fn end(self: Box<Self>, outcome: Result<&ToolOutcome, &Fault>);
}

/// Nobody counts it.
struct NoRecord;

impl CallRecord for NoRecord {
    fn end(self: Box<Self>, _: Result<&ToolOutcome, &Fault>) {}
}
