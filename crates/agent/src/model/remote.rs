//! A provider's server, asked over HTTP.

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
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Until a server begins to answer.
const HEADER_TIMEOUT: Duration = Duration::from_mins(2);
/// Between two pieces of an answer. Thoughts can take long, and are announced by pings.
const READ_TIMEOUT: Duration = Duration::from_mins(3);
/// Until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long counts may follow after the word that says why the model stopped.
const SILENCE_AFTER_STOP: Duration = Duration::from_secs(10);
/// More than any model says at once.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Of a refusal.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// Answers in a row without a reason for their end, from which on a server is taken to give none.
const ANSWERS_WITHOUT_REASON: u32 = 2;

/// A model behind a server.
#[derive(Debug)]
pub struct RemoteModel {
    name: ModelName,
    format: WireFormat,
    url: Url,
    headers: HeaderMap,
    client: reqwest::Client,
    secrets: Secrets,
    retry: RetryPolicy,
    /// How long counts are waited for after the word that says why the model stopped.
    silence_after_stop: Duration,
    /// Answers in a row that ended without a reason.
    without_reason: AtomicU32,
}

impl RemoteModel {
    /// Prepares to ask `name` through `access`. `secrets` are taken out of every failure.
    ///
    /// # Errors
    /// Without a key for a provider's own server, and when no connection can be prepared.
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

    /// Changes how long counts are waited for after the word that says why the model stopped.
    #[must_use]
    pub const fn silence_after_stop(mut self, silence: Duration) -> Self {
        self.silence_after_stop = silence;
        self
    }

    /// One attempt.
    async fn attempt(
        &self,
        prompt: &Prompt<'_>,
        on_delta: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let response = self.send(prompt).await?;
        let body = response.bytes_stream();
        // Comments are signs of life, so that bytes count and not events.
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
            // TRUST: a server may go on for ever.
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

    /// The next event; `None` at the end of the answer.
    async fn next_event(
        &self,
        events: &mut Events<'_>,
        progress: Progress,
    ) -> Result<Option<Event>, ModelError> {
        if progress == Progress::Open {
            return events.next().await;
        }
        match timeout(self.silence_after_stop, events.next()).await {
            // What the model said is whole; what broke is the rest of the connection.
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
        // TRUST: a refusal may be of any length and never end.
        let mut body = Vec::new();
        while body.len() < MAX_REFUSAL_BYTES
            && let Ok(Ok(Some(piece))) = timeout_at(until, response.chunk()).await
        {
            body.extend_from_slice(&piece);
        }
        let body = String::from_utf8_lossy(&body);
        Err(refusal::refused(status.as_u16(), &body, response.headers()))
    }

    /// Takes an answer whose end is in doubt only where that is a habit of the server.
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

/// The address of requests. What follows a `?` in the base address stays at the end.
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

/// The key, where the format has it, and the version of the format.
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

/// Connections to the server at this address, and to nowhere else.
///
/// # Errors
/// When none can be made at all.
pub fn http_client(base_url: &str) -> Result<reqwest::Client, ModelError> {
    // Whoever was first has made the same choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let host = base_url.split("//").nth(1).unwrap_or_default();
    let is_here = ["localhost", "127.", "[::1]"]
        .iter()
        .any(|name| host.starts_with(name));
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A server that leads elsewhere would be given the key there.
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(1);
    let builder = if is_here { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| {
        ModelError::lasting(format!("connections to servers cannot be made: {error}"))
    })
}
