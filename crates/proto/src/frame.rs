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
    /// Towards the guest: standard input of a job, or the content of a file being written.
    Input = 0,
    /// From the guest: standard output of a job, or everything a pseudo-terminal shows.
    Stdout = 1,
    /// From the guest: standard error of a job.
    Stderr = 2,
    /// From the guest: content of a file being read.
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

    fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, WireError> {
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

/// Turns a byte stream into frames.
///
/// The caller reads from its stream into [`Decoder::space`], tells how much arrived with
/// [`Decoder::filled`], and takes frames with [`Decoder::next_frame`], or with
/// [`Decoder::next_piece`], until there are none. The buffer never holds more than one frame of the
/// largest legal size plus one read.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// What is still to come of a data frame that is given in pieces.
    rest: Option<Header>,
    /// Reads to come that are given a flood's room; the last ones have filled theirs.
    flood: u8,
}

/// Room offered to one read.
const READ_BYTES: usize = 64 << 10;
/// The same while reads fill it.
const FLOOD_BYTES: usize = 4 * READ_BYTES;
/// Short reads until a flood is over: in the middle of one, each time its writer was not quick enough.
/// Fresh memory for every other read costs more than what is read.
const FLOOD_READS: u8 = 8;

impl Decoder {
    /// An empty decoder; it allocates on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room to read into; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            // A single large frame must not pin its buffer for the life of the connection.
            let kept = if self.flood > 0 {
                FLOOD_BYTES
            } else {
                READ_BYTES
            };
            if self.buffer.len() > kept {
                self.buffer.truncate(kept);
                self.buffer.shrink_to_fit();
            } else if self.flood > 0 {
                self.buffer.resize(kept, 0);
            }
        }
        let wanted = self.wanted();
        if self.buffer.len() - self.start < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
        }
        if self.end == self.buffer.len() {
            let grown = self.buffer.len() + READ_BYTES;
            self.buffer.resize(grown, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Bytes from `start` that the frame in progress needs, at least one read's worth. A frame is
    /// only given memory as it arrives: the buffer doubles towards its announced length.
    fn wanted(&self) -> usize {
        let have = self.end - self.start;
        let frame = match self.peek_header() {
            Some(Ok(header)) if self.rest.is_none() => HEADER_BYTES + header.len as usize,
            _ => HEADER_BYTES,
        };
        frame.min(2 * have).max(READ_BYTES)
    }

    /// Books `count` bytes that were read into [`Decoder::space`].
    pub fn filled(&mut self, count: usize) {
        let room = self.buffer.len() - self.end;
        self.end += count.min(room);
        // A single full read of the ordinary room is a flood's beginning.
        self.flood = if count >= room && room >= READ_BYTES {
            FLOOD_READS
        } else {
            self.flood.saturating_sub(1)
        };
    }

    /// Whether a partial frame is waiting: an end of stream now would cut it.
    pub fn is_mid_frame(&self) -> bool {
        self.start != self.end || self.rest.is_some()
    }

    fn peek_header(&self) -> Option<Result<Header, WireError>> {
        let bytes = self
            .buffer
            .get(self.start..self.end)?
            .first_chunk::<HEADER_BYTES>()?;
        Some(Header::decode(*bytes))
    }

    /// The next whole frame, if it has arrived.
    ///
    /// # Errors
    /// Any [`WireError`] of the header; the stream cannot be used afterwards.
    pub fn next_frame(&mut self) -> Result<Option<FrameRef<'_>>, WireError> {
        if self.rest.is_some() {
            return self.next_piece();
        }
        let Some(header) = self.peek_header().transpose()? else {
            return Ok(None);
        };
        let from = self.start + HEADER_BYTES;
        let to = from + header.len as usize;
        if to > self.end {
            return Ok(None);
        }
        self.start = to;
        Ok(Some(FrameRef {
            header,
            payload: &self.buffer[from..to],
        }))
    }
}

impl Decoder {
    /// Like [`Decoder::next_frame`], for who takes stream bytes as they arrive: a data frame may be
    /// given in several pieces, each a whole frame by its looks, and only the last has its end mark.
    ///
    /// # Errors
    /// As [`Decoder::next_frame`].
    pub fn next_piece(&mut self) -> Result<Option<FrameRef<'_>>, WireError> {
        let have = self.end - self.start;
        let (skip, whole) = match self.rest.take() {
            Some(rest) => (0, rest),
            None => match self.peek_header().transpose()? {
                Some(header) if header.kind == FrameKind::Data => (HEADER_BYTES, header),
                _ => return self.next_frame(),
            },
        };
        let len = (whole.len as usize).min(have - skip);
        let from = self.start + skip;
        self.start = from + len;
        let left = whole.len - len as u32;
        if left > 0 {
            self.rest = Some(Header { len: left, ..whole });
            if len == 0 {
                return Ok(None);
            }
        }
        Ok(Some(FrameRef {
            header: Header {
                len: len as u32,
                is_last: whole.is_last && left == 0,
                ..whole
            },
            payload: &self.buffer[from..from + len],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(
        decoder: &mut Decoder,
        mut bytes: &[u8],
        step: usize,
    ) -> Result<Vec<(Header, Vec<u8>)>, WireError> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let space = decoder.space();
            let count = space.len().min(step).min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            decoder.filled(count);
            bytes = &bytes[count..];
            while let Some(frame) = decoder.next_frame()? {
                frames.push((frame.header, frame.payload.to_vec()));
            }
        }
        Ok(frames)
    }

    fn any_frame() -> impl Strategy<Value = (Header, Vec<u8>)> {
        let channel = prop_oneof![
            Just(Channel::Input),
            Just(Channel::Stdout),
            Just(Channel::Stderr),
            Just(Channel::Content)
        ];
        let id = (1..=u32::MAX).prop_map(RequestId);
        prop_oneof![
            (
                id.clone(),
                channel.clone(),
                any::<bool>(),
                proptest::collection::vec(any::<u8>(), 0..5000)
            )
                .prop_map(|(id, channel, last, data)| (
                    Header::data(id, channel, data.len() as u32, last),
                    data
                )),
            (id.clone(), channel, any::<u32>()).prop_map(|(id, channel, n)| (
                Header::credit(id, channel),
                n.to_le_bytes().to_vec()
            )),
            (
                id.clone(),
                proptest::collection::vec(any::<u8>(), 0..200_000)
            )
                .prop_map(|(id, data)| (
                    Header::control(FrameKind::Request, id, data.len() as u32),
                    data
                )),
            id.prop_map(|id| (Header::control(FrameKind::Cancel, id, 0), Vec::new())),
            proptest::collection::vec(any::<u8>(), 0..300).prop_map(|data| (
                Header::control(FrameKind::Hello, RequestId(0), data.len() as u32),
                data
            )),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Frames survive any cutting of the stream.
        #[test]
        fn round_trip(frames in proptest::collection::vec(any_frame(), 0..12), step in 1_usize..70_000) {
            let mut bytes = Vec::new();
            for (header, payload) in &frames {
                bytes.extend_from_slice(&encode_header(*header));
                bytes.extend_from_slice(payload);
            }
            let mut decoder = Decoder::new();
            prop_assert_eq!(feed(&mut decoder, &bytes, step).unwrap(), frames);
            prop_assert!(!decoder.is_mid_frame());
        }

        /// Data frames in pieces are the same bytes with the same end, and everything else is as
        /// it was.
        #[test]
        fn pieces_add_up(frames in proptest::collection::vec(any_frame(), 0..12), step in 1_usize..70_000) {
            let mut bytes = Vec::new();
            for (header, payload) in &frames {
                bytes.extend_from_slice(&encode_header(*header));
                bytes.extend_from_slice(payload);
            }
            let mut decoder = Decoder::new();
            let mut wanted = frames.iter();
            let mut gathered = Vec::new();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let space = decoder.space();
                let count = space.len().min(step).min(rest.len());
                space[..count].copy_from_slice(&rest[..count]);
                decoder.filled(count);
                rest = &rest[count..];
                while let Some(piece) = decoder.next_piece().unwrap() {
                    gathered.extend_from_slice(piece.payload);
                    let (header, payload) = wanted.as_slice().first().unwrap();
                    let is_whole = gathered.len() == payload.len();
                    prop_assert_eq!(piece.header, Header {
                        len: piece.payload.len() as u32,
                        is_last: header.is_last && is_whole,
                        ..*header
                    });
                    if is_whole {
                        prop_assert_eq!(&gathered, payload);
                        gathered.clear();
                        wanted.next();
                    }
                }
            }
            prop_assert!(wanted.next().is_none());
            prop_assert!(!decoder.is_mid_frame());
        }

        /// Arbitrary bytes never panic, and never make the buffer outgrow what arrived by more
        /// than a constant.
        #[test]
        fn garbage_is_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..4096), step in 1_usize..512) {
            let mut decoder = Decoder::new();
            let _ = feed(&mut decoder, &bytes, step);
            prop_assert!(decoder.buffer.len() <= 2 * bytes.len() + 2 * READ_BYTES);
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_payload() {
        let mut header = encode_header(Header::data(RequestId(1), Channel::Stdout, 0, false));
        header[..4].copy_from_slice(&(limits::MAX_DATA_BYTES + 1).to_le_bytes());
        let error = feed(&mut Decoder::new(), &header, 64).unwrap_err();
        assert_eq!(
            error,
            WireError::TooLarge {
                len: limits::MAX_DATA_BYTES + 1,
                max: limits::MAX_DATA_BYTES
            }
        );
    }

    #[test]
    fn a_large_frame_does_not_pin_its_buffer() {
        let len = limits::MAX_CONTROL_BYTES;
        let mut bytes =
            encode_header(Header::control(FrameKind::Reply, RequestId(9), len)).to_vec();
        bytes.resize(HEADER_BYTES + len as usize, 7);
        let mut decoder = Decoder::new();
        assert_eq!(feed(&mut decoder, &bytes, 1 << 20).unwrap().len(), 1);
        decoder.space();
        assert!(decoder.buffer.capacity() <= 4 * READ_BYTES);
    }
}
