//! Bundles that a request names by URL. They are fetched over TLS from listed hosts, without
//! following redirects, and never from a private address unless the operator listed it as private.

use super::App;
use super::bundles::{BundleRefusal, ReadyBundle};
use crate::config::BundleConfig;
use glovebox_bundle::{Language, MAX_SOURCE_BYTES};
use glovebox_egress::{FetchClient, FetchError, FetchRequest, Host, Policy, SystemResolver};
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{AdvicePart, Code, EgressReason, Fault, Remedy, Setting};
use glovebox_session::bundle::BundleHash;
use reqwest::Url;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TOTAL_WAIT: Duration = Duration::from_secs(15);
const MAX_URL_BYTES: usize = 2048;

/// Creates the client that fetches bundles from the hosts that the operator lists.
///
/// # Errors
/// `invalid-argument` if a host or a certificate authority of the configuration is invalid.
pub(super) fn client(config: &BundleConfig) -> Result<FetchClient, Fault> {
    let wrong = |message: String| Fault::failed(Code::InvalidArgument, message);
    let policy = Policy::new(&config.hosts, &[]).map_err(|error| {
        wrong(format!("a host for bundles is wrong: {error}")).remedy(
            "list hosts as `cdn.example.com`, with `=private` behind for one at a private address",
        )
    })?;
    let authorities = config.ca.as_deref().unwrap_or_default();
    FetchClient::new(policy, Arc::new(SystemResolver), authorities)
        .map_err(|error| wrong(format!("for hosts of bundles: {error}")))
}

impl App {
    /// Fetches a bundle for `user` and stores it like an upload.
    ///
    /// A bundle that the user already has under `pin` is not fetched, unless its stored signature
    /// is missing or no longer accepted and this request brings one.
    pub(crate) fn fetch_bundle(
        &self,
        user: &str,
        url: &str,
        pin: Option<BundleHash>,
        signature: Option<&str>,
    ) -> Result<Arc<ReadyBundle>, BundleRefusal> {
        if let Some(pin) = pin
            && self.owners.bundle(user, &pin.to_string())?.is_some()
        {
            match self.bundle(user, pin) {
                Err(fault) if fault.code == Code::Unsigned && signature.is_some() => {}
                found => return Ok(found?),
            }
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
        let refused = |message: String, remedy: Remedy| {
            Fault::refused(Code::PermissionDenied, message).remedy(remedy)
        };
        let unavailable = |reason: &str| {
            let message = format!(
                "the bundle at {} could not be fetched: {reason}",
                address.shown()
            );
            Fault::failed(Code::Unavailable, message).retryable()
        };
        let client = &self.bundles.url_client;
        let request = FetchRequest::get(address.url.clone());
        let until = Instant::now() + TOTAL_WAIT;
        match client.send(&request, MAX_SOURCE_BYTES, until).await {
            Ok(answer) if answer.status == 200 => Ok(answer.body),
            Ok(answer) if (300..400).contains(&answer.status) => Err(refused(
                format!(
                    "the server at {} leads elsewhere, which is not followed",
                    address.shown()
                ),
                "send the address of the bundle itself".into(),
            )),
            Ok(answer) => Err(unavailable(&format!(
                "the server answered {}",
                answer.status
            ))),
            Err(FetchError::Refused {
                host,
                reason: EgressReason::Private,
                ..
            }) => Err(refused(
                format!("{host} leads to a private address"),
                host_is_listed("whoever runs the server allows it: ", "HOST=private"),
            )),
            Err(FetchError::Refused { host, port, .. }) => Err(refused(
                format!("bundles are not fetched from {host}:{port}"),
                host_is_listed(
                    "upload the bundle with PUT /api/bundles; whoever runs the server lists hosts: ",
                    "HOST",
                ),
            )),
            Err(FetchError::TimedOut { .. }) => {
                let message = format!("the bundle at {} took too long", address.shown());
                Err(Fault::failed(Code::TimedOut, message).retryable())
            }
            Err(FetchError::TooLarge { .. }) => {
                let message = format!(
                    "the bundle at {} has more than {MAX_SOURCE_BYTES} bytes",
                    address.shown()
                );
                Err(Fault::failed(Code::TooLarge, message))
            }
            Err(FetchError::Failed { reason, .. }) => Err(unavailable(&reason)),
            Err(error) => Err(unavailable(&error.to_string())),
        }
    }
}

/// Returns the advice to list a host, after the text `words`.
fn host_is_listed(words: &str, host: &str) -> Remedy {
    Remedy::advice([
        words.into(),
        AdvicePart::command("glovebox serve", Setting::BundleHost, Some(host)),
    ])
}

/// Validated URL of a bundle.
#[derive(Debug)]
struct BundleAddress {
    url: Url,
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
        Host::parse(name)
            .map_err(|error| wrong(format!("has no host that can be asked: {error}")))?;
        Ok(Self { url })
    }

    /// Returns the URL without its query, which may hold a secret, and without its fragment.
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
        assert_eq!(address.shown(), "https://a.example:8443/x.ts");
    }
}
