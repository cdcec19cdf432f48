//! Finds the lines of a file that are most similar to a text that is not in it, for the message of
//! a failed edit.

use super::replace::lines;

/// Maximum number of lines shown.
const MAX_LINES: usize = 12;
/// Maximum number of bytes shown of a line.
const MAX_LINE_BYTES: usize = 200;
/// Maximum number of lines of a searched file: beyond, the search would take longer than reading
/// the file.
const MAX_SEARCHED_LINES: usize = 50_000;
/// Minimum share of equal words, in percent.
const MIN_ALIKE_PERCENT: usize = 40;

/// Returns `NUMBER:` and the lines of `content` that are most similar to `wanted`. `None` if none
/// are similar enough.
pub(super) fn lines_like(content: &[u8], wanted: &[u8]) -> Option<String> {
    let found = lines(content);
    let wanted: Vec<&[u8]> = wanted
        .strip_suffix(b"\n")
        .unwrap_or(wanted)
        .split(|byte| *byte == b'\n')
        .take(64)
        .map(<[u8]>::trim_ascii)
        .collect();
    if found.len() > MAX_SEARCHED_LINES || found.is_empty() {
        return None;
    }
    let trimmed: Vec<&[u8]> = found
        .iter()
        .map(|range| content[range.clone()].trim_ascii())
        .collect();
    // Split each line once, not once per comparison.
    let words: Vec<Vec<&[u8]>> = trimmed.iter().map(|line| words_of(line)).collect();
    let wanted_words: Vec<Vec<&[u8]>> = wanted.iter().map(|line| words_of(line)).collect();
    let total: usize = wanted_words.iter().map(|words| words.len().max(1)).sum();
    let mut best = (0, 0);
    for start in 0..found.len() {
        let alike: usize = wanted
            .iter()
            .zip(&wanted_words)
            .enumerate()
            .map(
                |(offset, (line, line_words))| match trimmed.get(start + offset) {
                    None => 0,
                    Some(other) if other == line => line_words.len().max(1),
                    Some(_) => common(line_words, &words[start + offset]),
                },
            )
            .sum();
        if alike > best.0 {
            best = (alike, start);
        }
    }
    let (alike, start) = best;
    if alike * 100 < total * MIN_ALIKE_PERCENT {
        return None;
    }
    let mut shown = format!("{}:", start + 1);
    for range in found.iter().skip(start).take(wanted.len().min(MAX_LINES)) {
        let line = &content[range.clone()];
        let cut = &line[..line.len().min(MAX_LINE_BYTES)];
        shown.push('\n');
        shown.push_str(&String::from_utf8_lossy(cut));
    }
    Some(shown)
}

fn words_of(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_' && byte.is_ascii())
        .filter(|word| !word.is_empty())
        .take(64)
        .collect()
}

/// Counts the words of `wanted` that are in `other`.
fn common(wanted: &[&[u8]], other: &[&[u8]]) -> usize {
    wanted.iter().filter(|word| other.contains(word)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_lines_are_shown_with_their_number() {
        let file = b"fn one() {\n    alpha(1);\n}\n\nfn two() {\n    beta(first, second);\n}\n";
        let near = lines_like(file, b"fn two() {\n    beta(first, third);\n}").unwrap();
        assert_eq!(near, "5:\nfn two() {\n    beta(first, second);\n}");
    }

    #[test]
    fn nothing_alike_is_nothing() {
        assert_eq!(
            lines_like(b"some text\n", b"entirely different words"),
            None
        );
        assert_eq!(lines_like(b"", b"x"), None);
        assert_eq!(lines_like(b"a\n", b""), None);
    }
}
