//! The reading side of framing: bytes in as they arrive, frames out. A frame is given memory as it arrives,
//! and the rest of a large data frame may be read past this buffer, straight to where it belongs.

use crate::WireError;
use crate::frame::{FrameKind, FrameRef, HEADER_BYTES, Header};

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
    /// The last data frame was read past this buffer, and so may the next be: room for its header only.
    is_passed_by: bool,
}

/// Room offered to one read.
const READ_BYTES: usize = 64 << 10;
/// The same while reads fill it.
const FLOOD_BYTES: usize = 4 * READ_BYTES;
/// Short reads until a flood is over: in the middle of one, each time its writer was not quick enough.
/// Fresh memory for every other read costs more than what is read.
const FLOOD_READS: u8 = 8;
/// Rest of a data frame from which on a copy costs more than another read.
const PASSED_BYTES: u32 = 16 << 10;

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
        let to = if self.is_passed_by && self.end - self.start < HEADER_BYTES {
            self.start + HEADER_BYTES
        } else {
            self.buffer.len()
        };
        &mut self.buffer[self.end..to]
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

    /// What is still to come of the data frame that [`Decoder::next_piece`] has given the beginning of,
    /// when nothing more has arrived and it is much: whoever knows where it belongs may read it there,
    /// at most its length, and tells with [`Decoder::passed_by`].
    pub fn rest(&self) -> Option<Header> {
        let rest = self.rest.filter(|rest| rest.len >= PASSED_BYTES);
        rest.filter(|_| self.start == self.end)
    }

    /// Books `count` bytes of [`Decoder::rest`] that did not come through [`Decoder::space`]. Returns
    /// the header of a frame of just these; `None` when there was no such rest.
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

    /// Mostly what is read past the buffer.
    fn any_large_frame() -> impl Strategy<Value = (Header, Vec<u8>)> {
        let len = PASSED_BYTES as usize..limits::MAX_DATA_BYTES as usize;
        let large = (any::<u8>(), len, any::<bool>()).prop_map(|(byte, len, is_last)| {
            let header = Header::data(RequestId(7), Channel::Content, len as u32, is_last);
            (header, (0..len).map(|at| byte ^ at as u8).collect())
        });
        prop_oneof![3 => large, 1 => any_frame()]
    }

    /// Adds a piece of a frame to those before it.
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

        /// What is read past the buffer is the same bytes in the same order, and only that is.
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
