//! Byte streams to a guest on another machine that survive broken connections.
//!
//! In: a [`Connect`], which opens one pipe after another to the same guest. Out: a local socket
//! that carries frames of the protocol, as if the guest were a child process.
//!
//! ```text
//! caller -- socket pair -- pump == pipe == guest link RUN_DIR -- pump -- event loop of the guest
//! ```
//!
//! The pump keeps bytes that the guest has not acknowledged (`glovebox_proto::resume`). When a pipe
//! breaks, it opens another one, and calls wait meanwhile; after a window of time the guest is
//! lost. No byte is delivered twice.

mod carry;
mod connect;
mod fault;
mod identity;
mod message;
pub mod options;
mod owner;
mod pump;
pub mod runtime;
mod status;
mod times;

pub use carry::{CarriedLink, LinkedGuest, carry};
pub use connect::{Attempt, Connect, ConnectFailure, Pipe, PipeEnd};
/// Encoding of bytes as lines of text, for services that only pass text.
pub use glovebox_proto::{LinesDecoder, NoiseTooLong, encode_lines};
pub use identity::{new_run_dir, owner_id, start_dir};
pub use message::show_message;
pub use owner::{GuestEnd, Release};
pub use status::Outage;
pub use times::{Backoff, Sizes, Times};
