//! Vault of the secrets of one sandbox. It replaces placeholders by values in the headers of a
//! request, including the credentials of `Authorization: Basic`.
//!
//! A request with a placeholder for a host that does not receive the secret is refused.

use crate::policy::name::Host;
use crate::secrets::scrub::{Pattern, Scrubber, patterns_of};
use crate::secrets::secret::{MAX_SECRETS, Secret, SecretName, SecretValue};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use memchr::memmem;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Prefix of all placeholders.
const PLACEHOLDER: &str = "glovebox-secret-";

/// Secret with its value and its placeholder.
#[derive(Debug)]
struct HeldSecret {
    declared: Secret,
    value: SecretValue,
    placeholder: String,
}

/// Secrets of one sandbox with their values.
#[derive(Debug)]
pub(crate) struct Vault {
    secrets: Vec<HeldSecret>,
    /// Encoded forms of all values, with the placeholders that replace them.
    patterns: Vec<Arc<Pattern>>,
}

/// Values that were filled into one request, for scrubbing its response.
#[derive(Debug, Default)]
pub(crate) struct FilledSecrets {
    /// True if any value was filled in.
    pub(crate) has_value: bool,
    patterns: Vec<Arc<Pattern>>,
}

impl Vault {
    /// Holds these secrets, at most [`MAX_SECRETS`] of them. `token` makes the placeholders unique
    /// to one sandbox. `None` if a secret has no value.
    pub(crate) fn new(secrets: &[Secret], token: &str) -> Option<Self> {
        let hold = |declared: &Secret| {
            Some(HeldSecret {
                value: declared.value()?.clone(),
                placeholder: format!("{PLACEHOLDER}{}-{token}", declared.name),
                declared: declared.clone(),
            })
        };
        let secrets: Vec<_> = secrets
            .iter()
            .take(MAX_SECRETS)
            .map(hold)
            .collect::<Option<_>>()?;
        let patterns = secrets
            .iter()
            .flat_map(|secret| patterns_of(secret.value.as_bytes(), &secret.placeholder))
            .collect();
        Some(Self { secrets, patterns })
    }

    /// Returns the environment variables of the sandbox: the name of each secret with its
    /// placeholder.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&SecretName, &str)> {
        self.secrets
            .iter()
            .map(|secret| (&secret.declared.name, secret.placeholder.as_str()))
    }

    /// Returns the first secret for this host and port.
    pub(crate) fn secret_for(&self, host: &Host, port: u16) -> Option<&SecretName> {
        self.secrets
            .iter()
            .find(|secret| secret.declared.is_for(host, port))
            .map(|secret| &secret.declared.name)
    }

    /// Returns the first secret whose placeholder is in one of these headers.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<&SecretName> {
        headers.iter().find_map(|(name, value)| {
            self.secret_in(value.as_bytes()).or_else(|| {
                let credentials = basic_credentials(value).filter(|_| name == AUTHORIZATION)?;
                self.secret_in(&credentials)
            })
        })
    }

    /// Returns all secrets whose placeholder is in this text.
    pub(crate) fn secrets_in(&self, text: &[u8]) -> impl Iterator<Item = &SecretName> {
        let is_in =
            |secret: &&HeldSecret| memmem::find(text, secret.placeholder.as_bytes()).is_some();
        let found = self.secrets.iter().filter(is_in);
        found.map(|secret| &secret.declared.name)
    }

    /// Replaces placeholders in headers by values.
    ///
    /// # Errors
    /// The secret that is not for this host. The request must not be sent then: some headers may
    /// have been filled in.
    pub(crate) fn fill_in(
        &self,
        headers: &mut HeaderMap,
        host: &Host,
        port: u16,
    ) -> Result<FilledSecrets, &SecretName> {
        let mut filled = FilledSecrets::default();
        for (header, value) in headers.iter_mut() {
            let new = if let Some(text) = self.fill(value.as_bytes(), host, port)? {
                HeaderValue::from_bytes(&text).ok()
            } else if header == AUTHORIZATION
                && let Some(credentials) = basic_credentials(value)
                && let Some(text) = self.fill(&credentials, host, port)?
            {
                let token = Zeroizing::new(STANDARD.encode(&*text).into_bytes());
                let old = basic_token(value).unwrap_or_default().to_owned();
                let new = Zeroizing::new([b"Basic ", &**token].concat());
                filled.patterns.push(Arc::new(Pattern::new(token, &old)));
                HeaderValue::from_bytes(&new).ok()
            } else {
                continue;
            };
            // A value consists of valid header characters, so that this is never `None`.
            if let Some(mut new) = new {
                new.set_sensitive(true);
                *value = new;
                filled.has_value = true;
            }
        }
        Ok(filled)
    }

    /// Returns a scrubber that removes the values, and the encoded credentials of this request,
    /// from its response.
    pub(crate) fn scrubber(&self, filled: FilledSecrets) -> Scrubber {
        let mut patterns = filled.patterns;
        patterns.extend(self.patterns.iter().cloned());
        Scrubber::new(patterns)
    }

    /// Returns a scrubber that masks the values in a stream in which lengths were sent before.
    pub(crate) fn mask(&self) -> Scrubber {
        Scrubber::masking(&self.patterns)
    }

    fn secret_in(&self, text: &[u8]) -> Option<&SecretName> {
        memmem::find(text, PLACEHOLDER.as_bytes())?;
        self.secrets_in(text).next()
    }

    fn fill(
        &self,
        text: &[u8],
        host: &Host,
        port: u16,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, &SecretName> {
        let mut filled: Option<Zeroizing<Vec<u8>>> = None;
        // A filled-in value is not searched for placeholders of other secrets.
        let mut at = 0;
        while let Some(found) = memmem::find(&text[at..], PLACEHOLDER.as_bytes()) {
            let rest = &text[at + found..];
            let secret = self
                .secrets
                .iter()
                .find(|secret| rest.starts_with(secret.placeholder.as_bytes()));
            let out = filled.get_or_insert_default();
            out.extend_from_slice(&text[at..at + found]);
            let length = match secret {
                Some(secret) if !secret.declared.is_for(host, port) => {
                    return Err(&secret.declared.name);
                }
                Some(secret) => {
                    out.extend_from_slice(secret.value.as_bytes());
                    secret.placeholder.len()
                }
                None => {
                    out.extend_from_slice(PLACEHOLDER.as_bytes());
                    PLACEHOLDER.len()
                }
            };
            at += found + length;
        }
        if let Some(out) = &mut filled {
            out.extend_from_slice(&text[at..]);
        }
        Ok(filled.filter(|out| ***out != *text))
    }
}

/// Returns the text behind `Basic`.
fn basic_token(value: &HeaderValue) -> Option<&[u8]> {
    let text = value.as_bytes();
    let (scheme, token) = text.split_at_checked(6)?;
    scheme
        .eq_ignore_ascii_case(b"basic ")
        .then(|| token.trim_ascii())
}

fn basic_credentials(value: &HeaderValue) -> Option<Vec<u8>> {
    let token = basic_token(value)?;
    STANDARD
        .decode(token)
        .or_else(|_| STANDARD_NO_PAD.decode(token))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "00112233445566778899aabbccddeeff";

    fn vault() -> Vault {
        let secret = |text: &str, value: &[u8]| {
            let mut secret: Secret = text.parse().unwrap();
            secret.set_value(SecretValue::new(value).unwrap());
            secret
        };
        let secrets = [
            secret("A=env:A@a.test", b"value-of-a"),
            secret("A_B=env:B@a.test,b.test", b"value-of-a-b"),
        ];
        Vault::new(&secrets, TOKEN).unwrap()
    }

    fn fill(header: &str, host: &str) -> Result<String, String> {
        let vault = vault();
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, header.parse().unwrap());
        vault
            .fill_in(&mut headers, &Host::parse(host).unwrap(), 443)
            .map_err(ToString::to_string)?;
        Ok(headers[AUTHORIZATION].to_str().unwrap().to_owned())
    }

    #[test]
    fn placeholders_become_values_for_the_hosts_of_the_secret() {
        let (a, both) = (
            format!("glovebox-secret-A-{TOKEN}"),
            format!("glovebox-secret-A_B-{TOKEN}"),
        );
        assert_eq!(
            fill(&format!("Bearer {a};{both}; {a}"), "a.test").unwrap(),
            "Bearer value-of-a;value-of-a-b; value-of-a"
        );
        assert_eq!(
            fill(&format!("Bearer {both}"), "b.test").unwrap(),
            "Bearer value-of-a-b"
        );
        assert_eq!(fill(&format!("Bearer {a}"), "b.test"), Err("A".to_owned()));
        assert_eq!(fill(&both, "c.test"), Err("A_B".to_owned()));
        // What is no placeholder of this sandbox stays.
        for text in [
            "glovebox-secret-",
            "glovebox-secret-A-00",
            "Bearer x",
            "Basic =",
        ] {
            assert_eq!(fill(text, "a.test").unwrap(), text);
        }
        let basic = |credentials: &str| format!("basic {}", STANDARD.encode(credentials));
        let filled = fill(&basic(&format!("me:{a}")), "a.test").unwrap();
        assert_eq!(
            filled,
            format!("Basic {}", STANDARD.encode("me:value-of-a"))
        );
        assert_eq!(fill(&basic(&a), "b.test"), Err("A".to_owned()));
    }

    #[test]
    fn what_was_made_of_a_value_comes_back_as_it_was_sent() {
        let vault = vault();
        let sent = STANDARD.encode(format!("me:glovebox-secret-A-{TOKEN}"));
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Basic {sent}").parse().unwrap());
        assert_eq!(vault.find(&headers).unwrap().as_str(), "A");
        let filled = vault
            .fill_in(&mut headers, &Host::parse("a.test").unwrap(), 443)
            .unwrap();
        assert!(filled.has_value && vault.find(&headers).is_none());
        let echo = headers[AUTHORIZATION].as_bytes().to_owned();
        let clean = vault.scrubber(filled).whole(&echo).unwrap();
        assert_eq!(clean, format!("Basic {sent}").into_bytes());
        assert!(headers[AUTHORIZATION].is_sensitive());
    }
}
