//! Base path of a server behind a proxy that shares its host with others.

use std::fmt;
use std::str::FromStr;

const MAX_CHARS: usize = 128;
/// First path segments that are reserved: they are served with and without the base path.
const TAKEN: [&str; 1] = ["health"];

/// A path such as `/glovebox`, without a trailing slash. Empty for a server at the root of its
/// host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BasePath(String);

impl BasePath {
    /// Returns the path. It begins with a slash unless it is empty, and never ends with one.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Removes the base path from a request's path. None if the path is not below it.
    pub(crate) fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(self.as_str())?;
        rest.starts_with('/').then_some(rest)
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for BasePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        let is_part = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
            !part.is_empty() && part.bytes().all(is_plain) && part != "." && part != ".."
        };
        let mut parts = trimmed.split('/');
        let is_path = parts.next() == Some("") && parts.clone().all(is_part);
        let is_taken = parts.next().is_some_and(|first| TAKEN.contains(&first));
        if text == "/" {
            return Ok(Self::default());
        }
        if text.is_empty() || !is_path || is_taken || trimmed.len() > MAX_CHARS {
            return Err(format!(
                "`{text}` is no path for a server, such as /glovebox: at most {MAX_CHARS} letters, digits, `-`, `_`, \
                 `.`, `~` between slashes, and not below /health"
            ));
        }
        Ok(Self(trimmed.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_paths_are_plain_and_lie_beside_health() {
        let read = |text: &str| text.parse::<BasePath>().map(|path| path.0);
        assert_eq!(read("/glovebox").unwrap(), "/glovebox");
        assert_eq!(read("/a-b/c.d/").unwrap(), "/a-b/c.d");
        assert_eq!(read("/").unwrap(), "");
        for text in [
            "",
            "box",
            "//",
            "/a//b",
            "/a/../b",
            "/.",
            "/a b",
            "/a?b",
            "/a%20b",
            "/\u{e4}",
            "/health",
            "/health/x",
            "/a//",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(&format!("/{}", "x".repeat(MAX_CHARS))).is_err());
    }
}
