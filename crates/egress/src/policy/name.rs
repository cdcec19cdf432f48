//! Unambiguous parsing of names and addresses. A text with more than one possible reading is
//! refused and never corrected.
//!
//! Filters are bypassed with texts that two parsers read differently: `127.1`, `0x7f000001`,
//! `EXAMPLE.com.`, a NUL in the middle. Input: any text of a user or a program. Output: a [`Host`]
//! in normalized form, so that equal hosts have equal texts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a name as text (RFC 1035, 2.3.4, without the root's dot).
const MAX_NAME_BYTES: usize = 253;
/// Maximum length of a label.
const MAX_LABEL_BYTES: usize = 63;

/// DNS name: lower-case letters, digits, `-`, `_` and dots. Labels in other scripts are A-labels
/// (RFC 5890).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Host that a connection can be made to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A DNS name.
    Name(Name),
    /// An IP address.
    Address(IpAddr),
}

/// Error of parsing a name or address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name or one of its labels is empty.
    #[error("a part between dots is empty")]
    Empty,
    /// The name or one of its labels is too long.
    #[error(
        "it is longer than {MAX_NAME_BYTES} characters, or a part of it than {MAX_LABEL_BYTES}"
    )]
    Long,
    /// The name contains a character that names do not have.
    #[error("names consist of letters, digits, `-`, `_` and dots")]
    Character,
    /// Some programs would read the text as an address.
    #[error("it reads like an address; write addresses as 192.0.2.1 or [2001:db8::1]")]
    LooksLikeAddress,
    /// The name is not a valid internationalized name.
    #[error("it is no valid international name (RFC 5891)")]
    International,
}

impl Name {
    /// Parses a name. One trailing dot is allowed and ignored.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let name = if text.is_ascii() {
            text.to_ascii_lowercase()
        } else {
            if text.chars().any(|c| c.is_ascii() && !is_of_names(c)) {
                return Err(NameError::Character);
            }
            let name = idna::domain_to_ascii_strict(text).map_err(|_| NameError::International)?;
            // If the text is changed by mapping (`\u{2460}` to 1, full width to ASCII), it is a
            // second spelling of the name.
            let (again, _) = idna::domain_to_unicode(&name);
            if again != text.to_lowercase() {
                return Err(NameError::International);
            }
            name
        };
        if name.len() > MAX_NAME_BYTES {
            return Err(NameError::Long);
        }
        for label in name.split('.') {
            match label.len() {
                0 => return Err(NameError::Empty),
                1..=MAX_LABEL_BYTES => {}
                _ => return Err(NameError::Long),
            }
            if !label.chars().all(|c| is_of_names(c) && c != '.') {
                return Err(NameError::Character);
            }
            if label.starts_with("xn--") && !is_a_label(label) {
                return Err(NameError::International);
            }
        }
        // As inet_aton(3) and URLs do: a name whose last label is a number is read as an address.
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
            || last
                .strip_prefix("0x")
                .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_number {
            return Err(NameError::LooksLikeAddress);
        }
        Ok(Self(name))
    }

    /// Returns the name without a trailing dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the name is a proper subdomain of `parent`, at any depth.
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0
            .strip_suffix(parent.as_str())
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

const fn is_of_names(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns true if a label with the prefix `xn--` is the only encoding of its Unicode form.
fn is_a_label(label: &str) -> bool {
    let (unicode, result) = idna::domain_to_unicode(label);
    result.is_ok()
        && !unicode.is_ascii()
        && idna::domain_to_ascii_strict(&unicode).is_ok_and(|again| again == label)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Host {
    /// Parses a name, or an address in its usual form. An IPv6 address must be in brackets.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(NameError::Character)?;
            // A zone is refused: it identifies an interface of one machine.
            return inner
                .parse::<Ipv6Addr>()
                .map(|address| Self::Address(plain(address.into())))
                .map_err(|_| NameError::LooksLikeAddress);
        }
        if text.contains(':') {
            return Err(NameError::LooksLikeAddress);
        }
        // The standard library accepts only four decimal numbers without leading zeros.
        match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Self::Address(address.into())),
            Err(_) => Name::parse(text).map(Self::Name),
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(plain(address))
    }
}

/// Converts an IPv4-mapped IPv6 address to the IPv4 address.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_host_has_one_spelling() {
        for (text, want) in [
            ("example.com", "example.com"),
            ("EXAMPLE.Com", "example.com"),
            ("example.com.", "example.com"),
            ("a_b-c.example", "a_b-c.example"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("1.example", "1.example"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:DB8:0::1]", "[2001:db8::1]"),
            ("[::ffff:192.0.2.1]", "192.0.2.1"),
        ] {
            assert_eq!(Host::parse(text).unwrap().to_string(), want, "{text}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.b..",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.0.0.01",
            "1.2.3.4.",
            "a.0x1f",
            "::1",
            "[::1",
            "[fe80::1%1]",
            "[fe80::1%25eth0]",
            "a b",
            "a\0b",
            "a\r\nb",
            "a\tb",
            "a%00b",
            "a%2eb",
            "user@a.example",
            "a.example#",
            "a.example/x",
            "a.example:80",
            "*.a.example",
            "a,b",
            "xn--a",
            "xn--ls8h=",
            "xn--abc-.example",
            "\u{ff0e}a",
            "a\u{200d}b.example",
            "\u{2460}.example",
        ] {
            assert!(
                Host::parse(text).is_err(),
                "{text:?}: {:?}",
                Host::parse(text)
            );
        }
        assert_eq!(Name::parse(&"a.".repeat(200)), Err(NameError::Long));
        assert_eq!(Name::parse(&"a".repeat(64)), Err(NameError::Long));
    }

    #[test]
    fn below_is_a_matter_of_labels() {
        let name = |text| Name::parse(text).unwrap();
        assert!(name("a.example.com").is_below(&name("example.com")));
        assert!(name("a.b.example.com").is_below(&name("example.com")));
        for other in [
            "example.com",
            "evilexample.com",
            "example.com.evil.io",
            "com",
        ] {
            assert!(!name(other).is_below(&name("example.com")), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_one_reading(text in "\\PC{0,40}|[a-zA-Z0-9_.\\[\\]:x-]{0,40}") {
            if let Ok(host) = Host::parse(&text) {
                let spelled = host.to_string();
                prop_assert!(spelled.is_ascii());
                prop_assert_eq!(Host::parse(&spelled).unwrap(), host);
            }
        }
    }
}
