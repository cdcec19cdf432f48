//! One section of a patch: the change of one name, from `diff --git` to its last hunk.

use super::content::{Content, VersionSide};
use super::hunks::TextComparison;
use super::{Line, PatchError, Style, binary, name};
use crate::{Change, ChangeKind, CollectedChanges, Node, RelPath};
use glovebox_proto::Fault;
use std::io::{self, Write};

/// Maximum size of an old version of a binary file that is written beside the new one, in bytes.
/// Without the old version, the patch cannot be reversed.
const MAX_REVERSE_BYTES: u64 = 16 << 20;

/// Path and node of a version that a patch can represent.
type Version<'a> = (&'a RelPath, &'a Node);

/// One section. At least one of the two versions exists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub before: Option<Version<'a>>,
    pub after: Option<Version<'a>>,
}

impl<'a> Part<'a> {
    /// Returns the sections of a change: none for directories, two if the type changed.
    pub(super) fn of(change: &'a Change) -> Vec<Self> {
        let source = match &change.kind {
            ChangeKind::Renamed { source, .. } => source,
            _ => &change.path,
        };
        let version = |path: &'a RelPath, node: Option<&'a Node>| {
            node.filter(|node| !matches!(node, Node::Dir))
                .map(|node| (path, node))
        };
        let before = version(source, change.from());
        let after = version(&change.path, change.to());
        match (before, after) {
            (None, None) => Vec::new(),
            (Some((_, from)), Some((_, to))) if is_link(from) != is_link(to) => vec![
                Self {
                    before,
                    after: None,
                },
                Self {
                    before: None,
                    after,
                },
            ],
            _ => vec![Self { before, after }],
        }
    }

    /// Reads both versions.
    pub(super) fn contents(
        &self,
        collected: &CollectedChanges,
    ) -> Result<(Content, Content), Fault> {
        let read = |side, version: Option<Version<'_>>| match version {
            Some((path, node)) => Content::read(collected, side, path, node),
            None => Ok(Content::nothing()),
        };
        Ok((
            read(VersionSide::Before, self.before)?,
            read(VersionSide::After, self.after)?,
        ))
    }

    /// Writes the section.
    pub(super) fn write(
        &self,
        collected: &CollectedChanges,
        style: Style,
        out: &mut dyn Write,
    ) -> Result<(), PatchError> {
        let (before, after) = self.contents(collected)?;
        let compared = match (&before.text, &after.text) {
            (Some(before), Some(after)) => Some(TextComparison::new(before, after)),
            _ => None,
        };
        let is_same = before.id == after.id;
        let similarity = match &compared {
            _ if is_same => Some(100),
            // Git treats 100 as an unchanged content.
            Some(compared) => Some(compared.similarity().min(99)),
            None => None,
        };
        self.header(style, out, &before, &after, similarity)?;
        match compared {
            _ if is_same => {}
            Some(compared) => {
                if before.size + after.size > 0 {
                    self.names(style, out)?;
                    compared.write(style, out)?;
                }
            }
            None => self.binary(collected, style, out, &before, &after)?,
        }
        Ok(())
    }

    fn header(
        &self,
        style: Style,
        out: &mut dyn Write,
        before: &Content,
        after: &Content,
        similarity: Option<usize>,
    ) -> io::Result<()> {
        let mut line = |text: Vec<u8>| style.line(out, Line::Header, &text);
        let Some((old_path, new_path)) = self.paths() else {
            return Ok(());
        };
        let mut first = b"diff --git ".to_vec();
        first.extend(name::quoted("a/", old_path));
        first.push(b' ');
        first.extend(name::quoted("b/", new_path));
        line(first)?;
        let old_mode = self.before.map(|(_, node)| mode(node));
        let new_mode = self.after.map(|(_, node)| mode(node));
        match (old_mode, new_mode) {
            (None, Some(mode)) => line(format!("new file mode {mode}").into())?,
            (Some(mode), None) => line(format!("deleted file mode {mode}").into())?,
            (Some(old), Some(new)) if old != new => {
                line(format!("old mode {old}").into())?;
                line(format!("new mode {new}").into())?;
            }
            _ => {}
        }
        if old_path != new_path {
            if let Some(percent) = similarity {
                line(format!("similarity index {percent}%").into())?;
            }
            for (word, path) in [("rename from ", old_path), ("rename to ", new_path)] {
                let mut text = word.as_bytes().to_vec();
                text.extend(name::quoted("", path));
                line(text)?;
            }
        }
        if before.id != after.id {
            let unchanged = match (old_mode, new_mode) {
                (Some(old), Some(new)) if old == new => format!(" {old}"),
                _ => String::new(),
            };
            line(format!("index {}..{}{unchanged}", before.id, after.id).into())?;
        }
        Ok(())
    }

    /// Writes the two lines before the hunks.
    fn names(&self, style: Style, out: &mut dyn Write) -> io::Result<()> {
        for (mark, prefix, version) in [("--- ", "a/", self.before), ("+++ ", "b/", self.after)] {
            let mut text = mark.as_bytes().to_vec();
            match version {
                Some((path, _)) => text.extend(name::quoted(prefix, path)),
                None => text.extend_from_slice(b"/dev/null"),
            }
            style.line(out, Line::Header, &text)?;
        }
        Ok(())
    }

    fn binary(
        &self,
        collected: &CollectedChanges,
        style: Style,
        out: &mut dyn Write,
        before: &Content,
        after: &Content,
    ) -> Result<(), PatchError> {
        if !matches!(style, Style::Exact) {
            let text = format!("Binary content: {} -> {} bytes", before.size, after.size);
            return Ok(style.line(out, Line::Range, text.as_bytes())?);
        }
        out.write_all(b"GIT binary patch\n")?;
        let sides = [
            (VersionSide::After, self.after, after),
            (VersionSide::Before, self.before, before),
        ];
        for (side, version, content) in sides {
            if side == VersionSide::Before && content.size > MAX_REVERSE_BYTES {
                continue;
            }
            match version {
                Some((path, node)) => {
                    content.again(collected, side, path, node, |reader| {
                        binary::literal(content.size, reader, out)
                    })?;
                }
                None => binary::literal(0, &mut io::empty(), out).map(drop)?,
            }
        }
        Ok(())
    }

    fn paths(&self) -> Option<(&'a RelPath, &'a RelPath)> {
        let old = self.before.map(|(path, _)| path);
        let new = self.after.map(|(path, _)| path);
        Some((old.or(new)?, new.or(old)?))
    }
}

const fn is_link(node: &Node) -> bool {
    matches!(node, Node::Link { .. })
}

/// Returns git's mode of a node.
const fn mode(node: &Node) -> &'static str {
    match node {
        Node::File {
            is_executable: true,
            ..
        } => "100755",
        Node::Link { .. } => "120000",
        Node::File { .. } | Node::Dir => "100644",
    }
}
