//! Server side, over standard input and output or over streamable HTTP.
//!
//! ```text
//! client   tools/list   the definitions of the toolset, with annotations
//!          tools/call   a thread -> ToolSession::call_from; progress while it waits; cancellation
//!          resources    glovebox://changes (a patch), glovebox://jobs/ID (the log of a command)
//! end      pipe closed, session deleted or idle, signal -> calls end, the session is closed
//! ```
//!
//! A client's session is opened on first use and closed when the client is gone, for any reason.
//! The protocol is implemented by the official SDK (`rmcp`). Protocol versions without sessions are
//! not offered: a sandbox belongs to a session.

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

/// Opener of sessions for clients.
pub trait SessionFactory: Debug + Send + Sync {
    /// Opens a session for a client. `client` is the name that it sent in `initialize`. Called on a
    /// thread that may block.
    ///
    /// # Errors
    /// The reason why the session cannot be opened, which is sent to the client.
    fn open_session(&self, client: Option<&str>) -> Result<Box<dyn Session>, Fault>;

    /// Returns the tools that clients see.
    fn toolset(&self) -> &Toolset;

    /// Returns the prefix of tool names. Its sessions must have the same.
    fn prefix(&self) -> ToolPrefix {
        ToolPrefix::default()
    }

    /// Returns the instructions for clients, which describe where the tools work.
    fn instructions(&self) -> String;
}

/// Working environment of one client. Dropping it closes it, and may block.
pub trait Session: Debug + Send + Sync {
    /// Returns the tools, bound to this session's sandbox.
    fn tools(&self) -> &ToolSession;

    /// Returns the name of the sandbox.
    fn name(&self) -> String;

    /// Returns a notice for the client's model, which is added to the result of its first call.
    /// `None` if there is none.
    fn notice(&self) -> Option<String>;

    /// Returns the changes as a patch of at most `max_bytes`.
    ///
    /// # Errors
    /// If changes cannot be determined, or the patch is larger.
    fn changes(&self, max_bytes: usize) -> Result<Vec<u8>, Fault>;

    /// Called when a call of `tool` begins. [`CallRecord::end`] of the returned record is called
    /// when it has ended.
    fn call_began(&self, _tool: &str, _arguments: &Value) -> Box<dyn CallRecord> {
        Box::new(NoRecord)
    }
}

/// Record of a call, for example for metrics.
pub trait CallRecord: Send {
    /// Called when the call has ended.
    fn end(self: Box<Self>, outcome: Result<&ToolOutcome, &Fault>);
}

/// Record that does nothing.
struct NoRecord;

impl CallRecord for NoRecord {
    fn end(self: Box<Self>, _: Result<&ToolOutcome, &Fault>) {}
}
