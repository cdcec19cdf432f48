//! The one reading of names and addresses: whatever is not written in one clear way is refused, never repaired.
//!
//! Two readings of one text are how filters are passed by: `127.1`, `0x7f000001`, `EXAMPLE.com.`, a NUL in the middle.
//! In: any text a user or a program gives. Out: a [`Host`] with one spelling, so that equal texts mean equal hosts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest name in its written form (RFC 1035, 2.3.4, without the root's dot).
const MAX_NAME_BYTES: usize = 253;
/// Longest label.
const MAX_LABEL_BYTES: usize = 63;

/// A name of DNS: small letters, digits, `-`, `_` and dots; labels of other scripts as A-labels (RFC 5890).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// What a connection can be asked to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name.
    Name(Name),
    /// An address.
    Address(IpAddr),
}

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty, or one of its labels is.
    #[error("a part between dots is empty")]
    Empty,
    /// It is longer than a name can be.
    #[error(
        "it is longer than {MAX_NAME_BYTES} characters, or a part of it than {MAX_LABEL_BYTES}"
    )]
    Long,
    /// It has a character that names do not have.
    #[error("names consist of letters, digits, `-`, `_` and dots")]
    Character,
    /// Some programs would take it for an address.
    #[error("it reads like an address; write addresses as 192.0.2.1 or [2001:db8::1]")]
    LooksLikeAddress,
    /// Its labels are no valid ones of other scripts.
    #[error("it is no valid international name (RFC 5891)")]
    International,
}

impl Name {
    /// Reads a name. One dot at its end is allowed and means nothing.
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
            // What was mapped to something else (`\u{2460}` to 1, full width to ASCII) was written in a second way.
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
        // The rule of inet_aton(3) and of URLs: what ends in a number is an address, in whatever form.
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

    /// The name, without a dot at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it lies below `parent`, at any depth, and is not `parent` itself.
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0
            .strip_suffix(parent.as_str())
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

const fn is_of_names(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Whether a label that says so is the one spelling of a label of another script.
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
    /// Reads a name, or an address in its usual form. IPv6 stands in brackets.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(NameError::Character)?;
            // Without a zone: those are of one machine's interfaces.
            return inner
                .parse::<Ipv6Addr>()
                .map(|address| Self::Address(plain(address.into())))
                .map_err(|_| NameError::LooksLikeAddress);
        }
        if text.contains(':') {
            return Err(NameError::LooksLikeAddress);
        }
        // The standard library reads four decimal numbers without leading zeros and nothing else.
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

/// An address of version 4 that is written as one of version 6 is the former.
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
