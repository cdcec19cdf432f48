//! Searches an old text line by line if it differs from the file in white space only, and gives the
//! new text the white space of the file.

use super::replace::ReplacedRange;
use glovebox_proto::MatchKind;
use std::ops::Range;

/// Returns the places where whole lines equal those of `old` except for white space.
pub(super) fn by_lines(
    content: &[u8],
    lines: &[Range<usize>],
    old: &[u8],
    new: &[u8],
    how: MatchKind,
    has_crlf: bool,
) -> Vec<ReplacedRange> {
    let bare = |line: &[u8]| -> Vec<u8> {
        let line = line.trim_ascii_end();
        let line = if how == MatchKind::Indentation {
            line.trim_ascii_start()
        } else {
            line
        };
        line.to_vec()
    };
    let ends_line = old.ends_with(b"\n");
    let old_lines: Vec<&[u8]> = old
        .strip_suffix(b"\n")
        .unwrap_or(old)
        .split(|byte| *byte == b'\n')
        .collect();
    let wanted: Vec<Vec<u8>> = old_lines.iter().map(|line| bare(line)).collect();
    // Blank lines alone would match everywhere.
    if wanted.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    let found: Vec<Vec<u8>> = lines
        .iter()
        .map(|range| bare(&content[range.clone()]))
        .collect();
    let mut places = Vec::new();
    let mut at = 0;
    while at + wanted.len() <= found.len() {
        let Some(begin) = fit(&wanted, &found[at..at + wanted.len()], how) else {
            at += 1;
            continue;
        };
        let mut text = new.to_vec();
        if how == MatchKind::Indentation {
            let theirs = lines[at..].iter().map(|line| &content[line.clone()]);
            let Some(pairs) = indentations(&old_lines, theirs) else {
                at += 1;
                continue;
            };
            text = indented(&text, &pairs);
        }
        if has_crlf {
            text = to_crlf(&text);
        }
        let last = &lines[at + wanted.len() - 1];
        let mut end = last.end;
        if ends_line && content.get(end) == Some(&b'\n') {
            end += 1;
        } else if content[..end].ends_with(b"\r") {
            // The old text ends before the line end, so the replaced range does too.
            end -= 1;
        }
        places.push(ReplacedRange {
            range: lines[at].start + begin..end,
            new: text,
        });
        at += wanted.len();
    }
    places
}

/// Returns the offset in the first line of `found` at which `wanted` begins. `None` if the lines
/// differ.
fn fit(wanted: &[Vec<u8>], found: &[Vec<u8>], how: MatchKind) -> Option<usize> {
    let ([first, rest @ ..], [found_first, found_rest @ ..]) = (wanted, found) else {
        return None;
    };
    if rest != found_rest {
        return None;
    }
    let may_begin_inside = how == MatchKind::TrailingSpace && !first.is_empty();
    if first == found_first || (may_begin_inside && found_first.ends_with(first)) {
        return Some(found_first.len() - first.len());
    }
    None
}

fn indentation(line: &[u8]) -> &[u8] {
    let rest = line.trim_ascii_start();
    &line[..line.len() - rest.len()]
}

/// Pairs each indentation of the old lines with the one in the file. `None` if one indentation
/// corresponds to two: then the indentation of new lines is undefined.
fn indentations<'a>(
    old: &[&'a [u8]],
    theirs: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<(&'a [u8], &'a [u8])>> {
    let mut pairs: Vec<(&[u8], &[u8])> = Vec::new();
    let lines = old.iter().copied().zip(theirs);
    for (mine, theirs) in lines.filter(|(mine, _)| !mine.trim_ascii().is_empty()) {
        let pair = (indentation(mine), indentation(theirs));
        match pairs.iter().find(|(known, _)| *known == pair.0) {
            Some(known) if *known != pair => return None,
            Some(_) => {}
            None => pairs.push(pair),
        }
    }
    Some(pairs)
}

/// Replaces the longest known indentation of each line of `text` by the file's.
fn indented(text: &[u8], pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let known = pairs
            .iter()
            .filter(|(mine, _)| indentation(line).starts_with(mine))
            .max_by_key(|(mine, _)| mine.len());
        match known {
            Some((mine, theirs)) if !line.trim_ascii().is_empty() => {
                result.extend_from_slice(theirs);
                result.extend_from_slice(&line[mine.len()..]);
            }
            _ => result.extend_from_slice(line),
        }
    }
    result
}

/// Returns `text` with a carriage return before every line feed.
pub(super) fn to_crlf(text: &[u8]) -> Vec<u8> {
    let mut converted = Vec::with_capacity(text.len() + 16);
    let mut before = 0;
    for &byte in text {
        if byte == b'\n' && before != b'\r' {
            converted.push(b'\r');
        }
        converted.push(byte);
        before = byte;
    }
    converted
}
