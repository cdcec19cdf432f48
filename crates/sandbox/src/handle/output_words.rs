//! Words of a command's output that may be file names.

/// Splits a text at white space, quotation marks and brackets, and removes punctuation at the ends
/// of words. No word is empty.
pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| byte.is_ascii_whitespace() || b"'\"`()[]<>=,;".contains(byte))
        .map(trim)
        .filter(|word| !word.is_empty())
}

/// Removes curly quotation marks and punctuation at the end.
fn trim(word: &[u8]) -> &[u8] {
    let mut word = word;
    loop {
        let shorter = [
            word.strip_prefix("\u{2018}".as_bytes()),
            word.strip_suffix("\u{2019}".as_bytes()),
            word.strip_suffix(b":"),
            word.strip_suffix(b"."),
        ];
        match shorter.into_iter().flatten().next() {
            Some(shorter) => word = shorter,
            None => return word,
        }
    }
}
