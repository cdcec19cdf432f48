//! Secret that the proxy fills in: its name, the source of its value, and the hosts that receive
//! it.
//!
//! Input: the text of a flag or a configuration key, `NAME=env:VARIABLE@HOST[,HOST]`. The
//! declaration can be stored and displayed. The value exists only in memory: it is never
//! serialized, displayed or compared.

use crate::policy::name::Host;
use crate::policy::rule::{Reach, Rule, RuleError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Maximum number of secrets of one sandbox.
pub const MAX_SECRETS: usize = 32;
/// Maximum number of hosts of one secret.
const MAX_HOSTS: usize = 32;
/// Maximum length of the name of a variable.
const MAX_NAME_BYTES: usize = 64;
/// Minimum length of a value, in bytes. A shorter one could match unrelated text of a response.
pub const MIN_VALUE_BYTES: usize = 8;
/// Maximum length of a value, in bytes, that servers accept in a header.
pub const MAX_VALUE_BYTES: usize = 8 << 10;
/// Port of a host without a port.
const HTTPS: u16 = 443;

/// Declaration of a secret, and its value once it has been read.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// Environment variable that holds the placeholder inside.
    pub name: SecretName,
    /// Source of the value.
    pub source: SecretSource,
    hosts: Vec<Rule>,
    #[serde(skip)]
    value: Option<SecretValue>,
}

/// Name of a secret, which is the name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretSource {
    /// Variable of the user's environment.
    Env(String),
    /// Path of a file of the user.
    File(PathBuf),
}

/// Value of a secret. Copies share one buffer, which is overwritten when the last of them is
/// dropped.
#[derive(Clone)]
pub struct SecretValue(Arc<Zeroizing<Box<[u8]>>>);

/// Error of parsing a declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text does not have the form of a declaration.
    #[error("a secret is written NAME=env:VARIABLE@HOST[,HOST] or NAME=file:PATH@HOST[,HOST]")]
    Form,
    /// The name is invalid.
    #[error(
        "`{0}` is no name of a variable: letters, digits and `_`, at most {MAX_NAME_BYTES} of them"
    )]
    Name(String),
    /// The source is invalid.
    #[error("the secret `{0}` comes from nowhere; write env:VARIABLE or file:PATH")]
    Source(SecretName),
    /// A host is invalid.
    #[error("a host of the secret `{0}`: {1}")]
    Host(SecretName, RuleError),
    /// A host is an address, has a reach other than public, or uses port 80, which carries no TLS.
    #[error(
        "`{1}` cannot get the secret `{0}`: write the name of a host that speaks TLS, with a port if it is not 443"
    )]
    NotByName(SecretName, String),
    /// The secret has too many hosts.
    #[error("the secret `{0}` has more than {MAX_HOSTS} hosts")]
    TooManyHosts(SecretName),
}

/// Error of reading a value. No message contains any part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The value is too short to be found in responses.
    #[error(
        "it is shorter than {MIN_VALUE_BYTES} bytes, so it could not be told from other text in answers"
    )]
    Short,
    /// The value is too long for a header.
    #[error("it is longer than {MAX_VALUE_BYTES} bytes, more than servers take in a header")]
    Long,
    /// The value contains bytes that a header cannot contain.
    #[error("it has characters that a header cannot carry, such as a line break in the middle")]
    Characters,
    /// The value begins or ends with a space, which servers would remove.
    #[error("it begins or ends with a space")]
    Spaces,
}

impl Secret {
    /// Returns the hosts that receive the secret, with their ports.
    pub fn hosts(&self) -> impl Iterator<Item = (&Rule, u16)> {
        self.hosts.iter().map(|rule| (rule, port_of(rule)))
    }

    /// Returns true if this host and port receive the secret.
    pub(crate) fn is_for(&self, host: &Host, port: u16) -> bool {
        self.hosts
            .iter()
            .any(|rule| port_of(rule) == port && rule.matches_host(host))
    }

    /// Returns the value. `None` until it has been read.
    pub fn value(&self) -> Option<&SecretValue> {
        self.value.as_ref()
    }

    /// Sets the value.
    pub fn set_value(&mut self, value: SecretValue) {
        self.value = Some(value);
    }
}

fn port_of(rule: &Rule) -> u16 {
    rule.port().unwrap_or(HTTPS)
}

/// Compares the declarations and not the values: sandboxes with the same declarations were
/// requested with the same text.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.source, &self.hosts) == (&other.name, &other.source, &other.hosts)
    }
}

impl Eq for Secret {}

impl SecretName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_fine = (1..=MAX_NAME_BYTES).contains(&text.len())
            && text.bytes().all(is_of_names)
            && !text.starts_with(|first: char| first.is_ascii_digit());
        is_fine
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| SecretError::Name(text.escape_debug().to_string()))
    }
}

impl TryFrom<String> for SecretName {
    type Error = SecretError;

    fn try_from(text: String) -> Result<Self, SecretError> {
        text.parse()
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let (name, rest) = text.split_once('=').ok_or(SecretError::Form)?;
        // A path may contain `@`, but a host never does.
        let (source, hosts) = rest.rsplit_once('@').ok_or(SecretError::Form)?;
        let name: SecretName = name.parse()?;
        let source = match source.split_once(':') {
            Some(("env", variable))
                if !variable.is_empty() && !variable.contains(['=', '\0', '\n']) =>
            {
                SecretSource::Env(variable.to_owned())
            }
            Some(("file", path)) if !path.is_empty() && !path.contains('\0') => {
                SecretSource::File(path.into())
            }
            _ => return Err(SecretError::Source(name)),
        };
        let mut rules = Vec::new();
        for host in hosts.split(',') {
            let rule: Rule = host
                .parse()
                .map_err(|error| SecretError::Host(name.clone(), error))?;
            if rule.reach() != Reach::Public || !rule.is_by_name() || rule.port() == Some(80) {
                return Err(SecretError::NotByName(name, host.to_owned()));
            }
            rules.push(rule);
        }
        if rules.len() > MAX_HOSTS {
            return Err(SecretError::TooManyHosts(name));
        }
        Ok(Self {
            name,
            source,
            hosts: rules,
            value: None,
        })
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}@", self.name, self.source)?;
        for (number, host) in self.hosts.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{host}")?;
        }
        Ok(())
    }
}

impl SecretValue {
    /// Copies a value as it was read, without one line break at its end.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn new(bytes: &[u8]) -> Result<Self, ValueError> {
        let value = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let value = value.strip_suffix(b"\r").unwrap_or(value);
        let is_of_headers = |byte: &u8| *byte >= b' ' && *byte != 127;
        if !value.iter().all(is_of_headers) {
            return Err(ValueError::Characters);
        }
        if value.first() == Some(&b' ') || value.last() == Some(&b' ') {
            return Err(ValueError::Spaces);
        }
        match value.len() {
            0..MIN_VALUE_BYTES => Err(ValueError::Short),
            MIN_VALUE_BYTES..=MAX_VALUE_BYTES => Ok(Self(Arc::new(Zeroizing::new(value.into())))),
            _ => Err(ValueError::Long),
        }
    }

    /// Returns the bytes. The caller must not leave copies of them in memory.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &[u8]) -> Result<SecretValue, ValueError> {
        SecretValue::new(text)
    }

    #[test]
    fn secrets_are_written_as_they_are_read() {
        for (text, want) in [
            ("T=env:TOKEN@API.example.com", "T=env:TOKEN@api.example.com"),
            (
                "_a9=file:/home/me@work/key@a.test:8443,*.b.test",
                "_a9=file:/home/me@work/key@a.test:8443,*.b.test",
            ),
        ] {
            assert_eq!(text.parse::<Secret>().unwrap().to_string(), want);
        }
        for text in [
            "",
            "T",
            "T=env:A",
            "T=A@a.test",
            "T=env:@a.test",
            "T=file:@a.test",
            "T=http:x@a.test",
            "T=env:A@",
            "T=env:A@a.test,",
            "T=env:A@a.test=private",
            "T=env:A@a.test=10.0.0.1",
            "T=env:A@192.0.2.1",
            "T=env:A@a.test:80",
            "9=env:A@a.test",
            "A-B=env:A@a.test",
            "=env:A@a.test",
        ] {
            assert!(text.parse::<Secret>().is_err(), "{text:?}");
        }
        let many = format!("T=env:A@{}", vec!["a.test"; MAX_HOSTS + 1].join(","));
        assert!(many.parse::<Secret>().is_err());
    }

    #[test]
    fn a_secret_is_for_its_hosts_and_ports() {
        let secret: Secret = "T=env:A@a.test,*.b.test:8443".parse().unwrap();
        let is_for = |name, port| secret.is_for(&Host::parse(name).unwrap(), port);
        assert!(is_for("a.test", 443) && is_for("x.b.test", 8443));
        assert!(!is_for("a.test", 8443) && !is_for("x.b.test", 443));
        assert!(!is_for("b.test", 8443) && !is_for("x.a.test", 443));
    }

    #[test]
    fn values_are_what_headers_carry() {
        assert_eq!(value(b"12345678\n").unwrap().as_bytes(), b"12345678");
        assert_eq!(value(b"12345678\r\n").unwrap().as_bytes(), b"12345678");
        for (text, why) in [
            (&b"1234567"[..], ValueError::Short),
            (b"", ValueError::Short),
            (b"1234\n5678", ValueError::Characters),
            (b"12345678\0", ValueError::Characters),
            (b"12345678\n\n", ValueError::Characters),
            (b" 12345678", ValueError::Spaces),
            (&[b'x'; MAX_VALUE_BYTES + 1], ValueError::Long),
        ] {
            assert_eq!(value(text).unwrap_err(), why);
        }
    }

    #[test]
    fn a_value_is_not_shown_written_or_compared() {
        let declared: Secret = "T=env:A@a.test".parse().unwrap();
        let mut read = declared.clone();
        read.set_value(value(b"hush-hush-hush").unwrap());
        assert_eq!(read, declared);
        let json = serde_json::to_string(&read).unwrap();
        for shown in [format!("{read:?}"), read.to_string(), json.clone()] {
            assert!(!shown.contains("hush"), "{shown}");
        }
        let again: Secret = serde_json::from_str(&json).unwrap();
        assert!(again == declared && again.value().is_none());
    }
}
