//! Counts changed lines, per file and in total.

use super::content::Content;
use super::hunks::TextComparison;
use super::part::Part;
use super::{PatchError, Style};
use crate::{CollectedChanges, RelPath};
use glovebox_proto::Fault;
use std::io::Write;

/// Maximum length of the graph of one file, in marks.
const GRAPH_MARKS: u64 = 40;

/// Counts of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    /// Current path, or the former path if it was deleted.
    pub path: RelPath,
    /// Former path; `None` if it is the same.
    pub source: Option<RelPath>,
    /// Number of lines added.
    pub insertions: u64,
    /// Number of lines removed.
    pub deletions: u64,
    /// Lengths before and after, in bytes, if the versions are not compared by lines; `None`
    /// otherwise.
    pub binary: Option<(u64, u64)>,
}

/// Counts of a change set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of changed files and links.
    pub files: u64,
    /// Number of lines added.
    pub insertions: u64,
    /// Number of lines removed.
    pub deletions: u64,
}

impl Totals {
    /// Adds up the counts of single paths.
    pub fn of(stats: &[FileStat]) -> Self {
        stats.iter().fold(Self::default(), |sum, stat| Self {
            files: sum.files + 1,
            insertions: sum.insertions + stat.insertions,
            deletions: sum.deletions + stat.deletions,
        })
    }
}

/// Counts the changed lines of every changed file and link; directories have none.
///
/// # Errors
/// When a version cannot be read, or differs from what was collected.
pub fn stat(collected: &CollectedChanges) -> Result<Vec<FileStat>, Fault> {
    let mut stats = Vec::new();
    for change in &collected.set.changes {
        let mut whole: Option<FileStat> = None;
        for part in Part::of(change) {
            let (before, after) = part.contents(collected)?;
            let whole = whole.get_or_insert_with(|| FileStat {
                path: change.path.clone(),
                source: part
                    .before
                    .map(|(path, _)| path.clone())
                    .filter(|path| *path != change.path),
                insertions: 0,
                deletions: 0,
                binary: None,
            });
            add(whole, &before, &after);
        }
        stats.extend(whole);
    }
    Ok(stats)
}

fn add(stat: &mut FileStat, before: &Content, after: &Content) {
    match (&before.text, &after.text) {
        (Some(old), Some(new)) => {
            let (insertions, deletions) = TextComparison::new(old, new).counts();
            stat.insertions += insertions;
            stat.deletions += deletions;
        }
        _ if before.id == after.id => {}
        _ => {
            let (old, new) = stat.binary.unwrap_or_default();
            stat.binary = Some((old + before.size, new + after.size));
        }
    }
}

/// Writes one line per file, and one with the totals.
///
/// # Errors
/// When the output cannot be written to.
pub fn write_stat(stats: &[FileStat], style: Style, out: &mut dyn Write) -> Result<(), PatchError> {
    let (escape, has_color): (fn(&[u8]) -> String, bool) = match style {
        Style::Exact => (
            |bytes| String::from_utf8_lossy(&super::name::quote("", bytes)).into_owned(),
            false,
        ),
        Style::Screen { has_color } => (glovebox_proto::visible::line, has_color),
        Style::Search => (glovebox_proto::visible::line, false),
    };
    let names: Vec<String> = stats
        .iter()
        .map(|stat| match &stat.source {
            Some(source) => format!(
                "{} => {}",
                escape(source.as_bytes()),
                escape(stat.path.as_bytes())
            ),
            None => escape(stat.path.as_bytes()),
        })
        .collect();
    let name_width = names.iter().map(|name| name.chars().count()).max();
    let most = stats
        .iter()
        .map(|stat| stat.insertions + stat.deletions)
        .max()
        .unwrap_or(0);
    let count_width = most.to_string().len().max(3);
    for (stat, name) in stats.iter().zip(&names) {
        let padding = name_width.unwrap_or(0) - name.chars().count();
        write!(out, " {name}{:padding$} | ", "")?;
        if let Some((before, after)) = stat.binary {
            writeln!(out, "{:>count_width$} {before} -> {after} bytes", "Bin")?;
            continue;
        }
        let count = stat.insertions + stat.deletions;
        let marks = |lines: u64| {
            // Rounding up keeps every change visible, however small it is compared with the
            // largest.
            let marks = if most > GRAPH_MARKS {
                (lines * GRAPH_MARKS).div_ceil(most)
            } else {
                lines
            };
            marks as usize
        };
        let (plus, minus) = (
            "+".repeat(marks(stat.insertions)),
            "-".repeat(marks(stat.deletions)),
        );
        let graph = if has_color {
            format!("\u{1b}[32m{plus}\u{1b}[31m{minus}\u{1b}[0m")
        } else {
            format!("{plus}{minus}")
        };
        writeln!(
            out,
            "{:>count_width$}{}{graph}",
            count,
            if count > 0 { " " } else { "" }
        )?;
    }
    let totals = Totals::of(stats);
    let plural =
        |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    writeln!(
        out,
        " {} changed, {}(+), {}(-)",
        plural(totals.files, "file"),
        plural(totals.insertions, "insertion"),
        plural(totals.deletions, "deletion")
    )?;
    Ok(())
}
