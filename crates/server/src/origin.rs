//! Origins of pages that may call the API with a token.

use http::{HeaderValue, Uri};
use std::str::FromStr;

/// Origin of a page, such as `https://app.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedOrigin(HeaderValue);

impl AllowedOrigin {
    /// Returns the origin as browsers send it.
    pub(crate) const fn as_header(&self) -> &HeaderValue {
        &self.0
    }
}

impl FromStr for AllowedOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no origin, such as https://app.example.com");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let scheme = uri
            .scheme_str()
            .filter(|scheme| matches!(*scheme, "http" | "https"));
        let authority = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'));
        let (Some(scheme), Some(authority), true) = (
            scheme,
            authority,
            uri.path() == "/" && uri.query().is_none(),
        ) else {
            return Err(wrong());
        };
        // Browsers send host names in lower case and omit the default port.
        let authority = authority.as_str().to_ascii_lowercase();
        let implied = if scheme == "https" { ":443" } else { ":80" };
        let authority = authority.strip_suffix(implied).unwrap_or(&authority);
        HeaderValue::from_str(&format!("{scheme}://{authority}"))
            .map(Self)
            .map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_as_browsers_send_them() {
        let read = |text: &str| {
            text.parse::<AllowedOrigin>()
                .map(|origin| origin.0.to_str().unwrap().to_owned())
        };
        assert_eq!(
            read("https://App.example.com").unwrap(),
            "https://app.example.com"
        );
        assert_eq!(read("https://a.test:443/").unwrap(), "https://a.test");
        assert_eq!(
            read("http://localhost:5173").unwrap(),
            "http://localhost:5173"
        );
        for text in [
            "*",
            "null",
            "a.test",
            "https://",
            "ftp://a.test",
            "https://a.test/path",
            "https://u@a.test",
            "https://a.test?x",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
