//! The first frame in each direction: who speaks, which version, what it can do.

use crate::{WireError, limits};
use serde::{Deserialize, Serialize};

/// Version of the frame format and of the meaning of every message.
pub const WIRE_VERSION: u16 = 17;

/// Which end of the connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The trusted side.
    Host,
    /// The program inside the sandbox.
    Guest,
}

/// Something a guest can do beyond the base protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Capability {
    /// Jobs may have a pseudo-terminal.
    Pty,
    /// Everything a job started is found and killed, whatever it did to hide.
    KillTree,
    /// Logs beyond the in-memory part spill to a bounded file.
    LogSpill,
}

/// The handshake message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`WIRE_VERSION`] of the sender. First field for good, so that any version can read it.
    pub version: u16,
    /// Which end speaks.
    pub role: Role,
    /// Package version of the sender, for messages to people.
    pub release: String,
    /// What the sender can do.
    pub capabilities: Vec<Capability>,
    /// Bytes per channel the sender accepts before it must give credit.
    pub window_bytes: u32,
}

impl Hello {
    /// The handshake of this build.
    pub fn new(role: Role, capabilities: &[Capability]) -> Self {
        Self {
            version: WIRE_VERSION,
            role,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: capabilities.to_vec(),
            window_bytes: limits::WINDOW_BYTES,
        }
    }

    /// Reads the peer's handshake and refuses one this side cannot talk to.
    ///
    /// # Errors
    /// [`WireError::Version`] for another version, [`WireError::BadPayload`] for a wrong role,
    /// window or encoding.
    pub fn accept(payload: &[u8], expected: Role) -> Result<Self, WireError> {
        // The version is read first and alone: the rest of a newer Hello may not decode here.
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
