//! Source maps: the places of problems in the files from which a bundle was built.
//!
//! In: a map as bundlers write it (version 3, JSON), given with the bundle or as a `data:` address
//! in its last comment. Out: an [`OriginalPlace`] beside the place in the bundle, with the line
//! there if the map contains the file. A map is as untrusted as its bundle. Its size is bounded, no
//! file or address in it is opened, its names are only displayed, and it is parsed only if there is
//! a problem.

use crate::limits::MAX_MAP_BYTES;
use crate::problem::{OriginalPlace, Problem, ProblemCode};
use crate::report::Report;
use crate::source::{Source, shown};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use oxc_sourcemap::Token;
use oxc_span::Span;
use std::borrow::Cow;
use std::collections::HashMap;

/// Start of the comment that names a map.
const MARK: &[u8] = b"# sourceMappingURL=";
const DATA: &[u8] = b"data:";
/// Maximum length of a displayed file name.
const MAX_FILE_CHARS: usize = 200;

/// Splits the comment with a map off the end of a bundle. Returns the bundle and the `data:`
/// address.
pub(crate) fn split(source: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (comment, address) = match last_comment(source) {
        Some(found) if found.1.starts_with(DATA) => found,
        _ => return (source, None),
    };
    (source.get(..comment).unwrap_or(source), Some(address))
}

/// Returns the file that the last comment of a bundle names as its source map; `None` for a map
/// inside the comment. The name is untrusted: the caller decides whether that file may be opened.
pub fn source_map_name(source: &[u8]) -> Option<&str> {
    let (_, address) = last_comment(source)?;
    if address.starts_with(DATA) {
        return None;
    }
    std::str::from_utf8(address).ok()
}

/// Returns the offset of the last comment and the address in it, if the comment names a map.
fn last_comment(source: &[u8]) -> Option<(usize, &[u8])> {
    let source = source.trim_ascii_end();
    // Line and block comments. The end of a block comment is not part of the address.
    let inner = source.strip_suffix(b"*/").unwrap_or(source);
    let inner = inner.trim_ascii_end();
    let is_address = |byte: &u8| byte.is_ascii_graphic() && !b"\"'`\\<>{}".contains(byte);
    let start = inner
        .iter()
        .rposition(|byte| !is_address(byte))
        .map_or(0, |before| before + 1);
    // The mark ends in the first `=` of the last word: `sourceMappingURL=data:...`.
    let word = inner.get(start..)?;
    let address = word.strip_prefix(b"sourceMappingURL=")?;
    let mark = (start + b"sourceMappingURL=".len()).checked_sub(MARK.len())?;
    let opening = mark.checked_sub(2)?;
    let is_comment = inner.get(mark..)?.starts_with(MARK)
        && matches!(inner.get(opening..mark), Some(b"//" | b"/*"));
    is_comment.then_some((opening, address))
}

/// Adds the original places to the problems. A map that cannot be used becomes a warning.
pub(crate) fn apply(map: &[u8], source: &Source<'_>, problems: &mut Vec<Problem>) {
    if problems.is_empty() {
        return;
    }
    let told = match text_of(map) {
        Ok(text) => match oxc_sourcemap::SourceMap::from_json_string(&text) {
            Ok(map) => {
                place(&map, source, problems);
                return;
            }
            Err(error) => error.to_string(),
        },
        Err(reason) => reason,
    };
    let mut report = Report::new(source);
    report.warn(
        ProblemCode::SourceMap,
        "",
        Span::new(0, 0),
        format!("the source map cannot be used, so places are those in the bundle: {told}"),
    );
    problems.extend(report.finish());
}

/// Returns the JSON of a map that was given as JSON or as a `data:` address.
fn text_of(map: &[u8]) -> Result<Cow<'_, str>, String> {
    if map.len() > MAX_MAP_BYTES {
        return Err(format!("it has more than {MAX_MAP_BYTES} bytes"));
    }
    let no_text = |_| "it is no UTF-8".to_owned();
    let Some(address) = map.strip_prefix(DATA) else {
        return std::str::from_utf8(map).map(Cow::Borrowed).map_err(no_text);
    };
    let comma = address.iter().position(|byte| *byte == b',');
    let (kind, content) = address.split_at(comma.unwrap_or(address.len()));
    let Some(content) = content
        .strip_prefix(b",")
        .filter(|_| kind.ends_with(b";base64"))
    else {
        return Err(
            "the address in the bundle is none of `data:application/json;base64,`".to_owned(),
        );
    };
    let engine = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let bytes = engine.decode(content).map_err(|error| error.to_string())?;
    String::from_utf8(bytes)
        .map(Cow::Owned)
        .map_err(|_| "it is no UTF-8".to_owned())
}

/// Place in the bundle, and the token of the map that contains it.
struct Lookup {
    /// Index of the problem, and of its related place; `None` for the place of the problem itself.
    problem: usize,
    related: Option<usize>,
    /// Column in UTF-16 units, as in maps.
    column: u32,
    token: Option<Token>,
}

fn place(map: &oxc_sourcemap::SourceMap<'_>, source: &Source<'_>, problems: &mut [Problem]) {
    let mut lines: HashMap<u32, Vec<Lookup>> = HashMap::new();
    for (index, problem) in problems.iter().enumerate() {
        let related = problem.also.iter().enumerate();
        let related = related.map(|(other, place)| (Some(other), place.line, place.column));
        for (related, line, column) in [(None, problem.line, problem.column)]
            .into_iter()
            .chain(related)
        {
            lines.entry(line - 1).or_default().push(Lookup {
                problem: index,
                related,
                column: source.utf16_column(line, column),
                token: None,
            });
        }
    }
    // The lines of a map are in order, its columns may not be. A single pass finds all places, and
    // needs no table whose size the map controls.
    for token in map.get_tokens() {
        for lookup in lines.get_mut(&token.get_dst_line()).into_iter().flatten() {
            let is_nearer = lookup
                .token
                .is_none_or(|best| best.get_dst_col() <= token.get_dst_col());
            if token.get_dst_col() <= lookup.column && is_nearer {
                lookup.token = Some(token);
            }
        }
    }
    let mut files: HashMap<u32, Source<'_>> = HashMap::new();
    for lookup in lines.into_values().flatten() {
        let Some(token) = lookup.token else { continue };
        let Some(id) = token.get_source_id() else {
            continue;
        };
        let Some(name) = map.get_source(id) else {
            continue;
        };
        let file = map
            .get_source_content(id)
            .map(|content| &*files.entry(id).or_insert_with(|| Source::new(content)));
        let original = original(map.get_source_root(), name, file, token);
        let problem = &mut problems[lookup.problem];
        match lookup.related {
            None => problem.original = Some(original),
            Some(index) => problem.also[index].original = Some(original),
        }
    }
}

fn original(
    root: Option<&str>,
    name: &str,
    file: Option<&Source<'_>>,
    token: Token,
) -> OriginalPlace {
    let root = root.filter(|root| !root.is_empty());
    let root = root.map(|root| format!("{}/", root.trim_end_matches('/')));
    let name = root.unwrap_or_default() + name;
    let file_name = name.chars().take(MAX_FILE_CHARS).map(shown).collect();
    let (line, column) = (token.get_src_line(), token.get_src_col());
    let there = file.and_then(|file| Some((file, file.word_at(line, column)?)));
    match there {
        Some((file, word)) => {
            let (line, column) = file.position(word.start);
            let snippet = file.snippet(word);
            OriginalPlace {
                file: file_name,
                line,
                column,
                snippet: snippet.text,
                snippet_start: snippet.start,
                snippet_length: snippet.length,
            }
        }
        None => OriginalPlace {
            file: file_name,
            line: line.saturating_add(1),
            column: column.saturating_add(1),
            snippet: String::new(),
            snippet_start: 0,
            snippet_length: 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_cut_off_the_end_only() {
        let data = "data:application/json;base64,e30=";
        for (source, rest) in [
            (format!("a;\n//# sourceMappingURL={data}"), "a;\n"),
            (format!("a;\n//# sourceMappingURL={data}\r\n \n"), "a;\n"),
            (format!("a;/*# sourceMappingURL={data} */"), "a;"),
        ] {
            let found = split(source.as_bytes());
            assert_eq!(found, (rest.as_bytes(), Some(data.as_bytes())), "{source}");
        }
        for source in [
            String::new(),
            "a".to_owned(),
            "sourceMappingURL=data:x".to_owned(),
            "# sourceMappingURL=data:x".to_owned(),
            format!("//# sourceMappingURL={data}\na;"),
            format!("`\n//# sourceMappingURL={data}`"),
            format!("'//# sourceMappingURL={data}'"),
            "//# sourceMappingURL=a.js.map".to_owned(),
        ] {
            assert_eq!(
                split(source.as_bytes()),
                (source.as_bytes(), None),
                "{source}"
            );
        }
        assert_eq!(
            source_map_name(b"a;\n//# sourceMappingURL=a.js.map\n"),
            Some("a.js.map")
        );
        assert_eq!(source_map_name(b"a;\n//# sourceMappingURL=data:x"), None);
    }
}
