//! Patterns for the argument of a call. The only wildcards are `*` and `**`.
//!
//! In a path `*` matches any characters except `/`, and `**` matches any characters. Elsewhere both
//! match any characters. The time of a match is bounded by the product of the two lengths, for
//! every pattern.

/// Parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    One(char),
    /// `*`
    Some,
    /// `**`
    All,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' if chars.next_if_eq(&'*').is_some() => Part::All,
                '*' => Part::Some,
                c => Part::One(c),
            });
        }
        Self { parts }
    }

    /// Returns the number of literal characters. More of them make a pattern more specific.
    pub(super) fn literal_chars(&self) -> usize {
        self.parts
            .iter()
            .filter(|part| matches!(part, Part::One(_)))
            .count()
    }

    /// Returns true if the pattern matches every text.
    pub(super) fn is_anything(&self) -> bool {
        !self.parts.is_empty() && self.literal_chars() == 0
    }

    /// Matches a path, in which `*` stops at `/`. A pattern for everything below a directory
    /// (`DIR/**`) also matches the directory itself.
    pub(super) fn fits_path(&self, path: &str) -> bool {
        self.fits(path, true)
            || (self.parts.ends_with(&[Part::One('/'), Part::All])
                && Self {
                    parts: self.parts[..self.parts.len() - 2].to_vec(),
                }
                .fits(path, true))
    }

    /// Matches any text. As in the permission rules of other agents, `git *` also matches `git`
    /// alone.
    pub(super) fn fits_text(&self, text: &str) -> bool {
        self.fits(text, false)
            || (self.parts.ends_with(&[Part::One(' '), Part::Some])
                && Self {
                    parts: self.parts[..self.parts.len() - 2].to_vec(),
                }
                .fits(text, false))
    }

    fn fits(&self, text: &str, is_path: bool) -> bool {
        let chars: Vec<char> = text.chars().collect();
        // `reached[n]` is true if the first `n` characters match the parts so far.
        let mut reached = vec![false; chars.len() + 1];
        reached[0] = true;
        for part in &self.parts {
            match part {
                Part::One(wanted) => {
                    for at in (0..chars.len()).rev() {
                        reached[at + 1] = reached[at] && chars[at] == *wanted;
                    }
                    reached[0] = false;
                }
                Part::Some | Part::All => {
                    let is_stopped = |c: char| is_path && *part == Part::Some && c == '/';
                    for at in 0..chars.len() {
                        reached[at + 1] |= reached[at] && !is_stopped(chars[at]);
                    }
                }
            }
        }
        reached[chars.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_in_paths_stop_at_slashes_and_double_stars_do_not() {
        let fits = |pattern: &str, path: &str| Pattern::new(pattern).fits_path(path);
        assert!(fits("/workspace/docs/**", "/workspace/docs/a/b.md"));
        assert!(fits("/workspace/docs/**", "/workspace/docs"));
        assert!(!fits("/workspace/docs/**", "/workspace/docsx"));
        assert!(fits("/workspace/*.md", "/workspace/a.md"));
        assert!(!fits("/workspace/*.md", "/workspace/a/b.md"));
        assert!(fits("**/.env", "/workspace/a/.env"));
        assert!(!fits("", "/x") && fits("", ""));
    }

    #[test]
    fn stars_in_commands_stand_for_anything() {
        let fits = |pattern: &str, text: &str| Pattern::new(pattern).fits_text(text);
        assert!(fits("git *", "git push origin/main"));
        assert!(fits("git *", "git"));
        assert!(!fits("git *", "gitk"));
        assert!(fits("*", ""));
        assert!(fits("npm run *:fix", "npm run lint:fix"));
    }

    proptest! {
        #[test]
        fn any_pattern_on_any_text_comes_to_an_end(pattern in r"[a*/ ]{0,40}", text in r"[a/ ]{0,60}") {
            let is_tree = pattern.ends_with("/**");
            let pattern = Pattern::new(&pattern);
            // `DIR/**` also matches `DIR`; apart from that, paths match more narrowly than text.
            let in_text = pattern.fits_text(&text)
                || is_tree && pattern.fits_text(&format!("{text}/"));
            prop_assert!(!pattern.fits_path(&text) || in_text);
        }

        #[test]
        fn a_text_fits_itself(text in r"[a-z/. -]{0,40}") {
            prop_assert!(Pattern::new(&text).fits_text(&text) && Pattern::new(&text).fits_path(&text));
        }
    }
}
