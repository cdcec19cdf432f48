//! The token of the service: held in memory that is overwritten, sent in one header, shown nowhere.

use glovebox_proto::{Code, Fault};
use reqwest::header::HeaderValue;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A token of the service.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<Zeroizing<String>>);

impl Token {
    /// Takes a token as it stands in a variable or a file; white space around it is dropped.
    ///
    /// # Errors
    /// `not-authenticated` where it is empty or has characters that a header cannot carry.
    pub fn new(text: &str) -> Result<Self, Fault> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = if text.is_empty() {
                "is empty"
            } else {
                "has characters that cannot be sent, such as a blank or a line end"
            };
            return Err(Fault::refused(
                Code::NotAuthenticated,
                format!("the token of the service {why}"),
            ));
        }
        Ok(Self(Arc::new(Zeroizing::new(text.to_owned()))))
    }

    /// Returns the value of the header `Authorization`.
    pub(crate) fn header(&self) -> Result<HeaderValue, Fault> {
        let text = Zeroizing::new(format!("Bearer {}", self.0.as_str()));
        let mut value = HeaderValue::try_from(text.as_str())
            .map_err(|_| Fault::failed(Code::Internal, "a checked token fits into no header"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Reads the token anew. Called at the start and once more when the service has refused a token,
/// for a file may hold a newer one by then.
pub type TokenSource = Arc<dyn Fn() -> Result<Token, Fault> + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_trimmed_checked_and_never_shown() {
        let token = Token::new(" org/1/secret\n").unwrap();
        assert_eq!(token.header().unwrap().as_bytes(), b"Bearer org/1/secret");
        assert!(!format!("{token:?} {:?}", token.header()).contains("secret"));
        for bad in ["", " \n", "a b", "a\nb", "\u{e9}"] {
            let fault = Token::new(bad).unwrap_err();
            assert_eq!(fault.code, Code::NotAuthenticated);
        }
    }
}
