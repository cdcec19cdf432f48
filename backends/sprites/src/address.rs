//! The address of the service, checked before a token is sent to it.

use glovebox_proto::{Code, Fault, visible};
use reqwest::Url;
use std::fmt;
use std::net::IpAddr;

/// Address of the service in the cloud.
pub const DEFAULT_BASE_URL: &str = "https://api.sprites.dev";

/// Base URL of the service: `https`, or `http` to an address whose packets do not leave the local
/// network.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

impl BaseUrl {
    /// Parses a base URL. Its path is kept in front of the paths of the service.
    ///
    /// # Errors
    /// `invalid-argument` for another scheme, plain `http` to a public host, user info, a query or
    /// a fragment.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let url = Url::parse(text).map_err(|error| invalid(&format!("{error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid(
                "it must hold no user name and no password; the token has a variable of its own",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it must end with its path"));
        }
        let host = url.host_str().unwrap_or_default();
        match url.scheme() {
            "https" if !host.is_empty() => {}
            "http" if is_near(host) => {}
            "http" => {
                return Err(invalid(&format!(
                    "plain http would show the token on the way to {}; write https",
                    visible::line_of_text(host)
                )));
            }
            scheme => {
                return Err(invalid(&format!(
                    "its scheme is {}, not https",
                    visible::line_of_text(scheme)
                )));
            }
        }
        Ok(Self(url))
    }

    /// Returns the URL of an endpoint. Every segment is percent-encoded.
    pub(crate) fn endpoint(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.0.clone();
        // Fails only for URLs without a host, which `parse` refuses.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// Returns true if the address is reached without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// Returns true if the service runs on this machine, so that no proxy is used.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        host == "localhost" || address(host).is_some_and(|address| address.is_loopback())
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseUrl({self})")
    }
}

fn invalid(why: &str) -> Fault {
    Fault::failed(
        Code::InvalidArgument,
        format!("the base URL of the service is not usable: {why}"),
    )
    .remedy(format!("write it as in {DEFAULT_BASE_URL}"))
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

fn is_near(host: &str) -> bool {
    host == "localhost"
        || address(host).is_some_and(|address| match address {
            IpAddr::V4(address) => address.is_loopback() || address.is_private(),
            IpAddr::V6(address) => match address.to_ipv4_mapped() {
                Some(address) => address.is_loopback() || address.is_private(),
                None => address.is_loopback() || address.is_unique_local(),
            },
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_is_https_or_near() {
        for good in [
            "https://api.sprites.dev",
            "https://example.com:8443/sprites/",
            "http://127.0.0.1:4000",
            "http://localhost:1/p",
            "http://[::1]:8080",
            "http://10.1.2.3",
            "http://192.168.0.1/x",
            "http://[fd00::1]",
        ] {
            BaseUrl::parse(good).unwrap();
        }
        for bad in [
            "http://api.sprites.dev",
            "http://8.8.8.8",
            "http://[2001:db8::1]",
            "http://10.1.2.3.example.com",
            "ftp://localhost",
            "file:///etc/passwd",
            "https://",
            "api.sprites.dev",
            "https://user@api.sprites.dev",
            "https://api.sprites.dev?x=1",
            "https://api.sprites.dev#x",
        ] {
            let fault = BaseUrl::parse(bad).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn user_info_is_refused_and_not_repeated() {
        let fault = BaseUrl::parse("https://user:hunter2@example.com").unwrap_err();
        assert!(!fault.message.contains("hunter2"), "{}", fault.message);
    }

    #[test]
    fn endpoint_keeps_the_prefix_and_encodes_segments() {
        for base in ["https://example.com/a/b", "https://example.com/a/b/"] {
            let base = BaseUrl::parse(base).unwrap();
            assert_eq!(
                base.endpoint(&["v1", "sprites", "x/../y"], &[("cmd", "a b&c")])
                    .as_str(),
                "https://example.com/a/b/v1/sprites/x%2F..%2Fy?cmd=a+b%26c"
            );
            assert_eq!(base.to_string(), "https://example.com/a/b");
        }
        let base = BaseUrl::parse(DEFAULT_BASE_URL).unwrap();
        assert_eq!(
            base.endpoint(&["v1", "sprites"], &[]).as_str(),
            "https://api.sprites.dev/v1/sprites"
        );
    }
}
