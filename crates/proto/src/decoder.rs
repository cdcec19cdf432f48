//! Decoder of frames: bytes go in as they arrive, frames come out. The buffer grows only as a frame
//! arrives. The caller may read the rest of a large data frame directly into its destination.

use crate::WireError;
use crate::frame::{FrameKind, FrameRef, HEADER_BYTES, Header};

/// Splits a byte stream into frames.
///
/// The caller reads from its stream into [`Decoder::space`], reports the count to
/// [`Decoder::filled`], and takes frames with [`Decoder::next_frame`] or [`Decoder::next_piece`]
/// until there are none. The buffer never holds more than one frame of the largest legal size plus
/// one read.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Remaining part of a data frame of which pieces were returned.
    rest: Option<Header>,
    /// Number of next reads that get [`FLOOD_BYTES`] of room, because a recent read filled its
    /// room.
    flood: u8,
    /// True if the end of the last data frame bypassed this buffer. The next read then gets room
    /// for a header only, so that the next data frame can bypass the buffer too.
    is_passed_by: bool,
}

/// Room for one read, in bytes.
const READ_BYTES: usize = 64 << 10;
/// Room for one read while reads fill their room, in bytes.
const FLOOD_BYTES: usize = 4 * READ_BYTES;
/// Number of short reads that end a flood. Within a flood a read is short whenever the writer was
/// slow, and allocating fresh memory after every such read costs more than reading.
const FLOOD_READS: u8 = 8;
/// Rest of a data frame, in bytes, from which on a copy costs more than another read.
const PASSED_BYTES: u32 = 16 << 10;

impl Decoder {
    /// Creates an empty decoder. It allocates on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns room to read into; never empty.
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
        let to = if self.is_passed_by && self.end - self.start < HEADER_BYTES {
            self.start + HEADER_BYTES
        } else {
            self.buffer.len()
        };
        &mut self.buffer[self.end..to]
    }

    /// Returns the number of bytes from `start` on that the current frame needs, at least one read.
    /// The buffer at most doubles per read, so an announced length reserves no memory before bytes
    /// arrive.
    fn wanted(&self) -> usize {
        let have = self.end - self.start;
        let frame = match self.peek_header() {
            Some(Ok(header)) if self.rest.is_none() => HEADER_BYTES + header.len as usize,
            _ => HEADER_BYTES,
        };
        frame.min(2 * have).max(READ_BYTES)
    }

    /// Records that `count` bytes were read into [`Decoder::space`].
    pub fn filled(&mut self, count: usize) {
        let room = self.buffer.len() - self.end;
        self.end += count.min(room);
        // One full read of ordinary room starts a flood.
        self.flood = if count >= room && room >= READ_BYTES {
            FLOOD_READS
        } else {
            self.flood.saturating_sub(1)
        };
    }

    /// Returns true if the buffer holds an incomplete frame. The end of the stream would then cut
    /// it off.
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

    /// Returns the next complete frame, or `None` until more bytes arrive.
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
        self.is_passed_by = false;
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

    /// Like [`Decoder::next_frame`], but may return a data frame in several pieces, for callers
    /// that process stream bytes as they arrive. Each piece has the header of a whole frame; only
    /// the last one has the end mark.
    ///
    /// # Errors
    /// Same as [`Decoder::next_frame`].
    pub fn next_piece(&mut self) -> Result<Option<FrameRef<'_>>, WireError> {
        let have = self.end - self.start;
        let (skip, whole) = match self.rest.take() {
            Some(rest) => (0, rest),
            None => match self.peek_header().transpose()? {
                Some(header) if header.kind == FrameKind::Data => (HEADER_BYTES, header),
                _ => return self.next_frame(),
            },
        };
        self.is_passed_by = false;
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

    /// Returns the header of the missing part of a data frame whose beginning
    /// [`Decoder::next_piece`] returned. The caller may read up to that many bytes directly into
    /// their destination, and reports them to [`Decoder::passed_by`]. Returns `None` if the buffer
    /// holds more bytes or the missing part is short.
    pub fn rest(&self) -> Option<Header> {
        let rest = self.rest.filter(|rest| rest.len >= PASSED_BYTES);
        rest.filter(|_| self.start == self.end)
    }

    /// Records that the caller read `count` bytes of [`Decoder::rest`] itself, without
    /// [`Decoder::space`]. Returns the header of a frame of these bytes, or `None` if the rest is
    /// shorter than `count` or there is none.
    pub fn passed_by(&mut self, count: usize) -> Option<Header> {
        let rest = self.rest().filter(|rest| count <= rest.len as usize)?;
        let len = count as u32;
        let left = rest.len - len;
        self.rest = (left > 0).then_some(Header { len: left, ..rest });
        self.is_passed_by = left == 0;
        Some(Header {
            len,
            is_last: rest.is_last && left == 0,
            ..rest
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, RequestId, encode_header, limits};
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

    /// Mostly frames whose rest is large enough to bypass the buffer.
    fn any_large_frame() -> impl Strategy<Value = (Header, Vec<u8>)> {
        let len = PASSED_BYTES as usize..limits::MAX_DATA_BYTES as usize;
        let large = (any::<u8>(), len, any::<bool>()).prop_map(|(byte, len, is_last)| {
            let header = Header::data(RequestId(7), Channel::Content, len as u32, is_last);
            (header, (0..len).map(|at| byte ^ at as u8).collect())
        });
        prop_oneof![3 => large, 1 => any_frame()]
    }

    /// Appends a piece of a frame to the previous ones.
    fn gather(
        gathered: &mut Vec<(Header, Vec<u8>)>,
        wanted: &[(Header, Vec<u8>)],
        piece: Header,
        payload: &[u8],
    ) {
        let mut so_far = gathered.iter().zip(wanted);
        if so_far.all(|(some, all)| some.1.len() == all.1.len()) {
            gathered.push((piece, Vec::new()));
        }
        if let Some((header, so_far)) = gathered.last_mut() {
            so_far.extend_from_slice(payload);
            *header = Header {
                len: so_far.len() as u32,
                ..piece
            };
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Frames survive any split of the stream.
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

        /// Pieces of data frames yield the same bytes with the same end mark, and all other frames
        /// stay the same.
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

        /// Bytes read past the buffer are the same bytes in the same order, and only data frames
        /// bypass it.
        #[test]
        fn passing_by_adds_up(
            frames in proptest::collection::vec(any_large_frame(), 0..12),
            steps in proptest::collection::vec(1_usize..200_000, 1..8),
        ) {
            let mut bytes = Vec::new();
            for (header, payload) in &frames {
                bytes.extend_from_slice(&encode_header(*header));
                bytes.extend_from_slice(payload);
            }
            let mut decoder = Decoder::new();
            let mut gathered = Vec::new();
            let mut rest = bytes.as_slice();
            let mut steps = steps.iter().cycle();
            while !rest.is_empty() {
                let step = *steps.next().unwrap();
                if let Some(header) = decoder.rest() {
                    prop_assert!(header.len >= PASSED_BYTES);
                    prop_assert_eq!(decoder.passed_by(header.len as usize + 1), None);
                    let count = (header.len as usize).min(step).min(rest.len());
                    let piece = decoder.passed_by(count).unwrap();
                    gather(&mut gathered, &frames, piece, &rest[..count]);
                    rest = &rest[count..];
                    continue;
                }
                let space = decoder.space();
                prop_assert!(!space.is_empty());
                let count = space.len().min(step).min(rest.len());
                space[..count].copy_from_slice(&rest[..count]);
                decoder.filled(count);
                rest = &rest[count..];
                while let Some(piece) = decoder.next_piece().unwrap() {
                    gather(&mut gathered, &frames, piece.header, piece.payload);
                }
            }
            prop_assert_eq!(gathered, frames);
            prop_assert!(!decoder.is_mid_frame());
            prop_assert_eq!(decoder.passed_by(0), None);
        }

        /// Arbitrary bytes never cause a panic, and the buffer never exceeds the bytes that arrived
        /// by more than a constant.
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
