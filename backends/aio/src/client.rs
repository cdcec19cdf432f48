//! Requests to one AIO Sandbox.
//!
//! In: an endpoint and a body. Out: the data of the response, or the layer that failed. Responses
//! are untrusted: bounded before they are kept, decoded once, and their texts escaped before they
//! are displayed.

use crate::base_url::{BaseUrl, PrivateAddresses};
use crate::failure;
use crate::failure::ServiceError;
use crate::key::ApiKey;
use crate::wire::{
    Envelope, Exec, ExecResult, FileWrite, Kill, Output, ReadOutput, Sandbox, SessionInfo,
    WriteInput,
};
use glovebox_carrier::{ConnectFailure, runtime, show_message};
use glovebox_proto::{Code, Fault};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Method, Response};
use rustls::ClientConfig;
use rustls_platform_verifier::Verifier;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to wait for an ordinary response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a response in bytes. The output of a guest is at most what it may send without
/// an acknowledgement, as text.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// Maximum length of an error's body in bytes.
const MAX_ERROR_BYTES: usize = 16 << 10;

/// Client of one AIO Sandbox. Clones share connections and key.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    base: BaseUrl,
    key: Mutex<Option<ApiKey>>,
}

/// Request that can be sent again.
#[derive(Debug)]
struct Request {
    method: Method,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
    timeout: Duration,
}

impl Client {
    /// Creates a client; nothing is sent.
    ///
    /// # Errors
    /// `invalid-argument` for a key that cannot be sent, `io` if this machine cannot make
    /// connections.
    pub fn new(base: BaseUrl, key: Option<ApiKey>) -> Result<Self, Fault> {
        if let Some(key) = &key {
            key.header()?;
        }
        let unavailable = |error: &dyn Error| {
            Fault::failed(
                Code::Io,
                format!("cannot make connections: {}", innermost(error)),
            )
        };
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect would send the key to another address.
            .redirect(Policy::none())
            .referer(false)
            .tcp_nodelay(true)
            .tls_backend_preconfigured(tls_config(&base).map_err(|error| unavailable(&error))?);
        let builder = match (base.is_https(), base.is_loopback()) {
            (true, false) => builder.https_only(true),
            (true, true) => builder.https_only(true).no_proxy(),
            // Unencrypted requests must stay within the private network.
            (false, _) => builder.no_proxy().dns_resolver(Arc::new(PrivateAddresses)),
        };
        let http = builder.build().map_err(|error| unavailable(&error))?;
        let key = Mutex::new(key);
        Ok(Self(Arc::new(Inner { http, base, key })))
    }

    /// Returns the service's address.
    pub fn base_url(&self) -> &BaseUrl {
        &self.0.base
    }

    /// Returns the ids of all open sessions of commands.
    ///
    /// # Errors
    /// The failure of the request.
    pub fn list_sessions(&self, deadline: Instant) -> Result<Vec<String>, Fault> {
        let client = self.clone();
        self.block(deadline, async move { client.sessions().await })
    }

    /// Closes a session, which ends its commands. Succeeds if the session does not exist.
    ///
    /// # Errors
    /// The failure of the request.
    pub fn close_session(&self, id: &str, deadline: Instant) -> Result<(), Fault> {
        let (client, id) = (self.clone(), id.to_owned());
        self.block(deadline, async move {
            match client.close(&id).await {
                Err(ServiceError::Failed(_)) => Ok(()),
                Err(error) if error.is_absent() => Ok(()),
                other => other,
            }
        })
    }

    /// Runs a request on the connection thread and blocks until its response has arrived.
    pub(crate) fn block<T: Send + 'static>(
        &self,
        deadline: Instant,
        request: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
    ) -> Result<T, Fault> {
        match runtime::run_until(deadline, request)? {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(match error.into_failure(&self.0.base) {
                ConnectFailure::Retry { fault, .. } | ConnectFailure::Final(fault) => fault,
            }),
            None => Err(self.timed_out()),
        }
    }

    /// Creates the fault for a deadline that passed before the response.
    pub(crate) fn timed_out(&self) -> Fault {
        let base = &self.0.base;
        Fault::failed(
            Code::TimedOut,
            format!("AIO Sandbox at {base} did not answer in time"),
        )
        .retryable()
    }

    pub(crate) async fn describe(&self) -> Result<Sandbox, ServiceError> {
        let request = Request {
            method: Method::GET,
            path: "/v1/sandbox".to_owned(),
            content_type: "",
            body: Vec::new(),
            timeout: ANSWER_TIMEOUT,
        };
        let bytes = self.send(request).await?;
        let sandbox: Sandbox = decode(&bytes)?;
        if sandbox.success {
            return Ok(sandbox);
        }
        Err(ServiceError::Failed(
            self.show(&sandbox.message.unwrap_or_default()),
        ))
    }

    pub(crate) async fn exec(&self, request: &Exec<'_>) -> Result<ExecResult, ServiceError> {
        self.post("/v1/bash/exec", request, ANSWER_TIMEOUT).await
    }

    pub(crate) async fn output(&self, request: &ReadOutput<'_>) -> Result<Output, ServiceError> {
        let timeout = Duration::from_secs_f64(request.wait_timeout) + ANSWER_TIMEOUT;
        self.post("/v1/bash/output", request, timeout).await
    }

    pub(crate) async fn write(&self, request: &WriteInput<'_>) -> Result<(), ServiceError> {
        self.command("/v1/bash/write", request).await
    }

    pub(crate) async fn kill(&self, request: &Kill<'_>) -> Result<(), ServiceError> {
        self.command("/v1/bash/kill", request).await
    }

    pub(crate) async fn close(&self, session: &str) -> Result<(), ServiceError> {
        // TRUST: ids of sessions may come from a listing; only characters without meaning in a path
        // are sent.
        if !session
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        {
            return Err(ServiceError::Malformed(
                "an id of a session has special characters".to_owned(),
            ));
        }
        let path = format!("/v1/bash/sessions/{session}/close");
        let bytes = self
            .send(json_request(path, Vec::new(), ANSWER_TIMEOUT))
            .await?;
        self.envelope(&bytes).map(drop)
    }

    /// Closes a session that is no longer needed, in the background. If that fails, the session can
    /// be found by its name.
    pub(crate) fn close_later(&self, session: String) {
        let client = self.clone();
        tokio::spawn(async move { client.close(&session).await });
    }

    async fn sessions(&self) -> Result<Vec<String>, ServiceError> {
        let request = Request {
            method: Method::GET,
            ..json_request("/v1/bash/sessions".to_owned(), Vec::new(), ANSWER_TIMEOUT)
        };
        let bytes = self.send(request).await?;
        let sessions: Vec<SessionInfo> = self.data(&bytes)?;
        Ok(sessions
            .into_iter()
            .map(|session| session.session_id)
            .collect())
    }

    pub(crate) async fn write_file(&self, request: &FileWrite<'_>) -> Result<(), ServiceError> {
        self.command("/v1/file/write", request).await
    }

    /// Stores `bytes` as the file `path`, in one multipart request.
    pub(crate) async fn upload(
        &self,
        path: &str,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), ServiceError> {
        // The boundary cannot occur in the parts: it is random, and no part is chosen by others.
        let boundary = format!("glovebox-{}", glovebox_sandbox::random_hex());
        let mut body = Vec::with_capacity(bytes.len() + 512);
        let disposition = "Content-Disposition: form-data; name=";
        body.extend_from_slice(
            format!("--{boundary}\r\n{disposition}\"path\"\r\n\r\n{path}\r\n").as_bytes(),
        );
        body.extend_from_slice(
            format!(
                "--{boundary}\r\n{disposition}\"file\"; filename=\"upload\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n"
            )
            .as_bytes(),
        );
        body.extend_from_slice(bytes);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        let request = Request {
            method: Method::POST,
            path: "/v1/file/upload".to_owned(),
            content_type: "",
            body,
            timeout,
        };
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let answer = self.send_as(request, &content_type).await?;
        self.envelope(&answer).map(drop)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, ServiceError> {
        let bytes = self
            .send(json_request(path.to_owned(), encode(request)?, timeout))
            .await?;
        self.data(&bytes)
    }

    /// Sends a request whose response holds no data.
    async fn command(&self, path: &str, request: &impl Serialize) -> Result<(), ServiceError> {
        let request = json_request(path.to_owned(), encode(request)?, ANSWER_TIMEOUT);
        let bytes = self.send(request).await?;
        self.envelope(&bytes).map(drop)
    }

    fn data<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, ServiceError> {
        let envelope = self.envelope(bytes)?;
        decode(envelope.data.map_or("null", |data| data.get()).as_bytes())
    }

    fn envelope<'a>(&self, bytes: &'a [u8]) -> Result<Envelope<'a>, ServiceError> {
        let envelope: Envelope<'a> =
            serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
        if envelope.success {
            return Ok(envelope);
        }
        Err(ServiceError::Failed(
            self.show(&envelope.message.unwrap_or_default()),
        ))
    }

    async fn send(&self, request: Request) -> Result<Vec<u8>, ServiceError> {
        let content_type = request.content_type;
        self.send_as(request, content_type).await
    }

    async fn send_as(&self, request: Request, content_type: &str) -> Result<Vec<u8>, ServiceError> {
        let key = self.key();
        let first = self.send_once(&request, content_type, key.as_ref()).await;
        match (&first, key) {
            (Err(error), Some(key)) if error.is_refused_key() => match self.renew_key(&key) {
                Some(key) => self.send_once(&request, content_type, Some(&key)).await,
                None => first,
            },
            _ => first,
        }
    }

    async fn send_once(
        &self,
        request: &Request,
        content_type: &str,
        key: Option<&ApiKey>,
    ) -> Result<Vec<u8>, ServiceError> {
        let mut builder = self
            .0
            .http
            .request(request.method.clone(), self.0.base.endpoint(&request.path))
            .timeout(request.timeout);
        if !content_type.is_empty() {
            builder = builder.header(CONTENT_TYPE, content_type);
        }
        if let Some(key) = key {
            builder = builder.header(AUTHORIZATION, key.header().map_err(ServiceError::Local)?);
        }
        let response = builder
            .body(request.body.clone())
            .send()
            .await
            .map_err(|error| {
                let was_sent = !error.is_connect() && !error.is_builder();
                let reason = self.show(&innermost(&error.without_url()));
                if was_sent {
                    ServiceError::NoAnswer(reason)
                } else {
                    ServiceError::NotSent(reason)
                }
            })?;
        self.read_answer(response).await
    }

    async fn read_answer(&self, mut response: Response) -> Result<Vec<u8>, ServiceError> {
        let status = response.status();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let max = if status.is_success() {
            MAX_ANSWER_BYTES
        } else {
            MAX_ERROR_BYTES
        };
        let mut bytes = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if bytes.len() + chunk.len() > max => {
                    if status.is_success() {
                        return Err(ServiceError::Malformed(format!(
                            "it has more than {max} bytes"
                        )));
                    }
                    break;
                }
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Err(error) if status.is_success() => {
                    return Err(ServiceError::NoAnswer(
                        self.show(&innermost(&error.without_url())),
                    ));
                }
                // The status of a truncated error suffices.
                Ok(None) | Err(_) => break,
            }
        }
        if status.is_success() {
            return Ok(bytes);
        }
        if status.is_redirection() {
            return Err(ServiceError::Malformed(
                "it leads to another address".to_owned(),
            ));
        }
        let message = self.show(&error_message(&bytes));
        Err(ServiceError::Status {
            status: status.as_u16(),
            message,
            retry_after,
        })
    }

    fn key(&self) -> Option<ApiKey> {
        let key = self.0.key.lock().unwrap_or_else(PoisonError::into_inner);
        key.clone()
    }

    /// Returns a key other than the refused one: the one that a concurrent request has read, or the
    /// present content of the key's file. None if there is no other.
    fn renew_key(&self, refused: &ApiKey) -> Option<ApiKey> {
        let mut key = self.0.key.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key.as_mut()?;
        (!key.is_same(refused) || key.read_again()).then(|| key.clone())
    }

    /// Escapes a text from the service for display, and redacts the key.
    pub(crate) fn show(&self, text: &str) -> String {
        let key = self.key();
        let text = text.to_owned();
        let text = match key {
            Some(key) => key.redact(text),
            None => text,
        };
        show_message(text.as_bytes())
    }

    /// Creates a fault that names this service.
    pub(crate) fn carrier_failed(&self, what: &str) -> Fault {
        failure::carrier_failed(&self.0.base, what)
    }
}

fn json_request(path: String, body: Vec<u8>, timeout: Duration) -> Request {
    let content_type = if body.is_empty() {
        ""
    } else {
        "application/json"
    };
    Request {
        method: Method::POST,
        path,
        content_type,
        body,
        timeout,
    }
}

fn encode(request: &impl Serialize) -> Result<Vec<u8>, ServiceError> {
    serde_json::to_vec(request).map_err(|error| {
        ServiceError::Local(Fault::failed(
            Code::Internal,
            format!("cannot encode a request: {error}"),
        ))
    })
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ServiceError> {
    serde_json::from_slice(bytes).map_err(|error| malformed(&error))
}

/// Creates the error for a malformed response. The decoder's message may quote the response, so it
/// is escaped.
fn malformed(error: &serde_json::Error) -> ServiceError {
    ServiceError::Malformed(show_message(error.to_string().as_bytes()))
}

/// Returns the message of an error's body: `detail` as a text or a list, `message`, or the body
/// itself.
fn error_message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) else {
        // An HTML page, usually from a proxy, adds nothing to the status.
        return if text.trim_start().starts_with('<') {
            String::new()
        } else {
            text.into_owned()
        };
    };
    let of_list = value["detail"][0]["msg"].as_str();
    let words = value["detail"]
        .as_str()
        .or(of_list)
        .or(value["message"].as_str());
    words.map_or_else(String::new, ToOwned::to_owned)
}

/// Returns the innermost cause of an error.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn tls_config(base: &BaseUrl) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    // Without TLS no certificate is checked, so the machine needs none.
    if !base.is_https() {
        return Ok(builder
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth());
    }
    let verifier = Verifier::new(provider)?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}
