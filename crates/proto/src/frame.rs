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

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Handshake, once per direction, with id 0.
    Hello = 1,
    /// Host to guest: an encoded [`crate::Request`].
    Request = 2,
    /// Guest to host: an encoded `Result<Reply, Fault>`.
    Reply = 3,
    /// Both directions: raw stream bytes.
    Data = 4,
    /// Both directions: number of bytes that the peer may send in addition, as a `u32`.
    Credit = 5,
    /// Host to guest: abandon the request. No payload.
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

/// Stream of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Channel {
    /// To the guest: standard input of a job, bytes for an [`crate::ExtraStream`], or content of a
    /// file to write.
    Input = 0,
    /// From the guest: standard output of a job, everything that a pseudo-terminal displays, or
    /// bytes of an [`crate::ExtraStream`].
    Stdout = 1,
    /// From the guest: standard error of a job.
    Stderr = 2,
    /// From the guest: content of a file, tree items, or [`crate::Event`]s of a job.
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

/// Decoded header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Content of the frame.
    pub kind: FrameKind,
    /// Stream of the frame (`Data`, `Credit`); [`Channel::Input`] otherwise.
    pub channel: Channel,
    /// True for the last `Data` frame of its channel.
    pub is_last: bool,
    /// Request of the frame; 0 for `Hello`.
    pub id: RequestId,
    /// Payload length in bytes.
    pub len: u32,
}

impl Header {
    /// Creates a header for a frame without channel.
    pub const fn control(kind: FrameKind, id: RequestId, len: u32) -> Self {
        Self {
            kind,
            channel: Channel::Input,
            is_last: false,
            id,
            len,
        }
    }

    /// Creates a header for stream bytes.
    pub const fn data(id: RequestId, channel: Channel, len: u32, is_last: bool) -> Self {
        Self {
            kind: FrameKind::Data,
            channel,
            is_last,
            id,
            len,
        }
    }

    /// Creates a header for a credit frame. The payload is the credit as a little-endian `u32`.
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

/// Encodes a header. The payload follows it on the stream.
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

/// Frame that borrows from the decoder's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// Decoded header.
    pub header: Header,
    /// Payload of exactly `header.len` bytes.
    pub payload: &'a [u8],
}

impl FrameRef<'_> {
    /// Returns the amount of a credit frame.
    ///
    /// # Errors
    /// [`WireError::BadPayload`] if the payload is not four bytes long.
    pub fn credit(&self) -> Result<u32, WireError> {
        <[u8; 4]>::try_from(self.payload)
            .map(u32::from_le_bytes)
            .map_err(|_| WireError::BadPayload {
                what: "credit",
                detail: "not four bytes".to_owned(),
            })
    }
}
