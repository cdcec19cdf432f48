//! Edits of a Jupyter notebook. The model words them in the text of cells, as Read shows it. This
//! module turns them into edits of the file, which is JSON: quotes and line ends in new text must
//! be escaped.
//!
//! Only the sources of cells change. Every other byte of the file stays the same.
//!
//! TRUST: a notebook is any JSON from the sandbox. A file that does not look like a notebook is
//! edited as text.

use glovebox_proto::{Code, Fault, Replacement};
use memchr::memmem;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use serde_json::value::RawValue;
use std::ops::Range;

/// Initial context on each side of a changed source, in bytes, which makes the old text unique.
const BESIDE_BYTES: usize = 64;

#[derive(Deserialize)]
struct Notebook<'a> {
    #[serde(borrow)]
    cells: Vec<Cell<'a>>,
}

#[derive(Deserialize)]
struct Cell<'a> {
    #[serde(borrow)]
    source: Option<&'a RawValue>,
}

/// Source of one cell: the range of its JSON in the file, and the text that the JSON encodes.
struct CutSource {
    span: Range<usize>,
    text: String,
    is_list: bool,
}

/// Replacement in the text of cells.
struct CellReplacement<'a> {
    old: &'a str,
    new: &'a str,
    all: bool,
}

/// Returns the replacements as edits of the file. `None` if they apply to the file itself: it is
/// not a notebook, or no cell contains any of the old texts.
///
/// # Errors
/// `conflict` if an old text occurs several times; `not-found` if only some of several old texts
/// are text of cells.
pub(super) fn in_json(
    file: &[u8],
    replacements: &[Replacement],
) -> Result<Option<Vec<Replacement>>, Fault> {
    let mut file = file.to_vec();
    let mut made = Vec::new();
    for (index, replacement) in replacements.iter().enumerate() {
        let Some(sources) = sources(&file) else {
            return Ok(None);
        };
        let found = match wanted(replacement) {
            Some(wanted) => apply(&sources, &wanted)?,
            None => Vec::new(),
        };
        if found.is_empty() && made.is_empty() && index == 0 {
            if replacements.len() == 1 || none_fits(&sources, replacements) {
                return Ok(None);
            }
            return Err(mixed());
        }
        if found.is_empty() {
            return Err(mixed());
        }
        // Backwards, so that the ranges of earlier sources stay valid.
        for (source, text) in found.into_iter().rev() {
            let json = in_json_form(&file[source.span.clone()], &text, source.is_list)?;
            made.push(splice(&mut file, source.span.clone(), &json));
        }
    }
    Ok(Some(made))
}

fn wanted(replacement: &Replacement) -> Option<CellReplacement<'_>> {
    let [old, new] = [&replacement.old, &replacement.new].map(|bytes| std::str::from_utf8(bytes));
    let (old, new) = (old.ok()?, new.ok()?);
    (!old.is_empty()).then_some(CellReplacement {
        old,
        new,
        all: replacement.all,
    })
}

fn none_fits(sources: &[CutSource], replacements: &[Replacement]) -> bool {
    !replacements.iter().any(|replacement| {
        wanted(replacement).is_some_and(|wanted| {
            sources
                .iter()
                .any(|source| source.text.contains(wanted.old))
        })
    })
}

fn mixed() -> Fault {
    Fault::failed(
        Code::NotFound,
        "of these old texts, only some stand in the source of one of the notebook's cells",
    )
    .remedy(
        "an old text is part of the source of one cell; outputs and the `# --- cell` lines that are shown \
         with it are not text that can be edited. Edit the JSON of the file in an edit of its own",
    )
}

/// Returns the sources of the cells, in order. `None` if the file is not a notebook.
fn sources(file: &[u8]) -> Option<Vec<CutSource>> {
    let text = std::str::from_utf8(file).ok()?;
    let notebook: Notebook<'_> = serde_json::from_str(text).ok()?;
    let sources = notebook.cells.iter().filter_map(|cell| {
        let raw = cell.source?.get();
        // The raw value borrows from `text`, so the difference of the addresses is its offset.
        let start = (raw.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
        let (text, is_list) = match serde_json::from_str::<Vec<String>>(raw) {
            Ok(lines) => (lines.concat(), true),
            Err(_) => (serde_json::from_str::<String>(raw).ok()?, false),
        };
        Some(CutSource {
            span: start..start + raw.len(),
            text,
            is_list,
        })
    });
    Some(sources.collect())
}

/// Returns the sources that change, with their new text.
fn apply<'a>(
    sources: &'a [CutSource],
    wanted: &CellReplacement<'_>,
) -> Result<Vec<(&'a CutSource, String)>, Fault> {
    let count = |source: &CutSource| source.text.matches(wanted.old).count();
    let places: usize = sources.iter().map(count).sum();
    if places == 0 {
        return Ok(at_the_end(sources, wanted));
    }
    if places > 1 && !wanted.all {
        return Err(Fault::failed(
            Code::Conflict,
            format!("the old text stands in {places} places of the notebook's cells"),
        )
        .remedy("give more of what stands around it, or set `all` to true"));
    }
    Ok(sources
        .iter()
        .filter(|source| count(source) > 0)
        .map(|source| (source, source.text.replace(wanted.old, wanted.new)))
        .collect())
}

/// Matches an old text that ends with a line feed against the end of a cell. Read adds a line feed
/// after the last line of a cell, which the file lacks.
fn at_the_end<'a>(
    sources: &'a [CutSource],
    wanted: &CellReplacement<'_>,
) -> Vec<(&'a CutSource, String)> {
    let Some(old) = wanted.old.strip_suffix('\n').filter(|old| !old.is_empty()) else {
        return Vec::new();
    };
    let new = wanted.new.strip_suffix('\n').unwrap_or(wanted.new);
    let fitting: Vec<_> = sources
        .iter()
        .filter_map(|source| Some((source, source.text.strip_suffix(old)?)))
        .collect();
    if fitting.len() > 1 && !wanted.all {
        return Vec::new();
    }
    fitting
        .into_iter()
        .map(|(source, before)| (source, format!("{before}{new}")))
        .collect()
}

/// Encodes a source in its previous form: one string, or a list of lines, on one line of the file
/// or on several with the same indentation.
fn in_json_form(before: &[u8], text: &str, is_list: bool) -> Result<String, Fault> {
    let string = |text: &str| {
        serde_json::to_string(text)
            .map_err(|error| Fault::failed(Code::Io, format!("the text is no JSON: {error}")))
    };
    if !is_list {
        return string(text);
    }
    let lines = text
        .split_inclusive('\n')
        .map(string)
        .collect::<Result<Vec<_>, _>>()?;
    let before = String::from_utf8_lossy(before);
    let indents: Vec<&str> = before
        .lines()
        .skip(1)
        .map(|line| &line[..line.len() - line.trim_start().len()])
        .collect();
    Ok(match (indents.first(), indents.last()) {
        (Some(inner), Some(outer)) if !lines.is_empty() => {
            let between = format!(",\n{inner}");
            format!("[\n{inner}{}\n{outer}]", lines.join(&between))
        }
        _ => format!("[{}]", lines.join(", ")),
    })
}

/// Replaces a range of the file. Returns the same change as an edit, with as much context as makes
/// its old text unique.
fn splice(file: &mut Vec<u8>, span: Range<usize>, json: &str) -> Replacement {
    let mut beside = BESIDE_BYTES;
    let around = loop {
        let around =
            span.start.saturating_sub(beside)..span.end.saturating_add(beside).min(file.len());
        let is_all = around == (0..file.len());
        if is_all
            || memmem::find_iter(file, &file[around.clone()])
                .nth(1)
                .is_none()
        {
            break around;
        }
        beside = beside.saturating_mul(2);
    };
    let old = file[around.clone()].to_vec();
    let new = [
        &file[around.start..span.start],
        json.as_bytes(),
        &file[span.end..around.end],
    ]
    .concat();
    file.splice(span, json.bytes());
    Replacement {
        old: ByteBuf::from(old),
        new: ByteBuf::from(new),
        all: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r##"{
 "cells": [
  {
   "cell_type": "code",
   "outputs": [{"text": ["x = 1\n"]}],
   "source": [
    "# first\n",
    "x = 1"
   ]
  },
  {"cell_type": "markdown", "source": "x = 2\ny = é"}
 ],
 "nbformat": 4
}
"##;

    fn replacement(old: &str, new: &str, all: bool) -> Replacement {
        Replacement {
            old: ByteBuf::from(old),
            new: ByteBuf::from(new),
            all,
        }
    }

    /// Applies the edits as the guest does: each old text must be unique.
    fn edited(wanted: &[Replacement]) -> Result<Option<String>, Fault> {
        let Some(made) = in_json(FILE.as_bytes(), wanted)? else {
            return Ok(None);
        };
        let mut file = FILE.to_owned();
        for one in made {
            let [old, new] =
                [one.old, one.new].map(|text| String::from_utf8(text.into_vec()).unwrap());
            assert_eq!(file.matches(&old).count(), 1, "{old}");
            file = file.replace(&old, &new);
        }
        serde_json::from_str::<serde_json::Value>(&file).expect("still JSON");
        Ok(Some(file))
    }

    #[test]
    fn a_source_keeps_its_form_and_nothing_else_changes() {
        let file = edited(&[replacement("x = 1", "x = \"a\"\nprint(x)", false)]);
        let expected = FILE.replace(
            "    \"x = 1\"\n",
            "    \"x = \\\"a\\\"\\n\",\n    \"print(x)\"\n",
        );
        assert_eq!(file, Ok(Some(expected)));
        let file = edited(&[replacement("y = é", "y = \"ü\"", false)]);
        let expected = FILE.replace("y = é", "y = \\\"ü\\\"");
        assert_eq!(file, Ok(Some(expected)));
    }

    #[test]
    fn the_line_end_that_read_adds_is_no_part_of_the_source() {
        let file = edited(&[replacement("x = 1\n", "x = 3\n", false)]);
        assert_eq!(file, Ok(Some(FILE.replace("\"x = 1\"", "\"x = 3\""))));
    }

    #[test]
    fn several_edits_and_several_places() {
        assert_eq!(
            edited(&[replacement("x =", "z =", false)])
                .unwrap_err()
                .code,
            Code::Conflict
        );
        let file = edited(&[
            replacement("x =", "z =", true),
            replacement("z = 2", "z = 4", false),
        ]);
        let expected = FILE
            .replace("\"x = 1\"", "\"z = 1\"")
            .replace("x = 2", "z = 4");
        assert_eq!(file, Ok(Some(expected)));
        let mixed = edited(&[
            replacement("x = 2", "z", false),
            replacement("nbformat", "n", false),
        ]);
        assert_eq!(mixed.unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn what_no_cell_holds_is_an_edit_of_the_file() {
        assert_eq!(
            edited(&[replacement("\"nbformat\": 4", "\"nbformat\": 5", false)]),
            Ok(None)
        );
        assert_eq!(in_json(b"{", &[replacement("{", "}", false)]), Ok(None));
        assert_eq!(in_json(b"\xff", &[replacement("{", "}", false)]), Ok(None));
    }
}
