//! Requests to the service: one connection pool, the token in its header, deadlines, and retries if
//! the service asks for them.

use crate::address::BaseUrl;
use crate::failure::{CallFailure, reason};
use crate::token::{self, TokenSource};
use glovebox_carrier::show_message;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Credential;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Method, Response, StatusCode};
use rustls::{ClientConfig, RootCertStore};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout_at};

/// Maximum time to connect to the service.
const CONNECT_WAIT: Duration = Duration::from_secs(15);
/// Maximum length of a body in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Maximum length of an error's body in bytes.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Pause before the first retry; doubled with each.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause, unless the service asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of attempts if the service or the connection fails.
const MAX_ATTEMPTS: u32 = 4;

/// Request to the service.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Operation in words, as in "cannot create the Sprite `x`".
    pub(crate) what: String,
    pub(crate) method: Method,
    /// Path below `v1/sprites`.
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<serde_json::Value>,
    /// True if the service may receive it twice without harm.
    pub(crate) is_repeatable: bool,
}

impl Call {
    pub(crate) fn new(method: Method, path: &[&str], what: impl Into<String>) -> Self {
        let is_repeatable = method != Method::POST;
        Self {
            what: what.into(),
            method,
            path: path.iter().map(|&segment| segment.to_owned()).collect(),
            query: Vec::new(),
            body: None,
            is_repeatable,
        }
    }

    pub(crate) fn body(mut self, body: serde_json::Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }
}

/// HTTP client of one service.
pub(crate) struct Http {
    client: reqwest::Client,
    base: BaseUrl,
    token: Mutex<Credential>,
    source: TokenSource,
}

impl Http {
    pub(crate) fn new(base: BaseUrl, source: TokenSource) -> Result<Self, Fault> {
        // Fails only if an earlier caller in this process has installed a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_WAIT)
            // A WebSocket needs an upgrade of HTTP/1.1; a server may choose HTTP/2 if that is
            // offered.
            .http1_only()
            // A redirect would send the token to another address.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("glovebox/", env!("CARGO_PKG_VERSION")));
        let builder = if base.is_loopback() {
            builder.no_proxy()
        } else {
            builder
        };
        let builder = if base.is_plain() {
            // Without TLS no certificate is checked, so the machine needs none.
            builder.tls_backend_preconfigured(trust_nobody()?)
        } else {
            builder
        };
        let client = builder.build().map_err(|error| {
            Fault::failed(
                Code::Io,
                format!(
                    "no connection to the service can be made here: {}",
                    reason(&error)
                ),
            )
        })?;
        Ok(Self {
            client,
            base,
            token: Mutex::new(source()?),
            source,
        })
    }

    pub(crate) fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn call(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<(StatusCode, Vec<u8>), CallFailure> {
        let mut patience = Patience::new(call, deadline);
        loop {
            match within(&call.what, deadline, self.exchange(call)).await? {
                Ok(answer) => return Ok(answer),
                Err(failure) => patience.wait(self, failure).await?,
            }
        }
    }

    async fn exchange(&self, call: &Call) -> Result<(StatusCode, Vec<u8>), CallFailure> {
        let mut response = self.send(call, HeaderMap::new()).await?;
        let status = response.status();
        let body = read_body(&mut response, MAX_BODY_BYTES)
            .await
            .map_err(|error| CallFailure::transport(&call.what, &error))?
            .ok_or_else(|| CallFailure::answer(&call.what, "the answer is too long"))?;
        Ok((status, body))
    }

    /// Sends a request and returns its response before the body has arrived.
    pub(crate) async fn open(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<Response, CallFailure> {
        let mut patience = Patience::new(call, deadline);
        loop {
            match within(&call.what, deadline, self.send(call, HeaderMap::new())).await? {
                Ok(response) => return Ok(response),
                Err(failure) => patience.wait(self, failure).await?,
            }
        }
    }

    /// Sends a request once, or twice if the token was refused and its source has a newer one.
    pub(crate) async fn open_once(
        &self,
        call: &Call,
        headers: &HeaderMap,
    ) -> Result<Response, CallFailure> {
        match self.send(call, headers.clone()).await {
            Err(failure) if failure.has_status(&[401, 403]) && self.renew_token() => {
                self.send(call, headers.clone()).await
            }
            outcome => outcome,
        }
    }

    /// Reads the token again. Returns false if it is the same, or cannot be read.
    fn renew_token(&self) -> bool {
        let Ok(newer) = (self.source)() else {
            return false;
        };
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = *token != newer;
        *token = newer;
        is_other
    }

    async fn send(&self, call: &Call, headers: HeaderMap) -> Result<Response, CallFailure> {
        let mut segments = vec!["v1", "sprites"];
        segments.extend(call.path.iter().map(String::as_str));
        let query: Vec<(&str, &str)> = call
            .query
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let token = token::header(&self.token.lock().unwrap_or_else(PoisonError::into_inner))?;
        let mut request = self
            .client
            .request(call.method.clone(), self.base.endpoint(&segments, &query))
            .headers(headers)
            .header(AUTHORIZATION, token);
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(|error| {
            let what = format!("{} at {}", call.what, self.base);
            CallFailure::transport(&what, &error.without_url())
        })?;
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let headers = response.headers().clone();
        // The status suffices if the body does not arrive or is too long.
        let body = match read_body(&mut response, MAX_ERROR_BYTES).await {
            Ok(Some(body)) => body,
            Ok(None) | Err(_) => Vec::new(),
        };
        Err(CallFailure::status(&call.what, status, &headers, &body))
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Http({})", self.base)
    }
}

/// Returns a TLS configuration without certificates, for an address without TLS.
fn trust_nobody() -> Result<ClientConfig, Fault> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::failed(Code::Internal, format!("no TLS can be set up: {error}")))?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Ok(config)
}

/// Remaining retries of one request.
struct Patience<'a> {
    call: &'a Call,
    deadline: Instant,
    attempts: u32,
    pause: Duration,
    has_renewed: bool,
}

impl<'a> Patience<'a> {
    fn new(call: &'a Call, deadline: Instant) -> Self {
        Self {
            call,
            deadline,
            attempts: 0,
            pause: FIRST_PAUSE,
            has_renewed: false,
        }
    }

    /// Waits until the request may be sent again. Returns the failure if it may not.
    async fn wait(&mut self, http: &Http, failure: CallFailure) -> Result<(), CallFailure> {
        self.attempts += 1;
        if failure.has_status(&[401, 403]) && !self.has_renewed && http.renew_token() {
            self.has_renewed = true;
            return Ok(());
        }
        let wait = match (failure.fault.code, failure.after) {
            // A request that was rate-limited has done nothing, so even one that is not repeatable
            // may be sent again.
            (Code::RateLimited, after) => after.unwrap_or(self.pause),
            _ if failure.is_passing()
                && self.call.is_repeatable
                && self.attempts < MAX_ATTEMPTS =>
            {
                self.pause
            }
            _ => return Err(failure),
        };
        if Instant::now() + wait >= self.deadline {
            return Err(failure);
        }
        sleep(wait).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Reads a body. None if it is longer than `max` bytes.
async fn read_body(response: &mut Response, max: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Waits for a step of a response, within the deadline.
pub(crate) async fn within<T>(
    what: &str,
    deadline: Instant,
    step: impl Future<Output = T>,
) -> Result<T, CallFailure> {
    timeout_at(deadline.into(), step)
        .await
        .map_err(|_| CallFailure::deadline(what))
}

/// Parses a response in JSON.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(
    what: &str,
    body: &[u8],
) -> Result<T, CallFailure> {
    serde_json::from_slice(body)
        .map_err(|error| CallFailure::answer(what, &show_message(error.to_string().as_bytes())))
}
