//! Byte streams to a guest on another machine, which outlive a broken connection.
//!
//! In: a [`Connect`], which opens one pipe after another to the same guest. Out: one local socket that carries frames
//! of the protocol, as if the guest were a child process.

mod connect;

pub use connect::{Attempt, Connect, ConnectFailure, Pipe, PipeEnd};
/// Bytes as lines of text, for services that only pass text.
pub use glovebox_proto::{LinesDecoder, NoiseTooLong, encode_lines};
