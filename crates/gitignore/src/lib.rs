//! Translation of `.gitignore` lines into the pattern syntax of the crate `ignore`, which matches
//! them.
//!
//! That crate reads a pattern as a shell does. For `git`, braces are literal, a class may be
//! `[:alpha:]` or contain a backslash, and only spaces at the end of a line are ignored. Searches
//! inside and the workspace outside both read ignore files and must read them alike.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// Problem of a line. `git` does not report it, so the caller should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternProblem {
    /// No path can match: a class contains no byte, or does not end. `git` skips the line.
    FitsNothing,
    /// A range in a class runs backward. `git` matches only the character before the dash.
    Backward {
        /// Pattern that `git` makes of the line.
        as_git: String,
    },
}

impl fmt::Display for PatternProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FitsNothing => "no name can fit it",
            Self::Backward { .. } => "a range in it ends before it begins",
        })
    }
}

impl std::error::Error for PatternProblem {}

/// Translates a line, given without its line end, into a pattern for `GitignoreBuilder::add_line`.
/// Returns `None` if the line matches nothing, such as a comment.
///
/// # Errors
/// [`PatternProblem`], with the pattern that `git` uses if there is one.
pub fn pattern(line: &str) -> Result<Option<String>, PatternProblem> {
    if line.starts_with('#') {
        return Ok(None);
    }
    let line = without_blanks(line);
    // The crate would read the negation of an empty pattern as everything.
    if matches!(line, "" | "!" | "!/") {
        return Ok(None);
    }
    let mut is_backward = false;
    match translate(line, &mut is_backward) {
        None => Err(PatternProblem::FitsNothing),
        Some(as_git) if is_backward => Err(PatternProblem::Backward { as_git }),
        pattern => Ok(pattern),
    }
}

/// Translates a line. Returns `None` if no path can match it. Sets `is_backward` if a range runs
/// backward.
fn translate(line: &str, is_backward: &mut bool) -> Option<String> {
    let mut pattern = String::with_capacity(line.len() + 8);
    let mut before = None;
    let mut chars = line.chars().peekable();
    while let Some(letter) = chars.next() {
        match letter {
            '\\' => pattern.extend(['\\', chars.next()?]),
            '{' | '}' => pattern.extend(['[', letter, ']']),
            '[' => pattern.push_str(&class(&mut chars, is_backward)?),
            '*' => {
                let mut count = 1;
                while chars.next_if_eq(&'*').is_some() {
                    count += 1;
                }
                // Several stars are two where `**` has a meaning, and one elsewhere.
                let is_part =
                    matches!(before, None | Some('/')) && matches!(chars.peek(), None | Some('/'));
                pattern.push_str(if count > 1 && is_part { "**" } else { "*" });
            }
            // The crate would trim white space at the end of the line.
            _ if letter.is_whitespace() && chars.peek().is_none() => {
                pattern.extend(['[', letter, ']']);
            }
            _ => pattern.push(letter),
        }
        // A leading `!` negates the pattern and is not a part of it.
        if !(letter == '!' && before.is_none() && pattern.len() == 1) {
            before = Some(letter);
        }
    }
    // A pattern with a slash matches whole paths, even if the slash stood in a class.
    let has_slash = |pattern: &str| pattern.trim_end_matches('/').contains('/');
    if has_slash(line) && !has_slash(&pattern) {
        pattern.insert(usize::from(pattern.starts_with('!')), '/');
    }
    // The crate would also trim a space that a backslash protects.
    if pattern.ends_with("\\ ") {
        pattern.truncate(pattern.len() - 2);
        pattern.push_str("[ ]");
    }
    Some(pattern)
}

/// Returns the line without its trailing spaces, except one that a backslash protects.
fn without_blanks(line: &str) -> &str {
    let kept = line.trim_end_matches(' ');
    let escapes = kept.len() - kept.trim_end_matches('\\').len();
    let keeps_one = escapes % 2 == 1 && kept.len() < line.len();
    &line[..kept.len() + usize::from(keeps_one)]
}

/// Translates a class that starts after its bracket. Returns `None` if no byte can match it.
/// Classes of `git` contain bytes, those of the crate characters: multi-byte characters match
/// nothing.
fn class(chars: &mut Peekable<Chars<'_>>, is_backward: &mut bool) -> Option<String> {
    let is_negated = chars
        .next_if(|&letter| matches!(letter, '!' | '^'))
        .is_some();
    let mut set = [false; 128];
    let mut low: Option<char> = None;
    let mut is_first = true;
    loop {
        let mut letter = chars.next()?;
        if letter == ']' && !is_first {
            break;
        }
        is_first = false;
        if letter == '[' && chars.peek() == Some(&':') {
            let mut name = String::new();
            chars.next();
            loop {
                match chars.next()? {
                    ']' if name.ends_with(':') => break,
                    ']' => return None,
                    letter => name.push(letter),
                }
            }
            let fits = kind(name.trim_end_matches(':'))?;
            (0..128_u8)
                .filter(|byte| fits(*byte))
                .for_each(|byte| set[usize::from(byte)] = true);
            low = None;
            continue;
        }
        let is_range =
            letter == '-' && low.is_some() && chars.peek().is_some_and(|&next| next != ']');
        if is_range {
            letter = chars.next()?;
        }
        if letter == '\\' {
            letter = chars.next()?;
        }
        let from = if is_range { low.take()? } else { letter };
        *is_backward |= letter < from;
        for byte in from..=letter {
            if let Some(place) = set.get_mut(byte as usize) {
                *place = true;
            }
            if !byte.is_ascii() {
                break;
            }
        }
        low = (!is_range).then_some(letter);
    }
    let holds_none = set.iter().all(|holds| !holds);
    (is_negated || !holds_none).then(|| spelled(&set, is_negated))
}

/// Returns the test of bytes for a named class, or `None` for an unknown name.
fn kind(name: &str) -> Option<fn(u8) -> bool> {
    Some(match name {
        "alnum" => |byte| byte.is_ascii_alphanumeric(),
        "alpha" => |byte| byte.is_ascii_alphabetic(),
        "blank" => |byte| matches!(byte, b' ' | b'\t'),
        "cntrl" => |byte| byte.is_ascii_control(),
        "digit" => |byte| byte.is_ascii_digit(),
        "graph" => |byte| byte.is_ascii_graphic(),
        "lower" => |byte| byte.is_ascii_lowercase(),
        "print" => |byte| byte.is_ascii_graphic() || byte == b' ',
        "punct" => |byte| byte.is_ascii_punctuation(),
        "space" => |byte| byte.is_ascii_whitespace() || byte == 0x0b,
        "upper" => |byte| byte.is_ascii_uppercase(),
        "xdigit" => |byte| byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

/// Writes a set of bytes in the crate's syntax: alternatives, each escaped, or a negated class.
fn spelled(set: &[bool; 128], is_negated: bool) -> String {
    let bytes = || {
        (1..128_u8)
            .filter(|byte| set[usize::from(*byte)] && *byte != b'/')
            .map(char::from)
    };
    if !is_negated {
        let escaped: Vec<String> = bytes().map(|letter| format!("\\{letter}")).collect();
        // A set of only a slash becomes empty here; no file name contains a slash.
        return if escaped.is_empty() {
            "[/]".to_owned()
        } else {
            format!("{{{}}}", escaped.join(","))
        };
    }
    let mut class = "[!".to_owned();
    // A bracket is literal only at the start, a dash only at the end.
    class.extend(bytes().filter(|letter| *letter == ']'));
    class.extend(bytes().filter(|letter| !matches!(letter, ']' | '-')));
    class.extend(bytes().filter(|letter| *letter == '-'));
    if class.len() == 2 {
        return "?".to_owned();
    }
    class.push(']');
    class
}

#[cfg(test)]
mod tests {
    use super::*;
    use ignore::gitignore::GitignoreBuilder;

    /// Results of `git check-ignore`, written by hand. The guest's tests of searches run `git`
    /// itself.
    #[test]
    fn lines_mean_what_they_mean_to_git() {
        for (line, path, is_named) in [
            ("*.{log,tmp}", "a.log", false),
            ("*.{log,tmp}", "a.{log,tmp}", true),
            ("a{b", "a{b", true),
            ("# target", "# target", false),
            ("[[:digit:]]*", "7z", true),
            ("[[:digit:]]*", "z7", false),
            ("[\\]]", "]", true),
            ("[!]a]", "b", true),
            ("[!]a]", "]", false),
            ("[]-a]", "`", true),
            ("[!-]x", "-x", false),
            ("[a-bx]", "x", true),
            ("***/x", "a/b/x", true),
            ("x\\ ", "x ", true),
            ("x  ", "x", true),
            ("x\t", "x", false),
            ("!", "x", false),
            ("/", "x", false),
        ] {
            let mut builder = GitignoreBuilder::new("");
            if let Some(pattern) = pattern(line).unwrap() {
                builder.add_line(None, &pattern).unwrap();
            }
            let said = builder.build().unwrap().matched(path, true).is_ignore();
            assert_eq!(said, is_named, "{line} of {path}");
        }
    }

    #[test]
    fn what_nothing_can_fit_is_said() {
        for line in ["[a", "[[:nothing:]]", "x[é]y", "a\\"] {
            assert_eq!(pattern(line), Err(PatternProblem::FitsNothing), "{line}");
        }
    }

    #[test]
    fn a_range_that_runs_backward_is_said_with_what_git_reads_in_it() {
        for (line, as_git) in [
            ("[b-a]", "{\\b}"),
            ("[b-ax]", "{\\b,\\x}"),
            ("[!z-a]", "[!z]"),
        ] {
            let as_git = as_git.to_owned();
            assert_eq!(
                pattern(line),
                Err(PatternProblem::Backward { as_git }),
                "{line}"
            );
        }
    }
}
