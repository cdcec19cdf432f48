//! Bytes as lines of text, for carriers that pass only text: `.`, base64 of at most 48 KiB,
//! newline.
//!
//! Other lines are noise, such as a banner or a warning of a shell. The decoder skips them up to a
//! bound.

/// Most bytes that one line encodes. Divisible by three, so that only the last line of a piece
/// needs padding.
const LINE_BYTES: usize = 48 << 10;
/// Length of the longest line, without its newline.
const MAX_LINE: usize = 1 + LINE_BYTES / 3 * 4;
/// Most bytes of noise that one decoder skips over its lifetime. No line may be longer either.
pub const MAX_NOISE_BYTES: usize = 64 << 10;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Value of a byte that is not in the alphabet.
const NO_DIGIT: u8 = 64;
/// Value of each byte as a digit, or [`NO_DIGIT`].
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        digits[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

/// Appends `bytes` to `out` as complete lines. No bytes yield no line.
pub fn encode_lines(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4 + 2 * bytes.len().div_ceil(LINE_BYTES));
    for line in bytes.chunks(LINE_BYTES) {
        out.push(b'.');
        let (triples, rest) = line.as_chunks::<3>();
        out.extend(triples.iter().flat_map(|&[a, b, c]| digits_of(a, b, c)));
        match *rest {
            [a] => {
                let [first, second, ..] = digits_of(a, 0, 0);
                out.extend_from_slice(&[first, second, b'=', b'=']);
            }
            [a, b] => {
                let [first, second, third, _] = digits_of(a, b, 0);
                out.extend_from_slice(&[first, second, third, b'=']);
            }
            _ => {}
        }
        out.push(b'\n');
    }
}

fn digits_of(a: u8, b: u8, c: u8) -> [u8; 4] {
    [
        a >> 2,
        (a & 0b11) << 4 | b >> 4,
        (b & 0b1111) << 2 | c >> 6,
        c & 0b11_1111,
    ]
    .map(|digit| ALPHABET[usize::from(digit)])
}

/// The carrier sent more noise than the bound permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_NOISE_BYTES} bytes came that are not lines of the guest's stream")]
pub struct NoiseTooLong;

/// Decoder of lines that arrive in pieces.
#[derive(Debug, Default)]
pub struct LinesDecoder {
    /// Beginning of an incomplete line.
    line: Vec<u8>,
    noise: usize,
}

impl LinesDecoder {
    /// Creates a decoder at the beginning of a line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that arrived, and appends the content of each line that they complete to `out`.
    ///
    /// # Errors
    /// [`NoiseTooLong`]. Then `out` holds the content of all earlier lines, and the decoder cannot
    /// be used further.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), NoiseTooLong> {
        // TRUST: the bytes come from the peer. At most one line of maximum length is kept between
        // calls, and a line that differs from the encoder's output in any way is noise.
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(end) = piece.strip_suffix(b"\n") else {
                self.line.extend_from_slice(piece);
                break;
            };
            let was_decoded = if self.line.is_empty() {
                decode_line(end, out)
            } else {
                self.line.extend_from_slice(end);
                decode_line(&self.line, out)
            };
            if !was_decoded {
                self.noise += self.line.len().max(end.len()) + 1;
                if self.noise > MAX_NOISE_BYTES {
                    return Err(NoiseTooLong);
                }
            }
            self.line.clear();
        }
        if self.line.len() > MAX_LINE {
            return Err(NoiseTooLong);
        }
        Ok(())
    }
}

/// Appends the content of a line without its newline to `out`. Returns false, and leaves `out`
/// unchanged, if the encoder would not write this line.
fn decode_line(line: &[u8], out: &mut Vec<u8>) -> bool {
    let Some((b'.', digits)) = line.split_first() else {
        return false;
    };
    let (groups, rest) = digits.as_chunks::<4>();
    let Some((last, groups)) = groups.split_last() else {
        return false;
    };
    if !rest.is_empty() || line.len() > MAX_LINE {
        return false;
    }
    let before = out.len();
    for group in groups {
        let [a, b, c, d] = group.map(|byte| DIGITS[usize::from(byte)]);
        if (a | b | c | d) & NO_DIGIT != 0 {
            out.truncate(before);
            return false;
        }
        out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]);
    }
    let was_decoded = decode_last(*last, out);
    if !was_decoded {
        out.truncate(before);
    }
    was_decoded
}

/// Appends the content of a line's last group, which may be padded. Returns false if unused bits
/// before the padding are not zero, since the encoder writes zeros there.
fn decode_last(group: [u8; 4], out: &mut Vec<u8>) -> bool {
    let padding = match group {
        [.., b'=', b'='] => 2,
        [.., b'='] => 1,
        _ => 0,
    };
    let mut digits = group.map(|byte| DIGITS[usize::from(byte)]);
    digits[4 - padding..].fill(0);
    let [a, b, c, d] = digits;
    let bytes = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
    let (bytes, left_over) = bytes.split_at(3 - padding);
    if (a | b | c | d) & NO_DIGIT != 0 || left_over.iter().any(|byte| *byte != 0) {
        return false;
    }
    out.extend_from_slice(bytes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        encode_lines(bytes, &mut lines);
        lines
    }

    fn decoded(lines: &[u8]) -> Result<Vec<u8>, NoiseTooLong> {
        let mut bytes = Vec::new();
        LinesDecoder::new().push(lines, &mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn encode_test_vectors_of_rfc_4648_match() {
        for (bytes, line) in [
            ("", ""),
            ("f", ".Zg==\n"),
            ("fo", ".Zm8=\n"),
            ("foo", ".Zm9v\n"),
            ("foob", ".Zm9vYg==\n"),
            ("fooba", ".Zm9vYmE=\n"),
            ("foobar", ".Zm9vYmFy\n"),
        ] {
            assert_eq!(encoded(bytes.as_bytes()), line.as_bytes());
        }
        assert_eq!(encoded(&[0xfb, 0xff, 0xbf]), b".+/+/\n");
    }

    #[test]
    fn encode_long_input_makes_lines_within_the_bound() {
        let bytes: Vec<u8> = (0..=LINE_BYTES * 2).map(|at| (at % 251) as u8).collect();
        let lines = encoded(&bytes);
        let lengths: Vec<usize> = lines
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::len)
            .collect();
        assert_eq!(lengths, [MAX_LINE, MAX_LINE, 5, 0]);
        assert_eq!(decoded(&lines), Ok(bytes));
    }

    #[test]
    fn decode_line_that_no_encoder_writes_is_noise() {
        for noise in [
            "",
            ".",
            "Zg==",
            ".bashrc: line 3: not found",
            ".Zg=",
            ".Zg",
            ".Zh==",
            ".Zm9=",
            ".=g==",
            ".Z===",
            ".====",
            ".Zg==Zg==",
            ".Zm9v\r",
            " .Zm9v",
            ".Zm\u{e9}v",
            ".Zm9v.Zm9v",
        ] {
            let lines = format!("{noise}\n.Zm8=\n{noise}\n");
            assert_eq!(decoded(lines.as_bytes()), Ok(b"fo".to_vec()), "{noise:?}");
        }
    }

    #[test]
    fn decode_noise_beyond_the_bound_fails_and_keeps_no_more() {
        let line = format!("{}\n", "x".repeat(1023));
        let mut decoder = LinesDecoder::new();
        let mut out = Vec::new();
        for _ in 0..64 {
            assert_eq!(decoder.push(line.as_bytes(), &mut out), Ok(()));
            decoder.push(b".Zm9v\n", &mut out).unwrap();
        }
        assert_eq!(decoder.push(b"\n", &mut out), Err(NoiseTooLong));
        assert_eq!(out, b"foo".repeat(64));

        let mut decoder = LinesDecoder::new();
        let endless = vec![b'.'; 4096];
        let result = (0..64).find_map(|_| decoder.push(&endless, &mut out).err());
        assert_eq!(result, Some(NoiseTooLong));
        assert!(decoder.line.len() <= MAX_LINE + endless.len());
    }

    proptest! {
        /// Lines decode to the encoded bytes, for any split and any noise between lines.
        #[test]
        fn lines_decode_to_the_bytes_that_were_encoded(
            pieces in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 0..200), "[a-z$# ]{0,20}"), 0..20),
            step in 1_usize..50,
        ) {
            let mut lines = Vec::new();
            let mut expected = Vec::new();
            for (bytes, noise) in &pieces {
                encode_lines(bytes, &mut lines);
                expected.extend_from_slice(bytes);
                lines.extend_from_slice(noise.as_bytes());
                lines.push(b'\n');
            }
            let mut decoder = LinesDecoder::new();
            let mut out = Vec::new();
            for piece in lines.chunks(step) {
                decoder.push(piece, &mut out).unwrap();
            }
            prop_assert_eq!(out, expected);
        }

        /// Each line has one form: a line decodes only if the encoder would write it.
        #[test]
        fn a_line_that_decodes_is_the_encoding_of_its_bytes(line in "\\.[A-Za-d+/=]{0,12}") {
            let mut out = Vec::new();
            if decode_line(line.as_bytes(), &mut out) {
                prop_assert_eq!(encoded(&out), format!("{line}\n").into_bytes());
            }
        }
    }
}
