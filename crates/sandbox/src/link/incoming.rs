//! Events of an open request.

use glovebox_proto::{Channel, Fault, Reply};

/// Event of a stream.
#[expect(
    clippy::large_enum_variant,
    reason = "the reply comes once, and data is a moved pointer"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// Bytes of one channel, in order.
    Data {
        /// Channel.
        channel: Channel,
        /// Bytes. May be empty if `is_last` is set.
        bytes: Vec<u8>,
        /// True if the channel ends with these bytes.
        is_last: bool,
    },
    /// Reply. No event follows.
    Reply(Result<Reply, Fault>),
}
