//! Framing: a fixed header of twelve bytes, then the payload.
//!
//! ```text
//! 0  u32 little-endian   payload length
//! 4  u8                  kind
//! 5  u8                  channel (Data and Credit; otherwise 0)
//! 6  u8                  1 when this Data frame is the last of its channel (otherwise 0)
//! 7  u8                  reserved, 0
//! 8  u32 little-endian   request id (0 only for Hello)
//! ```
//!
//! Length limits are per kind and checked on the header alone, before a byte of payload is stored.

use crate::{RequestId, WireError, limits};

/// Size of the frame header in bytes.
pub const HEADER_BYTES: usize = 12;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Handshake, once per direction, id 0.
    Hello = 1,
    /// Host to guest: an encoded [`crate::Request`].
    Request = 2,
    /// Guest to host: an encoded `Result<Reply, Fault>`.
    Reply = 3,
    /// Either way: raw stream bytes.
    Data = 4,
    /// Either way: a `u32` of bytes the peer may send again.
    Credit = 5,
    /// Host to guest: give the request up. No payload.
    Cancel = 6,
}

impl FrameKind {
    const fn max_payload(self) -> u32 {
        match self {
            Self::Hello | Self::Request | Self::Reply => limits::MAX_CONTROL_BYTES,
            Self::Data => limits::MAX_DATA_BYTES,
            Self::Credit => 4,
            Self::Cancel => 0,
        }
    }

    fn from_byte(byte: u8) -> Result<Self, WireError> {
        Ok(match byte {
            1 => Self::Hello,
            2 => Self::Request,
            3 => Self::Reply,
            4 => Self::Data,
            5 => Self::Credit,
            6 => Self::Cancel,
            other => return Err(WireError::UnknownKind(other)),
        })
    }
}

/// A stream that belongs to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Channel {
    /// Towards the guest: standard input of a job, bytes for an [`crate::ExtraStream`], or the content of a file being
    /// written.
    Input = 0,
    /// From the guest: standard output of a job, or everything a pseudo-terminal shows; bytes of an
    /// [`crate::ExtraStream`].
    Stdout = 1,
    /// From the guest: standard error of a job.
    Stderr = 2,
    /// From the guest: content of a file being read, or [`crate::Event`]s of a job.
    Content = 3,
}

impl Channel {
    fn from_byte(byte: u8) -> Result<Self, WireError> {
        Ok(match byte {
            0 => Self::Input,
            1 => Self::Stdout,
            2 => Self::Stderr,
            3 => Self::Content,
            other => return Err(WireError::UnknownChannel(other)),
        })
    }
}

/// A decoded frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame carries.
    pub kind: FrameKind,
    /// The stream it belongs to (`Data`, `Credit`); [`Channel::Input`] otherwise.
    pub channel: Channel,
    /// Whether this is the last `Data` of its channel.
    pub is_last: bool,
    /// The request it belongs to; 0 for `Hello`.
    pub id: RequestId,
    /// Payload length in bytes.
    pub len: u32,
}

impl Header {
    /// A header for a frame without channel.
    pub const fn control(kind: FrameKind, id: RequestId, len: u32) -> Self {
        Self {
            kind,
            channel: Channel::Input,
            is_last: false,
            id,
            len,
        }
    }

    /// A header for stream bytes.
    pub const fn data(id: RequestId, channel: Channel, len: u32, is_last: bool) -> Self {
        Self {
            kind: FrameKind::Data,
            channel,
            is_last,
            id,
            len,
        }
    }

    /// A header for a credit frame; its payload is the credit as a little-endian `u32`.
    pub const fn credit(id: RequestId, channel: Channel) -> Self {
        Self {
            kind: FrameKind::Credit,
            channel,
            is_last: false,
            id,
            len: 4,
        }
    }

    pub(crate) fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let [
            l0,
            l1,
            l2,
            l3,
            kind,
            channel,
            last,
            reserved,
            i0,
            i1,
            i2,
            i3,
        ] = bytes;
        let kind = FrameKind::from_byte(kind)?;
        let channel = Channel::from_byte(channel)?;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let id = RequestId(u32::from_le_bytes([i0, i1, i2, i3]));
        let max = kind.max_payload();
        if len > max {
            return Err(WireError::TooLarge { len, max });
        }
        if reserved != 0 {
            return Err(WireError::BadHeader("reserved byte is not zero"));
        }
        if last > 1 || (last == 1 && kind != FrameKind::Data) {
            return Err(WireError::BadHeader("end mark outside a data frame"));
        }
        if !matches!(kind, FrameKind::Data | FrameKind::Credit) && channel != Channel::Input {
            return Err(WireError::BadHeader("channel on a frame that has none"));
        }
        if kind == FrameKind::Credit && len != 4 {
            return Err(WireError::BadHeader("credit frame without its amount"));
        }
        if (id.0 == 0) != (kind == FrameKind::Hello) {
            return Err(WireError::BadHeader(
                "request id 0 is for the handshake only",
            ));
        }
        Ok(Self {
            kind,
            channel,
            is_last: last == 1,
            id,
            len,
        })
    }
}

/// Encodes a header; the payload follows it on the stream.
pub fn encode_header(header: Header) -> [u8; HEADER_BYTES] {
    let [l0, l1, l2, l3] = header.len.to_le_bytes();
    let [i0, i1, i2, i3] = header.id.0.to_le_bytes();
    [
        l0,
        l1,
        l2,
        l3,
        header.kind as u8,
        header.channel as u8,
        u8::from(header.is_last),
        0,
        i0,
        i1,
        i2,
        i3,
    ]
}

/// One frame, borrowed from the decoder's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// The header.
    pub header: Header,
    /// Exactly `header.len` bytes.
    pub payload: &'a [u8],
}

impl FrameRef<'_> {
    /// The amount of a credit frame.
    ///
    /// # Errors
    /// [`WireError::BadPayload`] on any other kind of frame.
    pub fn credit(&self) -> Result<u32, WireError> {
        <[u8; 4]>::try_from(self.payload)
            .map(u32::from_le_bytes)
            .map_err(|_| WireError::BadPayload {
                what: "credit",
                detail: "not four bytes".to_owned(),
            })
    }
}
