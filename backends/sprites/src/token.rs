//! The token of the service in the header of a request. It is never displayed.

use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Credential;
use reqwest::header::HeaderValue;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Returns the token. Called at the start and once more after the service has refused a token,
/// because a file may hold a newer one by then.
pub type TokenSource = Arc<dyn Fn() -> Result<Credential, Fault> + Send + Sync>;

/// Returns the value of the header `Authorization`.
pub(crate) fn header(token: &Credential) -> Result<HeaderValue, Fault> {
    let text = Zeroizing::new(format!("Bearer {}", token.expose()));
    let mut value = HeaderValue::try_from(text.as_str())
        .map_err(|_| Fault::failed(Code::Internal, "a checked token fits into no header"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_stands_in_a_header_and_is_never_shown() {
        let token = Credential::new(" org/1/secret\n").unwrap();
        let header = header(&token).unwrap();
        assert_eq!(header.as_bytes(), b"Bearer org/1/secret");
        assert!(!format!("{token:?} {header:?}").contains("secret"));
    }
}
