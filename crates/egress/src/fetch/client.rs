//! One request to one host. The policy decides, the name is looked up once, its addresses are checked, and those that
//! were checked are the only ones that the connection can go to.

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

/// How long a server may take to be connected to.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Most headers of an answer.
const MAX_HEADERS: usize = 100;
/// Names and values of all of them, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Makes requests to the hosts of a policy.
#[derive(Debug, Clone)]
pub struct FetchClient {
    policy: Arc<Policy>,
    common: Arc<ClientCommon>,
}

/// What clients have together, whatever their policies are.
#[derive(Debug)]
struct ClientCommon {
    resolver: Resolver,
    authorities: Vec<CertificateDer<'static>>,
    /// Made for the first server that speaks TLS: it reads the certificates of this machine.
    tls: OnceLock<Result<ClientConfig, String>>,
}

/// The certificates that were given cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificates cannot be read: {0}")]
pub struct CertificateError(String);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchAnswer {
    /// Where it came from in the end.
    pub url: Url,
    /// How many answers led there.
    pub hops: u32,
    /// Status of HTTP.
    pub status: u16,
    /// The word for it, which may be empty.
    pub status_text: String,
    /// Names in small letters, and values with one character a byte.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// What an answer may have, and who is told of what passes.
pub(crate) struct AnswerBounds<'a> {
    /// Bytes of its body.
    pub(crate) max_bytes: usize,
    /// When it has to be there.
    pub(crate) until: std::time::Instant,
    /// Told of each piece of a body as it arrives; an error ends the request.
    pub(crate) count: &'a (dyn Fn(usize) -> Result<(), FetchError> + Sync),
    /// Counts the body of the request when it goes out.
    pub(crate) sent: &'a Arc<ByteCounts>,
}

impl FetchClient {
    /// One for these hosts. `authorities` are certificates (PEM) that are believed besides those of this machine.
    ///
    /// # Errors
    /// When they are none.
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

    /// One for other hosts, with the same certificates and the same memory of what was looked up.
    #[must_use]
    pub fn with_policy(&self, policy: Arc<Policy>) -> Self {
        Self {
            policy,
            common: Arc::clone(&self.common),
        }
    }

    /// The hosts.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Makes one request, and takes a body of at most `max_bytes`. An answer that leads elsewhere is the answer.
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

    /// The same, with each piece of the body counted.
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
        // TRUST: a server may announce less than it sends, and may send without end.
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

    /// The addresses that the connection may go to.
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

    /// A client that can connect to these addresses only, whatever it is asked for.
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
            // Nothing is decoded: what is counted is what arrives. Other users of the library may want these.
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
        // Without TLS nothing is checked with certificates, and a machine that has none is fine.
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

/// A configuration that trusts nobody, for requests without TLS.
fn plain() -> Result<ClientConfig, String> {
    crate::outward::tls_client::config(rustls::RootCertStore::empty())
        .map_err(|error| error.to_string())
}

/// Answers every question with the addresses that were checked. A name that a client has read otherwise than the policy
/// leads there as well, and nowhere else.
#[derive(Debug)]
struct CheckedAddresses(Vec<SocketAddr>);

impl reqwest::dns::Resolve for CheckedAddresses {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// Status and headers, unless there are too many of them.
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

/// The innermost reason of an error, made safe to show.
fn shown_reason(error: &reqwest::Error) -> String {
    escape_text(&innermost(error))
}
