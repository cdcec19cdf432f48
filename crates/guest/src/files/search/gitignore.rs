//! Parses an ignore file as `git` does. A line that is not UTF-8 is skipped (the library accepts
//! only text) and does not affect the others.

use glovebox_gitignore::{PatternProblem, pattern};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::path::Path;

/// Parses `text` to rules for paths that begin with `prefix`. A line that is no pattern is skipped,
/// as in `git`.
pub(super) fn rules(prefix: &Path, text: &[u8]) -> Gitignore {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut builder = GitignoreBuilder::new(prefix);
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        if let Ok(Some(pattern)) | Err(PatternProblem::Backward { as_git: pattern }) = pattern(line)
        {
            // A line that the library rejects matches nothing.
            let _ = builder.add_line(None, &pattern);
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_line_by_line() {
        for (text, path, is_named) in [
            (&b"*.{log,tmp}"[..], "a.log", false),
            (b"# caf\xe9\ntarget/", "target", true),
            (b"a\xff\ntarget", "target", true),
            (b"[a\ntarget", "target", true),
            (b"[a", "[a", false),
            (b"[b-ax]", "x", true),
            (b"[b-a]", "b", true),
            (b"[b-a]", "a", false),
            (b"x  \r\n", "x", true),
            (b"!\n/", "x", false),
            (b"\xef\xbb\xbfx", "x", true),
        ] {
            let rules = rules(Path::new(""), text);
            let said = rules.matched(path, true).is_ignore();
            assert_eq!(said, is_named, "{} of {path}", text.escape_ascii());
        }
    }
}
