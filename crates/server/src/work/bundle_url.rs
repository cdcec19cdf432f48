//! Bundles that a request names by their address: from listed hosts, over TLS, looked up once, and never from a private
//! address that the operator has not listed as one.

use super::App;
use super::bundles::{BundleRefusal, ReadyBundle};
use crate::config::BundleConfig;
use glovebox_bundle::{Language, MAX_SOURCE_BYTES};
use glovebox_egress::{Host, Policy, ResolveError, Resolver, SystemResolver};
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Code, Fault};
use glovebox_session::bundle::BundleHash;
use reqwest::{Certificate, Client, StatusCode, Url};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const CONNECT_WAIT: Duration = Duration::from_secs(5);
const TOTAL_WAIT: Duration = Duration::from_secs(15);
const MAX_URL_BYTES: usize = 2048;

/// Checks the words of an operator.
///
/// # Errors
/// Which is wrong.
pub(super) fn check_hosts(config: &BundleConfig) -> Result<(), Fault> {
    policy(&config.hosts)?;
    certificates(config.ca.as_deref())?;
    Ok(())
}

fn policy(hosts: &[String]) -> Result<Policy, Fault> {
    Policy::new(hosts, &[]).map_err(|error| {
        Fault::failed(
            Code::InvalidArgument,
            format!("a host for bundles is wrong: {error}"),
        )
        .remedy(
            "list hosts as `cdn.example.com`, with `=private` behind for one at a private address",
        )
    })
}

fn certificates(ca: Option<&[u8]>) -> Result<Vec<Certificate>, Fault> {
    Certificate::from_pem_bundle(ca.unwrap_or_default()).map_err(|error| {
        Fault::failed(
            Code::InvalidArgument,
            format!("the certificates for hosts of bundles cannot be read: {error}"),
        )
    })
}

impl App {
    /// Fetches a bundle for `user` and keeps it as one that was uploaded. One that the user has already under `pin` is
    /// not fetched.
    pub(crate) fn fetch_bundle(
        &self,
        user: &str,
        url: &str,
        pin: Option<BundleHash>,
        signature: Option<&str>,
    ) -> Result<Arc<ReadyBundle>, BundleRefusal> {
        if let Some(pin) = pin
            && self.owners.has_bundle(user, &pin.to_string())?
        {
            return Ok(self.bundle(user, pin)?);
        }
        let address = BundleAddress::parse(url)?;
        let runtime = tokio::runtime::Handle::current();
        let source = runtime.block_on(self.fetch(&address))?;
        if let Some(pin) = pin
            && BundleHash::of(&source) != pin
        {
            let message = format!(
                "the bundle at {} is not the one of `bundleSha256`",
                address.shown()
            );
            return Err(Fault::failed(Code::DigestMismatch, message)
                .remedy("look what has changed there, then send the hash of what is meant")
                .into());
        }
        let language = Language::of_file(address.url.path());
        self.put_bundle(user, &source, language, signature)
    }

    async fn fetch(&self, address: &BundleAddress) -> Result<Vec<u8>, Fault> {
        let config = &self.config.bundles;
        let refused = |message: String, remedy: &str| {
            Fault::refused(Code::PermissionDenied, message).remedy(remedy)
        };
        let (host, port) = (&address.host, address.port);
        let policy = policy(&config.hosts)?;
        let rule = policy.decide(host, port).map_err(|_| {
            refused(
                format!("bundles are not fetched from {host}:{port}"),
                "upload the bundle with PUT /api/bundles; whoever runs the server lists hosts with --bundle-host",
            )
        })?;
        // Looked up once: what was checked is what is connected to.
        let resolver = Resolver::new(Arc::new(SystemResolver));
        let found = resolver
            .targets(host, rule)
            .await
            .map_err(|error| match error {
                ResolveError::Forbidden => refused(
                    format!("{host} leads to a private address"),
                    "whoever runs the server allows that with --bundle-host HOST=private",
                ),
                ResolveError::Unknown => {
                    Fault::failed(Code::Unavailable, format!("{host} has no address")).retryable()
                }
                ResolveError::NoAnswer => Fault::failed(
                    Code::Unavailable,
                    format!("this machine's resolver said nothing about {host} in time"),
                )
                .retryable(),
            })?;
        let targets: Vec<SocketAddr> = found
            .into_iter()
            .map(|ip| SocketAddr::new(ip, port))
            .collect();
        let client = client(address, &targets, certificates(config.ca.as_deref())?)?;
        let reading = async {
            let response = client.get(address.url.clone()).send().await?;
            let status = response.status();
            Ok::<_, reqwest::Error>((status, read(response).await?))
        };
        let failed = |reason: &str| {
            let message = format!(
                "the bundle at {} could not be fetched: {reason}",
                address.shown()
            );
            Fault::failed(Code::Unavailable, message).retryable()
        };
        match reading.await {
            Err(error) if error.is_timeout() => {
                let message = format!("the bundle at {} took too long", address.shown());
                Err(Fault::failed(Code::TimedOut, message).retryable())
            }
            Err(error) => Err(failed(&reason(&error))),
            Ok((StatusCode::OK, Some(source))) => Ok(source),
            Ok((StatusCode::OK, None)) => {
                let message = format!(
                    "the bundle at {} has more than {MAX_SOURCE_BYTES} bytes",
                    address.shown()
                );
                Err(Fault::failed(Code::TooLarge, message))
            }
            Ok((status, _)) if status.is_redirection() => Err(refused(
                format!(
                    "the server at {} leads elsewhere, which is not followed",
                    address.shown()
                ),
                "send the address of the bundle itself",
            )),
            Ok((status, _)) => Err(failed(&format!("the server answered {status}"))),
        }
    }
}

/// The innermost reason of an error, made safe to show.
fn reason(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    escape_text(&last.to_string())
}

fn client(
    address: &BundleAddress,
    targets: &[SocketAddr],
    ca: Vec<Certificate>,
) -> Result<Client, Fault> {
    // Whoever was first has made the same choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .no_proxy()
        .https_only(true)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_WAIT)
        .timeout(TOTAL_WAIT)
        .resolve_to_addrs(address.url.host_str().unwrap_or_default(), targets)
        .tls_certs_merge(ca);
    client.build().map_err(|error| {
        Fault::failed(
            Code::Unavailable,
            format!("connections cannot be made: {}", reason(&error)),
        )
    })
}

// TRUST: a server may send without end.
async fn read(mut response: reqwest::Response) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut source = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if source.len() + piece.len() > MAX_SOURCE_BYTES {
            return Ok(None);
        }
        source.extend_from_slice(&piece);
    }
    Ok(Some(source))
}

/// Where a bundle is.
#[derive(Debug)]
struct BundleAddress {
    url: Url,
    host: Host,
    port: u16,
}

impl BundleAddress {
    fn parse(text: &str) -> Result<Self, Fault> {
        let wrong = |reason: String| {
            Fault::failed(Code::InvalidArgument, format!("`bundleUrl` {reason}"))
                .remedy("send an address such as https://cdn.example.com/agents.js")
        };
        if text.len() > MAX_URL_BYTES {
            return Err(wrong(format!("has more than {MAX_URL_BYTES} bytes")));
        }
        let url = Url::parse(text).map_err(|error| wrong(format!("is no address: {error}")))?;
        if url.scheme() != "https" {
            return Err(wrong("does not begin with https".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("has a user in it".to_owned()));
        }
        let name = url.host_str().unwrap_or_default();
        let host = Host::parse(name)
            .map_err(|error| wrong(format!("has no host that can be asked: {error}")))?;
        let port = url.port().unwrap_or(443);
        Ok(Self { url, host, port })
    }

    /// Without its query, which may hold a secret.
    fn shown(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        escape_text(url.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_https_addresses_are_taken() {
        for text in [
            "http://a.example/x.js",
            "file:///etc/passwd",
            "https://ann:pw@a.example/x.js",
            "//a.example/x",
            "x.js",
            "",
        ] {
            assert!(BundleAddress::parse(text).is_err(), "{text}");
        }
        let address = BundleAddress::parse("https://A.example:8443/x.ts?token=secret#f").unwrap();
        assert_eq!(
            (address.port, address.host.to_string()),
            (8443, "a.example".to_owned())
        );
        assert_eq!(address.shown(), "https://a.example:8443/x.ts");
        // However an address is spelt, it is the one that is checked.
        for spelt in [
            "https://0x7f.1/",
            "https://2130706433/",
            "https://127.1/",
            "https://0177.0.0.1/",
        ] {
            let address = BundleAddress::parse(spelt).unwrap();
            assert_eq!(address.host.to_string(), "127.0.0.1", "{spelt}");
        }
    }
}
