//! Repair of JSON whose producer cut a string between the two halves of a UTF-16 surrogate pair. A
//! lone surrogate (`"\\ud83d"`) is valid by the grammar of JSON but is not a character, so parsers
//! refuse it.

/// First code unit of the high (leading) surrogates.
pub const FIRST_HALF: u32 = 0xD800;
/// First code unit of the low (trailing) surrogates.
pub const FIRST_LOW_HALF: u32 = 0xDC00;
/// First code unit after the surrogates.
const BEHIND_HALVES: u32 = 0xE000;

/// Replaces each lone surrogate with U+FFFD. Returns `None` if there is none, so the text needs no
/// repair.
pub fn mend(json: &str) -> Option<String> {
    replace_lone_halves(json, |_| true, |_| Some(char::REPLACEMENT_CHARACTER))
}

/// Replaces each lone surrogate with the character that `replacement` returns for it. Returns
/// `None` if there is no lone surrogate, if `replacement` returns `None`, or if `accepts` refuses
/// the character of a complete pair.
pub fn replace_lone_halves(
    json: &str,
    accepts: impl Fn(char) -> bool,
    replacement: impl Fn(u32) -> Option<char>,
) -> Option<String> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        // A backslash followed by another one is an escape of two bytes: the second one must not
        // start `\u`.
        let Some(code) = escaped_unit(bytes, at) else {
            at += 2;
            continue;
        };
        if !(FIRST_HALF..BEHIND_HALVES).contains(&code) {
            at += 6;
            continue;
        }
        let next = escaped_unit(bytes, at + 6);
        if code < FIRST_LOW_HALF
            && let Some(low) = next.filter(|low| (FIRST_LOW_HALF..BEHIND_HALVES).contains(low))
        {
            let pair = 0x1_0000 + ((code - FIRST_HALF) << 10) + (low - FIRST_LOW_HALF);
            if !char::from_u32(pair).is_some_and(&accepts) {
                return None;
            }
            at += 12;
            continue;
        }
        out.push_str(json.get(copied..at)?);
        out.push(replacement(code)?);
        at += 6;
        copied = at;
    }
    if copied == 0 {
        return None;
    }
    out.push_str(json.get(copied..)?);
    Some(out)
}

/// Returns the code unit of the escape `\uXXXX` at index `at`, or `None` if there is no such
/// escape.
fn escaped_unit(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |code, &digit| {
        Some(code << 4 | char::from(digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mend_replaces_lone_halves_only() {
        let json = r#"{"a":"\ud83d","b":"\ud83d\ude00","c":"\\ud83d","d":"\ude00"}"#;
        let mended = mend(json).unwrap();
        assert_eq!(
            mended,
            "{\"a\":\"\u{FFFD}\",\"b\":\"\\ud83d\\ude00\",\"c\":\"\\\\ud83d\",\"d\":\"\u{FFFD}\"}"
        );
        assert_eq!(mend(r#"{"a":"\u00e4"}"#), None);
        assert_eq!(mend(r#""\ud83d"#).as_deref(), Some("\"\u{FFFD}"));
        assert_eq!(mend("\\"), None);
    }
}
