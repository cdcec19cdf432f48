//! Host names of previews. Each port of each session and sandbox has its own host name,
//! `PORT-NAME.DOMAIN`. Browsers treat it as an origin apart from the interface and from every other
//! preview, so no page can act for another.

use std::str::FromStr;

/// Maximum length of a domain: with a label before it, it must still be a valid DNS name (RFC 1035,
/// 2.3.4).
const MAX_DOMAIN_CHARS: usize = 253 - MAX_LABEL_CHARS - 1;
/// Maximum length of a label in DNS.
const MAX_LABEL_CHARS: usize = 63;

/// Domain below which previews are served: `DOMAIN`, `DOMAIN:PORT` or `https://DOMAIN:PORT`, as
/// browsers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewDomain {
    /// True if browsers use TLS. None if they do exactly when the server does.
    is_https: Option<bool>,
    domain: String,
    port: Option<u16>,
}

impl PreviewDomain {
    /// Returns the domain `localhost` with this port. Browsers resolve its subdomains to their own
    /// machine.
    pub(crate) fn localhost(port: u16) -> Self {
        Self {
            is_https: None,
            domain: "localhost".to_owned(),
            port: Some(port),
        }
    }
}

impl FromStr for PreviewDomain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "{what}; write previews.example.com, with :PORT unless it is the usual one, and with https:// before it where a proxy with TLS is"
            )
        };
        let text = text.to_ascii_lowercase();
        let (is_https, authority) = match text.split_once("://") {
            None => (None, text.as_str()),
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some(_) => return Err(wrong("only http:// and https:// can stand before a domain")),
        };
        let (domain, port) = match authority.split_once(':') {
            None => (authority, None),
            Some((domain, port)) => {
                let port = parse_port(port)
                    .ok_or_else(|| wrong("the port is no number from 1 to 65535"))?;
                (domain, Some(port))
            }
        };
        if domain.len() > MAX_DOMAIN_CHARS || !domain.split('.').all(is_label) {
            return Err(wrong("this is no domain"));
        }
        let last = domain.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong("an address has no names below it"));
        }
        Ok(Self {
            is_https,
            domain: domain.to_owned(),
            port,
        })
    }
}

/// Program that a preview shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PreviewAddress {
    /// Port that the program listens on.
    pub port: u16,
    /// Session or sandbox in which the program runs.
    pub name: String,
}

impl PreviewAddress {
    /// Creates the address. None if the port is 0 or the name cannot be part of a host name.
    pub(crate) fn new(port: u16, name: &str) -> Option<Self> {
        let address = Self {
            port,
            name: name.to_owned(),
        };
        let is_fine = port > 0 && is_label(name) && is_label(&address.label());
        is_fine.then_some(address)
    }

    /// Returns the first label of the host name, which identifies the preview.
    pub(crate) fn label(&self) -> String {
        format!("{}-{}", self.port, self.name)
    }

    fn parse(label: &str) -> Option<Self> {
        let (port, name) = label.split_once('-')?;
        Self::new(parse_port(port)?, name)
    }
}

/// Host names of a server's previews.
#[derive(Debug)]
pub(crate) struct PreviewHosts {
    is_https: bool,
    /// Domain, with the port unless it is the default: the part after the first dot of a `Host`.
    authority: String,
}

impl PreviewHosts {
    pub(crate) fn new(domain: &PreviewDomain, is_tls: bool) -> Self {
        let is_https = domain.is_https.unwrap_or(is_tls);
        let usual = if is_https { 443 } else { 80 };
        let authority = match domain.port.filter(|port| *port != usual) {
            Some(port) => format!("{}:{port}", domain.domain),
            None => domain.domain.clone(),
        };
        Self {
            is_https,
            authority,
        }
    }

    /// Returns true if browsers use TLS.
    pub(crate) const fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the preview for the `Host` of a request, in lower case. None if it is not a
    /// preview's.
    pub(crate) fn find(&self, host: &str) -> Option<PreviewAddress> {
        let (label, authority) = host.split_once('.')?;
        (authority == self.authority)
            .then(|| PreviewAddress::parse(label))
            .flatten()
    }

    /// Returns the origin of a preview.
    pub(crate) fn origin(&self, address: &PreviewAddress) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{}.{}", address.label(), self.authority)
    }
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let bytes = text.as_bytes();
    (1..=MAX_LABEL_CHARS).contains(&bytes.len())
        && bytes.iter().all(is_inner)
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

/// Parses a port in its canonical form, so that no port has two host names.
fn parse_port(text: &str) -> Option<u16> {
    let port: u16 = text.parse().ok()?;
    (port > 0 && port.to_string() == text).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(domain: &str, is_tls: bool) -> PreviewHosts {
        PreviewHosts::new(&domain.parse().unwrap(), is_tls)
    }

    #[test]
    fn a_host_leads_to_one_preview_and_back() {
        let local = PreviewHosts::new(&PreviewDomain::localhost(8484), false);
        let found = local.find("3000-s-5gv555ah3z.localhost:8484").unwrap();
        assert_eq!((found.port, found.name.as_str()), (3000, "s-5gv555ah3z"));
        assert_eq!(
            local.origin(&found),
            "http://3000-s-5gv555ah3z.localhost:8484"
        );
        for host in [
            "localhost:8484",
            "127.0.0.1:8484",
            "3000-s-a.localhost",
            "3000-s-a.localhost:8485",
            "3000-s-a.localhost.:8484",
            "x.3000-s-a.localhost:8484",
            "3000.localhost:8484",
            "3000-.localhost:8484",
            "03000-s-a.localhost:8484",
            "+3000-s-a.localhost:8484",
            "0-s-a.localhost:8484",
            "65536-s-a.localhost:8484",
            "3000-s_a.localhost:8484",
            "3000-s-a-.localhost:8484",
            "3000-s-a.evil.test",
        ] {
            assert_eq!(local.find(host), None, "{host}");
        }
    }

    #[test]
    fn the_usual_port_is_not_written() {
        for (domain, is_tls, origin) in [
            ("p.example.com", false, "http://80-a.p.example.com"),
            ("p.example.com", true, "https://80-a.p.example.com"),
            ("p.example.com:443", true, "https://80-a.p.example.com"),
            (
                "P.Example.com:8443",
                true,
                "https://80-a.p.example.com:8443",
            ),
            (
                "https://p.example.com:443",
                false,
                "https://80-a.p.example.com",
            ),
            ("http://p.example.com:80", true, "http://80-a.p.example.com"),
        ] {
            let hosts = hosts(domain, is_tls);
            let address = PreviewAddress::new(80, "a").unwrap();
            assert_eq!(hosts.origin(&address), origin);
            let (_, host) = origin.split_once("://").unwrap();
            assert_eq!(hosts.find(host), Some(address), "{domain}");
        }
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for text in [
            "",
            ":80",
            "a..b",
            "-a.b",
            "a_b.c",
            "a.b:0",
            "a.b:x",
            "a.b:080",
            "ftp://a.b",
            "127.0.0.1",
            "[::1]",
            "a.b/c",
            "*.a.b",
            "a.b.",
            &"a.".repeat(100),
        ] {
            assert!(text.parse::<PreviewDomain>().is_err(), "{text}");
        }
        assert!("localhost:9000".parse::<PreviewDomain>().is_ok());
    }

    #[test]
    fn a_name_that_dns_cannot_hold_has_no_preview() {
        for (port, name) in [
            (0, "a"),
            (80, "a_b"),
            (80, ""),
            (80, "A"),
            (65535, &*"a".repeat(58)),
        ] {
            assert_eq!(PreviewAddress::new(port, name), None, "{port} {name}");
        }
        assert!(PreviewAddress::new(65535, &"a".repeat(57)).is_some());
    }
}
