//! Client for one request to one host.
//!
//! The policy decides about the host, the name is looked up once and its addresses are checked. The
//! connection can go to the checked addresses only.

use crate::fetch::error::FetchError;
use crate::fetch::request::FetchRequest;
use crate::fetch::sent_body::SentBody;
use crate::innermost::innermost;
use crate::outward::resolve::{Resolve, ResolveError, Resolver};
use crate::policy::Policy;
use crate::policy::name::Host;
use crate::record::traffic::ByteCounts;
use glovebox_proto::EgressReason;
use glovebox_proto::visible::line_of_text as escape_text;
use http::header::{ACCEPT, HeaderValue};
use reqwest::dns::{Addrs, Name, Resolving};
use reqwest::{Body, Client, Response, Url};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::Verifier;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum time to connect to a server.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Maximum number of headers of a response.
const MAX_HEADERS: usize = 100;
/// Maximum size of the names and values of all headers of a response, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// HTTP client that makes requests to the hosts of one policy.
#[derive(Debug, Clone)]
pub struct FetchClient {
    policy: Arc<Policy>,
    common: Arc<ClientCommon>,
}

/// Resolver and certificates that clients with different policies share.
#[derive(Debug)]
struct ClientCommon {
    resolver: Resolver,
    authorities: Vec<CertificateDer<'static>>,
    /// TLS configuration, or the error of making it. Initialized by the first `https` request,
    /// because it reads the certificates of this machine.
    tls: OnceLock<Result<ClientConfig, String>>,
}

/// The given certificates could not be parsed. Holds the error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificates cannot be read: {0}")]
pub struct CertificateError(String);

/// Response of a server, completely received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchAnswer {
    /// URL that the response came from, after redirects.
    pub url: Url,
    /// Number of redirects that were followed.
    pub hops: u32,
    /// HTTP status code.
    pub status: u16,
    /// Reason phrase of the status; may be empty.
    pub status_text: String,
    /// Names in lower case, and values with one character for each byte.
    pub headers: Vec<(String, String)>,
    /// Body, not decoded.
    pub body: Vec<u8>,
}

/// Bounds of one response, and the counters of transferred bytes.
pub(crate) struct AnswerBounds<'a> {
    /// Maximum size of the body, in bytes.
    pub(crate) max_bytes: usize,
    /// Time by which the response must be complete.
    pub(crate) until: std::time::Instant,
    /// Receives the length of each piece of the body as it arrives. An error aborts the request.
    pub(crate) count: &'a (dyn Fn(usize) -> Result<(), FetchError> + Sync),
    /// Counters that the body of the request is added to when it is sent.
    pub(crate) sent: &'a Arc<ByteCounts>,
}

impl FetchClient {
    /// Creates a client for the hosts of `policy`. `authorities` are certificates (PEM) that are
    /// trusted in addition to those of this machine.
    ///
    /// # Errors
    /// [`CertificateError`] if `authorities` cannot be parsed.
    pub fn new(
        policy: Policy,
        resolve: Arc<dyn Resolve>,
        authorities: &[u8],
    ) -> Result<Self, CertificateError> {
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authorities).collect();
        Ok(Self {
            policy: Arc::new(policy),
            common: Arc::new(ClientCommon {
                resolver: Resolver::new(resolve),
                authorities: authorities.map_err(|error| CertificateError(error.to_string()))?,
                tls: OnceLock::new(),
            }),
        })
    }

    /// Returns a client with another policy that shares the certificates and the cache of resolved
    /// names.
    #[must_use]
    pub fn with_policy(&self, policy: Arc<Policy>) -> Self {
        Self {
            policy,
            common: Arc::clone(&self.common),
        }
    }

    /// Returns the policy that decides about hosts.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Makes one request and returns a response with a body of at most `max_bytes`. Redirects are
    /// not followed: the redirect itself is returned.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn send(
        &self,
        request: &FetchRequest,
        max_bytes: usize,
        until: std::time::Instant,
    ) -> Result<FetchAnswer, FetchError> {
        let bounds = AnswerBounds {
            max_bytes,
            until,
            count: &|_| Ok(()),
            sent: &Arc::default(),
        };
        self.send_within(request, &bounds).await
    }

    /// Makes one request like [`Self::send`], and reports each piece of the body to `bounds`.
    pub(crate) async fn send_within(
        &self,
        request: &FetchRequest,
        bounds: &AnswerBounds<'_>,
    ) -> Result<FetchAnswer, FetchError> {
        let (host, port) = request.target()?;
        let asking = self.ask(request, &host, port, bounds);
        timeout_at(Instant::from_std(bounds.until), asking)
            .await
            .unwrap_or_else(|_| {
                Err(FetchError::TimedOut {
                    host: host.clone(),
                    port,
                })
            })
    }

    async fn ask(
        &self,
        request: &FetchRequest,
        host: &Host,
        port: u16,
        bounds: &AnswerBounds<'_>,
    ) -> Result<FetchAnswer, FetchError> {
        let failed = |reason: String| FetchError::Failed {
            host: host.clone(),
            port,
            reason,
        };
        let told = |error: &reqwest::Error| {
            if error.is_timeout() && !error.is_connect() {
                return FetchError::TimedOut {
                    host: host.clone(),
                    port,
                };
            }
            failed(shown_reason(error))
        };
        let addresses = self.addresses(host, port).await?;
        let client = self.client(request, &addresses, port).map_err(failed)?;
        let mut asked = client
            .request(request.method.clone(), request.url.clone())
            .headers(request.headers.clone());
        if !request.headers.contains_key(ACCEPT) {
            asked = asked.header(ACCEPT, HeaderValue::from_static("*/*"));
        }
        if !request.body.is_empty() {
            let body = SentBody::new(request.body.clone(), Arc::clone(bounds.sent));
            asked = asked.body(Body::wrap(body));
        }
        let mut response = asked.send().await.map_err(|error| told(&error))?;
        let too_large = |part, max_bytes| FetchError::TooLarge {
            host: host.clone(),
            port,
            part,
            max_bytes,
        };
        let head = head_of(&response).ok_or_else(|| too_large("head", MAX_HEAD_BYTES))?;
        // TRUST: a server may announce less than it sends, and may send without end. Each piece is
        // counted before the size is checked, so that a body that is too large is charged as well.
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| told(&error))? {
            let counted = (bounds.count)(piece.len());
            if body.len() + piece.len() > bounds.max_bytes {
                return Err(too_large("body", bounds.max_bytes));
            }
            counted?;
            body.extend_from_slice(&piece);
        }
        Ok(FetchAnswer { body, ..head })
    }

    /// Returns the addresses that the connection may go to.
    async fn addresses(&self, host: &Host, port: u16) -> Result<Vec<IpAddr>, FetchError> {
        let refused = |reason| FetchError::Refused {
            host: host.clone(),
            port,
            reason,
        };
        let failed = |reason: &str| FetchError::Failed {
            host: host.clone(),
            port,
            reason: reason.to_owned(),
        };
        let rule = self.policy.decide(host, port).map_err(refused)?;
        self.common
            .resolver
            .targets(host, rule)
            .await
            .map_err(|error| match error {
                ResolveError::Forbidden => refused(EgressReason::Private),
                ResolveError::Unknown => failed("the name does not resolve"),
                ResolveError::NoAnswer => failed("this machine's resolver did not answer in time"),
            })
    }

    /// Builds an HTTP client that can connect to `addresses` only, independent of the request's
    /// URL.
    fn client(
        &self,
        request: &FetchRequest,
        addresses: &[IpAddr],
        port: u16,
    ) -> Result<Client, String> {
        let targets = addresses
            .iter()
            .map(|address| SocketAddr::new(*address, port));
        let mut builder = Client::builder()
            .no_proxy()
            .http1_only()
            .http1_max_headers(MAX_HEADERS)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            // Bodies are not decoded, so that the counted bytes are those that arrive. The decoders
            // are disabled here because another crate of the build may enable these features of the
            // library.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_WAIT)
            .dns_resolver(Arc::new(CheckedAddresses(targets.collect())));
        let is_tls = request.url.scheme() == "https";
        if is_tls {
            builder = builder.https_only(true);
        }
        // A request without TLS uses an empty certificate store, so that it works on a machine
        // without certificates.
        let tls = if is_tls { self.tls()? } else { plain()? };
        builder
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|error| shown_reason(&error))
    }

    fn tls(&self) -> Result<ClientConfig, String> {
        let make = || {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = Verifier::new_with_extra_roots(
                self.common.authorities.iter().cloned(),
                Arc::clone(&provider),
            )?;
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth();
            Ok(config)
        };
        let made = self.common.tls.get_or_init(|| {
            make().map_err(|error: rustls::Error| {
                escape_text(&format!("no TLS can be spoken here: {error}"))
            })
        });
        made.clone()
    }
}

/// Returns a TLS configuration that trusts no certificate, for requests without TLS.
fn plain() -> Result<ClientConfig, String> {
    crate::outward::tls_client::config(rustls::RootCertStore::empty())
        .map_err(|error| error.to_string())
}

/// DNS resolver that returns the checked addresses for every name. If the HTTP client parses the
/// host of a URL differently than the policy, it still connects to these addresses only.
#[derive(Debug)]
struct CheckedAddresses(Vec<SocketAddr>);

impl reqwest::dns::Resolve for CheckedAddresses {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// Returns status and headers with an empty body, or `None` if the headers exceed
/// [`MAX_HEAD_BYTES`].
fn head_of(response: &Response) -> Option<FetchAnswer> {
    let headers = response.headers();
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if bytes > MAX_HEAD_BYTES {
        return None;
    }
    let text = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| char::from(*byte))
            .collect::<String>()
    };
    let status = response.status();
    let given = response.extensions().get::<hyper::ext::ReasonPhrase>();
    Some(FetchAnswer {
        url: response.url().clone(),
        hops: 0,
        status: status.as_u16(),
        status_text: match given {
            Some(given) => text(given.as_bytes()),
            None => status.canonical_reason().unwrap_or_default().to_owned(),
        },
        headers: headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
            .collect(),
        body: Vec::new(),
    })
}

/// Returns the innermost cause of an error, escaped for display.
fn shown_reason(error: &reqwest::Error) -> String {
    escape_text(&innermost(error))
}
