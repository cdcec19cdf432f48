//! What arrives for an open request.

use glovebox_proto::{Channel, Fault, Reply};

/// What a stream delivers.
#[expect(
    clippy::large_enum_variant,
    reason = "the reply comes once, and data is a moved pointer"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// Bytes of one channel, in order.
    Data {
        /// The channel.
        channel: Channel,
        /// The bytes; may be empty with `is_last`.
        bytes: Vec<u8>,
        /// Whether the channel ends here.
        is_last: bool,
    },
    /// The answer; nothing follows.
    Reply(Result<Reply, Fault>),
}
