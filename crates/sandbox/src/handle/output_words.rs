//! Words of a command's output that may be names of files.

/// Splits a text at blanks, quotation marks and brackets; without what ends a clause. No word is empty.
pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| byte.is_ascii_whitespace() || b"'\"`()[]<>=,;".contains(byte))
        .map(trim)
        .filter(|word| !word.is_empty())
}

/// Without curly quotation marks, and what ends a clause.
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
