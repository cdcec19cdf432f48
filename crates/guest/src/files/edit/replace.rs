//! Replaces text in a file's content. Pure, so that every rule can be tested without a file.
//!
//! An old text is searched exactly; with the file's line endings; line by line without trailing
//! white space, where it may begin inside a line; and line by line without indentation, in which
//! case each indentation of the new text becomes the corresponding one of the file. The first
//! search that finds anything decides, and the report names it. Several places are an error unless
//! the request asks for all. Either all replacements of a call are made, or none.

use super::by_lines::{by_lines, to_crlf};
use super::nearest;
use glovebox_proto::{Code, Fault, MatchKind, Replacement};
use std::ops::Range;

/// Maximum number of line numbers in a message about several places.
const MAX_PLACES_NAMED: usize = 10;

/// Report of one replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReplacementMade {
    /// Search that found the old text.
    pub(super) how: MatchKind,
    /// Number of places.
    pub(super) places: usize,
}

/// Returns the content after all replacements, and a report of each.
pub(super) fn all(
    content: &[u8],
    wanted: &[Replacement],
) -> Result<(Vec<u8>, Vec<ReplacementMade>), Fault> {
    let mut content = content.to_vec();
    let mut made = Vec::with_capacity(wanted.len());
    for (index, replacement) in wanted.iter().enumerate() {
        let label = if wanted.len() == 1 {
            "the old text".to_owned()
        } else {
            format!("the old text of edit {} of {}", index + 1, wanted.len())
        };
        let (next, how) = one(&content, replacement, &label)?;
        content = next;
        made.push(how);
    }
    Ok((content, made))
}

fn one(
    content: &[u8],
    wanted: &Replacement,
    label: &str,
) -> Result<(Vec<u8>, ReplacementMade), Fault> {
    let invalid = |message: String| Err(Fault::failed(Code::InvalidArgument, message));
    if wanted.old.is_empty() {
        return invalid(format!(
            "{label} is empty; write a new file instead, or name the text the new one goes beside"
        ));
    }
    if wanted.old == wanted.new {
        return invalid(format!("{label} and the new one are the same"));
    }
    let (how, places) = find(content, &wanted.old, &wanted.new);
    match places.as_slice() {
        [] => return Err(missed(content, &wanted.old, label)),
        [_] => {}
        several if !wanted.all => return Err(ambiguous(content, several, label)),
        _ => {}
    }
    let mut next = Vec::with_capacity(content.len() + wanted.new.len());
    let mut from = 0;
    for place in &places {
        next.extend_from_slice(&content[from..place.range.start]);
        next.extend_from_slice(&place.new);
        from = place.range.end;
    }
    next.extend_from_slice(&content[from..]);
    if next == content {
        return invalid(format!(
            "{label} is there already as the new text: nothing would change"
        ));
    }
    let count = places.len();
    Ok((next, ReplacementMade { how, places: count }))
}

/// Range to replace, and its new text.
pub(super) struct ReplacedRange {
    pub(super) range: Range<usize>,
    pub(super) new: Vec<u8>,
}

fn find(content: &[u8], old: &[u8], new: &[u8]) -> (MatchKind, Vec<ReplacedRange>) {
    let exact = |old: &[u8], new: &[u8]| -> Vec<ReplacedRange> {
        occurrences(content, old)
            .map(|start| ReplacedRange {
                range: start..start + old.len(),
                new: new.to_vec(),
            })
            .collect()
    };
    let places = exact(old, new);
    if !places.is_empty() {
        return (MatchKind::Exact, places);
    }
    let has_crlf = content.windows(2).any(|pair| pair == b"\r\n");
    if has_crlf && old.contains(&b'\n') {
        let places = exact(&to_crlf(old), &to_crlf(new));
        if !places.is_empty() {
            return (MatchKind::LineEndings, places);
        }
    }
    let lines = lines(content);
    for how in [MatchKind::TrailingSpace, MatchKind::Indentation] {
        let places = by_lines(content, &lines, old, new, how, has_crlf);
        if !places.is_empty() {
            return (how, places);
        }
    }
    (MatchKind::Exact, Vec::new())
}

/// Returns the starts of the occurrences of `wanted` in `content` that do not overlap.
fn occurrences<'a>(content: &'a [u8], wanted: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    memchr::memmem::find_iter(content, wanted)
}

/// Returns the ranges of the lines of `content`, without their line feeds.
pub(super) fn lines(content: &[u8]) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', content) {
        lines.push(start..end);
        start = end + 1;
    }
    if start < content.len() {
        lines.push(start..content.len());
    }
    lines
}

fn line_number(content: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &content[..at]).count() + 1
}

fn ambiguous(content: &[u8], places: &[ReplacedRange], label: &str) -> Fault {
    let mut numbers: Vec<String> = places
        .iter()
        .take(MAX_PLACES_NAMED)
        .map(|place| line_number(content, place.range.start).to_string())
        .collect();
    if places.len() > MAX_PLACES_NAMED {
        numbers.push("...".to_owned());
    }
    Fault::failed(
        Code::AmbiguousMatch,
        format!(
            "{label} stands in {} places (lines {})",
            places.len(),
            numbers.join(", ")
        ),
    )
    .remedy("add lines before or after it until only one place fits, or ask for all of them")
}

fn missed(content: &[u8], old: &[u8], label: &str) -> Fault {
    let message = match nearest::lines_like(content, old) {
        Some(near) => format!("{label} is not in the file; nearest, at line {near}"),
        None => format!("{label} is not in the file, and nothing is like it"),
    };
    Fault::failed(Code::NoMatch, message).remedy(
        "copy the old text from the file as it is now; read it again if it may have changed",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_bytes::ByteBuf;

    fn edit(old: &str, new: &str) -> Replacement {
        Replacement {
            old: ByteBuf::from(old),
            new: ByteBuf::from(new),
            all: false,
        }
    }

    fn text(content: &str, edits: &[Replacement]) -> Result<(String, Vec<MatchKind>), Fault> {
        let (content, made) = all(content.as_bytes(), edits)?;
        let how = made.into_iter().map(|made| made.how).collect();
        Ok((String::from_utf8(content).unwrap(), how))
    }

    #[test]
    fn one_exact_place_is_replaced() {
        let (content, how) = text("a\nb\nc\n", &[edit("b", "x\ny")]).unwrap();
        assert_eq!(
            (&content[..], &how[..]),
            ("a\nx\ny\nc\n", &[MatchKind::Exact][..])
        );
    }

    #[test]
    fn several_edits_see_each_other_and_fail_together() {
        let (content, _) = text("one two", &[edit("one", "two!"), edit("two!", "three")]).unwrap();
        assert_eq!(content, "three two");
        let fault = text("one two", &[edit("one", "1"), edit("four", "4")]).unwrap_err();
        assert_eq!(fault.code, Code::NoMatch);
        assert!(
            fault.message.starts_with("the old text of edit 2 of 2"),
            "{fault}"
        );
    }

    #[test]
    fn several_places_are_named_or_all_replaced() {
        let fault = text("x\ny\nx\n", &[edit("x", "z")]).unwrap_err();
        assert_eq!(fault.code, Code::AmbiguousMatch);
        assert!(fault.message.contains("2 places (lines 1, 3)"), "{fault}");
        let every = Replacement {
            all: true,
            ..edit("x", "z")
        };
        assert_eq!(text("x\ny\nx\n", &[every]).unwrap().0, "z\ny\nz\n");
    }

    #[test]
    fn the_files_line_endings_are_kept() {
        let (content, how) = text("a\r\nb\r\nc\r\n", &[edit("a\nb", "1\n2\n3")]).unwrap();
        assert_eq!(content, "1\r\n2\r\n3\r\nc\r\n");
        assert_eq!(how, [MatchKind::LineEndings]);
    }

    #[test]
    fn white_space_at_the_ends_of_lines_does_not_matter() {
        let (content, how) =
            text("if x {  \n\ty();\t\n}\n", &[edit("if x {\n\ty();\n}", "z")]).unwrap();
        assert_eq!(
            (&content[..], &how[..]),
            ("z\n", &[MatchKind::TrailingSpace][..])
        );
        let (content, _) = text("a  \r\nb\r\n", &[edit("a", "c\nd")]).unwrap();
        assert_eq!(
            content, "c\nd  \r\nb\r\n",
            "an exact place inside a line stays exact"
        );
    }

    #[test]
    fn new_text_is_indented_as_the_file_is() {
        let file = "fn f() {\n        if a {\n            b();\n        }\n}\n";
        let (content, how) = text(
            file,
            &[edit(
                "if a {\n    b();\n}\n",
                "if c {\n    d();\n\n    e();\n}\n",
            )],
        )
        .unwrap();
        assert_eq!(
            content,
            "fn f() {\n        if c {\n            d();\n\n            e();\n        }\n}\n"
        );
        assert_eq!(how, [MatchKind::Indentation]);
    }

    #[test]
    fn indentation_that_was_not_asked_about_stays() {
        let file = "fn f() {\n    let x = one(a);\n    two();\n}\n";
        // Begins inside a line, and ends with a space that the file has not.
        for (old, new) in [
            ("x = one(a);\n    two(); ", "x = one(b);\n    three(); "),
            (
                "let x = one(a);\n    two(); ",
                "let x = one(b);\n    three(); ",
            ),
        ] {
            let (content, _) = text(file, &[edit(old, new)]).unwrap();
            assert_eq!(
                content, "fn f() {\n    let x = one(b);\n    three(); \n}\n",
                "{old}"
            );
        }
        // Without its indentation only the first line is one that the file has otherwise.
        let (content, how) = text(
            "    one();  \n\ttwo();\n",
            &[edit("one();\n  two();\n", "1();\n  2();\n   3();\n")],
        )
        .unwrap();
        assert_eq!(content, "    1();\n\t2();\n\t 3();\n");
        assert_eq!(how, [MatchKind::Indentation]);
        // Two lines that are alike here and not in the file: how new ones are meant is anybody's
        // guess.
        let fault = text("  a\n    b\n", &[edit("a\nb\n", "c\nd\n")]).unwrap_err();
        assert_eq!(fault.code, Code::NoMatch);
    }

    #[test]
    fn nothing_to_do_is_an_error() {
        for (content, edit) in [("a", edit("", "b")), ("a", edit("a", "a"))] {
            assert_eq!(
                text(content, &[edit]).unwrap_err().code,
                Code::InvalidArgument
            );
        }
    }

    #[test]
    fn blank_lines_alone_are_found_exactly_or_not_at_all() {
        assert_eq!(
            text("a\n \nb\n", &[edit("\n\n", "x")]).unwrap_err().code,
            Code::NoMatch
        );
    }

    proptest! {
        #[test]
        fn what_is_not_named_stays_byte_for_byte(
            before in proptest::collection::vec(any::<u8>(), 0..60),
            after in proptest::collection::vec(any::<u8>(), 0..60),
            new in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let old = b"<<the old text>>".to_vec();
            prop_assume!(new != old);
            let content = [&before[..], &old, &after].concat();
            let wanted = Replacement { old: ByteBuf::from(old), new: ByteBuf::from(new.clone()), all: false };
            let (result, made) = all(&content, &[wanted]).unwrap();
            prop_assert_eq!(result, [&before[..], &new, &after].concat());
            prop_assert_eq!(made, vec![ReplacementMade { how: MatchKind::Exact, places: 1 }]);
        }

        #[test]
        fn any_bytes_give_an_answer(
            content in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'\r'), Just(b'a'), Just(b'\t')], 0..40),
            old in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'\r'), Just(b'a')], 0..8),
            new in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'b'), Just(b' ')], 0..8),
            all_places in any::<bool>(),
        ) {
            let wanted = Replacement { old: ByteBuf::from(old), new: ByteBuf::from(new), all: all_places };
            if let Ok((result, made)) = all(&content, &[wanted]) {
                prop_assert!(result != content);
                prop_assert!(made[0].places == 1 || all_places);
            }
        }
    }
}
