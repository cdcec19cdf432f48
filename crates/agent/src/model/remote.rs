//! Model behind a provider's server, over HTTP.

use super::wire::sse::{Event, Events};
use super::wire::{self, DecodedAnswer, Progress, refusal};
use super::{
    AnswerFuture, Delta, Model, ModelError, ModelName, OnDelta, Prompt, ProviderAccess, RetryPolicy,
};
use crate::{ModelAnswer, Secrets, WireFormat, written_call};
use futures_util::StreamExt;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Response, Url};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum time until the headers of an answer arrive.
const HEADER_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum time between two packets of an answer. Reasoning can take long; servers send pings
/// meanwhile.
const READ_TIMEOUT: Duration = Duration::from_mins(3);
/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum silence after the stop reason, while the token counts may still follow.
const SILENCE_AFTER_STOP: Duration = Duration::from_secs(10);
/// Maximum size of an answer; larger than any model's.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Maximum size of the body of a refusal that is read.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// Number of answers without a stop reason from which on the server is taken to send none.
const ANSWERS_WITHOUT_REASON: u32 = 2;

/// Model behind a server.
#[derive(Debug)]
pub struct RemoteModel {
    name: ModelName,
    format: WireFormat,
    url: Url,
    headers: HeaderMap,
    client: reqwest::Client,
    secrets: Secrets,
    retry: RetryPolicy,
    /// Maximum silence after the stop reason, while the token counts may still follow.
    silence_after_stop: Duration,
    /// Number of answers without a stop reason so far.
    without_reason: AtomicU32,
}

impl RemoteModel {
    /// Prepares requests to the model `name` through `access`. `secrets` are removed from every
    /// error and delta.
    ///
    /// # Errors
    /// If the provider's own server has no key, or the address or key cannot be used.
    pub fn new(
        name: ModelName,
        access: &ProviderAccess,
        secrets: Secrets,
        retry: RetryPolicy,
    ) -> Result<Self, ModelError> {
        if access.key.is_none() && !access.is_custom {
            return Err(
                ModelError::lasting(format!("there is no key for `{name}`")).remedy(format!(
                    "set {}, or {} for a server of your own",
                    name.provider.key_variables().join(" or "),
                    name.provider.base_variable()
                )),
            );
        }
        let format = WireFormat::of_provider(name.provider);
        Ok(Self {
            url: request_url(&access.base_url, format, &name.name).map_err(|error| {
                error.remedy(format!("correct {}", name.provider.base_variable()))
            })?,
            headers: request_headers(access, format)?,
            client: http_client(&access.base_url)?,
            format,
            name,
            secrets,
            retry,
            silence_after_stop: SILENCE_AFTER_STOP,
            without_reason: AtomicU32::new(0),
        })
    }

    /// Changes the maximum silence after the stop reason, in place of 10 s.
    #[must_use]
    pub const fn silence_after_stop(mut self, silence: Duration) -> Self {
        self.silence_after_stop = silence;
        self
    }

    async fn attempt(
        &self,
        prompt: &Prompt<'_>,
        on_delta: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let response = self.send(prompt).await?;
        let body = response.bytes_stream();
        // The timeout counts packets and not events: a comment in the stream is a sign of life.
        let body = futures_util::stream::unfold(Some(Box::pin(body)), |body| async {
            let mut body = body?;
            match timeout(READ_TIMEOUT, body.next()).await {
                Ok(packet) => Some((packet?.map_err(std::io::Error::other), Some(body))),
                Err(_) => Some((
                    Err(std::io::Error::other("it was silent for 3 minutes")),
                    None,
                )),
            }
        });
        let mut events = Events::open(body).await?;
        let mut decoder = self.format.decoder();
        let mut deltas = Vec::new();
        while let Some(event) = self.next_event(&mut events, decoder.progress()).await? {
            decoder.feed(&event.name, &event.data, &mut deltas)?;
            for delta in deltas.drain(..) {
                on_delta(self.cleaned(delta));
            }
            // TRUST: a server may never end its answer.
            if decoder.size() > MAX_ANSWER_BYTES {
                return Err(ModelError::lasting(
                    "the model's answer has more than 16 MiB and was given up",
                ));
            }
            if decoder.progress() == Progress::Over {
                break;
            }
        }
        events.check_any()?;
        self.accept(decoder.end()?, prompt)
    }

    /// Returns the next event; `None` at the end of the answer.
    async fn next_event(
        &self,
        events: &mut Events<'_>,
        progress: Progress,
    ) -> Result<Option<Event>, ModelError> {
        if progress == Progress::Open {
            return events.next().await;
        }
        match timeout(self.silence_after_stop, events.next()).await {
            // The model's answer is complete. Only the token counts can be missing.
            Ok(Err(_)) | Err(_) => Ok(None),
            Ok(event) => event,
        }
    }

    async fn send(&self, prompt: &Prompt<'_>) -> Result<Response, ModelError> {
        let until = Instant::now() + HEADER_TIMEOUT;
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .json(&self.format.encode(prompt, &self.name.name));
        let sent = timeout_at(until, request.send()).await;
        let sent = sent.map_err(|_| refusal::connection("no answer came within 2 minutes"))?;
        let mut response = sent.map_err(|error| refusal::connection(&refusal::deepest(&error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            let variable = self.name.provider.base_variable();
            return Err(refusal::redirect(
                status.as_u16(),
                response.headers(),
                variable,
            ));
        }
        // TRUST: a refusal may have any length and never end.
        let mut body = Vec::new();
        while body.len() < MAX_REFUSAL_BYTES
            && let Ok(Ok(Some(piece))) = timeout_at(until, response.chunk()).await
        {
            body.extend_from_slice(&piece);
        }
        let body = String::from_utf8_lossy(&body);
        Err(refusal::refused(status.as_u16(), &body, response.headers()))
    }

    /// Accepts an answer without a stop reason only if the server has the habit of sending none,
    /// and refuses one that claims a call but has none.
    fn accept(
        &self,
        decoded: DecodedAnswer,
        prompt: &Prompt<'_>,
    ) -> Result<ModelAnswer, ModelError> {
        let answer = decoded.answer;
        if decoded.lacks_reason {
            let known = self.without_reason.load(Ordering::Relaxed);
            if known + 1 < ANSWERS_WITHOUT_REASON {
                self.without_reason.store(known + 1, Ordering::Relaxed);
                return Err(wire::without_reason());
            }
        }
        if decoded.claims_calls
            && answer.calls().is_empty()
            && written_call::find(&answer.text(), prompt.tools).is_none()
        {
            return Err(ModelError::passing(
                "the model server says that the model calls a tool, and sent no call",
            ));
        }
        Ok(answer)
    }

    fn cleaned(&self, delta: Delta) -> Delta {
        match delta {
            Delta::Text(text) => Delta::Text(self.secrets.clean(text)),
            Delta::Reasoning(text) => Delta::Reasoning(self.secrets.clean(text)),
            other => other,
        }
    }

    async fn persist(
        &self,
        prompt: Prompt<'_>,
        on_delta: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let mut attempt = 1;
        loop {
            let mut error = match self.attempt(&prompt, on_delta).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            error.message = self.secrets.clean(error.message);
            attempt += 1;
            let Some(wait) = self.retry.wait(attempt, &error) else {
                if let Some(asked) = error.retry_after {
                    let secs = asked.as_secs();
                    let _ = write!(error.message, "; it asks to wait {secs} s");
                }
                return Err(error);
            };
            on_delta(Delta::Retry {
                attempt,
                wait,
                reason: error.message,
            });
            tokio::time::sleep(wait).await;
        }
    }
}

impl Model for RemoteModel {
    fn label(&self) -> String {
        self.name.to_string()
    }

    fn answer<'a>(&'a self, prompt: Prompt<'a>, on_delta: OnDelta<'a>) -> AnswerFuture<'a> {
        Box::pin(self.persist(prompt, on_delta))
    }
}

/// Returns the address of requests. A query in the base address is kept.
fn request_url(base: &str, format: WireFormat, model: &str) -> Result<Url, ModelError> {
    let unusable =
        |error| ModelError::lasting(format!("the address `{base}` cannot be used: {error}"));
    let base_url = Url::parse(base).map_err(unusable)?;
    let mut url = base_url.join(&format.path(model)).map_err(unusable)?;
    url.set_query(base_url.query());
    if format == WireFormat::Gemini {
        url.query_pairs_mut().append_pair("alt", "sse");
    }
    Ok(url)
}

/// Returns the headers of requests: the key, and the version of the format.
fn request_headers(access: &ProviderAccess, format: WireFormat) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    if format == WireFormat::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    if let Some(key) = &access.key {
        let (name, value) = match format {
            WireFormat::Anthropic => ("x-api-key", key.expose().to_owned()),
            WireFormat::Gemini => ("x-goog-api-key", key.expose().to_owned()),
            WireFormat::Chat | WireFormat::Responses => {
                ("authorization", format!("Bearer {}", key.expose()))
            }
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            ModelError::lasting("the key has characters that cannot be sent, such as a line end")
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Returns true if the host of a URL is `localhost` or a loopback address.
fn is_loopback(url: &str) -> bool {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

/// Returns a client for the server at this address. It follows no redirects, and uses no proxy for
/// a loopback address.
///
/// # Errors
/// If the client cannot be created.
pub fn http_client(base_url: &str) -> Result<reqwest::Client, ModelError> {
    // Fails if a provider is installed already, which is always this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect would send the key to another server.
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(1);
    let builder = if is_loopback(base_url) {
        builder.no_proxy()
    } else {
        builder
    };
    builder.build().map_err(|error| {
        ModelError::lasting(format!("connections to servers cannot be made: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_is_left_out_for_loopback_addresses_only() {
        for (url, expected) in [
            ("http://localhost:11434/v1/", true),
            ("http://127.0.0.2/v1/", true),
            ("http://[::1]:8000/", true),
            ("https://localhost.example/v1/", false),
            ("https://127.0.0.1.example/", false),
            ("https://me@localhost/", true),
            ("https://localhost@example.org/", false),
            ("no address", false),
        ] {
            assert_eq!(is_loopback(url), expected, "{url}");
        }
    }
}
