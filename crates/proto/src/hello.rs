//! Handshake, the first frame in each direction: role, protocol version and capabilities of the
//! sender.

use crate::{WireError, limits};
use serde::{Deserialize, Serialize};

/// Version of the frame format and of the meaning of every message.
pub const WIRE_VERSION: u16 = 17;

/// Role of one end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Trusted side, outside the sandbox.
    Host,
    /// Program inside the sandbox.
    Guest,
}

/// Optional ability of a guest beyond the base protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Capability {
    /// Jobs may have a pseudo-terminal.
    Pty,
    /// The guest finds and kills every process that a job started, even one that left its session
    /// or process group.
    KillTree,
    /// Logs beyond the in-memory part spill to a bounded file.
    LogSpill,
}

/// Message of the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`WIRE_VERSION`] of the sender. Stays the first field forever, so that every version can
    /// read it.
    pub version: u16,
    /// Role of the sender.
    pub role: Role,
    /// Package version of the sender, for messages to people.
    pub release: String,
    /// Abilities of the sender.
    pub capabilities: Vec<Capability>,
    /// Bytes per channel that the sender accepts before it must grant credit.
    pub window_bytes: u32,
}

impl Hello {
    /// Creates the handshake of this build.
    pub fn new(role: Role, capabilities: &[Capability]) -> Self {
        Self {
            version: WIRE_VERSION,
            role,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: capabilities.to_vec(),
            window_bytes: limits::WINDOW_BYTES,
        }
    }

    /// Decodes the peer's handshake and checks that this side can talk to the peer.
    ///
    /// # Errors
    /// [`WireError::Version`] for another version, [`WireError::BadPayload`] for a wrong role,
    /// window or encoding.
    pub fn accept(payload: &[u8], expected: Role) -> Result<Self, WireError> {
        // Decode the version first and alone: the rest of a newer Hello may not decode here, and
        // the error must still name the version.
        let bad = |detail: String| WireError::BadPayload {
            what: "hello",
            detail,
        };
        let (theirs, _) =
            postcard::take_from_bytes::<u16>(payload).map_err(|error| bad(error.to_string()))?;
        if theirs != WIRE_VERSION {
            return Err(WireError::Version {
                theirs,
                ours: WIRE_VERSION,
            });
        }
        let hello: Self = crate::decode(payload, "hello")?;
        if hello.role != expected {
            return Err(bad(format!("peer calls itself {:?}", hello.role)));
        }
        if hello.window_bytes != limits::WINDOW_BYTES {
            return Err(bad(format!("window of {} bytes", hello.window_bytes)));
        }
        Ok(hello)
    }
}
