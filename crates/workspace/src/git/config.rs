//! A repository's configuration without the credentials in it.
//!
//! Input: the text of a `.git/config`. Output: the same text without user and password in
//! addresses, and without settings whose value is a secret. The text is processed line by line,
//! including comments, and never applied. Everything that looks like a credential is removed, even
//! where git would not treat it as one.

use crate::hide::content::has_token;

/// Settings whose value is a secret, in any section.
const SECRET_KEYS: [&str; 12] = [
    "apikey",
    "extraheader",
    "oauthtoken",
    "pass",
    "passwd",
    "password",
    "privatekey",
    "proxypassword",
    "secret",
    "smtppass",
    "token",
    "accesstoken",
];

/// Returns the text without credentials; `None` if it contains none.
pub(crate) fn without_credentials(text: &[u8]) -> Option<Vec<u8>> {
    let mut result: Vec<u8> = Vec::with_capacity(text.len());
    let mut is_changed = false;
    let lines = logical_lines(text);
    // Few configurations contain a token, and one search of the whole text is much cheaper than one
    // per line.
    let may_have_token = has_token(&lines.join(&b'\n'));
    for line in lines {
        if is_secret_setting(&line) {
            is_changed = true;
            continue;
        }
        let masked = without_users(&line);
        // The rest of the line may still contain a token, such as one in a path.
        if may_have_token && has_token(&masked) {
            is_changed = true;
            continue;
        }
        is_changed |= masked != line;
        result.extend_from_slice(&masked);
        result.push(b'\n');
    }
    is_changed.then_some(result)
}

/// A setting of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Name of the section, in lower case.
    pub(crate) section: String,
    /// Quoted part of the section's name, unescaped; `None` if there is none.
    pub(crate) subsection: Option<Vec<u8>>,
    /// Name, in lower case.
    pub(crate) key: String,
    /// Value without surrounding quotes. Empty for a setting without a value, which git treats as
    /// true.
    pub(crate) value: Vec<u8>,
}

/// Returns the settings of a text, in order.
pub(crate) fn settings(text: &[u8]) -> Vec<Setting> {
    let mut found = Vec::new();
    retain(text, |setting| {
        found.push(setting.clone());
        true
    });
    found
}

/// Returns the text without the settings for which `is_kept` returns false.
pub(crate) fn retain(text: &[u8], mut is_kept: impl FnMut(&Setting) -> bool) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    let mut section = (String::new(), None);
    for line in logical_lines(text) {
        let (header, rest) = split_header(&line);
        if let Some(header) = header {
            section = parse_header(header);
        }
        let setting = setting_of(rest, &section);
        if setting.is_none_or(|setting| is_kept(&setting)) {
            result.extend_from_slice(&line);
            result.push(b'\n');
        } else if let Some(header) = header {
            // The settings on the following lines still belong to the section.
            result.extend_from_slice(header);
            result.push(b'\n');
        }
    }
    result
}

/// Splits a line into the header of a section, if it begins with one, and the rest.
fn split_header(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let trimmed = line.trim_ascii_start();
    if trimmed.first() != Some(&b'[') {
        return (None, trimmed);
    }
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in trimmed.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b']' if !is_quoted => return (Some(&trimmed[..=at]), trimmed[at + 1..].trim_ascii()),
            _ => {}
        }
    }
    (Some(trimmed), b"")
}

/// Returns section and subsection of a header in brackets.
fn parse_header(header: &[u8]) -> (String, Option<Vec<u8>>) {
    let name = header.strip_prefix(b"[").unwrap_or(header);
    let name = name.strip_suffix(b"]").unwrap_or(name).trim_ascii();
    let lower = |name: &[u8]| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase();
    if let Some(quote) = name.iter().position(|byte| *byte == b'"') {
        let quoted = &name[quote + 1..];
        let quoted = quoted.strip_suffix(b"\"").unwrap_or(quoted);
        let mut subsection = Vec::with_capacity(quoted.len());
        let mut is_escaped = false;
        for byte in quoted {
            if *byte == b'\\' && !is_escaped {
                is_escaped = true;
            } else {
                is_escaped = false;
                subsection.push(*byte);
            }
        }
        return (lower(&name[..quote]), Some(subsection));
    }
    match name.iter().position(|byte| *byte == b'.') {
        Some(dot) => (
            lower(&name[..dot]),
            Some(name[dot + 1..].to_ascii_lowercase()),
        ),
        None => (lower(name), None),
    }
}

/// Parses the setting on a line without a header; `None` for an empty line or a comment.
fn setting_of(line: &[u8], section: &(String, Option<Vec<u8>>)) -> Option<Setting> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") || line.starts_with(b";") {
        return None;
    }
    let equals = line.iter().position(|byte| *byte == b'=');
    let (key, value) = match equals {
        Some(at) => (&line[..at], line[at + 1..].trim_ascii()),
        None => (line, &b""[..]),
    };
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let value = value.strip_suffix(b"\"").unwrap_or(value);
    Some(Setting {
        section: section.0.clone(),
        subsection: section.1.clone(),
        key: String::from_utf8_lossy(key.trim_ascii()).to_ascii_lowercase(),
        value: value.to_vec(),
    })
}

/// Returns the text without `core.worktree`.
pub(crate) fn without_worktree(text: &[u8]) -> Vec<u8> {
    let lines = logical_lines(text).into_iter().zip(core_settings(text));
    let mut result = Vec::with_capacity(text.len());
    for (line, setting) in lines {
        if setting.is_none_or(|(key, _)| key != "worktree") {
            result.extend_from_slice(&line);
            result.push(b'\n');
        }
    }
    result
}

/// Returns the last value of a setting in the section `core`, without surrounding quotes.
pub(crate) fn value_in_core(text: &[u8], key: &str) -> Option<Vec<u8>> {
    let mut settings = core_settings(text).into_iter().flatten();
    settings
        .rfind(|(name, _)| name == key)
        .map(|(_, value)| value)
}

/// Returns, for each line, the setting that it sets in the section `core`: its name in lower case,
/// and its value.
fn core_settings(text: &[u8]) -> Vec<Option<(String, Vec<u8>)>> {
    let mut is_core = false;
    logical_lines(text)
        .iter()
        .map(|line| {
            let mut line = line.trim_ascii();
            if line.first() == Some(&b'[') {
                let end = line.iter().position(|byte| *byte == b']')?;
                is_core = line[1..end].eq_ignore_ascii_case(b"core");
                line = line[end + 1..].trim_ascii();
            }
            let equals = line.iter().position(|byte| *byte == b'=')?;
            let name = String::from_utf8_lossy(line[..equals].trim_ascii()).to_ascii_lowercase();
            let value = line[equals + 1..].trim_ascii();
            let value = value.strip_prefix(b"\"").unwrap_or(value);
            let value = value.strip_suffix(b"\"").unwrap_or(value);
            is_core.then(|| (name, value.to_vec()))
        })
        .collect()
}

/// Returns the lines of a text, with lines that end in a backslash joined to the next: git joins
/// their values, so a password may span two lines.
fn logical_lines(text: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut is_continued = false;
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let escapes = line.iter().rev().take_while(|byte| **byte == b'\\').count();
        let continues = escapes % 2 == 1;
        let part = &line[..line.len() - usize::from(continues)];
        match lines.last_mut() {
            Some(last) if is_continued => last.extend_from_slice(part),
            _ => lines.push(part.to_vec()),
        }
        is_continued = continues;
    }
    // A text normally ends with a line end, so the last part is empty.
    if lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    lines
}

/// Returns true if a line has a setting that is a secret, or a helper that is a command and may
/// contain one. The setting may follow the section's header on the same line.
fn is_secret_setting(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let behind_section = match text.trim_start().strip_prefix('[') {
        Some(section) => section.rsplit_once(']').map_or("", |(_, rest)| rest),
        None => &text,
    };
    let setting = behind_section
        .trim_start()
        .trim_start_matches(['#', ';', ' ', '\t']);
    let Some((key, value)) = setting.split_once('=') else {
        return false;
    };
    let key = key.trim().to_ascii_lowercase();
    SECRET_KEYS.contains(&key.as_str())
        || (key == "helper" && value.trim_start().trim_start_matches('"').starts_with('!'))
}

/// Returns the line without users and passwords in addresses. A user without a password stays in an
/// SSH address, where it is part of the address (`ssh://git@host`); over HTTP it may be a token.
fn without_users(line: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.windows(3).position(|window| window == b"://") {
        let scheme_at = rest[..at]
            .iter()
            .rposition(|byte| !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte)))
            .map_or(0, |before| before + 1);
        let scheme = rest[scheme_at..at].to_ascii_lowercase();
        result.extend_from_slice(&rest[..at + 3]);
        rest = &rest[at + 3..];
        let end = rest
            .iter()
            .position(|byte| b"/?# \t".contains(byte))
            .unwrap_or(rest.len());
        if let Some(user_end) = rest[..end].iter().rposition(|byte| *byte == b'@') {
            let user = &rest[..user_end];
            let is_ssh = scheme.ends_with(b"ssh");
            match user.iter().position(|byte| *byte == b':') {
                None if is_ssh => result.extend_from_slice(&rest[..=user_end]),
                Some(colon) if is_ssh => {
                    result.extend_from_slice(&user[..colon]);
                    result.push(b'@');
                }
                _ => {}
            }
            rest = &rest[user_end + 1..];
        }
    }
    result.extend_from_slice(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> Option<String> {
        without_credentials(text.as_bytes()).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn what_holds_no_credentials_is_left_alone() {
        for text in [
            "",
            "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://github.com/x/y\n",
            "[remote \"o\"]\n\turl = git@github.com:x/y.git\n",
            "[remote \"o\"]\n\turl = ssh://git@github.com/x/y.git\n",
            "[credential]\n\thelper = store\n[user]\n\temail = me@example.org\n",
            "[remote \"o\"]\n\turl = https://host/a@b\n",
        ] {
            assert_eq!(masked(text), None, "{text}");
        }
    }

    #[test]
    fn credentials_go_and_the_rest_stays() {
        for (text, want) in [
            (
                "[remote \"origin\"]\n\turl = https://me:secret@github.com/x/y\n\tfetch = +refs/*:refs/*\n",
                "[remote \"origin\"]\n\turl = https://github.com/x/y\n\tfetch = +refs/*:refs/*\n",
            ),
            ("url = https://secret@host/x\n", "url = https://host/x\n"),
            ("url = https://a:secret@host\n", "url = https://host\n"),
            (
                "url = ssh://git:secret@host/x\n",
                "url = ssh://git@host/x\n",
            ),
            ("url = HTTPS://a:se@cret@host/x\n", "url = HTTPS://host/x\n"),
            (
                "# url = https://a:secret@host/x\n",
                "# url = https://host/x\n",
            ),
            (
                "url = https://a:sec\\\nret@host/x\n",
                "url = https://host/x\n",
            ),
            (
                "url = https://a:se\"cr\"et@host/x\n",
                "url = https://host/x\n",
            ),
            (
                "[url \"https://a:secret@host/\"]\n\tinsteadOf = gh:\n",
                "[url \"https://host/\"]\n\tinsteadOf = gh:\n",
            ),
            (
                "[http \"https://h/\"]\n\textraHeader = AUTHORIZATION: basic secret\n\tx = y\n",
                "[http \"https://h/\"]\n\tx = y\n",
            ),
            ("[http] extraheader = secret\nx = y\n", "x = y\n"),
            ("[sendemail]\n\tsmtpPass=secret\n", "[sendemail]\n"),
            (
                "[credential]\n\thelper = \"!f() { echo password=secret; }; f\"\n",
                "[credential]\n",
            ),
            (
                "url = https://a:secret@h/x https://b:secret@i/y\n",
                "url = https://h/x https://i/y\n",
            ),
        ] {
            let said = masked(text);
            assert_eq!(said.as_deref(), Some(want), "{text}");
            assert!(!said.unwrap().contains("secret"));
        }
    }
}
