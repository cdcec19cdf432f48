//! Suggestion of a known word for a mistyped one.

/// Returns the candidate nearest to `word`, if it is within two edits (one for words of up to four
/// bytes).
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = if word.len() <= 4 { 1 } else { 2 };
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_their_word_and_other_words_do_not() {
        let words = ["memory", "net", "disk", "max_sandboxes"];
        assert_eq!(nearest("memroy", words), Some("memory"));
        assert_eq!(nearest("max-sandboxes", words), Some("max_sandboxes"));
        assert_eq!(nearest("nett", words), Some("net"));
        assert_eq!(nearest("colour", words), None);
    }
}
