//! Names of sandboxes. They become directory names, command-line words and labels on the host, so
//! the rule is strict and is checked in one place (requirement R007).

use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum length of a name in bytes: that of a DNS label.
const MAX_BYTES: usize = 63;
/// Characters of the random part of a generated name (Crockford's base32, lower case).
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Length of the random part: 50 bits.
const RANDOM_CHARS: usize = 10;

/// Valid sandbox name: `^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Reason for which a text is not a sandbox name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` is not a sandbox name: {rule}")]
pub struct NameError {
    shown: String,
    rule: &'static str,
}

impl Name {
    /// Returns the name of the sandbox's directory in the home of a login on another machine.
    pub fn directory_elsewhere(&self) -> String {
        format!("glovebox-{self}")
    }

    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`] with the rule that is broken.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let bytes = text.as_bytes();
        let rule = if bytes.is_empty() {
            "it is empty"
        } else if bytes.len() > MAX_BYTES {
            "it is longer than 63 characters"
        } else if !bytes
            .iter()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
        {
            "use only a-z, 0-9, `-` and `_`"
        } else if [bytes[0], bytes[bytes.len() - 1]]
            .iter()
            .any(|byte| matches!(byte, b'_' | b'-'))
        {
            "it must begin and end with a letter or digit"
        } else {
            return Ok(Self(text.to_owned()));
        };
        // TRUST: the text may come from any source, so it is shortened and control characters are
        // replaced.
        let shown = text
            .chars()
            .take(64)
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        Err(NameError { shown, rule })
    }

    /// Returns `prefix-` with ten random characters. A prefix that is not a valid name or is too
    /// long is replaced by `box`.
    pub fn random(prefix: &str) -> Self {
        let prefix = match Self::parse(prefix) {
            Ok(name) if name.0.len() + 1 + RANDOM_CHARS <= MAX_BYTES => name.0,
            _ => "box".to_owned(),
        };
        let random = random_bytes::<RANDOM_CHARS>();
        let tail = random
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
        Self(prefix + "-" + &tail.collect::<String>())
    }

    /// Returns true if the name has the form of [`Self::random`] with this prefix.
    pub fn is_random(&self, prefix: &str) -> bool {
        let tail = self
            .0
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('-'));
        tail.is_some_and(|tail| {
            tail.len() == RANDOM_CHARS && tail.bytes().all(|byte| ALPHABET.contains(&byte))
        })
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns sixteen random hexadecimal digits, for names that people do not read.
pub fn random_hex() -> String {
    format!("{:016x}", u64::from_ne_bytes(random_bytes()))
}

/// Returns random bytes from the kernel.
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    // A request of at most 256 bytes is answered completely once the pool is initialised, which is
    // long before this runs (getrandom(2)). If it fails, names collide and the creation reports
    // that.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rule_holds() {
        let long = "a".repeat(63);
        for good in ["a", "0", "a-b_c", "dev", "agent-session-0", long.as_str()] {
            assert!(Name::parse(good).is_ok(), "{good}");
        }
        let longer = "a".repeat(64);
        for bad in [
            "",
            "-a",
            "a-",
            "_a",
            "a_",
            "A",
            "a b",
            "a/b",
            "..",
            "a\n",
            "é",
            longer.as_str(),
        ] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_error_names_the_rule_and_hides_control_bytes() {
        let text = Name::parse("a\u{1b}[2J").unwrap_err().to_string();
        assert_eq!(
            text,
            "`a?[2J` is not a sandbox name: use only a-z, 0-9, `-` and `_`"
        );
    }

    #[test]
    fn random_names_are_names_and_differ() {
        let (a, b) = (Name::random("run"), Name::random("run"));
        assert!(a.as_str().starts_with("run-"));
        assert_ne!(a, b);
        assert!(a.is_random("run") && !a.is_random("ru"));
        assert!(!Name::parse("run-by-me").unwrap().is_random("run"));
        assert_eq!(
            Name::random("--").as_str().len(),
            "box-".len() + RANDOM_CHARS
        );
    }

    proptest! {
        #[test]
        fn parse_agrees_with_the_pattern(text in "[a-c_-]{0,5}|[ -~]{0,4}") {
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            let expected = edge(text.chars().next())
                && edge(text.chars().last())
                && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
            prop_assert_eq!(Name::parse(&text).is_ok(), expected);
        }
    }
}
