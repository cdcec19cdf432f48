//! Removes values from responses while they are streamed.
//!
//! A value may come back as it was sent, or as programs encode it: in base64, percent-encoded, in
//! JSON. Each of these forms is a [`Pattern`] with its replacement. A form that spans chunks is
//! found as well: bytes that may begin one are held until the next chunk decides. The division into
//! chunks has no influence on the output.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use memchr::memmem::Finder;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use zeroize::{Zeroize as _, Zeroizing};

/// Characters that percent-encoding keeps besides letters, digits and `-._~`: in most libraries, in
/// Python's `quote`, in JavaScript's `encodeURIComponent`, in JavaScript's `encodeURI`.
const KEPT_BY_PERCENT_ENCODING: [&[u8]; 4] = [b"", b"/", b"!*'()", b"!*'();,/?:@&=+$#"];
/// JSON escapes of most libraries, of PHP, and of Go.
const JSON_ESCAPES: [&[(u8, &str)]; 3] = [
    &[(b'"', "\\\""), (b'\\', "\\\\")],
    &[(b'"', "\\\""), (b'\\', "\\\\"), (b'/', "\\/")],
    &[
        (b'"', "\\\""),
        (b'\\', "\\\\"),
        (b'<', "\\u003c"),
        (b'>', "\\u003e"),
        (b'&', "\\u0026"),
    ],
];
/// HTML escapes of most libraries, of Python, and of Go.
const HTML_ESCAPES: [&[(u8, &str)]; 3] = [
    &[
        (b'&', "&amp;"),
        (b'<', "&lt;"),
        (b'>', "&gt;"),
        (b'"', "&quot;"),
        (b'\'', "&#39;"),
    ],
    &[
        (b'&', "&amp;"),
        (b'<', "&lt;"),
        (b'>', "&gt;"),
        (b'"', "&quot;"),
        (b'\'', "&#x27;"),
    ],
    &[
        (b'&', "&amp;"),
        (b'<', "&lt;"),
        (b'>', "&gt;"),
        (b'"', "&#34;"),
        (b'\'', "&#39;"),
    ],
];

/// Bytes to find, and their replacement.
pub(crate) struct Pattern {
    find: Zeroizing<Vec<u8>>,
    put: Vec<u8>,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pattern(..)")
    }
}

impl Pattern {
    /// Creates a pattern. `find` must not be empty.
    pub(crate) fn new(find: Zeroizing<Vec<u8>>, put: &[u8]) -> Self {
        Self {
            find,
            put: put.to_owned(),
        }
    }

    /// Returns the pattern with a replacement of the same length, for streams in which lengths were
    /// sent before.
    fn masking(&self) -> Self {
        Self {
            find: self.find.clone(),
            put: vec![b'*'; self.find.len()],
        }
    }
}

/// Returns patterns that replace each encoded form of a value by `put`.
pub(crate) fn patterns_of(value: &[u8], put: &str) -> Vec<Arc<Pattern>> {
    forms(value)
        .iter()
        .map(|form| Arc::new(Pattern::new(Zeroizing::new(form.clone()), put.as_bytes())))
        .collect()
}

/// Set of encoded forms that is overwritten when dropped.
struct Forms(BTreeSet<Vec<u8>>);

impl Forms {
    fn add(&mut self, mut form: Vec<u8>) {
        if self.0.contains(&form) {
            form.zeroize();
        } else {
            self.0.insert(form);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.0.iter()
    }
}

impl Drop for Forms {
    fn drop(&mut self) {
        while let Some(mut form) = self.0.pop_first() {
            form.zeroize();
        }
    }
}

/// Returns the forms in which programs encode a value.
fn forms(value: &[u8]) -> Forms {
    let mut forms = Forms(BTreeSet::from([value.to_vec()]));
    for is_upper in [true, false] {
        for space in ["%20", "+"] {
            for kept in KEPT_BY_PERCENT_ENCODING {
                forms.add(percent_encoded(value, is_upper, space, kept));
            }
        }
        forms.add(hexadecimal(value, is_upper));
    }
    for escapes in JSON_ESCAPES {
        forms.add(replaced(value, escapes));
    }
    for escapes in HTML_ESCAPES {
        forms.add(replaced(value, escapes));
    }
    // Header names may come back in another case.
    forms.add(value.to_ascii_lowercase());
    forms.add(value.to_ascii_uppercase());
    for offset in 0..3 {
        for engine in [&STANDARD, &URL_SAFE] {
            forms.add(base64_within(value, offset, engine));
        }
    }
    forms
}

fn percent_encoded(value: &[u8], is_upper: bool, space: &str, kept: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    for &byte in value {
        match byte {
            b' ' => text.extend_from_slice(space.as_bytes()),
            b'-' | b'.' | b'_' | b'~' => text.push(byte),
            _ if byte.is_ascii_alphanumeric() || kept.contains(&byte) => text.push(byte),
            _ => {
                text.push(b'%');
                text.extend_from_slice(&hexadecimal(&[byte], is_upper));
            }
        }
    }
    text
}

fn hexadecimal(value: &[u8], is_upper: bool) -> Vec<u8> {
    let digits = if is_upper {
        b"0123456789ABCDEF"
    } else {
        b"0123456789abcdef"
    };
    value
        .iter()
        .flat_map(|byte| {
            [
                digits[usize::from(byte >> 4)],
                digits[usize::from(byte & 15)],
            ]
        })
        .collect()
}

fn replaced(value: &[u8], escapes: &[(u8, &str)]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    for byte in value {
        match escapes.iter().find(|(escaped, _)| escaped == byte) {
            Some((_, escape)) => text.extend_from_slice(escape.as_bytes()),
            None => text.push(*byte),
        }
    }
    text
}

/// Returns the characters of a base64 text that depend on `value` alone if the value begins
/// `offset` bytes after a group of three bytes.
fn base64_within(value: &[u8], offset: usize, engine: &base64::engine::GeneralPurpose) -> Vec<u8> {
    let mut padded = Zeroizing::new(vec![0; offset]);
    padded.extend_from_slice(value);
    let text = Zeroizing::new(engine.encode(&*padded).into_bytes());
    let first = (offset * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    text.get(first..last).unwrap_or_default().to_vec()
}

/// Removes patterns from one stream.
#[derive(Debug, Default)]
pub(crate) struct Scrubber {
    patterns: Vec<Arc<Pattern>>,
    /// Bytes that may begin a pattern.
    held: Zeroizing<Vec<u8>>,
}

impl Scrubber {
    pub(crate) fn new(patterns: Vec<Arc<Pattern>>) -> Self {
        Self {
            patterns,
            held: Zeroizing::default(),
        }
    }

    /// Creates a scrubber whose replacements keep all lengths.
    pub(crate) fn masking(patterns: &[Arc<Pattern>]) -> Self {
        Self::new(
            patterns
                .iter()
                .map(|pattern| Arc::new(pattern.masking()))
                .collect(),
        )
    }

    /// Replaces patterns in a complete text. `None` if it contains none.
    pub(crate) fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.scan(text, true, &mut out);
        (out != text).then_some(out)
    }

    /// Returns true if the name of a header contains a pattern in any case: HTTP/1.1 servers choose
    /// the case of names freely, and the proxy converts them to lower case.
    pub(crate) fn is_in_name(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| {
            name.as_bytes()
                .windows(pattern.find.len())
                .any(|part| part.eq_ignore_ascii_case(&pattern.find))
        })
    }

    /// Processes a chunk and returns the bytes that can be passed on.
    pub(crate) fn push(&mut self, chunk: &Bytes) -> Bytes {
        let mut out = Vec::new();
        if self.held.is_empty() {
            let done = self.scan(chunk, false, &mut out);
            self.held.extend_from_slice(&chunk[done..]);
            // Most chunks contain no pattern; they are passed on without a copy.
            if out == chunk[..done] {
                return chunk.slice(..done);
            }
        } else {
            let mut input = std::mem::take(&mut self.held);
            input.extend_from_slice(chunk);
            let done = self.scan(&input, false, &mut out);
            self.held.extend_from_slice(&input[done..]);
        }
        out.into()
    }

    /// Returns the held bytes after the stream has ended.
    pub(crate) fn finish(&mut self) -> Bytes {
        let rest = std::mem::take(&mut self.held);
        let mut out = Vec::new();
        self.scan(&rest, true, &mut out);
        out.into()
    }

    /// Returns true if no bytes are held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Replaces patterns from left to right; if several begin at one position, the longest. Returns
    /// the number of input bytes that were processed. With `is_end` all bytes are processed.
    fn scan(&self, input: &[u8], is_end: bool, out: &mut Vec<u8>) -> usize {
        let mut searches: Vec<_> = self
            .patterns
            .iter()
            .map(|pattern| {
                let finder = Finder::new(&*pattern.find);
                let found = finder.find(input);
                (pattern, finder, found)
            })
            .collect();
        let hold = |from| {
            if is_end {
                input.len()
            } else {
                self.hold_from(input, from)
            }
        };
        let (mut at, mut end) = (0, hold(0));
        loop {
            for (_, finder, found) in &mut searches {
                if found.is_some_and(|found| found < at) {
                    *found = finder.find(&input[at..]).map(|found| at + found);
                }
            }
            if end < at {
                end = hold(at);
            }
            let next = searches
                .iter()
                .filter_map(|(pattern, _, found)| found.map(|found| (found, *pattern)))
                .min_by_key(|(found, pattern)| (*found, Reverse(pattern.find.len())));
            match next {
                // From `end` on a longer pattern may begin whose rest has not arrived yet.
                Some((found, pattern)) if found < end => {
                    out.extend_from_slice(&input[at..found]);
                    out.extend_from_slice(&pattern.put);
                    at = found + pattern.find.len();
                }
                _ => {
                    out.extend_from_slice(&input[at..end]);
                    return end;
                }
            }
        }
    }

    /// Returns the first position, not before `from`, at which the rest of the input may begin a
    /// pattern.
    fn hold_from(&self, input: &[u8], from: usize) -> usize {
        let longest = self.patterns.iter().map(|pattern| pattern.find.len()).max();
        let first = (input.len() + 1).saturating_sub(longest.unwrap_or(1));
        let begins = |place: &usize| {
            let rest = &input[*place..];
            let is_beginning = |pattern: &Arc<Pattern>| {
                pattern.find.len() > rest.len() && pattern.find.starts_with(rest)
            };
            self.patterns.iter().any(is_beginning)
        };
        (first.max(from)..input.len())
            .find(begins)
            .unwrap_or(input.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PUT: &str = "glovebox-secret-T-0123";

    fn scrub(patterns: &[Arc<Pattern>], chunks: &[&[u8]]) -> Vec<u8> {
        let mut scrubber = Scrubber::new(patterns.to_vec());
        let mut out = Vec::new();
        for chunk in chunks {
            out.extend_from_slice(&scrubber.push(&Bytes::copy_from_slice(chunk)));
        }
        out.extend_from_slice(&scrubber.finish());
        assert!(scrubber.is_empty());
        out
    }

    #[test]
    fn every_form_is_found_wherever_it_stands() {
        let value = b"s3cret/\"va lue\"+x";
        let patterns = patterns_of(value, PUT);
        let text = String::from_utf8_lossy(value).into_owned();
        let written = [
            text.clone(),
            serde_json::to_string(&text).unwrap(),
            "s3cret\\/\\\"va lue\\\"+x".to_owned(),
            "s3cret%2F%22va%20lue%22%2Bx".to_owned(),
            "s3cret%2f%22va%20lue%22%2bx".to_owned(),
            "s3cret%2F%22va+lue%22%2Bx".to_owned(),
            "s3cret/%22va%20lue%22%2Bx".to_owned(),
            "s3cret/%22va%20lue%22+x".to_owned(),
            "s3cret/&quot;va lue&quot;+x".to_owned(),
            "s3cret/&#34;va lue&#34;+x".to_owned(),
            "S3CRET/\"VA LUE\"+X".to_owned(),
            "7333637265742f227661206c7565222b78".to_owned(),
            STANDARD.encode(format!("me:{text}")),
            STANDARD.encode(format!("you:{text}:more")),
            URL_SAFE.encode(format!("them:{text}")),
            STANDARD.encode(value),
        ];
        for form in written {
            let answer = format!("before {form} after {form}");
            let clean = scrub(&patterns, &[answer.as_bytes()]);
            let clean = String::from_utf8(clean).unwrap();
            assert_eq!(clean.matches(PUT).count(), 2, "{form}: {clean}");
            assert!(
                clean.starts_with("before ") && clean.contains(" after "),
                "{clean}"
            );
            for number in 0..=answer.len() {
                let (one, two) = answer.as_bytes().split_at(number);
                assert_eq!(
                    scrub(&patterns, &[one, two]),
                    clean.as_bytes(),
                    "{form} at {number}"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_the_beginning_of_a_value_is_not_held() {
        let mut scrubber = Scrubber::new(patterns_of(b"abcdefgh", PUT));
        let event = Bytes::from_static(b"data: 1\n\n");
        assert_eq!(scrubber.push(&event), event);
        assert_eq!(scrubber.push(&Bytes::from_static(b"x abc")), "x ");
        assert_eq!(scrubber.push(&Bytes::from_static(b"d!")), "abcd!");
        assert_eq!(scrubber.push(&Bytes::from_static(b"abcdefg")), "");
        assert_eq!(scrubber.finish(), "abcdefg");
    }

    #[test]
    fn a_masked_stream_keeps_its_length() {
        let mut scrubber = Scrubber::masking(&patterns_of(b"abcdefgh", PUT));
        let mut out = scrubber.push(&Bytes::from_static(b"1abcd")).to_vec();
        out.extend_from_slice(&scrubber.push(&Bytes::from_static(b"efgh2")));
        assert_eq!(out, b"1********2");
    }

    proptest! {
        /// Values of few letters, so that they overlap with themselves and each other.
        #[test]
        fn any_cut_gives_the_same_and_leaves_nothing(
            values in proptest::collection::vec("[ab]{8,12}", 1..3),
            text in "[abc]{0,80}", at in 0_usize..12,
            cuts in proptest::collection::vec(0_usize..100, 0..6),
        ) {
            let mut input = text.into_bytes();
            for value in &values {
                let place = at.min(input.len());
                input.splice(place..place, value.bytes());
            }
            let patterns: Vec<_> =
                values.iter().flat_map(|value| patterns_of(value.as_bytes(), "[-]")).collect();
            let whole = scrub(&patterns, &[&input]);
            let mut places: Vec<_> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
            places.extend([0, input.len()]);
            places.sort_unstable();
            let chunks: Vec<_> = places.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&scrub(&patterns, &chunks), &whole);
            for value in &values {
                prop_assert!(memchr::memmem::find(&whole, value.as_bytes()).is_none());
            }
        }
    }
}
