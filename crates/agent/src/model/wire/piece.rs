//! JSON of one event, with unpaired UTF-16 surrogates kept until their other half arrives.
//!
//! Servers split text between the two surrogates of a pair (`"\ud83d"` in one event, `"\ude00"` in
//! the next), and models write unpaired ones. JSON parsers refuse both. Here a surrogate ("half")
//! becomes a private code point ("mark"); [`Text`] joins two that meet into their character, and
//! turns a remaining one into U+FFFD.

use super::unreadable;
use crate::model::ModelError;
use glovebox_proto::json::{FIRST_HALF, FIRST_LOW_HALF, replace_lone_halves};
use serde_json::Value;

/// First mark: the 2,048 surrogates map to the last 2,048 code points, which are private.
const FIRST_MARK: u32 = 0x10_F800;
const HALVES: u32 = 0x800;

/// JSON of one event.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) value: Value,
    /// True if strings of `value` contain marks.
    has_halves: bool,
}

impl Piece {
    /// Parses the data of an event.
    // TRUST: a server chose it. serde_json bounds the depth, the event reader the size.
    pub(super) fn parse(data: &str) -> Result<Self, ModelError> {
        match serde_json::from_str(data) {
            Ok(value) => Ok(Self {
                value,
                has_halves: false,
            }),
            Err(error) => {
                let marked = mark_halves(data).ok_or_else(|| unreadable(&error))?;
                let value = serde_json::from_str(&marked).map_err(unreadable)?;
                Ok(Self {
                    value,
                    has_halves: true,
                })
            }
        }
    }

    /// Returns a string of this event as text that the next event may continue.
    pub(super) fn fragment<'a>(&self, text: &'a str) -> Fragment<'a> {
        Fragment {
            text,
            has_halves: self.has_halves,
        }
    }

    /// Returns a string that no other event continues.
    pub(super) fn string(&self, text: &str) -> String {
        if !self.has_halves {
            return text.to_owned();
        }
        text.chars()
            .map(|c| {
                if half_of(c).is_some() {
                    char::REPLACEMENT_CHARACTER
                } else {
                    c
                }
            })
            .collect()
    }

    /// Returns data to be stored, without marks.
    pub(super) fn data(&self, value: &Value) -> Value {
        if !self.has_halves {
            return value.clone();
        }
        match value {
            Value::String(text) => Value::String(self.string(text)),
            Value::Array(items) => items.iter().map(|item| self.data(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (self.string(key), self.data(value)))
                .collect(),
            other => other.clone(),
        }
    }
}

/// Text of one event that the next event may continue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fragment<'a> {
    pub(super) text: &'a str,
    has_halves: bool,
}

/// Returns a fragment without marks.
pub(super) const fn plain(text: &str) -> Fragment<'_> {
    Fragment {
        text,
        has_halves: false,
    }
}

/// Text joined from fragments. A surrogate is stored in the three bytes that UTF-8 would give it.
#[derive(Debug, Default)]
pub(super) struct Text {
    bytes: Vec<u8>,
    shown: usize,
}

impl Text {
    pub(super) fn push(&mut self, fragment: Fragment<'_>) {
        if !fragment.has_halves {
            self.bytes.extend_from_slice(fragment.text.as_bytes());
            return;
        }
        for c in fragment.text.chars() {
            if let Some(half) = half_of(c) {
                self.push_half(half);
            } else {
                let mut buffer = [0; 4];
                self.bytes
                    .extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }

    fn push_half(&mut self, half: u32) {
        if half >= FIRST_LOW_HALF
            && let Some(high) = self.trailing_high_half()
        {
            let code = 0x1_0000 + ((high - FIRST_HALF) << 10) + (half - FIRST_LOW_HALF);
            self.bytes.truncate(self.bytes.len() - 3);
            let mut buffer = [0; 4];
            let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            self.bytes
                .extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            return;
        }
        let low_bits = |shift: u32| 0x80 | ((half >> shift) & 0x3F) as u8;
        self.bytes
            .extend_from_slice(&[0xED, low_bits(6), low_bits(0)]);
    }

    /// Returns the high surrogate at the end, which waits for its low one.
    fn trailing_high_half(&self) -> Option<u32> {
        match self.bytes[self.bytes.len().saturating_sub(3)..] {
            [0xED, second @ 0xA0..=0xAF, third] => {
                Some(0xD000 | (u32::from(second & 0x3F) << 6) | u32::from(third & 0x3F))
            }
            _ => None,
        }
    }

    /// Returns the text that was not displayed yet. A surrogate at the end is held back.
    pub(super) fn take_shown(&mut self) -> String {
        let held = if self.trailing_high_half().is_some() {
            3
        } else {
            0
        };
        let until = self.bytes.len() - held;
        let shown = without_halves(self.bytes[self.shown.min(until)..until].to_vec());
        self.shown = until;
        shown
    }

    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// True if the last byte that is not whitespace is `byte`.
    pub(super) fn ends_with(&self, byte: u8) -> bool {
        self.bytes.trim_ascii_end().last() == Some(&byte)
    }

    /// Returns the whole text. Unpaired surrogates become U+FFFD.
    pub(super) fn finish(self) -> String {
        without_halves(self.bytes)
    }

    /// As [`Self::finish`], but keeps the text.
    pub(super) fn so_far(&self) -> String {
        without_halves(self.bytes.clone())
    }
}

/// Replaces surrogates in place: U+FFFD has three bytes as well.
fn without_halves(mut bytes: Vec<u8>) -> String {
    if let Err(error) = std::str::from_utf8(&bytes) {
        let mut at = error.valid_up_to();
        while at + 2 < bytes.len() {
            if bytes[at] == 0xED && bytes[at + 1] >= 0xA0 {
                bytes[at..at + 3].copy_from_slice("\u{FFFD}".as_bytes());
                at += 3;
            } else {
                at += 1;
            }
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns JSON with unpaired surrogates as marks; `None` if there are none, or if it contains a
/// mark.
fn mark_halves(json: &str) -> Option<String> {
    if json.chars().any(|c| half_of(c).is_some()) {
        return None;
    }
    let mark = |half: u32| char::from_u32(half - FIRST_HALF + FIRST_MARK);
    // An escaped pair that is itself a mark could not be told from a surrogate.
    replace_lone_halves(json, |pair| u32::from(pair) < FIRST_MARK, mark)
}

fn half_of(c: char) -> Option<u32> {
    let at = u32::from(c).checked_sub(FIRST_MARK)?;
    (at < HALVES).then_some(FIRST_HALF + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[&str]) -> (String, String) {
        let mut text = Text::default();
        let mut shown = String::new();
        for json in pieces {
            let piece = Piece::parse(&format!("\"{json}\"")).unwrap();
            text.push(piece.fragment(piece.value.as_str().unwrap()));
            shown.push_str(&text.take_shown());
        }
        (text.finish(), shown)
    }

    #[test]
    fn halves_meet_and_lone_ones_are_replaced() {
        for (pieces, whole) in [
            (&["a\\ud83d", "\\ude00b"][..], "a\u{1F600}b"),
            (&["a\\ud83d\\ude00b"], "a\u{1F600}b"),
            (&["\\ud83d", "", "\\ude00"], "\u{1F600}"),
            (&["\\ud83d", "x", "\\ude00"], "\u{FFFD}x\u{FFFD}"),
            (&["\\ude00", "\\ud83d"], "\u{FFFD}\u{FFFD}"),
            (&["\\ud83d\\ud83d", "\\ude00"], "\u{FFFD}\u{1F600}"),
            (&["\\\\ud83d", "\\\\\\ud83d!"], "\\ud83d\\\u{FFFD}!"),
            (&["\u{10F8FF}"], "\u{10F8FF}"),
        ] {
            let (text, shown) = joined(pieces);
            assert_eq!(text, whole, "{pieces:?}");
            assert!(whole.starts_with(&shown), "{shown:?} {pieces:?}");
        }
        // What could be taken for a mark beside a half is not guessed at.
        assert!(Piece::parse("\"\u{10F8FF}\\ud83d\"").is_err());
        assert!(Piece::parse("\"\\udbff\\udfff\\ud83d\"").is_err());
    }

    #[test]
    fn other_fields_of_an_event_with_halves_are_mended() {
        let piece = Piece::parse(r#"{"id":"a\ud83d","many":["\ude00"]}"#).unwrap();
        let data = piece.data(&piece.value);
        assert_eq!(
            data,
            serde_json::json!({ "id": "a\u{FFFD}", "many": ["\u{FFFD}"] })
        );
    }
}
