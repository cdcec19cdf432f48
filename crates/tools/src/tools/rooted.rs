//! Shell patterns that name the directory in which to begin: `/workspace/src/*.rs`, `./*.md`,
//! `../lib/**`.
//!
//! A search covers one directory, and its patterns are relative to it. This module splits such a
//! pattern: the directories before its first wildcard become the start of the search, and the rest
//! becomes its pattern.

use glovebox_proto::{Code, Fault};

/// Start of a search, and the pattern from there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RootedPattern {
    /// Directory to search, absolute or relative to the workspace. `None` for the workspace.
    pub(super) path: Option<String>,
    /// Pattern below the directory.
    pub(super) pattern: String,
    /// Prefix that makes a hit a path that other tools accept. Empty if hits are relative to the
    /// requested directory.
    pub(super) prefix: String,
}

/// Splits `pattern`, which is searched below `path`.
///
/// # Errors
/// `invalid-argument` for a pattern that no file can match.
pub(super) fn rooted(pattern: &str, path: Option<&str>) -> Result<RootedPattern, Fault> {
    let refused = |why: &str, remedy: String| {
        Fault::refused(
            Code::InvalidArgument,
            format!("the pattern `{pattern}` {why}"),
        )
        .remedy(remedy)
    };
    if pattern.is_empty() {
        return Err(refused("is empty", "`**` finds every file".to_owned()));
    }
    if pattern.ends_with('/') {
        return Err(refused(
            "ends with a slash, so it names a directory and no file",
            format!("`{pattern}**` finds the files below it"),
        ));
    }
    let is_absolute = pattern.starts_with('/');
    if !is_absolute && !is_dotted(pattern) {
        return Ok(RootedPattern {
            path: path.map(str::to_owned),
            pattern: pattern.to_owned(),
            prefix: String::new(),
        });
    }
    let literal = pattern
        .find(['*', '?', '[', '{', '\\'])
        .unwrap_or(pattern.len());
    let end = pattern[..literal].rfind('/').unwrap_or(0);
    let dirs: Vec<&str> = pattern[..end]
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    let rest = &pattern[end + 1..];
    if rest.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(refused(
            "has `.` or `..` after a wildcard, and no file is found under such a name",
            "write the path without them".to_owned(),
        ));
    }
    let dirs = dirs.join("/");
    let (path, prefix) = if is_absolute {
        let slash = if dirs.is_empty() { "" } else { "/" };
        (Some(format!("/{dirs}")), format!("/{dirs}{slash}"))
    } else if dirs.is_empty() {
        (path.map(str::to_owned), String::new())
    } else {
        let path = path.map_or_else(|| dirs.clone(), |path| format!("{path}/{dirs}"));
        (Some(path), format!("{dirs}/"))
    };
    Ok(RootedPattern {
        path,
        // A leading slash ties the pattern to the directory. Without it the pattern would match at
        // any depth.
        pattern: format!("/{rest}"),
        prefix,
    })
}

fn is_dotted(pattern: &str) -> bool {
    pattern.starts_with("./") || pattern.starts_with("../")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(pattern: &str) -> [String; 3] {
        let RootedPattern {
            path,
            pattern,
            prefix,
        } = rooted(pattern, Some(".")).unwrap();
        [path.unwrap(), pattern, prefix]
    }

    #[test]
    fn patterns_are_taken_apart_before_their_first_wildcard() {
        for (pattern, path, rest, prefix) in [
            ("*.rs", ".", "*.rs", ""),
            ("src/*.rs", ".", "src/*.rs", ""),
            (
                "/workspace/src/*.rs",
                "/workspace/src",
                "/*.rs",
                "/workspace/src/",
            ),
            ("/workspace/a.rs", "/workspace", "/a.rs", "/workspace/"),
            ("/*/x", "/", "/*/x", "/"),
            ("/etc/{a,b}/c", "/etc", "/{a,b}/c", "/etc/"),
            ("./*.md", ".", "/*.md", ""),
            ("./docs/./**/*.md", "./docs", "/**/*.md", "docs/"),
            ("../lib/**", "./../lib", "/**", "../lib/"),
            ("/a/b\\*c/d", "/a", "/b\\*c/d", "/a/"),
        ] {
            assert_eq!(parts(pattern), [path, rest, prefix], "{pattern}");
        }
    }

    #[test]
    fn what_can_fit_nothing_is_refused() {
        for pattern in ["", "src/", "/a/*/../b", "./*/./b"] {
            assert!(rooted(pattern, None).is_err(), "{pattern}");
        }
    }
}
