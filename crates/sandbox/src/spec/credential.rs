//! Key or token with which a backend authenticates to its service.

use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Maximum length, in bytes.
pub(crate) const MAX_CREDENTIAL_BYTES: usize = 8 << 10;

/// Key or token of a service. It is kept in memory only, and neither serialized nor displayed.
/// Copies share one buffer, which is overwritten when the last copy is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Arc<Zeroizing<String>>);

/// Reason for which a text is not a key or token. Contains nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The text is longer than [`MAX_CREDENTIAL_BYTES`].
    #[error("it is longer than {MAX_CREDENTIAL_BYTES} bytes")]
    Long,
    /// A header cannot contain it.
    #[error("it has characters that a header cannot carry")]
    Characters,
}

impl Credential {
    /// Parses a credential. Surrounding white space is removed.
    ///
    /// # Errors
    /// The reason for which the text is not valid.
    pub fn new(text: &str) -> Result<Self, CredentialError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(CredentialError::Empty);
        }
        if text.len() > MAX_CREDENTIAL_BYTES {
            return Err(CredentialError::Long);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CredentialError::Characters);
        }
        Ok(Self(Arc::new(Zeroizing::new(text.to_owned()))))
    }

    /// Returns the value, for a header.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_bounded_and_never_shown() {
        let token = Credential::new(" org/1/secret\n").unwrap();
        assert_eq!(token.expose(), "org/1/secret");
        assert!(!format!("{token:?}").contains("secret"));
        for (text, error) in [
            (" \n", CredentialError::Empty),
            ("two words", CredentialError::Characters),
            ("line\nbreak", CredentialError::Characters),
            ("", CredentialError::Empty),
            ("\u{e9}", CredentialError::Characters),
        ] {
            assert_eq!(Credential::new(text), Err(error), "{text:?}");
        }
        let long = "x".repeat(MAX_CREDENTIAL_BYTES + 1);
        assert_eq!(Credential::new(&long), Err(CredentialError::Long));
    }
}
