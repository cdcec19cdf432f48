//! Selection of paths by patterns with the meaning of `.gitignore`.
//!
//! `exclude` leaves paths out. `include` takes them in again and wins, also below an excluded
//! directory. Patterns are matched against bytes as they are on disk: `*` matches names that are
//! not UTF-8 as well.

use crate::git::ignored::NewRules;
use crate::{IgnoreRules, RelPath};
use glovebox_proto::{Code, Fault};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::sync::Arc;

/// Patterns that select the paths to transfer.
#[derive(Debug, Clone)]
pub struct Filter {
    exclude: Gitignore,
    include: Gitignore,
    ignored: Option<Arc<IgnoreRules>>,
}

/// Decision of a filter about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The path is transferred.
    Takes,
    /// A pattern excludes the path.
    Excluded,
    /// The project ignores the path.
    Ignored,
}

impl Default for Filter {
    /// Returns a filter that selects every path.
    fn default() -> Self {
        Self {
            exclude: Gitignore::empty(),
            include: Gitignore::empty(),
            ignored: None,
        }
    }
}

impl Filter {
    /// Compiles patterns, each one line of a `.gitignore` file.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] names the invalid pattern.
    pub fn new(exclude: &[String], include: &[String]) -> Result<Self, Fault> {
        Ok(Self {
            exclude: compile(exclude)?,
            include: compile(include)?,
            ignored: None,
        })
    }

    /// Returns the filter with `rules` added: ignored paths are left out unless they are included.
    #[must_use]
    pub fn without_ignored(self, rules: IgnoreRules) -> Self {
        Self {
            ignored: Some(Arc::new(rules)),
            ..self
        }
    }

    /// Returns true if a path is transferred. The directories above it are matched as well.
    pub fn takes(&self, path: &RelPath, is_dir: bool) -> bool {
        self.verdict(path, is_dir) == Verdict::Takes
    }

    /// Returns the decision about a path, with the reason for leaving it out.
    pub(crate) fn verdict(&self, path: &RelPath, is_dir: bool) -> Verdict {
        let matches = |patterns: &Gitignore| {
            let matched = patterns.matched_path_or_any_parents(path.as_path(), is_dir);
            matched.is_ignore()
        };
        let ignored = self.ignored.as_ref();
        if matches(&self.include) {
            Verdict::Takes
        } else if matches(&self.exclude) {
            Verdict::Excluded
        } else if ignored.is_some_and(|rules| rules.leaves_out(path, is_dir)) {
            Verdict::Ignored
        } else {
            Verdict::Takes
        }
    }

    /// Returns true if rules that are part of the change set itself cover a path that the host does
    /// not have, and the path is not included.
    pub(crate) fn leaves_out_new(&self, path: &RelPath, is_dir: bool, new: &NewRules) -> bool {
        let is_included = || {
            let matched = self
                .include
                .matched_path_or_any_parents(path.as_path(), is_dir);
            // A path below the directory may be included.
            matched.is_ignore() || (is_dir && !self.include.is_empty())
        };
        let rules = self.ignored.as_ref();
        rules.is_some_and(|rules| rules.covers_new(path, is_dir, new)) && !is_included()
    }

    /// Returns true if a path below a directory that is left out could still be transferred.
    pub(crate) fn may_take_below(&self, dir: &RelPath, verdict: Verdict) -> bool {
        !self.include.is_empty()
            || (verdict == Verdict::Ignored
                && self
                    .ignored
                    .as_ref()
                    .is_some_and(|rules| rules.may_take_below(dir)))
    }
}

/// Maximum total length of patterns that are compiled together, in bytes. A thousand patterns need
/// far less. The compiled form takes five hundred times as much memory.
const MAX_PATTERN_BYTES: usize = 64 << 10;

/// Compiles lines of a `.gitignore`.
// TRUST: lines may come from the project.
pub(crate) fn compile(lines: &[String]) -> Result<Gitignore, Fault> {
    let invalid = |line: &str, error: &dyn std::error::Error| {
        Fault::failed(
            Code::InvalidArgument,
            format!("`{}` is not a pattern: {error}", line.escape_debug()),
        )
        .remedy("write patterns as in a .gitignore file, such as `*.log` or `/build/`")
    };
    if lines.is_empty() {
        return Ok(Gitignore::empty());
    }
    let bytes: usize = lines.iter().map(String::len).sum();
    if bytes > MAX_PATTERN_BYTES {
        return Err(Fault::failed(
            Code::TooLarge,
            format!("the patterns have {bytes} bytes together, more than {MAX_PATTERN_BYTES}"),
        )
        .remedy("name directories rather than each file in them"));
    }
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        let pattern = glovebox_gitignore::pattern(line).map_err(|error| invalid(line, &error))?;
        let Some(pattern) = pattern else { continue };
        builder
            .add_line(None, &pattern)
            .map_err(|error| invalid(line, &error))?;
    }
    builder.build().map_err(|error| invalid("", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_bounded_together() {
        let lines = |count: usize| vec!["*.a23456".to_owned(); count];
        compile(&lines(MAX_PATTERN_BYTES / 8)).unwrap();
        let fault = compile(&lines(MAX_PATTERN_BYTES / 8 + 1)).unwrap_err();
        assert_eq!(fault.code, Code::TooLarge);
    }

    fn filter(exclude: &[&str], include: &[&str]) -> Filter {
        let owned = |list: &[&str]| {
            list.iter()
                .map(|line| (*line).to_owned())
                .collect::<Vec<_>>()
        };
        Filter::new(&owned(exclude), &owned(include)).unwrap()
    }

    fn path(bytes: impl Into<Vec<u8>>) -> RelPath {
        RelPath::new(bytes).unwrap()
    }

    #[test]
    fn patterns_mean_what_they_mean_in_a_gitignore() {
        let filter = filter(
            &[
                "node_modules/",
                "/build",
                "*.log",
                "!keep.log",
                "a/**/z",
                "*.{a,b}",
                "[[:digit:]]",
            ],
            &[],
        );
        for (name, is_dir, takes) in [
            ("node_modules", true, false),
            ("node_modules", false, true),
            ("deep/node_modules/x/y", false, false),
            ("build", true, false),
            ("build/out", false, false),
            ("src/build", true, true),
            ("x.log", false, false),
            ("keep.log", false, true),
            ("a/b/c/z", false, false),
            ("x.a", false, true),
            ("x.{a,b}", false, false),
            ("7", false, false),
            ("ordinary", false, true),
        ] {
            assert_eq!(filter.takes(&path(name), is_dir), takes, "{name}");
        }
        assert!(!filter.takes(&path(b"\xff\xfe.log".to_vec()), false));
    }

    #[test]
    fn what_is_included_wins_even_below_what_is_excluded() {
        let filter = filter(&["dist/"], &["dist/report.html"]);
        assert!(filter.takes(&path("dist/report.html"), false));
        assert!(!filter.takes(&path("dist/other"), false));
        assert!(!filter.takes(&path("dist"), true));
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        for pattern in ["[z-a]", "[a-z"] {
            let fault = Filter::new(&["ok".to_owned(), pattern.to_owned()], &[]).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument);
            assert!(fault.message.contains(&format!("`{pattern}`")), "{fault}");
        }
    }
}
