//! Commands of a command line, to the extent that rules need.
//!
//! Rules on text decide when to ask; the sandbox decides what is possible. Two approximations
//! suffice. For an allow rule, the line must be plain: commands joined by `;`, `&&`, `||`, `|` or
//! line ends, with nothing that could run or write anything else. For a deny or ask rule, every
//! position at which a command could begin counts as one, quoted or not.

/// Returns the commands of a plain line. `None` for a line with redirections, substitutions,
/// groups, a background mark or another construct that makes it more than its words.
pub(super) fn plain(line: &str) -> Option<Vec<String>> {
    let mut commands = vec![String::new()];
    let mut chars = line.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        let is_end = match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => {
                quote = None;
                false
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                false
            }
            (None | Some('"'), '$' | '`' | '\\')
            | (None, '<' | '>' | '(' | ')' | '{' | '}' | '#' | '!' | '\0') => return None,
            (None, '&') => {
                chars.next_if_eq(&'&')?;
                true
            }
            (None, '|') => {
                if chars.peek() == Some(&'&') {
                    return None;
                }
                let _ = chars.next_if_eq(&'|');
                true
            }
            (None, ';' | '\n') => true,
            _ => false,
        };
        if is_end {
            commands.push(String::new());
        } else if let Some(last) = commands.last_mut() {
            last.push(c);
        }
    }
    if quote.is_some() {
        return None;
    }
    let commands: Vec<String> = commands
        .iter()
        .map(|command| command.trim().to_owned())
        .filter(|command| !command.is_empty())
        .collect();
    // A variable assignment before a command changes what the command does.
    let is_plain = |command: &String| {
        let first = command.split_whitespace().next().unwrap_or_default();
        !first.contains('=')
    };
    (!commands.is_empty() && commands.iter().all(is_plain)).then_some(commands)
}

/// Returns all parts of the line that may be a command: the line itself, and the text after each
/// character that could begin one. From that text leading variables, the directory of the program,
/// and words that only run another command are removed.
pub(super) fn possible(line: &str) -> Vec<String> {
    let mut found = vec![line.trim().to_owned()];
    let marks = |c: char| {
        matches!(
            c,
            ';' | '&' | '|' | '\n' | '(' | ')' | '{' | '}' | '`' | '"' | '\'' | '!' | '\\'
        )
    };
    for part in line.split(marks) {
        let mut words: Vec<&str> = part.split_whitespace().collect();
        while let Some(first) = words.first() {
            let name = first.rsplit('/').next().unwrap_or(first);
            let is_before = first.contains('=')
                || first.starts_with('-')
                || matches!(
                    name,
                    "sudo"
                        | "env"
                        | "nice"
                        | "nohup"
                        | "time"
                        | "exec"
                        | "command"
                        | "eval"
                        | "xargs"
                        | "then"
                        | "do"
                        | "else"
                        | "if"
                        | "while"
                        | "until"
                        | "$"
                );
            if !is_before {
                break;
            }
            let _ = words.remove(0);
        }
        if let Some(first) = words.first_mut() {
            *first = first.rsplit('/').next().unwrap_or(first);
            found.push(words.join(" "));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_are_their_commands_and_others_are_none() {
        assert_eq!(
            plain("git status && git diff 'a;b' | cat").unwrap(),
            ["git status", "git diff 'a;b'", "cat"]
        );
        for line in [
            "git status & rm x",
            "git $(rm x)",
            "git `rm x`",
            "git log > /etc/x",
            "git \"$(rm x)\"",
            "PATH=/tmp git x",
            "git 'x",
            "(git x)",
            "git <(rm x)",
            "",
            " ; ",
        ] {
            assert_eq!(plain(line), None, "{line}");
        }
    }

    #[test]
    fn commands_are_found_wherever_they_may_begin() {
        for line in [
            "git push",
            "true; git push",
            "cd x && /usr/bin/git push",
            "A=1 git push",
            "bash -c 'git push'",
            "echo $(git push)",
            "sudo -n git push",
            "if true; then git push; fi",
        ] {
            let found = possible(line);
            assert!(
                found.iter().any(|command| command == "git push"),
                "{line}: {found:?}"
            );
        }
    }
}
