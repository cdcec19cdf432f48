//! The Model Context Protocol, over standard input and output or over streamable HTTP.
//!
//! ```text
//! client   tools/list   the definitions of the toolset, with annotations
//!          tools/call   a thread -> Hands::call; progress while it waits, a cancellation reaches it
//!          resources    glovebox://changes (a patch), glovebox://jobs/ID (the log of a command)
//! end      pipe closed, session deleted or idle, signal -> calls end, the house takes the room back
//! ```
//!
//! A client gets its room when it first needs one and gives it back when it is gone, however it went.
//! The protocol is that of the official SDK (`rmcp`). Versions without sessions are not offered: a room
//! belongs to a session.

mod ask;
mod connections;
mod door;
mod guard;
mod http;
mod lease;
mod lines;
mod resource;
mod stdio;

pub use guard::Token;
pub use http::{HttpOptions, check_reach, serve as serve_http};
pub use stdio::serve as serve_stdio;

use glovebox_proto::Fault;
use glovebox_tools::Hands;
use glovebox_tools::policy::Toolset;
use std::fmt::Debug;

/// Where clients work.
pub trait House: Debug + Send + Sync {
    /// A room for one more client. May take its time; is called on a thread that may block.
    ///
    /// # Errors
    /// Whatever keeps a room from being there; the client is told.
    fn enter(&self) -> Result<Box<dyn Room>, Fault>;

    /// The tools clients are shown.
    fn toolset(&self) -> &Toolset;

    /// What a client is told about where its tools work.
    fn instructions(&self) -> String;
}

/// What one client works in. Dropping it gives it back; that may block.
pub trait Room: Debug + Send + Sync {
    /// The tools, working here.
    fn hands(&self) -> &Hands;

    /// The sandbox's name.
    fn name(&self) -> String;

    /// What a client's model is told once, after its first call.
    fn notice(&self) -> Option<String>;

    /// What was changed, as a patch; at most `max_bytes`.
    ///
    /// # Errors
    /// Where changes cannot be told, or are more than that.
    fn changes(&self, max_bytes: usize) -> Result<Vec<u8>, Fault>;
}
