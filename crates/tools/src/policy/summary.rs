//! Summary of a call in one line that may be stored: bounded, and without text that looks like a
//! secret.

/// Maximum length of the line, in characters.
const MAX_CHARS: usize = 200;
/// Parts of names that indicate a secret.
const NAMES: [&str; 9] = [
    "token",
    "secret",
    "password",
    "passwd",
    "api_key",
    "apikey",
    "api-key",
    "credential",
    "auth",
];
/// Prefixes of well-known keys.
const BEGINNINGS: [&str; 8] = [
    "sk-",
    "ghp_",
    "gho_",
    "github_pat_",
    "xox",
    "AKIA",
    "eyJ",
    "glpat-",
];
const HIDDEN: &str = "[hidden]";

/// Returns the text in one line. Words after the name of a secret, and words that look like keys,
/// are hidden.
pub(super) fn line(text: &str) -> String {
    let mut words = Vec::new();
    let mut is_next_secret = false;
    let mut chars = 0;
    for word in text.split_whitespace() {
        let shown = if std::mem::take(&mut is_next_secret) {
            // `Authorization: Bearer KEY`
            is_next_secret = matches!(word.to_ascii_lowercase().as_str(), "bearer" | "basic");
            HIDDEN.to_owned()
        } else {
            let (shown, is_name) = word_without_secret(word);
            is_next_secret = is_name;
            shown
        };
        chars += shown.chars().count() + 1;
        words.push(shown);
        if chars > MAX_CHARS {
            break;
        }
    }
    let line = words.join(" ");
    match line.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// Returns the word to show, and true if it names a secret that follows as the next word.
fn word_without_secret(word: &str) -> (String, bool) {
    let lower = word.to_ascii_lowercase();
    let has_name = |text: &str| NAMES.iter().any(|name| text.contains(name));
    if let Some(at) = lower.find(['=', ':']).filter(|at| has_name(&lower[..*at])) {
        let is_whole = at + 1 == word.len();
        let value = if is_whole { "" } else { HIDDEN };
        return (format!("{}{value}", &word[..=at]), is_whole);
    }
    // `https://user:password@host`
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.rsplit_once('@')
    {
        return (format!("{scheme}://{HIDDEN}@{host}"), false);
    }
    if BEGINNINGS.iter().any(|start| {
        word.trim_start_matches(['"', '\'', '='])
            .split('=')
            .any(|part| part.trim_start_matches(['"', '\'']).starts_with(start) && part.len() > 12)
    }) {
        return (HIDDEN.to_owned(), false);
    }
    let is_option = lower.starts_with('-') && has_name(&lower);
    let is_header = matches!(lower.trim_matches(['"', '\'']), "bearer" | "-u" | "--user");
    (word.to_owned(), is_option || is_header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        for (text, want) in [
            ("TOKEN=abc make", "TOKEN=[hidden] make"),
            (
                "mysql --password hunter2 db",
                "mysql --password [hidden] db",
            ),
            (
                "curl -H 'Authorization: Bearer abc' x",
                "curl -H 'Authorization: [hidden] [hidden] x",
            ),
            ("curl -u me:pw https://h", "curl -u [hidden] https://h"),
            (
                "git clone https://me:pw@host/x",
                "git clone https://[hidden]@host/x",
            ),
            ("echo sk-abcdefghijklmnop", "echo [hidden]"),
            ("X=ghp_0123456789abcdef", "[hidden]"),
            ("ls  -la\n\tsrc", "ls -la src"),
        ] {
            assert_eq!(line(text), want);
        }
    }

    #[test]
    fn a_line_is_bounded() {
        assert!(line(&"x".repeat(1 << 20)).chars().count() <= MAX_CHARS + 3);
        assert!(line(&"x ".repeat(1 << 16)).chars().count() <= MAX_CHARS + 3);
    }
}
